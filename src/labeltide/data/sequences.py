"""The one container for data: sequences with a label, or a gap, at every step."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from labeltide import _validation


@dataclass(frozen=True)
class Sequences:
    """Sequences of equal or unequal length, with recorded labels and a clock.

    Build one with `from_arrays`, `from_table` or `labeltide.make_sequences`, which check what they are given.

    Attributes
    ----------
    features : float32 array of shape (n, steps, features)
        Zero on padding, which stands at the end of short sequences.
    labels : int8 array of shape (n, steps, annotators)
        Codes into `classes`; -1 where nothing was recorded.
    lengths : int64 array of shape (n,)
    clock : float64 array of shape (n, steps)
        The moment to which each step belongs, on which the noise depends.
    ids : tuple of n hashable names
        The recording, person or night a sequence was cut from; several windows may share one.
    classes : tuple of hashable names
    clean_labels : int8 array of shape (n, steps), optional
        Kept aside for simulations and benchmarks. No `fit` ever sees them.
    times : array of shape (n, steps), optional
        The user's own time stamps.
    """

    features: np.ndarray
    labels: np.ndarray
    lengths: np.ndarray
    clock: np.ndarray
    ids: tuple[Hashable, ...]
    classes: tuple[Hashable, ...]
    clean_labels: np.ndarray | None = None
    times: np.ndarray | None = None

    @classmethod
    def from_arrays(
        cls,
        X: ArrayLike,
        y: ArrayLike,
        *,
        clock: ArrayLike | None = None,
        lengths: ArrayLike | None = None,
        ids: Sequence[Hashable] | None = None,
        classes: Sequence[Hashable] | None = None,
    ) -> Self:
        """Check arrays and name the classes.

        Parameters
        ----------
        X : array of shape (n, steps, features)
        y : array of shape (n, steps) or (n, steps, annotators)
            Labels of any hashable type; missing = -1 for whole numbers, None or NaN otherwise.
        clock : array of shape (n, steps) or (steps,), optional
            The position in the sequence, in [0, 1], when left out.
        lengths : array of shape (n,), optional
        ids : n names, optional
        classes : names in the order of their codes, optional
            The distinct labels of `y`, sorted, when left out.
        """
        features, counts = _validation.check_features(X, lengths)
        n, n_steps = features.shape[:2]
        labels = _validation.check_labels(y, n, n_steps)
        present = _validation.steps_mask(counts, n_steps)[..., None] & ~_validation.missing_labels(labels)
        names = tuple(classes) if classes is not None else _validation.find_classes(labels, present)
        if ids is not None and len(ids) != n:
            raise ValueError(f"ids must be {n} names, one per sequence. Got {len(ids)}.")
        return cls(
            features=features,
            labels=_validation.encode_labels(labels, present, names),
            lengths=counts,
            clock=_validation.check_clock(clock, counts, n_steps),
            ids=tuple(range(n)) if ids is None else tuple(ids),
            classes=names,
        )

    # FROM_TABLE: written by the owner of data/tables.py

    def __len__(self) -> int:
        return len(self.features)

    @property
    def mask(self) -> np.ndarray:
        """True on real steps, False on padding: shape (n, steps)."""
        return _validation.steps_mask(self.lengths, self.features.shape[1])

    def decode(self, codes: np.ndarray) -> np.ndarray:
        """Class names in place of codes; None where nothing was recorded."""
        names = np.empty(len(self.classes) + 1, dtype=object)
        for code, name in enumerate(self.classes):  # one by one: a name may itself be a tuple
            names[code] = name
        return names[codes]

    def take(self, rows: ArrayLike) -> Self:
        """The given sequences, by position or by a mask."""
        index = np.arange(len(self))[np.asarray(rows)]

        def pick(array: np.ndarray | None) -> Any:
            return None if array is None else array[index]

        return type(self)(
            features=self.features[index],
            labels=self.labels[index],
            lengths=self.lengths[index],
            clock=self.clock[index],
            ids=tuple(self.ids[i] for i in index),
            classes=self.classes,
            clean_labels=pick(self.clean_labels),
            times=pick(self.times),
        )
