r"""Score test (Rao 1948) of a null family of Q(t) against noise that changes over one clock.

At the fitted null the score of a logit's change along a function f of the clock is, by Fisher's identity (Louis 1982),

.. math:: U_{f,ij} = \sum_{nt} f(c_{nt})\, \gamma_{nt}(i)\, (1[y_{nt} = j] - Q_{ij}),

where :math:`\gamma` is the posterior of the true label. It is linear in residuals of steps. Under another pairing of
rows and moments, or with the signs of people flipped, it is a sum of the same residuals: no refit is needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import permutations
from typing import NamedTuple

import numpy as np
import torch

from labeltide._clock import cells_of, one_period
from labeltide.chain.families import ClassBlocks, Family, spline_shape
from labeltide.chain.passes import Members, TrainingEvidence, posteriors, same_data
from labeltide.inference.bootstrap import MIN_TEST_REPLICATES, ChangeTest, likelihood_ratio_test, p_value, refit

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
    grid_index: np.ndarray  # (rows, steps), of each step's moment on the grid
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
        return list(permutations(range(self.posterior.shape[-1]), 2))

    def labels_of(self, group: int) -> np.ndarray:
        """The labels that are drawn through the Q of one group: (rows, steps, annotators of the group)."""
        return self.labels if len(self.noise) == 1 else self.labels[..., [group]]

    def residuals(self, group: int, entry: tuple[int, int]) -> np.ndarray:
        """Expected less predicted recordings of one entry of Q at each step: (rows, steps)."""
        (i, j), labels = entry, self.labels_of(group)
        predicted = (labels >= 0).sum(-1) * self.noise[group, self.grid_index, i, j]
        return self.posterior[..., i] * ((labels == j).sum(-1) - predicted)

    def weights(self, group: int) -> tuple[np.ndarray, np.ndarray]:
        """Complete-data information of the logits: a block diag(d) - r r' for each point and true class; d and r."""
        n_points, n_classes = self.noise.shape[1:3]
        off = ~np.eye(n_classes, dtype=bool)
        probs = self.noise[group][:, off].reshape(-1, n_classes, n_classes - 1)  # (points, true, others)
        labelled = (self.labels_of(group) >= 0).sum(-1)
        expected = (self.posterior * labelled[..., None]).reshape(-1, n_classes)  # labels of each true class
        index = self.grid_index.ravel()
        totals = np.stack([np.bincount(index, of_class, n_points) for of_class in expected.T], 1)[..., None]
        return totals * probs, np.sqrt(totals) * probs


def fit_nulls(
    training: TrainingEvidence,
    nulls: Sequence[Family],
    members: Members | None = None,
    iterations: int = NULL_ITERATIONS,
) -> list[NullFit]:
    """Fit the chain under each null, as one fleet, and take the posteriors of the true labels.

    `members` say which labels and evidence each null has; by default all have the first.
    """
    data = training.data
    members = same_data(torch.ones(len(nulls), len(data.mask))) if members is None else members
    fitted = refit(data, members, nulls, training.parameters, iterations).parameters
    posterior = posteriors(data, members, fitted).double().numpy()
    labels = torch.where(data.mask[..., None], data.labels[members.labels], -1).numpy()
    index = data.grid_index().numpy()

    def posteriors_under(noise: np.ndarray, member: int) -> np.ndarray:
        """Posteriors of one member with each of several Q: (fits, rows, steps, classes)."""
        each = torch.full((len(noise),), member)
        chains = fitted.take(each)._replace(matrices=torch.from_numpy(noise).to(fitted.matrices.dtype))
        return np.asarray(posteriors(data, members.take(each), chains).double().numpy())

    parts = zip(labels, posterior, fitted.matrices.double().numpy(), strict=True)
    return [NullFit(*part, index, partial(posteriors_under, member=number)) for number, part in enumerate(parts)]


