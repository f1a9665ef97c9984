r"""Instance-dependent noise: labels are wrong more often where the features tell the classes apart poorly.

Noise that grows towards the boundary between classes is called boundary-consistent (Menon, van Rooyen and Natarajan
2018). The difficulty of a step is the margin of its out-of-fold prediction, the difference of the two largest
log-probabilities. It is cut into *levels* at its quantiles, hardest first: eight levels for all steps, or four for each
predicted class. The effects of the clock and of the level add up on the logit scale,

.. math:: \log Q_{ij}(t, d) / Q_{ii}(t, d) = x_{ij}(t)^\top \beta + g_i(d).

A point of the grid is then a *cell*, a moment and a level, with the level varying fastest, and the grid of the clock
repeats every moment for each level. Functions of the clock need not know. The curve g is fitted once, with a penalised
spline, and is then an offset of the logits: like the evidence, it is held fixed in bands and tests.

Without levels, networks learn to predict the wrong labels near the boundary, and with their evidence these look right.
Of 42 development fits with 30 % wrong labels near the boundary (simulations, chest accelerometer, stairs, postures, REM
sleep), the posterior had 24 % errors without levels, and 12 % with them where held-out labels ask for them. Of 84
fits with errors anywhere 4 got levels, and the mean error stayed at 4.5 %. EM starts from labels that persist: from a
chain without persistence it often ended where the wrong labels are taken for the truth, at about the same likelihood.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from scipy.linalg import block_diag
from torch import Tensor

from labeltide._clock import Period, one_period
from labeltide.chain.data import ChainData, ChainParameters, Members
from labeltide.chain.em import fit_chains
from labeltide.chain.families import Family, family, spline_shape
from labeltide.chain.passes import expect
from labeltide.chain.pooled import families_of
from labeltide.chain.select import Chosen, try_families
from labeltide.chain.start import JOINT_ITERATIONS, START_SMOOTHNESS, flat_chain

LEVELS, LEVELS_OF_PREDICTION = 8, 4  # for all steps together, and for each predicted class
MOMENTS = ((3, 48), (8, 24))  # classes, and moments of the clock with at most so many; with more classes no levels
LEVEL_SMOOTHNESS = 1.0  # roughness penalty of the curve over levels
HARDEST, EASIEST = 0.52, 0.02  # error rates of the outer levels where EM starts
STAY = 0.9  # persistence of true labels where EM starts
DIFFICULTY_WORTH = 5.0  # held-out log-likelihood that the levels must gain, as timing errors and bursts must
# Points of error rate between hard and easy steps, and standard errors, below which nothing is fitted. Of 14
# development fits with errors near the boundary the least had 6.4 points and 3.2; 17 of 21 others stay below.
SUSPECTED_DIFFERENCE, SUSPECTED_Z = 0.03, 2.0
MOST_STEPS = 2**15  # of more, some rows decide whether there are levels


class Levels(NamedTuple):
    """Margins at which the steps are cut into levels: all together, or those of each predicted class."""

    thresholds: np.ndarray  # (1 or classes, levels - 1), rising

    @property
    def n_levels(self) -> int:
        """The number of levels, of all predicted classes."""
        return self.thresholds.shape[0] * self.of_margin

    @property
    def of_margin(self) -> int:
        """The number of levels of the margin."""
        return self.thresholds.shape[1] + 1

    def of(self, evidence: Tensor) -> Tensor:
        """The level of each step, from log-probabilities (..., classes): int64 (...)."""
        thresholds = torch.from_numpy(self.thresholds).to(evidence.device)
        group = evidence.argmax(-1) if len(thresholds) > 1 else torch.zeros_like(evidence[..., 0], dtype=torch.int64)
        above = margins(evidence.double())[..., None] >= thresholds[group]  # (..., levels - 1)
        return group * self.of_margin + above.sum(-1)

    def cells(self, place: np.ndarray, evidence: Tensor) -> np.ndarray:
        """The cell of each step from its place among the moments and its evidence: int64, (rows, steps)."""
        return np.asarray(place * self.n_levels + self.of(evidence).cpu().numpy())


class Difficult(NamedTuple):
    """Labels of one fit by moment and level, and the chain with which EM goes on."""

    data: ChainData  # with offsets; its points are cells
    grid: np.ndarray  # (cells,), the moment of each
    levels: Levels
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
    rows, count = _some_rows(data.mask), int(folds.max()) + 2
    some = member._replace(weights=member.weights[:, rows])
    best = chosen.families[0][int(chosen.held_out[0].argmax())]
    without = try_families(data.take_rows(rows), some, chosen.parameters, folds[:, rows], [[[best] * count]])
    reached, result = float(without.held_out[0, 0]) + DIFFICULTY_WORTH, None
    for levels in (find_levels(data, False), find_levels(data, True)):
        by_level, cells = _on_cells(data, grid, levels, most)
        kind = _additive(data.n_classes, cells, levels, period)
        part = by_level.take_rows(rows)
        tried = try_families(part, some, _fit_additive(part, some, kind, levels), folds[:, rows], [[[kind] * count]])
        if float(tried.held_out[0, 0]) > reached:
            reached, result = float(tried.held_out[0, 0]), (Difficult(by_level, cells, levels, tried.parameters), kind)
    return None if result is None else _with_offsets(*result, member)


def find_levels(data: ChainData, by_prediction: bool) -> Levels:
    """Levels with the same number of steps: of all steps, or of those that are predicted to be of each class."""
    assert data.evidence is not None
    evidence = data.evidence[0][data.mask]
    margin, predicted = margins(evidence.double()).cpu().numpy(), evidence.argmax(-1).cpu().numpy()
    if not by_prediction:
        return Levels(np.quantile(margin, np.arange(1, LEVELS) / LEVELS)[None])
    shares = np.arange(1, LEVELS_OF_PREDICTION) / LEVELS_OF_PREDICTION
    groups = [margin[predicted == place] for place in range(data.n_classes)]
    return Levels(np.stack([np.quantile(of_class if len(of_class) else margin, shares) for of_class in groups]))


def _with_offsets(found: Difficult, kind: Family, member: Members) -> Difficult:
    """The chain of all rows, and the effect of the levels as offsets."""
    data, chain = found.data, found.chain
    if len(data.mask) > len(_some_rows(data.mask)):
        families = families_of([kind], data.mask.device)
        chain = fit_chains(data, member, families, chain, iterations=JOINT_ITERATIONS, learn_power=True).parameters
    offsets = _offsets(chain.matrices[0, 0], found.levels.n_levels)
    return found._replace(data=replace(data, offsets=offsets), chain=chain)


def nearest_moments(grid: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """At most so many even moments over a grid, and which of them is nearest to each of its points."""
    axis = grid if len(grid) <= most else np.linspace(grid[0], grid[-1], most)
    return axis, np.searchsorted((axis[1:] + axis[:-1]) / 2, grid)


def average_levels(matrices: np.ndarray, totals: np.ndarray, n_levels: int) -> np.ndarray:
    r"""Q(t) from Q by moment and level: :math:`Q_{ij}(t) = \sum_d P(d \mid i, t) Q_{ij}(t, d)`.

    Parameters
    ----------
    matrices : array of shape (..., cells, classes, classes)
    totals : array of shape (..., cells, classes), expected labels of each true class
    """
    if n_levels == 1:
        return matrices
    by_level = matrices.reshape(*matrices.shape[:-3], -1, n_levels, *matrices.shape[-2:])
    weights = totals.reshape(*totals.shape[:-2], -1, n_levels, totals.shape[-1]) + 1e-9
    weights = weights / weights.sum(-2, keepdims=True)
    return np.asarray((weights[..., None] * by_level).sum(-3))


def _on_cells(data: ChainData, grid: np.ndarray, levels: Levels, most: int) -> tuple[ChainData, np.ndarray]:
    """The same labels with cells as their points, and the moment of each cell."""
    assert data.evidence is not None
    axis, nearest = nearest_moments(grid, most)
    cells = levels.cells(nearest[data.places().cpu().numpy()], data.evidence[0])
    points = torch.from_numpy(cells).to(data.mask.device)
    return replace(data, points=points, n_points=levels.n_levels * len(axis)), np.repeat(axis, levels.n_levels)


def _additive(n_classes: int, cells: np.ndarray, levels: Levels, period: Period) -> Family:
    """Splines over the clock and over the levels of each prediction, alike for all wrong labels of one true class."""
    clock = spline_shape(cells, START_SMOOTHNESS, one_period(period))
    margin = spline_shape(np.linspace(0, 1, levels.of_margin), LEVEL_SMOOTHNESS)
    predictions = len(levels.thresholds)
    by_level = np.tile(block_diag(*[margin.basis] * predictions), (len(cells) // levels.n_levels, 1))
    penalty = block_diag(clock.penalty, *[margin.penalty] * predictions)
    shape = clock._replace(name="levels", basis=np.hstack([clock.basis, by_level]), penalty=penalty, smoothness=None)
    return family(n_classes, shape, "each", "by class")


def _some_rows(mask: Tensor) -> Tensor:
    """Evenly spread rows with about `MOST_STEPS` steps."""
    n_rows, n_steps = mask.shape
    count = min(n_rows, max(1, MOST_STEPS // n_steps))
    return torch.linspace(0, n_rows - 1, count, device=mask.device).round().long()


def _fit_additive(data: ChainData, member: Members, kind: Family, levels: Levels) -> ChainParameters:
    """EM from labels that persist and are wrong at hard steps."""
    device = data.mask.device
    error = torch.linspace(HARDEST, EASIEST, levels.of_margin, device=device)
    error = error.repeat(data.n_points // levels.of_margin)[:, None, None]  # (cells, 1, 1)
    eye = torch.eye(data.n_classes, device=device)
    matrices = (1 - error) * eye + error / (data.n_classes - 1) * (1 - eye)
    start = flat_chain(1, 1, data, STAY)._replace(matrices=matrices[None, None])
    families = families_of([kind], device)
    return fit_chains(data, member, families, start, iterations=JOINT_ITERATIONS, learn_power=True).parameters


def _offsets(matrices: Tensor, levels: int) -> Tensor:
    """The effect of each level on the logits of wrong labels, by true class: (levels, classes), means are zero."""
    logs = matrices.double().clamp_min(1e-6).log()  # (cells, classes, classes)
    right = logs.diagonal(dim1=-2, dim2=-1)
    wrong = (logs.sum(-1) - right) / (logs.shape[-1] - 1)
    by_level = (wrong - right).unflatten(0, (-1, levels)).mean(0)  # (levels, classes)
    return by_level - by_level.mean(0)
