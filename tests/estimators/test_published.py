"""Every method with the published settings against a plain loop (`oracles.PlainFit`)."""

import numpy as np
import pytest
import torch
from torch import nn

import labeltide as lt
from labeltide._fleet import member_generators
from labeltide.models import make_model
from labeltide.noise.functions import NetworkNoise, dominant_rows
from oracles import PlainFit, anchor_matrix, code_penalty

N, STEPS, FEATURES, SEED, EPOCHS, BATCH = 40, 5, 3, 4, 54, 16  # the rate of Q is halved at epoch 50
METHODS = ("ignore", "anchor", "plugin", "volmin", "discontinuous", "continuous")
SHARED = {"hidden_size": 4, "epochs": EPOCHS, "batch_size": BATCH, "device": "cpu", "random_state": SEED}


@pytest.fixture(scope="module")
def study():
    data = lt.make_sequences(N, STEPS, FEATURES, 2, random_state=0)
    noise = lt.make_noise("growth", n_steps=STEPS)
    return data.features, lt.corrupt(data.clean_labels, noise, random_state=0).astype(np.int64), noise.at(data.clock[0])


def shuffled(seed, epochs=EPOCHS):
    return [np.random.default_rng([seed, epoch]).permutation(np.arange(N)) for epoch in range(epochs)]


def first_model(seed=SEED):
    return make_model("gru", 1, FEATURES, 2, hidden_size=4, causal=True).initialise(member_generators([seed]))


def derived(number):
    return int(np.random.SeedSequence([SEED, number]).generate_state(1)[0])


def identity():
    return torch.eye(2).expand(STEPS, 2, 2)


def fit(study, method, source, **more):
    return lt.METHODS[method](**lt.published_settings(method, source) | SHARED | more).fit(*study[:2])


def assert_equal(estimator, plain, matrices, X):
    np.testing.assert_allclose(estimator.predict_proba(X), plain.probabilities().detach(), atol=2e-4)
    np.testing.assert_allclose(estimator.noise_matrices_, matrices, atol=2e-4)


@pytest.mark.parametrize("source", ["text", "code"])
def test_ignore_equals_a_plain_loop(study, source):
    plain = PlainFit(*study[:2], first_model())
    plain.train(shuffled(SEED), BATCH, identity)
    assert_equal(fit(study, "ignore", source), plain, identity(), study[0])


def test_known_noise_in_the_code_has_a_falling_rate_and_fixed_batches(study):
    X, y, matrices = study
    plain = PlainFit(X, y, first_model())
    given = torch.from_numpy(matrices).float()
    plain.train([np.arange(N)] * EPOCHS, BATCH, lambda: given, milestones=(50, 100))
    assert_equal(fit(study, "known", "code", noise=matrices), plain, matrices, X)


@pytest.mark.parametrize("source", ["text", "code"])
@pytest.mark.parametrize("method", ["anchor", "plugin"])
def test_anchor_methods_equal_a_plain_loop(study, method, source):
    X, y, _ = study
    plain = PlainFit(X, y, first_model())
    plain.train(shuffled(SEED, 25), BATCH, identity)
    warm = plain.probabilities().detach().double().numpy()
    if method == "anchor":
        matrices = np.tile(anchor_matrix(warm.reshape(-1, 2), 97), (STEPS, 1, 1))
    else:
        matrices = np.stack([anchor_matrix(warm[:, step], 97) for step in range(STEPS)])
    given = torch.from_numpy(matrices).float()
    if source == "code":  # a new network for all epochs; else the warmed-up one for those that are left
        plain.network, plain.head = plain.copy_of(first_model(derived(3)))
    orders = shuffled(derived(3)) if source == "code" else shuffled(SEED, EPOCHS - 25)
    plain.train(orders, BATCH, lambda: given)
    assert_equal(fit(study, method, source), plain, matrices, X)


@pytest.mark.parametrize("source", ["text", "code"])
@pytest.mark.parametrize("method", ["volmin", "discontinuous"])
def test_free_matrices_equal_a_plain_loop(study, method, source):
    X, y, _ = study
    free = torch.zeros(1 if method == "volmin" else STEPS, 2, 2, requires_grad=True)

    def matrices():
        return dominant_rows(free).expand(STEPS, 2, 2)

    def volume(matrices):
        return 1e-4 * torch.linalg.slogdet(matrices)[1].mean()

    by_code = source == "code" and method == "discontinuous"
    penalty = (lambda given: code_penalty(given, 0.05)) if by_code else volume
    plain = PlainFit(X, y, first_model())
    halved = (50, 100) if source == "code" else ()
    plain.train(shuffled(SEED), BATCH, matrices, [free], penalty, noise_milestones=halved)
    more = {"diagonal_weight": 0.05} if by_code else {}
    assert_equal(fit(study, method, source, **more), plain, matrices().detach(), X)


@pytest.mark.parametrize("source", ["text", "code"])
def test_continuous_equals_a_plain_loop(study, source):
    X, y, _ = study
    ours = NetworkNoise(1, 2, raw_steps=STEPS, scaled_weights=False, bounded_logits=False, widths=(16, 32))
    ours.initialise(member_generators([derived(1)]))
    layers = []
    for each in (*ours.layers, ours.head):
        layer = nn.Linear(*each.weight.shape[1:])
        layer.weight.data.copy_(each.weight[0].T)
        layer.bias.data.copy_(each.bias[0].flatten())
        layers += [layer, nn.ReLU()]
    network = nn.Sequential(*layers[:-1])
    steps = torch.arange(STEPS).float()[:, None]

    def matrices():
        return (torch.eye(2) + network(steps).view(STEPS, 2, 2).softmax(-1)) / 2

    plain = PlainFit(X, y, first_model())
    parameters, orders = list(network.parameters()), shuffled(SEED)
    if source == "text":
        plain.train(orders, BATCH, matrices, parameters, lagrangian=True)
    else:
        penalty = lambda given: code_penalty(given, 0.05)  # noqa: E731
        plain.train(orders, BATCH, matrices, parameters, penalty, noise_milestones=(50, 100))
    estimator = fit(study, "continuous", source, noise_widths=(16, 32), diagonal_weight=0.05)
    assert_equal(estimator, plain, matrices().detach(), X)
