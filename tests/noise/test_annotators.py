"""Noise functions in which every annotator has an own Q."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from labeltide._fleet import stack
from labeltide.noise.fixed import FixedNoise

MEMBERS, ANNOTATORS, CLASSES = 2, 3, 4
GRID = np.array([-2.0, 0.0, 0.5, 7.0])
MOMENTS = np.linspace(-4, 9, 12)


def random_matrices(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).dirichlet(np.ones(CLASSES), (*shape, CLASSES))


def fixed(**more) -> FixedNoise:
    return FixedNoise(random_matrices(MEMBERS, ANNOTATORS, len(GRID)), GRID, **more)


@pytest.mark.parametrize("shape", [(), (5,), (3, 5)])
def test_annotators_stand_between_members_and_the_clock(shape):
    noise = fixed()
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


def test_members_with_annotators_can_be_taken_out_and_stacked():
    noise = fixed(common=random_matrices(MEMBERS, len(GRID)))
    parts = [noise.member(index) for index in range(MEMBERS)]
    for index, alone in enumerate(parts):
        np.testing.assert_allclose(alone.at(MOMENTS), noise(torch.from_numpy(MOMENTS))[index], atol=1e-6)
    again = stack(parts)
    assert (again.members, again.annotators) == (MEMBERS, ANNOTATORS)
    torch.testing.assert_close(again(torch.from_numpy(MOMENTS)), noise(torch.from_numpy(MOMENTS)))
    torch.testing.assert_close(again.common(torch.from_numpy(MOMENTS)), noise.common(torch.from_numpy(MOMENTS)))


def test_the_clock_of_annotators_must_be_covered():
    fixed().check_covers(GRID)
    with pytest.raises(ValueError, match="clock from -2 to 7"):
        fixed().check_covers(GRID + 3)
