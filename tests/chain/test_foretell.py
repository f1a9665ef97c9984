"""Annotators are judged by how well the others foretell them, which sees through errors that people share."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from chains import make_case
from labeltide.chain.annotators import FIRST, fit_annotators
from labeltide.chain.data import ChainData, Members
from labeltide.chain.foretell import judge_rows
from labeltide.chain.passes import expect
from labeltide.chain.start import join_evidence, label_chain

STEPS, N = 30, 100
GRID = np.linspace(0, 1, STEPS)


@pytest.mark.parametrize("bursts", [False, True])
def test_each_label_is_judged_by_how_much_likelier_it_makes_those_of_the_others(bursts):
    data, members, parameters = make_case(3, steps=5, annotators=3, groups=3, classes=3, bursts=bursts)
    likelihood = expect(data, members, parameters).log_likelihood
    judged = torch.tensor([[True, True, False], [True, True, True]])
    found = judge_rows(data, members, parameters, likelihood, judged)
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
    wanted = torch.where(several[members.labels] & judged, total, likelihood)
    torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4)


def test_one_q_for_all_is_judged_by_likelihood():
    data, members, parameters = make_case(4, annotators=3)
    likelihood = expect(data, members, parameters).log_likelihood
    assert judge_rows(data, members, parameters, likelihood, members.weights >= 0) is likelihood


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


@pytest.mark.parametrize(("make", "bursts"), [(between_classes, False), (in_runs, True)])
def test_runs_are_believed_only_where_they_help_to_foretell_others(make, bursts):
    truth, labels = make()
    data, choices = as_chain(labels), [FIRST, FIRST._replace(bursts=True)]
    found = fit_annotators(data, GRID, torch.arange(N) % 3, candidates=choices)
    assert found.chosen.bursts == bursts
    other = fit_annotators(data, GRID, candidates=[FIRST._replace(bursts=not bursts)])
    wrong = [float((one.posterior.argmax(-1).numpy() != truth).mean()) for one in (found, other)]
    assert wrong[0] < wrong[1]


@pytest.mark.parametrize(("make", "bursts"), [(between_classes, False), (in_runs, True)])
def test_the_same_holds_where_evidence_joins(make, bursts):
    truth, labels = make()
    n_classes = int(labels.max()) + 1
    hint = np.where(np.random.default_rng(0).random(truth.shape) < 0.7, truth, (truth + 1) % n_classes)
    said = torch.nn.functional.one_hot(torch.tensor(hint).long(), n_classes).double().clamp_min(0.2)
    data = as_chain(labels).with_evidence((said / said.sum(-1, keepdim=True)).log().float()[None])
    one = torch.zeros(1, dtype=torch.int64)
    jobs = Members(one, one, torch.ones(1, N))
    found = join_evidence(data, jobs, label_chain(data, jobs, GRID, groups=labels.shape[-1]), GRID)
    assert (float(found.parameters.bursts) > 0.1) == bursts
