"""Laws that every noise function keeps."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from labeltide._fleet import member_generators
from labeltide.noise.functions import (
    FixedNoise,
    NetworkNoise,
    StaticNoise,
    StepwiseNoise,
    dominant_rows,
    identity_noise,
)
from labeltide.noise.simulate import make_noise

MEMBERS, CLASSES = 3, 4
GRID = np.array([-2.0, 0.0, 0.5, 7.0])


def random_matrices(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).dirichlet(np.ones(CLASSES), (*shape, CLASSES))


def scrambled(noise):
    """Starting values far from equal, different in every member."""
    noise.initialise(member_generators(range(MEMBERS)))
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, parameter in noise.named_parameters():
            if name == "logits":
                parameter.copy_(3 * torch.randn(parameter.shape, generator=generator))
    return noise


FUNCTIONS = {
    "fixed": FixedNoise(random_matrices(MEMBERS, len(GRID)), GRID),
    "fixed, one point": FixedNoise(random_matrices(MEMBERS, 1)),
    "static": scrambled(StaticNoise(MEMBERS, CLASSES)),
    "stepwise": scrambled(StepwiseNoise(MEMBERS, CLASSES, GRID)),
    "stepwise, one point": scrambled(StepwiseNoise(MEMBERS, CLASSES, [3.0])),
    "network": scrambled(NetworkNoise(MEMBERS, CLASSES, (-2, 7))),
    "network, one moment": scrambled(NetworkNoise(MEMBERS, CLASSES, (3, 3))),
    "network, raw steps": scrambled(NetworkNoise(MEMBERS, CLASSES, (-2, 7), raw_steps=100)),
}
LEARNED = {name: noise for name, noise in FUNCTIONS.items() if not name.startswith("fixed")}


def every(functions):
    return pytest.mark.parametrize("noise", functions.values(), ids=functions)


def assert_valid(matrices: torch.Tensor) -> None:
    assert torch.all(matrices >= 0)  # also false where anything is NaN
    torch.testing.assert_close(matrices.sum(-1), torch.ones(matrices.shape[:-1]), atol=1e-5, rtol=0)


@every(FUNCTIONS)
@settings(deadline=None, max_examples=50)
@given(moments=st.lists(st.floats(allow_nan=False), min_size=1, max_size=5))
def test_q_is_valid_at_any_moment_whatever(noise, moments):
    assert_valid(noise(torch.tensor(moments, dtype=torch.float64)))


@every(FUNCTIONS)
def test_q_is_valid_far_outside_and_constant_there(noise):
    far = noise(torch.tensor([-1e30, -1e6, 1e6, 1e30]))
    assert_valid(far)
    torch.testing.assert_close(far[:, 0], far[:, 1])
    torch.testing.assert_close(far[:, 2], far[:, 3])


@every(FUNCTIONS)
@pytest.mark.parametrize("shape", [(), (5,), (3, 5), (2, 3, 5)])
def test_q_has_the_shape_of_the_clock_behind_the_members(noise, shape):
    assert noise(torch.rand(shape)).shape == (MEMBERS, *shape, CLASSES, CLASSES)
    assert noise.at(np.zeros(shape)).shape == (*shape, CLASSES, CLASSES)


@every(FUNCTIONS)
def test_each_moment_is_answered_on_its_own(noise):
    clock = torch.linspace(-4, 9, 12).reshape(3, 4)
    whole = noise(clock)
    for i, j in np.ndindex(3, 4):
        torch.testing.assert_close(whole[:, i, j], noise(clock[i, j]))


@every(FUNCTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
def test_any_number_type_of_the_clock_will_do(noise, dtype):
    torch.testing.assert_close(noise(torch.arange(5).to(dtype)), noise(torch.arange(5.0)))


@every(FUNCTIONS)
@pytest.mark.parametrize("index", range(MEMBERS))
def test_a_member_alone_equals_its_slice_of_the_fleet(noise, index):
    clock, alone = torch.linspace(-4, 9, 12), noise.member(index)
    assert alone.members == 1
    torch.testing.assert_close(alone(clock), noise(clock)[index : index + 1])
    np.testing.assert_allclose(alone.at(clock), noise(clock)[index].detach().numpy(), atol=1e-6)


@every(FUNCTIONS)
def test_every_tensor_has_a_members_axis(noise):
    assert all(tensor.shape[0] == MEMBERS for tensor in noise.state_dict().values())


@every(FUNCTIONS)
def test_a_state_can_be_loaded_back(noise):
    clock, copy = torch.linspace(-4, 9, 12), noise.member(0)
    copy.load_state_dict(noise.member(1).state_dict())
    torch.testing.assert_close(copy(clock), noise(clock)[1:2])
    noise.load_state_dict(noise.state_dict())


@every(LEARNED)
def test_learned_rows_favour_the_truth(noise):
    diagonal = noise(torch.linspace(-4, 9, 12)).diagonal(dim1=-2, dim2=-1)
    assert torch.all(diagonal >= 0.5)


@every(LEARNED)
def test_members_of_a_fleet_do_not_mix(noise):
    noise.zero_grad()
    noise(torch.linspace(-2, 7, 6))[1].square().sum().backward()
    for parameter in noise.parameters():
        assert torch.all(parameter.grad[[0, 2]] == 0)
    assert any(parameter.grad[1].abs().sum() > 0 for parameter in noise.parameters())
    noise.zero_grad()


@pytest.mark.parametrize("raw_steps", [None, 50])
def test_a_network_member_starts_alike_alone_and_in_a_fleet(raw_steps):
    fleet = NetworkNoise(3, 2, raw_steps=raw_steps).initialise(member_generators([4, 5, 6]))
    alone = NetworkNoise(1, 2, raw_steps=raw_steps).initialise(member_generators([5]))
    for ours, theirs in zip(fleet.member(1).parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_raw_steps_are_read_as_the_step_index():
    raw = NetworkNoise(1, 2, (0, 1), raw_steps=11).initialise(member_generators([0]))
    torch.testing.assert_close(raw._scaled(torch.linspace(0, 1, 11)), torch.arange(11.0))


def test_the_networks_clock_runs_from_minus_one_to_one():
    scaled = NetworkNoise(1, 2, (1.7e9, 1.7e9 + 2))._scaled(
        torch.tensor([1.7e9, 1.7e9 + 1, 1.7e9 + 2], dtype=torch.float64)
    )
    torch.testing.assert_close(scaled, torch.tensor([-1.0, 0.0, 1.0]))


@pytest.mark.parametrize("noise", [StaticNoise(2, 3), StepwiseNoise(2, 3, GRID)])
def test_static_and_stepwise_noise_start_from_equal_logits(noise):
    expected = (np.eye(3) + np.full((3, 3), 1 / 3)) / 2
    np.testing.assert_allclose(noise.at(0.3), expected, atol=1e-6)


def test_static_noise_is_the_same_at_every_moment():
    values = FUNCTIONS["static"](torch.randn(20))
    assert torch.all(values == values[:, :1])


def test_stepwise_noise_takes_the_nearest_point():
    noise = FUNCTIONS["stepwise"]
    rows = dominant_rows(noise.logits)
    nearest = [0, 0, 1, 1, 2, 2, 3, 3]
    moments = torch.tensor([-9.0, -1.1, -0.9, 0.2, 0.3, 3.7, 3.8, 50.0])
    torch.testing.assert_close(noise(moments), rows[:, nearest])


def test_fixed_noise_is_exact_at_its_points():
    noise = FUNCTIONS["fixed"]
    torch.testing.assert_close(noise(torch.tensor(GRID)), noise.matrices, atol=0, rtol=0)


def test_neighbouring_seconds_since_1970_are_told_apart():
    grid = 1.7e9 + np.arange(4)
    fixed = FixedNoise(random_matrices(len(grid)), grid)
    np.testing.assert_allclose(fixed.at(grid), np.asarray(fixed))
    stepwise = scrambled(StepwiseNoise(MEMBERS, CLASSES, grid))
    np.testing.assert_allclose(stepwise.at(grid), dominant_rows(stepwise.logits)[0].detach().numpy())


def test_fixed_noise_runs_straight_between_its_points_and_stays_beyond_them():
    noise, points = FUNCTIONS["fixed"], random_matrices(MEMBERS, len(GRID))[0]
    np.testing.assert_allclose(noise.at(-0.5), 0.25 * points[0] + 0.75 * points[1], atol=1e-6)
    np.testing.assert_allclose(noise.at([-99, 99]), points[[0, -1]], atol=1e-6)


def test_fixed_noise_is_its_matrices_as_an_array():
    matrices = random_matrices(5)
    np.testing.assert_allclose(np.asarray(FixedNoise(matrices)), matrices, atol=1e-7)
    assert np.asarray(FixedNoise(matrices)).dtype == np.float64
    assert np.asarray(FixedNoise(matrices), dtype=np.float32).dtype == np.float32
    assert np.asarray(FixedNoise(matrices[0])).shape == (1, CLASSES, CLASSES)


def test_made_noise_answers_at_the_default_clock_with_its_steps():
    noise = make_noise("periodic", 3, 50)
    np.testing.assert_allclose(noise.at(np.arange(50) / 49), np.asarray(noise), atol=1e-6)


def test_identity_noise_changes_no_label():
    noise = identity_noise(2, 3)
    torch.testing.assert_close(noise(torch.randn(4)), torch.eye(3).expand(2, 4, 3, 3))


@pytest.mark.parametrize(
    ("matrices", "clock", "sentence"),
    [
        (np.ones(3), None, "must have shape"),
        (np.ones((2, 3)), None, "must have shape"),
        (np.ones((0, 2, 2)), None, "must have shape"),
        ([[0.9, 0.3], [0.1, 0.7]], None, "Is the matrix transposed"),
        ([[1.2, -0.2], [0, 1]], None, "no entry negative"),
        ([[np.nan, 1], [0, 1]], None, "must be a distribution"),
        (np.tile(np.eye(2), (3, 1, 1)), [0, 1], "must be 3 rising numbers"),
        (np.tile(np.eye(2), (3, 1, 1)), [0, 1, 1], "must be 3 rising numbers"),
        (np.tile(np.eye(2), (3, 1, 1)), [0, 1, np.inf], "must be 3 rising numbers"),
    ],
)
def test_bad_matrices_are_answered_with_a_sentence(matrices, clock, sentence):
    with pytest.raises(ValueError, match=sentence):
        FixedNoise(matrices, clock)


def test_noise_with_a_period_goes_round():
    noise = FixedNoise(random_matrices(len(GRID)), GRID, period=10.0)
    np.testing.assert_allclose(noise.at(GRID + 20), noise.at(GRID), atol=1e-6)
    np.testing.assert_allclose(noise.at(7.5), (noise.at(7.0) + noise.at(-2.0)) / 2, atol=1e-6)
    noise.check_covers(np.array([-100.0, 100.0]))
    with pytest.raises(ValueError, match="Got moments from -2 to 7"):
        FixedNoise(random_matrices(len(GRID)), GRID, period=9.0)


def test_a_network_driven_into_a_corner_still_has_a_gradient():
    noise = NetworkNoise(1, 2).initialise(member_generators([0]))
    with torch.no_grad():
        noise.head.bias[0, 0] = torch.tensor([-100.0, 100.0, 100.0, -100.0])  # both rows near one half
    matrices = noise(torch.tensor([0.5], dtype=torch.float64))
    assert matrices[0, 0, 0, 1] > 0.499
    gradient = torch.autograd.grad(matrices[0, 0, 0, 1], noise.head.bias)[0]
    assert (gradient[0, 0, :2].abs() > 1e-8).all()


@pytest.mark.filterwarnings("error")
def test_a_read_only_clock_is_taken_without_a_warning():
    clock = np.broadcast_to(np.linspace(0, 1, 5), (3, 5))
    noise = FixedNoise(np.stack([np.eye(2)] * 5), clock=np.linspace(0, 1, 5))
    assert noise.at(clock).shape == noise.common_at(clock).shape == (3, 5, 2, 2)
