"""Leave-one-annotator-out predictive log-likelihood, which errors that annotators share do not mislead."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import labeltide as lt
from chains import make_case
from labeltide.chain.em import join_evidence, label_chain
from labeltide.chain.passes import ChainData, Members, expect, predictive_log_likelihood

STEPS, N = 30, 100
GRID = np.linspace(0, 1, STEPS)


@pytest.mark.parametrize("bursts", [False, True])
def test_prediction_of_each_label_equals_the_gain_in_likelihood_of_adding_it_to_the_others(bursts):
    data, members, parameters = make_case(3, steps=5, annotators=3, groups=3, classes=3, bursts=bursts)
    likelihood = expect(data, members, parameters).log_likelihood
    scored = torch.tensor([[True, True, False], [True, True, True]])
    result = predictive_log_likelihood(data, members, parameters, likelihood, scored)
    total = torch.zeros_like(likelihood)
    for annotator in range(3):
        others = data.labels.clone()
        others[..., annotator] = -1
        without = expect(replace(data, labels=others), members, parameters).log_likelihood
        for step in range(5):
            more = others.clone()
            more[:, :, step, annotator] = data.labels[:, :, step, annotator]
            total += expect(replace(data, labels=more), members, parameters).log_likelihood - without
    several = ((data.labels >= 0) & data.mask[..., None]).any(2).sum(-1) > 1
    wanted = torch.where(several[members.labels] & scored, total, likelihood)
    torch.testing.assert_close(result, wanted, atol=1e-4, rtol=1e-4)


def test_one_q_for_all_keeps_the_likelihood():
    data, members, parameters = make_case(4, annotators=3)
    likelihood = expect(data, members, parameters).log_likelihood
    assert predictive_log_likelihood(data, members, parameters, likelihood, members.weights >= 0) is likelihood


def wander(generator, keep, n=N):
    """Numbers of unit variance that change slowly."""
    values = generator.standard_normal((n, STEPS))
    for step in range(1, STEPS):
        values[:, step] = keep * values[:, step - 1] + np.sqrt(1 - keep**2) * values[:, step]
    return values


def between_classes():
    """Three classes along one scale: annotators part at its borders, each for a while."""
    generator = np.random.default_rng(3)
    depth, borders = wander(generator, 0.95), np.array([-0.7, 0.7])
    seen = [depth + 0.4 * wander(generator, 0.9) + 0.3 * generator.standard_normal() for _ in range(5)]
    return (depth[..., None] > borders).sum(-1), np.stack([(own[..., None] > borders).sum(-1) for own in seen], -1)


def in_runs():
    """Everyone errs for a while now and then, each on their own."""
    generator = np.random.default_rng(4)
    truth = (np.abs(wander(generator, 0.95)) > 0.7) + 0
    wrong = np.stack([wander(generator, 0.9) > 1.2 for _ in range(4)], -1)
    return truth, np.where(wrong, 1 - truth[..., None], truth[..., None])


def as_chain(labels):
    mask = torch.ones(N, STEPS, dtype=torch.bool)
    return ChainData(torch.tensor(labels.astype(np.int8))[None], mask, None, STEPS, int(labels.max()) + 1)


@pytest.mark.parametrize("make", [between_classes, in_runs])
def test_shared_and_lasting_errors_leave_the_consensus_no_worse_than_votes(make):
    truth, labels = make()
    votes = (labels[..., None] == np.arange(3)).sum(-2).argmax(-1)
    assert (lt.consensus(labels).labels != truth).mean() < (votes != truth).mean() + 0.01


@pytest.mark.parametrize(("make", "bursts"), [(between_classes, False), (in_runs, True)])
def test_bursts_are_chosen_only_where_they_help_to_predict_other_annotators(make, bursts):
    truth, labels = make()
    n_classes = int(labels.max()) + 1
    hint = np.where(np.random.default_rng(0).random(truth.shape) < 0.7, truth, (truth + 1) % n_classes)
    probabilities = torch.nn.functional.one_hot(torch.tensor(hint).long(), n_classes).double().clamp_min(0.2)
    data = as_chain(labels).with_evidence((probabilities / probabilities.sum(-1, keepdim=True)).log().float()[None])
    first = torch.zeros(1, dtype=torch.int64)
    fits = Members(first, first, torch.ones(1, N))
    joined = join_evidence(data, fits, label_chain(data, fits, GRID, groups=labels.shape[-1]), GRID)
    assert (float(joined.bursts) > 0.1) == bursts
