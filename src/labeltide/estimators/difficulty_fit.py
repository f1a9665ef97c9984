"""Noise by moment and level of difficulty of one fit: what it holds, how it judges labels, and its form in a file."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

from labeltide import _validation
from labeltide._clock import nearest
from labeltide.chain.difficulty import LEVELS, find_cells
from labeltide.noise.fixed import FixedNoise


class DifficultyLevel(NamedTuple):
    """Labels at one level of difficulty."""

    labels: int
    wrong: float  # the share of them that is wrong


class DifficultyFit(NamedTuple):
    """Q(t, d) of one fit (`chain/difficulty.py`)."""

    thresholds: np.ndarray  # (levels - 1,), rising margins between levels
    moments: np.ndarray  # rising moments of the clock
    period: float | None  # of the clock
    matrices: np.ndarray  # (moments * levels, classes, classes)
    error_rates: np.ndarray  # (levels,), the share of wrong labels, hardest first
    labels: np.ndarray  # (levels,), the number of labels

    @property
    def levels(self) -> tuple[DifficultyLevel, ...]:
        """Number and quality of the labels of each level, hardest first."""
        pairs = zip(self.labels, self.error_rates, strict=True)
        return tuple(DifficultyLevel(int(labels), float(rate)) for labels, rate in pairs)

    @property
    def noise(self) -> FixedNoise:
        """Q with the numbers of cells as its clock."""
        return FixedNoise(self.matrices[None], np.arange(len(self.matrices)))

    def cells(self, clock: np.ndarray, evidence: np.ndarray) -> np.ndarray:
        """The cell of each step, (n, steps), from its moment and its out-of-fold log-probabilities."""
        place = nearest(clock, self.moments, self.period)
        return find_cells(place, torch.from_numpy(evidence), self.thresholds)

    def to_json(self) -> dict[str, Any]:
        """Lists and numbers."""
        return {
            name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in self._asdict().items()
        }

    @classmethod
    def from_json(cls, written: Any, n_classes: int) -> DifficultyFit:
        """The inverse of `to_json`; a ValueError where the input is malformed."""
        try:
            arrays = {name: np.asarray(written[name], dtype=np.float64) for name in cls._fields if name != "period"}
            period = None if written["period"] is None else float(written["period"])
        except (KeyError, TypeError, ValueError):
            raise ValueError("its levels of difficulty are malformed.") from None
        thresholds, moments, matrices = (arrays[name] for name in ("thresholds", "moments", "matrices"))
        shapes = {
            "thresholds": (LEVELS - 1,),
            "moments": (moments.size,),
            "matrices": (LEVELS * moments.size, n_classes, n_classes),
            "error_rates": (LEVELS,),
            "labels": (LEVELS,),
        }
        sound = (
            moments.size > 0
            and all(arrays[name].shape == shape and np.isfinite(arrays[name]).all() for name, shape in shapes.items())
            and (np.diff(moments) > 0).all()
            and (np.diff(thresholds) >= 0).all()
            and (period is None or 0 < period < np.inf)
            and ((arrays["error_rates"] >= 0) & (arrays["error_rates"] <= 1)).all()
            and (arrays["labels"] >= 0).all()
        )
        if not sound:
            raise ValueError(f"its levels of difficulty must be finite numbers for {n_classes} classes.")
        _validation.check_matrices(matrices, np.arange(len(matrices)))
        return cls(period=period, **arrays)
