import pytest
import torch
from torch.nn.functional import gelu, layer_norm, linear

from labeltide.models.transformer import HEADS, TransformerModel, sinusoids
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


def make_transformer(members, causal=True):
    return TransformerModel(members, N_FEATURES, 2, hidden_size=8, causal=causal)


@pytest.mark.parametrize("causal", [True, False])
def test_transformer_obeys_every_law(causal):
    assert_obeys_every_law(lambda members: make_transformer(members, causal))


def test_causal_transformer_never_sees_the_future():
    assert_causal(started(make_transformer(2)))


def test_transformer_looks_ahead_when_it_may():
    assert_looks_ahead(started(make_transformer(2, causal=False)))


@pytest.mark.parametrize("causal", [True, False])
def test_transformer_equals_written_out_attention_member_by_member_and_length_by_length(causal):
    model, features = started(make_transformer(3, causal)), make_features(3)
    _shake_norms(model)
    logits = run(model, features, ragged_mask(3))
    for m in range(3):
        for n, length in enumerate(LENGTHS):
            assert_close(logits[m, n, :length], _slow_transformer(model, m, features[m, n, :length]))


def _shake_norms(model):
    generator = torch.Generator().manual_seed(0)
    for name, parameter in model.named_parameters():
        if "norm" in name:
            parameter.data += 0.3 * torch.randn(parameter.shape, generator=generator)


def _slow_transformer(model, m, features):
    """One sequence (steps, features) of one member, without masks or fleets."""
    with torch.no_grad():
        hidden = _affine(model.embed, m, features)
        hidden = hidden + sinusoids(*hidden.shape)
        for layer in model.layers:
            hidden = hidden + _slow_attention(layer, m, _norm(layer.norm_attention, m, hidden), model.is_causal)
            wide = gelu(_affine(layer.widen, m, _norm(layer.norm_feed, m, hidden)))
            hidden = hidden + _affine(layer.narrow, m, wide)
        return _affine(model.head, m, _norm(model.norm, m, hidden))


def _slow_attention(layer, m, hidden, causal):
    query, key, value = _affine(layer.queries_keys_values, m, hidden).chunk(3, -1)
    n_steps, size = hidden.shape
    width = size // HEADS
    gathered = []
    for head in range(HEADS):
        part = slice(head * width, (head + 1) * width)
        scores = query[:, part] @ key[:, part].T / width**0.5
        if causal:
            future = torch.ones(n_steps, n_steps).triu(1).bool()
            scores = scores.masked_fill(future, float("-inf"))
        gathered.append(scores.softmax(-1) @ value[:, part])
    return _affine(layer.attended, m, torch.cat(gathered, -1))


def _affine(layer, m, inputs):
    return linear(inputs, layer.weight[m].T, layer.bias[m, 0])


def _norm(layer, m, hidden):
    return layer_norm(hidden, hidden.shape[-1:], layer.scale[m, 0, 0], layer.shift[m, 0, 0])


def test_positions_are_waves_for_any_number_of_steps():
    short, long = sinusoids(5, 8), sinusoids(3000, 8)
    assert torch.equal(short, long[:5])
    assert torch.equal(short[0], torch.tensor([0.0] * 4 + [1.0] * 4))
    torch.testing.assert_close(long[:, 0], torch.arange(3000.0).sin())
    torch.testing.assert_close(long[:, 5], (torch.arange(3000) * 10000 ** (-2 / 8)).cos(), atol=1e-3, rtol=0)


def test_a_sequence_of_padding_alone_gives_finite_numbers_and_gradients():
    model, features = started(make_transformer(2, causal=False)), make_features(2)
    logits = model(features, torch.zeros(features.shape[:3], dtype=torch.bool))
    logits.sum().backward()
    assert torch.isfinite(logits).all()
    assert all(torch.isfinite(parameter.grad).all() for parameter in model.parameters())


def test_hidden_size_that_the_heads_cannot_share_is_refused():
    with pytest.raises(ValueError, match=r"divisible by 4, its heads\. Got 30; 32 would do"):
        TransformerModel(1, 3, 2, hidden_size=30)
