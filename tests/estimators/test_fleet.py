import numpy as np
import pytest
import torch

import labeltide as lt
from labeltide.estimators.fleet import hold_out

N, STEPS, FEATURES = 24, 6, 3
SEEDS = (3, 4, 7)
SETTINGS = {"hidden_size": 4, "batch_size": 10, "device": "cpu", "learning_rate": 0.02, "epochs": 5}
OWN = {"plugin": {"warm_up": 2}, "anchor": {"warm_up": 2}, "continuous": {"epochs": 3}}
# Rounding in torch's products depends on how many members there are, and EM magnifies it; our own GRU's does not.
OWN |= {"tide": {"hidden_size": 32}}
# Each member's own noise, in every form that is taken.
NOISES = [
    np.array([[0.9, 0.1], [0.3, 0.7]]),
    np.linspace([[0.9, 0.1], [0.1, 0.9]], [[0.6, 0.4], [0.2, 0.8]], STEPS),
    lt.make_noise("decay", n_steps=STEPS, rate=0.2),
]


def make_study(ragged=False):
    """Shared features, and one draw of recorded labels for each member."""
    study = lt.make_sequences(N, STEPS, FEATURES, 2, random_state=0, ragged=ragged)
    Q = np.array([[0.8, 0.2], [0.2, 0.8]])
    return study, [lt.corrupt(study.clean_labels, Q, random_state=seed) for seed in SEEDS]


def make_estimators(method, **changes):
    settings = SETTINGS | OWN.get(method, {}) | changes
    own = [{"noise": noise} if method == "known" else {} for noise in NOISES]
    return [lt.METHODS[method](random_state=seed, **settings, **extra) for seed, extra in zip(SEEDS, own, strict=True)]


def assert_close_fits(one, two, X, **given):
    np.testing.assert_allclose(one.noise_matrices_, two.noise_matrices_, atol=1e-4)
    np.testing.assert_allclose(one.predict_proba(X, **given), two.predict_proba(X, **given), atol=1e-4)
    np.testing.assert_array_equal(one.classes_, two.classes_)
    np.testing.assert_array_equal(one.clock_grid_, two.clock_grid_)
    epochs = len(two.history_.loss)
    np.testing.assert_allclose(one.history_.loss[:epochs], two.history_.loss, atol=1e-4)
    assert one.noise_.members == 1
    assert one.model_.members == two.model_.members
    assert one.model_.members in ((5, 10) if one.name == "tide" else (1,))


@pytest.mark.parametrize(
    ("method", "early_stopping"),
    [*((method, False) for method in lt.METHODS), ("ignore", True), ("plugin", True)],
)
def test_a_fleet_of_estimators_equals_each_fitted_alone(method, early_stopping):
    study, labels = make_study()
    together = make_estimators(method, early_stopping=early_stopping)
    lt.fit_fleet(together, study.features, labels)
    for member, alone, y in zip(together, make_estimators(method, early_stopping=early_stopping), labels, strict=True):
        assert_close_fits(member, alone.fit(study.features, y), study.features)
    first, second = (each.predict_proba(study.features) for each in together[:2])
    assert np.abs(first - second).max() > 1e-3


def test_members_differ_in_their_known_noise():
    study, labels = make_study()
    together = make_estimators("known")
    lt.fit_fleet(together, study.features, labels)
    np.testing.assert_allclose(together[0].noise_matrices_, np.broadcast_to(NOISES[0], (STEPS, 2, 2)), atol=1e-6)
    np.testing.assert_allclose(together[1].noise_matrices_, NOISES[1], atol=1e-6)
    np.testing.assert_allclose(together[2].noise_matrices_, np.asarray(NOISES[2]), atol=1e-6)


@pytest.mark.parametrize("method", ["plugin", "known"])
def test_a_fleet_takes_clocks_lengths_and_trusted_labels_as_fit_does(method):
    study, labels = make_study(ragged=True)
    lengths = study.lengths
    clock = np.broadcast_to(np.linspace(0, 1, STEPS) ** 2, (N, STEPS)).copy()
    trusted = np.where(np.random.default_rng(0).random((N, STEPS)) < 0.2, study.clean_labels, -1)
    given = {"clock": clock, "lengths": lengths, "trusted": trusted}
    together = make_estimators(method)
    lt.fit_fleet(together, study.features, labels, **given)
    for member, alone, y in zip(together, make_estimators(method), labels, strict=True):
        assert_close_fits(member, alone.fit(study.features, y, **given), study.features, lengths=lengths)


def test_trusted_labels_change_the_fit():
    study, labels = make_study()
    with_trust = make_estimators("ignore")[0].fit(study.features, labels[0], trusted=study.clean_labels)
    without = make_estimators("ignore")[0].fit(study.features, labels[0])
    difference = with_trust.predict_proba(study.features) - without.predict_proba(study.features)
    assert np.abs(difference).max() > 1e-3


