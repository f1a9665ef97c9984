"""The compiled network of Q does what torch's own operations do."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from labeltide._fleet import member_generators
from labeltide.kernels import compiled as kernel
from labeltide.noise.functions import NetworkNoise
from labeltide.training.state import flatten_parameters
from variants import using

compiled = pytest.mark.usefixtures("compiled_variant")


def make_noise(members, classes=2, bounds=(0.0, 1.0), raw_steps=None):
    """Our network, or with raw steps that of the paper's code; raw steps and scaled weights magnify rounding."""
    ours = {"scaled_weights": raw_steps is None, "bounded_logits": raw_steps is None}
    return NetworkNoise(members, classes, bounds, raw_steps, **ours).initialise(member_generators(range(members)))


def values_and_gradients(noise, clock, direction):
    matrices = noise(clock)
    return [matrices.detach(), *torch.autograd.grad((matrices * direction).sum(), list(noise.parameters()))]


def assert_both_ways_agree(noise, clock):
    assert kernel.network_usable(*noise.plan(clock))
    direction = torch.randn(noise.members, len(clock), noise.n_classes, noise.n_classes)
    fast = values_and_gradients(noise, clock, direction)
    with using("torch"):
        slow = values_and_gradients(noise, clock, direction)
    for one, other in zip(fast, slow, strict=True):
        scale = other.abs().max().clamp_min(1.0)
        torch.testing.assert_close(one / scale, other / scale, atol=1e-5, rtol=0)


@compiled
@settings(max_examples=40, deadline=None)
@given(
    members=st.integers(1, 3),
    points=st.integers(1, 40),
    classes=st.integers(2, 6),
    raw=st.booleans(),
    flat=st.booleans(),
    start=st.sampled_from([0.0, -7.0, 1.7e9]),
)
def test_compiled_values_and_gradients_equal_torch(members, points, classes, raw, flat, start):
    noise = make_noise(members, classes, (start, start + 60.0), points if raw else None)
    if flat:
        flatten_parameters(noise, members)
    assert_both_ways_agree(noise, start + torch.linspace(-700, 90, points, dtype=torch.float64))


@compiled
def test_weights_that_are_not_finite_are_never_hidden():
    noise = make_noise(1)
    with torch.no_grad():
        noise.layers[3].weight[0, 0] = float("nan")
        noise.layers[2].bias.fill_(1.0)
    assert not noise(torch.linspace(0, 1, 5, dtype=torch.float64)).isfinite().all()


@pytest.mark.parametrize("clock", [torch.rand(3, 2, dtype=torch.float64), torch.rand(4)])
def test_other_clocks_are_left_to_torch(clock):
    noise = make_noise(2)
    assert not kernel.network_usable(*noise.plan(clock))
    assert noise(clock).shape == (2, *clock.shape, 2, 2)
