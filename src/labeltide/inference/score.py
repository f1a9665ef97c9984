r"""Score test (Rao 1948) of a null family of Q(t) against noise that changes over one clock.

At the fitted null the score of a logit's change along a function f of the clock is, by Fisher's identity (Louis 1982),

.. math:: U_{f,ij} = \sum_{nt} f(c_{nt})\, \gamma_{nt}(i)\, (1[y_{nt} = j] - Q_{ij}),

where :math:`\gamma` is the posterior of the true label. It is linear in residuals of steps. Under another pairing of
rows and moments, or with the signs of people flipped, it is a sum of the same residuals: no refit is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch

from labeltide._clock import cells_of, one_period
from labeltide.chain.data import ChainData, ChainParameters, Members, TrainingEvidence
from labeltide.chain.families import Family, spline_shape
from labeltide.chain.passes import expect
from labeltide.inference.warm_start import refit, same_data

# docs/decisions/015-tests-of-change.md
N_FUNCTIONS = 4  # by hand: smooth functions of the clock along which a change is looked for
NULL_ITERATIONS = 60  # by hand: of EM for the null, after which its score is close to zero
NUMBERS_AT_ONCE = 2**23  # of posteriors under other Q that are held in memory together
MIN_INFORMATION = 1.0  # by hand: added to the information of every logit, so that entries without errors do not count


class NullFit(NamedTuple):
    """What the residuals of a fitted null are made of; there is one group of Q for all annotators, or one for each."""

    labels: np.ndarray  # (rows, steps, annotators), -1 where nothing was recorded or on padding
    posterior: np.ndarray  # (rows, steps, classes), of the true label
    noise: np.ndarray  # (groups, points, classes, classes), Q under the null
    places: np.ndarray  # (rows, steps), of each step on the grid
    posteriors: Callable[[np.ndarray], np.ndarray]  # of the true label, (fits, rows, steps, classes), under other Q

    def with_noise(self, noise: np.ndarray) -> Iterator[NullFit]:
        """The same chain with other matrices Q, (fits, groups, points, classes, classes), some at a time."""
        at_once = max(1, NUMBERS_AT_ONCE // self.posterior.size)
        for first in range(0, len(noise), at_once):
            part = noise[first : first + at_once]
            for posterior, q in zip(self.posteriors(part), part, strict=True):
                yield self._replace(posterior=posterior, noise=q)

    @property
    def entries(self) -> list[tuple[int, int]]:
        """The pairs of a true and another recorded class, in the order of a family's entries."""
        n_classes = self.posterior.shape[-1]
        return [(i, j) for i in range(n_classes) for j in range(n_classes) if i != j]

    def labels_of(self, group: int) -> np.ndarray:
        """The labels that are drawn through the Q of one group: (rows, steps, annotators of the group)."""
        return self.labels if len(self.noise) == 1 else self.labels[..., [group]]

    def residuals(self, group: int, entry: tuple[int, int]) -> np.ndarray:
        """Expected less predicted recordings of one entry of Q at each step: (rows, steps)."""
        (i, j), labels = entry, self.labels_of(group)
        predicted = (labels >= 0).sum(-1) * self.noise[group, self.places, i, j]
        return self.posterior[..., i] * ((labels == j).sum(-1) - predicted)

    def totals(self, group: int) -> np.ndarray:
        """Expected labels of each true class at each point of the grid: (points, classes)."""
        n_points, n_classes = self.noise.shape[1:3]
        labelled = (self.labels_of(group) >= 0).sum(-1)
        weights = (self.posterior * labelled[..., None]).reshape(-1, n_classes)
        places = self.places.ravel()
        return np.stack([np.bincount(places, of_class, n_points) for of_class in weights.T], 1)

    def weights(self, group: int) -> Weights:
        """Complete-data information of the entries' logits at each point, which is block diagonal by true class."""
        n_classes = self.posterior.shape[-1]
        off = ~np.eye(n_classes, dtype=bool)
        probs = self.noise[group][:, off].reshape(-1, n_classes, n_classes - 1)  # (points, true, others)
        totals = self.totals(group)[..., None]
        return Weights(totals * probs, np.sqrt(totals) * probs)


