"""EM (Dempster, Laird and Rubin 1977; Baum-Welch) for fleets of hidden Markov models with evidence and Q(t).

The E-step is a forward-backward pass (`passes.py`). The M-step has a closed form for the transition matrix and one
Newton step each for the power and for Q (`families.py`): generalised EM.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from functools import reduce
from itertools import pairwise, product
from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from scipy.stats import t as student
from torch import Tensor

from labeltide._clock import Period, one_period
from labeltide.chain.families import (
    Families,
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
from labeltide.chain.passes import (
    TINY,
    ChainData,
    ChainParameters,
    Members,
    cat_parameters,
    expect,
    informedness,
    label_likelihoods,
    normalise,
    predictive_log_likelihood,
)
from labeltide.kernels import choose
from labeltide.kernels.library import torch_on_one_thread

PSEUDO_COUNT = 0.5  # by hand: added to every expected transition and its exposure (docs/decisions/008-starts-of-em.md)
# The power k has a Cauchy prior (Gelman and others 2008), because small networks that err with confidence look like
# wrong labels. It is a prior of k J / J', with J the informedness of Q and J' that of the Q of training: networks that
# were trained with too noisy a Q are too sure. Its long tail serves networks that learned for few epochs, which are too
# careful (docs/decisions/005-prior-of-k.md).
POWER_CENTRE, POWER_SCALE = 1.1, 0.25  # by hand
MAX_POWER = 20.0  # by hand
MIN_INFORMEDNESS = 0.05  # by hand
MAX_BURSTS = 0.98  # below one, where a draw would never be renewed


class FittedChains(NamedTuple):
    """Hidden Markov models after EM."""

    parameters: ChainParameters
    log_likelihood: Tensor  # (members, rows), also of rows that were not learned from


def fit_chains(
    data: ChainData,
    members: Members,
    families: Families,
    parameters: ChainParameters,
    *,
    iterations: int,
    learn_power: bool = False,
) -> FittedChains:
    r"""Run EM on all members together; Q starts at the least-squares fit of the families to that of `parameters`.

    A also enters the normaliser :math:`\sum_j A_{ij} P_{tj}^k`. Bounding its logarithm by the tangent (a
    minorise-maximise step, Hunter and Lange 2004) gives :math:`A_{ij} = N_{ij} / D_{ij}`, expected transitions over
    their exposure, and never lowers the likelihood. Without evidence it is the Baum-Welch update.

    Classes are identified by `keep_dominant`, but for trusted labels or several annotators, which identify them too.
    """
    with torch_on_one_thread() if choose("chain", data.labels.device) == "c" else contextlib.nullcontext():
        coefficients = families.fit_start(parameters.matrices)
        recorded = (data.labels >= 0) & data.mask[..., None]  # (sets, rows, steps, annotators)
        both = recorded[:, :, 1:] & recorded[:, :, :-1]
        if data.jumps is not None:
            both &= (data.jumps[:, 1:] == 0)[..., None]
        # The weighted number of labels that follow another of the same annotator at once: (members,)
        linked = (both.sum((2, 3)).to(members.weights)[members.labels] * members.weights).sum(1).clamp_min(1.0)
        one_source = not data.is_trusted and parameters.matrices.shape[1] == 1
        for _ in range(iterations):
            expected = expect(data, members, parameters)
            coefficients = families.step(coefficients, expected.counts)
            matrices = families.noise(coefficients)
            if one_source:
                matrices = keep_dominant(matrices)
            start, transition = (
                normalise((counts[:, 0] + PSEUDO_COUNT) / (counts[:, 1] + PSEUDO_COUNT))
                for counts in (expected.starts, expected.pairs)
            )
            power, bursts = parameters.power, parameters.bursts
            if learn_power:  # a damped Newton step with the complete-data information and the prior
                unit = power_unit(data, members, matrices)
                slope, curvature = expected.power.unbind(1)
                away = power - POWER_CENTRE * unit
                # The precision of the normal density that bounds the prior from below.
                precision = 2 / ((POWER_SCALE * unit) ** 2 + away**2)
                step = ((slope - away * precision) / (curvature + precision)).clamp(-0.5, 0.5)
                power = (power + step).clamp(0.0, MAX_POWER)
            if bursts is not None:
                bursts = (expected.kept / linked).clamp(0.0, MAX_BURSTS)
            parameters = ChainParameters(start, transition, power, matrices, bursts)
        return FittedChains(parameters, expect(data, members, parameters).log_likelihood)


def keep_dominant(matrices: Tensor) -> Tensor:
    """The likeliest Q in which no class is recorded more often as another than as itself: (..., true, recorded).

    Otherwise a rare class can take over a frequent one (docs/decisions/033-rare-classes.md). A row in which entries
    exceed the diagonal gets their common mean, the maximum likelihood under the constraint (pool adjacent violators,
    Ayer and others 1955). Other rows do not change.
    """
    is_right = torch.eye(matrices.shape[-1], dtype=torch.bool, device=matrices.device)
    right = matrices.diagonal(dim1=-2, dim2=-1)[..., None]
    wrong = matrices.masked_fill(is_right, 0.0)
    largest = wrong.sort(-1, descending=True).values[..., :-1]
    pooled = (right + largest.cumsum(-1)) / torch.arange(2, matrices.shape[-1] + 1, device=matrices.device)
    level = torch.maximum(right, pooled.amax(-1, keepdim=True))
    return torch.where(is_right, level, wrong.minimum(level))


def power_unit(data: ChainData, members: Members, matrices: Tensor) -> Tensor:
    """Informedness of the Q of training, one where it is not known, divided by that of a member's Q: (members,)."""
    if data.trained_with is None:
        return torch.ones(len(matrices), dtype=matrices.dtype, device=matrices.device)
    now = informedness(matrices).clamp_min(MIN_INFORMEDNESS)
    return data.trained_with[members.evidence].to(now).clamp_min(MIN_INFORMEDNESS) / now


