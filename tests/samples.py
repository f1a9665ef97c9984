"""Enumeration of all samples that a design can draw from a tiny population."""

from __future__ import annotations

from itertools import pairwise, permutations

import numpy as np


def passed_marks(inclusion: np.ndarray, start: float) -> np.ndarray:
    """True where the running sum of the inclusion probabilities passes one of start, start + 1, ... (Madow 1949)."""
    sums = np.cumsum(inclusion)
    sums[-1] = np.rint(sums[-1])
    return np.diff(np.floor(sums - start), prepend=np.floor(-start)) > 0


def all_samples(inclusion: np.ndarray) -> list[tuple[float, np.ndarray]]:
    """Every sample of randomised systematic sampling with its probability, from all orders and all starts."""
    samples = []
    orders = list(permutations(range(len(inclusion))))
    for order in orders:
        sums = np.cumsum(inclusion[list(order)])
        edges = np.unique(np.concatenate([[0.0, 1.0], np.mod(sums, 1).round(12)]))
        for low, high in pairwise(edges):
            chosen = np.array(order)[passed_marks(inclusion[list(order)], (low + high) / 2)]
            samples.append(((high - low) / len(orders), chosen))
    return samples
