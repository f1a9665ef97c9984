"""Human Activity Recognition Using Smartphones (UCI 240): 30 people, six activities, 561 features."""

from __future__ import annotations

import io
from pathlib import Path
from zipfile import ZipFile

import numpy as np

from labeltide._files import csv_text
from labeltide_bench.datasets.files import find_member, members, read_numbers, write_table
from labeltide_bench.datasets.public import PublicDataset
from labeltide_bench.datasets.source import Source

URL = "https://archive.ics.uci.edu/static/public/240/human+activity+recognition+using+smartphones.zip"
INNER = "UCI HAR Dataset.zip"
N_FEATURES = 561
# Windows of activity 1 .. 6, as published: UCI publishes no checksum, so these tell a right archive.
CLASS_COUNTS = {"train": (1226, 1073, 986, 1286, 1374, 1407), "test": (496, 471, 420, 491, 532, 537)}


def fetch(source: Source, folder: Path) -> None:
    """Take the archive from the source and convert it."""
    convert(source.single(URL), folder)


def convert(archive: Path, folder: Path) -> None:
    """Write train.parquet, test.parquet and feature_names.csv, rows in their original order.

    The archive may be UCI's (a zip within a zip) or the inner zip itself.
    """
    with ZipFile(archive) as outer:
        if not any(name.endswith(INNER) for name in members(outer)):
            return _convert(outer, folder)
        with ZipFile(io.BytesIO(outer.read(find_member(outer, INNER)))) as inner:
            _convert(inner, folder)


def _convert(archive: ZipFile, folder: Path) -> None:
    names = _read_feature_names(archive)
    for part in CLASS_COUNTS:
        write_table(_read_part(archive, part), folder / f"{part}.parquet")
    rows = [(_column(i), name) for i, name in enumerate(names)]
    content = csv_text([("column", "feature_name"), *rows])
    (folder / "feature_names.csv").write_text(content, encoding="utf-8", newline="")


def _read_part(archive: ZipFile, part: str) -> dict[str, np.ndarray]:
    labels = read_numbers(archive, f"{part}/y_{part}.txt", np.int8)[:, 0]
    subjects = read_numbers(archive, f"{part}/subject_{part}.txt", np.int8)[:, 0]
    features = read_numbers(archive, f"{part}/X_{part}.txt", np.float32)
    expected = (sum(CLASS_COUNTS[part]), N_FEATURES)
    if features.shape != expected or len(labels) != expected[0] or len(subjects) != expected[0]:
        raise ValueError(
            f"The {part} part must have {expected[0]} rows of {expected[1]} features. Got features of shape "
            f"{features.shape}, {len(labels)} labels and {len(subjects)} subjects."
        )
    counts = tuple(int((labels == label).sum()) for label in range(1, 7))
    if counts != CLASS_COUNTS[part]:
        raise ValueError(f"The {part} part must have {CLASS_COUNTS[part]} windows of activity 1 to 6. Got {counts}.")
    if not np.isfinite(features).all():
        raise ValueError(f"The features of the {part} part must be finite. Some are not.")
    return {"subject": subjects, "label": labels} | {_column(i): features[:, i] for i in range(N_FEATURES)}


def _read_feature_names(archive: ZipFile) -> list[str]:
    """Names from lines such as "1 tBodyAcc-mean()-X"."""
    text = archive.read(find_member(archive, "features.txt")).decode("utf-8")
    names = [line.split(maxsplit=1)[-1].strip() for line in text.splitlines() if line.strip()]
    if len(names) != N_FEATURES:
        raise ValueError(f"features.txt must name {N_FEATURES} features. It names {len(names)}.")
    return names


def _column(index: int) -> str:
    return f"f{index + 1:03d}"


DATASET = PublicDataset(
    name="uci_har",
    title="Human Activity Recognition Using Smartphones (UCI 240): 30 people, 6 activities, 561 features",
    licence="CC BY 4.0 on UCI's page; the archive's own README asks for citation and forbids commercial use",
    citation="Anguita, Ghio, Oneto, Parra and Reyes-Ortiz (ESANN 2013); https://doi.org/10.24432/C54S4K",
    page="https://archive.ics.uci.edu/dataset/240/human+activity+recognition+using+smartphones",
    size="about 61 MB",
    archives=(URL,),
    folder="uci_har",
    files=("train.parquet", "test.parquet", "feature_names.csv"),
    fetch=fetch,
)
