"""Partial pooling: its limits, its climb, and one step against the plain Newton step of the whole problem."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from labeltide.chain.families import (
    constant_shape,
    families_of,
    family,
    hold_annotator,
    pooled,
    spline_shape,
)

GRID = np.linspace(0, 1, 12)


def some_counts(per_point=(400.0, 40.0, 0.0), n_classes=2) -> torch.Tensor:
    """Expected counts of annotators with many labels, few, and none: (1, annotators, points, classes, classes)."""
    rates = [0.1 + 0.3 * GRID, 0.4 - 0.2 * GRID, 0.2 + 0 * GRID]
    parts = []
    for rate, many in zip(rates, per_point, strict=True):
        matrix = np.full((12, n_classes, n_classes), 1.0) * (rate / (n_classes - 1))[:, None, None]
        matrix[:, np.arange(n_classes), np.arange(n_classes)] = (1 - rate)[:, None]
        parts.append(many * matrix)
    return torch.tensor(np.stack(parts))[None]


def fitted(kinds, counts, steps=30):
    flat = torch.full_like(counts, 1.0).div(counts.shape[-1]).add(torch.eye(counts.shape[-1]))
    coefficients = kinds.fit_start(flat / flat.sum(-1, keepdim=True))
    for _ in range(steps):
        coefficients = kinds.step(coefficients, counts)
    return coefficients


def objective(kinds, beta, counts):
    """The log-likelihood of counts and both priors, written out."""
    (group,) = kinds.groups
    prior, penalty = (torch.block_diag(*blocks[0]) for blocks in (kinds._prior(group), group.blocks.penalty))
    apart = beta[:, 1:] - beta[:, :1]
    cost = (apart @ prior * apart).sum() + (beta[:, :1] @ penalty * beta[:, :1]).sum()
    return (counts * kinds._noise(group, beta[:, 1:]).log()).sum() - cost / 2


@pytest.mark.parametrize("strength", [0.01, 1.0, 1e6])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_steps_end_where_nothing_can_be_gained(strength, n_classes):
    kinds = families_of([pooled(family(n_classes, spline_shape(GRID, 1.0), "each", "by class"), strength)])
    counts = some_counts(n_classes=n_classes)
    (beta,) = fitted(kinds, counts)
    beta = beta.clone().requires_grad_()
    (slope,) = torch.autograd.grad(objective(kinds, beta, counts), beta)
    assert slope.abs().max() < 1e-4 * max(1.0, strength * 1e-3)


def test_without_labels_an_annotator_is_the_common_one_and_with_few_lies_between():
    kinds = families_of([pooled(family(2, constant_shape(GRID), "each"), 5.0)])
    alone = families_of([family(2, constant_shape(GRID), "each")])
    counts = some_counts((400.0, 1.0, 0.0))
    (beta,), own = fitted(kinds, counts), fitted(alone, counts[:, :2])
    noise, common = kinds.noise([beta])[0, :, 0, 0, 1], kinds._noise(kinds.groups[0], beta[:, :1])[0, 0, 0, 0, 1]
    assert noise[2] == pytest.approx(float(common), abs=1e-4)
    apart = alone.noise(own)[0, :, 0, 0, 1]
    assert abs(noise[0] - apart[0]) < 0.01
    assert abs(noise[1] - common) < abs(apart[1] - common)


def test_strong_pooling_is_one_q_for_all_and_weak_pooling_is_each_alone():
    shape = family(2, spline_shape(GRID, 1.0), "each", "each")
    counts = some_counts((400.0, 400.0, 400.0))
    strong, weak = (families_of([pooled(shape, strength)]) for strength in (1e7, 1e-6))
    together = families_of([shape])
    alike = together.noise(fitted(together, counts.sum(1, keepdim=True)))
    assert torch.allclose(strong.noise(fitted(strong, counts)), alike.expand(-1, 3, -1, -1, -1), atol=2e-3)
    assert torch.allclose(weak.noise(fitted(weak, counts)), together.noise(fitted(together, counts)), atol=0.01)


def test_members_with_other_strengths_do_not_mix():
    shapes = [family(2, spline_shape(GRID, 1.0), "each"), family(2, constant_shape(GRID), "each")]
    strengths = (1.0, 10.0, 100.0)
    both = families_of(
        [pooled(shape, strength) for shape, strength in zip([*shapes, shapes[0]], strengths, strict=True)]
    )
    counts = some_counts()
    noise = both.noise(fitted(both, counts.expand(3, -1, -1, -1, -1)))
    for member, (shape, strength) in enumerate([(shapes[0], 1.0), (shapes[1], 10.0), (shapes[0], 100.0)]):
        alone = families_of([pooled(shape, strength)])
        assert torch.allclose(noise[member], alone.noise(fitted(alone, counts))[0], atol=1e-5)


def test_who_is_held_does_not_move_and_the_others_gain_all_they_can():
    free = family(2, spline_shape(GRID, 1.0), "each", "each")
    kinds = families_of([hold_annotator(pooled(free, 0.1), 1)])
    counts = some_counts()
    (beta,) = fitted(kinds, counts)
    noise = kinds.noise([beta])[0]
    assert np.ptp(noise[1].numpy(), axis=0).max() < 1e-4
    assert np.ptp(noise[0, :, 0, 1].numpy()) > 0.2
    moving = kinds.groups[0].blocks.moving()
    assert moving.tolist() == ([False] + [True] * (free.of_class - 1)) * 2
    beta = beta.clone().requires_grad_()
    (slope,) = torch.autograd.grad(objective(kinds, beta, counts), beta)
    assert slope[:, [0, 1, 3]].abs().max() < 1e-3  # the common one and the free annotators
    assert slope[:, 2, ~moving].abs().max() < 1e-3  # the level of the held one


def test_holding_works_without_pooling_too():
    kinds = families_of([hold_annotator(family(2, spline_shape(GRID, 1.0), "each", "each"), 0)])
    noise = kinds.noise(fitted(kinds, some_counts()))[0]
    assert np.ptp(noise[0].numpy(), axis=0).max() < 1e-4
    assert noise[0, 0, 0, 1] == pytest.approx(0.25, abs=0.01)  # the mean of 0.1 + 0.3 t
    assert np.ptp(noise[1, :, 0, 1].numpy()) > 0.1
