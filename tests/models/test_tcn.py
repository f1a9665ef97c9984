import pytest
import torch
from torch.nn.functional import conv1d, linear, relu

from labeltide.models.tcn import DILATIONS, TCNModel
from models.laws import (
    LENGTHS,
    N_FEATURES,
    assert_causal,
    assert_close,
    assert_looks_ahead,
    assert_obeys_every_law,
    make_features,
    ragged_mask,
    run,
    started,
)


def make_tcn(members, causal=True):
    return TCNModel(members, N_FEATURES, 2, hidden_size=8, causal=causal)


@pytest.mark.parametrize("causal", [True, False])
def test_tcn_obeys_every_law(causal):
    assert_obeys_every_law(lambda members: make_tcn(members, causal))


def test_causal_tcn_never_sees_the_future():
    assert_causal(started(make_tcn(2)))


def test_tcn_looks_ahead_when_it_may():
    assert_looks_ahead(started(make_tcn(2, causal=False)))


@pytest.mark.parametrize("causal", [True, False])
def test_tcn_equals_plain_convolutions_member_by_member_and_length_by_length(causal):
    model, features = started(make_tcn(3, causal)), make_features(3)
    logits = run(model, features, ragged_mask(3))
    for m in range(3):
        for n, length in enumerate(LENGTHS):
            assert_close(logits[m, n, :length], _slow_tcn(model, m, features[m, n, :length]))


def _slow_tcn(model, m, features):
    """One sequence (steps, features) of one member, without masks, groups or fleets."""
    with torch.no_grad():
        hidden = linear(features, model.embed.weight[m].T, model.embed.bias[m, 0]).T  # (hidden, steps)
        for block, dilation in zip(model.blocks, DILATIONS, strict=True):
            inner = relu(_slow_conv(block.first, m, hidden, dilation, model.is_causal))
            inner = relu(_slow_conv(block.second, m, inner, dilation, model.is_causal))
            hidden = relu(hidden + inner)
        return linear(hidden.T, model.head.weight[m].T, model.head.bias[m, 0])


def _slow_conv(conv, m, hidden, dilation, causal):
    n_steps = hidden.shape[1]
    padding = 2 * dilation if causal else dilation
    full = conv1d(hidden, conv.weight[m], conv.bias[m], padding=padding, dilation=dilation)
    return full[:, :n_steps]


def test_tcn_reaches_125_steps_back():
    model = started(make_tcn(1))
    features = torch.randn(1, 1, 130, N_FEATURES, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    features.requires_grad_()
    model.double()(features, torch.ones(1, 1, 130, dtype=torch.bool))[0, 0, -1].sum().backward()
    seen = features.grad[0, 0].abs().sum(-1) > 0
    assert seen[-125:].all()
    assert not seen[:-125].any()