def power_log_prior(power: Tensor, unit: Tensor | float = 1.0) -> Tensor:
    """Logarithm of the prior density of each member's power in its unit, zero at its centre."""
    return -(1 + ((power / unit - POWER_CENTRE) / POWER_SCALE) ** 2).log()


# Starting values: EM from the labels alone, then with evidence, each from several points, as EM finds local maxima.

START_SMOOTHNESS = 10.0  # by hand: roughness penalty of Q(t) before it is selected
# docs/decisions/009-several-annotators.md
POOLING = 1.0  # by hand: precision of annotators' logits around the common ones; they differ by about one
POOLING_STRENGTHS = (0.01, 0.1, 10.0, 100.0, 1e5)  # by hand: compared with it, from each annotator alone to all alike
# Where EM starts (docs/decisions/008-starts-of-em.md): probability that a true label persists, and that a recorded one
# is right.
STAY, RIGHT = 0.8, 0.75  # by hand
LABEL_ITERATIONS, JOINT_ITERATIONS = 60, 40  # by hand, of EM: with the labels alone, and after
# Bursts of errors (docs/decisions/003-bursts.md).
BURSTS = 0.3  # by hand: where EM starts
BURSTS_WORTH = 5.0  # by hand: log-likelihood that this one more parameter must gain
CLEAR = 0.01  # by hand: level of the one-sided t test over clusters
# The chance at each step that networks begin to fail, or that a run in which they fail ends; factors on the exponent k.
RUN_BEGINS, RUN_ENDS = (0.0005, 0.002, 0.01, 0.04), (0.005, 0.03, 0.1, 0.3)  # by hand
RUN_POWERS = (1.0, 1.5, 2.5)  # by hand
STEPS_AT_ONCE = 2**20  # whose votes are counted together