class ClockMoments(NamedTuple):
    """One clock of a study: its moments, and the index of each step among them."""

    axis: np.ndarray  # (moments,)
    axis_index: np.ndarray  # (rows, steps), of each step's moment on the axis
    of_point: np.ndarray  # (points,), the moment of each point of the grid
    period: float | None


def clock_moments(training: TrainingEvidence, clock: int) -> ClockMoments:
    """The moments of one of the clocks."""
    grid, index = training.grid, training.data.grid_index().numpy()
    if grid.ndim == 1:
        return ClockMoments(grid, index, np.arange(len(grid)), one_period(training.period))
    cells = cells_of(grid, training.period)
    of_point = np.unravel_index(np.arange(len(grid)), tuple(len(axis) for axis in cells.axes))[clock]
    return ClockMoments(cells.axes[clock], of_point[index], of_point, cells.periods[clock])


def smooth_functions(axis: np.ndarray, weights: np.ndarray, period: float | None) -> np.ndarray:
    """The smoothest functions of a clock, uncorrelated over the labels: (moments, functions).

    The Demmler-Reinsch basis of a spline (Demmler and Reinsch 1975) without the constant.
    """
    shape, share = spline_shape(axis, 1.0, period), weights / weights.sum()
    centred = shape.basis - share @ shape.basis
    _, size, right = np.linalg.svd(np.sqrt(share)[:, None] * centred, full_matrices=False)
    kept = size > 1e-6 * size[0]
    to_basis = right[kept].T / size[kept]  # coefficients of uncorrelated functions
    _, rotation = np.linalg.eigh(to_basis.T @ shape.penalty @ to_basis)  # smoothest first
    return centred @ to_basis @ rotation[:, :N_FUNCTIONS]


def unit_scores(fit: NullFit, groups: list[int], design: np.ndarray, unit: np.ndarray, n_units: int) -> np.ndarray:
    """Scores of units of rows along the columns of a design (points, entries, columns): (units, columns)."""
    n_points = len(design)
    index = (unit[:, None] * n_points + fit.grid_index).ravel()
    scores = np.zeros((n_units, design.shape[2]))
    for entry, of_entry in zip(fit.entries, design.transpose(1, 0, 2), strict=True):
        if of_entry.any():
            residuals = sum(fit.residuals(group, entry) for group in groups)
            at_point = np.bincount(index, np.ravel(residuals), n_units * n_points)
            scores += at_point.reshape(n_units, n_points) @ of_entry
    return scores


class Directions(NamedTuple):
    """Ways in which the logits of Q move: functions of a clock times entries of Q that follow them together."""

    groups: list[int]  # annotators, or 0 where all share one Q
    functions: np.ndarray  # (moments, functions), or (points, functions) in both methods
    shares: np.ndarray  # (entries, shares), 1 where an entry belongs to a share

    def scores(self, fit: NullFit, unit: np.ndarray, n_units: int) -> np.ndarray:
        """Scores of units of rows: (units, functions * shares)."""
        design = np.einsum("pk,es->peks", self.functions, self.shares).reshape(
            len(self.functions), len(self.shares), -1
        )
        return unit_scores(fit, self.groups, design, unit, n_units)

    def moved(self, noise: np.ndarray) -> np.ndarray:
        """Q moved by a step forth and back in each direction: (directions, 2, groups, points, classes, classes)."""
        n_classes = noise.shape[-1]
        shift = np.zeros((self.functions.shape[1], self.shares.shape[1], len(self.functions), n_classes, n_classes))
        shift[..., ~np.eye(n_classes, dtype=bool)] = np.einsum("pk,es->kspe", self.functions, self.shares)
        shift = STEP * shift.reshape(-1, 1, 1, *shift.shape[2:])  # (directions, 1, 1, points, classes, classes)
        both = np.concatenate([shift, -shift], 1)  # (directions, 2, 1, ...)
        moved = np.tile(noise, (len(both), 2, 1, 1, 1, 1))
        moved[:, :, self.groups] *= np.exp(both)
        return moved / moved.sum(-1, keepdims=True)


