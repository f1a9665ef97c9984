"""The sources of labels: annotators, or annotators within groups (site, device, type of person).

Labels of ``A`` annotators in ``G`` groups stand in ``A * G`` columns: those of a sequence in the columns of its own
group, and all others are missing. Nothing that learns from them needs to know of groups.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from labeltide import _validation


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

    def place(self, annotator: int | None, group: Hashable) -> int | None:
        """The column of an annotator, or of one in a group; None where neither is named."""
        if annotator is None and group is None:
            return None
        if annotator is None and self.annotators > 1:
            raise ValueError(f"Name one of the {self.annotators} annotators (0 to {self.annotators - 1}) too.")
        _validation.check_number("annotator", annotator or 0, 0, self.annotators - 1, whole=True)
        if group is None and self.groups is not None:
            raise ValueError(f"The noise differs among groups. Name one of: {_listed(self.groups)}.")
        return self.names.index((int(annotator or 0), None if group is None else self._known(group)))

    def places(self, groups: ArrayLike | None, n: int) -> np.ndarray:
        """The column of every annotator for each of n sequences: shape (n, annotators)."""
        if self.groups is None:
            if groups is not None:
                raise ValueError("groups were given, but fit was told of none. Fit with groups=..., or leave them out.")
            return np.tile(np.arange(self.annotators), (n, 1))
        if groups is None:
            raise ValueError(f"fit was told of groups: name one per sequence, groups=..., of: {_listed(self.groups)}.")
        group_places = np.array([self.groups.index(self._known(group)) for group in check_names(groups, n, "groups")])
        return np.arange(self.annotators) * len(self.groups) + group_places[:, None]

    def _known(self, group: Hashable) -> Hashable:
        if self.groups is None or group not in self.groups:
            known = "none" if self.groups is None else _listed(self.groups)
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
    values = names if isinstance(names, np.ndarray) else _objects(names if np.iterable(names) else ())
    if values.shape != (n,):
        raise ValueError(f"{argument} must be {n} names, one per sequence. Got shape {values.shape}.")
    plain = [value.item() if isinstance(value, np.generic) else value for value in values]
    try:  # NaN is the only value that differs from itself; the comparison of pandas.NA is neither True nor False
        missing = [
            i for i, name in enumerate(plain) if hash(name) is None or name is None or (name != name) is not False
        ]
    except TypeError:
        raise ValueError(f"{argument} must hold hashable names: numbers, strings, tuples and the like.") from None
    # NaN is the only value that differs from itself; the comparison of pandas.NA is neither True nor False.
    missing = [place for place, name in enumerate(plain) if name is None or (name != name) is not False]
    if missing:
        raise ValueError(f"{argument} must name one for every sequence. Sequence {missing[0]} has none: give it one.")
    return plain


def spread_labels(labels: np.ndarray, places: np.ndarray, count: int) -> np.ndarray:
    """Put labels (..., n, steps, annotators) in their columns (n, annotators) of `count`; -1 elsewhere."""
    spread = np.full((*labels.shape[:-1], count), -1, dtype=labels.dtype)
    np.put_along_axis(spread, np.broadcast_to(places[:, None], labels.shape), labels, -1)
    return spread


def _objects(names: Any) -> np.ndarray:
    """A list as an array of its own values: NumPy would make a table of tuples, and text of numbers beside text."""
    values = list(names)
    array = np.empty(len(values), dtype=object)
    for index, value in enumerate(values):
        array[index] = value
    return array


def _listed(groups: tuple[Hashable, ...]) -> str:
    return ", ".join(repr(group) for group in groups[:8]) + (", ..." if len(groups) > 8 else "")
