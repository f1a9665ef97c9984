"""Which reference distribution a test of change takes: chosen by the design of the study, never by its result.

- `people`: at least eight people. The signs of their contributions are flipped; nothing is assumed about the windows of
  one person.
- `rotations`: four to seven people with many windows each, at different moments of the clock. The p-value is the larger
  of that of the rotations and of an F test of people's mean contribution.
- `permutations`: rows are not grouped and lie at different moments, so that they are exchangeable.
- `bootstrap`: every row runs through most of the clock; labels are drawn from the null (parametric bootstrap).
- `none`: none of these keeps its size; whether the noise changes cannot be told.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from labeltide.chain.data import TrainingEvidence
from labeltide.inference.permutation import in_order, rows_by_length
from labeltide.inference.score import ClockMoments

METHODS = ("people", "rotations", "permutations", "bootstrap", "none")
# docs/decisions/015-tests-of-change.md
MIN_PEOPLE = 8  # 2^7 = 128 different statistics under sign flips
MIN_ROTATED_PEOPLE = 4  # by hand
MIN_WINDOWS = 24  # by hand: of each person whose windows are rotated
MIN_VARIANCE_SHARE = 0.5  # by hand: of the variance of moments that permutations must move, for some power
MIN_PERMUTATIONS = 1000  # by hand


class StudyDesign(NamedTuple):
    """The reference distribution of a test of change, and the units that it permutes, rotates or flips."""

    method: str  # one of METHODS
    n_units: int  # people, or rows where these are the units
    units: list[np.ndarray]  # rows of each person in their order, or rows that are exchangeable
    mask: np.ndarray  # (rows, steps), False on padding


def study_design(training: TrainingEvidence, moments: ClockMoments, labelled: np.ndarray) -> StudyDesign:
    """The design of the labelled steps, (rows, steps)."""
    mask = training.data.mask.numpy()
    rows = np.flatnonzero(labelled.any(1))
    if training.clusters is None:
        groups = rows_by_length(rows, mask.sum(1))
        movable = _variance(moments, mask, groups, of_rows=True) if groups else 0.0
        enough = sum(math.lgamma(len(group) + 1) for group in groups) >= math.log(MIN_PERMUTATIONS)
        if enough and movable >= MIN_VARIANCE_SHARE * _variance(moments, mask, [rows]) > 0:
            return StudyDesign("permutations", sum(len(group) for group in groups), groups, mask)
        return StudyDesign("bootstrap", len(rows), [], mask)
    person = training.clusters.numpy()
    people = [in_order(rows[person[rows] == name], moments, mask) for name in np.unique(person[rows])]
    return StudyDesign(_method(moments, mask, people), len(people), people, mask)


def _method(moments: ClockMoments, mask: np.ndarray, people: list[np.ndarray]) -> str:
    if not people:
        return "none"
    total = _variance(moments, mask, [np.concatenate(people)])
    if len(people) >= MIN_PEOPLE and total > 0:
        return "people"
    between_rows = _variance(moments, mask, [np.concatenate(people)], of_rows=True)
    if between_rows < MIN_VARIANCE_SHARE * total or total == 0:
        return "bootstrap"
    within_people = _variance(moments, mask, people, of_rows=True)
    many_windows = min(len(rows) for rows in people) >= MIN_WINDOWS
    if len(people) >= MIN_ROTATED_PEOPLE and many_windows and within_people >= MIN_VARIANCE_SHARE * total:
        return "rotations"
    return "none"


def _variance(moments: ClockMoments, mask: np.ndarray, groups: list[np.ndarray], *, of_rows: bool = False) -> float:
    """Sum of squares of moments about the mean of their group; of the means of rows, or of all steps."""
    total = 0.0
    for rows in groups:
        real = mask[rows][..., None]
        values, weights = moments.coordinates(rows), real.astype(float)
        if of_rows:
            weights = weights.sum(1)
            values = (values * real).sum(1) / weights
        mean = (values * weights).reshape(-1, values.shape[-1]).sum(0) / weights.sum()
        total += float((weights * (values - mean) ** 2).sum())
    return total
