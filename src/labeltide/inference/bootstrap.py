"""Warm-started EM: refit many hidden Markov models from one fitted chain (Dempster, Laird and Rubin 1977).

Members differ in the weights of rows, in labels or in the family of Q. They run in parts that fit into memory, by the
workers of the context where there is enough to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from labeltide._clock import Period, one_period
from labeltide._workers import Workers, current_workers
from labeltide.chain.em import (
    OTHER_SMOOTHNESS,
    POOLING,
    POOLING_STRENGTHS,
    SHARING_SMOOTHNESS,
    FittedChains,
    fit_chains,
)
from labeltide.chain.families import (
    Coefficients,
    Families,
    Family,
    Shape,
    WeightedFamily,
    families_of,
    family,
    pooled,
    spline_shape,
)
from labeltide.chain.passes import (
    ChainData,
    ChainParameters,
    Members,
    TrainingEvidence,
    cat_parameters,
    expect,
    kept_error_rate,
    same_data,
)

MAX_DESIGN_NUMBERS = 2**25  # numbers that one Newton step for Q holds: weighted designs of all members of a part
REFIT_ITERATIONS = 14  # by hand: of EM from the fitted chain (docs/decisions/015-tests-of-change.md)
MIN_STEPS_FOR_WORKERS = 5_000_000  # steps of all members together; a hundred replicates of 50,000 labels


def refit(
    data: ChainData,
    members: Members,
    families: Sequence[Family] | None,
    parameters: ChainParameters,
    iterations: int = REFIT_ITERATIONS,
    learn_power: bool = True,
) -> FittedChains:
    """Run EM for one chain per member, each within its family; without families Q is fixed at the identity.

    `parameters` hold one starting chain for all members, or one for each.
    """
    count = len(members.labels)
    # Workers of the context, if there are enough refits to pay for sending them the data.
    engine = current_workers() if count * data.mask.numel() >= MIN_STEPS_FOR_WORKERS else Workers()
    largest = 1  # numbers that a Newton step for one member holds: weighted designs and information of classes
    for kind in families or ():
        largest = max(largest, kind.n_classes * kind.of_class * (len(kind.basis) + kind.of_class))
    part_size = max(1, min(MAX_DESIGN_NUMBERS // largest, -(-count // engine.count)))
    learn = learn_power and data.evidence is not None
    if parameters.bursts is not None and not bool(parameters.bursts.any()):
        parameters = parameters._replace(bursts=None)  # the pass without bursts is faster
    job = (data, members, families, parameters, iterations, learn)
    found = dict(engine.run(_refit_part, job, torch.arange(count).split(part_size)))
    parts = [found[number] for number in sorted(found)]
    fitted = cat_parameters([part.parameters for part in parts])
    return FittedChains(fitted, torch.cat([part.log_likelihood for part in parts]))


def _refit_part(job: tuple[Any, ...], index: Tensor) -> FittedChains:
    """Refit some of the members."""
    data, members, kinds, parameters, iterations, learn = job
    start = parameters.take(torch.zeros_like(index) if len(parameters.power) == 1 else index)
    families: Families = IdentityNoise((), data.n_points, data.n_classes)
    if kinds is None:
        start = start._replace(matrices=families.noise(families.fit_start(start.matrices)))
    else:
        families = families_of([kinds[member] for member in index.tolist()])
    return fit_chains(data, members.take(index), families, start, iterations=iterations, learn_power=learn)


class IdentityNoise(Families):
    """Q fixed at the identity for all members and annotators: no label is wrong, and nothing is estimated."""

    def fit_start(self, matrices: Tensor) -> Coefficients:
        return [torch.eye(self.n_classes, dtype=matrices.dtype).expand_as(matrices)]

    def noise(self, coefficients: Coefficients) -> Tensor:
        return coefficients[0]

    def step(self, coefficients: Coefficients, counts: Tensor) -> Coefficients:
        return coefficients


def weighted_log_likelihood(fitted: FittedChains, members: Members) -> Tensor:
    """Log-likelihood of each member's rows, times their weights: (members,)."""
    return (fitted.log_likelihood.double() * members.weights).sum(1)


# Cluster bootstrap of Q(t) (Efron and Tibshirani 1993; Davison and Hinkley 1997, section 3.8; Field and Welsh 2007):
# people are drawn with replacement, :math:`w^* \sim \mathrm{Multinomial}(G, 1/G)`, and the hidden Markov model is
# refitted by a few iterations of EM, with the networks' evidence held fixed.

