"""Audits and corrections of labels by a fitted method, in the user's own shape and values."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from labeltide import _validation
from labeltide._clock import check_clocks, check_gaps
from labeltide.estimators.fleet import find_moments
from labeltide.inference.audit import LabelAudit, audit_labels
from labeltide.inference.posterior import Recorded
from labeltide.tables.sources import Sources

if TYPE_CHECKING:
    from labeltide.estimators.base import NoisyLabelClassifier


def judge_labels(
    estimator: NoisyLabelClassifier,
    X: ArrayLike,
    y: ArrayLike,
    *,
    clock: ArrayLike | None,
    lengths: ArrayLike | None,
    trusted: ArrayLike | None,
    groups: ArrayLike | None,
    gaps: ArrayLike | None,
    fdr: float,
) -> LabelAudit:
    """See `NoisyLabelClassifier.audit`."""
    features, counts = estimator._check_features(X, lengths)
    shape = features.shape[:2]
    labels = estimator.encode(_validation.check_labels(y, *shape), counts)
    mask = _validation.steps_mask(counts, shape[1])
    given = check_clocks(clock, counts, shape[1])
    if (given.ndim == 3) != (estimator.cells_ is not None):
        raise ValueError(f"clock must hold as many clocks as in fit. Got shape {given.shape}.")
    moments = find_moments(estimator, given)
    between = check_gaps(gaps, counts, shape[1])
    known = None if trusted is None else estimator.encode(_validation.check_labels(trusted, *shape), counts)[..., 0]
    found = audit_labels(
        Recorded(labels, mask, moments, known, _find_places(estimator, labels, groups), between),
        estimator._evidence(features, mask),
        estimator._persistence(),
        estimator.noise_,
        estimator.classes_,
        fdr=fdr,
        has_annotators=_validation.as_labels(y).ndim == 3,
    )
    return found if estimator.cells_ is None else replace(found, clock=given[..., 0])


def correct_labels(
    estimator: NoisyLabelClassifier, y: ArrayLike, lengths: ArrayLike | None, found: np.ndarray
) -> np.ndarray:
    """The labels `y` in the user's own values, with those that an audit found in their place."""
    given = _validation.as_labels(y)
    plain = given.dtype != object and estimator.classes_.dtype != object
    labels = given.astype(np.promote_types(given.dtype, estimator.classes_.dtype) if plain else object)
    changed = found != estimator.encode(y, lengths).reshape(found.shape)
    labels[changed] = estimator.classes_[found[changed]]
    return labels


def _find_places(estimator: NoisyLabelClassifier, labels: np.ndarray, groups: ArrayLike | None) -> np.ndarray | None:
    """Whose Q the labels of each sequence went through, (n, annotators); None where all share one."""
    sources = Sources.of(estimator.sources_)
    shared = estimator.noise_.annotators == 1
    if shared and groups is None:
        return None
    places = sources.places(groups, len(labels))
    if shared:
        return None
    if labels.shape[2] != sources.annotators:
        raise ValueError(
            f"y must hold labels of the {sources.annotators} annotators of fit, each of whom has an own noise: shape "
            f"{(*labels.shape[:2], sources.annotators)}, -1 or None where one is missing. Got {labels.shape[2]}."
        )
    return places
