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
from typing import NamedTuple

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
PLACE = np.dtype([("rank", np.uint64), ("sequence", np.int64), ("number", np.int64)])


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


class Drawn(NamedTuple):
    """The windows to learn from.

    Attributes
    ----------
    held : the windows themselves, sorted by the names of sequences: all, or as many as an audit usually learns from
    total : the number of all windows of the table
    places : int64 array of shape (windows, 2), or None where `held` are all
        Sequence and number of every window to learn from, in the same order.
    """

    held: list[DrawnWindow]
    total: int
    places: np.ndarray | None


def draw_windows(layout: Layout, options: AuditOptions, on_rows: Callable[[int], None] = lambda rows: None) -> Drawn:
    """Draw as many windows as asked for; of more than usual the places alone."""
    total = int(layout.plan.n_windows.sum())
    most = fitting.most_windows(layout.size, options.pace, options.train_on)
    held = min(most, fitting.most_windows(layout.size, options.pace))
    names = hash_names(layout.survey.names, options.seed)
    shares = [_first_share(count, total) for count in (held, most)]
    while True:
        limits = tuple(min(WHOLE, int(share * WHOLE)) for share in shares)
        drawn, rare, places = _pass(layout, names, limits, (total <= held, total <= most), on_rows)
        found = zip((len(drawn), len(places)), (held, most), shares, strict=True)
        if all(count >= min(wanted, total) or share >= 1.0 for count, wanted, share in found):
            break
        shares = [min(1.0, share * 8) for share in shares]
    windows = _with_rare(sorted(drawn, key=lambda each: each.rank)[:held] if total > held else drawn, rare)
    if sum(bool(each.classes) for each in windows) < 2:
        raise UnanswerableError(
            "An audit judges one stretch of labels by others, so it needs labels in at least two sequences or windows. "
            "Name a shorter window (--window STEPS), or give more data."
        )
    texts = {each.sequence: layout.survey.names[each.sequence].as_py() for each in windows}
    windows.sort(key=lambda each: (texts[each.sequence], each.number))
    if most <= held or total <= held:
        return Drawn(windows, total, None)
    chosen = places[np.argsort(places["rank"], kind="stable")[:most]]
    return Drawn(windows, total, _in_order(layout, chosen, windows))


def _first_share(count: int, total: int) -> float:
    """The share of windows to look at for so many, of which some hold no label."""
    return 1.0 if total <= count else min(1.0, MORE * (count + 4 * count**0.5 + 20) / total)


def _with_rare(drawn: list[DrawnWindow], rare: dict[int, list[DrawnWindow]]) -> list[DrawnWindow]:
    """The windows, and some with classes that none of them holds."""
    met: frozenset[int] = frozenset().union(*(each.classes for each in drawn)) if drawn else frozenset()
    chosen = {(each.sequence, each.number): each for each in drawn}
    for code, windows in rare.items():
        if code not in met:
            chosen |= {(each.sequence, each.number): each for each in windows}
    return list(chosen.values())


def _in_order(layout: Layout, chosen: np.ndarray, held: list[DrawnWindow]) -> np.ndarray:
    """Sequence and number of the chosen windows and of those held, sorted by the names of sequences."""
    sequence = np.append(chosen["sequence"], [each.sequence for each in held])
    number = np.append(chosen["number"], [each.number for each in held])
    places = np.unique(np.stack([sequence, number], axis=1).astype(np.int64), axis=0)
    names = layout.survey.names.to_pylist()
    turn = np.empty(len(names), dtype=np.int64)
    turn[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
    return places[np.lexsort((places[:, 1], turn[places[:, 0]]))]


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
    layout: Layout,
    names: np.ndarray,
    limits: tuple[int, ...],
    every: tuple[bool, bool],
    on_rows: Callable[[int], None],
) -> tuple[list[DrawnWindow], dict[int, list[DrawnWindow]], np.ndarray]:
    """Windows that hold labels and whose hash is below the first limit; for rare classes some that hold them; and the
    places of windows whose hash is below the second limit. Where `every` is set, windows need no label."""
    codes = kept_codes(layout.rare)
    counts = layout.survey.class_counts[~layout.rare]
    looked_for = np.flatnonzero(counts < RARE).tolist() if not every[0] else []
    drawn: list[DrawnWindow] = []
    rare: dict[int, list[DrawnWindow]] = {code: [] for code in looked_for}
    places: list[np.ndarray] = [np.zeros(0, dtype=PLACE)]
    for chunk in layout.plan.chunks:
        windows, numbers = layout.plan.windows(chunk), layout.plan.numbers(chunk)
        ranks = mix(names[chunk.first_sequence + windows.groups], numbers)
        near, noted = (ranks <= np.uint64(limit) for limit in limits)
        if near.any() or noted.any() or looked_for:
            read = read_steps(layout, chunk)
            labels = codes[step_labels(layout, read)][windows.filled_index()]
            labels = np.where(windows.belongs[..., None], labels, np.int8(-1))
            labelled = (labels >= 0).any((1, 2))
            taker = _Taker(layout, chunk, read, windows, numbers, ranks, labels, read.steps.first)
            drawn += [taker.take(place) for place in np.flatnonzero(near & (every[0] | labelled)).tolist()]
            places.append(taker.places(np.flatnonzero(noted & (every[1] | labelled))))
            for code in looked_for:
                found = [taker.take(place) for place in _smallest(ranks, (labels == code).any((1, 2)))]
                rare[code] = heapq.nsmallest(OF_RARE, rare[code] + found, key=lambda each: each.rank)
        on_rows(chunk.last_row)
    return drawn, rare, np.concatenate(places)


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

    def places(self, chosen: np.ndarray) -> np.ndarray:
        """Hash, sequence and number of some windows."""
        places = np.empty(len(chosen), dtype=PLACE)
        places["rank"], places["number"] = self.ranks[chosen], self.numbers[chosen]
        places["sequence"] = self.chunk.first_sequence + self.windows.groups[chosen]
        return places

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
