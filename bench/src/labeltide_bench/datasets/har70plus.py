"""HAR70+ (UCI 780): 18 people of 70 to 95 years, accelerometers on back and thigh, seven activities."""

from __future__ import annotations

import re
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pyarrow as pa
from pyarrow import csv

from labeltide_bench.datasets.files import check_size, members, write_table
from labeltide_bench.datasets.public import PublicDataset
from labeltide_bench.datasets.source import Source

URL = "https://archive.ics.uci.edu/static/public/780/har70.zip"
AXES = ("back_x", "back_y", "back_z", "thigh_x", "thigh_y", "thigh_z")
LABELS = (1, 3, 4, 5, 6, 7, 8)
RATE = 50  # samples a second
WINDOW = 250  # samples in 5 seconds
# As published. UCI publishes no checksum.
N_SUBJECTS = 18
N_ROWS = 2_259_597

Columns = dict[str, np.ndarray]


def fetch(source: Source, folder: Path) -> None:
    """Take the archive from the source and convert it."""
    convert(source.single(URL), folder)


def convert(archive: Path, folder: Path) -> None:
    """Write every label, the 5 s means, and the 1 Hz samples which the paper uses (each 50th row)."""
    with ZipFile(archive) as opened:
        people = [_read_person(opened, name) for name in _find_people(opened)]
    n_rows = sum(len(person["label"]) for person in people)
    if (len(people), n_rows) != (N_SUBJECTS, N_ROWS):
        raise ValueError(
            f"HAR70+ must hold {N_ROWS} rows of {N_SUBJECTS} people, as files 501.csv to 518.csv. "
            f"Got {n_rows} rows of {len(people)} people."
        )
    labels = [{name: person[name] for name in ("subject", "label")} for person in people]
    write_table(_stack(labels), folder / "labels_50hz.parquet")
    write_table(_stack([window_means(person) for person in people]), folder / "means_5s.parquet")
    write_table(_stack([every_second(person) for person in people]), folder / "samples_1hz.parquet")


def window_means(person: Columns) -> Columns:
    """Means over windows of 250 samples, no partial last one; of equally common labels the smallest."""
    n = len(person["label"]) // WINDOW
    labels = person["label"][: n * WINDOW].reshape(n, WINDOW)
    counts = np.stack([(labels == label).sum(1) for label in LABELS], axis=1)  # (windows, labels)
    means: Columns = {}
    for index in ("back", "thigh"):
        axes = np.stack([person[f"{index}_{axis}"] for axis in "xyz"])[:, : n * WINDOW]  # (3, samples)
        for axis, values in zip(("x", "y", "z", "mag"), (*axes, np.linalg.norm(axes, axis=0)), strict=True):
            means[f"{index}_{axis}_mean"] = values.reshape(n, WINDOW).mean(1).astype(np.float32)
    return {
        "subject": person["subject"][:n],
        "window": np.arange(n, dtype=np.int16),
        **means,
        "label_mode": np.array(LABELS, np.int8)[counts.argmax(1)],
        "label_first": labels[:, 0],
        "mode_share": (counts.max(1) / WINDOW).astype(np.float32),
    }


def every_second(person: Columns) -> Columns:
    """The first of each 50 samples, with its label."""
    taken = {name: values[::RATE] for name, values in person.items()}
    return {
        "subject": taken["subject"],
        "second": np.arange(len(taken["label"]), dtype=np.int16),
        **{axis: taken[axis].astype(np.float32) for axis in AXES},
        "label": taken["label"],
    }


def _find_people(archive: ZipFile) -> list[str]:
    return sorted(name for name in members(archive) if re.search(r"(^|/)5\d\d\.csv$", name))


def _read_person(archive: ZipFile, name: str) -> Columns:
    """Subject, six axes as float64 and label of one csv file, in order of time."""
    options = csv.ConvertOptions(
        include_columns=[*AXES, "label"],
        column_types={axis: pa.float64() for axis in AXES} | {"label": pa.int8()},
    )
    check_size(archive, name)
    with archive.open(name) as opened:
        try:
            table = csv.read_csv(opened, convert_options=options)
        except (pa.ArrowInvalid, KeyError) as error:
            raise ValueError(f"{name} must have columns {', '.join(AXES)} and label. {error}") from None
    columns: Columns = {column: table[column].to_numpy() for column in table.column_names}
    if not np.isfinite([columns[axis].sum() for axis in AXES]).all():
        raise ValueError(f"The accelerations in {name} must be finite. Some are missing or infinite.")
    unknown = set(np.unique(columns["label"]).tolist()) - set(LABELS)
    if unknown:
        raise ValueError(f"The labels in {name} must be among {LABELS}. Got {sorted(unknown)} too.")
    subject = np.full(len(table), int(Path(name).stem), np.int16)
    return {"subject": subject, **columns, "label": columns["label"].astype(np.int8)}


def _stack(parts: list[Columns]) -> Columns:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


DATASET = PublicDataset(
    name="har70plus",
    title="HAR70+ (UCI 780): 18 people of 70 to 95 years, accelerometers on back and thigh, 7 activities",
    licence="CC BY 4.0",
    citation="Ustad and others (Sensors 2023, 23, 2368); Logacjov and Ustad; https://doi.org/10.24432/C5CW3D",
    page="https://archive.ics.uci.edu/dataset/780/har70",
    size="tens of MB",
    archives=(URL,),
    folder="har70plus",
    files=("labels_50hz.parquet", "means_5s.parquet", "samples_1hz.parquet"),
    fetch=fetch,
)
