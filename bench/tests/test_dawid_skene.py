"""The static model against its own definition, written out slowly."""

from __future__ import annotations

import numpy as np

from labeltide_bench.dawid_skene import dawid_skene


def some_labels(n=400):
    rng = np.random.default_rng(0)
    truth = rng.integers(3, size=n)
    labels = np.stack([np.where(rng.random(n) < r, rng.integers(3, size=n), truth) for r in (0.1, 0.3, 0.5)], 1)
    labels[rng.random(labels.shape) < 0.2] = -1
    return labels, truth


def test_the_fit_stands_still_under_one_more_step_by_brute_force():
    labels, _ = some_labels()
    found = dawid_skene(labels, 3)
    slow = np.zeros((len(labels), 3))
    for step, row in enumerate(labels):
        for true in range(3):
            slow[step, true] = found.prior[true]
            for annotator, label in enumerate(row):
                slow[step, true] *= 1 if label < 0 else found.matrices[annotator, true, label]
    slow /= slow.sum(1, keepdims=True)
    assert np.allclose(slow, found.probabilities)
    for annotator in range(3):
        counts = np.zeros((3, 3))
        for step, label in enumerate(labels[:, annotator]):
            if label >= 0:
                counts[:, label] += slow[step]
        assert np.allclose(counts / counts.sum(1, keepdims=True), found.matrices[annotator], atol=2e-3)


def test_it_ranks_annotators_and_finds_the_truth_better_than_the_worst_of_them():
    labels, truth = some_labels()
    found = dawid_skene(labels, 3)
    right = found.matrices.diagonal(axis1=1, axis2=2).mean(1)
    assert right[0] > right[1] > right[2]
    assert (found.probabilities.argmax(1) == truth).mean() > 0.85
