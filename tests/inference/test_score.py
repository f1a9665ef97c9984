"""The score of a change: it is the slope of the likelihood, and functions of the clock are smooth and uncorrelated."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from labeltide.chain.families import constant_shape, family, hold_annotator, hold_class, pooled
from labeltide.chain.passes import expect, same_data
from labeltide.inference.bootstrap import free_family, refit
from labeltide.inference.score_tests import (
    Statistic,
    clock_moments,
    find_alternative,
    fit_nulls,
    score_of_moments,
    smooth_functions,
    step_residuals,
)
from labeltide.noise.simulate import make_noise
from labeltide_bench.simulated import SimulatedStudy, fit_studies, simulate

STEPS = 12
CLOCK = np.linspace(0, 1, STEPS)


def fitted(annotators=1):
    noise = make_noise("growth", 2, STEPS, 0.3).at(CLOCK)
    noise = noise if annotators == 1 else np.stack([noise] * annotators)
    data = simulate(SimulatedStudy(noise, 40, sharpness=2.0), 1, 0).data
    ((training, _),) = fit_studies(data, choose=False)
    return training._replace(clusters=torch.arange(40) // 4)


def families(training):
    return family(2, constant_shape(training.grid), "each"), free_family(2, training.grid, 10.0)


def observed_score(training, null, alternative):
    (fit,), moments = fit_nulls(training, [null]), clock_moments(training, 0)
    change = find_alternative(fit, moments, null, alternative)
    return score_of_moments(step_residuals(fit, change), moments.axis_index, change), change, fit, moments


def test_the_score_is_the_slope_of_the_log_likelihood():
    """Without bursts of errors; with them, residuals are those of the M-step, which takes labels one by one."""
    training = fitted()
    training = training._replace(parameters=training.parameters._replace(bursts=None))
    null, free = families(training)
    score, change, fit, _ = observed_score(training, null, free)
    single = same_data(torch.ones(1, 40))
    chain = refit(training.data, single, [null], training.parameters, 60).parameters
    for k in range(change.functions.shape[1]):
        for share, column in enumerate(change.shares.T):
            (i, j), ends = fit.entries[int(column.argmax())], []
            for h in (0.05, -0.05):
                logs = chain.matrices.clone().log()
                logs[0, 0, :, i, j] += h * torch.from_numpy(change.functions[:, k]).float()
                moved = chain._replace(matrices=logs.softmax(-1))
                ends.append(float(expect(training.data, single, moved).log_likelihood.double().sum()))
            assert (ends[0] - ends[1]) / 0.1 == pytest.approx(score[0, k, share], abs=0.2, rel=0.02)


@pytest.mark.parametrize("period", [None, 1.0])
def test_functions_of_the_clock_are_uncorrelated_over_the_labels(period):
    weights = np.linspace(1, 3, 30)
    functions = smooth_functions(np.linspace(0, 1, 30, endpoint=period is None), weights, period)
    share = weights / weights.sum()
    np.testing.assert_allclose(share @ functions, 0, atol=1e-8)
    np.testing.assert_allclose(functions.T @ (share[:, None] * functions), np.eye(4), atol=1e-8)
    turns = (np.diff(np.sign(np.diff(functions, axis=0)), axis=0) != 0).sum(0)
    assert turns[0] <= turns[-1]
    if period is None:
        np.testing.assert_allclose(np.abs(np.corrcoef(functions[:, 0], np.arange(30))[0, 1]), 1, atol=1e-3)


@pytest.mark.parametrize("held", [0, 1])
def test_only_what_the_null_holds_is_tested(held):
    training = fitted()
    free = families(training)[1]
    score, change, *_ = observed_score(training, hold_class(free, held), free)
    assert change.shares[:, 0].tolist() == [held == 0, held == 1]
    assert score.shape == (1, 4, 1)


def test_one_annotator_is_tested_alone():
    training = fitted(annotators=3)
    free = pooled(families(training)[1], 0.1)
    score, change, fit, _ = observed_score(training, hold_annotator(free, 2), free)
    assert change.groups == [2]
    assert score.shape == (1, 4, 2)
    assert float(Statistic.of(fit, change)(score)) > 30  # their noise grows


def test_all_annotators_are_tested_together_and_each():
    training = fitted(annotators=3)
    null, free = (pooled(one, 0.1) for one in families(training))
    score, change, fit, _ = observed_score(training, null, free)
    assert score.shape == (3, 4, 2)
    statistic = Statistic.of(fit, change)
    opposed = score * np.array([1, -1, 0])[:, None, None]
    assert float(statistic(score)) > float(statistic(opposed)) > 0
    np.testing.assert_allclose(statistic(np.stack([score, opposed])), [statistic(score), statistic(opposed)])
