"""Groups of labels: by class, over the clock, by annotator, or as passed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from labeltide import _validation
from labeltide.inference.wrong_probabilities import broadcast, clock_bins

if TYPE_CHECKING:
    from labeltide.inference.audit import LabelAudit

GROUPINGS = ("class", "clock", "annotator")  # that an audit knows


def label_groups(
    source: LabelAudit | ArrayLike, by: Mapping[str, ArrayLike] | Iterable[str] | None, shape: tuple[int, ...]
) -> dict[str, np.ndarray]:
    """The group of each label under each name: arrays of shape (labels,)."""
    if by is None:
        return {}
    if not isinstance(by, Mapping):
        by = {name: _audit_groups(source, name, shape) for name in ([by] if isinstance(by, str) else by)}
    return {name: broadcast(f"The groups {name!r}", values, shape).ravel() for name, values in by.items()}


def _audit_groups(source: Any, name: str, shape: tuple[int, ...]) -> np.ndarray:
    _validation.check_choice("grouping", name, GROUPINGS)
    if not hasattr(source, "labels"):
        raise ValueError(f"Grouping by {name!r} needs an audit. Pass by={{{name!r}: values}} with probabilities.")
    if name == "clock":
        return clock_bins(source.clock, source.mask)
    if name == "annotator":
        return np.broadcast_to(np.arange(shape[2]) if len(shape) > 2 else 0, shape)
    return np.asarray(source.classes)[source.labels.reshape(shape)]
