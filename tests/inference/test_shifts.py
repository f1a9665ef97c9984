"""Late labels and shifted recordings: found where they are, not found where they are not."""

from copy import copy

import numpy as np
import pytest
import torch

import labeltide as lt
from labeltide.inference.shifts import settle_changes, soften_changes


@pytest.fixture(scope="module")
def study():
    return lt.make_sequences(n=24, n_steps=240, n_features=4, n_classes=3, stay=0.9, random_state=0)


def late(labels, steps):
    """Labels recorded `steps` late; what was before the recording is missing."""
    moved = np.full_like(labels, -1)
    moved[:, max(steps, 0) : labels.shape[1] + min(steps, 0)] = labels[
        :, max(-steps, 0) : labels.shape[1] - max(steps, 0)
    ]
    return moved


@pytest.mark.parametrize("steps", [-30, -3, 1, 8])
def test_a_common_lag_is_found_and_undone(study, steps):
    y = late(study.clean_labels, steps)
    found = lt.find_shifts(study.features, y)
    assert found.lag == steps
    assert found.interval[0] <= steps <= found.interval[1]
    assert found.is_shifted
    aligned = found.align(y)
    there = aligned >= 0
    assert (aligned == study.clean_labels)[there].all()
    assert there.sum() == (y >= 0).sum()


def test_labels_in_time_are_left_alone(study):
    for seed in range(5):
        y = lt.corrupt(study.clean_labels, lt.make_noise("static", 3, 240, 0.3), random_state=seed)
        found = lt.find_shifts(study.features, y)
        assert not found.is_shifted
        assert (found.own_shift == 0).all()
        assert (found.align(y) == y).all()


def test_one_shifted_recording_among_many_is_named(study):
    y = study.clean_labels.copy()
    y[7] = late(y[[7]], 60)[0]
    found = lt.find_shifts(study.features, y)
    assert found.lag == 0
    assert np.flatnonzero(found.own_p_value < 0.05).tolist() == [7]
    assert found.own_shift[7] == 60
    assert found.recordings["is_shifted"].sum() == 1
    assert found.recordings["reason"].isna().all()


def test_each_annotator_has_a_lag(study):
    y = np.stack([study.clean_labels, late(study.clean_labels, 5)], axis=-1)
    found = lt.find_shifts(study.features, y)
    first, second = found.annotators
    assert (first.lag, second.lag) == (0, 5)
    assert second.is_shifted
    assert not first.is_shifted
    aligned = found.align(y)
    assert (aligned == study.clean_labels[..., None])[aligned >= 0].all()
    assert "Annotator 1: Labels are late by 5 steps" in str(found)


def test_padding_never_changes_the_result(study):
    lengths = np.full(24, 200)
    features, labels = study.features.copy(), late(study.clean_labels, 4)
    features[:, 200:], labels[:, 200:] = 1e6, 0
    padded = lt.find_shifts(features, labels, lengths=lengths, max_shift=50)
    short = lt.find_shifts(features[:, :200], labels[:, :200], max_shift=50)
    assert padded.lag == short.lag == 4
    assert np.array_equal(padded.fit, short.fit)
    assert padded.p_value == short.p_value


def test_one_long_recording_is_enough():
    study = lt.make_sequences(n=1, n_steps=6000, n_features=3, stay=0.95, random_state=1)
    found = lt.find_shifts(study.features, late(study.clean_labels, 400))
    assert found.lag == 400
    assert found.is_shifted


def test_labels_of_one_part_of_a_recording_do_not_show_a_lag():
    study = lt.make_sequences(n=1, n_steps=6000, n_features=3, stay=0.95, random_state=1)
    y = late(study.clean_labels, 5)
    y[:, 700:] = -1
    assert not lt.find_shifts(study.features, y).is_shifted


@pytest.mark.parametrize("kind", ["noise", "constant", "few"])
def test_what_cannot_be_aligned_has_a_reason(study, kind):
    y = np.zeros_like(study.clean_labels)
    if kind == "noise":
        y = lt.make_sequences(n=24, n_steps=240, n_features=1, n_classes=3, stay=0.9, random_state=9).clean_labels
    elif kind == "few":
        y[0, :3] = 1
    found = lt.find_shifts(study.features, y)
    assert found.lag is None
    assert np.isnan(found.p_value)
    assert {"noise": "do not predict", "constant": "are the same", "few": "too few"}[kind] in str(found)
    assert set(found.recordings["reason"]) == {found.reason}
    assert found.recordings["lower"].isna().all()
    assert (found.align(y) == y).all()


