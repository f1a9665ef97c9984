r"""Metrics of a run on recorded labels: one annotator is the training label, the other annotators are the reference.

Where a data set has a column of clean labels, that column is the only other annotator.

The observed noise is an empirical confusion matrix over the clock: of the steps that the majority of the *other*
annotators labels i, the share that this annotator labels j, in quantile bins of the clock. The distance to it is

.. math:: \sum_b w_b \, \| \bar Q_b - N_b \|_F,

with :math:`N_b` the observed matrix of bin b, row i of :math:`\bar Q_b` the mean of the estimated row over the steps
counted in it, and :math:`w_b` the share of bin b in all counted steps. Rows with few steps are left out of both.

Q(t) is about errors, and the count is of disagreement. Of `tide`, the predicted disagreement is therefore measured, too
(`measure_disagreement`): the expected confusion matrix with another expert,

.. math:: D_b[i, j] = \frac{\sum_{t \in b} p_t(i)\, [j \text{ recorded at } t]}{\sum_{t \in b} p_t(i)},

with :math:`p_t` the predicted label of another expert (`labeltide/inference/audit.py`) and t the recorded labels of
bin b. It is compared with :math:`N_b` and with the mean count against each single other annotator, whom D predicts.
Where Q(t) has the true label, D has that of the other expert. It therefore also holds the other expert's errors, and
steps on which experts differ although neither errs.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from labeltide.data.sequences import Sequences
from labeltide.estimators import NoisyLabelClassifier
from labeltide.inference.audit import LabelAudit
from labeltide_bench.evaluation import absolute_errors, balanced_error, error_rate, frobenius_errors
from labeltide_bench.studies.dataset_spec import AGREEMENT, CLEAN
from labeltide_bench.studies.loading import Split
from labeltide_bench.studies.measure import DISAGREEMENT, PredictedLabels

CLOCK_BINS = 10  # bins of the clock, in each of which the noise is counted
MIN_STEPS = 20  # fewest steps of a class in a bin for its row to be used


class AnnotatorLabels(NamedTuple):
    """Labels of one annotator and their references, (n, steps) each; -1 where missing."""

    recorded: np.ndarray
    others: np.ndarray  # the label of most of the other annotators
    reference: np.ndarray  # the labels that predictions are compared with


class CountedNoise(NamedTuple):
    """The observed noise in bins of the clock."""

    edges: np.ndarray  # inner edges of the bins
    observed: np.ndarray  # (bins, classes, classes), against the majority of the others; NaN in rows with few steps
    weights: np.ndarray  # (bins,), shares of the counted steps


def labels_of(annotator: str, part: Sequences) -> np.ndarray:
    """The labels (n, steps) that one annotator recorded."""
    assert part.annotators is not None
    return part.labels[..., part.annotators.index(annotator)]


def compare_with_others(reference: str, annotator: str, part: Sequences) -> AnnotatorLabels:
    """Labels of one annotator and of the others; with "agreement" the reference is the label that all of them gave."""
    assert part.annotators is not None
    recorded = labels_of(annotator, part)
    others = majority(np.delete(part.labels, part.annotators.index(annotator), axis=2), len(part.classes))
    if reference != AGREEMENT:
        return AnnotatorLabels(recorded, others, others)
    agreed = np.where((part.labels == part.labels[..., :1]).all(-1), part.labels[..., 0], np.int8(-1))
    return AnnotatorLabels(recorded, others, agreed)


def majority(labels: np.ndarray, n_classes: int) -> np.ndarray:
    """The label of most annotators (..., annotators) → (...); -1 where two labels tie or nobody gave one."""
    votes = (labels[..., None] == np.arange(n_classes)).sum(-2)  # (..., classes)
    ahead = np.sort(votes, axis=-1)
    return np.where(ahead[..., -1] > ahead[..., -2], votes.argmax(-1), -1).astype(np.int8)


def measure_recorded(
    estimator: NoisyLabelClassifier, reference: str, annotator: str, split: Split, predicted: PredictedLabels
) -> dict[str, Any]:
    """Errors against the reference, and estimated and observed noise in bins of the clock."""
    train, test = (compare_with_others(reference, annotator, part) for part in split)
    edges, middles = clock_bins(split)
    counts, observed, estimated = compare_noise(estimator, train, split.train, edges)
    weights = counts.sum((1, 2)) / counts.sum()
    static = _shares(counts.sum(0, keepdims=True))
    frobenius, absolute, change = (
        errors(observed, np.where(np.isfinite(observed), other, np.nan))
        for errors, other in ((_frobenius, estimated), (_absolute, estimated), (_frobenius, static))
    )
    bins = np.digitize(split.test.clock, edges)
    over = [_error(predicted.test[bins == b], test.reference[bins == b]) for b in range(CLOCK_BINS)]
    wrong = error_rate(train.recorded, np.where(train.recorded >= 0, train.others, -1))
    return {
        "rate": round(wrong, 5),
        "metrics": {
            "test_error": error_rate(predicted.test, test.reference),
            "train_error": error_rate(predicted.train, train.reference),
            "balanced_test_error": balanced_error(predicted.test, test.reference),
            "frobenius": float(weights @ frobenius),
            "absolute": float(weights @ absolute),
            "wrong_labels": wrong,
            **measure_disagreement(
                estimator, reference, annotator, split.train, CountedNoise(edges, observed, weights)
            ),
        },
        "over_time": {
            "test_error": np.round(over, 4),
            "frobenius": np.round(frobenius, 4),
            "absolute": np.round(absolute, 4),
        },
        "observed_change": round(float(weights @ change), 5),  # of the observed noise from its own average over time
        "referenced": round(float((test.reference >= 0)[split.test.mask].mean()), 5),
        "clock": np.round(middles, 4),
        "true_noise": np.round(observed, 4),
        "noise": np.round(estimated, 4),
    }


def measure_disagreement(
    estimator: NoisyLabelClassifier, reference: str, annotator: str, part: Sequences, counted: CountedNoise
) -> dict[str, float]:
    """What an audit of one annotator's labels predicts of another annotator's, beside what those recorded.

    Empty for methods without out-of-fold predictions, which memorise labels, and where clean labels are the reference:
    these are no other annotator's.
    """
    if not estimator.cross_fits or reference == CLEAN:
        return {}
    assert part.annotators is not None
    recorded = labels_of(annotator, part)
    others = np.delete(part.labels, part.annotators.index(annotator), axis=2)
    pairs = (recorded >= 0)[..., None] & (others >= 0)
    audit = estimator.audit(part.features, recorded, part.clock, part.lengths)
    confusion = expert_confusion(audit, counted.edges)
    by_pairs = _shares(_count_pairs(recorded, others, np.digitize(part.clock, counted.edges), len(part.classes)))
    distances = [
        _frobenius(observed, np.where(np.isfinite(observed), confusion, np.nan))
        for observed in (counted.observed, by_pairs)
    ]
    values = (
        *(counted.weights @ distance for distance in distances),
        np.broadcast_to(audit.contested[..., None], pairs.shape)[pairs].mean(),
        (recorded[..., None] != others)[pairs].mean(),
    )
    return {name: float(value) for name, value in zip(DISAGREEMENT, values, strict=True)}


def expert_confusion(audit: LabelAudit, edges: np.ndarray) -> np.ndarray:
    """Of the steps that another expert would label i, the expected share recorded as j: (bins, classes, classes).

    Rows in which no step is expected are NaN.

    Parameters
    ----------
    audit : of one annotator's labels
    edges : increasing numbers, the inner edges of bins of the clock
        A moment on an edge belongs to the later bin. Without edges there is one bin; between equal edges one is empty.
    """
    assert audit.another is not None
    there, n_classes = audit.labels[..., 0] >= 0, len(audit.classes)
    another, recorded = audit.another[there], audit.labels[there, 0]
    bins = np.digitize(audit.clock[there], edges)
    counts = np.zeros((len(edges) + 1, n_classes, n_classes))
    np.add.at(counts.swapaxes(1, 2), (bins, recorded), another)
    totals = counts.sum(-1, keepdims=True)
    return np.divide(counts, totals, out=np.full_like(counts, np.nan), where=totals > 0)


def clock_bins(split: Split) -> tuple[np.ndarray, np.ndarray]:
    """Inner edges and mean moments of quantile bins of the clock; the same for all folds of a data set."""
    moments = np.sort(np.concatenate([part.clock[part.mask] for part in split]))
    edges = np.quantile(moments, np.arange(1, CLOCK_BINS) / CLOCK_BINS)
    bins = np.digitize(moments, edges)
    return edges, np.array([moments[bins == b].mean() if (bins == b).any() else np.nan for b in range(CLOCK_BINS)])


def compare_noise(
    estimator: NoisyLabelClassifier, compared: AnnotatorLabels, part: Sequences, edges: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Counts, observed and estimated noise, each (bins, classes, classes); NaN in observed rows with few steps."""
    n_classes = len(part.classes)
    moments, index = np.unique(part.clock, return_inverse=True)
    index = index.reshape(part.clock.shape)
    both = (compared.recorded >= 0) & (compared.others >= 0)
    at = np.zeros((len(moments), n_classes, n_classes))  # (moments, others' label, recorded)
    np.add.at(at, (index[both], compared.others[both], compared.recorded[both]), 1)
    matrices = estimator.noise_at(moments)  # (moments, classes, classes)
    bins = np.digitize(moments, edges)
    counts, estimated = np.zeros((2, CLOCK_BINS, n_classes, n_classes))
    estimated[:] = np.nan
    for b in range(CLOCK_BINS):
        inside = bins == b
        counts[b] = at[inside].sum(0)
        steps = at[inside].sum(2)  # (moments, classes)
        weights = np.where(steps.sum(0) > 0, steps, 1.0)
        if inside.any():
            estimated[b] = np.einsum("ti,tij->ij", weights / weights.sum(0), matrices[inside])
    return counts, _shares(counts), estimated