# docs/decisions/014-bands.md
BAND_REPLICATES, MIN_BAND_REPLICATES = 200, 100
BOOTSTRAP_ITERATIONS = 20  # by hand: of EM for a replicate
SMOOTHNESS_LADDER = tuple(sorted((SHARING_SMOOTHNESS, *OTHER_SMOOTHNESS), reverse=True))  # smoothest first
UNDERSMOOTHING = 1  # by hand: rungs of the ladder by which replicates are rougher than the chosen shape (Hall 1992)
WEAKER_POOLING = 1  # by hand: rungs by which annotators are pooled less in replicates
KERNEL_WIDTH = 0.05  # by hand: standard deviation of the kernel that smooths class counts, as a share of the clock


class Replicates(NamedTuple):
    """Q and the expected labels of each true class over the clock; index 0 is the fit to all rows with weight one."""

    matrices: np.ndarray  # (1 + replicates, annotators or 1, points, classes, classes)
    totals: np.ndarray  # (1 + replicates, annotators or 1, points, classes), smoothed over the clock


def bootstrap_noise(training: TrainingEvidence, n_replicates: int, seed: int) -> Replicates:
    """Refit Q to bootstrap samples of people, all as one fleet; with several clocks on their cells, not smoothed."""
    coarse = coarsen(training)
    data, grid = coarse.data, coarse.grid
    rough = chosen_family(data.n_classes, grid, training.families, training.period, UNDERSMOOTHING)
    replicate_family = pooled_by(training, rough, weaker_pooling(training.families))
    count = affordable(data, replicate_family, BOOTSTRAP_ITERATIONS, n_replicates, MIN_BAND_REPLICATES)
    drawn = draw_row_counts(data.labels.shape[1], coarse.clusters, count, seed)
    weights = torch.from_numpy(np.concatenate([np.ones((1, drawn.shape[1])), drawn])).float()
    members = same_data(weights)
    fitted = refit(data, members, [replicate_family] * len(weights), coarse.parameters, BOOTSTRAP_ITERATIONS).parameters
    totals = expect(data, members, fitted).counts.sum(-1).double().numpy()  # (members, annotators, points, classes)
    matrices = fitted.matrices.double().numpy()
    if grid.ndim == 2:
        return Replicates(matrices, totals)
    totals *= data.n_points / len(training.grid)  # from a coarse point to one of the points joined in it
    period = one_period(training.period)
    smoothed = smooth(totals, grid, period)
    finer = (refine(values.swapaxes(1, 2), grid, training.grid, period) for values in (matrices, smoothed))
    return Replicates(*(values.swapaxes(1, 2) for values in finer))


def draw_row_counts(rows: int, clusters: Tensor | None, count: int, seed: int) -> np.ndarray:
    """How often each row is drawn, (count, rows); all rows of a cluster together, where there are several clusters."""
    generator = np.random.default_rng([seed, 6])
    if clusters is not None:
        names, cluster_of_row = np.unique(clusters.numpy(), return_inverse=True)
        if len(names) > 1:
            return generator.multinomial(len(names), np.full(len(names), 1 / len(names)), count)[:, cluster_of_row]
    return generator.multinomial(rows, np.full(rows, 1 / rows), count)


def chosen_family(
    n_classes: int, grid: np.ndarray, families: Sequence[WeightedFamily], period: Period = None, rougher: int = 0
) -> Family:
    """The free family of the spline with the largest weight by held-out likelihood, or of one some rungs rougher."""
    weights = [sum(tried.weight for tried in families if tried.smoothness == value) for value in SMOOTHNESS_LADDER]
    roughest = len(SMOOTHNESS_LADDER) - 1
    rung = int(np.argmax(weights)) + rougher if max(weights) > 0 else roughest
    return free_family(n_classes, grid, SMOOTHNESS_LADDER[min(rung, roughest)], period)


def chosen_pooling(families: Sequence[WeightedFamily]) -> float:
    """The strength of partial pooling with the largest weight by held-out likelihood."""
    strengths = (POOLING, *POOLING_STRENGTHS)
    return max(strengths, key=lambda value: sum(tried.weight for tried in families if tried.pooling == value))


def pooled_by(training: TrainingEvidence, unpooled: Family, strength: float | None = None) -> Family:
    """The family with partial pooling of annotators where there are several, by default of the chosen strength."""
    if training.parameters.matrices.shape[1] == 1:
        return unpooled
    return pooled(unpooled, chosen_pooling(training.families) if strength is None else strength)


