"""Chunks: ranges of rows that hold whole sequences, or whole windows of a long one, and are judged on their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from labeltide.auditing.streaming.survey import ANCHOR, Survey
from labeltide.tables.windows import OVERLAP, Windows, choose_window, cut_windows

CHUNK_ROWS = 250_000
HISTORY = 1  # anchors of a long sequence that are read before a part of it, for the last values before gaps
FEW_WINDOWS, SMALLEST_WINDOW = 10, 8  # as in audits of tables in memory


class Chunk(NamedTuple):
    """A range of rows, and what they are.

    A part of a long sequence has one sequence, starts at one of its steps, and holds some of its windows; other chunks
    hold whole sequences.
    """

    first_row: int
    last_row: int  # exclusive, as are the others
    first_sequence: int
    last_sequence: int
    first_step: int
    first_window: int
    last_window: int  # 0 for whole sequences


@dataclass(frozen=True)
class ChunkPlan:
    """All chunks of a table, and the windows within them."""

    window: int
    chunks: tuple[Chunk, ...]
    counts: np.ndarray  # (sequences,), steps

    @property
    def stride(self) -> int:
        return self.window - int(self.window * OVERLAP)

    @property
    def n_windows(self) -> np.ndarray:
        """The number of windows of every sequence."""
        return 1 + np.ceil(np.maximum(self.counts - self.window, 0) / self.stride).astype(np.int64)

    def windows(self, chunk: Chunk) -> Windows:
        """The windows of a chunk, their starts and sequences counted within it."""
        counts = self.counts[chunk.first_sequence : chunk.last_sequence]
        if not chunk.last_window:
            return cut_windows(counts, self.window)
        turn = np.arange(chunk.first_window, chunk.last_window)
        starts = np.minimum(turn * self.stride, counts[0] - self.window)
        warm_up = np.where(turn > 0, (turn - 1) * self.stride + self.window - starts, 0)
        lengths = np.full(len(turn), self.window)
        return Windows(starts - chunk.first_step, lengths, warm_up, np.zeros(len(turn), dtype=np.int64), self.window)

    def numbers(self, chunk: Chunk) -> np.ndarray:
        """The number of every window of a chunk within its sequence."""
        if chunk.last_window:
            return np.arange(chunk.first_window, chunk.last_window)
        each = self.n_windows[chunk.first_sequence : chunk.last_sequence]
        return np.arange(each.sum()) - np.repeat(np.cumsum(each) - each, each)


def plan_chunks(survey: Survey, window: int | None) -> ChunkPlan:
    """Cut the table; None chooses the window from the lengths of sequences, as for tables in memory."""
    counts = survey.counts
    plan = ChunkPlan(_choose_window(counts, window), (), counts)
    rows = np.diff(np.append(survey.first_rows, survey.n_rows))
    chunks: list[Chunk] = []
    start, held = 0, 0
    for sequence, n_rows in enumerate(rows.tolist()):
        if held and held + n_rows > CHUNK_ROWS:
            chunks.append(_whole(survey, start, sequence))
            start, held = sequence, 0
        if n_rows > 2 * CHUNK_ROWS and counts[sequence] > 2 * ANCHOR:
            chunks += _parts(survey, plan, sequence, n_rows)
            start, held = sequence + 1, 0
        else:
            held += n_rows
    if held:
        chunks.append(_whole(survey, start, len(rows)))
    return ChunkPlan(plan.window, tuple(chunks), counts)


def _choose_window(counts: np.ndarray, window: int | None) -> int:
    if window is not None or counts.sum() > FEW_WINDOWS * choose_window(counts) * 2:
        return min(choose_window(counts) if window is None else int(window), int(counts.max()))
    windows = cut_windows(counts)
    shorter = max(SMALLEST_WINDOW, int(windows.lengths.sum()) // FEW_WINDOWS)
    enough = len(windows.starts) >= FEW_WINDOWS or shorter >= windows.lengths.max()
    return windows.window if enough else shorter


def _whole(survey: Survey, first: int, last: int) -> Chunk:
    ends = np.append(survey.first_rows, survey.n_rows)
    return Chunk(int(ends[first]), int(ends[last]), first, last, 0, 0, 0)


def _parts(survey: Survey, plan: ChunkPlan, sequence: int, n_rows: int) -> list[Chunk]:
    """The parts of a long sequence; each is read from an anchor before its first window on."""
    steps = int(plan.counts[sequence])
    n_windows = int(plan.n_windows[sequence])
    each = max(1, int(CHUNK_ROWS * steps / n_rows) // plan.stride)  # windows of a part
    parts = []
    for first in range(0, n_windows, each):
        last = min(first + each, n_windows)
        begin = min(first * plan.stride, steps - plan.window)
        end = min((last - 1) * plan.stride, steps - plan.window) + plan.window
        low, high = max(0, begin // ANCHOR - HISTORY), -(-end // ANCHOR)
        rows = survey.row_of_step(sequence, low), survey.row_of_step(sequence, high)
        parts.append(Chunk(*rows, sequence, sequence + 1, low * ANCHOR, first, last))
    return parts
