r"""Labels of real people: what one of them recorded, measured against the others, whom no fit ever sees.

The observed noise is counted: of the steps that the majority of the *other* annotators calls i, the share that this one
calls j, in cells of the clock that hold equally many steps. The distance of an estimate from it is

.. math:: \sum_b w_b \, \| \bar Q_b - N_b \|_F,

with :math:`N_b` the counted matrix of cell b, row i of :math:`\bar Q_b` the mean of the estimated row over the steps
that were counted for it, and :math:`w_b` the cell's share of all counted steps. Rows of few steps are left out of both.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from labeltide.data.sequences import Sequences
from labeltide.estimators import NoisyLabelClassifier
from labeltide_bench.evaluation import absolute_errors, balanced_error, error_rate, frobenius_errors
from labeltide_bench.studies.datasets import AGREEMENT
from labeltide_bench.studies.loading import Split
from labeltide_bench.studies.measure import Predicted

CELLS = 10  # of the clock, in each of which the noise is counted
LEAST = 20  # steps below which the row of a class in a cell tells nothing


class Judged(NamedTuple):
    """One annotator's labels and what they are held against, (n, steps) each; -1 for gaps."""

    recorded: np.ndarray
    others: np.ndarray  # the label of most of the other annotators
    reference: np.ndarray  # what predictions are measured against


def labels_of(annotator: str, part: Sequences) -> np.ndarray:
    """The labels (n, steps) that one annotator recorded."""
    assert part.annotators is not None
    return part.labels[..., part.annotators.index(annotator)]


def judge(reference: str, annotator: str, part: Sequences) -> Judged:
    """One annotator beside the others; with "agreement" the reference is the label on which all of them agree."""
    assert part.annotators is not None
    recorded = labels_of(annotator, part)
    others = majority(np.delete(part.labels, part.annotators.index(annotator), axis=2), len(part.classes))
    if reference != AGREEMENT:
        return Judged(recorded, others, others)
    agreed = np.where((part.labels == part.labels[..., :1]).all(-1), part.labels[..., 0], np.int8(-1))
    return Judged(recorded, others, agreed)


def majority(labels: np.ndarray, n_classes: int) -> np.ndarray:
    """The label of most annotators (..., annotators) → (...); -1 where two labels tie or nobody gave one."""
    votes = (labels[..., None] == np.arange(n_classes)).sum(-2)  # (..., classes)
    ahead = np.sort(votes, axis=-1)
    return np.where(ahead[..., -1] > ahead[..., -2], votes.argmax(-1), -1).astype(np.int8)


def measure_recorded(
    estimator: NoisyLabelClassifier, reference: str, annotator: str, split: Split, predicted: Predicted
) -> dict[str, Any]:
    """Errors against the reference, and the estimated noise beside the observed, over cells of the clock."""
    train, test = (judge(reference, annotator, part) for part in split)
    edges, middles = clock_cells(split)
    counts, observed, estimated = compare_noise(estimator, train, split.train, edges)
    weights = counts.sum((1, 2)) / counts.sum()
    static = _shares(counts.sum(0, keepdims=True))
    frobenius, absolute, change = (
        errors(observed, np.where(np.isfinite(observed), other, np.nan))
        for errors, other in ((_frobenius, estimated), (_absolute, estimated), (_frobenius, static))
    )
    in_cells = np.digitize(split.test.clock, edges)
    over = [_error(predicted.test[in_cells == cell], test.reference[in_cells == cell]) for cell in range(CELLS)]
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


def clock_cells(split: Split) -> tuple[np.ndarray, np.ndarray]:
    """Inner edges and mean moments of cells with equally many steps; the same for all folds of a data set."""
    moments = np.sort(np.concatenate([part.clock[part.mask] for part in split]))
    edges = np.quantile(moments, np.arange(1, CELLS) / CELLS)
    cell = np.digitize(moments, edges)
    return edges, np.array([moments[cell == one].mean() if (cell == one).any() else np.nan for one in range(CELLS)])


def compare_noise(
    estimator: NoisyLabelClassifier, judged: Judged, part: Sequences, edges: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Counts, observed and estimated noise, each (cells, classes, classes); NaN in observed rows of few steps."""
    n_classes = len(part.classes)
    moments, place = np.unique(part.clock, return_inverse=True)
    place = place.reshape(part.clock.shape)
    both = (judged.recorded >= 0) & (judged.others >= 0)
    at = np.zeros((len(moments), n_classes, n_classes))  # (moments, others' label, recorded)
    np.add.at(at, (place[both], judged.others[both], judged.recorded[both]), 1)
    matrices = estimator.noise_at(moments)  # (moments, classes, classes)
    cell = np.digitize(moments, edges)
    counts, estimated = np.zeros((CELLS, n_classes, n_classes)), np.full((CELLS, n_classes, n_classes), np.nan)
    for one in range(CELLS):
        own = cell == one
        counts[one] = at[own].sum(0)
        steps = at[own].sum(2)  # (moments, classes)
        weights = np.where(steps.sum(0) > 0, steps, 1.0)
        if own.any():
            estimated[one] = np.einsum("ti,tij->ij", weights / weights.sum(0), matrices[own])
    return counts, _shares(counts), estimated


def _error(predicted: np.ndarray, reference: np.ndarray) -> float:
    """The error rate; NaN where a cell of the clock has nothing to measure by."""
    return error_rate(predicted, reference) if (reference >= 0).any() else float("nan")


def _shares(counts: np.ndarray) -> np.ndarray:
    """Rows that sum to one; NaN where a row has few counts."""
    totals = counts.sum(-1, keepdims=True)
    return np.where(totals >= LEAST, counts / np.maximum(totals, 1), np.nan)


def _frobenius(observed: np.ndarray, estimated: np.ndarray) -> np.ndarray:
    return frobenius_errors(np.nan_to_num(observed), np.nan_to_num(estimated))


def _absolute(observed: np.ndarray, estimated: np.ndarray) -> np.ndarray:
    """The mean over entries that were observed."""
    n_entries = np.isfinite(observed).sum((1, 2))
    every = absolute_errors(np.nan_to_num(observed), np.nan_to_num(estimated)) * observed[0].size
    return every / np.maximum(n_entries, 1)
