import copy
import pickle
import warnings

import pytest
import torch
from torch import nn

from labeltide.models.wrap import wrap
from models.laws import (
    N_FEATURES,
    assert_causal,
    assert_close,
    assert_looks_ahead,
    assert_obeys_every_law,
    full_mask,
    make_features,
    ragged_mask,
    run,
    started,
)

N_CLASSES = 2


class Recurrent(nn.Module):
    def __init__(self, n_features, n_classes, bidirectional=False):
        super().__init__()
        self.rnn = nn.GRU(n_features, 4, batch_first=True, bidirectional=bidirectional)
        self.head = nn.Linear(8 if bidirectional else 4, n_classes)

    def forward(self, features):
        return self.head(self.rnn(features)[0])


class Normed(nn.Module):
    """Batch normalisation, and a moving average that the module replaces instead of writing into it."""

    def __init__(self, n_features, n_classes):
        super().__init__()
        self.norm = nn.BatchNorm1d(n_features)
        self.head = nn.Linear(n_features, n_classes)
        self.register_buffer("average", torch.zeros(n_features))

    def forward(self, features):
        if self.training:
            self.average = 0.9 * self.average + 0.1 * features.detach().mean((0, 1))
        return self.head(self.norm(features.transpose(1, 2)).transpose(1, 2) - self.average)


class Deciding(nn.Module):
    """Depends on values."""

    def __init__(self, n_features, n_classes):
        super().__init__()
        self.head = nn.Linear(n_features, n_classes)

    def forward(self, features):
        return self.head(features) if features[0, 0, 0].item() > 0 else -self.head(features)


class Tied(nn.Module):
    """One layer under two names, and a third layer that shares its weight."""

    def __init__(self, n_features, n_classes):
        super().__init__()
        self.first = nn.Linear(n_features, n_features)
        self.second = self.first
        self.third = nn.Linear(n_features, n_features)
        self.third.weight = self.first.weight
        self.head = nn.Linear(n_features, n_classes)

    def forward(self, features):
        return self.head(self.third(self.second(torch.tanh(self.first(features)))))


def perceptron(n_features, n_classes):
    return nn.Sequential(nn.Linear(n_features, 5), nn.Tanh(), nn.Linear(5, n_classes))


def attention(n_features, n_classes):
    layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)
    return nn.Sequential(nn.Linear(n_features, 4), layer, nn.Linear(4, n_classes))


FACTORIES = [Recurrent, perceptron, Normed, Tied, attention]


def make_fleet(factory, members=3, causal=True):
    return wrap(factory, causal=causal)(members, N_FEATURES, N_CLASSES)


def alone(factory, fleet, m):
    """A plain copy of the user's module, with the m-th member's tensors."""
    module = factory(N_FEATURES, N_CLASSES)
    with torch.no_grad():
        for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
            tensor.copy_(fleet.state_dict()[_stored(name)][m])
    return module.train(fleet.training)


def _stored(name):
    return "module-" + name.replace(".", "-")


@pytest.mark.parametrize("factory", [Recurrent, perceptron, Normed])
def test_wrapped_modules_obey_every_law(factory):
    assert_obeys_every_law(lambda members: make_fleet(factory, members))


def test_a_wrapped_recurrent_layer_is_causal():
    assert_causal(started(make_fleet(Recurrent)))


def test_a_module_that_looks_ahead_says_so_whatever_was_asked():
    factory = wrap(lambda f, c: Recurrent(f, c, bidirectional=True), causal=False)
    assert_looks_ahead(started(factory(2, N_FEATURES, N_CLASSES, causal=True)))


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("factory", [*FACTORIES, Deciding])
def test_wrapped_equals_the_module_itself_over_steps_of_training(factory, training):
    fleet = started(make_fleet(factory)).train(training)
    modules = [alone(factory, fleet, m) for m in range(3)]
    for step in range(3):
        features = make_features(3, seed=step)
        fleet.zero_grad()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            logits = fleet(features, full_mask(features))
            logits.square().sum().backward()
        for m, module in enumerate(modules):
            _assert_same_step(fleet, m, module, logits[m], features[m])


def _assert_same_step(fleet, m, module, logits, features):
    module.zero_grad()
    expected = module(features)
    expected.square().sum().backward()
    assert_close(logits, expected)
    for name, parameter in module.named_parameters():
        assert_close(fleet.get_parameter(_stored(name)).grad[m], parameter.grad, atol=1e-4)
    for name, buffer in module.named_buffers():
        assert_close(fleet.get_buffer(_stored(name))[m], buffer)


def test_gradients_reach_every_parameter_of_a_recurrent_layer():
    fleet, features = started(make_fleet(Recurrent)), make_features(3)
    fleet(features, full_mask(features)).square().sum().backward()
    assert all((parameter.grad.flatten(1).abs().amax(1) > 0).all() for parameter in fleet.parameters())


def test_dropout_differs_between_members_and_stops_in_evaluation():
    fleet = make_fleet(lambda f, c: nn.Sequential(nn.Dropout(0.5), nn.Linear(f, c)))
    features = make_features(1).expand(3, -1, -1, -1)
    logits = fleet.train()(features, full_mask(features))
    assert not torch.equal(logits[0], logits[1])
    assert_close(run(fleet, features)[0], run(fleet, features)[1])