def test_the_classes_of_a_fleet_are_those_of_all_members():
    study, labels = make_study()
    third = labels[0].copy()
    third[0, 0] = 2
    together = make_estimators("ignore")[:2]
    lt.fit_fleet(together, study.features, [labels[1], third])
    for member in together:
        assert member.classes_.tolist() == [0, 1, 2]
        assert member.noise_matrices_.shape[1:] == (3, 3)


def test_members_are_copies_that_share_no_memory():
    study, labels = make_study()
    together = make_estimators("continuous", epochs=1)
    lt.fit_fleet(together, study.features, labels)
    before = together[1].predict_proba(study.features)
    with torch.no_grad():
        for parameter in together[0].model_.parameters():
            parameter.fill_(torch.nan)
    np.testing.assert_array_equal(together[1].predict_proba(study.features), before)


def test_held_out_sequences_without_labels_do_not_leave_an_untrained_model():
    study, labels = make_study()
    y = labels[0].astype(int)
    kept = np.flatnonzero(~hold_out(SEEDS[0], np.ones(N, bool), 0.2))[:6]
    sparse = np.full_like(y, -1)
    sparse[kept] = y[kept]
    trained = make_estimators("ignore", early_stopping=True)[0].fit(study.features, sparse)
    plain = make_estimators("ignore", epochs=1, learning_rate=1e-9)[0].fit(study.features, sparse)
    moved = trained.predict_proba(study.features) - plain.predict_proba(study.features)
    assert np.abs(moved).max() > 1e-3


@pytest.mark.parametrize(("fraction", "n", "count"), [(0.2, 24, 5), (0.01, 24, 1), (0.9, 2, 1), (0.5, 3, 2)])
def test_rows_held_out_depend_on_the_seed_and_leave_some_to_train_on(fraction, n, count):
    assert hold_out(1, np.ones(n, bool), fraction).sum() == count
    np.testing.assert_array_equal(hold_out(1, np.ones(n, bool), fraction), hold_out(1, np.ones(n, bool), fraction))
    if n == 24:
        assert any(
            not np.array_equal(hold_out(1, np.ones(n, bool), fraction), hold_out(seed, np.ones(n, bool), fraction))
            for seed in range(5)
        )


def test_one_sequence_cannot_be_held_out():
    study, labels = make_study()
    with pytest.raises(ValueError, match="at least two sequences"):
        make_estimators("ignore", early_stopping=True)[0].fit(study.features[:1], labels[0][:1])


# What is refused


def test_estimators_that_differ_in_more_than_seed_and_noise_are_refused():
    study, labels = make_study()
    estimators = make_estimators("ignore")
    estimators[1].epochs = 6
    with pytest.raises(ValueError, match=r"differ in noise and random_state only.*\['epochs'\]"):
        lt.fit_fleet(estimators, study.features, labels)


def test_estimators_of_two_methods_are_refused():
    study, labels = make_study()
    mixed = [make_estimators("ignore")[0], make_estimators("volmin")[1]]
    with pytest.raises(ValueError, match="of one method"):
        lt.fit_fleet(mixed, study.features, labels[:2])


@pytest.mark.parametrize("count", [0, 2])
def test_as_many_labels_as_estimators_are_asked_for(count):
    study, labels = make_study()
    with pytest.raises(ValueError, match=f"one label array for each estimator. Got {count} and 3"):
        lt.fit_fleet(make_estimators("ignore")[:count], study.features, labels)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epochs", 0),
        ("epochs", 1.5),
        ("batch_size", 0),
        ("hidden_size", -1),
        ("learning_rate", 0.0),
        ("learning_rate", float("nan")),
        ("validation_fraction", 0.95),
        ("random_state", -1),
        ("random_state", "seed"),
        ("device", "gpu of a friend"),
    ],
)
def test_settings_out_of_range_are_refused_by_name(name, value):
    study, labels = make_study()
    estimator = make_estimators("ignore")[0].set_params(**{name: value})
    with pytest.raises(ValueError, match=name if name != "random_state" else ".*"):
        estimator.fit(study.features, labels[0])


def test_ensembles_of_different_sizes_are_averaged_each_on_its_own():
    study, labels = make_study()
    few = np.where(np.arange(len(labels[0]))[:, None] < 3, labels[0], -1)
    fitted = [
        lt.TideClassifier(epochs=1, hidden_size=4, random_state=0, device="cpu").fit(study.features, own)
        for own in (few, labels[1])
    ]
    few, many = (one.model_.members for one in fitted)
    assert few in (3, 6)
    assert many in (5, 10)
    together = lt.estimators.predict_fleet(fitted, study.features)
    for one, own in zip(fitted, together, strict=True):
        np.testing.assert_allclose(own, one.predict_proba(study.features), atol=1e-6)