def flat_chain(members: int, groups: int, data: ChainData, stay: float | None = None) -> ChainParameters:
    """Uninformed chains: equal rows of A or persistence `stay`, and the same moderate noise at all times."""
    classes, device = data.n_classes, data.mask.device
    matrices = _mostly(classes, RIGHT, device).expand(members, groups, data.n_points, -1, -1).clone()
    transition = _mostly(classes, 1 / classes if stay is None else stay, device)
    start = torch.full((members, classes), 1 / classes, device=device)
    power = torch.full((members,), 0.0 if data.evidence is None else 1.0, device=device)
    return ChainParameters(start, transition.expand(members, -1, -1).clone(), power, matrices)


@torch_on_one_thread()
def label_chain(
    data: ChainData, fits: Members, grid: np.ndarray, period: Period = None, groups: int = 1
) -> ChainParameters:
    """Fit A and Q(t) to the recorded labels alone, with one Q for all annotators or one for each (`groups` of them)."""
    labels_only = data.with_evidence(None)
    kinds = _spline(data, len(fits.labels), 1, grid, period)
    flat = flat_chain(len(fits.labels), 1, labels_only, STAY)
    fitted = fit_chains(labels_only, fits, kinds, flat, iterations=LABEL_ITERATIONS)
    # States are identified up to a permutation (label switching): match them to labels so that most are right, by the
    # assignment problem (Kuhn 1955).
    start, transition, power, matrices, bursts = fitted.parameters
    counts = expect(labels_only, fits, fitted.parameters).counts
    totals = counts.sum((1, 2)).double().cpu().numpy()  # (members, state, recorded)
    shares = totals / totals.sum(-1, keepdims=True).clip(1e-12)
    order = np.stack([linear_sum_assignment(-share.T)[1] for share in shares])  # the state of each label
    index = torch.from_numpy(order).to(power.device)
    member = torch.arange(len(power), device=power.device)[:, None]
    rows = matrices.permute(0, 3, 1, 2, 4)[member, index].permute(0, 2, 3, 1, 4).contiguous()
    moved = transition[member, index].mT[member, index].mT
    named = ChainParameters(start[member, index], moved, power, rows, bursts)
    return named if groups == 1 else tell_apart(labels_only, fits, named, grid, period)


def tell_apart(
    data: ChainData, fits: Members, alike: ChainParameters, grid: np.ndarray, period: Period = None
) -> ChainParameters:
    """Fit a Q for each annotator by EM from all alike and from a majority vote, and keep the likelier."""
    n_fits, groups = len(fits.labels), data.labels.shape[-1]
    alike = alike._replace(matrices=alike.matrices.expand(-1, groups, -1, -1, -1))
    both = Members(*(torch.cat([tensor] * 2) for tensor in fits))
    starts = cat_parameters([alike, _from_votes(data, fits, alike)])
    kinds, learn = _spline(data, 2 * n_fits, groups, grid, period), data.evidence is not None
    fitted = fit_chains(data, both, kinds, starts, iterations=JOINT_ITERATIONS, learn_power=learn)
    reached = (fitted.log_likelihood * both.weights).sum(1).view(2, n_fits)
    return fitted.parameters.take(reached.argmax(0) * n_fits + torch.arange(n_fits, device=reached.device))


