"""Claims about the shapes of noise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labeltide.noise.simulate import DEFAULTS, LEVELS, MAX_RATE, SHAPES, level_constants, make_noise

shapes = st.sampled_from(SHAPES)


def leaving(noise) -> np.ndarray:
    """P(leave class i) at every step, of shape (steps, classes)."""
    return 1 - np.diagonal(np.asarray(noise), axis1=1, axis2=2)


def paper_rates(shape: str, n_steps: int, **c: float) -> np.ndarray:
    """The formulas of the paper's code, step by step, for one class of two: the slow, obvious version."""
    s, x = 100 / n_steps, np.linspace(0, n_steps, n_steps)
    at_step = {
        "static": lambda k: c["a"],
        "linear": lambda k: c["a"] + (c["b"] - c["a"]) * k / (n_steps - 1),
        "decay": lambda k: c["a"] * (1 - c["b"] * s) ** k,
        "growth": lambda k: (c["a"] - c["c"]) / (1 + np.exp(-c["b"] * s * (x[k] - n_steps / 2))) + c["c"],
        "periodic": lambda k: c["c"] + (c["b"] - c["c"]) / 2 * (1 + np.sin(0.095 * s * x[k])),
    }[shape]
    return np.array([at_step(k) for k in range(n_steps)])


@settings(deadline=None)
@given(shapes, st.integers(2, 127), st.integers(1, 120), st.floats(0, MAX_RATE), st.booleans())
def test_every_row_is_a_distribution_that_favours_the_truth(shape, n_classes, n_steps, rate, conditional):
    noise = make_noise(shape, n_classes, n_steps, rate, class_conditional=conditional)
    matrices = np.asarray(noise)
    assert matrices.shape == (n_steps, n_classes, n_classes)
    assert np.all(matrices >= 0)
    np.testing.assert_allclose(matrices.sum(-1), 1, atol=1e-5)
    assert leaving(noise).max() < 0.5


@pytest.mark.parametrize("n_steps", [50, 100])
@pytest.mark.parametrize(("shape", "percent"), [(shape, percent) for shape in SHAPES for percent in LEVELS[shape]])
def test_the_papers_levels_have_the_average_rates_by_which_the_paper_names_them(shape, percent, n_steps):
    assert leaving(make_noise(shape, 2, n_steps, percent / 100)).mean() == pytest.approx(percent / 100, abs=0.006)


@pytest.mark.parametrize(("shape", "percent"), [(shape, percent) for shape in SHAPES for percent in LEVELS[shape]])
def test_a_rate_of_the_paper_gives_exactly_the_papers_constants(shape, percent):
    assert level_constants(shape, percent / 100) == pytest.approx({**DEFAULTS[shape], **LEVELS[shape][percent]})


@pytest.mark.parametrize("shape", SHAPES)
def test_between_the_papers_levels_the_average_rate_follows_the_requested_one(shape):
    requested = np.linspace(0, MAX_RATE, 60)
    reached = np.array([leaving(make_noise(shape, rate=rate)).mean() for rate in requested])
    assert np.all(np.diff(reached) > 0)
    np.testing.assert_allclose(reached, requested, atol=0.014)


@pytest.mark.parametrize(
    ("shape", "constants"),
    [
        ("static", {"a": 0.25}),
        ("linear", {"a": 0.4, "b": 0.2}),
        ("decay", {"a": 0.49, "b": 0.03}),
        ("growth", {"a": 0.45, "b": 0.1, "c": 0.05}),
        ("periodic", {"b": 0.4, "c": 0.15}),
    ],
)
@pytest.mark.parametrize("n_steps", [50, 100])
def test_constants_give_the_papers_formula(shape, constants, n_steps):
    noise = make_noise(shape, 2, n_steps, constants=constants)
    np.testing.assert_allclose(leaving(noise)[:, 1], paper_rates(shape, n_steps, **constants), atol=1e-6)


def test_frequency_and_phase_move_the_wave():
    x = np.linspace(0, 100, 100)
    noise = make_noise("periodic", constants={"b": 0.4, "c": 0.2, "frequency": 0.2, "phase": 1.0})
    np.testing.assert_allclose(leaving(noise)[:, 0], 0.2 + 0.1 * (1 + np.sin(0.2 * x + 1)), atol=1e-6)


def test_constants_replace_those_of_the_level_and_leave_the_others():
    shifted = leaving(make_noise("periodic", rate=0.2, constants={"phase": -1.0}))
    level = leaving(make_noise("periodic", rate=0.2))
    assert shifted.max() == pytest.approx(level.max(), abs=0.001)
    assert abs(shifted - level).max() > 0.1


def test_growth_is_halfway_at_its_inflection():
    rates = leaving(make_noise("growth", n_steps=101, constants={"a": 0.4, "c": 0.2, "inflection": 0.25}))[:, 0]
    assert np.linspace(0, 1, 101)[np.abs(rates - 0.3).argmin()] == pytest.approx(0.25, abs=0.01)


