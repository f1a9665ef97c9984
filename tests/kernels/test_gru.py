"""The compiled GRU does what torch's own operations do."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from labeltide._fleet import member_generators
from labeltide.kernels import compiled as kernel
from labeltide.kernels import library
from labeltide.models.gru import GRULayer, GRUModel
from labeltide.training.state import flatten_parameters
from variants import using

compiled = pytest.mark.usefixtures("compiled_variant")


def make_layer(members=2, inputs=3, hidden=32):
    return GRULayer(members, inputs, hidden).initialise(member_generators(range(members)))


def values_and_gradients(layer, features, direction):
    hidden = layer(features)
    gradients = torch.autograd.grad((hidden * direction).sum(), list(layer.parameters()))
    return [hidden.detach(), *gradients]


def assert_both_ways_agree(layer, features):
    direction = torch.randn(*features.shape[:3], layer.hidden_size, generator=torch.Generator().manual_seed(1))
    fast = values_and_gradients(layer, features, direction)
    with using("torch"):
        slow = values_and_gradients(layer, features, direction)
    summed = 0.1 * features.abs().max()  # gradients sum products with the features, whose rounding grows with them
    for one, other in zip(fast, slow, strict=True):
        scale = torch.maximum(other.abs().max(), summed).clamp_min(1.0)
        torch.testing.assert_close(one / scale, other / scale, atol=1e-5, rtol=0)


@compiled
@settings(max_examples=30, deadline=None)
@given(
    members=st.integers(1, 4),
    batch=st.integers(1, 20),
    steps=st.integers(1, 12),
    inputs=st.integers(1, 11),
    hidden=st.sampled_from([1, 7, 16, 32, 33, 64, 96]),
    scale=st.sampled_from([0.1, 1.0, 30.0]),
    threads=st.integers(1, 3),
)
def test_compiled_values_and_gradients_equal_torch(members, batch, steps, inputs, hidden, scale, threads):
    generator = torch.Generator().manual_seed(batch)
    features = scale * torch.randn(members, batch, steps, inputs, generator=generator)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert_both_ways_agree(make_layer(members, inputs, hidden), features)
    finally:
        torch.set_num_threads(before)


@compiled
@settings(max_examples=40, deadline=None)
@given(
    members=st.integers(1, 3),
    batch=st.integers(1, 20),
    steps=st.integers(1, 12),
    hidden=st.sampled_from([3, 8, 31, 32, 40, 64]),
    classes=st.integers(2, 127),
    flat=st.booleans(),
)
def test_compiled_head_equals_torch(members, batch, steps, hidden, classes, flat):
    model = GRUModel(members, 5, classes, hidden_size=hidden).initialise(member_generators(range(members)))
    if flat:
        flatten_parameters(model, members)
    generator = torch.Generator().manual_seed(batch)
    features = torch.randn(members, batch, steps, 5, generator=generator)
    direction = torch.randn(members, batch, steps, classes, generator=generator)
    direction[:, batch // 2 :] = 0  # rows that only fill up
    mask = torch.ones(members, batch, steps, dtype=torch.bool)

    def both() -> list[torch.Tensor]:
        logits = model(features, mask)
        return [logits.detach(), *torch.autograd.grad((logits * direction).sum(), list(model.parameters()))]

    fast = both()
    with using("torch"):
        slow = both()
    for one, other in zip(fast, slow, strict=True):
        scale = other.abs().max().clamp_min(1.0)
        torch.testing.assert_close(one / scale, other / scale, atol=1e-5, rtol=0)


@compiled
def test_rows_that_fill_up_change_no_bit_of_the_gradient():
    model = GRUModel(1, 3, 2).initialise(member_generators([0]))
    features, direction = torch.randn(1, 40, 6, 3), torch.randn(1, 40, 6, 2)
    direction[:, 11:] = 0

    def gradients(rows: int) -> list[torch.Tensor]:
        logits = model(features[:, :rows], torch.ones(1, rows, 6, dtype=torch.bool))
        return list(torch.autograd.grad((logits * direction[:, :rows]).sum(), list(model.parameters())))

    for one, other in zip(gradients(11), gradients(40), strict=True):
        assert torch.equal(one, other)


@compiled
def test_parameters_may_be_views_of_one_buffer():
    layer = make_layer(3)
    flatten_parameters(layer, 3)
    assert not layer.weight_hidden.is_contiguous()
    assert kernel.gru_usable(torch.zeros(3, 2, 2, 3), *layer.parameters())
    assert_both_ways_agree(layer, torch.randn(3, 9, 5, 3))


@compiled
def test_infinite_weights_are_never_hidden():
    layer = make_layer(1)
    with torch.no_grad():
        layer.weight_hidden[0, 0, :] = float("nan")
    assert not layer(torch.randn(1, 4, 3, 3)).isfinite().all()


@pytest.mark.parametrize(
    ("features", "hidden"),
    [
        (torch.zeros(2, 4, 5, 3, dtype=torch.float64), 32),
        (torch.zeros(2, 4, 5, 3, requires_grad=True), 32),
    ],
)
def test_what_the_compiled_layer_is_not_written_for_is_left_to_torch(features, hidden):
    layer = make_layer(2, 3, hidden).to(features.dtype)
    assert not kernel.gru_usable(features, *layer.parameters())
    assert layer(features).shape == (2, 4, 5, hidden)


def test_without_a_compiler_torch_does_the_work(monkeypatch):
    monkeypatch.setattr(library, "runnable", lambda: ())
    monkeypatch.delenv(library.ENVIRONMENT, raising=False)
    assert library.active() is None
    assert make_layer()(torch.zeros(2, 4, 5, 3)).shape == (2, 4, 5, 32)


@compiled
def test_a_member_gets_the_same_bits_alone_and_in_a_fleet_and_from_any_number_of_threads():
    layer = make_layer(3)
    features, direction = torch.randn(3, 37, 9, 3), torch.randn(3, 37, 9, 32)
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            results.append([part[1] for part in values_and_gradients(layer, features, direction)])
            alone = values_and_gradients(layer.member(1), features[1:2], direction[1:2])
            results.append([part[0] for part in alone])
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))