def find_alternative(fit: NullFit, moments: ClockMoments, null: Family, alternative: Family) -> Directions:
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
    weights = np.bincount(moments.axis_index.ravel(), np.ravel(labelled), len(moments.axis))
    functions = smooth_functions(moments.axis, weights, moments.period)
    return Directions(groups, functions, columns[:, columns.any(0)])


class Statistic(NamedTuple):
    r"""The score statistic :math:`\sum_k U_k^\top J^{-1} U_k`, each group by itself and all together.

    J is the complete-data information of the shares over all labels. It does not depend on which moment a label has,
    so that it is the same for all replicates of a permutation test.
    """

    inverses: np.ndarray  # (groups, shares, shares)
    common: np.ndarray  # (shares, shares)

    @classmethod
    def of(cls, fit: NullFit, change: Directions) -> Statistic:
        """The statistic with the information of a fitted null."""
        n_classes = fit.posterior.shape[-1]
        by_class = change.shares.reshape(n_classes, n_classes - 1, -1)  # (true, others, shares)
        parts = []
        for group in change.groups:
            diagonal, root = fit.weights(group)
            root = root.transpose(1, 2, 0)  # (true, others, points)
            total = diagonal.sum(0)[..., None] * np.eye(n_classes - 1) - root @ root.transpose(0, 2, 1)
            parts.append(change.shares.T @ (total @ by_class).reshape(change.shares.shape))
        information = np.stack(parts)
        floor = MIN_INFORMATION * np.eye(information.shape[-1])
        return cls(np.linalg.inv(information + floor), np.linalg.inv(information.sum(0) + floor))

    def __call__(self, scores: np.ndarray) -> np.ndarray:
        """From scores (..., groups, functions, shares)."""
        each = np.einsum("...gks,gst,...gkt->...", scores, self.inverses, scores)
        if scores.shape[-3] == 1:
            return np.asarray(each)
        total = scores.sum(-3)
        return np.asarray(each + np.einsum("...ks,st,...kt->...", total, self.common, total))


# Permutations of the clock: independent rows are exchangeable under the null hypothesis, so that their moments can be
# permuted (Good 2005).


def shuffle_rows(
    index: np.ndarray, groups: Sequence[np.ndarray], n_replicates: int, generator: np.random.Generator
) -> Iterator[np.ndarray]:
    """The moments (rows, steps) after random permutations of the rows within each group."""
    for _ in range(n_replicates):
        order = np.arange(len(index))
        for group in groups:
            order[group] = generator.permutation(group)
        yield index[order]


def step_residuals(fit: NullFit, change: Directions) -> np.ndarray:
    """Residuals of the tested entries, summed within each share: (rows, steps, groups * shares)."""
    columns = []
    for group in change.groups:
        for share in change.shares.T:
            entries = [entry for entry, member in zip(fit.entries, share, strict=True) if member]
            columns.append(np.sum([fit.residuals(group, entry) for entry in entries], 0))
    return np.stack(columns, -1)


def score_of_moments(residuals: np.ndarray, index: np.ndarray, change: Directions) -> np.ndarray:
    """The score (groups, functions, shares) if each step lay at the moment that `index` says."""
    of_moment = change.functions[index.ravel()]  # (rows * steps, functions)
    scores = of_moment.T @ residuals.reshape(len(of_moment), -1)
    return scores.reshape(scores.shape[0], len(change.groups), -1).transpose(1, 0, 2)


# Sign flips of people's contributions to the score (Hemerik, Goeman and Finos 2020; Winkler and others 2014).
#
# People are independent of each other. Under the null hypothesis the contribution :math:`u_g` of each person to the
# score has mean zero, and :math:`\sum_g s_g u_g` with random signs is distributed as :math:`\sum_g u_g`: exactly where
# contributions are symmetric, otherwise with growing number of people. Contributions are effective scores: what the
# null's own coefficients explain is taken out. Flipped sums are multiplied by :math:`\sqrt{G / (G - 1)}`, as
# cluster-robust variances of G people are (Cameron and Miller 2015).


