"""Enumeration of all samples that a design can draw from a tiny population."""

from __future__ import annotations

from itertools import pairwise, permutations

import numpy as np

from labeltide.inference.review import passed_marks


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