def test_decay_ends_at_its_floor():
    rates = leaving(make_noise("decay", constants={"a": 0.49, "b": 0.1, "c": 0.15}))[:, 0]
    assert rates[0] == pytest.approx(0.49)
    assert rates[-1] == pytest.approx(0.15, abs=1e-3)


def test_mixed_noise_takes_the_constants_of_decay_and_growth():
    constants = {"b": 0.02, "c": 0.1, "mix_inflection": 0.3, "mix_a": 0.4, "mix_c": 0.25}
    mixed = leaving(make_noise("mixed", constants=constants))
    decay = make_noise("decay", constants={"a": 0.49, "b": 0.02, "c": 0.1})
    growth = make_noise("growth", constants={"a": 0.4, "c": 0.25, "inflection": 0.3})
    np.testing.assert_allclose(mixed, np.stack([leaving(decay)[:, 0], leaving(growth)[:, 0]], 1), atol=1e-6)


@pytest.mark.parametrize("shape", ["static", "linear", "decay", "growth", "periodic", "jump"])
def test_class_conditional_divides_the_rate_of_class_i_by_one_plus_a_quarter_i(shape):
    rates = leaving(make_noise(shape, 5, class_conditional=True, rate=0.2))
    np.testing.assert_allclose(rates * (1 + np.arange(5) / 4), rates[:, :1].repeat(5, 1), atol=1e-6)
    np.testing.assert_allclose(rates[:, 0], leaving(make_noise(shape, 5, rate=0.2))[:, 0], atol=1e-6)


@pytest.mark.parametrize(("shape", "sign"), [("linear", -1), ("decay", -1), ("growth", 1), ("jump", 1)])
@pytest.mark.parametrize("rate", [0.1, 0.3, 0.45])
def test_monotone_shapes_are_monotone(shape, sign, rate):
    assert np.all(sign * np.diff(leaving(make_noise(shape, 3, rate=rate)), axis=0) >= -1e-7)


@pytest.mark.parametrize(("n_classes", "n_decaying"), [(2, 1), (3, 1), (4, 2), (7, 3)])
def test_in_mixed_noise_the_first_half_decays_and_the_rest_grows(n_classes, n_decaying):
    change = np.diff(leaving(make_noise("mixed", n_classes)), axis=0)
    assert np.all(change[:, :n_decaying] < 0)
    assert np.all(change[:, n_decaying:] > 0)


@pytest.mark.parametrize(("n_steps", "first_high"), [(2, 1), (5, 2), (50, 25), (101, 50)])
def test_a_jump_has_a_low_rate_and_from_the_middle_of_the_clock_on_a_high_one(n_steps, first_high):
    rates = leaving(make_noise("jump", 3, n_steps, 0.3))
    low, high = rates[:first_high], rates[first_high:]
    assert np.ptp(low) == np.ptp(high) == 0
    assert low.max() < 0.2
    assert high.min() == pytest.approx(0.49)


def test_leaving_a_class_reaches_all_others_alike():
    matrices = np.asarray(make_noise("growth", 4))
    others = matrices[:, ~np.eye(4, dtype=bool)].reshape(-1, 4, 3)
    np.testing.assert_allclose(others, others[..., :1].repeat(3, -1), atol=1e-7)


@pytest.mark.parametrize("shape", SHAPES)
def test_one_step_is_enough(shape):
    assert np.asarray(make_noise(shape, n_steps=1, rate=0.2)).shape == (1, 2, 2)


@pytest.mark.parametrize("shape", SHAPES)
def test_no_noise_is_the_identity(shape):
    np.testing.assert_array_equal(np.asarray(make_noise(shape, 3, 10, 0)), np.tile(np.eye(3), (10, 1, 1)))


@pytest.mark.parametrize("shape", SHAPES)
def test_an_impossible_rate_names_the_highest(shape):
    with pytest.raises(ValueError, match=r"at most 0\.49.*Got rate=0\.6"):
        make_noise(shape, rate=0.6)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"shape": "wavy"}, "Unknown shape 'wavy'. Choose one of: static, linear"),
        ({"n_classes": 1}, "n_classes must be a whole number at least 2"),
        ({"n_classes": 128}, "at most 127"),
        ({"n_steps": 0}, "n_steps must be a whole number at least 1"),
        ({"rate": -0.1}, "rate must be a number at least 0"),
        ({"rate": float("nan")}, "rate must be a number"),
        ({"constants": {"z": 1}}, "Unknown constants of static noise: z. Choose from: a"),
        ({"constants": {"a": 1.2}}, r"must lie in \[0, 1\).*a=1.2"),
        ({"constants": {"a": "high"}}, "constant a of static noise must be a number"),
        ({"constants": [0.49, 0]}, "constants of static noise must be a dict such as"),
    ],
)
def test_bad_arguments_are_answered_with_a_sentence(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        make_noise(**{"shape": "static", **arguments})
