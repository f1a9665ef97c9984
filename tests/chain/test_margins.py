"""Errors near class boundaries are told from errors that strike all steps alike."""

from __future__ import annotations

import numpy as np
import torch

from labeltide.chain.data import ChainData, Members
from labeltide.chain.hybrid_screen import SCREEN_WORTH, screen_hybrid
from labeltide.chain.margins import GROUPS, find_margins, margin_cells
from labeltide.chain.start import flat_chain
from labeltide.chain.timing_expect import likelihood_ratios


def simulate(near, seed=0, rows=80, steps=50):
    """Persistent labels; 30 % are wrong, at all margins alike or more often at small ones."""
    generator = np.random.default_rng(seed)
    truth = ((generator.random((rows, steps)) < 0.05).cumsum(1) + generator.integers(0, 2, (rows, 1))) % 2
    signal = 2 * (generator.standard_normal(truth.shape) + 2 * (truth - 0.5))
    rank = np.abs(signal).ravel().argsort().argsort().reshape(truth.shape) / truth.size
    wrong = generator.random(truth.shape) < (0.6 * (1 - rank) if near else 0.3)
    evidence = torch.from_numpy(np.stack([-signal / 2, signal / 2], -1)).log_softmax(-1)[None]
    mask = torch.ones(rows, steps, dtype=torch.bool)
    labels = torch.from_numpy(np.where(wrong, 1 - truth, truth).astype(np.int8))[None, ..., None]
    return ChainData(labels, mask, None, steps, 2, likelihood_ratios(evidence, mask))


def screen(data):
    zero = torch.zeros(1, dtype=torch.int64)
    return screen_hybrid(data, Members(zero, zero, torch.ones(1, len(data.mask))), flat_chain(1, 1, data, 0.8))


def test_errors_near_boundaries_are_suspected_where_they_are():
    assert screen(simulate(near=True)).margins > 2 * SCREEN_WORTH
    alike = screen(simulate(near=False))
    assert alike.margins < SCREEN_WORTH
    assert alike.timing < SCREEN_WORTH


def test_groups_of_margins_have_equal_size_at_every_moment():
    data = simulate(near=True)
    margins = find_margins(data.evidence[0])
    in_cells, cells = margin_cells(data, np.linspace(0, 1, data.n_points), margins)
    groups = in_cells.points % GROUPS
    assert np.allclose(np.bincount(groups.flatten()) / groups.numel(), 1 / GROUPS, atol=0.01)
    assert margins[groups == 0].max() <= margins[groups == GROUPS - 1].min()
    assert torch.equal(in_cells.points // GROUPS, data.places() * len(cells.moments) // data.n_points)
    assert cells.family(2, None).design.shape[:2] == (in_cells.n_points, 2)
