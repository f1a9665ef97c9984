"""What is counted of the steps of a large table: times between them, and labels known to be right."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from labeltide._validation import encode_labels
from labeltide.tables.coded import label_values
from labeltide.tables.labels import no_trusted, trusted_differ
from labeltide.tables.wording import quoted

MOST_LENGTHS = 10_000  # different times between two steps that are counted


@dataclass
class TimesBetween:
    """How often each time lies between two steps of a sequence; None where there are too many different ones."""

    counts: dict[float, int] | None = field(default_factory=dict)

    def add(self, spent: np.ndarray) -> None:
        """Count more of them, in the unit of the times."""
        if self.counts is None or not len(spent):
            return
        if (spent == spent[0]).all():
            found: dict[float, int] = {float(spent[0]): len(spent)}
        else:
            lengths, times = np.unique(spent, return_counts=True)
            if len(lengths) > MOST_LENGTHS:
                self.counts = None
                return
            found = dict(zip(lengths.tolist(), times.tolist(), strict=True))
        for length, times_met in found.items():
            self.counts[length] = self.counts.get(length, 0) + times_met
        if len(self.counts) > MOST_LENGTHS:
            self.counts = None

    def find_gaps(self) -> tuple[float, int] | None:
        """The usual time between two steps, their median, and how many times more than one of these lies between two.

        None where times were not counted, or have no usual length.
        """
        if not self.counts:
            return None
        lengths = np.sort(np.array(list(self.counts)))
        counts = np.array([self.counts[length] for length in lengths.tolist()])
        ends = np.cumsum(counts)
        middles = np.searchsorted(ends, [(ends[-1] - 1) // 2, ends[-1] // 2], side="right")
        usual = float(lengths[middles].mean())
        if not 0 < usual < np.inf:
            return None
        return usual, int(counts[np.rint(lengths / usual) > 1].sum())


@dataclass
class TrustedSteps:
    """Steps with a label known to be right."""

    name: str
    count: int = 0
    values: dict[Hashable, None] = field(default_factory=dict)
    last: Hashable = None  # of the step with which the group before ended

    def add(self, column: pa.ChunkedArray, new_step: np.ndarray, first: int) -> None:
        """Count those of more rows, the first of which has this number; rows of one step must agree."""
        codes, of_value, distinct = label_values(column)
        labels = np.append(of_value, -1)[codes]
        rows = np.flatnonzero(labels >= 0)
        step = np.cumsum(new_step)  # 0 for rows of the step with which the group before ended
        known = np.full(int(step[-1]) + 1, -1)
        if self.last is not None and self.last in distinct:
            known[0] = distinct.index(self.last)
        known[step[rows]] = labels[rows]
        differs = labels[rows] != known[step[rows]]
        if self.last is not None:
            differs |= (step[rows] == 0) & np.array([distinct[code] != self.last for code in labels[rows]], dtype=bool)
        if differs.any():
            raise trusted_differ(self.name, rows[differs] + first)
        self.count += int((known[1:] >= 0).sum()) + int(self.last is None and known[0] >= 0)
        self.values |= dict.fromkeys(distinct)
        ended = None if known[-1] < 0 else distinct[known[-1]]
        self.last = ended if len(known) > 1 or ended is not None else self.last

    def codes(self, classes: tuple[Hashable, ...]) -> list[int]:
        """The classes that have such labels."""
        if not self.count:
            raise no_trusted(self.name)
        values = np.fromiter(self.values, dtype=object, count=len(self.values))
        subject = f"The trusted column {quoted([self.name])}"
        return [int(code) for code in encode_labels(values, np.ones(len(values), dtype=bool), classes, subject)]
