"""Confusion matrix with another expert: a slow count, its laws, and labels drawn from the prediction."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from labeltide.inference.audit import LabelAudit
from labeltide_bench.studies.recorded import expert_confusion

N, STEPS, CLASSES = 40, 12, 3
EDGES = np.array([0.3, 0.7])
ONE_BIN = np.array([])


@pytest.fixture
def audit() -> LabelAudit:
    """Labels with gaps and padding, and any prediction of another expert's label."""
    generator = np.random.default_rng(0)
    labels = generator.integers(-1, CLASSES, (N, STEPS, 1)).astype(np.int8)
    mask = np.arange(STEPS) < generator.integers(5, STEPS + 1, (N, 1))
    labels[~mask] = -1
    another = generator.dirichlet(np.ones(CLASSES), (N, STEPS)) * mask[..., None]
    clock = generator.random((N, STEPS))
    rates = np.full((N, STEPS, CLASSES), 0.1)
    return LabelAudit(np.array(["a", "b", "c"]), labels, clock, mask, another, another, rates, another=another)


def count_slowly(another: np.ndarray, labels: np.ndarray, clock: np.ndarray) -> np.ndarray:
    counts = np.zeros((3, CLASSES, CLASSES))
    for row, step in np.ndindex(*labels.shape):
        if labels[row, step] >= 0:
            index = sum(clock[row, step] >= edge for edge in EDGES)
            counts[index, :, labels[row, step]] += another[row, step]
    return counts / counts.sum(-1, keepdims=True)


def test_it_equals_a_slow_count(audit):
    expected = count_slowly(audit.another, audit.labels[..., 0], audit.clock)
    np.testing.assert_allclose(expert_confusion(audit, EDGES), expected)


def test_rows_sum_to_one_and_rows_without_a_step_are_missing(audit):
    found = expert_confusion(audit, np.array([0.5, 0.5, 2.0]))
    np.testing.assert_allclose(found[[0, 2]].sum(-1), 1)
    assert np.isnan(found[[1, 3]]).all()


def test_an_expert_who_would_record_the_same_gives_the_identity(audit):
    same = np.eye(CLASSES)[audit.labels[..., 0].clip(0)] * audit.mask[..., None]
    np.testing.assert_array_equal(expert_confusion(replace(audit, another=same), ONE_BIN), np.eye(CLASSES)[None])


def test_off_the_diagonal_it_holds_the_contested_labels(audit):
    there = audit.labels[..., 0] >= 0
    shares = audit.another[there].mean(0)
    contested = shares @ (1 - np.diagonal(expert_confusion(audit, ONE_BIN)[0]))
    assert contested == pytest.approx(np.nanmean(audit.contested))


def test_labels_drawn_from_the_prediction_are_counted_alike(audit):
    generator = np.random.default_rng(1)
    labels, clock = audit.labels[..., 0], audit.clock
    drawn = np.zeros((N, STEPS, CLASSES))
    for _ in range(400):
        chosen = (generator.random((N, STEPS, 1)) >= audit.another.cumsum(-1)[..., :-1]).sum(-1)
        drawn += np.eye(CLASSES)[chosen] / 400
    np.testing.assert_allclose(count_slowly(drawn, labels, clock), expert_confusion(audit, EDGES), atol=0.02)
