"""The static model of Dawid and Skene (1979): a confusion matrix for each annotator, every step on its own."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from labeltide.inference.agreement import count_votes

ITERATIONS, TOLERANCE = 200, 1e-7


class DawidSkene(NamedTuple):
    """Maximum likelihood by EM, from the shares of votes."""

    prior: np.ndarray  # (classes,)
    matrices: np.ndarray  # (annotators, classes, classes): P(recorded j | true i)
    probabilities: np.ndarray  # (steps, classes)


def dawid_skene(labels: np.ndarray, n_classes: int) -> DawidSkene:
    """Fit the static model to codes of shape (steps, annotators), -1 where nothing was recorded."""
    votes = count_votes(labels, n_classes)
    voted = votes.sum(1, keepdims=True)
    found = np.where(voted > 0, votes / np.maximum(voted, 1), 1 / n_classes)
    seen = [own[:, None] == np.arange(n_classes) for own in labels.T]  # of each annotator, (steps, classes)
    before = -np.inf
    for _ in range(ITERATIONS):
        prior = found.mean(0)
        matrices = np.stack([found.T @ own for own in seen])
        matrices /= np.maximum(matrices.sum(-1, keepdims=True), 1e-300)
        with np.errstate(divide="ignore"):
            logs = np.maximum(np.log(matrices), -700)
            joint = np.log(np.maximum(prior, 1e-300)) + sum(own @ log.T for own, log in zip(seen, logs, strict=True))
        top = joint.max(1, keepdims=True)
        total = np.log(np.exp(joint - top).sum(1, keepdims=True)) + top
        found = np.exp(joint - total)
        if total.mean() - before < TOLERANCE:
            break
        before = total.mean()
    return DawidSkene(prior, matrices, found)