def weaker_pooling(families: Sequence[WeightedFamily]) -> float:
    """Weaker pooling than the chosen one, so that shrinkage biases an annotator's Q little."""
    strengths = sorted((POOLING, *POOLING_STRENGTHS))
    return strengths[max(strengths.index(chosen_pooling(families)) - WEAKER_POOLING, 0)]


def free_family(n_classes: int, grid: np.ndarray, smoothness: float, period: Period = None) -> Family:
    """A smooth curve for each entry of Q; with more than three classes, one for each row of Q."""
    return free_of(n_classes, spline_shape(grid, smoothness, period))


def free_of(n_classes: int, shape: Shape) -> Family:
    """The same with any shape over the clock."""
    return family(n_classes, shape, "each", "each" if n_classes <= FEW_CLASSES else "by class")


def smooth(totals: np.ndarray, grid: np.ndarray, period: float | None = None) -> np.ndarray:
    """Gaussian kernel smoother of (..., points, classes) counts over the clock (Nadaraya 1964; Watson 1964)."""
    width = KERNEL_WIDTH * (period or grid[-1] - grid[0]) or 1.0
    distance = np.abs(grid[:, None] - grid)
    if period is not None:
        distance = np.minimum(distance, period - distance)  # the shorter way round
    kernel = np.exp(-0.5 * (distance / width) ** 2)
    return (kernel / kernel.sum(1, keepdims=True)) @ totals


# Parametric bootstrap: recorded labels simulated from a fitted hidden Markov model (Efron and Tibshirani 1993). True
# labels follow :math:`p(y_t = j \mid y_{t-1} = i, x) \propto A_{ij} P_{tj}^k`, given trusted labels.


def simulate_labels(data: ChainData, parameters: ChainParameters, draws: int, seed: int) -> Tensor:
    """Recorded labels (draws, rows, steps, annotators) of one chain; gaps, padding and trusted labels stay."""
    generator = np.random.default_rng([seed, 7])
    start, moves = _transition_probabilities(data, parameters)  # (rows, classes), (rows, steps - 1, from, to)
    rows, steps = data.mask.shape
    row = np.arange(rows)
    true = np.empty((draws, rows, steps), dtype=np.int64)
    true[..., 0] = _inverse_cdf(start.cumsum(-1)[None], generator.random((draws, rows)))
    cumulative = moves.cumsum(-1)
    for t in range(1, steps):
        true[..., t] = _inverse_cdf(cumulative[row, t - 1, true[..., t - 1]], generator.random((draws, rows)))
    recorded = np.stack([_record(data, parameters, true, a, generator) for a in range(data.labels.shape[-1])], -1)
    kept = (data.labels[0] >= 0) & data.mask[..., None]
    return torch.where(kept, torch.from_numpy(recorded), torch.tensor(-1, dtype=torch.int8))


def simulate_members(
    data: ChainData, parameters: ChainParameters, draws: int, seed: int, weights: Tensor
) -> tuple[ChainData, Members]:
    """The same data with simulated labels, and a member for each draw, all with the same weights of rows, (1, rows)."""
    each = torch.arange(draws)
    members = Members(each, torch.zeros_like(each), weights.expand(draws, -1))
    return replace(data, labels=simulate_labels(data, parameters, draws, seed)), members


def _record(
    data: ChainData, parameters: ChainParameters, true: np.ndarray, annotator: int, generator: np.random.Generator
) -> np.ndarray:
    """One annotator's labels (draws, rows, steps), in bursts where the chain has them (`passes.pair_likelihoods`)."""
    matrices = parameters.matrices[0, annotator if parameters.matrices.shape[1] > 1 else 0].double().numpy()
    bursts = 0.0 if parameters.bursts is None else float(parameters.bursts[0])
    error = 1 - np.diagonal(matrices, axis1=1, axis2=2)  # (points, classes)
    others = (matrices * (1 - np.eye(len(matrices[0])))).cumsum(-1)
    others /= others[..., -1:].clip(1e-300)
    there = ((data.labels[0, ..., annotator] >= 0) & data.mask).numpy()
    point = data.grid_index().numpy()
    adjacent = np.ones_like(there) if data.jumps is None else (data.jumps == 0).numpy()  # no gap in time before
    recorded = np.empty(true.shape, dtype=np.int8)
    before, was_wrong = np.zeros(true.shape[:2]), np.zeros(true.shape[:2], dtype=bool)
    for t in range(true.shape[2]):
        rate = error[point[:, t], true[..., t]]
        chance, goes_on = rate, np.zeros(rate.shape, dtype=bool)
        if bursts and t:
            again = kept_error_rate(*map(torch.from_numpy, (was_wrong, rate, before))).numpy()
            linked = (there[:, t] & there[:, t - 1] & adjacent[:, t]) & (generator.random(rate.shape) < bursts)
            chance = np.where(linked, again, rate)
            goes_on = linked & was_wrong & (recorded[..., t - 1] != true[..., t])
        was_wrong, before = generator.random(rate.shape) < chance, rate
        other = _inverse_cdf(others[point[:, t], true[..., t]], generator.random(rate.shape))
        other = np.where(goes_on, recorded[..., t - 1], other)
        recorded[..., t] = np.where(was_wrong, other, true[..., t])
    return recorded


