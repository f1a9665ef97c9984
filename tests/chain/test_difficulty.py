"""Noise by level of difficulty: levels, offsets of logits, averages over levels, and when levels are looked for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from labeltide.chain.data import ChainData, Members
from labeltide.chain.difficulty import (
    LEVELS,
    _offsets,
    _some_rows,
    average_levels,
    find_cells,
    is_suspected,
    margins,
    nearest_moments,
)
from labeltide.chain.em import fit_chains
from labeltide.chain.families import constant_shape, family, spline_shape
from labeltide.chain.pooled import families_of
from labeltide.chain.start import flat_chain, label_chain

LEFT_OUT = torch.zeros(1, dtype=torch.int64)


def softmax(logits):
    powers = np.exp(logits)
    return powers / powers.sum(-1, keepdims=True)


def noise_with_levels(n_moments=5, n_levels=4, n_classes=3, seed=0):
    """Q by moment and level whose logits are a constant plus an effect of the level by true class."""
    generator = np.random.default_rng(seed)
    level = np.linspace(1.5, -1.5, n_levels)[:, None] * generator.uniform(0.5, 1, n_classes)
    level -= level.mean(0)
    constant = generator.normal(-2, 0.3, (n_classes, n_classes))
    logits = np.tile(constant + level[:, :, None], (n_moments, 1, 1))
    logits[:, np.arange(n_classes), np.arange(n_classes)] = 0
    return softmax(logits), level


def simulate(rows=200, steps=40, wrong_by_margin=True, seed=0):
    """Labels that persist, evidence of their features, and labels recorded wrongly near the boundary or anywhere."""
    generator = np.random.default_rng(seed)
    truth = ((generator.random((rows, steps)) < 0.05).cumsum(1) + generator.integers(0, 2, (rows, 1))) % 2
    logit = 2 * generator.standard_normal((rows, steps)) + 2 * (2 * truth - 1)
    rank = np.abs(logit).ravel().argsort().argsort().reshape(truth.shape) / truth.size
    rate = 0.6 * (1 - rank) if wrong_by_margin else np.full(truth.shape, 0.3)
    labels = np.where(generator.random(truth.shape) < rate, 1 - truth, truth)
    evidence = torch.from_numpy(np.stack([-logit / 2, logit / 2], -1)).float().log_softmax(-1)
    data = ChainData(
        torch.from_numpy(labels.astype(np.int8))[None, ..., None],
        torch.ones(rows, steps, dtype=torch.bool),
        None,
        steps,
        2,
        evidence=evidence[None],
    )
    return data, Members(LEFT_OUT, LEFT_OUT, torch.ones(1, rows))


def test_the_margin_is_the_difference_of_the_two_largest_log_probabilities():
    assert margins(torch.tensor([[-1.0, -3.0, -0.5], [-2.0, -2.0, -9.0]])).tolist() == [0.5, 0.0]


def test_a_cell_is_a_moment_and_a_level_and_the_level_varies_fastest():
    evidence = torch.tensor([[[0.0, -0.5], [0.0, -1.5], [0.0, -1.0]]])
    cells = find_cells(np.array([[0, 0, 2]]), evidence, np.array([1.0]))
    assert cells.tolist() == [[0, 1, 5]]  # a margin at the threshold belongs to the easier level


def test_moments_are_those_of_the_grid_where_they_are_few():
    axis, nearest = nearest_moments(np.array([0.0, 1.0, 4.0]), 5)
    assert axis.tolist() == [0.0, 1.0, 4.0]
    assert nearest.tolist() == [0, 1, 2]
    axis, nearest = nearest_moments(np.linspace(0, 1, 101), 5)
    assert len(axis) == 5
    assert np.abs(axis[nearest] - np.linspace(0, 1, 101)).max() <= 0.125


def test_an_average_over_levels_is_weighted_by_the_labels_of_each_true_class():
    matrices, _ = noise_with_levels(2, 3)
    totals = np.random.default_rng(1).uniform(1, 9, (6, 3))
    averaged = average_levels(matrices, totals, 3)
    np.testing.assert_allclose(averaged.sum(-1), 1)
    expected = sum(totals[3 + d, 1] * matrices[3 + d, 1] for d in range(3)) / totals[3:, 1].sum()
    np.testing.assert_allclose(averaged[1, 1], expected, atol=1e-8)


@pytest.mark.parametrize("pooling", [None, 1.0])
def test_a_family_with_offsets_finds_the_noise_that_they_belong_to(pooling):
    matrices, level = noise_with_levels()
    kind = family(3, constant_shape(np.repeat(np.arange(5.0), 4)), "each")._replace(pooling=pooling)
    families = families_of([kind], offsets=torch.from_numpy(level))
    start = torch.from_numpy(matrices)[None, None]
    np.testing.assert_allclose(families.noise(families.fit_start(start))[0, 0], matrices, atol=1e-4)


def test_offsets_are_the_effect_of_the_level_on_wrong_labels():
    matrices, level = noise_with_levels(6, LEVELS)
    np.testing.assert_allclose(_offsets(torch.from_numpy(matrices)), level, atol=1e-6)


def test_offsets_of_zero_change_nothing():
    data, member = simulate(rows=30)
    shape = spline_shape(np.arange(40.0), 10.0)
    plain = fit_chains(data, member, families_of([family(2, shape, "each")]), flat_chain(1, 1, data), iterations=5)
    cells = torch.arange(40).expand(30, -1) * 2 + torch.randint(
        0, 2, (30, 40), generator=torch.Generator().manual_seed(0)
    )
    by_level = replace(data, points=cells, n_points=80, offsets=torch.zeros(2, 2, dtype=torch.float64))
    lifted = family(2, shape._replace(basis=np.repeat(shape.basis, 2, 0)), "each")
    start = flat_chain(1, 1, by_level)
    found = fit_chains(by_level, member, families_of([lifted], offsets=by_level.offsets), start, iterations=5)
    matrices = found.parameters.matrices[0, 0].unflatten(0, (40, 2))
    np.testing.assert_allclose(matrices[:, 0], matrices[:, 1], atol=1e-6)
    np.testing.assert_allclose(matrices[:, 0], plain.parameters.matrices[0, 0], atol=1e-4)


@pytest.mark.parametrize("near", [True, False])
def test_levels_are_looked_for_where_hard_steps_disagree_with_their_neighbours(near):
    data, member = simulate(wrong_by_margin=near)
    chain = label_chain(data, member, np.arange(40.0))
    assert is_suspected(data, member, chain).tolist() == [near]
    assert is_suspected(data.with_evidence(None), member, chain).tolist() == [False]


def test_some_rows_are_distinct_and_spread():
    rows = _some_rows(torch.ones(5000, 100, dtype=torch.bool))
    assert len(rows.unique()) == len(rows) == 327
    assert rows[0] == 0
    assert rows[-1] == 4999
    assert _some_rows(torch.ones(3, 10, dtype=torch.bool)).tolist() == [0, 1, 2]
