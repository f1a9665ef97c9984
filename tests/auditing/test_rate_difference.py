"""Tests of a difference hold their level, find what differs, and say where they cannot tell."""

import math

import numpy as np
import pytest
from scipy.stats import norm

from labeltide.auditing.compare import (
    Share,
    Z,
    curve_difference,
    effective_moments,
    independent_difference,
    people_difference,
)
from labeltide.inference.review import holm


def share(value, half):
    return Share(value, value - half, value + half)


def test_symmetric_intervals_give_the_z_test_of_two_means():
    found = independent_difference(share(0.2, 0.03), share(0.26, 0.04))
    assert found.difference == pytest.approx(0.06)
    assert (found.lower, found.upper) == pytest.approx((0.01, 0.11))
    assert found.p_value == pytest.approx(2 * norm.sf(0.06 / (0.05 / Z)))


def test_the_interval_leaves_out_zero_where_p_is_below_five_percent():
    for now in np.linspace(0.1, 0.3, 41):
        found = independent_difference(Share(0.2, 0.17, 0.26), Share(now, now - 0.02, now + 0.05))
        assert (found.p_value < 0.05) == (found.lower > 0 or found.upper < 0)


def test_equal_shares_do_not_differ_and_unknown_ones_cannot_be_told():
    assert independent_difference(share(0.2, 0.03), share(0.2, 0.03)).p_value == 1
    assert math.isnan(independent_difference(share(0.2, math.nan), share(0.2, 0.03)).p_value)
    assert math.isnan(independent_difference(share(0.2, 0.0), share(0.3, 0.0)).p_value)


def draw_people(random, names, effects, labels=100):
    """Expected wrong labels of each person; the share is their mean."""
    rates = np.clip(effects + random.normal(0, 0.02, len(names)), 0, 1)
    people = {name: (float(rate * labels), labels) for name, rate in zip(names, rates, strict=True)}
    return people, share(float(rates.mean()), 1e-6)


@pytest.mark.parametrize("is_paired", [True, False])
def test_people_as_the_unit_keep_the_level_of_the_test(is_paired):
    random, rejected = np.random.default_rng(1), []
    names = [f"p{number}" for number in range(12)]
    for _ in range(600):
        effects = random.normal(0.25, 0.08, 12)
        then = draw_people(random, names, effects)
        others = names if is_paired else [f"q{number}" for number in range(12)]
        now = draw_people(random, others, effects if is_paired else random.normal(0.25, 0.08, 12))
        rejected.append(people_difference(then[1], now[1], (then[0], now[0]), 0.0).p_value < 0.05)
    assert 0.02 < np.mean(rejected) < 0.08  # four standard errors


def test_pairing_finds_a_difference_that_people_would_hide():
    random = np.random.default_rng(2)
    names, effects = [f"p{number}" for number in range(12)], np.linspace(0.1, 0.4, 12)
    then, now = draw_people(random, names, effects), draw_people(random, names, effects - 0.04)
    strangers = {f"q{name}": value for name, value in now[0].items()}
    assert people_difference(then[1], now[1], (then[0], now[0]), 0.0).p_value < 0.01
    assert people_difference(then[1], now[1], (then[0], strangers), 0.0).p_value > 0.2


def test_errors_of_a_fit_count_less_where_labels_are_the_same():
    people = {f"p{number}": (20.0, 100) for number in range(8)}
    widths = []
    for same in (0.0, 0.5, 1.0):
        found = people_difference(share(0.2, 0.02), share(0.21, 0.02), (people, people), same)
        widths.append(found.upper - found.lower)
    assert widths[0] > widths[1] > widths[2] > 0


def test_the_effective_number_of_moments_inverts_sidak():
    assert effective_moments(Z) == pytest.approx(1)
    for looks in (2, 10, 40):
        critical = norm.isf((1 - 0.95 ** (1 / looks)) / 2)
        assert effective_moments(critical) == pytest.approx(looks)


def smooth_curves(random, n, points=60):
    """Standard normal at each moment, smooth over moments: shape (n, points)."""
    waves = np.arange(1, 7)[:, None] * np.linspace(0, 2 * np.pi, points)
    basis = np.concatenate([np.ones((1, points)), np.sin(waves / 2), np.cos(waves / 2)])
    curves = random.normal(size=(n, len(basis))) @ basis
    return curves / np.sqrt((basis**2).sum(0))


def test_the_test_of_a_curve_keeps_its_level():
    random = np.random.default_rng(3)
    critical = float(np.quantile(np.abs(smooth_curves(random, 4000)).max(1), 0.95))
    points, error = np.linspace(0, 1, 60), 0.02
    old, new = (0.3 + error * smooth_curves(random, 800) for _ in range(2))
    half = Z * error
    p = [
        curve_difference(points, share(a, half), share(b, half), critical)["p_value"]
        for a, b in zip(old, new, strict=True)
    ]
    assert 0.02 < np.mean(np.array(p) < 0.05) < 0.08


def test_the_moment_that_differs_is_found():
    points = np.linspace(0, 1, 50)
    bump = 0.2 * np.exp(-(((points - 0.7) / 0.05) ** 2))
    found = curve_difference(points, share(np.full(50, 0.1), 0.03), share(0.1 + bump, 0.03), 2.8)
    assert found["at"] == pytest.approx(0.7, abs=0.02)
    assert found["p_value"] < 0.001
    assert found["lower"] > 0
    assert curve_difference(points, share(np.full(50, np.nan), 0.1), share(bump, 0.1), 2.8) == {}


def test_holm_corrects_for_the_number_of_tests():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, math.nan, 0.01])[2] == pytest.approx(0.02)
    assert holm([]).tolist() == []
