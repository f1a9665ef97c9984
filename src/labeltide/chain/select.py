"""Let families of Q compete by how likely recorded labels are that they did not learn from."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from labeltide._clock import Period, one_period
from labeltide.chain.data import ChainData, ChainParameters, Members, cat_parameters
from labeltide.chain.em import fit_chains
from labeltide.chain.families import (
    Family,
    Shape,
    constant_shape,
    family,
    pieces_shape,
    pooled,
    spline_shape,
    sum_shape,
    wave_shape,
)
from labeltide.chain.foretell import judge_rows
from labeltide.chain.passes import expect
from labeltide.chain.pieces import find_pieces
from labeltide.chain.pooled import families_of
from labeltide.chain.start import POOLING

ITERATIONS = 12  # from chains that have converged with another family
SMOOTHNESS = 10.0  # of the spline with which sharings are compared
OTHER_SMOOTHNESS = (1000.0, 100.0, 1.0, 0.1)
OF_ONE_CLOCK = (None, 100.0, 1.0)  # among several, whose smoothness may differ; None: the noise does not change over it
WAVES = (1.0, 2 / 3, 1 / 2, 1 / 3)  # periods as shares of the clock
WHOLE_WAVES = (1.0, 1 / 2, 1 / 3)  # those that fit a clock that begins anew
PIECES = (2, 3, 4)
STRENGTHS = (0.01, 0.1, 10.0, 100.0, 1e5)  # of pooling, beside the first: from each annotator alone to all alike
Kinds = Sequence[Sequence[Sequence[Family]]]  # of each job, candidate and fold, the last of which leaves nothing out


class Tried(NamedTuple):
    """Families that were tried for each job, and what they reached."""

    names: list[list[str]]  # of each job
    held_out: Tensor  # (jobs, families), of all rows, each judged by a chain that did not see it
    parameters: ChainParameters  # (jobs * families), learned from all rows

    def best(self) -> ChainParameters:
        """The chain of each job's best family."""
        jobs, count = self.held_out.shape
        return self.parameters.take(torch.arange(jobs, device=self.held_out.device) * count + self.held_out.argmax(1))


class Chosen(NamedTuple):
    """The mixture of families that the held-out likelihood asks for."""

    names: list[list[str]]  # of each job
    weights: Tensor  # (jobs, families)
    held_out: Tensor  # (jobs, families)
    parameters: ChainParameters  # of the best family, with Q averaged over all by their weights


def choose_noise(
    data: ChainData,
    jobs: Members,
    parameters: ChainParameters,
    folds: Tensor,
    grid: np.ndarray,
    period: Period = None,
) -> Chosen:
    """Compare sharings first, then shapes in time under the best sharing, then how alike annotators are.

    Parameters
    ----------
    jobs : one member for each job, with all its rows
    parameters : chains that fit well, one for each job, with one Q or one for each annotator
    folds : int64 Tensor of shape (jobs, rows)
    grid : the moments of the clock, or (points, clocks) of several
    period : the length after which the clock begins anew, if it does
    """
    sharings = _sharings(data.n_classes)
    constant, spline = constant_shape(grid), spline_shape(grid, SMOOTHNESS, period)
    statics = [family(data.n_classes, constant, level) for level in dict(sharings)]
    moving = [family(data.n_classes, spline, *sharing) for sharing in sharings]
    n_jobs, n_folds = len(jobs.labels), int(folds.max()) + 1
    each_annotator = parameters.matrices.shape[1] > 1
    own = POOLING if each_annotator else None
    kinds: Kinds = [[[one] * (n_folds + 1) for one in statics + moving]] * n_jobs
    tried = try_families(data, jobs, parameters, folds, _pool(kinds, own))
    best = tried.held_out[:, len(statics) :].argmax(1).tolist()
    start = tried.best()
    shapes = _shapes(grid, period)
    of_sharing = [
        [[family(data.n_classes, shape, *sharing)] * (n_folds + 1) for shape in shapes] for sharing in sharings
    ]
    more: Kinds = [of_sharing[index] for index in best]
    if grid.ndim == 1:
        jumps = _pieces(data, jobs, start, folds, [sharings[index] for index in best])
        more = [[*splines, *own] for splines, own in zip(more, jumps, strict=True)]
    parts = [tried, try_families(data, jobs, start, folds, _pool(more, own))]
    if each_annotator:
        held_out = torch.cat([part.held_out for part in parts], 1)
        found = [[*kinds[job], *more[job]][index] for job, index in enumerate(held_out.argmax(1).tolist())]
        pools = [_pool([[one] for one in found], strength) for strength in STRENGTHS]
        strengths = [[pool[job][0] for pool in pools] for job in range(n_jobs)]
        parts.append(try_families(data, jobs, _best(parts), folds, strengths))
    return _mix(parts)


