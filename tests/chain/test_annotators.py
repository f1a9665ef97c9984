"""Annotators: each one's Q(t) is found, drift is told from constancy, and few labels lean on the others."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import labeltide as lt
from labeltide.chain.em import choose_noise, join_evidence, label_chain
from labeltide.chain.passes import ChainData, Members

STEPS = 20
GRID = np.linspace(0, 1, STEPS)
RATES = np.stack([np.full(STEPS, 0.1), np.linspace(0.02, 0.45, STEPS), np.full(STEPS, 0.2)])


def study(n=120, rates=RATES, seed=0):
    truth = lt.make_sequences(n=n, n_steps=STEPS, n_features=2, stay=0.9, random_state=seed).labels[..., 0]
    wrong = np.random.default_rng(seed).random((n, STEPS, len(rates))) < rates.T
    labels = torch.tensor(np.where(wrong, 1 - truth[..., None], truth[..., None]).astype(np.int8))
    return ChainData(labels[None], torch.ones(n, STEPS, dtype=torch.bool), None, STEPS, 2), truth


@pytest.fixture(scope="module")
def two_jobs():
    """Annotators who differ, and annotators who are alike, as two fits of one fleet; evidence that says a little."""
    parts = [study(rates=RATES), study(rates=RATES[[1, 1, 1]])]
    right = torch.nn.functional.one_hot(torch.tensor(parts[0][1]).long(), 2).float()  # both have the same true labels
    evidence = (0.3 + 0.4 * right).log().expand(2, -1, -1, -1)
    labels = torch.cat([data.labels for data, _ in parts])
    return ChainData(labels, parts[0][0].mask, None, STEPS, 2, evidence)


def choose(data):
    each = torch.arange(len(data.labels))
    fits = Members(each, each, torch.ones(len(each), 120))
    folds = (torch.arange(120) % 3).expand(len(each), -1)
    start = join_evidence(data, fits, label_chain(data, fits, GRID, groups=3), GRID)
    return choose_noise(data, fits, start, folds, GRID)


@pytest.fixture(scope="module")
def chosen(two_jobs):
    return choose(two_jobs)


def test_how_alike_annotators_are_is_chosen_for_each_job(chosen):
    mean = [sum(tried.weight * np.log10(tried.pooling) for tried in chosen.weighted(fit)) for fit in (0, 1)]
    assert mean[0] < 1 < mean[1]
    noise = chosen.parameters.matrices[:, :, :, 0, 1].numpy()
    assert np.abs(noise[0] - RATES).mean() < 0.03
    assert np.abs(noise[1] - RATES[1]).mean() < 0.03


def test_annotators_of_one_job_do_not_touch_another(two_jobs, chosen):
    evidence = two_jobs.evidence[:1]
    alone = choose(ChainData(two_jobs.labels[:1], two_jobs.mask, None, STEPS, 2, evidence))
    torch.testing.assert_close(alone.parameters.matrices[0], chosen.parameters.matrices[0], atol=1e-5, rtol=0)


def test_shares_of_labels_leave_gaps_and_padding_out():
    labels = torch.tensor([[[[0, 1], [1, -1]], [[-1, 1], [0, 0]]]], dtype=torch.int8)
    mask = torch.tensor([[True, True], [True, False]])
    data = ChainData(labels, mask, None, 2, 2)
    torch.testing.assert_close(data.label_shares(), torch.tensor([[0.5, 0.5]], dtype=torch.float64))