@torch_on_one_thread()
def join_evidence(
    data: ChainData,
    fits: Members,
    start: ChainParameters,
    grid: np.ndarray,
    period: Period = None,
    clusters: Tensor | None = None,
    level: float = CLEAR,
) -> ChainParameters:
    """Fit the chain with evidence by EM from four starts and keep the best by predictive log-likelihood.

    The starts are the chain of the labels and an uninformed one, each without bursts of errors and with them. Bursts
    must gain `BURSTS_WORTH`, clearly over clusters such as people, over the chain without them; and over a chain in
    which the networks fail in runs and labels do not (docs/decisions/003-bursts.md).
    """
    n_fits = len(fits.labels)
    kinds = _spline(data, 4 * n_fits, start.matrices.shape[1], grid, period)
    informed = start._replace(power=torch.ones_like(start.power), bursts=torch.zeros_like(start.power))
    flat = flat_chain(n_fits, start.matrices.shape[1], data)._replace(bursts=torch.zeros_like(start.power))
    bursty = [chain._replace(bursts=torch.full_like(start.power, BURSTS)) for chain in (informed, flat)]
    four = Members(*(torch.cat([tensor] * 4) for tensor in fits))
    starts = cat_parameters([informed, flat, *bursty])
    fitted = fit_chains(data, four, kinds, starts, iterations=JOINT_ITERATIONS, learn_power=True)
    scores = predictive_log_likelihood(data, four, fitted.parameters, fitted.log_likelihood, four.weights > 0)
    reached = (scores * four.weights).sum(1).view(2, 2, n_fits)
    index = torch.arange(n_fits, device=reached.device)
    # The better of both starts: without bursts, and with them.
    plain, bursts = ((2 * kind + reached[kind].argmax(0)) * n_fits + index for kind in (0, 1))
    gain = (scores[bursts] - scores[plain]) * fits.weights  # (fits, rows)
    accepted = (gain.sum(1) > BURSTS_WORTH) & _is_clear(gain, clusters, level)
    if bool(accepted.any()) and scores is fitted.log_likelihood:  # no step has labels of several annotators
        rival = failing_networks(data, fits, fitted.parameters.take(plain))
        accepted &= _is_clear((scores[bursts] - rival) * fits.weights, clusters, level)
    return fitted.parameters.take(torch.where(accepted, bursts, plain))


def _is_clear(gain: Tensor, clusters: Tensor | None, level: float) -> Tensor:
    """Whether gains (fits, rows) are above zero, by a one-sided t test over clusters or else rows: (fits,)."""
    if clusters is not None:
        names, cluster_of_row = clusters.to(gain.device).unique(return_inverse=True)
        if len(names) > 1:
            gain = gain.new_zeros(len(gain), len(names)).index_add_(1, cluster_of_row, gain)
    units = gain.shape[1]
    quantile = float(student.isf(level, max(units - 1, 1)))
    error = gain.std(1) / units**0.5 if units > 1 else torch.full_like(gain[:, 0], torch.inf)
    return gain.mean(1) > quantile * error


def failing_networks(data: ChainData, fits: Members, chain: ChainParameters) -> Tensor:
    """Log-likelihood of each row if networks fail in runs, in which true labels follow A alone: (fits, rows).

    Labels that are right change with A inside a run, too, and labels in a burst of errors change where it begins and
    ends. The best of a grid of probabilities that a run begins or ends, and of exponents of the evidence outside runs,
    is taken for each fit; all else is that of `chain`.
    """
    assert data.evidence is not None
    likelihood, evidence = label_likelihoods(data, fits, chain.matrices), data.evidence[fits.evidence]
    transitions = data.transitions(chain.transition)  # (fits, gaps, classes, classes)
    pairs = torch.cartesian_prod(torch.tensor(RUN_BEGINS), torch.tensor(RUN_ENDS)).to(likelihood)
    begins, ends = pairs.T[..., None, None, None]  # (runs, 1, 1, 1) each
    share = begins / (begins + ends)
    totals = []
    for factor in RUN_POWERS:
        scaled = factor * chain.power[:, None, None, None] * evidence
        ratio = (scaled - scaled.amax(-1, keepdim=True)).exp()  # (fits, rows, steps, classes)
        works = (1 - share) * normalise(chain.start[:, None] * ratio[:, :, 0])  # (runs, fits, rows, classes)
        fails = share * chain.start[:, None].expand_as(likelihood[:, :, 0])
        total = torch.zeros_like(works[..., 0])
        for t in range(likelihood.shape[2]):
            if t:
                base = transitions[:, :1] if data.jumps is None else transitions[:, data.jumps[:, t].long()]
                move = normalise(base * ratio[:, :, t, None])  # (fits, rows, from, to)
                on, off = (1 - begins) * works + ends * fails, begins * works + (1 - ends) * fails
                on = torch.einsum("gfri,frij->gfrj", on, move)
                off = torch.einsum("gfri,frij->gfrj", off, base.expand_as(move))
                real = data.mask[:, t, None]
                works, fails = torch.where(real, on, works), torch.where(real, off, fails)
            emission = torch.where(data.mask[:, t, None], likelihood[:, :, t], 1.0)
            works, fails = works * emission, fails * emission
            scale = (works + fails).sum(-1, keepdim=True).clamp_min(TINY)
            works, fails, total = works / scale, fails / scale, total + scale[..., 0].log()
        totals.append(total)
    every = torch.cat(totals)  # (runs * powers, fits, rows)
    best = (every * fits.weights).sum(-1).argmax(0)  # (fits,)
    return every[best, torch.arange(len(best), device=best.device)]


