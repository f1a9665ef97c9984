import numpy as np
import pytest
import torch

from labeltide.models.gru import GRULayer, GRUModel, Recurrence
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
from oracles import gru_states

HIDDEN = 5
NAMES = {
    "weight_input": "weight_ih_l0",
    "weight_hidden": "weight_hh_l0",
    "bias_input": "bias_ih_l0",
    "bias_hidden": "bias_hh_l0",
}


def make_gru(members, causal=True):
    return GRUModel(members, N_FEATURES, 2, hidden_size=HIDDEN, causal=causal)


def torch_twin(layer, member):
    """A torch.nn.GRU with the weights of one member."""
    twin = torch.nn.GRU(layer.weight_input.shape[1], layer.hidden_size, batch_first=True)
    with torch.no_grad():
        for ours, theirs in NAMES.items():
            getattr(twin, theirs).copy_(getattr(layer, ours)[member].T.reshape(getattr(twin, theirs).shape))
    return twin


@pytest.mark.parametrize("causal", [True, False])
def test_gru_obeys_every_law(causal):
    assert_obeys_every_law(lambda members: make_gru(members, causal))


def test_causal_gru_never_sees_the_future():
    assert_causal(started(make_gru(2)))


def test_gru_looks_ahead_when_it_may():
    assert_looks_ahead(started(make_gru(2, causal=False)))


def test_layer_equals_torch_gru_in_values_and_gradients():
    layer, features = started(GRULayer(2, N_FEATURES, HIDDEN)), make_features(2)
    weights = torch.randn(2, 3, 9, HIDDEN, generator=torch.Generator().manual_seed(1))
    ours_input = features.clone().requires_grad_()
    states = layer(ours_input)
    (states * weights).sum().backward()
    for m in range(2):
        twin, twin_input = torch_twin(layer, m), features[m].clone().requires_grad_()
        theirs, _ = twin(twin_input)
        (theirs * weights[m]).sum().backward()
        assert_close(states[m].detach(), theirs.detach(), atol=1e-6)
        assert_close(ours_input.grad[m], twin_input.grad)
        for ours, name in NAMES.items():
            gradient = getattr(twin, name).grad
            assert_close(getattr(layer, ours).grad[m].T.reshape(gradient.shape), gradient)


def test_fleet_equals_numpy_step_by_step():
    layer, features = started(GRULayer(3, N_FEATURES, HIDDEN)), make_features(3)
    with torch.no_grad():
        states = layer(features)
    for m in range(3):
        weights = [getattr(layer, name)[m].detach().double().numpy() for name in NAMES]
        for row in range(len(LENGTHS)):
            slow = gru_states(features[m, row].double().numpy(), *(w.squeeze() for w in weights))
            np.testing.assert_allclose(states[m, row], slow, atol=1e-5)


@pytest.mark.parametrize("causal", [True, False])
def test_model_equals_torch_gru_on_each_sequence_cut_to_its_length(causal):
    model, features = started(make_gru(2, causal)), make_features(2)
    logits = run(model, features, ragged_mask(2))
    for m in range(2):
        for row, length in enumerate(LENGTHS):
            real = features[m, row : row + 1, :length]
            with torch.no_grad():
                hidden, _ = torch_twin(model.forwards, m)(real)
                if not causal:
                    reverse, _ = torch_twin(model.backwards, m)(real.flip(1))
                    hidden = torch.cat([hidden, reverse.flip(1)], -1)
                expected = hidden @ model.head.weight[m] + model.head.bias[m]
            assert_close(logits[m, row, :length], expected[0])


@pytest.mark.parametrize("causal", [True, False])
def test_padding_gets_no_gradient(causal):
    model, mask = started(make_gru(2, causal)), ragged_mask(2)
    features = make_features(2).requires_grad_()
    model(features, mask)[mask].square().sum().backward()
    assert (features.grad[~mask] == 0).all()
    assert (features.grad[mask] != 0).any()


def test_non_contiguous_parameters_and_features_give_the_same():
    layer, features = started(GRULayer(2, N_FEATURES, HIDDEN)), make_features(2)
    expected = layer(features).detach()
    for parameter in layer.parameters():
        parameter.data = parameter.detach().transpose(1, 2).contiguous().transpose(1, 2)
    backwards_in_memory = features.transpose(0, 3).contiguous().transpose(0, 3)
    assert not layer.weight_hidden.is_contiguous()
    assert_close(layer(backwards_in_memory).detach(), expected, atol=1e-6)


@pytest.mark.parametrize("steps", [1, 4])
def test_recurrence_gradients_equal_finite_differences(steps):
    generator = torch.Generator().manual_seed(0)

    def draw(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64, requires_grad=True)

    inputs = draw(steps, 2, 3, 6), draw(2, 2, 6), draw(2, 1, 6)
    assert torch.autograd.gradcheck(Recurrence.apply, inputs)


def test_recurrence_takes_gradients_that_are_expanded_or_come_for_some_inputs_only():
    gates = torch.randn(3, 2, 4, 6, generator=torch.Generator().manual_seed(0))
    weight, bias = torch.full((2, 2, 6), 0.1, requires_grad=True), torch.zeros(2, 1, 6)
    Recurrence.apply(gates, weight, bias).sum().backward()  # the gradient of a sum is one number, expanded
    assert weight.grad.isfinite().all()
    assert (weight.grad != 0).any()


def test_starting_range_and_parameter_count_are_those_of_torch():
    layer, twin = GRULayer(1, 7, 32), torch.nn.GRU(7, 32)
    assert sum(p.numel() for p in layer.parameters()) == sum(p.numel() for p in twin.parameters())
    model = started(make_gru(1))
    assert max(float(p.detach().abs().max()) for p in model.forwards.parameters()) <= HIDDEN**-0.5
