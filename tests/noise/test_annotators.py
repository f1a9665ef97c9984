"""Noise functions in which every annotator has an own Q."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from labeltide._fleet import member_generators, stack
from labeltide.noise.functions import FixedNoise, NetworkNoise, StepwiseNoise
from variants import using

MEMBERS, ANNOTATORS, CLASSES = 2, 3, 4
GRID = np.array([-2.0, 0.0, 0.5, 7.0])
MOMENTS = np.linspace(-4, 9, 12)


def random_matrices(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).dirichlet(np.ones(CLASSES), (*shape, CLASSES))


def fixed(**more) -> FixedNoise:
    return FixedNoise(random_matrices(MEMBERS, ANNOTATORS, len(GRID)), GRID, **more)


def network() -> NetworkNoise:
    return moved(NetworkNoise(MEMBERS, CLASSES, (-2, 7), annotators=ANNOTATORS))


def stepwise() -> StepwiseNoise:
    return moved(StepwiseNoise(MEMBERS, CLASSES, GRID, ANNOTATORS))


def moved(noise):
    """Annotators that differ."""
    noise.initialise(member_generators(range(MEMBERS)))
    with torch.no_grad():
        for parameter in noise.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(5))
    noise.shares[:] = torch.tensor([0.5, 0.4, 0.1])
    return noise


every_kind = pytest.mark.parametrize("make", [fixed, network, stepwise])
every_learned = pytest.mark.parametrize("make", [network, stepwise])


@every_kind
@pytest.mark.parametrize("shape", [(), (5,), (3, 5)])
def test_annotators_stand_between_members_and_the_clock(make, shape):
    noise = make()
    assert noise.annotators == ANNOTATORS
    assert noise(torch.zeros(shape)).shape == (MEMBERS, ANNOTATORS, *shape, CLASSES, CLASSES)
    assert noise.at(np.zeros(shape)).shape == (ANNOTATORS, *shape, CLASSES, CLASSES)
    assert noise.common(torch.zeros(shape)).shape == (MEMBERS, *shape, CLASSES, CLASSES)
    assert noise.common_at(np.zeros(shape)).shape == (*shape, CLASSES, CLASSES)


def test_each_annotators_fixed_noise_is_that_of_its_own_matrices():
    matrices = random_matrices(MEMBERS, ANNOTATORS, len(GRID))
    whole = FixedNoise(matrices, GRID)(torch.from_numpy(MOMENTS))
    for annotator in range(ANNOTATORS):
        alone = FixedNoise(matrices[:, annotator], GRID)(torch.from_numpy(MOMENTS))
        torch.testing.assert_close(whole[:, annotator], alone, atol=0, rtol=0)


def test_the_common_noise_is_what_is_given_or_the_average():
    common = random_matrices(MEMBERS, len(GRID))
    np.testing.assert_allclose(fixed(common=common).common_at(GRID), common[0], atol=1e-6)
    np.testing.assert_allclose(fixed().common_at(MOMENTS), fixed().at(MOMENTS).mean(0), atol=1e-6)
    with pytest.raises(ValueError, match="without annotators"):
        fixed(common=random_matrices(MEMBERS, ANNOTATORS, len(GRID)))


def test_one_annotator_has_no_axis_and_is_the_common_noise():
    noise = FixedNoise(random_matrices(MEMBERS, 1, len(GRID)), GRID)
    assert noise.annotators == 1
    assert noise(torch.zeros(5)).shape == (MEMBERS, 5, CLASSES, CLASSES)
    np.testing.assert_array_equal(noise.common_at(MOMENTS), noise.at(MOMENTS))


@every_kind
def test_members_with_annotators_can_be_taken_out_and_stacked(make):
    noise = make()
    parts = [noise.member(index) for index in range(MEMBERS)]
    for index, alone in enumerate(parts):
        np.testing.assert_allclose(alone.at(MOMENTS), noise(torch.from_numpy(MOMENTS))[index].detach(), atol=1e-6)
    again = stack(parts)
    assert (again.members, again.annotators) == (MEMBERS, ANNOTATORS)
    torch.testing.assert_close(again(torch.from_numpy(MOMENTS)), noise(torch.from_numpy(MOMENTS)))
    torch.testing.assert_close(again.common(torch.from_numpy(MOMENTS)), noise.common(torch.from_numpy(MOMENTS)))


def test_the_clock_of_annotators_must_be_covered():
    fixed().check_covers(GRID)
    with pytest.raises(ValueError, match="clock from -2 to 7"):
        fixed().check_covers(GRID + 3)


@every_learned
def test_annotators_start_alike_as_one_alone_would(make):
    noise = make().initialise(member_generators(range(MEMBERS)))
    alone = type(noise)(MEMBERS, CLASSES, (-2, 7) if make is network else GRID)
    alone.initialise(member_generators(range(MEMBERS)))
    clock = torch.from_numpy(MOMENTS)
    torch.testing.assert_close(noise(clock), alone(clock)[:, None].expand(-1, ANNOTATORS, -1, -1, -1))


@every_learned
def test_the_common_noise_of_learned_ones_is_weighed_by_their_shares_of_the_labels(make):
    noise, weights = make(), np.array([0.5, 0.4, 0.1])
    np.testing.assert_allclose(
        noise.common_at(MOMENTS), np.einsum("a,atij->tij", weights, noise.at(MOMENTS)), atol=1e-6
    )


@every_learned
def test_tied_annotators_are_one(make):
    noise = make()
    before = noise(torch.from_numpy(MOMENTS))
    noise.tied[1] = True
    after = noise(torch.from_numpy(MOMENTS))
    torch.testing.assert_close(after[0], before[0])
    torch.testing.assert_close(after[1], before[1].mean(0, keepdim=True).expand_as(after[1]))
    gradients = torch.autograd.grad((after[1, 0] ** 2).sum(), list(noise.parameters()))
    assert any(bool((gradient[1, 2] != 0).any()) for gradient in gradients)


@pytest.mark.usefixtures("compiled_variant")
def test_compiled_networks_of_annotators_equal_torch():
    noise, clock = network(), torch.from_numpy(MOMENTS)
    compiled = noise(clock)
    weights = torch.randn(compiled.shape)
    gradients = torch.autograd.grad((weights * compiled).sum(), list(noise.parameters()))
    with using("torch"):
        plain = noise(clock)
    torch.testing.assert_close(compiled, plain)
    for one, other in zip(
        gradients, torch.autograd.grad((weights * plain).sum(), list(noise.parameters())), strict=True
    ):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)