class Weights(NamedTuple):
    """Blocks W = diag(diagonal) - root root' of each point and true class, (points, true, others) both."""

    diagonal: np.ndarray
    root: np.ndarray

    def total(self) -> np.ndarray:
        """The sum over points: (true, others, others)."""
        classes = self.diagonal.shape[1]
        by_class = self.root.transpose(1, 2, 0)  # (true, others, points)
        diagonal = self.diagonal.sum(0)[..., None] * np.eye(classes - 1)
        total: np.ndarray = diagonal - by_class @ by_class.transpose(0, 2, 1)
        return total


def fit_null_families(training: TrainingEvidence, nulls: Sequence[Family]) -> list[NullFit]:
    """Fit the chain under each null, as one fleet, and take the posteriors of the true labels."""
    members = same_data(len(nulls), torch.ones(len(nulls), len(training.data.mask)))
    return fit_nulls(training.data, members, nulls, training.parameters)


def fit_nulls(
    data: ChainData,
    members: Members,
    nulls: Sequence[Family],
    start: ChainParameters,
    iterations: int = NULL_ITERATIONS,
) -> list[NullFit]:
    """The same for members that may have other labels and evidence, each with its null."""
    fitted = refit(data, members, nulls, start, iterations).parameters
    posterior = posteriors(data, members, fitted)
    labels = torch.where(data.mask[..., None], data.labels[members.labels], -1).numpy()
    places = data.places().numpy()
    fits = []
    for number, parts in enumerate(zip(labels, posterior, fitted.matrices.double().numpy(), strict=True)):
        member = torch.tensor([number])
        under = partial(_posteriors_under, data, members.take(member), fitted.take(member))
        fits.append(NullFit(*parts, places, under))
    return fits


def posteriors(data: ChainData, members: Members, parameters: ChainParameters) -> np.ndarray:
    """Posteriors of the true labels: (members, rows, steps, classes)."""
    posterior = expect(data, members, parameters, posterior=True).posterior
    assert posterior is not None
    found: np.ndarray = posterior.double().numpy()
    return found


def _posteriors_under(data: ChainData, member: Members, chain: ChainParameters, noise: np.ndarray) -> np.ndarray:
    """Posteriors of one member with each of several Q: (fits, rows, steps, classes)."""
    each = torch.zeros(len(noise), dtype=torch.int64)
    matrices = torch.from_numpy(noise).to(chain.matrices.dtype)
    return posteriors(data, member.take(each), chain.take(each)._replace(matrices=matrices))


class ClockMoments(NamedTuple):
    """One clock of a study: its moments, and where each step lies among them."""

    axis: np.ndarray  # (moments,)
    places: np.ndarray  # (rows, steps), of each step on the axis
    of_point: np.ndarray  # (points,), the moment of each point of the grid
    period: float | None

    def coordinates(self, rows: np.ndarray) -> np.ndarray:
        """Moments of the steps of some rows, (rows, steps, 1); of a periodic clock points on a circle, (..., 2)."""
        moments = self.axis[self.places[rows]]
        if self.period is None:
            return moments[..., None]
        angle = 2 * np.pi * moments / self.period
        return np.stack([np.cos(angle), np.sin(angle)], -1)


def clock_moments(training: TrainingEvidence, clock: int) -> ClockMoments:
    """The moments of one of the clocks."""
    grid, places = training.grid, training.data.places().numpy()
    if grid.ndim == 1:
        return ClockMoments(grid, places, np.arange(len(grid)), one_period(training.period))
    cells = cells_of(grid, training.period)
    of_point = np.unravel_index(np.arange(len(grid)), tuple(len(axis) for axis in cells.axes))[clock]
    return ClockMoments(cells.axes[clock], of_point[places], of_point, cells.periods[clock])