def _inverse_cdf(cumulative: np.ndarray, uniform: np.ndarray) -> np.ndarray:
    """Inverse transform sampling: the class at which the cumulative probabilities pass each uniform number."""
    return (uniform[..., None] >= cumulative[..., :-1]).sum(-1)


def _transition_probabilities(data: ChainData, parameters: ChainParameters) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities of the first label and of each transition, given the evidence and all trusted labels."""
    rows, steps = data.mask.shape
    start, power = (np.asarray(tensor[0].double()) for tensor in (parameters.start, parameters.power))
    transitions = data.transitions(parameters.transition.double())[0].numpy()  # (gaps, classes, classes)
    gap = np.zeros((rows, steps), dtype=np.int64) if data.jumps is None else data.jumps.long().numpy()
    evidence = np.zeros((rows, steps, data.n_classes))
    if data.evidence is not None:
        evidence = float(power) * data.evidence[0].double().numpy()
    weight = np.exp(evidence - evidence.max(-1, keepdims=True))
    prior = transitions[gap[:, 1:]] * weight[:, 1:, None, :]
    first, prior = _normalise(start * weight[:, 0]), _normalise(prior)
    if data.trusted is None:
        return first, prior
    known = np.eye(data.n_classes)[data.trusted.long().clamp_min(0).numpy()]
    allowed = np.where(((data.trusted >= 0) & data.mask).numpy()[..., None], known, 1.0)  # (rows, steps, classes)
    backward = np.ones((rows, data.n_classes))  # likelihood of later trusted labels, up to a factor
    for t in range(steps - 1, 0, -1):
        prior[:, t - 1] *= (allowed[:, t] * backward)[:, None]
        backward = prior[:, t - 1].sum(-1)
        backward /= backward.max(-1, keepdims=True).clip(1e-300)
    return _normalise(first * allowed[:, 0] * backward), _normalise(prior)


def _normalise(values: np.ndarray) -> np.ndarray:
    return (values + 1e-300) / (values + 1e-300).sum(-1, keepdims=True)


# Likelihood-ratio tests of nested families of Q(t) by parametric bootstrap (McLachlan 1987; Davison and Hinkley 1997,
# section 4.2). The statistic :math:`T = 2(\ell_1 - \ell_0)` is not chi-squared under the null: families are penalised,
# EM is stopped early. Recorded and simulated labels go through the same iterations from the same start. The p-value
# :math:`(1 + \#\{T_b \ge T\}) / (1 + B)` of B replicates is never zero (Phipson and Smyth 2010).

# docs/decisions/015-tests-of-change.md
MIN_TEST_REPLICATES = 39  # where replicates are expensive; p-values can still fall below .05
OBSERVED_ITERATIONS = 30  # by hand: of EM for the null on the recorded labels
INITIAL_ERROR_RATE = 0.2  # by hand: where EM starts under the alternative if the null has no errors


class ChangeTest(NamedTuple):
    """A test: its statistic, its p-value, its reference distribution and the units behind it."""

    statistic: float  # NaN, like the p-value, where it cannot be told
    p_value: float
    method: str = "bootstrap"  # one of `score_tests.METHODS`
    n_units: int = 0  # people, or rows where people are not known


def likelihood_ratio_test(
    training: TrainingEvidence,
    null: Family | None,
    alternative: Family,
    n_replicates: int,
    seed: int,
    min_replicates: int = MIN_TEST_REPLICATES,
) -> ChangeTest:
    """Parametric bootstrap test of a null family against an alternative; None is the null of no errors at all.

    Under that null the exponent k of the evidence is held at its fitted value; otherwise it would absorb the noise.
    """
    training = training.for_bootstrap()
    n_replicates = affordable(training.data, alternative, 2 * REFIT_ITERATIONS, n_replicates, min_replicates)
    data, rows = training.data, torch.ones(1, training.data.labels.shape[1])
    single, learn_power = same_data(rows), null is not None
    null_family = None if null is None else [null]
    under_null = refit(data, single, null_family, training.parameters, OBSERVED_ITERATIONS, learn_power).parameters
    starts = [under_null]
    if null is None:  # Q without errors is a fixed point of EM, so EM starts from Qs with errors
        noisy = (1 - INITIAL_ERROR_RATE) * under_null.matrices + INITIAL_ERROR_RATE / data.n_classes
        starts = [under_null._replace(matrices=noisy), training.parameters]

    def statistics(data: ChainData, members: Members) -> np.ndarray:
        """Twice the gain in log-likelihood of each member, the alternative fitted from the best of several starts."""
        count = len(members.labels)
        nulls = None if null is None else [null] * count
        of_null = refit(data, members, nulls, under_null, learn_power=learn_power)
        fits = [refit(data, members, [alternative] * count, start, learn_power=learn_power) for start in starts]
        best = torch.stack([weighted_log_likelihood(fitted, members) for fitted in fits]).amax(0)
        return (2 * (best - weighted_log_likelihood(of_null, members))).clamp_min(0.0).numpy()

    observed = float(statistics(data, single)[0])
    simulated = statistics(*simulate_members(data, under_null, n_replicates, seed, rows))
    return ChangeTest(observed, p_value(observed, simulated))


def p_value(observed: float, replicates: np.ndarray) -> float:
    """The share of statistics that reach the observed one, which counts as one of them."""
    return float((1 + (replicates >= observed).sum()) / (1 + len(replicates)))


# Computational budget of inference: a coarser grid of the clock, and fewer replicates where one is expensive.

FEW_CLASSES = 3
GRID_POINTS, GRID_POINTS_OF_MANY_CLASSES = 50, 24  # with at most FEW_CLASSES, and with more
MAX_OPERATIONS = 4e10  # multiplications for all replicates of one test or band: seconds on two cores
OPERATIONS_PER_STEP = 30  # multiplications of one forward-backward pass per step and pair of classes, or annotator
POOLED_SOLVES = 6  # products of blocks in a Newton step of pooled annotators


def coarsen(training: TrainingEvidence) -> TrainingEvidence:
    """Join neighbouring points of the clock grid, so that Q is estimated at no more than 50, or 24, points."""
    data, parameters, grid = training.data, training.parameters, training.grid
    n_points = GRID_POINTS if data.n_classes <= FEW_CLASSES else GRID_POINTS_OF_MANY_CLASSES
    if len(grid) <= n_points or grid.ndim == 2:
        return training
    cell = np.arange(len(grid)) * n_points // len(grid)
    average = np.eye(n_points)[:, cell] / np.bincount(cell)[:, None]  # (cells, points)
    matrices = torch.einsum("cp,map...->mac...", torch.from_numpy(average).to(parameters.matrices), parameters.matrices)
    points = torch.from_numpy(cell)[data.grid_index()]
    coarse = replace(data, points=points, n_points=n_points)
    return training._replace(data=coarse, parameters=parameters._replace(matrices=matrices), grid=average @ grid)


def refine(values: np.ndarray, coarse: np.ndarray, grid: np.ndarray, period: float | None = None) -> np.ndarray:
    """Linear interpolation of (replicates, coarse points, ...) values at all points of the grid."""
    if len(coarse) == len(grid):
        return values
    if period is not None:  # a periodic clock continues at either end
        coarse = np.concatenate([coarse[-1:] - period, coarse, coarse[:1] + period])
        values = np.concatenate([values[:, -1:], values, values[:, :1]], 1)
    right = np.searchsorted(coarse, grid).clip(1, len(coarse) - 1)
    share = ((grid - coarse[right - 1]) / (coarse[right] - coarse[right - 1])).clip(0, 1)
    share = share.reshape(-1, *(1,) * (values.ndim - 2))
    return values[:, right - 1] * (1 - share) + values[:, right] * share


def affordable(data: ChainData, family: Family, iterations: int, wanted: int, minimum: int) -> int:
    """Number of replicates: those wanted, or as many as `MAX_OPERATIONS` allow, but at least the minimum."""
    annotators = data.labels.shape[-1]
    solves, groups = (1, 1) if family.pooling is None else (POOLED_SOLVES, annotators)
    newton = groups * family.n_classes * family.of_class**2 * (len(family.basis) + solves * family.of_class)
    passed = int(data.mask.sum()) * data.n_classes * (data.n_classes + annotators)
    per_replicate = iterations * (newton + OPERATIONS_PER_STEP * passed)
    return max(min(wanted, minimum), min(wanted, int(MAX_OPERATIONS // per_replicate)))
