"""The model of Dawid and Skene (1979): one confusion matrix for each annotator, steps independent, fitted by EM.

It is the baseline of the annotator benchmarks: it knows neither time nor the order of steps.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from labeltide.inference.annotators import count_votes

MAX_ITERATIONS, TOLERANCE = 200, 1e-7


class DawidSkene(NamedTuple):
    """Maximum likelihood estimates, with EM started from the shares of votes."""

    prior: np.ndarray  # (classes,)
    matrices: np.ndarray  # (annotators, classes, classes): P(recorded j | true i)
    probabilities: np.ndarray  # (steps, classes)


def dawid_skene(labels: np.ndarray, n_classes: int) -> DawidSkene:
    """Fit the model to codes of shape (steps, annotators), -1 where nothing was recorded."""
    votes = count_votes(labels, n_classes)
    voted = votes.sum(1, keepdims=True)
    posterior = np.where(voted > 0, votes / np.maximum(voted, 1), 1 / n_classes)
    # For each annotator, indicators of the recorded class: (steps, classes).
    indicators = [recorded[:, None] == np.arange(n_classes) for recorded in labels.T]
    last_likelihood = -np.inf
    for _ in range(MAX_ITERATIONS):
        prior = posterior.mean(0)
        matrices = np.stack([posterior.T @ recorded for recorded in indicators])
        matrices /= np.maximum(matrices.sum(-1, keepdims=True), 1e-300)
        with np.errstate(divide="ignore"):
            logs = np.maximum(np.log(matrices), -700)
            joint = np.log(np.maximum(prior, 1e-300)) + sum(
                recorded @ log.T for recorded, log in zip(indicators, logs, strict=True)
            )
        top = joint.max(1, keepdims=True)
        total = np.log(np.exp(joint - top).sum(1, keepdims=True)) + top
        posterior = np.exp(joint - total)
        if total.mean() - last_likelihood < TOLERANCE:
            break
        last_likelihood = total.mean()
    return DawidSkene(prior, matrices, posterior)
