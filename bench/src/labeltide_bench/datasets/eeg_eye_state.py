"""EEG Eye State (UCI 264): 117 seconds of one person's EEG at 128 Hz, eyes open or closed."""

from __future__ import annotations

import io
from pathlib import Path
from zipfile import ZipFile, is_zipfile

import numpy as np

from labeltide_bench.datasets.files import find_member, write_table
from labeltide_bench.datasets.public import PublicDataset
from labeltide_bench.datasets.source import Source

URL = "https://archive.ics.uci.edu/static/public/264/eeg+eye+state.zip"
MEMBER = "EEG Eye State.arff"
CHANNELS = ("AF3", "F7", "F3", "FC5", "T7", "P7", "O1", "O2", "P8", "T8", "FC6", "F4", "F8", "AF4")
LABEL = "eyeDetection"
# Samples with eyes open and closed, as published. UCI publishes no checksum.
CLASS_COUNTS = (8257, 6723)


def fetch(source: Source, folder: Path) -> None:
    """Take the archive from the source and convert it."""
    convert(source.single(URL), folder)


def convert(archive: Path, folder: Path) -> None:
    """Write eeg_eye_state.parquet from UCI's zip, or from the .arff file in it."""
    if archive.suffix.lower() == ".arff" and not is_zipfile(archive):
        text = archive.read_text(encoding="utf-8")
    else:
        with ZipFile(archive) as opened:
            text = opened.read(find_member(opened, MEMBER)).decode("utf-8")
    names, values = _read_arff(text)
    write_table(_check(names, values), folder / "eeg_eye_state.parquet")


def _read_arff(text: str) -> tuple[tuple[str, ...], np.ndarray]:
    """Names of the attributes, and the numbers behind @DATA of shape (rows, attributes)."""
    lines = [line.strip() for line in text.splitlines()]
    start = next((i for i, line in enumerate(lines) if line.lower().startswith("@data")), None)
    if start is None:
        raise ValueError(f"{MEMBER} must have a line @DATA. It has none.")
    names = tuple(line.split()[1] for line in lines[:start] if line.lower().startswith("@attribute "))
    try:
        values = np.loadtxt(io.StringIO("\n".join(lines[start + 1 :])), delimiter=",", comments="%", ndmin=2)
    except ValueError as error:
        raise ValueError(f"{MEMBER} must hold rows of numbers behind @DATA. It does not: {error}") from None
    return names, values


def _check(names: tuple[str, ...], values: np.ndarray) -> dict[str, np.ndarray]:
    if names != (*CHANNELS, LABEL) or values.shape != (sum(CLASS_COUNTS), len(names)):
        raise ValueError(
            f"{MEMBER} must have {sum(CLASS_COUNTS)} rows of {', '.join((*CHANNELS, LABEL))}. "
            f"Got shape {values.shape} of {', '.join(names)}."
        )
    counts = tuple(int((values[:, -1] == label).sum()) for label in (0, 1))
    if counts != CLASS_COUNTS:
        raise ValueError(f"{MEMBER} must have {CLASS_COUNTS} samples with eyes open and closed. Got {counts}.")
    columns = {name: np.ascontiguousarray(values[:, i]) for i, name in enumerate(CHANNELS)}
    return columns | {LABEL: values[:, -1].astype(np.int8)}


DATASET = PublicDataset(
    name="eeg_eye_state",
    title="EEG Eye State (UCI 264): 14 EEG channels of one person, eyes open or closed",
    licence="CC BY 4.0",
    citation="Roesler (2013); https://doi.org/10.24432/C57G7J",
    page="https://archive.ics.uci.edu/dataset/264/eeg+eye+state",
    size="under 2 MB",
    archives=(URL,),
    folder="eeg_eye_state",
    files=("eeg_eye_state.parquet",),
    fetch=fetch,
)
