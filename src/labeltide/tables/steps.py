"""Table rows grouped into steps: by sequence and time, one row for each annotator of a step."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass

import numpy as np

from labeltide.tables.columns import factorize, group_rows, read_times, sort_codes
from labeltide.tables.intake import Column
from labeltide.tables.wording import name_rows, quoted


@dataclass(frozen=True)
class Steps:
    """How table rows become steps: several rows, one for each annotator, may describe the same step."""

    rows: np.ndarray  # (steps,) the row that stands for each step; steps ordered by sequence, then time
    sequence: np.ndarray  # (steps,) codes into ids
    ids: list[Hashable]
    times: np.ndarray  # (steps,)
    step_of_row: np.ndarray  # (rows,)
    annotator_of_row: np.ndarray  # (rows,) codes into annotators
    annotators: tuple[Hashable, ...] | None  # sorted; None without a column of annotators

    @property
    def counts(self) -> np.ndarray:
        """The number of steps of every sequence."""
        return np.bincount(self.sequence)

    @property
    def first(self) -> np.ndarray:
        """The first step of the sequence to which each step belongs: shape (steps,)."""
        counts = self.counts
        return np.repeat(np.cumsum(counts) - counts, counts)

    def pick(self, name: str, values: np.ndarray) -> np.ndarray:
        """One value for each step, after a check that its rows agree."""
        differs = values != values[self.rows[self.step_of_row]]
        if differs.any():
            raise ValueError(
                f"Column {quoted([name])} must agree among annotators of the same sequence and time. "
                f"It differs in {name_rows(np.flatnonzero(differs))}."
            )
        return values[self.rows]

    def spread(self, codes: np.ndarray, annotator: np.ndarray, n_annotators: int) -> np.ndarray:
        """Labels of table rows as int8 of shape (steps, annotators); rows of annotator -1 are left out."""
        labels = np.full((len(self.rows), n_annotators), -1, dtype=np.int8)
        named = annotator >= 0
        labels[self.step_of_row[named], annotator[named]] = codes[named]
        return labels


def find_steps(columns: Mapping[str, Column], roles: Mapping[str, list[str]], single_key: bool) -> Steps:
    """Group rows by sequence and time, and refuse those that say the same thing twice.

    With `single_key` the ids are the values of the one sequence column, else tuples.
    """
    sequence, ids = group_rows(columns, roles["sequence"], "sequence")
    times, moment = read_times(columns[roles["time"][0]])
    n_rows = len(sequence)
    annotator, annotators = np.zeros(n_rows, dtype=np.int64), None
    for name in roles["annotator"]:
        annotator, people = sort_codes(name, *factorize(columns[name], "annotator"))
        annotators = tuple(people)
    order = np.lexsort((annotator, moment, sequence))
    keys = np.stack([sequence, moment, annotator])[:, order]
    same_step = np.append(False, (keys[:2, 1:] == keys[:2, :-1]).all(0))
    repeats = same_step & np.append(False, keys[2, 1:] == keys[2, :-1])
    _check_repeats(np.sort(order[repeats]), bool(roles["annotator"]))
    rows = order[~same_step]
    step_of_row = np.empty(n_rows, dtype=np.int64)
    step_of_row[order] = np.cumsum(~same_step) - 1
    names: list[Hashable] = [key[0] if single_key else key for key in ids]
    return Steps(rows, sequence[rows], names, times[rows], step_of_row, annotator, annotators)


def _check_repeats(rows: np.ndarray, with_annotator: bool) -> None:
    """No rows that repeat the key of an earlier one."""
    if not len(rows):
        return
    key, hint = "sequence, time and annotator", "Drop the repeats."
    if not with_annotator:
        key, hint = (
            "sequence and time",
            "Give annotator= if several people labelled a step, or drop repeats.",
        )
    raise ValueError(f"Every {key} may occur once. An earlier row is repeated in {name_rows(rows)}. {hint}")
