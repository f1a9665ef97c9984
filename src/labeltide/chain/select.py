"""Model selection and averaging of families of Q(t) by cross-validated likelihood.

Every family is fitted without each fold and scored on it: by likelihood, or with several annotators by the
leave-one-annotator-out predictive log-likelihood. Q is then averaged with weights proportional to exp(score), which is
pseudo-Bayesian model averaging (Geisser and Eddy 1979; Yao and others 2018).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import pairwise, product
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from labeltide._clock import Period, one_period
from labeltide.chain.data import ChainData, ChainParameters, Members
from labeltide.chain.em import POOLING, POOLING_STRENGTHS, fit_chains
from labeltide.chain.families import (
    SMOOTH_SHAPES,
    Family,
    Shape,
    WeightedFamily,
    constant_shape,
    families_of,
    family,
    pieces_shape,
    pooled,
    spline_shape,
    sum_shape,
    wave_shape,
)
from labeltide.chain.passes import expect, predictive_log_likelihood
from labeltide.kernels.library import torch_on_one_thread

# Of EM, from chains that have converged with another family (docs/decisions/008-starts-of-em.md).
SELECTION_ITERATIONS = 12  # by hand
# docs/decisions/007-families-of-q.md
SHARING_SMOOTHNESS = 10.0  # by hand: of the spline with which sharings are compared
OTHER_SMOOTHNESS = (1000.0, 100.0, 1.0, 0.1)  # by hand
# Among several clocks, whose smoothness may differ; None: the noise does not change over it.
OF_ONE_CLOCK = (None, 100.0, 1.0)  # by hand
WAVES = (1.0, 2 / 3, 1 / 2, 1 / 3)  # by hand: periods as shares of the clock
WHOLE_WAVES = (1.0, 1 / 2, 1 / 3)  # those that fit a periodic clock
PIECES = (2, 3, 4)  # by hand
NUMBERS_AT_ONCE = 2**24  # of the Qs of all members that are fitted together
MANY_CLASSES = 13  # by hand: from which no pair of classes has a change over the clock of its own
Kinds = Sequence[Sequence[Sequence[Family]]]  # of each fit, candidate and fold; the last leaves nothing out
Sharing = tuple[str, str]  # of the level and of the movement among entries of Q


class FamilyScores(NamedTuple):
    """Families that were compared for each fit, their cross-validated scores, and their chains."""

    families: list[list[Family]]  # of each fit
    held_out: Tensor  # (fits, families), the score of all rows, each by a chain that was fitted without it
    parameters: ChainParameters  # (fits * families), learned from all rows

    def best(self) -> ChainParameters:
        """The chain of each fit's best family."""
        fits, count = self.held_out.shape
        return self.parameters.take(torch.arange(fits, device=self.held_out.device) * count + self.held_out.argmax(1))

    def join(self, other: FamilyScores) -> FamilyScores:
        """These families and others of the same fits."""
        by_fit = (len(self.held_out), -1)
        joined = [
            torch.cat([mine.unflatten(0, by_fit), more.unflatten(0, by_fit)], 1).flatten(0, 1)
            if mine is not None and more is not None
            else None
            for mine, more in zip(self.parameters, other.parameters, strict=True)
        ]
        families = [[*mine, *more] for mine, more in zip(self.families, other.families, strict=True)]
        held_out = torch.cat([self.held_out, other.held_out], 1)
        return FamilyScores(families, held_out, ChainParameters(*joined))  # type: ignore[arg-type]

    def average(self) -> NoiseMixture:
        """Average Q over all families with weights proportional to the exponential of their held-out scores."""
        weights = self.held_out.sub(self.held_out.amax(1, keepdim=True)).softmax(1)
        matrices = self.parameters.matrices.unflatten(0, (len(weights), -1))
        matrices = torch.einsum("jf,jf...->j...", weights.to(matrices), matrices)
        return NoiseMixture(self.families, weights, self.best()._replace(matrices=matrices))


class NoiseMixture(NamedTuple):
    """The average of all families, weighted by held-out likelihood."""

    families: list[list[Family]]  # of each fit
    weights: Tensor  # (fits, families)
    parameters: ChainParameters  # of the best family, with Q averaged over all families

    @property
    def names(self) -> list[list[str]]:
        """The names of the families of each fit."""
        return [[tried.name for tried in of_fit] for of_fit in self.families]

    def weighted(self, fit: int) -> tuple[WeightedFamily, ...]:
        """The families of one fit and their weights, without designs, which are large."""
        weights = self.weights[fit].tolist()
        by_name = {
            tried.name: WeightedFamily(tried.name, weight, tried.shape.smoothness, tried.pooling, tried.shape.kind)
            for tried, weight in zip(self.families[fit], weights, strict=True)
        }
        return tuple(by_name.values())