def _count_pairs(recorded: np.ndarray, others: np.ndarray, bins: np.ndarray, n_classes: int) -> np.ndarray:
    """Counts of another annotator's and of this one's labels, averaged over the others: (bins, classes, classes)."""
    counts = np.zeros((CLOCK_BINS, n_classes, n_classes))
    for other in np.moveaxis(others, 2, 0):
        both = (recorded >= 0) & (other >= 0)
        np.add.at(counts, (bins[both], other[both], recorded[both]), 1)
    return counts / others.shape[2]


def _error(predicted: np.ndarray, reference: np.ndarray) -> float:
    """The error rate; NaN where a bin has no reference."""
    return error_rate(predicted, reference) if (reference >= 0).any() else float("nan")


def _shares(counts: np.ndarray) -> np.ndarray:
    """Rows that sum to one; NaN where a row has few counts."""
    totals = counts.sum(-1, keepdims=True)
    return np.where(totals >= MIN_STEPS, counts / np.maximum(totals, 1), np.nan)


def _frobenius(observed: np.ndarray, estimated: np.ndarray) -> np.ndarray:
    return frobenius_errors(np.nan_to_num(observed), np.nan_to_num(estimated))


def _absolute(observed: np.ndarray, estimated: np.ndarray) -> np.ndarray:
    """The mean over entries that were observed."""
    n_entries = np.isfinite(observed).sum((1, 2))
    every = absolute_errors(np.nan_to_num(observed), np.nan_to_num(estimated)) * observed[0].size
    return every / np.maximum(n_entries, 1)
