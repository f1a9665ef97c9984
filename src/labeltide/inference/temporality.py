"""Tests of the noise: does it change over the clock, in which class or annotator, is there any at all.

Tests of change are score tests or parametric bootstrap tests, by the design of the study (`change_tests`); the other
two are parametric bootstrap tests (`likelihood_ratio_test`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

import numpy as np
import torch

from labeltide._clock import cells_of
from labeltide.chain.em import BURSTS, BURSTS_WORTH
from labeltide.chain.families import (
    Family,
    constant_shape,
    family,
    hold_annotator,
    hold_class,
    pooled,
    spline_shape,
    sum_shape,
)
from labeltide.chain.passes import TrainingEvidence, same_data
from labeltide.inference.audit import QUALITY_GRID
from labeltide.inference.bands import (
    Change,
    NoiseEstimate,
    ShareInterval,
    agree_change,
    estimate,
    interval_around,
    presence_p,
    share_test,
    share_wrong,
)
from labeltide.inference.bootstrap import (
    BAND_REPLICATES,
    OBSERVED_ITERATIONS,
    Replicates,
    bootstrap_noise,
    coarsen,
    free_family,
    free_of,
    likelihood_ratio_test,
    pooled_by,
    refit,
    smooth,
    weighted_log_likelihood,
)
from labeltide.inference.conclusion import Diagnostic
from labeltide.inference.display import TemporalityDisplay
from labeltide.inference.score_tests import METHODS, ChangeTest, change_tests

TEST_REPLICATES = 199
PART_REPLICATES = 99  # for each class or annotator, for any noise at all, and for differences between classes
MAX_TESTED_CLASSES = 24  # that are tested by themselves, the commonest; each takes a fit with the Q of all classes
MIN_PART_REPLICATES = 24  # where replicates are expensive; p-values can still fall below .05
TEST_SMOOTHNESS = 10.0  # by hand: of the alternative (docs/decisions/015-tests-of-change.md)
WEAK_POOLING = 0.1  # by hand: of annotators where one of them is tested, so that the others hardly pull that one


class PartTemporality(NamedTuple):
    """Test of whether the noise of one true class, of one annotator or over one of several clocks changes."""

    statistic: float
    p_value: float  # NaN where it cannot be told
    change: Change
    method: str = "bootstrap"  # the reference distribution, see Temporality
    n_units: int = 0  # people, or rows where people are not known


@dataclass(frozen=True, repr=False)
class Temporality(TemporalityDisplay):
    """Tests of static against temporal noise, with effect sizes.

    Attributes
    ----------
    statistic : float
        The score statistic of a change over the clock; by parametric bootstrap twice the gain in log-likelihood.
    p_value : float
        Of the null that the noise does not change over the clock; NaN where it cannot be told.
    method : str
        The reference distribution of the test, chosen by the design of the study. "people": the signs of people's
        contributions are flipped, and nothing is assumed about the windows of one person. "permutations": rows without
        known people swap their moments. "bootstrap": labels are drawn from noise that does not change, where every row
        runs through the clock. "none": people are too few for a test that keeps its size; or a class is not among the
        24 commonest, which alone are tested by themselves.
    n_units : int
        How many people stand behind the test; rows, where people are not known.
    change, change_lower, change_upper : float
        The largest change of the error rate over the clock, with a 95 % interval that excludes zero if and only if the
        p-value is below 5 % (`bands.agree_change`).
    worst_at, best_at, worst_rate, best_rate : float
        When labels are worst and best, and how often they are wrong then.
    per_class : tuple of PartTemporality
        The same for the labels of each true class; under the null the noise of the others may change.
    is_noisy_p : float
        p-value of the null that no label is wrong: the larger of that of the likelihood-ratio test, which holds the
        exponent of the evidence fixed, and that of the profile likelihood, which does not. Zero where annotators differ
        on a step, of whom one at least must be wrong.
    classes_differ_p : float
        p-value of the null that all classes have the same noise.
    per_annotator : tuple of PartTemporality
        As for classes, for the labels of each annotator; empty with one annotator.
    """

    statistic: float
    p_value: float
    change: float
    change_lower: float
    change_upper: float
    worst_at: float
    best_at: float
    worst_rate: float
    best_rate: float
    per_class: tuple[PartTemporality, ...]
    is_noisy_p: float
    classes_differ_p: float
    per_annotator: tuple[PartTemporality, ...] = ()
    method: str = "bootstrap"
    n_units: int = 0


def judge_temporality(
    training: TrainingEvidence,
    estimate: NoiseEstimate,
    annotator_estimates: Sequence[NoiseEstimate] = (),
    *,
    is_noisy_p: float | None = None,
    n_replicates: int = TEST_REPLICATES,
    seed: int = 0,
) -> Temporality:
    """Run all tests of one fitted chain, also that of "no label is wrong" where its p-value is left out."""
    if is_noisy_p is None:
        tested = judge_presence(training, n_replicates=min(n_replicates, PART_REPLICATES), seed=seed)
        is_noisy_p = presence_p(tested, estimate.total_p, training)
    training = allow_bursts(coarsen(training))
    n_classes, grid, annotators = training.data.n_classes, training.grid, training.parameters.matrices.shape[1]
    fewer = min(n_replicates, PART_REPLICATES)
    unpooled = free_family(n_classes, grid, TEST_SMOOTHNESS, training.period)
    free = pooled_by(training, unpooled)
    (whole,) = change_tests(training, {seed: _static(training)}, free, n_replicates)
    counts = torch.bincount(training.data.labels[training.data.labels >= 0].long(), minlength=n_classes)
    common = counts.argsort(descending=True, stable=True)[:MAX_TESTED_CLASSES].sort().values.tolist()
    nulls = {seed + 1 + i: hold_class(free, i) for i in common}  # under the null the noise of other classes may change
    of_common = dict(zip(common, change_tests(training, nulls, free, fewer, MIN_PART_REPLICATES), strict=True))
    untested = ChangeTest(np.nan, np.nan, "none", 0)
    class_tests = [of_common.get(i, untested) for i in range(n_classes)]
    shape = spline_shape(grid, TEST_SMOOTHNESS, training.period)
    alike, by_class = (pooled_by(training, family(n_classes, shape, each, each)) for each in ("alike", "by class"))
    differ = likelihood_ratio_test(training, alike, by_class, fewer, seed + 200, MIN_PART_REPLICATES)
    per_annotator: tuple[PartTemporality, ...] = ()
    if annotators > 1:  # likewise, the noise of other annotators
        weakly = pooled(unpooled, WEAK_POOLING)
        nulls = {seed + 400 + a: hold_annotator(weakly, a) for a in range(annotators)}
        annotator_tests = change_tests(training, nulls, weakly, fewer, MIN_PART_REPLICATES)
        per_annotator = _parts(annotator_tests, [of_one.change for of_one in annotator_estimates])
    return Temporality(
        whole.statistic,
        whole.p_value,
        *agree_change(estimate.change, whole.p_value),
        per_class=_parts(class_tests, estimate.class_change),
        is_noisy_p=is_noisy_p,
        classes_differ_p=differ.p_value,
        per_annotator=per_annotator,
        method=whole.method,
        n_units=whole.n_units,
    )


def judge_presence(training: TrainingEvidence, *, n_replicates: int = PART_REPLICATES, seed: int = 0) -> float:
    """p-value of the null that no label is wrong, by a likelihood-ratio test, with one clock or several."""
    training = allow_bursts(coarsen(training))
    seed += 300
    return likelihood_ratio_test(training, None, _static(training), n_replicates, seed, MIN_PART_REPLICATES).p_value


def _static(training: TrainingEvidence) -> Family:
    return pooled_by(training, family(training.data.n_classes, constant_shape(training.grid), "each"))


def _parts(tests: Sequence[ChangeTest], changes: Sequence[Change]) -> tuple[PartTemporality, ...]:
    """Tests with their effect sizes, whose intervals agree with them."""
    return tuple(
        PartTemporality(test.statistic, test.p_value, agree_change(change, test.p_value), test.method, test.n_units)
        for test, change in zip(tests, changes, strict=True)
    )


def allow_bursts(training: TrainingEvidence) -> TrainingEvidence:
    """Model bursts of errors where the likelihood asks for them; otherwise simulated labels vary too little.

    With several annotators the fit compares chains by leave-one-annotator-out prediction, which may leave bursts out.
    """
    data, chain = training.data, training.parameters
    if chain.matrices.shape[1] == 1 or (chain.bursts is not None and bool(chain.bursts.any())):
        return training
    free = pooled(free_family(data.n_classes, training.grid, TEST_SMOOTHNESS, training.period), WEAK_POOLING)
    single = same_data(torch.ones(1, data.labels.shape[1]))
    starts = [chain, chain._replace(bursts=torch.full_like(chain.power, BURSTS))]
    independent, bursty = (refit(data, single, [free], start, OBSERVED_ITERATIONS) for start in starts)
    gain = float(weighted_log_likelihood(bursty, single) - weighted_log_likelihood(independent, single))
    return training._replace(parameters=bursty.parameters) if gain > BURSTS_WORTH else training


# Several clocks: partial dependence of Q on each clock with bands, and a test of each clock's effect.
#
# The effects of the clocks add up on the logit scale. Along one clock, Q is averaged over the marginal distribution of
# the others (partial dependence, Friedman 2001; direct standardisation).

EMPTY_CELL_LABELS = 1e-6  # labels added to every cell, so that cells without any have an average


def estimate_clocks(
    training: TrainingEvidence,
    tested: ShareInterval | None = None,
    *,
    n_replicates: int = BAND_REPLICATES,
    seed: int = 0,
) -> tuple[NoiseEstimate, ...]:
    """Q along each clock with bands, averaged over the marginal distribution of the other clocks.

    Averaged over the conditional distribution at each moment, a clock without effect would show that of the others
    (docs/decisions/014-bands.md).
    """
    matrices = training.parameters.matrices[0].double().numpy()  # (annotators or 1, cells, classes, classes)
    replicates = bootstrap_noise(training, n_replicates, seed)
    cells = cells_of(training.grid, training.period)
    total = share_wrong(matrices, replicates)[0]  # over labels as observed
    tested = tested or share_test(training)
    lower, upper = interval_around(total, tested.estimate, tested.lower, tested.upper)
    estimates = []
    for clock, (axis, period) in enumerate(zip(cells.axes, cells.periods, strict=True)):
        in_cell = (training.grid[:, clock] == axis[:, None]).astype(float)  # (moments, cells)
        totals = replicates.totals[0] + EMPTY_CELL_LABELS  # (annotators, cells, classes)
        shape = (len(totals), *(len(axis) for axis in cells.axes), totals.shape[-1])
        marginal = np.broadcast_to(totals.reshape(shape).sum(1 + clock, keepdims=True), shape)
        weights = np.einsum("mc,aci->amci", in_cell, marginal.reshape(totals.shape))
        weights /= weights.sum(2, keepdims=True)
        along_clock = Replicates(
            matrices=np.einsum("amci,racij->ramij", weights, replicates.matrices),
            totals=smooth(in_cell @ replicates.totals, axis, period),
        )
        of_clock = estimate(axis, np.einsum("amci,acij->amij", weights, matrices), along_clock, training.weights())
        bounds: dict[str, Any] = {"total": total, "total_lower": lower, "total_upper": upper}
        estimates.append(replace(of_clock, **bounds, total_p=tested.p_value, false_alarms=tested.false_alarms))
    return tuple(estimates)


def judge_clocks(
    training: TrainingEvidence, estimates: Sequence[NoiseEstimate], *, seed: int = 0
) -> tuple[PartTemporality, ...]:
    """Test for each clock whether the noise changes over it; under the null it may still change over the others."""
    training = allow_bursts(training)
    clocks = range(training.grid.shape[1])

    def moving(held: int | None) -> Family:
        smoothness = [None if clock == held else TEST_SMOOTHNESS for clock in clocks]
        return pooled_by(
            training, free_of(training.data.n_classes, sum_shape(training.grid, smoothness, training.period))
        )

    free = moving(None)
    tests = [
        change_tests(training, {seed + 500 + held: moving(held)}, free, TEST_REPLICATES, clock=held)[0]
        for held in clocks
    ]
    return _parts(tests, [of_clock.change for of_clock in estimates])


# Serialization of noise estimates, tests and diagnostics: to lists and numbers for JSON, and back by their types.

FINDINGS: dict[str, Any] = {
    "noise_estimate": NoiseEstimate,
    "annotator_estimates": tuple[NoiseEstimate, ...],
    "clock_estimates": tuple[NoiseEstimate, ...],
    "clock_temporality": tuple[PartTemporality, ...],
    "is_noisy_p": float,
    "temporality": Temporality,
    "diagnostics": tuple[Diagnostic, ...],
}
PROBABILITIES = ("p_value", "total_p", "is_noisy_p", "classes_differ_p")  # these and the statistic may be unknown


def write_findings(findings: dict[str, Any]) -> dict[str, Any]:
    """Results by name, as lists and plain numbers."""
    return {name: _plain(value) for name, value in findings.items()}


def read_findings(written: Any, n_classes: int) -> dict[str, Any]:
    """The inverse of `write_findings`; a ValueError where the input is malformed."""
    shape = (0, n_classes, n_classes)
    try:
        return {name: _read(name, FINDINGS[name], value, shape) for name, value in written.items()}
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        raise ValueError("its bands, its test or its checks are malformed.") from None


def _plain(value: Any) -> Any:
    if isinstance(value, NoiseEstimate | Temporality | Diagnostic):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and math.isnan(value):
        return None  # JSON has no NaN
    return value.tolist() if isinstance(value, np.ndarray) else value


def _read(name: str, kind: Any, written: Any, shape: tuple[int, ...]) -> Any:
    """A value of a type; `shape` is that of Q, (points, classes, classes), with which arrays begin."""
    if get_origin(kind) is tuple:
        sound = name not in ("class_change", "per_class") or len(written) == shape[1]
        value: Any = tuple(_read(name, get_args(kind)[0], each, shape) for each in written)
    elif kind in (str, bool, int):
        value, sound = written, isinstance(written, kind) and (name != "method" or written in METHODS)
    elif kind is float:
        is_unknown = written is None and name in ("statistic", *PROBABILITIES)
        value = math.nan if is_unknown else float(written)
        sound = is_unknown or (0 <= value <= 1 if name in PROBABILITIES else math.isfinite(value))
    elif name == "false_alarms":
        value = None if written is None else np.asarray(written, dtype=np.float64)
        sound = value is None or (value.shape == QUALITY_GRID.shape and bool(((value >= 0) & (value <= 1)).all()))
    elif kind is np.ndarray:
        value = np.asarray(written, dtype=np.float64)
        sound = value.ndim > 0 and value.shape == shape[: value.ndim] and bool(np.isfinite(value).all())
    else:  # a result, as a dictionary, or a named tuple, as a list
        kinds = get_type_hints(kind)
        if issubclass(kind, tuple):
            written = dict(zip(kinds, written, strict=True))
        shape = (len(written.get("clock", ())), *shape[1:])
        value = kind(**{key: _read(key, kinds[key], each, shape) for key, each in written.items()})
        sound = set(written) <= set(kinds)  # those with a default may be missing
    if not sound:
        raise ValueError
    return value
