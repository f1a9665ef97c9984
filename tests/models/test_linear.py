import torch

from labeltide.models.base import LinearModel
from models.laws import N_FEATURES, assert_causal, assert_obeys_every_law, make_features, run, started


def make_linear(members):
    return LinearModel(members, N_FEATURES, 2)


def test_linear_obeys_every_law():
    assert_obeys_every_law(make_linear)


def test_linear_is_causal_whatever_was_asked():
    assert_causal(started(LinearModel(2, N_FEATURES, 2, causal=False)))


def test_linear_equals_torch_linear():
    model, features = started(make_linear(3)), make_features(3)
    logits = run(model, features)
    for m in range(3):
        weight, bias = model.head.weight[m].detach(), model.head.bias[m, 0].detach()
        expected = torch.nn.functional.linear(features[m], weight.T, bias)
        torch.testing.assert_close(logits[m], expected)


def test_hidden_size_changes_nothing():
    narrow, wide = LinearModel(1, N_FEATURES, 2, hidden_size=1), LinearModel(1, N_FEATURES, 2, hidden_size=64)
    assert narrow.state_dict().keys() == wide.state_dict().keys()
    assert all(a.shape == b.shape for a, b in zip(narrow.parameters(), wide.parameters(), strict=True))
