from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from labeltide.chain.passes import ChainParameters
from labeltide.inference.bootstrap import simulate_labels
from labeltide_bench.simulated import SimulatedStudy, simulate

STEPS = 12
MATRICES = np.tile([[0.9, 0.1], [0.3, 0.7]], (STEPS, 1, 1))


def chain(bursts=None, stay=0.9, power=0.0, matrices=MATRICES):
    transition = torch.tensor([[[stay, 1 - stay], [1 - stay, stay]]])
    kept = None if bursts is None else torch.tensor([bursts])
    return ChainParameters(
        torch.tensor([[0.5, 0.5]]),
        transition,
        torch.tensor([power]),
        torch.from_numpy(matrices).float()[None, None],
        kept,
    )


@pytest.fixture
def data():
    return simulate(SimulatedStudy(MATRICES, n=40, sharpness=2.0), 1, 0).data


def test_without_mistakes_labels_persist_as_the_chain_says(data):
    drawn = simulate_labels(data, chain(matrices=np.tile(np.eye(2), (STEPS, 1, 1))), 200, 0)[..., 0]
    assert (drawn[..., 1:] == drawn[..., :-1]).float().mean().item() == pytest.approx(0.9, abs=0.01)


def test_evidence_moves_what_is_drawn(data):
    exact = np.tile(np.eye(2), (STEPS, 1, 1))
    drawn = simulate_labels(data, chain(stay=0.5, power=1.0, matrices=exact), 400, 0)[..., 0].double().mean(0)
    np.testing.assert_allclose(drawn, data.evidence[0, ..., 1].exp(), atol=0.1)


@pytest.mark.parametrize("bursts", [None, 0.7])
def test_labels_are_wrong_as_often_as_the_noise_says(data, bursts):
    known = replace(data, trusted=torch.ones(40, STEPS, dtype=torch.int8))
    drawn = simulate_labels(known, chain(bursts), 200, 0)[..., 0]
    np.testing.assert_allclose((drawn == 0).double().mean((0, 1)), 0.3, atol=0.03)
    again = (drawn[..., 1:] == drawn[..., :-1]).double().mean().item()
    assert again == pytest.approx(0.58 + (0.7 * 0.42 if bursts else 0), abs=0.02)


def test_trusted_labels_pull_their_neighbours(data):
    trusted = torch.full((40, STEPS), -1, dtype=torch.int8)
    trusted[:, 6] = 1
    exact = chain(matrices=np.tile(np.eye(2), (STEPS, 1, 1)))
    drawn = simulate_labels(replace(data, trusted=trusted), exact, 200, 0)[..., 0].double().mean((0, 1))
    assert drawn[6] == 1
    np.testing.assert_allclose(drawn[[5, 7]], 0.9, atol=0.02)


def test_gaps_and_padding_stay(data):
    labels, mask = data.labels.clone(), data.mask.clone()
    labels[0, 3, 4], mask[5, 8:] = -1, False
    drawn = simulate_labels(replace(data, labels=labels, mask=mask), chain(), 5, 0)
    assert (drawn[:, 3, 4] == -1).all()
    assert (drawn[:, 5, 8:] == -1).all()
    assert int((drawn == -1).sum()) == 5 * 5


def test_labels_forget_over_a_gap_in_time_and_bursts_end_there(data):
    jumps = torch.zeros(40, STEPS, dtype=torch.int8)
    jumps[:, 6] = 1
    apart = replace(data, jumps=jumps, gaps=(1, 8))
    exact = chain(matrices=np.tile(np.eye(2), (STEPS, 1, 1)))
    drawn = simulate_labels(apart, exact, 200, 0)[..., 0]
    stays = (drawn[..., 1:] == drawn[..., :-1]).double().mean((0, 1))
    np.testing.assert_allclose(stays[[4, 5, 6]], [0.9, (1 + 0.8**8) / 2, 0.9], atol=0.02)
    known = replace(apart, trusted=torch.ones(40, STEPS, dtype=torch.int8))
    drawn = simulate_labels(known, chain(0.7), 200, 0)[..., 0]
    again = (drawn[..., 1:] == drawn[..., :-1]).double().mean((0, 1))
    np.testing.assert_allclose(again[[4, 5, 6]], [0.58 + 0.7 * 0.42, 0.58, 0.58 + 0.7 * 0.42], atol=0.03)


def test_each_annotator_errs_by_their_own_noise(data):
    known = replace(data, labels=data.labels.expand(-1, -1, -1, 2), trusted=torch.ones(40, STEPS, dtype=torch.int8))
    both = torch.stack([torch.tensor(MATRICES), torch.eye(2).double().expand(STEPS, -1, -1)])[None].float()
    drawn = simulate_labels(known, chain()._replace(matrices=both), 100, 0)
    np.testing.assert_allclose((drawn == 0).double().mean((0, 1, 2)), [0.3, 0.0], atol=0.02)
