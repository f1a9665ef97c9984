"""The arrays of an audit, and the mapping from their steps back to the rows of the table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from labeltide._display import ShortRepr
from labeltide.tables.clock_columns import ClockInfo
from labeltide.tables.features import Encoder
from labeltide.tables.overview import ColumnOverview


@dataclass(frozen=True, repr=False)
class AuditInput(ShortRepr):
    """What an estimator needs, and the mapping back to the table.

    A *step* is one moment of one sequence; steps are ordered by sequence, then time. A *window* is a run of
    steps, as long as the network sees at once; windows overlap, but every step belongs to one of them. A *line* is one
    place for a label: a row of the table or, where each annotator has a column, a row and an annotator.

    Attributes
    ----------
    features : float32 array of shape (n, steps, features)
    labels : int8 array of shape (n, steps, annotators)
        As recorded, -1 where nothing was.
    fit_labels : int8 array of shape (n, steps, annotators)
        The same with -1 wherever the step belongs to another window, so that none counts twice in training.
    lengths : int64 array of shape (n,)
    clock : float64 array of shape (n, steps), or (n, steps, clocks) where there are several
    trusted, fit_trusted : int8 arrays of shape (n, steps), or None
    gaps : int64 array of shape (n, steps), or None where no step is missing
        How many usual steps of time lie before each step.
    groups : int64 array of shape (n,)
        The sequence of each window, a place in `sequence_names`.
    index : int64 array of shape (n, steps)
        The step at each place, -1 on padding.
    place : int64 array of shape (all steps,)
        Where each step belongs: a place in an array of (n, steps) read as one row.
    line_row, line_step, line_annotator : int64 arrays of shape (lines,)
        Of each line, in the table's order; the annotator is -1 in rows that name none and hold no label.
    ids, times : Arrow arrays of n_rows texts
    encoders : how each feature came from its column
    decisions : how many labels reviewers settled, used and left out; None without decisions
    overview : type, missing values, levels and role of every column of the table
    all_steps : the steps of the whole table, where these windows were drawn from a larger one; else None
    """

    features: np.ndarray
    labels: np.ndarray
    fit_labels: np.ndarray
    lengths: np.ndarray
    clock: np.ndarray
    trusted: np.ndarray | None
    fit_trusted: np.ndarray | None
    gaps: np.ndarray | None
    groups: np.ndarray
    index: np.ndarray
    place: np.ndarray
    line_row: np.ndarray
    line_step: np.ndarray
    line_annotator: np.ndarray
    ids: pa.Array
    times: pa.Array
    sequence_names: tuple[str, ...]
    class_names: tuple[str, ...]
    annotator_names: tuple[str, ...] | None
    feature_names: tuple[str, ...]
    clocks: tuple[ClockInfo, ...]
    columns: dict[str, str | None]
    window: int
    encoders: tuple[Encoder, ...]
    said: tuple[str, ...]
    overview: tuple[ColumnOverview, ...] = ()
    decisions: dict[str, Any] | None = None
    all_steps: int | None = None

    @property
    def n_rows(self) -> int:
        return len(self.ids)

    @property
    def n_labels(self) -> int:
        """How many labels were recorded."""
        return int((self.fit_labels >= 0).sum())

    @property
    def n_all_steps(self) -> int:
        """The steps of the whole table."""
        return self.all_steps or len(self.place)

    @property
    def each_clock(self) -> list[np.ndarray]:
        """The moments of every clock on its own: shape (n, steps)."""
        return [self.clock] if len(self.clocks) == 1 else list(np.moveaxis(self.clock, -1, 0))

    def from_steps(self, values: np.ndarray) -> np.ndarray:
        """Values of shape (n, steps, ...) as (all steps, ...): each from the window to which its step belongs."""
        return values.reshape(-1, *values.shape[2:])[self.place]

    def rows_from_steps(self, values: np.ndarray, *, by_annotator: bool | None = None) -> np.ndarray:
        """Values of shape (n, steps) or (n, steps, annotators) for each line, in the table's order.

        With by_annotator=False a third axis is kept as it is: (n, steps, classes) becomes (lines, classes). Lines
        of no annotator get NaN, -1 or False.
        """
        shape = self.index.shape
        if values.shape[:2] != shape or (by_annotator and values.ndim < 3):
            raise ValueError(f"values must have shape {(*shape, 'annotators')} or {shape}. Got {values.shape}.")
        if by_annotator is None:
            by_annotator = values.ndim == 3
        if not by_annotator:
            return self.from_steps(values)[self.line_step]
        if values.shape[2] != self.labels.shape[2]:
            raise ValueError(f"values must have {self.labels.shape[2]} annotators. Got shape {values.shape}.")
        of_lines = values.reshape(-1, *values.shape[2:])[self.place[self.line_step], self.line_annotator]
        if (self.line_annotator < 0).any():
            missing = {"f": np.nan, "i": -1}.get(of_lines.dtype.kind, 0)
            of_lines[self.line_annotator < 0] = missing
        return of_lines

    def lines(self) -> pa.Table:
        """The first columns of labels.parquet: row, sequence, time, annotator, clocks and the recorded label."""
        rows = pa.array(self.line_row)
        titles = ["clock", *(f"clock_{number}" for number in range(2, 1 + len(self.clocks)))]
        recorded = self.rows_from_steps(self.labels, by_annotator=True)
        return pa.table(
            {
                "row": rows,
                "sequence": self.ids.take(rows),
                "time": self.times.take(rows),
                "annotator": decode(self.line_annotator, self.annotator_names or (None,)),
                **dict(zip(titles, map(self.rows_from_steps, self.each_clock), strict=True)),
                "recorded": decode(recorded, self.class_names),
            }
        )

    def signal(self, feature: int) -> np.ndarray:
        """A feature in the user's own unit, gaps filled: shape (all steps,)."""
        owners = [(encoder, place) for encoder in self.encoders for place in range(len(encoder.names))]
        values = self.from_steps(self.features[..., feature])
        encoder, place = owners[feature] if owners else (None, 0)
        return values if encoder is None or place or encoder.levels else encoder.original(values)

    def steps_of(self, sequence: int) -> slice:
        """The steps of a sequence, by its place in `sequence_names`."""
        windows = self.index[self.groups == sequence]
        return slice(int(windows[0, 0]), int(windows.max()) + 1)

    def first_lines(self) -> np.ndarray:
        """The first line of every step: int64 of shape (all steps,)."""
        first = np.empty(len(self.place), dtype=np.int64)
        first[self.line_step[::-1]] = np.arange(len(self.line_step))[::-1]
        return first


def decode(codes: np.ndarray, names: tuple[str | None, ...]) -> pa.Array:
    """Names in place of codes, null in place of -1."""
    return pa.array(names, pa.string()).take(pa.array(codes.astype(np.int64), mask=codes < 0))