def test_a_lag_at_the_end_of_the_search_is_said_to_be_there(study):
    y = late(study.clean_labels, 3)
    assert "late by 2 steps (2 to 2, p 0.001, the largest shift tried)" in str(
        lt.find_shifts(study.features, y, max_shift=2)
    )
    assert "tried" not in str(lt.find_shifts(study.features, y, max_shift=4))


def test_a_plot_and_a_piece_of_html_show_the_lag(study):
    found = lt.find_shifts(study.features, late(study.clean_labels, 3))
    assert "late by 3" in found._repr_html_()
    assert "late by 3" in found.plot().get_legend().get_texts()[0].get_text()


def test_clusters_must_be_one_name_per_sequence(study):
    with pytest.raises(ValueError, match="clusters must be 24 names"):
        lt.find_shifts(study.features, study.clean_labels, clusters=[1, 2])


@pytest.fixture(scope="module")
def varying():
    """True labels that last, and the same late by 4 ± 2 steps."""
    calm = lt.make_sequences(n=24, n_steps=240, n_features=4, n_classes=3, stay=0.95, random_state=1)
    generator = np.random.default_rng(0)
    y = np.empty_like(calm.clean_labels)
    for row, labels in enumerate(calm.clean_labels):
        changes = np.flatnonzero(np.diff(labels)) + 1
        edges = np.maximum.accumulate(changes + np.round(generator.normal(4, 2, len(changes))).astype(int))
        y[row] = np.repeat(labels[np.r_[0, changes]], np.diff(np.clip(np.r_[0, edges, len(labels)], 0, len(labels))))
    return calm, y


def test_delays_that_vary_from_change_to_change_have_a_spread(study, varying):
    calm, y = varying
    assert lt.find_shifts(study.features, late(study.clean_labels, 4)).spread < 0.5
    assert 0.7 < lt.find_shifts(calm.features, y).spread < 3


@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_changes_of_label_are_moved_to_their_time_and_other_wrong_labels_stay(varying, noise):
    calm, y = varying
    generator = np.random.default_rng(1)
    wrong = generator.random(y.shape) < noise
    y = np.where(wrong, (y + generator.integers(1, 3, y.shape)) % 3, y)
    lag = lt.find_shifts(calm.features, y).lag
    moved = late(y, -lag)
    settled, _ = settle_changes(calm.features, moved[..., None].astype(np.int8), np.array([lag]))
    settled, there = settled.reshape(y.shape), moved >= 0
    before, after = ((each != calm.clean_labels)[there].mean() for each in (moved, settled))
    assert (after - noise) < (before - noise) * 0.8
    assert ((settled >= 0) == there).all()


def test_without_a_lag_changes_of_label_stay(varying):
    calm, y = varying
    codes = y[..., None].astype(np.int8)
    settled, changes = settle_changes(calm.features, codes, np.zeros(1, int))
    np.testing.assert_array_equal(settled, codes.reshape(-1, 1))
    assert changes == [[]]


def test_changes_of_uncertain_time_are_targets_that_change_gradually(varying):
    calm, y = varying
    moved = late(y, -4)
    settled, (changes,) = settle_changes(calm.features, moved[..., None].astype(np.int8), np.array([4]))
    truth, there = calm.clean_labels.ravel(), settled[:, 0] >= 0
    hard = np.eye(3)[np.maximum(settled[:, 0], 0)]
    posterior = torch.from_numpy(hard.copy()).reshape(*y.shape, 3)
    soften_changes(posterior, torch.ones(y.shape, dtype=torch.bool), changes)
    soft = posterior.reshape(-1, 3).numpy()
    np.testing.assert_allclose(soft.sum(1), 1)
    brier = [((each - np.eye(3)[truth]) ** 2).sum(1)[there].mean() for each in (hard, soft)]
    assert brier[1] < 0.95 * brier[0]
    assert all((np.diff(change[-1]) >= 0).all() for change in changes)


def test_the_interval_of_a_shifted_recording_holds_its_shift(study):
    generator = np.random.default_rng(0)
    shifts, held, width = generator.integers(-60, 61, 24), [], []
    for seed in range(3):
        y = lt.corrupt(study.clean_labels, lt.make_noise("static", 3, 240, 0.3), random_state=seed)
        y = np.concatenate([late(y[[row]], shift) for row, shift in enumerate(shifts * (np.arange(24) % 4 == 0))])
        frame = lt.find_shifts(study.features, y).recordings
        moved = np.flatnonzero(shifts * (np.arange(24) % 4 == 0))
        held += list((frame["lower"][moved] <= shifts[moved]) & (shifts[moved] <= frame["upper"][moved]))
        width += list((frame["upper"] - frame["lower"])[moved])
    assert np.mean(held) >= 0.9
    assert np.median(width) <= 10