def _spline(data: ChainData, members: int, groups: int, grid: np.ndarray, period: Period) -> Families:
    kind = family(data.n_classes, spline_shape(grid, START_SMOOTHNESS, period), "each", "by class")
    return families_of([kind if groups == 1 else pooled(kind, POOLING)] * members, data.mask.device)


def _from_votes(data: ChainData, fits: Members, other: ChainParameters) -> ChainParameters:
    """Transitions and constant Q if the majority vote, or a trusted label, were the truth (as Dawid and Skene 1979)."""
    blocks = torch.arange(len(data.mask), device=data.mask.device).split(max(1, STEPS_AT_ONCE // data.mask.shape[1]))
    names = torch.arange(data.n_classes, device=data.mask.device)
    counts, pairs = [], []  # recorded labels by voted ones, and transitions of the voted ones
    for rows in blocks:
        part = data if len(blocks) == 1 else data.take_rows(rows)
        labels = part.labels[fits.labels, ..., None]  # (fits, rows, steps, annotators, 1)
        recorded = (labels == names).float() * part.mask[..., None, None]  # (fits, rows, steps, annotators, classes)
        votes = recorded.sum(3)
        if part.trusted is not None:
            votes = torch.where((part.trusted >= 0)[..., None], (part.trusted[..., None] == names).float(), votes)
        top = ((votes == votes.amax(-1, keepdim=True)) & (votes > 0)).float()
        truth = top / top.sum(-1, keepdim=True).clamp_min(1)  # (fits, rows, steps, classes), zero without a vote
        after = truth[:, :, 1:] if part.jumps is None else truth[:, :, 1:] * (part.jumps[:, 1:, None] == 0)
        counts.append(torch.einsum("mrti,mrtaj->maij", truth, recorded))
        pairs.append(torch.einsum("mrti,mrtj->mij", truth[:, :, :-1], after))
    recordings, transitions = torch.stack(counts).sum(0) + 1, torch.stack(pairs).sum(0) + 1
    matrices = normalise(recordings)[:, :, None].expand_as(other.matrices)
    return other._replace(transition=normalise(transitions), matrices=matrices)


def _mostly(classes: int, right: float, device: torch.device) -> Tensor:
    matrix = torch.full((classes, classes), (1 - right) / (classes - 1), device=device)
    return matrix.fill_diagonal_(right)


# Model selection and averaging of families of Q(t) by cross-validated likelihood.

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
        families = [[*mine, *more] for mine, more in zip(self.families, other.families, strict=True)]
        held_out = torch.cat([self.held_out, other.held_out], 1)
        mine, more = (torch.arange(h.numel(), device=h.device).view_as(h) for h in (self.held_out, other.held_out))
        by_fit = torch.cat([mine, more + mine.numel()], 1).flatten()
        return FamilyScores(families, held_out, cat_parameters([self.parameters, other.parameters]).take(by_fit))

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
