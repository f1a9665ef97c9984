"""When errors in bursts are part of a chain: they must beat networks that fail in runs."""

import numpy as np
import pytest
import torch

import labeltide as lt
from chains import make_case
from labeltide.chain import em
from labeltide.chain.em import failing_networks, join_evidence, label_chain
from labeltide.chain.passes import ChainData, Members, expect

ROWS, STEPS, CLASSES, RUN = 60, 50, 3, 8
GRID = np.linspace(0, 1, STEPS)


def in_runs(generator, share):
    """Runs of steps that cover about this share of all: bool (rows, steps)."""
    inside = np.zeros((ROWS, STEPS), dtype=bool)
    for row, step in zip(*np.nonzero(generator.random(inside.shape) < share / RUN), strict=True):
        inside[row, step : step + RUN] = True
    return inside


def study(of_networks=0.0, of_labels=0.0):
    """Clean labels and evidence of good networks, each of which is wrong in runs."""
    generator = np.random.default_rng(0)
    truth = lt.make_sequences(ROWS, STEPS, 1, n_classes=CLASSES, stay=0.93, random_state=0).labels[..., 0]
    seen = np.where(in_runs(generator, of_networks), (truth + 1) % CLASSES, truth)
    recorded = np.where(in_runs(generator, of_labels), (truth + 1) % CLASSES, truth)
    logits = 3.0 * np.eye(CLASSES)[seen] + generator.standard_normal((ROWS, STEPS, CLASSES))
    evidence = torch.from_numpy(logits).log_softmax(-1).float()[None]
    labels = torch.from_numpy(recorded.astype(np.int8))[None, ..., None]
    mask = torch.ones(ROWS, STEPS, dtype=torch.bool)
    return ChainData(labels, mask, None, STEPS, CLASSES).with_evidence(evidence), truth


def fit(data):
    first = torch.zeros(1, dtype=torch.int64)
    fits = Members(first, first, torch.ones(1, ROWS))
    found = join_evidence(data, fits, label_chain(data, fits, GRID), GRID, clusters=torch.arange(ROWS) // 3)
    posterior = expect(data, fits, found, posterior=True).posterior
    return float(found.bursts), posterior[0].argmax(-1).numpy()


def test_errors_in_bursts_are_found_with_three_classes():
    data, truth = study(of_labels=0.3)
    bursts, suggested = fit(data)
    wrong = (data.labels[0, ..., 0].numpy() != truth).mean()
    assert wrong > 0.15
    assert bursts > 0.5
    assert (suggested != truth).mean() < wrong / 3


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_runs_in_which_networks_fail_are_not_taken_for_errors(share):
    data, truth = study(of_networks=share)
    bursts, suggested = fit(data)
    assert bursts == 0
    assert (suggested != truth).mean() < 0.02


@pytest.mark.parametrize("jumps", [False, True])
def test_networks_that_hardly_ever_fail_leave_the_likelihood_of_the_chain(monkeypatch, jumps):
    monkeypatch.setattr(em, "RUN_BEGINS", (1e-9,))
    monkeypatch.setattr(em, "RUN_ENDS", (0.5,))
    monkeypatch.setattr(em, "RUN_POWERS", (1.0,))
    data, members, parameters = make_case(3, steps=6, annotators=1, groups=1, classes=3, jumps=jumps)
    expected = expect(data, members, parameters).log_likelihood
    torch.testing.assert_close(failing_networks(data, members, parameters), expected, rtol=1e-4, atol=1e-4)