def test_tide_learns_from_labels_that_are_late_by_different_numbers_of_steps(varying):
    calm, y = varying
    clf = lt.TideClassifier(epochs=15, random_state=0).fit(calm.features, y)
    plain = lt.TideClassifier(epochs=15, random_state=0, align=False).fit(calm.features, late(y, -4))
    assert clf.lags_.tolist() == [4]
    assert clf.score(calm.features, calm.clean_labels) > plain.score(calm.features, calm.clean_labels)


@pytest.fixture(scope="module")
def late_fit(study):
    y = late(study.clean_labels, 4)
    return y, lt.TideClassifier(epochs=15, random_state=0).fit(study.features, y)


def test_tide_learns_from_late_labels_as_from_aligned_ones(study, late_fit):
    y, clf = late_fit
    aligned = lt.TideClassifier(epochs=15, random_state=0).fit(study.features, late(y, -4))
    assert clf.lags_.tolist() == [4]
    np.testing.assert_array_equal(clf.predict(study.features), aligned.predict(study.features))


def test_an_audit_of_late_labels_judges_each_label_at_its_own_step(study, late_fit):
    y, clf = late_fit
    audit = clf.audit(study.features, y)
    wrong = (y != study.clean_labels) & (y >= 0)
    assert wrong.mean() > 0.2
    assert (audit.suggested == study.clean_labels)[y >= 0].mean() > 0.97
    assert audit.is_issue[wrong].mean() > 0.9
    assert audit.is_issue[~wrong & (y >= 0)].mean() < 0.02


@pytest.mark.parametrize("lags", [[4], [-4], [4, -4]])
def test_no_label_is_listed_where_all_of_an_annotator_seem_early(study, late_fit, lags):
    """Signals that lag look the same as early labels."""
    fit = copy(late_fit[1])
    fit.lags_ = np.array(lags)
    labels = np.stack([late(study.clean_labels, lag) for lag in lags], axis=-1)
    audit = fit.audit(study.features, labels, may_name=False)
    listed = audit.is_issue.any((0, 1))
    assert (listed == (fit.lags_ > 0)).all()
    assert (((audit.corrected() != labels) & (labels >= 0)).any((0, 1)) == listed).all()


def test_labels_stay_where_they_are_without_align(study, late_fit):
    y, _ = late_fit
    clf = lt.TideClassifier(epochs=2, align=False, random_state=0).fit(study.features, y)
    assert clf.lags_.tolist() == [0]
    assert clf.audit(study.features, y).aligned is None


def test_the_lag_of_a_fit_is_in_its_file(late_fit, tmp_path):
    _, clf = late_fit
    clf.save_fit(tmp_path / "model.safetensors")
    assert lt.load(tmp_path / "model.safetensors").lags_.tolist() == [4]


@pytest.mark.parametrize("seed", [1, 2, 3])  # ten of the first twelve; in the others the spread is below the lag
def test_an_annotator_who_repeats_the_last_label_has_no_common_delay(seed):
    random = np.random.default_rng(seed)
    truth = lt.make_sequences(n=40, n_steps=80, n_features=1, n_classes=3, stay=0.8, random_state=seed).clean_labels
    recorded = truth.copy()
    for step in range(1, 80):
        again = random.random(40) < 0.8
        recorded[again, step] = recorded[again, step - 1]
    found = lt.find_shifts(np.eye(3)[truth] * 4 + random.normal(size=(40, 80, 3)), recorded)
    assert found.is_shifted
    assert found.varies
    assert not found.assumed.any()


@pytest.mark.parametrize("steps", [1, 3, 10])
def test_classes_in_a_fixed_order_shift_no_recording(steps):
    """Every shift by a whole number of runs fits as well, with other names for the classes."""
    random = np.random.default_rng(0)
    first = random.integers(0, 3 * steps, (30, 1))
    labels = (np.arange(200) + first) // steps % 3
    features = random.normal(size=(3, 4))[labels] * 1.5 + random.normal(size=(30, 200, 4))
    found = lt.find_shifts(features, labels)
    assert not found.is_shifted
    assert not (found.own_p_value < 0.05).any()
