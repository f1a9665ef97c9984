"""The Triton kernels do what torch's own operations do: compiled on a GPU, in Triton's interpreter elsewhere."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from triton_device import DEVICE  # isort: skip

from labeltide._fleet import member_generators
from labeltide.kernels import gru_triton as triton_gru
from labeltide.models.gru import GRULayer
from labeltide.training.state import flatten_parameters
from variants import using


def values_and_gradients(layer, kernel, features, direction):
    parameters = (layer.weight_input, layer.weight_hidden, layer.bias_input, layer.bias_hidden)
    hidden = kernel(features, *parameters) if kernel else layer(features)
    return [hidden.detach(), *torch.autograd.grad((hidden * direction).sum(), parameters)]


@settings(max_examples=12, deadline=None)
@given(
    members=st.integers(1, 3),
    batch=st.integers(1, 35),
    steps=st.integers(1, 5),
    inputs=st.integers(1, 20),
    hidden=st.sampled_from([16, 32]),
)
def test_values_and_gradients_equal_torch(members, batch, steps, inputs, hidden):
    layer = GRULayer(members, inputs, hidden).initialise(member_generators(range(members))).to(DEVICE)
    flatten_parameters(layer, members)  # parameters are views, as in training
    generator = torch.Generator().manual_seed(batch)
    features = torch.randn(members, batch, steps, inputs, generator=generator).to(DEVICE)
    direction = torch.randn(members, batch, steps, hidden, generator=generator).to(DEVICE)
    fast = values_and_gradients(layer, triton_gru.triton_gru, features, direction)
    with using("torch"):
        slow = values_and_gradients(layer, None, features, direction)
    for one, other in zip(fast, slow, strict=True):
        scale = other.abs().max().clamp_min(1.0)
        torch.testing.assert_close(one / scale, other / scale, atol=1e-5, rtol=0)


@pytest.mark.parametrize(("inputs", "hidden", "dtype"), [(3, 48, torch.float32), (3, 32, torch.float64)])
def test_what_the_kernels_are_not_written_for_is_refused(inputs, hidden, dtype):
    layer = GRULayer(1, inputs, hidden).to(dtype)
    features = torch.zeros(1, 2, 2, inputs, dtype=dtype)
    assert not triton_gru.usable(features, layer.weight_input, layer.weight_hidden, layer.bias_input, layer.bias_hidden)
