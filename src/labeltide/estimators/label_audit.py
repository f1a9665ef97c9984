"""Audit and correction of recorded labels with a fitted method, in the shape and values of the caller."""

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
from labeltide.tables.frames import like_given
from labeltide.tables.sources import Sources

if TYPE_CHECKING:
    from labeltide.estimators.base import NoisyLabelClassifier


def audit_sequences(
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
    spend_fdr: bool,
    may_name: bool | None,
) -> LabelAudit:
    """See `NoisyLabelClassifier.audit`."""
    features, counts = estimator._check_features(X, lengths)
    shape = features.shape[:2]
    labels = estimator.encode(_validation.check_labels(y, *shape), counts)
    mask = _validation.steps_mask(counts, shape[1])
    clocks = check_clocks(clock, counts, shape[1])
    if (clocks.ndim == 3) != (estimator.cells_ is not None):
        raise ValueError(f"clock must hold as many clocks as in fit. Got shape {clocks.shape}.")
    moments = find_moments(estimator, clocks)
    between = check_gaps(gaps, counts, shape[1])
    known = None if trusted is None else estimator.encode(_validation.check_labels(trusted, *shape), counts)[..., 0]
    recorded = Recorded(labels, mask, moments, known, _find_places(estimator, labels, groups), between)
    evidence = estimator._evidence(features, mask)
    audit = audit_labels(
        recorded,
        evidence,
        estimator._persistence(),
        estimator.noise_,
        estimator.classes_,
        fdr=fdr,
        spend_fdr=spend_fdr,
        has_annotators=_validation.as_labels(y).ndim == 3,
        may_name=estimator._may_name_labels() if may_name is None else may_name,
    )
    return replace(audit, clock=moments if estimator.cells_ is None else clocks[..., 0])


def correct_labels(
    estimator: NoisyLabelClassifier, y: ArrayLike, lengths: ArrayLike | None, codes: np.ndarray
) -> np.ndarray:
    """The labels `y` in the caller's values, replaced where the corrected codes of an audit differ.

    Labels in a pandas frame, one row for each sequence, come back in a frame with the same index and columns.
    """
    recorded = _validation.as_labels(y)
    plain = recorded.dtype != object and estimator.classes_.dtype != object
    labels = recorded.astype(np.promote_types(recorded.dtype, estimator.classes_.dtype) if plain else object)
    changed = codes != estimator.encode(y, lengths).reshape(codes.shape)
    labels[changed] = estimator.classes_[codes[changed]]
    return like_given(labels, y)


def _find_places(estimator: NoisyLabelClassifier, labels: np.ndarray, groups: ArrayLike | None) -> np.ndarray | None:
    """The source of the labels of each sequence, (n, annotators), as an index into Q; None where all share one Q."""
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
