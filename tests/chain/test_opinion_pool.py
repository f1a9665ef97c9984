"""Logarithmic opinion pool: its special cases, its weights, and what they become."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import labeltide as lt
from labeltide.chain.annotators import (
    count_votes,
    fit_weights,
    pool_opinions,
    shared_labels,
    stack_opinions,
    vote_shares,
    votes_prior,
)


def opinions(n=4000, seed=0):
    """A good opinion about labels drawn from it, and one that knows nothing."""
    generator = torch.Generator().manual_seed(seed)
    good, empty = torch.randn(2, n, 3, generator=generator, dtype=torch.float64).mul(1.5).softmax(-1)
    return good, empty, torch.multinomial(good, 1, generator=generator)[:, 0]


def test_a_weight_of_one_and_zeros_gives_that_opinion():
    good, empty, _ = opinions(n=10)
    for weights, wanted in (((1.0, 0.0), good), ((0.0, 1.0), empty)):
        torch.testing.assert_close(pool_opinions(torch.tensor(weights).double(), stack_opinions(good, empty)), wanted)


def test_votes_that_are_missing_do_not_count():
    labels = torch.tensor([[0, 0, 1, -1], [-1, -1, -1, -1]])
    shares = vote_shares(labels, torch.tensor([0.5, 0.5], dtype=torch.float64))
    torch.testing.assert_close(shares, torch.tensor([[2.5 / 4, 1.5 / 4], [0.5, 0.5]]).double())


def test_the_prior_of_votes_is_that_of_the_dirichlet_multinomial_they_were_drawn_from():
    generator, wanted = np.random.default_rng(0), np.array([0.9, 0.3, 0.2])
    chances = generator.dirichlet(wanted, 20_000)
    labels = np.stack([(generator.random(20_000)[:, None] > chances.cumsum(1)).sum(1) for _ in range(3)], 1)
    np.testing.assert_allclose(
        votes_prior(count_votes(torch.from_numpy(labels), 3).flatten(0, -2), 3), wanted, rtol=0.1
    )
    assert votes_prior(count_votes(torch.from_numpy(labels[:, :1]), 3), 3).tolist() == [0.5] * 3


def test_a_label_is_shared_where_another_annotator_labelled_the_step():
    labels = torch.tensor([[[0, 1, -1], [0, -1, -1]]])
    shared = shared_labels(labels, torch.ones(1, 2, dtype=torch.bool))
    assert shared.tolist() == [[[True, True, False], [False] * 3]]


def test_a_calibrated_opinion_gets_weight_one_and_an_empty_one_none():
    good, empty, labels = opinions()
    weights = fit_weights(stack_opinions(good, empty), labels, torch.tensor([0.5, 0.5], dtype=torch.float64))
    assert weights[0] == pytest.approx(1.0, abs=0.08)
    assert weights[1] == pytest.approx(0.0, abs=0.05)


def test_weights_are_never_negative():
    good, _, labels = opinions()
    weights = fit_weights(stack_opinions(good, 1 - good), labels, torch.tensor([1.0, 0.0], dtype=torch.float64))
    assert (weights >= 0).all()


def test_without_labels_the_weights_stay_where_they_started():
    start = torch.tensor([0.7, 0.2], dtype=torch.float64)
    nothing = torch.zeros(0, 2, 3, dtype=torch.float64)
    torch.testing.assert_close(fit_weights(nothing, torch.zeros(0, dtype=torch.int64), start), start)


def test_where_annotators_err_on_their_own_the_chain_keeps_its_weight():
    truth = np.repeat(np.random.default_rng(0).integers(0, 3, (80, 8)), 5, 1)
    wrong = np.random.default_rng(1).random((*truth.shape, 4)) < 0.2
    labels = np.where(wrong, (truth[..., None] + 1) % 3, truth[..., None]).astype(np.int8)
    fitted = lt.consensus(labels)
    assert fitted.weights[0] > 0.9
    assert fitted.weights[1] < 0.15


def test_an_opinion_that_misleads_gets_no_weight():
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(2, (500,), generator=generator)
    shares = torch.where(labels[:, None] == torch.arange(2), 0.2, 0.8)  # mostly the other class
    weights = fit_weights(stack_opinions(shares), labels)
    assert weights.tolist() == [0.0]