def person_scores(
    fit: NullFit, change: Directions, moments: ClockMoments, null: Family, person: np.ndarray
) -> np.ndarray:
    """The effective score of each person: (people, groups, functions, shares). `person` numbers them from 0."""
    if null.held is not None and len(fit.noise) > 1:
        return observed_scores(fit, change, moments, person)
    people = int(person.max()) + 1
    parts = []
    for group in change.groups:
        design = effective_design(fit, change, moments, null, group)
        parts.append(unit_scores(fit, [group], design, person, people))
    return np.stack(parts, 1).reshape(people, len(parts), -1, change.shares.shape[1])


def effective_design(fit: NullFit, change: Directions, moments: ClockMoments, null: Family, group: int) -> np.ndarray:
    r"""The design of the change less its projection on that of the null: (points, entries, functions * shares).

    :math:`X_1 - X_0 (X_0^\top V X_0 + S)^{-1} X_0^\top V X_1` with V the information of the logits and S the penalty.
    """
    blocks = ClassBlocks.of([null])
    diagonal, root = (torch.from_numpy(part)[None, None] for part in fit.weights(group))
    information = blocks.information(diagonal, root)[0] + blocks.penalty  # (1, blocks, size, size)
    functions = torch.from_numpy(change.functions[moments.of_point])  # (points, functions)
    shares = torch.from_numpy(change.shares).unflatten(0, root.shape[-2:])  # (true, others, shares)
    tested = torch.einsum("pk,ijs->kspij", functions, shares).flatten(0, 1)[None]  # (1, columns, points, true, others)
    weighted = diagonal * tested - root * (root * tested).sum(-1, keepdim=True)
    cross = blocks.project(weighted).unflatten(2, information.shape[1:3])
    explained = torch.cholesky_solve(cross[..., None], torch.linalg.cholesky(information))[..., 0].flatten(2)
    effective = (tested - blocks.logits(explained))[0].flatten(2)  # (columns, points, entries)
    return effective.permute(1, 2, 0).numpy()


def flip_signs(scores: np.ndarray, n_replicates: int, generator: np.random.Generator) -> np.ndarray:
    """Sums of (people, ...) contributions with random signs: (replicates, ...)."""
    signs = 2.0 * generator.integers(0, 2, (n_replicates, len(scores))) - 1.0
    return np.sqrt(len(scores) / (len(scores) - 1)) * np.tensordot(signs, scores, 1)


# Which reference distribution a test of change takes: chosen by the design of the study, never by its result.
#
# - `people`: at least eight people. The signs of their contributions are flipped; nothing is assumed about the windows
#   of one person.
# - `permutations`: rows are not grouped and lie at different moments, so that they are exchangeable.
# - `bootstrap`: every row runs through most of the clock; labels are drawn from the null (parametric bootstrap).
# - `none`: none of these keeps its size; whether the noise changes cannot be told.

METHODS = ("people", "permutations", "bootstrap", "none")
# docs/decisions/015-tests-of-change.md
MIN_PEOPLE = 8  # 2^7 = 128 different statistics under sign flips
MIN_VARIANCE_SHARE = 0.5  # by hand: of the variance of moments that permutations must move, for some power
MIN_PERMUTATIONS = 1000  # by hand


class StudyDesign(NamedTuple):
    """The reference distribution of a test of change, and the units that it permutes or flips."""

    method: str  # one of METHODS
    n_units: int  # people, or rows where these are the units
    units: list[np.ndarray]  # rows of each person, or rows that are exchangeable