@torch_on_one_thread()
def choose_noise(
    data: ChainData,
    fits: Members,
    parameters: ChainParameters,
    folds: Tensor,
    grid: np.ndarray,
    period: Period = None,
) -> NoiseMixture:
    """Compare sharings first, then shapes under the best sharing, then strengths of pooling.

    `folds` have shape (fits, rows); the grid has shape (points,), or (points, clocks) with several clocks.
    """
    n_fits, n_folds = len(fits.labels), int(folds.max()) + 1
    each_annotator = parameters.matrices.shape[1] > 1
    pooling = POOLING if each_annotator else None
    # With two classes "by class" and "each" are the same. With many classes a pair of them has too few labels for a
    # curve of its own, and such families cost the most.
    sharings: list[Sharing] = [("alike", "alike"), ("each", "alike"), ("each", "each")]
    if data.n_classes > 2:
        by_class = [("by class", "by class"), ("each", "by class")]
        sharings = [*(sharings if data.n_classes < MANY_CLASSES else sharings[:1]), *by_class]
    statics = [family(data.n_classes, constant_shape(grid), level) for level in dict(sharings)]
    spline = spline_shape(grid, SHARING_SMOOTHNESS, period)
    moving = [family(data.n_classes, spline, *sharing) for sharing in sharings]
    kinds: Kinds = [[[kind] * (n_folds + 1) for kind in statics + moving]] * n_fits
    scores = try_families(data, fits, parameters, folds, _pool(kinds, pooling))
    best = [sharings[index] for index in scores.held_out[:, len(statics) :].argmax(1).tolist()]
    start = scores.best()
    shapes = _shapes(grid, period)
    of_sharing = {  # all shapes under the sharing of each fit; with one clock also pieces between change points
        sharing: [[family(data.n_classes, shape, *sharing)] * (n_folds + 1) for shape in shapes]
        for sharing in dict.fromkeys(best)
    }
    more: Kinds = [of_sharing[sharing] for sharing in best]
    if grid.ndim == 1:
        pieces = _pieces(data, fits, start, folds, best)
        more = [[*smooth, *jumps] for smooth, jumps in zip(more, pieces, strict=True)]
    scores = scores.join(try_families(data, fits, start, folds, _pool(more, pooling)))
    if each_annotator:  # the best family of each fit with every other strength of pooling
        indices = scores.held_out.argmax(1).tolist()
        best_kind = [[[*kinds[fit], *more[fit]][index]] for fit, index in enumerate(indices)]
        pools = [_pool(best_kind, strength) for strength in POOLING_STRENGTHS]
        strengths = [[pool[fit][0] for pool in pools] for fit in range(n_fits)]
        scores = scores.join(try_families(data, fits, scores.best(), folds, strengths))
    return scores.average()