def smooth_functions(axis: np.ndarray, weights: np.ndarray, period: float | None) -> np.ndarray:
    """The smoothest functions of a clock, uncorrelated over the labels: (moments, functions).

    The Demmler-Reinsch basis of a P-spline (Demmler and Reinsch 1975) without the constant; each has mean zero and
    variance one under the weights of the moments. The first is close to a straight line, or to a wave of one period.
    """
    shape, share = spline_shape(axis, 1.0, period), weights / weights.sum()
    centred = shape.basis - share @ shape.basis
    _, size, right = np.linalg.svd(np.sqrt(share)[:, None] * centred, full_matrices=False)
    kept = size > 1e-6 * size[0]
    to_basis = right[kept].T / size[kept]  # coefficients of uncorrelated functions
    _, rotation = np.linalg.eigh(to_basis.T @ shape.penalty @ to_basis)  # smoothest first
    functions: np.ndarray = centred @ to_basis @ rotation[:, :N_FUNCTIONS]
    return functions


class Alternative(NamedTuple):
    """The change that is tested: functions of a clock times entries of Q that follow them together, of some groups."""

    functions: np.ndarray  # (moments, functions)
    shares: np.ndarray  # (entries, shares), 1 where an entry belongs to a share
    groups: list[int]  # annotators, or 0 where all share one Q


def find_change(fit: NullFit, moments: ClockMoments, null: Family, alternative: Family) -> Alternative:
    """What moves under the alternative and is held by the null; over several clocks, all entries over the one."""
    moves, free = (family.moving_shares() for family in (null, alternative))  # (entries, shares)
    tested: np.ndarray = np.asarray(free.any(1) & ~moves.any(1))
    if null.held is not None or not tested.any():
        tested = np.asarray(free.any(1))
    shares = np.unique(free[tested].astype(float), axis=1)
    columns = np.zeros((len(tested), shares.shape[1]))
    columns[tested] = shares
    groups = [null.held] if null.held is not None else list(range(len(fit.noise)))
    labelled = sum((fit.labels_of(group) >= 0).sum(-1) for group in groups)
    weights = np.bincount(moments.places.ravel(), np.ravel(labelled), len(moments.axis))
    return Alternative(smooth_functions(moments.axis, weights, moments.period), columns[:, columns.any(0)], groups)


class Statistic(NamedTuple):
    r"""The score statistic :math:`\sum_k U_k^\top J^{-1} U_k`, each group by itself and all together.

    J is the complete-data information of the shares over all labels. It does not depend on which moment a label has,
    so that it is the same for all replicates of a permutation test.
    """

    inverses: np.ndarray  # (groups, shares, shares)
    common: np.ndarray  # (shares, shares)

    @classmethod
    def of(cls, fit: NullFit, change: Alternative) -> Statistic:
        """The statistic with the information of a fitted null."""
        n_classes = fit.posterior.shape[-1]
        by_class = change.shares.reshape(n_classes, n_classes - 1, -1)  # (true, others, shares)
        weighted = [(fit.weights(group).total() @ by_class).reshape(change.shares.shape) for group in change.groups]
        information = np.stack([change.shares.T @ of_group for of_group in weighted])
        floor = MIN_INFORMATION * np.eye(information.shape[-1])
        return cls(np.linalg.inv(information + floor), np.linalg.inv(information.sum(0) + floor))

    def __call__(self, scores: np.ndarray) -> np.ndarray:
        """From scores (..., groups, functions, shares)."""
        each = np.einsum("...gks,gst,...gkt->...", scores, self.inverses, scores)
        if scores.shape[-3] == 1:
            return np.asarray(each)
        total = scores.sum(-3)
        return np.asarray(each + np.einsum("...ks,st,...kt->...", total, self.common, total))
