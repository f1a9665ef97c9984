"""Tiny archives in each data set's published format, made by the tests."""

import io
import zipfile
from pathlib import Path

import numpy as np

HAR_COUNTS = {"train": (2, 1, 1, 2, 1, 1), "test": (1, 1, 1, 1, 1, 1)}
EEG_COUNTS = (5, 3)
HAR70_SIZES = {501: 500, 502: 777}
NIGHTS = {"SC4001": "C", "SC4012": "J"}  # and the last letter of their hypnograms
EEG_NAMES = ["AF3", "F7", "F3", "FC5", "T7", "P7", "O1", "O2", "P8", "T8", "FC6", "F4", "F8", "AF4"]
HAR70_HEADER = "timestamp,back_x,back_y,back_z,thigh_x,thigh_y,thigh_z,label"


def make_zip(path: Path, files: dict[str, str | bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def har_numbers(part: str, n_features: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, labels and subjects."""
    generator = np.random.default_rng(len(part))
    labels = generator.permutation(np.repeat(np.arange(1, 7), HAR_COUNTS[part]))
    return generator.uniform(-1, 1, (len(labels), n_features)), labels, generator.integers(1, 31, len(labels))


def har_files(n_features: int) -> dict[str, str]:
    """The inner archive: numbers such as "  2.8858451e-001 -2.0294171e-002", and macOS's shadow files."""
    root = "UCI HAR Dataset/"
    names = [f"{i} tBodyAcc-arCoeff()-X,{i}" for i in range(1, n_features + 1)]
    files = {
        root + "features.txt": "\n".join(names) + "\n",
        "__MACOSX/" + root + "features.txt": "shadow",
    }
    for part in HAR_COUNTS:
        features, labels, subjects = har_numbers(part, n_features)
        # A three-digit exponent, as in the original files.
        rows = [" ".join(f"{v:15.7e}".replace("e-", "e-0").replace("e+", "e+0") for v in row) for row in features]
        files[f"{root}{part}/X_{part}.txt"] = "\n".join(rows) + "\n"
        files[f"{root}{part}/y_{part}.txt"] = "\n".join(map(str, labels)) + "\n"
        files[f"{root}{part}/subject_{part}.txt"] = "\n".join(map(str, subjects)) + "\n"
        files[f"{root}{part}/Inertial Signals/body_acc_x_{part}.txt"] = "1 2 3\n"
        files[f"__MACOSX/{root}{part}/X_{part}.txt"] = "shadow"
    return files


def make_har(path: Path, n_features: int, files: dict[str, str] | None = None) -> Path:
    """UCI's archive: a zip within a zip."""
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in (files or har_files(n_features)).items():
            archive.writestr(name, content)
    return make_zip(path, {"UCI HAR Dataset.names": "words", "UCI HAR Dataset.zip": inner.getvalue()})


def eeg_values() -> np.ndarray:
    generator = np.random.default_rng(0)
    values = generator.uniform(4000, 4700, (sum(EEG_COUNTS), 14)).round(2)
    return np.column_stack([values, generator.permutation(np.repeat([0, 1], EEG_COUNTS))])


def eeg_text() -> str:
    head = ["@RELATION EEG_DATA", "", *(f"@ATTRIBUTE {name} NUMERIC" for name in EEG_NAMES)]
    rows = [",".join(f"{v:g}" for v in row[:-1]) + f",{int(row[-1])}" for row in eeg_values()]
    return "\n".join([*head, "@ATTRIBUTE eyeDetection {0,1}", "", "@DATA", *rows]) + "\n"


def make_eeg(path: Path) -> Path:
    return make_zip(path, {"EEG Eye State.arff": eeg_text()})


def har70_person(subject: int, n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Six axes and labels that last for a while."""
    generator = np.random.default_rng(subject)
    labels = np.repeat(generator.choice([1, 3, 4, 5, 6, 7, 8], n_rows // 40 + 1), 40)[:n_rows]
    return generator.normal(size=(n_rows, 6)).round(6), labels


def make_har70(path: Path, sizes: dict[int, int]) -> Path:
    files = {"har70plus/README.txt": "words", "__MACOSX/har70plus/501.csv": "shadow"}
    for subject, n_rows in sizes.items():
        axes, labels = har70_person(subject, n_rows)
        rows = [
            f"2021-03-24 14:42:{i // 50 % 60:02d}.{i % 50 * 20:03d},{','.join(map(str, row))},{label}"
            for i, (row, label) in enumerate(zip(axes, labels, strict=True))
        ]
        files[f"har70plus/{subject}.csv"] = "\n".join([HAR70_HEADER, *rows]) + "\n"
    return make_zip(path, files)