def study_design(training: TrainingEvidence, moments: ClockMoments, labelled: np.ndarray) -> StudyDesign:
    """The design of the labelled steps, (rows, steps)."""
    mask = training.data.mask.numpy()
    rows = np.flatnonzero(labelled.any(1))
    if training.clusters is None:
        lengths = mask.sum(1)[rows]
        groups = [rows[lengths == length] for length in dict.fromkeys(lengths.tolist())]
        groups = [group for group in groups if len(group) > 1]  # rows of one length are exchangeable
        movable = _variance(moments, mask, groups, of_rows=True) if groups else 0.0
        enough = sum(math.lgamma(len(group) + 1) for group in groups) >= math.log(MIN_PERMUTATIONS)
        if enough and movable >= MIN_VARIANCE_SHARE * _variance(moments, mask, [rows]) > 0:
            return StudyDesign("permutations", sum(len(group) for group in groups), groups)
        return StudyDesign("bootstrap", len(rows), [])
    person = training.clusters.numpy()
    people = [rows[person[rows] == name] for name in np.unique(person[rows])]
    everyone = [np.concatenate(people)] if people else []
    method, total = "none", _variance(moments, mask, everyone)
    if len(people) >= MIN_PEOPLE and total > 0:
        method = "people"
    elif people and (total == 0 or _variance(moments, mask, everyone, of_rows=True) < MIN_VARIANCE_SHARE * total):
        method = "bootstrap"
    return StudyDesign(method, len(people), people)


def _variance(moments: ClockMoments, mask: np.ndarray, groups: list[np.ndarray], *, of_rows: bool = False) -> float:
    """Sum of squares of moments about the mean of their group; of the means of rows, or of all steps."""
    points, total = moments.axis[moments.axis_index][..., None], 0.0
    if moments.period is not None:  # points on a circle
        angle = 2 * np.pi * points / moments.period
        points = np.concatenate([np.cos(angle), np.sin(angle)], -1)
    for rows in groups:
        real = mask[rows][..., None]
        values, weights = points[rows], real.astype(float)
        if of_rows:
            weights = weights.sum(1)
            values = (values * real).sum(1) / weights
        mean = (values * weights).reshape(-1, values.shape[-1]).sum(0) / weights.sum()
        total += float((weights * (values - mean) ** 2).sum())
    return total


# Effective scores of one annotator among several, by the observed information (Louis 1982).
#
# All annotators inform the posterior of the true label, so that the score of one depends on the Q of the others. With
# the observed information :math:`H = -\partial U / \partial \eta`, here by central differences of the score,
# :math:`U^*_g = U_g - H_{\psi\eta} H_{\eta\eta}^{-1} S_g` is to first order free of the error of the fitted null, for
# each person g: U are scores of the tested change, S those of what the null fits.

STEP = 0.05  # of a logit, to both sides
MAX_DIRECTIONS = 64  # of the null; above it the entries of Q move together
RIDGE = 1.0  # by hand: added to the information of every direction, as `MIN_INFORMATION`


def observed_scores(fit: NullFit, change: Directions, moments: ClockMoments, person: np.ndarray) -> np.ndarray:
    """The effective score of each person, of one annotator: (people, 1, functions, shares)."""
    tested = Directions(change.groups, change.functions[moments.of_point], change.shares)
    # The null fits the level of the annotator, and how all others move together, who may move.
    level = np.ones((len(tested.functions), 1))
    both = np.concatenate([level, tested.functions], 1)
    shares = tested.shares
    if shares.shape[1] * (1 + both.shape[1]) > MAX_DIRECTIONS:
        shares = shares.sum(1, keepdims=True)
    others = [group for group in range(len(fit.noise)) if group not in tested.groups]
    parts = [Directions(tested.groups, level, shares), Directions(others, both, shares)]
    people = int(person.max()) + 1
    scores = np.concatenate([part.scores(fit, person, people) for part in parts], 1)
    of_change = tested.scores(fit, person, people)
    moved = np.concatenate([part.moved(fit.noise) for part in parts])  # (null, 2, groups, ...)
    fits = fit.with_noise(moved.reshape(-1, *fit.noise.shape))
    together = np.zeros(len(fit.labels), dtype=np.int64)  # all rows are one unit
    of_fit = [np.concatenate([part.scores(one, together, 1)[0] for part in (tested, *parts)]) for one in fits]
    forth, back = np.array(of_fit).reshape(len(moved), 2, -1).transpose(1, 0, 2)
    observed = (back - forth) / (2 * STEP)  # information of the null with change and null: (null, change and null)
    cross, information = observed[:, : of_change.shape[1]], observed[:, of_change.shape[1] :]
    projection = np.linalg.solve(information + RIDGE * np.eye(len(information)), cross)
    effective = of_change - scores @ projection
    return effective.reshape(people, 1, tested.functions.shape[1], -1)


