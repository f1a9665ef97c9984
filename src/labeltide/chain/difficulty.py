r"""Instance-dependent noise: labels are wrong more often where the features tell the classes apart poorly.

Noise that grows towards the boundary between classes is called boundary-consistent (Menon, van Rooyen and Natarajan
2018). The difficulty of a step is the margin of its out-of-fold prediction, the difference of the two largest
log-probabilities. It is cut at its quantiles into eight *levels*, hardest first. The effects of the clock and of the
level add up on the logit scale,

.. math:: \log Q_{ij}(t, d) / Q_{ii}(t, d) = x_{ij}(t)^\top \beta + g_i(d).

A point of the grid is then a *cell*, a moment and a level, with the level varying fastest, and the grid of the clock
repeats every moment for each level. Splines, waves and pieces are functions of that grid as of any other. The curve g
is fitted once, with a penalised spline, and is then an offset of the logits: like the evidence, it is held fixed in
bands and tests.

Without levels, networks learn to predict the wrong labels near the boundary, and with their evidence these look right.
Of 42 development fits with 30 % wrong labels near the boundary (simulations, chest accelerometer, stairs, postures, REM
sleep), the posterior had 24 % errors without levels. With levels where held-out labels ask for them, which they did in
34, it had 14 %. None of 84 fits with errors anywhere got levels. EM starts from labels that persist: from a chain
without persistence it often ended where the wrong labels are taken for the truth, at about the same likelihood.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from labeltide._clock import Period, nearest, one_period
from labeltide.chain.data import ChainData, ChainParameters, Members
from labeltide.chain.em import fit_chains
from labeltide.chain.families import Family, family, sum_shape
from labeltide.chain.passes import expect
from labeltide.chain.pooled import families_of
from labeltide.chain.select import Chosen, try_families
from labeltide.chain.start import JOINT_ITERATIONS, START_SMOOTHNESS, flat_chain

LEVELS = 8
MOMENTS = ((3, 48), (8, 24))  # at most 48 moments with up to 3 classes, 24 with up to 8; no levels with more classes
LEVEL_SMOOTHNESS = 1.0  # roughness penalty of the curve over levels
HARDEST, EASIEST = 0.52, 0.02  # error rates of the outer levels where EM starts
STAY = 0.9  # persistence of true labels where EM starts
DIFFICULTY_WORTH = 5.0  # held-out log-likelihood that the levels must gain, as timing errors and bursts must
# Points of error rate between hard and easy steps, and standard errors, below which nothing is fitted. Of 14
# development fits with errors near the boundary the least had 6.4 points and 3.2; 17 of 21 others stay below.
SUSPECTED_DIFFERENCE, SUSPECTED_Z = 0.03, 2.0
MOST_STEPS = 2**15  # of more, some rows decide whether there are levels


class Difficult(NamedTuple):
    """Labels of one fit by moment and level, and the chain with which EM goes on."""

    data: ChainData  # with offsets; its points are cells
    grid: np.ndarray  # (cells,), the moment of each
    thresholds: np.ndarray  # (levels - 1,), rising margins between levels
    chain: ChainParameters


def margins(evidence: Tensor) -> Tensor:
    """The difference of the two largest log-probabilities: (..., classes) → (...)."""
    first, second = evidence.topk(2, dim=-1).values.unbind(-1)
    return first - second


def is_suspected(data: ChainData, fits: Members, label_chain: ChainParameters) -> Tensor:
    """Whether labels of hard steps disagree with their neighbours more often than those of easy ones: bool (fits,).

    A quick look before anything is fitted: errors by the hidden Markov model of the labels alone, in the quarters of
    steps with the smallest and with the largest margins. Differences are judged by sums over rows.
    """
    if data.evidence is None:
        return torch.zeros(len(fits.labels), dtype=torch.bool)
    rows = _some_rows(data.mask)
    data, fits = data.take_rows(rows), fits._replace(weights=fits.weights[:, rows])
    posterior = expect(data.with_evidence(None), fits, label_chain, posterior=True).posterior
    assert posterior is not None
    assert data.evidence is not None
    suspected = []
    for labels, of_fit, evidence in zip(data.labels, posterior, data.evidence, strict=True):
        there = (labels >= 0) & data.mask[..., None]  # (rows, steps, annotators)
        wrong = there.sum(-1) - (of_fit.gather(-1, labels.long().clamp_min(0)) * there).sum(-1)
        count, margin = there.sum(-1), margins(evidence)
        low, high = margin[data.mask].quantile(torch.tensor([0.25, 0.75], device=margin.device)).tolist()
        hard, easy = ((inside & data.mask).to(wrong) for inside in (margin <= low, margin >= high))
        difference = _mean(wrong, count, hard) - _mean(wrong, count, easy)
        score = ((wrong - count * (wrong.sum() / count.sum())) * (hard - easy)).sum(1)  # (rows,)
        z = score.sum() / score.square().sum().sqrt().clamp_min(1e-12)
        suspected.append(bool(difference > SUSPECTED_DIFFERENCE and z > SUSPECTED_Z))
    return torch.tensor(suspected)


def _mean(wrong: Tensor, count: Tensor, inside: Tensor) -> float:
    return float((wrong * inside).sum() / (count * inside).sum().clamp_min(1.0))


def find_difficulty(
    data: ChainData, member: Members, folds: Tensor, chosen: Chosen, grid: np.ndarray, period: Period
) -> Difficult | None:
    """The labels of one fit by level, where levels predict held-out labels clearly better; else None.

    Parameters
    ----------
    data : of one fit, with evidence, on the CPU
    member : one, with all rows
    folds : int64 Tensor of shape (1, rows)
    chosen : families of Q(t) without levels, of one fit
    """
    most = next((moments for classes, moments in MOMENTS if data.n_classes <= classes), 0)
    if not most or data.evidence is None:
        return None
    margin = margins(data.evidence[0].double())[data.mask].numpy()
    thresholds = np.quantile(margin, np.arange(1, LEVELS) / LEVELS)
    by_level, cells = _on_cells(data, grid, thresholds, most)
    kind = _additive(data.n_classes, cells, period)
    rows = _some_rows(data.mask)
    some, part = member._replace(weights=member.weights[:, rows]), by_level.take_rows(rows)
    some_folds = folds[:, rows]
    count = int(some_folds.max()) + 2  # folds among these rows, and none left out
    best = chosen.families[0][int(chosen.held_out[0].argmax())]
    without = try_families(data.take_rows(rows), some, chosen.parameters, some_folds, [[[best] * count]])
    tried = try_families(part, some, _fit_additive(part, some, kind), some_folds, [[[kind] * count]])
    if float(tried.held_out[0, 0] - without.held_out[0, 0]) <= DIFFICULTY_WORTH:
        return None
    chain = tried.parameters
    if len(rows) < len(data.mask):
        families = families_of([kind])
        chain = fit_chains(by_level, member, families, chain, iterations=JOINT_ITERATIONS, learn_power=True).parameters
    offsets = _offsets(chain.matrices[0, 0])
    return Difficult(replace(by_level, offsets=offsets), cells, thresholds, chain)


def find_cells(place: np.ndarray, evidence: Tensor, thresholds: np.ndarray) -> np.ndarray:
    """The cell of each step from its place among the moments and its evidence: int64, (rows, steps)."""
    level = torch.bucketize(margins(evidence.double()), torch.from_numpy(thresholds), right=True)
    return np.asarray(place * (len(thresholds) + 1) + level.numpy())


def nearest_moments(grid: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """At most so many even moments over a grid, and which of them is nearest to each of its points."""
    axis = grid if len(grid) <= most else np.linspace(grid[0], grid[-1], most)
    return axis, nearest(grid, axis, None)


def average_levels(matrices: np.ndarray, totals: np.ndarray, n_levels: int) -> np.ndarray:
    r"""Q(t) from Q by moment and level: :math:`Q_{ij}(t) = \sum_d P(d \mid i, t) Q_{ij}(t, d)`.

    Parameters
    ----------
    matrices : array of shape (..., cells, classes, classes)
    totals : array of shape (..., cells, classes), expected labels of each true class
    """
    by_level = matrices.reshape(*matrices.shape[:-3], -1, n_levels, *matrices.shape[-2:])
    weights = totals.reshape(*totals.shape[:-2], -1, n_levels, totals.shape[-1]) + 1e-9
    weights = weights / weights.sum(-2, keepdims=True)
    return np.asarray((weights[..., None] * by_level).sum(-3))


def _on_cells(data: ChainData, grid: np.ndarray, thresholds: np.ndarray, most: int) -> tuple[ChainData, np.ndarray]:
    """The same labels with cells as their points, and the moment of each cell."""
    assert data.evidence is not None
    axis, of_point = nearest_moments(grid, most)
    cells = find_cells(of_point[data.places().numpy()], data.evidence[0], thresholds)
    return replace(data, points=torch.from_numpy(cells), n_points=LEVELS * len(axis)), np.repeat(axis, LEVELS)


def _additive(n_classes: int, cells: np.ndarray, period: Period) -> Family:
    """Splines over the clock and over the levels, alike for all wrong labels of one true class."""
    both = np.stack([cells, np.tile(np.arange(LEVELS) / (LEVELS - 1), len(cells) // LEVELS)], 1)
    shape = sum_shape(both, (START_SMOOTHNESS, LEVEL_SMOOTHNESS), (one_period(period), None))
    return family(n_classes, shape, "each", "by class")


def _some_rows(mask: Tensor) -> Tensor:
    """Evenly spread rows with about `MOST_STEPS` steps."""
    n_rows, n_steps = mask.shape
    count = min(n_rows, max(1, MOST_STEPS // n_steps))
    return torch.linspace(0, n_rows - 1, count, device=mask.device).round().long()


def _fit_additive(data: ChainData, member: Members, kind: Family) -> ChainParameters:
    """EM from labels that persist and are wrong at hard steps."""
    error = torch.linspace(HARDEST, EASIEST, LEVELS).repeat(data.n_points // LEVELS)[:, None, None]  # (cells, 1, 1)
    eye = torch.eye(data.n_classes)
    matrices = (1 - error) * eye + error / (data.n_classes - 1) * (1 - eye)
    start = flat_chain(1, 1, data, STAY)._replace(matrices=matrices[None, None])
    families = families_of([kind])
    return fit_chains(data, member, families, start, iterations=JOINT_ITERATIONS, learn_power=True).parameters


def _offsets(matrices: Tensor) -> Tensor:
    """The effect of each level on the logits of wrong labels, by true class: (levels, classes), means are zero."""
    logs = matrices.double().clamp_min(1e-6).log()  # (cells, classes, classes)
    right = logs.diagonal(dim1=-2, dim2=-1)
    wrong = (logs.sum(-1) - right) / (logs.shape[-1] - 1)
    by_level = (wrong - right).unflatten(0, (-1, LEVELS)).mean(0)  # (levels, classes)
    return by_level - by_level.mean(0)
