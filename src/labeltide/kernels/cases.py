"""Regression cases of the compiled kernels: stored calls and the results that torch gave, replayed by self-checks.

A case is a block of memory, the calls that run on it and the parts of it that are compared afterwards. Pointers in a
task are stored as offsets into that memory. `tools/kernel_cases.py` writes the file; the Python self-check and the C
program `tools/kernels/replay.c`, which also runs under emulators, read it. All numbers are little-endian, and every
part starts at a multiple of eight bytes.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

PATH = Path(__file__).parent / "cases.bin"
MAGIC = b"LTCASES1"
KINDS = (np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.uint8))
NAME_BYTES = 32


@dataclass
class Call:
    """One kernel function, its task as bytes, and its pointers: (offset in the task, offset in the memory) each."""

    function: str
    items: int
    task: bytes
    pointers: list[tuple[int, int]]


@dataclass
class Comparison:
    """Expected values of a part of the memory after the calls; the tolerance is relative to the largest of them."""

    offset: int
    expected: np.ndarray
    tolerance: float


@dataclass
class Case:
    """A memory of `size` bytes, its initial content, the calls and the comparisons."""

    name: str
    kernel: str
    size: int
    inputs: list[tuple[int, bytes]] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    comparisons: list[Comparison] = field(default_factory=list)


def write_cases(cases: list[Case], path: Path = PATH) -> None:
    """Store cases in the order given."""
    out = bytearray(MAGIC + struct.pack("<q", len(cases)))
    for case in cases:
        out += _name(case.name) + _name(case.kernel) + struct.pack("<q", case.size)
        out += struct.pack("<q", len(case.inputs))
        for offset, values in case.inputs:
            out += struct.pack("<qq", offset, len(values)) + _padded(values)
        out += struct.pack("<q", len(case.calls))
        for call in case.calls:
            out += _name(call.function) + struct.pack("<qq", call.items, len(call.task)) + _padded(call.task)
            out += struct.pack("<q", len(call.pointers))
            for offsets in call.pointers:
                out += struct.pack("<qq", *offsets)
        out += struct.pack("<q", len(case.comparisons))
        for comparison in case.comparisons:
            expected = comparison.expected
            sizes = (comparison.offset, expected.size, KINDS.index(expected.dtype), comparison.tolerance)
            out += struct.pack("<qqqd", *sizes) + _padded(expected.tobytes())
    path.write_bytes(out)


def read_cases(path: Path = PATH) -> list[Case]:
    """All stored cases."""
    reader = _Reader(path.read_bytes())
    if reader.take(8) != MAGIC:
        raise ValueError(f"{path} does not hold kernel cases.")
    return [_read_case(reader) for _ in range(reader.number())]


def _read_case(reader: _Reader) -> Case:
    case = Case(reader.name(), reader.name(), reader.number())
    for _ in range(reader.number()):
        offset, size = reader.number(), reader.number()
        case.inputs.append((offset, reader.take(size)))
    for _ in range(reader.number()):
        function, items, size = reader.name(), reader.number(), reader.number()
        task = reader.take(size)
        case.calls.append(Call(function, items, task, [reader.numbers(2) for _ in range(reader.number())]))  # type: ignore[misc]
    for _ in range(reader.number()):
        offset, count, kind = reader.numbers(3)
        (tolerance,) = struct.unpack("<d", reader.take(8))
        expected = np.frombuffer(reader.take(count * KINDS[kind].itemsize), KINDS[kind])
        case.comparisons.append(Comparison(offset, expected, tolerance))
    return case


class _Reader:
    """Reads numbers and bytes in order; every part starts at a multiple of eight bytes."""

    def __init__(self, data: bytes) -> None:
        self.data, self.position = data, 0

    def take(self, size: int) -> bytes:
        start, self.position = self.position, self.position + -(-size // 8) * 8
        return self.data[start : start + size]

    def number(self) -> int:
        return self.numbers(1)[0]

    def numbers(self, count: int) -> tuple[int, ...]:
        return struct.unpack(f"<{count}q", self.take(8 * count))

    def name(self) -> str:
        return self.take(NAME_BYTES).rstrip(b"\0").decode()


def _name(text: str) -> bytes:
    encoded = text.encode()
    assert len(encoded) <= NAME_BYTES
    return encoded.ljust(NAME_BYTES, b"\0")


def _padded(values: bytes) -> bytes:
    return values.ljust(-(-len(values) // 8) * 8, b"\0")