def try_families(
    data: ChainData,
    fits: Members,
    parameters: ChainParameters,
    folds: Tensor,
    families: Kinds,
) -> FamilyScores:
    """Cross-validate each family of each fit: fit it without each fold, score it there, and fit it to all rows.

    `families` has one entry for each fit, candidate and fold; the last leaves nothing out. What a family takes
    from the data, such as change points, must not come from the rows that score it.
    """
    n_fits, n_families, n_folds = len(families), len(families[0]), int(folds.max()) + 1
    at_once = max(1, NUMBERS_AT_ONCE // (n_fits * (n_folds + 1) * parameters.matrices[0].numel()))
    if at_once < n_families:
        starts = range(0, n_families, at_once)
        some = [[of_fit[start : start + at_once] for of_fit in families] for start in starts]
        return reduce(FamilyScores.join, [try_families(data, fits, parameters, folds, part) for part in some])
    device = folds.device
    fit = torch.arange(n_fits, device=device).repeat_interleave(n_families * (n_folds + 1))
    members, left_out = _leave_out(fits.take(fit), folds[fit], n_folds)
    every = [kind for of_fit in families for of_folds in of_fit for kind in of_folds]
    kinds = families_of(every, device)
    start = parameters.take(fit)
    has_evidence = data.evidence is not None
    fitted = fit_chains(data, members, kinds, start, iterations=SELECTION_ITERATIONS, learn_power=has_evidence)
    scores = predictive_log_likelihood(data, members, fitted.parameters, fitted.log_likelihood, left_out)
    held_out = (scores * left_out).sum(1).view(n_fits, n_families, -1).sum(-1)
    whole = torch.arange(n_fits * n_families, device=device) * (n_folds + 1) + n_folds
    return FamilyScores(
        [[of_folds[-1] for of_folds in of_fit] for of_fit in families], held_out, fitted.parameters.take(whole)
    )


def _shapes(grid: np.ndarray, period: Period) -> list[Shape]:
    """Shapes other than the first spline; with several clocks also splines of different smoothness over them."""
    splines = [spline_shape(grid, value, period) for value in OTHER_SMOOTHNESS]
    if grid.ndim == 2:
        mixed = set(product(OF_ONE_CLOCK, repeat=grid.shape[1])) - {(None,) * grid.shape[1]}
        uneven = sorted((values for values in mixed if len(set(values)) > 1), key=str)
        return splines + [sum_shape(grid, values, period) for values in uneven]
    for kind in [kind for kind in SMOOTH_SHAPES if kind != "spline"]:
        splines += [SMOOTH_SHAPES[kind](grid, value, period) for value in (SHARING_SMOOTHNESS, *OTHER_SMOOTHNESS)]
    clock_period = one_period(period)
    waves, length = (WAVES, grid[-1] - grid[0]) if clock_period is None else (WHOLE_WAVES, clock_period)
    return splines + [wave_shape(grid, share * length or 1.0) for share in waves]


def _pool(kinds: Kinds, strength: float | None) -> Kinds:
    """The same families with annotators pooled; an object used twice stays one object, so that it is computed once."""
    if strength is None:
        return kinds
    every = {id(kind): kind for of_fit in kinds for of_folds in of_fit for kind in of_folds}
    made = {key: pooled(kind, strength) for key, kind in every.items()}
    return [[[made[id(kind)] for kind in of_folds] for of_folds in of_fit] for of_fit in kinds]


def _leave_out(members: Members, folds: Tensor, n_folds: int) -> tuple[Members, Tensor]:
    """Members that leave out fold 0, 1, ... and none, in turn, and the rows that each leaves out: (members, rows)."""
    fold = torch.arange(n_folds + 1, device=folds.device).repeat(len(folds) // (n_folds + 1))
    left_out = folds == fold[:, None]  # (members, rows)
    return members._replace(weights=members.weights * ~left_out), left_out


def _pieces(
    data: ChainData, fits: Members, parameters: ChainParameters, folds: Tensor, sharings: Sequence[Sharing]
) -> list[list[list[Family]]]:
    """Families with change points, which are estimated for each fit and fold from the rows outside the fold."""
    n_fits, n_folds = len(fits.labels), int(folds.max()) + 1
    fit = torch.arange(n_fits, device=folds.device).repeat_interleave(n_folds + 1)
    members, _ = _leave_out(fits.take(fit), folds[fit], n_folds)
    counts = expect(data, members, parameters.take(fit)).counts.sum(1).double()  # (members, points, true, recorded)
    counts_of_fold = counts.unflatten(0, (n_fits, n_folds + 1)).cpu().numpy()
    return [
        [[family(data.n_classes, pieces_shape(find_pieces(fold, n)), *sharing) for fold in of_fit] for n in PIECES]
        for of_fit, sharing in zip(counts_of_fold, sharings, strict=True)
    ]


# Change-point detection by binary segmentation (Scott and Knott 1974) of the expected counts of Q.
# At least twenty labels on either side of a change point (docs/decisions/007-families-of-q.md). Expected counts sum to
# whole numbers up to rounding, which differs with the size of the fleet: a threshold between two whole numbers is not
# affected.
MIN_COUNT = 19.5  # by hand
TIE = 1e-5  # gains in log-likelihood that differ by less are ties, and the first is taken


def find_pieces(counts: np.ndarray, n_pieces: int) -> np.ndarray:
    """Split the clock greedily, each time where two constant matrices gain the most log-likelihood.

    From counts (points, true, recorded) to the piece of each point, from 0; fewer pieces where no split gains.
    """
    edges = [0, len(counts)]
    for _ in range(n_pieces - 1):
        gains = [(_best_split(counts[low:high]), low) for low, high in pairwise(edges)]
        (gain, at), low = max(gains, key=lambda split: round(split[0][0] / TIE))
        if gain <= TIE:
            break
        edges = sorted([*edges, low + at])
    return np.searchsorted(edges[1:-1], np.arange(len(counts)), side="right")


def _best_split(counts: np.ndarray) -> tuple[float, int]:
    """The gain in log-likelihood of the best split, and the first point after it."""
    left = counts.cumsum(0)[:-1]  # (points - 1, true, recorded)
    right = counts.sum(0) - left
    gain = _fit(left) + _fit(right) - _fit(counts.sum(0)[None])
    enough = (left.sum((1, 2)) >= MIN_COUNT) & (right.sum((1, 2)) >= MIN_COUNT)
    if not enough.any():
        return 0.0, 0
    best = int(np.where(enough, np.round(gain / TIE), -np.inf).argmax())
    return float(gain[best]), best + 1


def _fit(counts: np.ndarray) -> np.ndarray:
    """Maximised multinomial log-likelihood of counts: (splits, true, recorded) → (splits,)."""
    totals = counts.sum(-1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.nansum(np.where(counts > 0, counts * np.log(counts / totals), 0.0), (1, 2))
