"""Clusters: rows of one person, night or recording. They are alike, so they never lie on both sides of a split.

These are the groups of scikit-learn's GroupKFold. Rows without clusters are split one by one.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import rankdata

from labeltide import _validation


class ClusterWarning(UserWarning):
    """Dependent rows are split as if they were independent, or clusters leave too little to learn from."""


def encode_clusters(clusters: ArrayLike, n: int) -> np.ndarray:
    """The cluster of each of n rows as a number from 0, in order of first appearance: int64 of shape (n,)."""
    if isinstance(clusters, np.ndarray) and clusters.shape == (n,) and np.issubdtype(clusters.dtype, np.integer):
        _, first, inverse = np.unique(clusters, return_index=True, return_inverse=True)
        return np.argsort(np.argsort(first))[inverse].astype(np.int64)  # 20 times as fast with 10^6 rows
    codes: dict[Hashable, int] = {}
    names = check_names(clusters, n, "clusters")
    return np.array([codes.setdefault(name, len(codes)) for name in names], dtype=np.int64)


def count_clusters(clusters: np.ndarray, labelled: np.ndarray) -> int:
    """The number of clusters with labels."""
    return len(np.unique(clusters[labelled]))


def splitting_units(clusters: np.ndarray | None, labelled: np.ndarray) -> np.ndarray:
    """The unit of each row that a split keeps whole: its cluster, or itself unless two clusters have labels."""
    if clusters is None or count_clusters(clusters, labelled) < 2:
        return np.arange(len(labelled))
    return clusters


def deal_units(units: np.ndarray, labelled: np.ndarray, count: int, generator: np.random.Generator) -> np.ndarray:
    """The part of each row among `count` parts, balanced by numbers of labelled rows: int64 of shape (rows,).

    As GroupKFold does, the largest unit goes first, each to the part with the fewest labelled rows (Graham 1969). The
    order of units of one size is drawn. Units without labels come last and are balanced by their rows.
    """
    unit_of_row = np.unique(units, return_inverse=True)[1]
    n_labelled, n_rows = np.bincount(unit_of_row, labelled), np.bincount(unit_of_row)
    part, filled = np.zeros(len(n_rows), dtype=np.int64), np.zeros(count)
    for chosen, sizes in ((n_labelled > 0, n_labelled), (n_labelled == 0, n_rows)):
        drawn = generator.permutation(np.flatnonzero(chosen))
        for unit in drawn[np.argsort(-sizes[drawn], kind="stable")]:
            part[unit] = filled.argmin()
            filled[part[unit]] += sizes[unit]
    return part[unit_of_row]


def draw_units(units: np.ndarray, labelled: np.ndarray, target: int, generator: np.random.Generator) -> np.ndarray:
    """Draw units with close to `target` labelled rows, at least one unit and never all: bool of shape (rows,).

    Units come in random order, and one is taken where it brings the number of labelled rows closer to the target.
    """
    unit_of_row = np.unique(units, return_inverse=True)[1]
    sizes = np.bincount(unit_of_row, labelled)
    drawn = generator.permutation(np.flatnonzero(sizes))
    taken: list[int] = []
    total = 0.0
    for unit in drawn:
        if abs(total + sizes[unit] - target) < abs(total - target):
            taken.append(unit)
            total += sizes[unit]
    taken = taken or [drawn[sizes[drawn].argmin()]]
    return np.isin(unit_of_row, taken[: len(drawn) - 1])


# Do neighbouring rows look alike? A permutation test of serial dependence (Wald and Wolfowitz 1943), on ranks.
#
# Windows of one person that follow each other have similar features. The statistic is the mean squared distance between
# adjacent rows, in ranks of the mean of each feature over a row, divided by that between random pairs. For one feature
# it is the rank version of von Neumann's ratio (Bartels 1982). Rows that are independent and drawn alike are as likely
# in any other order.

MAX_ROWS = 512  # that are compared; of more rows, pairs of neighbours at even distances
PERMUTATIONS = 1999  # none may bring neighbours as close together: level 1 in 2,000
# Of the distance of random pairs; weaker dependence matters little (docs/decisions/019-people-are-the-unit.md).
FAR_CLOSER = 0.8  # by hand


def neighbours_look_alike(features: np.ndarray, mask: np.ndarray) -> bool:
    """Whether adjacent rows are far closer than random pairs, beyond chance at a level of 1 in 2,000."""
    n = len(features)
    if n < 2:
        return False
    rows, first = np.arange(n), np.arange(n - 1)  # `first` are the places that are followed by their neighbour
    if n > MAX_ROWS:
        starts = np.linspace(0, n - 2, MAX_ROWS // 2).astype(np.int64)
        rows, first = np.stack([starts, starts + 1], 1).ravel(), np.arange(0, 2 * len(starts), 2)
    real = mask[rows][..., None]
    ranks = rankdata((features[rows] * real).sum(1, dtype=np.float64) / real.sum(1), axis=0)
    ranks -= ranks.mean(0)
    ranks /= np.where(ranks.any(0), ranks.std(0), 1.0)  # (rows, features), of mean zero and variance one
    squares = (ranks**2).sum(1)
    distances = squares[:, None] + squares - 2 * ranks @ ranks.T  # (rows, rows)
    n = len(rows)
    expected = distances.sum() / (n * (n - 1))
    observed = distances[first, first + 1].mean()
    if observed >= FAR_CLOSER * expected:
        return False
    orders = np.random.default_rng(0).permuted(np.tile(np.arange(n), (PERMUTATIONS, 1)), axis=1)
    permuted = distances[orders[:, first], orders[:, first + 1]].mean(1)
    return bool(np.all(permuted > observed * (1 + 1e-9)))


# The sources of labels: annotators, or annotators within groups (site, device, type of person).
#
# Labels of ``A`` annotators in ``G`` groups stand in ``A * G`` columns: those of a sequence in the columns of its own
# group, and all others are missing. Nothing that learns from them needs to know of groups.


class Sources(NamedTuple):
    """The columns of labels: the first annotator in every group, then the second, and so on."""

    annotators: int
    groups: tuple[Hashable, ...] | None = None  # None where none were told

    @property
    def names(self) -> list[tuple[int, Hashable]]:
        """(annotator, group) for every column; the group is None where none were told."""
        return [(annotator, group) for annotator in range(self.annotators) for group in self.groups or (None,)]

    @classmethod
    def of(cls, names: Sequence[tuple[int, Hashable]]) -> Self:
        """The sources that have these names."""
        groups = tuple(dict.fromkeys(group for _, group in names))
        return cls(len(names) // len(groups), None if groups == (None,) else groups)

    def column(self, annotator: int | None, group: Hashable) -> int | None:
        """The column of an annotator, or of one in a group; None where neither is named."""
        if annotator is None and group is None:
            return None
        if annotator is None and self.annotators > 1:
            raise ValueError(f"Name one of the {self.annotators} annotators (0 to {self.annotators - 1}) too.")
        _validation.check_number("annotator", annotator or 0, 0, self.annotators - 1, whole=True)
        if group is None and self.groups is not None:
            raise ValueError(f"The noise differs among groups. Name one of: {_validation.listed(self.groups)}.")
        return self.names.index((int(annotator or 0), None if group is None else self._known(group)))

    def columns(self, groups: ArrayLike | None, n: int) -> np.ndarray:
        """The column of every annotator for each of n sequences: shape (n, annotators)."""
        if self.groups is None:
            if groups is not None:
                raise ValueError(
                    "groups were given, but fit was called without them. Fit with groups=..., or leave them out."
                )
            return np.tile(np.arange(self.annotators), (n, 1))
        if groups is None:
            raise ValueError(
                f"fit was called with groups: pass groups=..., one per sequence, of: {_validation.listed(self.groups)}."
            )
        group_columns = np.array([self.groups.index(self._known(group)) for group in check_names(groups, n, "groups")])
        return np.arange(self.annotators) * len(self.groups) + group_columns[:, None]

    def _known(self, group: Hashable) -> Hashable:
        if self.groups is None or group not in self.groups:
            known = "none" if self.groups is None else _validation.listed(self.groups)
            raise ValueError(f"Unknown group {group!r}. The fit knows: {known}.")
        return group


def find_sources(annotators: int, groups: ArrayLike | None, n: int) -> Sources:
    """The sources of labels of n sequences."""
    if groups is None:
        return Sources(annotators)
    names: list[Any] = list(dict.fromkeys(check_names(groups, n, "groups")))
    with suppress(TypeError):
        names = sorted(names)
    return Sources(annotators, tuple(names))


def check_names(names: ArrayLike, n: int, argument: str) -> list[Hashable]:
    """A hashable name for each of n sequences, as plain values; `argument` is what the caller knows them by."""
    values = names
    if not isinstance(values, np.ndarray):  # NumPy would make a table of tuples, and text of numbers beside text
        every = list(names) if np.iterable(names) else []
        values = np.fromiter(every, dtype=object, count=len(every))
    if values.shape != (n,):
        raise ValueError(f"{argument} must be {n} names, one per sequence. Got shape {values.shape}.")
    plain = [value.item() if isinstance(value, np.generic) else value for value in values]
    try:
        set(plain)
    except TypeError:
        raise ValueError(f"{argument} must hold hashable names: numbers, strings, tuples and the like.") from None
    missing = np.flatnonzero(_validation.null_values(plain))
    if len(missing):
        raise ValueError(f"{argument} must name one for every sequence. Sequence {missing[0]} has none: give it one.")
    return plain


def spread_labels(labels: np.ndarray, indices: np.ndarray, count: int) -> np.ndarray:
    """Put labels (..., n, steps, annotators) in their columns (n, annotators) of `count`; -1 elsewhere."""
    spread = np.full((*labels.shape[:-1], count), -1, dtype=labels.dtype)
    np.put_along_axis(spread, np.broadcast_to(indices[:, None], labels.shape), labels, -1)
    return spread
