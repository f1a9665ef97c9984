"""EDF and EDF+ files (Kemp and Olivan 2003), read by edfio. Files that are cut off or not EDF are refused.

edfio only warns about a truncated file and shortens the recording. A data set must not become shorter unnoticed, so the
number of data records is compared with the header here.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from edfio import Edf, EdfAnnotation, EdfSignal, read_edf

HEADER_BYTES = 256


@dataclass(frozen=True)
class EdfFile:
    """An opened file; signals are read when asked for."""

    path: Path
    edf: Edf
    start: str  # date and time as dd.mm.yy hh.mm.ss
    n_records: int

    @property
    def seconds(self) -> float:
        """The length of the recording."""
        return self.n_records * self.edf.data_record_duration

    def signal(self, label: str) -> EdfSignal:
        """The signal with this label."""
        if label not in self.edf.labels:
            raise ValueError(f"{self.path.name} must have a signal {label!r}. It has: {', '.join(self.edf.labels)}.")
        return self.edf.get_signal(label)

    def rate(self, label: str) -> float:
        """Samples a second."""
        return self.signal(label).sampling_frequency

    def read(self, label: str, every: int = 1) -> np.ndarray:
        """Samples 0, every, 2 every, ... in physical units, as float64."""
        signal = self.signal(label)
        gain = (signal.physical_max - signal.physical_min) / (signal.digital_max - signal.digital_min)
        digital = signal.digital[: self.n_records * signal.samples_per_data_record : every]
        return digital * gain + (signal.physical_min - gain * signal.digital_min)

    def annotations(self) -> list[EdfAnnotation]:
        """All annotations with a text, by onset. The empty ones only keep time."""
        try:
            return [note for note in self.edf.annotations if note.text]
        except ValueError as error:
            raise ValueError(
                f"{self.path.name} must hold annotations as onset, duration and texts. {error}"[:300]
            ) from None


def open_edf(path: Path) -> EdfFile:
    """Read the header, and check that the file is as long as its header says."""
    with open(path, "rb") as file:
        header = file.read(HEADER_BYTES)
    if len(header) < HEADER_BYTES or header[:8].strip() != b"0":
        raise ValueError(f"{path.name} must be an EDF file, which begins with '0'. It begins with {header[:8]!r}.")
    try:
        with warnings.catch_warnings(action="ignore"):  # of a length that the header does not name; checked below
            edf = read_edf(path, header_encoding="latin-1")
        expected = int(header[236:244])
        duration, ranges = edf.data_record_duration, [_ranges(signal) for signal in edf.signals]
    except Exception as error:  # edfio trusts headers; broken ones make it raise errors of many kinds
        raise ValueError(
            f"{path.name} must have a sound EDF header and data behind it. It cannot be read ({error}): is it cut off?"
        ) from None
    if edf.reserved.startswith("EDF+D"):
        raise ValueError(f"{path.name} must be continuous. It is an EDF+D file, with gaps in time.")
    silent = not ranges  # annotations alone have records of no duration
    if not (0 < duration < np.inf or (silent and duration == 0)) or any(low == high for low, high, *_ in ranges):
        raise ValueError(f"{path.name} must have records of some duration and a digital range in every signal.")
    if edf.num_data_records < max(expected, 1):
        raise ValueError(
            f"{path.name} must hold {expected} records behind its header. It holds {edf.num_data_records}: it was cut "
            "off. Download it again."
        )
    start = f"{header[168:176].decode('latin-1')} {header[176:184].decode('latin-1')}"
    n_records = expected if expected > 0 else edf.num_data_records  # -1: not known when the recording began
    return EdfFile(path, edf, start, n_records)


def _ranges(signal: EdfSignal) -> tuple[float, ...]:
    """Digital and physical ranges; reading them raises an error where the header holds no numbers."""
    return signal.digital_min, signal.digital_max, signal.physical_min, signal.physical_max
