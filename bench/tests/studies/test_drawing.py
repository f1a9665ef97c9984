"""Variants change which labels go wrong together, but for late ones not how many of each class at each step."""

import numpy as np
import pytest

from labeltide.data.simulate import make_sequences
from labeltide.noise.simulate import corrupt, make_noise
from labeltide_bench.studies.drawing import (
    BURSTS,
    LATE,
    NEAR_BOUNDARIES,
    NOISE_VARIANTS,
    SPREAD,
    corrupt_near_boundaries,
    delay_transitions,
    doubts,
    draw_labels,
    keep_information,
    margins,
)
from labeltide_bench.studies.plan import plan_fleets
from studies.toys import DATASET, toy_study


@pytest.fixture(scope="module")
def train():
    return make_sequences(n=400, n_steps=8, n_features=3, n_classes=3, stay=0.9, random_state=0)


@pytest.mark.parametrize("variant", NOISE_VARIANTS)
def test_every_variant_is_drawn_again_from_the_same_seed(train, variant):
    noise = make_noise("mixed", 3, 8)
    first, again, other = (draw_labels(train, noise, variant, np.random.default_rng(seed)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    assert first.dtype == train.labels.dtype


@pytest.mark.parametrize("variant", ["uniform", "class-conditional"])
def test_the_first_two_variants_draw_as_they_always_did(train, variant):
    noise = make_noise("growth", 3, 8)
    drawn = draw_labels(train, noise, variant, np.random.default_rng([7, 0]))
    np.testing.assert_array_equal(drawn, corrupt(train.labels[..., 0], noise, np.random.default_rng([7, 0])))


@pytest.mark.parametrize("variant", [variant for variant in NOISE_VARIANTS if variant not in LATE])
def test_in_every_variant_but_late_labels_q_is_the_share_of_each_recorded_label_at_each_step(train, variant):
    noise, clean = make_noise("growth", 3, 8), train.labels[..., 0]
    generator, rounds = np.random.default_rng(0), 200
    drawn = np.stack([draw_labels(train, noise, variant, generator) for _ in range(rounds)])
    for code in range(3):
        for step, row in enumerate(np.asarray(noise)[:, code]):
            found = drawn[:, clean[:, step] == code, step]
            shares = np.bincount(found.ravel(), minlength=3) / found.size
            np.testing.assert_allclose(shares, row, atol=4.5 / np.sqrt(found.size) / 2)


def test_bursts_are_named_by_their_correlation(train):
    noise, clean = make_noise("static", 3, 8), train.labels[..., 0]
    for variant, strength in BURSTS.items():
        generator = np.random.default_rng(0)
        wrong = np.concatenate([draw_labels(train, noise, variant, generator) != clean for _ in range(50)])
        assert np.corrcoef(wrong[:, 1:].ravel(), wrong[:, :-1].ravel())[0, 1] == pytest.approx(strength, abs=0.02)


def test_near_boundaries_mistakes_stand_where_the_classifier_is_unsure(train):
    clean = train.labels[..., 0]
    margin = margins(clean, train.features)
    wrong = draw_labels(train, make_noise("static", 3, 8), NEAR_BOUNDARIES, np.random.default_rng(0)) != clean
    unsure = margin < np.quantile(margin, 0.25)
    sure = margin > np.quantile(margin, 0.75)
    assert wrong[unsure].mean() > 0.45
    assert wrong[sure].mean() < 0.15


def test_doubts_fall_with_the_margin_and_average_one_in_every_class_and_step(train):
    clean = train.labels[..., 0]
    factor, margin = doubts(clean, train.features), margins(clean, train.features)
    assert 0 < factor.min() < factor.max() < 2
    for code in range(3):
        for step in range(8):
            rows = clean[:, step] == code
            assert factor[rows, step].mean() == pytest.approx(1)
            order = np.argsort(margin[rows, step])
            assert (np.diff(factor[rows, step][order]) < 0).all()


def test_the_margin_of_two_classes_is_the_distance_from_their_boundary():
    features = np.array([-3.0, -1, -0.1, 0.1, 1, 3]).reshape(1, 6, 1)
    margin = margins(np.array([[0, 0, 0, 1, 1, 1]]), features)[0]
    np.testing.assert_allclose(margin, margin[::-1])
    assert (np.diff(margin[3:]) > 0).all()


def test_near_boundaries_missing_labels_stay_missing_and_the_identity_changes_nothing(train):
    clean = train.labels[..., 0].copy()
    clean[::3, ::2] = -1
    drawn = corrupt_near_boundaries(clean, train.features, np.tile(np.eye(3), (8, 1, 1)), np.random.default_rng(0))
    np.testing.assert_array_equal(drawn, clean)
    noisy = np.asarray(make_noise("static", 3, 8))
    drawn = corrupt_near_boundaries(clean, train.features, noisy, np.random.default_rng(0))
    np.testing.assert_array_equal(drawn == -1, clean == -1)


@pytest.mark.parametrize(("variant", "late"), LATE.items())
def test_late_labels_have_every_transition_later_by_about_as_many_steps(variant, late):
    clean = np.repeat([[0, 1, 2, 0, 2]], 12, axis=1).repeat(500, axis=0)  # stretches of 12 steps: none is overtaken
    data = make_sequences(n=500, n_steps=60, n_features=2, n_classes=3, random_state=0)
    data.labels[..., 0] = clean
    noise = make_noise("static", 3, 60, 0.3)
    drawn = draw_labels(data, noise, variant, np.random.default_rng(0))
    changes = np.nonzero(drawn[:, 1:] != drawn[:, :-1])[1].reshape(500, 4) + 1
    delays = changes - np.array([12, 24, 36, 48])
    assert set(np.unique(delays)) == set(range(late - SPREAD, late + SPREAD + 1))
    np.testing.assert_array_equal(np.take_along_axis(drawn, changes, 1), np.tile([1, 2, 0, 2], (500, 1)))
    assert (drawn[:, 0] == 0).all()
    np.testing.assert_array_equal(drawn, delay_transitions(data.labels[..., 0], late, np.random.default_rng(0)))


@pytest.mark.parametrize("late", LATE.values())
def test_late_labels_keep_their_order_also_where_stretches_are_short(train, late):
    clean = train.labels[..., 0]
    drawn = delay_transitions(clean, late, np.random.default_rng(0))
    assert drawn.dtype == clean.dtype
    for before, after in zip(clean, drawn, strict=True):
        stretches, kept = (row[np.append(True, row[1:] != row[:-1])].tolist() for row in (before, after))
        names = iter(stretches)
        assert all(name in names for name in kept), "stretches are recorded in order, or not at all"


def test_late_labels_are_missing_where_the_clean_ones_are_and_nowhere_else(train):
    clean = train.labels[..., 0].copy()
    clean[::3, ::2] = -1
    clean[5] = -1
    drawn = delay_transitions(clean, 2, np.random.default_rng(0))
    np.testing.assert_array_equal(drawn == -1, clean == -1)


def test_labels_without_a_transition_are_never_late():
    clean = np.array([[1, 1, 1, 1], [0, 0, 0, 0]])
    np.testing.assert_array_equal(delay_transitions(clean, 8, np.random.default_rng(0)), clean)


def test_the_key_of_a_run_names_its_variant_and_is_what_it_was(tmp_path):
    noise = '[[noise]]\nshape = "jump"\nrates = [0.3]\nvariants = ["uniform", "class-conditional", "near boundaries"]\n'
    study = toy_study(tmp_path, "draws = 1\n" + DATASET + noise + "[methods.ignore]\n")
    keys = [run.key for plan in plan_fleets(study, 100) for run in plan.runs]
    assert keys == [f'ignore|toy|jump|{{"rate": 0.3}}|{v}|0' for v in ("uniform", "class-conditional", NEAR_BOUNDARIES)]


@pytest.mark.parametrize(("n_classes", "rate"), [(2, 0.0), (2, 0.4), (3, 0.3), (4, 0.2)])
def test_thinned_clean_labels_are_clean_and_as_many_as_carry_the_information(n_classes, rate):
    generator = np.random.default_rng(0)
    clean = generator.integers(n_classes, size=(2000, 10))
    noise = np.asarray(make_noise("static", n_classes, 10, rate))
    kept = keep_information(clean, noise, generator)
    assert np.all((kept == clean) | (kept == -1))
    assert (kept >= 0).mean() == pytest.approx((1 - rate * n_classes / (n_classes - 1)) ** 2, abs=0.01)
