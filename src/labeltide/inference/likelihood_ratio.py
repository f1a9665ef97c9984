r"""Likelihood-ratio tests of nested families of Q(t) by parametric bootstrap.

The statistic is :math:`T = 2(\ell_1 - \ell_0)`. Its null distribution is not chi-squared: families are penalised and EM
is stopped early. It is simulated instead, by labels drawn from the fitted null (parametric bootstrap; McLachlan 1987,
Davison and Hinkley 1997, section 4.2). The p-value of B replicates is
:math:`(1 + \#\{T_b \ge T\}) / (1 + B)`, which is never zero (Phipson and Smyth 2010). Recorded and simulated labels
go through the same iterations from the same start, so that the remaining gap to convergence cancels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch

from labeltide.chain.data import ChainData, ChainParameters, Members, TrainingEvidence
from labeltide.chain.families import Family
from labeltide.inference.budget import affordable
from labeltide.inference.parametric_bootstrap import simulate_labels
from labeltide.inference.warm_start import REFIT_ITERATIONS, refit, same_data, weighted_log_likelihood

# docs/decisions/015-tests-of-change.md
MIN_TEST_REPLICATES = 39  # where replicates are expensive; p-values can still fall below .05
OBSERVED_ITERATIONS = 30  # by hand: of EM for the null on the recorded labels
INITIAL_ERROR_RATE = 0.2  # by hand: where EM starts under the alternative if the null has no errors


class LikelihoodRatio(NamedTuple):
    """The statistic of a likelihood-ratio test and its p-value."""

    statistic: float
    p_value: float


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
    training = training.for_bootstrap()
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
        observed, p_value(observed, _statistics(simulated, members, under_null, null, alternative, starts))
    )


def p_value(observed: float, replicates: np.ndarray) -> float:
    """The share of statistics that reach the observed one, which counts as one of them."""
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
