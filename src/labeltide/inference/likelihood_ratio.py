r"""Likelihood-ratio tests of nested families of Q(t), by parametric bootstrap or by permutation.

The statistic is :math:`T = 2(\ell_1 - \ell_0)`. Its null distribution is not chi-squared: families are penalised and EM
is stopped early. It is simulated instead, by labels drawn from the fitted null (parametric bootstrap; McLachlan 1987,
Davison and Hinkley 1997, section 4.2) or by permuted moments of the clock (Good 2005). The p-value of B replicates is
:math:`(1 + \#\{T_b \ge T\}) / (1 + B)`, which is never zero (Phipson and Smyth 2010). Recorded and simulated labels
go through the same iterations from the same start, so that the remaining gap to convergence cancels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from labeltide.chain.data import ChainData, ChainParameters, Members, TrainingEvidence
from labeltide.chain.families import Family, constant_shape, family
from labeltide.inference.budget import affordable
from labeltide.inference.parametric_bootstrap import simulate_labels
from labeltide.inference.permutation import exchangeable_units, permute_moments
from labeltide.inference.warm_start import REFIT_ITERATIONS, refit, same_data, weighted_log_likelihood

MIN_TEST_REPLICATES = 39  # where replicates are expensive; p-values can still fall below .05
OBSERVED_ITERATIONS = 30  # of EM for the null on the recorded labels
STATIC_ITERATIONS = 60  # of EM without a clock, after which the chain no longer depends on the moments of its fit
UNBATCHED_COST = 2  # cost factor of a replicate that cannot be batched
INITIAL_ERROR_RATE = 0.2  # where EM starts under the alternative if the null has no errors


class LikelihoodRatio(NamedTuple):
    """The statistic of a likelihood-ratio test and its p-value."""

    statistic: float
    p_value: float


def change_test(
    training: TrainingEvidence,
    null: Family,
    alternative: Family,
    n_replicates: int,
    seed: int,
    min_replicates: int = MIN_TEST_REPLICATES,
    clock: int = 0,
) -> LikelihoodRatio:
    """Test whether the noise changes over a clock in the way that only the alternative allows.

    A permutation test where rows are exchangeable and lie at different moments, otherwise a parametric bootstrap.
    Labels of one row share causes that the chain does not model: illness, equipment, difficulty. Where rows lie at
    different moments, this random effect alone makes moments differ, and labels simulated from the chain vary too
    little. Permuting the moments of rows keeps the effect. It does break correlation between neighbouring rows: where a
    cause lasts for many rows of few people, the test can still reject a true null.
    """
    groups = exchangeable_units(training, clock)
    if not groups:
        return likelihood_ratio_test(training, null, alternative, n_replicates, seed, min_replicates)
    data, single = training.data, same_data(1, torch.ones(1, len(training.data.mask)))
    null_is_static = not np.ptp(null.design, axis=0).any()
    iterations = UNBATCHED_COST * REFIT_ITERATIONS * (1 if null_is_static else 3)
    n_replicates = affordable(data, alternative, iterations, n_replicates, min_replicates)
    static = family(data.n_classes, constant_shape(np.arange(data.n_points)), "each")
    start = refit(data, single, [static], training.parameters, STATIC_ITERATIONS).parameters
    generator = np.random.default_rng([seed, 12])
    if null_is_static:  # then the null likelihood is the same under every permutation
        null_likelihood = weighted_log_likelihood(refit(data, single, [null], start), single)

    def statistic(points: Tensor) -> float:
        permuted = replace(data, points=points)
        if null_is_static:
            fitted = weighted_log_likelihood(refit(permuted, single, [alternative], start), single)
            return max(0.0, 2 * float(fitted - null_likelihood))
        under_null = refit(permuted, single, [null], start).parameters
        return float(_statistics(permuted, single, under_null, null, alternative, [under_null])[0])

    observed = statistic(data.places())
    permuted = [statistic(permute_moments(training, groups, generator, clock)) for _ in range(n_replicates)]
    return LikelihoodRatio(observed, _p_value(observed, np.array(permuted)))


def likelihood_ratio_test(
    training: TrainingEvidence,
    null: Family | None,
    alternative: Family,
    n_replicates: int,
    seed: int,
    min_replicates: int = MIN_TEST_REPLICATES,
) -> LikelihoodRatio:
    """Parametric bootstrap test of a null family against an alternative; None is the null of no errors at all.

    Under the null of no errors the exponent k of the evidence is held at its fitted value; otherwise k shrinks and
    absorbs the noise. Simulated labels keep the evidence, the gaps and the trusted labels.
    """
    n_replicates = affordable(training.data, alternative, 2 * REFIT_ITERATIONS, n_replicates, min_replicates)
    data, rows = training.data, torch.ones(1, training.data.labels.shape[1])
    single = same_data(1, rows)
    under_null = refit(
        data, single, _repeat(null, 1), training.parameters, OBSERVED_ITERATIONS, null is not None
    ).parameters
    starts = [under_null]
    if null is None:  # Q without errors is a fixed point of EM, so EM starts from Qs with errors
        noisy = (1 - INITIAL_ERROR_RATE) * under_null.matrices + INITIAL_ERROR_RATE / data.n_classes
        starts = [under_null._replace(matrices=noisy), training.parameters]
    observed = float(_statistics(data, single, under_null, null, alternative, starts)[0])
    simulated = replace(data, labels=simulate_labels(data, under_null, n_replicates, seed))
    each = torch.arange(n_replicates)
    members = Members(each, torch.zeros_like(each), rows.expand(n_replicates, -1))
    return LikelihoodRatio(
        observed, _p_value(observed, _statistics(simulated, members, under_null, null, alternative, starts))
    )


def _p_value(observed: float, replicates: np.ndarray) -> float:
    return float((1 + (replicates >= observed).sum()) / (1 + len(replicates)))


def _statistics(
    data: ChainData,
    members: Members,
    under_null: ChainParameters,
    null: Family | None,
    alternative: Family,
    starts: Sequence[ChainParameters],
) -> np.ndarray:
    """Twice the gain in log-likelihood of each member, the alternative fitted from the best of several starts."""
    count = len(members.labels)
    learn_power = null is not None
    under_null_fits = refit(data, members, _repeat(null, count), under_null, learn_power=learn_power)
    null_likelihood = weighted_log_likelihood(under_null_fits, members)
    fits = [refit(data, members, [alternative] * count, start, learn_power=learn_power) for start in starts]
    likelihoods = [weighted_log_likelihood(fitted, members) for fitted in fits]
    return (2 * (torch.stack(likelihoods).amax(0) - null_likelihood)).clamp_min(0.0).numpy()


def _repeat(null: Family | None, count: int) -> list[Family] | None:
    return None if null is None else [null] * count
