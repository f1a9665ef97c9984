"""The windows to learn from, drawn by chance from a table that is read chunk by chunk.

A window is drawn by a hash of the seed, the name of its sequence and its number there: the windows with the smallest
hashes are taken (bottom-k sampling, Cohen and Kaplan 2007). The draw is therefore uniform over windows, and the same
whatever the order of files and their number.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from labeltide._validation import UnanswerableError
from labeltide.auditing import fitting
from labeltide.auditing.options import AuditOptions
from labeltide.auditing.rare_classes import kept_codes
from labeltide.auditing.streaming.chunk_reader import ChunkSteps, read_steps, step_labels
from labeltide.auditing.streaming.chunks import Chunk
from labeltide.auditing.streaming.layout import Layout
from labeltide.tables.features import LARGEST
from labeltide.tables.intake import is_number, whole
from labeltide.tables.windows import Windows

MORE = 1.3  # windows looked at for each that is wanted, as some hold no label
RARE = 20_000  # labels of a class, below which its windows are looked for on their own
OF_RARE = 2  # windows with a class that no drawn window holds
WHOLE = 2**64 - 1


@dataclass(frozen=True)
class DrawnWindow:
    """One window: where it lies, and its rows, before which stands one with the last values before it."""

    rank: int  # its hash
    sequence: int
    number: int
    start: int  # its first step within the sequence
    length: int
    warm_up: int
    table: pa.Table
    classes: frozenset[int]  # of the labels that belong to it


def draw_windows(
    layout: Layout, options: AuditOptions, on_rows: Callable[[int], None] = lambda rows: None
) -> tuple[list[DrawnWindow], int]:
    """The windows to learn from, sorted by the names of sequences, and the number of all windows."""
    plan, seed = layout.plan, options.seed
    total = int(plan.n_windows.sum())
    most = fitting.most_windows(layout.size, options.pace, options.train_on)
    names = hash_names(layout.survey.names, seed)
    share = 1.0 if total <= most else min(1.0, MORE * (most + 4 * most**0.5 + 20) / total)
    while True:
        limit = min(WHOLE, int(share * WHOLE))
        drawn, rare = _pass(layout, names, limit, total <= most, on_rows)
        if len(drawn) >= min(most, total) or share >= 1.0:
            break
        share = min(1.0, share * 8)
    drawn = sorted(drawn, key=lambda each: each.rank)[:most] if total > most else drawn
    met: frozenset[int] = frozenset().union(*(each.classes for each in drawn)) if drawn else frozenset()
    chosen = {(each.sequence, each.number): each for each in drawn}
    for code, windows in rare.items():
        if code not in met:
            chosen |= {(each.sequence, each.number): each for each in windows}
    if sum(bool(each.classes) for each in chosen.values()) < 2:
        raise UnanswerableError(
            "An audit judges one stretch of labels by others, so it needs labels in at least two sequences or windows. "
            "Name a shorter window (--window STEPS), or give more data."
        )
    texts = {each.sequence: layout.survey.names[each.sequence].as_py() for each in chosen.values()}
    return sorted(chosen.values(), key=lambda each: (texts[each.sequence], each.number)), total


def hash_names(names: pa.Array, seed: int) -> np.ndarray:
    """A number from the seed and the name of each sequence: uint64 of shape (sequences,)."""
    key = seed.to_bytes(8, "little")
    digests = [hashlib.blake2b(name.encode(), digest_size=8, key=key).digest() for name in names.to_pylist()]
    return np.frombuffer(b"".join(digests), dtype=np.uint64)


def mix(name: np.ndarray, number: np.ndarray) -> np.ndarray:
    """The hash of a window (SplitMix64, Steele and others 2014) from those of its sequence's name and its number."""
    value = name + (number.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


def _pass(
    layout: Layout, names: np.ndarray, limit: int, every: bool, on_rows: Callable[[int], None]
) -> tuple[list[DrawnWindow], dict[int, list[DrawnWindow]]]:
    """Windows whose hash is below the limit and that hold labels, and for rare classes some that hold them."""
    codes = kept_codes(layout.rare)
    counts = layout.survey.class_counts[~layout.rare]
    looked_for = np.flatnonzero(counts < RARE).tolist() if not every else []
    drawn: list[DrawnWindow] = []
    rare: dict[int, list[DrawnWindow]] = {code: [] for code in looked_for}
    for chunk in layout.plan.chunks:
        windows, numbers = layout.plan.windows(chunk), layout.plan.numbers(chunk)
        ranks = mix(names[chunk.first_sequence + windows.groups], numbers)
        near = ranks <= np.uint64(limit)
        if near.any() or looked_for:
            read = read_steps(layout, chunk)
            labels = codes[step_labels(layout, read)][windows.filled_index()]
            labels = np.where(windows.belongs[..., None], labels, np.int8(-1))
            taker = _Taker(layout, chunk, read, windows, numbers, ranks, labels, read.steps.first)
            taken = near & (every | (labels >= 0).any((1, 2)))
            drawn += [taker.take(place) for place in np.flatnonzero(taken).tolist()]
            for code in looked_for:
                found = [taker.take(place) for place in _smallest(ranks, (labels == code).any((1, 2)))]
                rare[code] = heapq.nsmallest(OF_RARE, rare[code] + found, key=lambda each: each.rank)
        on_rows(chunk.last_row)
    return drawn, rare


def _smallest(ranks: np.ndarray, holds: np.ndarray) -> list[int]:
    places = np.flatnonzero(holds)
    return places[np.argsort(ranks[places])[:OF_RARE]].tolist()


@dataclass(frozen=True)
class _Taker:
    """The windows of one chunk, of which some are taken."""

    layout: Layout
    chunk: Chunk
    read: ChunkSteps
    windows: Windows
    numbers: np.ndarray
    ranks: np.ndarray
    labels: np.ndarray
    first_steps: np.ndarray  # of the sequence of each step

    def take(self, place: int) -> DrawnWindow:
        start, length = int(self.windows.starts[place]), int(self.windows.lengths[place])
        rows, end = self.read.steps.rows, start + length
        sequence_start = int(self.first_steps[start])
        last = int(rows[end]) if end < len(rows) else len(self.read.table)
        found = np.unique(self.labels[place])
        return DrawnWindow(
            rank=int(self.ranks[place]),
            sequence=self.chunk.first_sequence + int(self.windows.groups[place]),
            number=int(self.numbers[place]),
            start=start - sequence_start + self.chunk.first_step,
            length=length,
            warm_up=int(self.windows.warm_up[place]),
            table=_with_last_values(self.layout, self.read.table, int(rows[sequence_start]), int(rows[start]), last),
            classes=frozenset(found[found >= 0].tolist()),
        )


def _with_last_values(layout: Layout, table: pa.Table, begin: int, first: int, last: int) -> pa.Table:
    """The rows of a window; before them a row with the last observation of every numeric feature, null without one."""
    usual = max(first - 1, begin)
    rows = np.append(usual, np.arange(first, last))
    window = table.take(pa.array(rows))
    for name in layout.columns.features:
        before = _last_value(table[name], begin, first)
        if before != usual:
            rows[0] = before or 0
            taken = whole(table[name]).take(pa.array(rows, mask=(np.arange(len(rows)) == 0) & (before is None)))
            window = window.set_column(window.column_names.index(name), name, taken)
    return window


def _last_value(column: pa.ChunkedArray, begin: int, first: int) -> int | None:
    """The row of the last number before `first`, in steps back that grow."""
    if not is_number(column.type):
        return None
    size, end = 64, first
    while end > begin:
        low = max(begin, end - size)
        values = whole(column.slice(low, end - low)).cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        with np.errstate(invalid="ignore"):
            there = np.flatnonzero(np.abs(values) <= LARGEST)
        if len(there):
            return low + int(there[-1])
        end, size = low, size * 8
    return None