def try_families(
    data: ChainData,
    jobs: Members,
    parameters: ChainParameters,
    folds: Tensor,
    families: Kinds,
) -> Tried:
    """Fit each family of each job without each fold in turn, and with all rows; judge it on the rows left out.

    Families are given for each job, candidate and fold, the last of which leaves nothing out: what a family takes
    from the data, it may not take from the rows that judge it.
    """
    n_jobs, n_families, n_folds = len(families), len(families[0]), int(folds.max()) + 1
    device = folds.device
    job = torch.arange(n_jobs, device=device).repeat_interleave(n_families * (n_folds + 1))
    members, left_out = _leave_out(jobs.take(job), folds[job], n_folds)
    kinds = families_of([one for own in families for of_fold in own for one in of_fold], device)
    start = parameters.take(job)
    has_evidence = data.evidence is not None
    fitted = fit_chains(data, members, kinds, start, iterations=ITERATIONS, learn_power=has_evidence)
    judged = judge_rows(data, members, fitted.parameters, fitted.log_likelihood, left_out)
    held_out = (judged * left_out).sum(1).view(n_jobs, n_families, -1).sum(-1)
    whole = torch.arange(n_jobs * n_families, device=device) * (n_folds + 1) + n_folds
    return Tried([[of_fold[-1].name for of_fold in own] for own in families], held_out, fitted.parameters.take(whole))


def _sharings(n_classes: int) -> list[tuple[str, str]]:
    """How the level and the movement of the noise may be shared among entries of Q; for two classes some agree."""
    pairs = [("alike", "alike"), ("each", "alike"), ("each", "each")]
    return pairs if n_classes == 2 else [*pairs, ("by class", "by class"), ("each", "by class")]


def _shapes(grid: np.ndarray, period: Period) -> list[Shape]:
    """Shapes in time beside the first spline; of several clocks also over some alone, or rougher over some."""
    splines = [spline_shape(grid, value, period) for value in OTHER_SMOOTHNESS]
    if grid.ndim == 2:
        mixed = set(product(OF_ONE_CLOCK, repeat=grid.shape[1])) - {(None,) * grid.shape[1]}
        uneven = sorted((one for one in mixed if len(set(one)) > 1), key=str)
        return splines + [sum_shape(grid, one, period) for one in uneven]
    again = one_period(period)
    waves, length = (WAVES, grid[-1] - grid[0]) if again is None else (WHOLE_WAVES, again)
    return splines + [wave_shape(grid, share * length or 1.0) for share in waves]


def _pool(kinds: Kinds, strength: float | None) -> Kinds:
    """The same families with annotators pooled; the same object stays one object, so that it is computed once."""
    if strength is None:
        return kinds
    every = {id(one): one for own in kinds for of_fold in own for one in of_fold}
    made = {key: pooled(one, strength) for key, one in every.items()}
    return [[[made[id(one)] for one in of_fold] for of_fold in own] for own in kinds]


def _leave_out(members: Members, folds: Tensor, n_folds: int) -> tuple[Members, Tensor]:
    """Members that come in runs of one for each fold and one for all: their weights, and the rows they leave out."""
    fold = torch.arange(n_folds + 1, device=folds.device).repeat(len(folds) // (n_folds + 1))
    left_out = folds == fold[:, None]  # (members, rows)
    return members._replace(weights=members.weights * ~left_out), left_out


def _pieces(
    data: ChainData, jobs: Members, parameters: ChainParameters, folds: Tensor, sharings: Sequence[tuple[str, str]]
) -> list[list[list[Family]]]:
    """Families with change points, found for each job and fold in the rows that are learned from."""
    n_jobs, n_folds = len(jobs.labels), int(folds.max()) + 1
    job = torch.arange(n_jobs, device=folds.device).repeat_interleave(n_folds + 1)
    members, _ = _leave_out(jobs.take(job), folds[job], n_folds)
    counts = expect(data, members, parameters.take(job)).counts.sum(1).double()  # (members, points, true, recorded)
    of_fold = counts.unflatten(0, (n_jobs, n_folds + 1)).cpu().numpy()
    return [
        [[family(data.n_classes, pieces_shape(find_pieces(one, n)), *sharing) for one in own] for n in PIECES]
        for own, sharing in zip(of_fold, sharings, strict=True)
    ]


def _best(parts: Sequence[Tried]) -> ChainParameters:
    """The chain of each job's best family among all that were tried."""
    n_jobs = len(parts[0].held_out)
    reached = torch.stack([part.held_out.amax(1) for part in parts])  # (parts, jobs)
    index = torch.arange(n_jobs, device=reached.device)
    best = torch.zeros_like(index)
    for place in range(1, len(parts)):
        best = torch.where(reached[place] > reached[best, index], place, best)
    return cat_parameters([part.best() for part in parts]).take(best * n_jobs + index)


def _mix(parts: Sequence[Tried]) -> Chosen:
    """Average Q over all families, each weighed by its held-out likelihood."""
    n_jobs = len(parts[0].held_out)
    held_out = torch.cat([part.held_out for part in parts], 1)
    weights = held_out.sub(held_out.amax(1, keepdim=True)).softmax(1)
    matrices = torch.cat([part.parameters.matrices.unflatten(0, (n_jobs, -1)) for part in parts], 1)
    matrices = torch.einsum("jf,jf...->j...", weights.to(matrices), matrices)
    names = [[name for part in parts for name in part.names[job]] for job in range(n_jobs)]
    return Chosen(names, weights, held_out, _best(parts)._replace(matrices=matrices))
