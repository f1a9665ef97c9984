"""Claims about the Continuous method: algorithm 1 of the paper, its settings, and a noise function of one's own."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor, nn

import labeltide as lt
from labeltide.noise.functions import WIDTHS, LearnedNoise

STEPS = 12


@pytest.fixture(scope="module")
def study() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, STEPS, 2)).astype(np.float32)
    clean = (X[..., 0] > 0).astype(int)
    return X, np.where(rng.random(clean.shape) < np.linspace(0.4, 0.05, STEPS), 1 - clean, clean)


def fit(study, **settings):
    defaults = {"epochs": 6, "epochs_per_round": 2, "hidden_size": 4, "random_state": 0, "device": "cpu"}
    return lt.ContinuousClassifier(**{**defaults, **settings}).fit(*study)


class FallingNoise(LearnedNoise):
    """A user's own: errors fall exponentially over the clock, alike for all classes."""

    def __init__(self, members: int, n_classes: int) -> None:
        super().__init__()
        self.members, self.n_classes = members, n_classes
        self.level = nn.Parameter(torch.zeros(members))
        self.slope = nn.Parameter(torch.zeros(members))

    def _initialise(self, generators) -> None:
        nn.init.constant_(self.level, -1.0)
        nn.init.zeros_(self.slope)

    def forward(self, clock: Tensor) -> Tensor:
        along = clock.to(self.level).reshape(1, -1)
        rate = torch.sigmoid(self.level[:, None] - self.slope[:, None] * along) / 2
        eye = torch.eye(self.n_classes)
        matrices = eye * (1 - rate[..., None, None]) + (1 - eye) * rate[..., None, None] / (self.n_classes - 1)
        return matrices.reshape(self.members, *clock.shape, self.n_classes, self.n_classes)


def multipliers_by_algorithm_1(losses, linear, quadratic, gamma, eta, epochs_per_round, rounds):
    """The multipliers of every epoch, from the losses alone: the slow, obvious version."""
    used, before = [], np.inf
    for epoch, loss in enumerate(losses):
        used.append((linear, quadratic))
        if (epoch + 1) % epochs_per_round == 0 and (epoch + 1) // epochs_per_round <= rounds:
            linear += quadratic * loss
            quadratic *= eta if loss > gamma * before else 1.0
            before = loss
    return np.array(used)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"linear": 3.0, "quadratic": 0.5},
        {"gamma": 0.5, "eta": 3.0},
        {"gamma": 0.0, "rounds": 2},
        {"epochs_per_round": 1},
    ],
)
def test_the_history_keeps_the_multipliers_of_algorithm_1(study, settings):
    history = fit(study, **settings).history_
    wanted = {
        "linear": 1.0,
        "quadratic": 1.0,
        "gamma": 2.0,
        "eta": 2.0,
        "epochs_per_round": 2,
        "rounds": 99,
        **settings,
    }
    expected = multipliers_by_algorithm_1(history.loss[:, 0], **wanted)
    np.testing.assert_allclose(history.linear[:, 0], expected[:, 0], rtol=1e-5)
    np.testing.assert_allclose(history.quadratic[:, 0], expected[:, 1], rtol=1e-5)


def test_the_penalised_objective_has_no_multipliers(study):
    history = fit(study, objective="penalised").history_
    assert np.isnan(history.linear).all()
    assert np.isnan(history.quadratic).all()


@pytest.mark.parametrize(
    "change",
    [
        {"raw_steps": True},
        {"scaled_weights": False},
        {"bounded_logits": False},
        {"clip": 0.01},
        {"noise_milestones": (1,)},
        {"noise_learning_rate": 0.001},
        {"noise_widths": (16, 32)},
    ],
)
def test_every_setting_changes_the_fit(study, change):
    changed, plain = fit(study, **change), fit(study)
    assert not np.allclose(changed.noise_matrices_, plain.noise_matrices_, atol=1e-6)


def test_a_clip_that_is_never_reached_is_none(study):
    np.testing.assert_array_equal(fit(study, clip=1e6).noise_matrices_, fit(study, clip=None).noise_matrices_)