# Test of whether the noise changes over a clock, with a reference distribution that suits the design of the study.

ROUNDING = 1e-9  # relative difference of statistics that are equal but for the order of sums


def change_tests(
    training: TrainingEvidence,
    nulls: Mapping[int, Family],
    alternative: Family,
    n_replicates: int,
    min_replicates: int = MIN_TEST_REPLICATES,
    clock: int = 0,
) -> list[ChangeTest]:
    """Test whether the noise changes over a clock: several nulls, each under its seed, against one alternative.

    Labels of one person share causes that last, which must not pass for a change. The reference distribution is
    therefore chosen by design (`study_design`); where none keeps its size, the p-value is NaN.
    """
    moments = clock_moments(training, clock)
    designs = {seed: study_design(training, moments, tested_labels(training, null)) for seed, null in nulls.items()}
    scored = [seed for seed, design in designs.items() if design.method not in ("bootstrap", "none")]
    at_once = max(1, NUMBERS_AT_ONCE // (training.data.mask.numel() * training.data.n_classes))  # posteriors in memory
    tests = {}
    for first in range(0, len(scored), at_once):
        part = scored[first : first + at_once]
        for seed, fit in zip(part, fit_nulls(training, [nulls[seed] for seed in part]), strict=True):
            tests[seed] = score_test(fit, moments, designs[seed], nulls[seed], alternative, n_replicates, seed)
    for seed, design in designs.items():
        if design.method == "none":
            tests[seed] = ChangeTest(np.nan, np.nan, "none", design.n_units)
        elif design.method == "bootstrap":
            test = likelihood_ratio_test(training, nulls[seed], alternative, n_replicates, seed, min_replicates)
            used = training.for_bootstrap()
            units = np.flatnonzero(tested_labels(used, nulls[seed]).any(1))
            if used.clusters is not None:
                units = np.unique(used.clusters.numpy()[units])
            tests[seed] = test._replace(n_units=len(units))
    return [tests[seed] for seed in nulls]


def score_test(
    fit: NullFit,
    moments: ClockMoments,
    design: StudyDesign,
    null: Family,
    alternative: Family,
    n_replicates: int,
    seed: int,
) -> ChangeTest:
    """Score test of a fitted null, with people or permutations as its reference."""
    change = find_alternative(fit, moments, null, alternative)
    generator, statistic = np.random.default_rng([seed, 12]), Statistic.of(fit, change)
    person = np.zeros(len(fit.labels), dtype=np.int64)  # rows without labels count for the first, and add nothing
    for number, rows in enumerate(design.units):
        person[rows] = number
    if design.method == "people":
        of_people = person_scores(fit, change, moments, null, person)
        scores = np.concatenate([of_people.sum(0)[None], flip_signs(of_people, n_replicates, generator)])
    else:
        residuals, index = step_residuals(fit, change), moments.axis_index
        moved = shuffle_rows(index, design.units, n_replicates, generator)
        scores = np.stack([score_of_moments(residuals, moments_of, change) for moments_of in (index, *moved)])
    observed, *replicates = statistic(scores).tolist()
    p = p_value(observed * (1 - ROUNDING), np.array(replicates))
    return ChangeTest(observed, p, design.method, design.n_units)


def tested_labels(training: TrainingEvidence, null: Family) -> np.ndarray:
    """Which steps have labels that the test is about, those of one annotator or of all: (rows, steps)."""
    recorded = (training.data.labels[0] >= 0).numpy() & training.data.mask.numpy()[..., None]
    return recorded[..., null.held] if null.held is not None else recorded.any(-1)
