"""Neonatal EEG of Helsinki (Zenodo 4940267): seizure or not in each second of 79 neonates, by three experts; no EEG."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import csv

from labeltide_bench.datasets.files import write_table
from labeltide_bench.datasets.public import PublicDataset
from labeltide_bench.datasets.source import Source

PAGE = "https://zenodo.org/records/4940267"
NAMES = {  # expert → file
    "A": "annotations_2017_A_fixed.csv",
    "B": "annotations_2017_B.csv",
    "C": "annotations_2017_C.csv",
}
URLS = tuple(f"{PAGE}/files/{name}" for name in NAMES.values())
FILE = "annotations_1s.parquet"
# As published: neonates, and seconds of all of them.
N_RECORDS = 79
N_SECONDS = 402_825

Marks = dict[int, np.ndarray]


def fetch(source: Source, folder: Path) -> None:
    """Take the three files from the source and convert them."""
    convert(source.local_files or [source.download(url) for url in URLS], folder)


def convert(paths: Sequence[Path], folder: Path) -> None:
    """Write one row for each second: 1 seizure, 0 none."""
    experts = {expert: _read_marks(_find(paths, name)) for expert, name in NAMES.items()}
    first = experts["A"]
    sizes = {expert: {record: len(marks) for record, marks in found.items()} for expert, found in experts.items()}
    if any(size != sizes["A"] for size in sizes.values()):
        raise ValueError("The three experts must have marked the same seconds of the same records. They have not.")
    n_seconds = sum(sizes["A"].values())
    if (len(first), n_seconds) != (N_RECORDS, N_SECONDS):
        raise ValueError(f"There must be {N_SECONDS} seconds of {N_RECORDS} records. Got {n_seconds} of {len(first)}.")
    columns = {
        "record": np.concatenate([np.full(len(marks), record, np.int8) for record, marks in first.items()]),
        "second": np.concatenate([np.arange(len(marks), dtype=np.int32) for marks in first.values()]),
    }
    marks = {f"expert_{expert}": np.concatenate(list(found.values())) for expert, found in experts.items()}
    write_table(columns | marks, folder / FILE)


def _find(paths: Sequence[Path], name: str) -> Path:
    """The file of this name among those given, or in the folder given."""
    for path in paths:
        folder = path / name if path.is_dir() else path
        if folder.name == name and folder.is_file():
            return folder
    raise ValueError(f"archives must hold {', '.join(NAMES.values())}. {name} is not among them.")


def _read_marks(path: Path) -> Marks:
    """Columns 1 to 79, a row a second; what follows the end of a record is empty."""
    try:
        table = csv.read_csv(io.BytesIO(path.read_bytes()))
    except pa.ArrowInvalid as error:
        raise ValueError(f"{path.name} must be a table of numbers. It is not: {error}") from None
    if not all(name.isdigit() for name in table.column_names):
        raise ValueError(f"The columns of {path.name} must be numbers of records. Got {table.column_names[:3]}, ...")
    return {int(name): _marks(table[name], name, path) for name in table.column_names}


def _marks(column: pa.ChunkedArray, name: str, path: Path) -> np.ndarray:
    values = column.cast(pa.float64()).to_numpy()
    n = int(np.isfinite(values).sum())
    if not np.isin(values[:n], (0, 1)).all():
        raise ValueError(f"Record {name} in {path.name} must be 0 or 1 in each second up to its end. It is not.")
    return values[:n].astype(np.int8)


DATASET = PublicDataset(
    name="neonatal_seizure",
    title="Neonatal EEG with seizure annotations (Helsinki): 79 neonates, three experts; labels only, no EEG",
    licence="CC BY 4.0",
    citation="Stevenson, Tapani, Lauronen and Vanhatalo (Scientific Data 2019); https://doi.org/10.1038/sdata.2019.39",
    page=PAGE,
    size="some MB",
    archives=URLS,
    folder="neonatal_seizure",
    files=(FILE,),
    fetch=fetch,
)