def test_the_rate_of_q_alone_is_its_own(study):
    still = fit(study, noise_learning_rate=1e-30)
    start = fit(study, epochs=1, learning_rate=1e-30)
    np.testing.assert_allclose(still.noise_matrices_, start.noise_matrices_, atol=1e-6)


def test_depth_and_width_are_those_of_the_network(study):
    layers = fit(study, noise_widths=(8, 64)).noise_.layers
    assert [layer.weight.shape[-1] for layer in layers] == [8, 64]
    assert [layer.weight.shape[-1] for layer in fit(study).noise_.layers] == list(WIDTHS)


@pytest.mark.parametrize("objective", ["lagrangian", "penalised"])
def test_a_noise_function_of_ones_own_is_learned(study, objective):
    method = fit(study, objective=objective, noise_function=FallingNoise, noise_learning_rate=0.1, epochs=40)
    assert abs(float(method.noise_.slope.detach())) > 0.01
    np.testing.assert_allclose(method.noise_at(method.clock_grid_), method.noise_matrices_, atol=1e-6)


def test_several_annotators_share_a_noise_function_of_ones_own(study):
    X, y = study
    method = fit((X, np.stack([y, y], -1)), noise_function=FallingNoise)
    assert method.annotator_matrices_ is None


class WithoutMembers(FallingNoise):
    def __init__(self, members: int, n_classes: int) -> None:
        super().__init__(members, n_classes)
        del self.members


class TooLarge(FallingNoise):
    def forward(self, clock: Tensor) -> Tensor:
        return 3 * super().forward(clock)


class WithoutAxis(FallingNoise):
    def forward(self, clock: Tensor) -> Tensor:
        return super().forward(clock)[0]


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (lambda members, n_classes: nn.Linear(2, 2), "with members=1 and n_classes=2.* Got Linear"),
        (lambda members, n_classes: FallingNoise(members + 1, n_classes), "Got FallingNoise with members=2"),
        (WithoutMembers, "Got WithoutMembers with members=None"),
        (3, "Got int, which does not make one: pass the class or a function"),
        (FallingNoise(1, 2), "Got FallingNoise, which does not make one"),
        (TooLarge, "Every row of a noise matrix must be a distribution"),
        (WithoutAxis, r"must give Q of shape .* = \(1, 12, 2, 2\) for 12 moments. Got \(12, 2, 2\)"),
    ],
)
def test_what_is_no_noise_function_is_refused(study, wrong, sentence):
    with pytest.raises(ValueError, match=sentence):
        fit(study, noise_function=wrong)


def test_a_q_that_stays_at_its_bound_is_said(study):
    with pytest.warns(ConvergenceWarning, match=r"bound of one half for the true class .* in 1 of 1 fits"):
        fit(study, linear=0.0, quadratic=0.0, bounded_logits=False, noise_learning_rate=0.1, epochs=30)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"objective": "odd"}, "Unknown objective 'odd'. Choose one of: lagrangian, penalised"),
        ({"eta": 0.5}, "eta must be a number at least 1"),
        ({"rounds": 0}, "rounds must be a whole number at least 1"),
        ({"epochs_per_round": 0}, "epochs_per_round must be a whole number at least 1"),
        ({"noise_widths": ()}, "noise_widths must be a list of whole numbers at least 1"),
        ({"noise_widths": (16, 0)}, "Every value of noise_widths must be a whole number at least 1"),
        ({"noise_milestones": 50}, "noise_milestones must be a list of whole numbers"),
        ({"clip": 0}, "clip must be a number above 0"),
        ({"noise_learning_rate": -1}, "noise_learning_rate must be a number above 0"),
        ({"max_restarts": -1}, "max_restarts must be a whole number at least 0"),
        ({"raw_steps": "yes"}, "raw_steps must be True or False. Got 'yes'"),
    ],
)
def test_wrong_settings_are_answered_with_a_sentence(study, settings, sentence):
    with pytest.raises(ValueError, match=sentence):
        fit(study, **settings)