def test_a_module_instance_gives_every_member_its_own_weights():
    module = Recurrent(N_FEATURES, N_CLASSES)
    fleet, features = started(wrap(module)(3, N_FEATURES, N_CLASSES)), make_features(3)
    logits = run(fleet, features)
    for m in range(3):
        assert_close(logits[m], module(features[m]).detach())
    fleet.get_parameter("module-head-bias").data += 1
    started(fleet)
    assert_close(run(fleet, features), logits)


def test_frozen_parameters_stay_frozen_and_a_module_without_any_is_fine():
    module = perceptron(N_FEATURES, N_CLASSES)
    module[0].requires_grad_(False)
    fleet = wrap(module)(2, N_FEATURES, N_CLASSES)
    assert [parameter.requires_grad for parameter in fleet.parameters()] == [False, False, True, True]
    bare = started(wrap(nn.Identity())(2, 2, 2))
    features = make_features(2, n_features=2)
    assert torch.equal(run(bare, features), features)
    assert list(bare.parameters()) == []


def test_making_and_initialising_leaves_the_global_random_state_alone():
    before = torch.get_rng_state()
    started(make_fleet(perceptron))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("copier", [copy.deepcopy, lambda thing: pickle.loads(pickle.dumps(thing))])
@pytest.mark.parametrize("factory", FACTORIES)
def test_copies_give_the_same_and_learn_apart(factory, copier):
    fleet, features = started(make_fleet(factory)), make_features(3)
    fleet(features, ragged_mask(3)).sum().backward()  # a copy after use, graphs and caches included
    fleet.zero_grad()
    twin = copier(fleet)
    assert_close(run(twin, features), run(fleet, features))
    next(twin.parameters()).data += 1
    assert not torch.allclose(run(twin, features), run(fleet, features))
    assert copier(fleet.factory).causal


def test_double_precision_follows_the_fleet():
    fleet, features = started(make_fleet(Recurrent)).to(torch.float64), make_features(3).double()
    assert run(fleet, features).dtype == torch.float64
    assert_close(run(fleet, features).float(), run(fleet.float(), features.float()))


def test_wrong_shapes_and_kinds_are_told_plainly():
    features = make_features(2)
    with pytest.raises(ValueError, match=r"logits of shape .* = \(3, 9, 2\), one per step and class\. Got \(3, 9, 5\)"):
        run(wrap(nn.Linear(N_FEATURES, 5))(2, N_FEATURES, N_CLASSES), features)
    with pytest.raises(TypeError, match="must give a tensor of logits"):
        run(wrap(nn.GRU(N_FEATURES, 2, batch_first=True))(2, N_FEATURES, N_CLASSES), features)
    with pytest.raises(TypeError, match=r"must return a torch nn.Module .* Got int"):
        wrap(lambda f, c: f + c)(2, N_FEATURES, N_CLASSES)
    with pytest.raises(TypeError, match="wrap needs a torch module"):
        wrap("gru")
    with pytest.raises(ValueError, match="lazy layers"):
        wrap(nn.LazyLinear(2))(2, N_FEATURES, N_CLASSES)


@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_torchscript_is_refused():
    with pytest.raises(TypeError, match="Got TorchScript"):
        wrap(torch.jit.script(nn.Linear(N_FEATURES, N_CLASSES)))(2, N_FEATURES, N_CLASSES)


def test_a_function_that_changes_its_mind_is_refused():
    sizes = iter([3, 4])
    fleet = wrap(lambda f, c: nn.Sequential(nn.Linear(f, size := next(sizes)), nn.Linear(size, c)))
    with pytest.raises(ValueError, match="same parameters every time"):
        started(fleet(1, N_FEATURES, N_CLASSES))


def test_a_second_forward_pass_leaves_the_gradients_of_the_first():
    fleet, features = started(make_fleet(Recurrent)), make_features(3)
    first = fleet(features, full_mask(features))
    fleet(2 * features, full_mask(features))
    first.square().sum().backward()
    once = [parameter.grad.clone() for parameter in fleet.parameters()]
    fleet.zero_grad()
    fleet(features, full_mask(features)).square().sum().backward()
    assert all(torch.equal(parameter.grad, grad) for parameter, grad in zip(fleet.parameters(), once, strict=True))


@pytest.mark.parametrize("factory", [Recurrent, perceptron])
def test_gradients_reach_the_features(factory):
    fleet, features = started(make_fleet(factory)), make_features(3).requires_grad_()
    fleet(features, full_mask(features)).square().sum().backward()
    for m in range(3):
        alone_features = features[m].detach().requires_grad_()
        alone(factory, fleet, m)(alone_features).square().sum().backward()
        assert_close(features.grad[m], alone_features.grad, atol=1e-4)


def test_parameters_that_are_frozen_later_get_no_gradient():
    fleet, features = started(make_fleet(Recurrent)), make_features(3)
    fleet(features, full_mask(features)).sum().backward()
    fleet.zero_grad()
    frozen = fleet.get_parameter("module-head-bias").requires_grad_(False)
    fleet(features, full_mask(features)).sum().backward()
    assert frozen.grad is None
    assert fleet.get_parameter("module-head-weight").grad is not None
