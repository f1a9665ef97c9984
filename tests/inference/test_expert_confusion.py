"""Confusion matrix with another expert: a slow count, its laws, and labels drawn from the prediction."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from labeltide.inference.audit import LabelAudit
from labeltide.inference.expert_confusion import expert_confusion

N, STEPS, CLASSES = 40, 12, 3
EDGES = (0.3, 0.7)


def make_audit(annotators: int = 1, seed: int = 0) -> LabelAudit:
    """Labels with gaps and padding, and any prediction of another expert's label."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(-1, CLASSES, (N, STEPS, annotators)).astype(np.int8)
    mask = np.arange(STEPS) < generator.integers(5, STEPS + 1, (N, 1))
    labels[~mask] = -1
    another = generator.dirichlet(np.ones(CLASSES), (N, STEPS)) * mask[..., None]
    clock = generator.random((N, STEPS))
    rates = np.full((N, STEPS, CLASSES), 0.1)
    return LabelAudit(
        np.array(["a", "b", "c"]), labels, clock, mask, another, another, rates, another=another,
        has_annotators=annotators > 1,
    )  # fmt: skip


def count_slowly(another: np.ndarray, labels: np.ndarray, clock: np.ndarray) -> np.ndarray:
    counts = np.zeros((3, CLASSES, CLASSES))
    for row, step in np.ndindex(*labels.shape):
        if labels[row, step] >= 0:
            place = sum(clock[row, step] >= edge for edge in EDGES)
            counts[place, :, labels[row, step]] += another[row, step]
    return counts / counts.sum(-1, keepdims=True)


def test_it_equals_a_slow_count():
    audit = make_audit()
    expected = count_slowly(audit.another, audit.labels[..., 0], audit.clock)
    np.testing.assert_allclose(audit.expert_confusion(EDGES), expected)


def test_annotators_have_one_matrix_each():
    audit = make_audit(annotators=2)
    found = audit.expert_confusion(EDGES)
    assert found.shape == (3, CLASSES, CLASSES, 2)
    for annotator in range(2):
        expected = count_slowly(audit.another, audit.labels[..., annotator], audit.clock)
        np.testing.assert_allclose(found[..., annotator], expected)


def test_rows_sum_to_one_and_rows_without_a_step_are_missing():
    audit = make_audit()
    found = audit.expert_confusion([0.5, 0.5, 2.0])
    np.testing.assert_allclose(found[[0, 2]].sum(-1), 1)
    assert np.isnan(found[[1, 3]]).all()


def test_an_expert_who_would_record_the_same_gives_the_identity():
    audit = make_audit()
    same = np.eye(CLASSES)[audit.labels[..., 0].clip(0)] * audit.mask[..., None]
    np.testing.assert_array_equal(replace(audit, another=same).expert_confusion(), np.eye(CLASSES)[None])
    np.testing.assert_array_equal(replace(audit, another=None, probabilities=same).expert_confusion()[0], np.eye(3))


def test_off_the_diagonal_it_holds_the_contested_labels():
    audit = make_audit()
    there = audit.labels[..., 0] >= 0
    shares = audit.another[there].mean(0)
    contested = shares @ (1 - np.diagonal(audit.expert_confusion()[0]))
    assert contested == pytest.approx(np.nanmean(audit.contested))


def test_labels_drawn_from_the_prediction_are_counted_alike():
    audit, generator = make_audit(), np.random.default_rng(1)
    labels, clock = audit.labels[..., 0], audit.clock
    drawn = np.zeros((N, STEPS, CLASSES))
    for _ in range(400):
        chosen = (generator.random((N, STEPS, 1)) >= audit.another.cumsum(-1)[..., :-1]).sum(-1)
        drawn += np.eye(CLASSES)[chosen] / 400
    np.testing.assert_allclose(count_slowly(drawn, labels, clock), audit.expert_confusion(EDGES), atol=0.02)


@pytest.mark.parametrize("edges", [[0.7, 0.3], [np.nan], 0.5, [[0.1, 0.2]]])
def test_edges_that_are_none_are_named(edges):
    with pytest.raises(ValueError, match="edges must be increasing numbers"):
        expert_confusion(np.ones((1, 1, 2)), np.zeros((1, 1, 1), np.int8), np.zeros((1, 1)), edges)
