"""Probabilities that labels are wrong, from an audit or as passed, and values that belong to labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

if TYPE_CHECKING:
    from labeltide.inference.audit import LabelAudit

CLOCK_BINS = 10


def wrong_probabilities(audit_or_probabilities: LabelAudit | ArrayLike) -> np.ndarray:
    """The probability that each label is wrong: shape (labels,), (n, steps) or (n, steps, annotators).

    NaN where nothing was recorded.
    """
    quality = getattr(audit_or_probabilities, "quality", None)
    if quality is not None:
        return 1 - np.clip(quality, 0, 1)  # the posterior has rounding errors
    return check_probabilities(audit_or_probabilities)


def check_probabilities(values: Any) -> np.ndarray:
    """Numbers from 0 to 1 of one to three axes, not all of them NaN."""
    name = "Probabilities that labels are wrong"
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be an audit or numbers from 0 to 1. Got {type(values).__name__}.") from None
    if numbers.ndim not in (1, 2, 3):
        raise ValueError(
            f"{name} must have shape (labels,), (n, steps) or (n, steps, annotators). Got shape {numbers.shape}."
        )
    recorded = numbers[~np.isnan(numbers)]
    if not recorded.size:
        raise ValueError(f"{name} must hold at least one number. Got none, or NaN (not recorded) alone.")
    if recorded.min() < 0 or recorded.max() > 1:
        raise ValueError(f"{name} must lie between 0 and 1. Got {recorded.min():g} to {recorded.max():g}.")
    return numbers


def check_same_labels(sampled: tuple[int, ...], shape: tuple[int, ...]) -> None:
    """A sample must be of the labels at hand."""
    if sampled != shape:
        raise ValueError(f"The sample must be of these labels, of shape {shape}. Its labels have shape {sampled}.")


def broadcast(name: str, values: ArrayLike, shape: tuple[int, ...]) -> np.ndarray:
    """A value for each label, from values for each row, each step or each label."""
    array = np.asarray(values)
    if array.ndim == 0 or array.shape != shape[: array.ndim]:
        raise ValueError(
            f"{name} must have the shape {shape} of the labels, or that of its first axes. Got shape {array.shape}."
        )
    return np.broadcast_to(array.reshape(array.shape + (1,) * (len(shape) - array.ndim)), shape)


def clock_bins(clock: np.ndarray, mask: np.ndarray, n_bins: int = CLOCK_BINS) -> np.ndarray:
    """The bin of each step's moment, with edges at quantiles over all steps: int array of the clock's shape."""
    edges = np.unique(np.quantile(clock[mask], np.linspace(0, 1, n_bins + 1)[1:-1]))
    return np.searchsorted(edges, clock, side="right")
