"""Late labels and shifted recordings: found where they are, not found where they are not."""

import numpy as np
import pytest

import labeltide as lt


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


def test_each_annotator_has_a_lag(study):
    y = np.stack([study.clean_labels, late(study.clean_labels, 5)], axis=-1)
    first, second = lt.find_shifts(study.features, y).annotators
    assert (first.lag, second.lag) == (0, 5)
    assert second.is_shifted
    assert not first.is_shifted


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


@pytest.mark.parametrize("kind", ["noise", "constant"])
def test_what_cannot_be_aligned_has_a_reason(study, kind):
    y = np.zeros_like(study.clean_labels)
    if kind == "noise":
        y = lt.make_sequences(n=24, n_steps=240, n_features=1, n_classes=3, stay=0.9, random_state=9).clean_labels
    else:
        y[0, :3] = 1
    found = lt.find_shifts(study.features, y)
    assert found.lag is None
    assert np.isnan(found.p_value)
    assert {"noise": "do not predict", "constant": "too few"}[kind] in str(found)
    assert (found.align(y) == y).all()


def test_a_plot_and_a_piece_of_html_show_the_lag(study):
    found = lt.find_shifts(study.features, late(study.clean_labels, 3))
    assert "late by 3" in found._repr_html_()
    assert "late by 3" in found.plot().get_legend().get_texts()[0].get_text()


def test_clusters_must_be_one_name_per_sequence(study):
    with pytest.raises(ValueError, match="clusters must be 24 names"):
        lt.find_shifts(study.features, study.clean_labels, clusters=[1, 2])
