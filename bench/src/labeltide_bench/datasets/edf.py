"""A small reader of the European Data Format: header, signals and annotations (https://www.edfplus.info/specs)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

ANNOTATIONS = "EDF Annotations"
# Name and width in bytes of the fields that every signal has, in the order of the header.
SIGNAL_FIELDS = (
    ("label", 16),
    ("transducer", 80),
    ("unit", 8),
    ("physical_min", 8),
    ("physical_max", 8),
    ("digital_min", 8),
    ("digital_max", 8),
    ("prefiltering", 80),
    ("samples", 8),
    ("reserved", 32),
)
# A time-stamped annotation list without its closing zero: onset, duration where there is one, texts.
TAL = re.compile(rb"([+-]\d+(?:\.\d*)?)(?:\x15(\d+(?:\.\d*)?))?\x14(.*)", re.DOTALL)


class Annotation(NamedTuple):
    """A text with its onset and duration in seconds from the start of the recording."""

    onset: float
    duration: float
    text: str


@dataclass(frozen=True)
class Signal:
    """One signal of the file, and where it lies within a data record."""

    label: str
    unit: str
    gain: float  # physical units in one digital step
    zero: float  # the physical value of digital 0
    samples: int  # in a record
    first: int  # sample of a record


@dataclass(frozen=True)
class Edf:
    """An opened EDF or EDF+ file; signals are read when asked for."""

    path: Path
    start: str  # date and time as dd.mm.yy hh.mm.ss
    header_bytes: int
    n_records: int
    record_seconds: float
    signals: tuple[Signal, ...]

    @property
    def seconds(self) -> float:
        """The length of the recording."""
        return self.n_records * self.record_seconds

    def signal(self, label: str) -> Signal:
        """The description of one signal."""
        for signal in self.signals:
            if signal.label == label:
                return signal
        names = ", ".join(signal.label for signal in self.signals)
        raise ValueError(f"{self.path.name} must have a signal {label!r}. It has: {names}.")

    def rate(self, label: str) -> float:
        """Samples a second."""
        return self.signal(label).samples / self.record_seconds

    def read(self, label: str, every: int = 1) -> np.ndarray:
        """Samples 0, every, 2 every, ... in physical units, as float64."""
        signal = self.signal(label)
        return self._digital(signal)[::every] * signal.gain + signal.zero

    def annotations(self) -> list[Annotation]:
        """All texts of the annotation signals by onset, without the empty ones that only keep time."""
        found: list[Annotation] = []
        for signal in self.signals:
            if signal.label == ANNOTATIONS:
                for tal in self._digital(signal).tobytes().split(b"\0"):
                    found += self._read_tal(tal)
        return sorted(found, key=lambda note: note.onset)

    def _digital(self, signal: Signal) -> np.ndarray:
        """The stored two-byte numbers of one signal, records joined."""
        width = sum(each.samples for each in self.signals)
        records = np.memmap(self.path, "<i2", "r", self.header_bytes, (self.n_records, width))
        return np.array(records[:, signal.first : signal.first + signal.samples]).reshape(-1)

    def _read_tal(self, tal: bytes) -> list[Annotation]:
        if not tal:
            return []
        match = TAL.fullmatch(tal)
        if match is None:
            raise ValueError(f"{self.path.name} must hold annotations as onset, duration and texts. Got {tal[:60]!r}.")
        onset, duration, texts = float(match[1]), float(match[2] or 0), match[3].split(b"\x14")
        return [Annotation(onset, duration, text.decode("utf-8")) for text in texts if text]


def open_edf(path: Path) -> Edf:
    """Read the header, and check that the file is as long as its header says."""
    with open(path, "rb") as opened:
        head = opened.read(256)
        if len(head) < 256 or head[:8].strip() != b"0":
            raise ValueError(f"{path.name} must be an EDF file, which begins with '0'. It begins with {head[:8]!r}.")
        n_signals = int(_number(path, head[252:256]))
        fields = _split_fields(opened.read(256 * n_signals), n_signals)
    if head[192:197] == b"EDF+D":
        raise ValueError(f"{path.name} must be continuous. It is an EDF+D file, with gaps in time.")
    signals = _read_signals(path, fields, n_signals)
    header_bytes = int(_number(path, head[184:192]))
    record_bytes = 2 * sum(signal.samples for signal in signals)
    body = path.stat().st_size - header_bytes
    n_records = int(_number(path, head[236:244]))
    if n_records == -1 and record_bytes:  # not known when the recording began
        n_records = body // record_bytes
    if n_records < 1 or not record_bytes or body < n_records * record_bytes:
        raise ValueError(
            f"{path.name} must hold {n_records} records of {record_bytes} bytes behind its header. It holds "
            f"{body} bytes: it was cut off. Download it again."
        )
    start = f"{_text(head[168:176])} {_text(head[176:184])}"
    return Edf(path, start, header_bytes, n_records, _number(path, head[244:252]), signals)


def _split_fields(block: bytes, n_signals: int) -> dict[str, list[bytes]]:
    """Field by field, and within each field signal by signal."""
    fields, begin = {}, 0
    for name, width in SIGNAL_FIELDS:
        fields[name] = [block[begin + i * width : begin + (i + 1) * width] for i in range(n_signals)]
        begin += n_signals * width
    return fields


def _read_signals(path: Path, fields: dict[str, list[bytes]], n_signals: int) -> tuple[Signal, ...]:
    signals: list[Signal] = []
    first = 0
    for i in range(n_signals):
        low, high, digital_low, digital_high, samples = (
            _number(path, fields[name][i])
            for name in ("physical_min", "physical_max", "digital_min", "digital_max", "samples")
        )
        if digital_low == digital_high:
            raise ValueError(f"{path.name} must have a digital range in signal {i + 1}. It is {digital_low:g} only.")
        gain = (high - low) / (digital_high - digital_low)
        zero = low - gain * digital_low
        label, unit = _text(fields["label"][i]), _text(fields["unit"][i])
        signals.append(Signal(label, unit, gain, zero, int(samples), first))
        first += int(samples)
    return tuple(signals)


def _text(field: bytes) -> str:
    return field.decode("latin-1").strip()


def _number(path: Path, field: bytes) -> float:
    try:
        return float(_text(field))
    except ValueError:
        raise ValueError(f"{path.name} must have numbers in its EDF header. Got {field!r}: is it cut off?") from None
