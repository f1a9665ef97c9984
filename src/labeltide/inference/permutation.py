"""Permutations of the clock: rows that are exchangeable, and rotations of the windows of a person.

Rows that are independent of each other are exchangeable: under the null hypothesis their moments can be permuted
without changing the distribution of the labels (Good 2005). Windows of one person are not, where a cause lasts for
several of them. Rotating a person's windows against their moments, each person by a random shift, keeps the order of
windows and with it their serial correlation (restricted permutation; Edgington and Onghena 2007). The first window then
follows the last, so that the reference is approximate, and fails where causes last for much of the clock
(`lasting_causes`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
from scipy.fft import dct

from labeltide.inference.score import Alternative, ClockMoments, NullFit

# Cosine waves over the windows of a person that count as slow (docs/decisions/015-tests-of-change.md).
SLOW_WAVES = 4  # by hand


def rows_by_length(rows: np.ndarray, lengths: np.ndarray) -> list[np.ndarray]:
    """Exchangeable rows: those of the same length, in groups of at least two."""
    groups = defaultdict(list)
    for row in rows:
        groups[lengths[row]].append(row)
    return [np.array(group) for group in groups.values() if len(group) > 1]


def shuffle_rows(
    index: np.ndarray, groups: Sequence[np.ndarray], n_replicates: int, generator: np.random.Generator
) -> Iterator[np.ndarray]:
    """The moments (rows, steps) after random permutations of the rows within each group."""
    for _ in range(n_replicates):
        order = np.arange(len(index))
        for group in groups:
            order[group] = generator.permutation(group)
        yield index[order]


def rotate_people(
    index: np.ndarray,
    mask: np.ndarray,
    people: Sequence[np.ndarray],
    n_replicates: int,
    generator: np.random.Generator,
) -> Iterator[np.ndarray]:
    """The moments (rows, steps) after a random rotation of each person's steps; `people` are rows in their order."""
    n_steps = mask.shape[1]
    steps = [(rows[:, None] * n_steps + np.arange(n_steps))[mask[rows]] for rows in people]  # of each person, flat
    for _ in range(n_replicates):
        rotated = index.ravel().copy()
        for own in steps:
            rotated[own] = np.roll(rotated[own], generator.integers(len(own)))
        yield rotated.reshape(index.shape)


def in_order(rows: np.ndarray, moments: ClockMoments, mask: np.ndarray) -> np.ndarray:
    """The rows in the order of their mean moments; of a periodic clock, circular means."""
    coordinates, real = moments.coordinates(rows), mask[rows][..., None]
    mean = (coordinates * real).sum(1) / real.sum(1)
    place = mean[:, 0] if mean.shape[1] == 1 else np.arctan2(mean[:, 1], mean[:, 0]) % (2 * np.pi)
    return rows[np.argsort(place, kind="stable")]


def step_residuals(fit: NullFit, change: Alternative) -> np.ndarray:
    """Residuals of the tested entries, summed within each share: (rows, steps, groups * shares)."""
    columns = []
    for group in change.groups:
        for share in change.shares.T:
            entries = [entry for entry, member in zip(fit.entries, share, strict=True) if member]
            columns.append(np.sum([fit.residuals(group, entry) for entry in entries], 0))
    return np.stack(columns, -1)


def score_of_moments(residuals: np.ndarray, index: np.ndarray, change: Alternative) -> np.ndarray:
    """The score (groups, functions, shares) if each step lay at the moment that `index` says."""
    of_moment = change.functions[index.ravel()]  # (rows * steps, functions)
    scores = of_moment.T @ residuals.reshape(len(of_moment), -1)
    return scores.reshape(scores.shape[0], len(change.groups), -1).transpose(1, 0, 2)


def lasting_causes(residuals: np.ndarray, people: Sequence[np.ndarray]) -> float:
    """Power of slow waves in the windows of people, over that of faster ones; about 1 for independent windows.

    Waves are those of the discrete cosine transform of the residuals of windows, in their order. A change over the
    clock moves all people alike. What counts here is how people differ from their mean, so that a change does not pass
    for a cause that lasts.
    """
    waves = [dct(residuals[rows].sum(1), axis=0, norm="ortho")[1:] for rows in people]  # (windows - 1, columns)
    slow = np.stack([of_person[:SLOW_WAVES] for of_person in waves])  # (people, waves, columns)
    fast = np.concatenate([of_person[SLOW_WAVES:] for of_person in waves])
    slow_power = slow.var(0, ddof=1).mean(0)
    fast_power = (fast**2).mean(0)
    seen = fast_power > 0
    return float((slow_power[seen] / fast_power[seen]).mean()) if seen.any() else np.inf
