"""Features are standardised inside, by what the training rows show; the scaling is part of the fit."""

import numpy as np
import pytest

import labeltide as lt

OPTIONS = {"epochs": 4, "hidden_size": 8, "random_state": 0, "device": "cpu"}


@pytest.fixture(scope="module")
def study():
    made = lt.make_sequences(24, 12, 3, stay=0.9, variance=0.5, random_state=0)
    return made.features.astype(float), lt.corrupt(made.clean_labels, np.array([[0.8, 0.2], [0.2, 0.8]]))


def own(name):
    return {"noise": np.array([[0.8, 0.2], [0.2, 0.8]])} if name == "known" else {}


@pytest.mark.parametrize("name", lt.METHODS)
def test_units_and_offsets_of_features_change_nothing(name, study):
    X, y = study
    first, second = (lt.METHODS[name](**OPTIONS, **own(name)).fit(given, y) for given in (X, 1000 + 3 * X))
    np.testing.assert_allclose(first.predict_proba(X), second.predict_proba(1000 + 3 * X), atol=1e-3)


def test_an_offset_beyond_single_precision_changes_nothing(study):
    X, y = study
    first, second = (lt.IgnoreClassifier(**OPTIONS).fit(given, y) for given in (X, X + 1e8))
    np.testing.assert_allclose(first.predict_proba(X), second.predict_proba(X + 1e8), atol=1e-3)


def test_without_it_networks_take_features_as_they_are(study):
    X, y = study
    shifted = lt.IgnoreClassifier(**OPTIONS, standardize=False).fit(X + 1000, y)
    assert shifted.scaling_ is None
    assert abs(shifted.predict_proba(X + 1000) - shifted.predict_proba(X + 1001)).max() < 1e-3  # saturated
    with pytest.raises(ValueError, match="standardize must be True or False"):
        lt.IgnoreClassifier(standardize="yes").fit(X, y)


def test_padding_does_not_count_and_stays_zero(study):
    X, y = study
    lengths = np.full(24, 12)
    lengths[::2] = 7
    broken = X.copy()
    broken[::2, 7:] = 1e6
    first, second = (lt.IgnoreClassifier(**OPTIONS).fit(given, y, lengths=lengths) for given in (X, broken))
    np.testing.assert_array_equal(first.scaling_, second.scaling_)
    np.testing.assert_array_equal(first.predict_proba(X, lengths), second.predict_proba(broken, lengths))


def test_one_artefact_does_not_decide_the_scale_and_a_constant_feature_is_harmless(study):
    X = np.concatenate([study[0], np.full((24, 12, 1), 5.0)], -1)
    X = np.tile(X, (10, 1, 1))
    y = np.tile(study[1], (10, 1))
    broken = X.copy()
    broken[0, 0, 0] = 1e9
    clf = lt.IgnoreClassifier(**{**OPTIONS, "epochs": 1}).fit(broken, y)
    usual = lt.IgnoreClassifier(**{**OPTIONS, "epochs": 1}).fit(X, y)
    np.testing.assert_allclose(clf.scaling_[2:], usual.scaling_[2:], rtol=0.1)
    assert clf.scaling_[3, 3] == 1
    assert np.isfinite(clf.predict_proba(broken)).all()


def test_the_scaling_is_saved_streamed_and_part_of_out_of_fold_audits(study, tmp_path):
    X, y = 500 + 20 * study[0], study[1]
    clf = lt.TideClassifier(**OPTIONS).fit(X, y)
    clf.save(tmp_path / "file")
    loaded = lt.load(tmp_path / "file")
    np.testing.assert_array_equal(loaded.scaling_, clf.scaling_)
    np.testing.assert_array_equal(loaded.predict_proba(X), clf.predict_proba(X))
    stream = loaded.stream()
    steps = np.stack([stream.push(X[:, step]) for step in range(12)], 1)
    np.testing.assert_allclose(steps, clf.predict_proba(X), atol=1e-5)
    assert loaded.audit(X, y).out_of_fold.all()


def test_fits_with_different_scalings_predict_together(study):
    X, y = study
    fits = [lt.IgnoreClassifier(**OPTIONS).fit(given, y) for given in (X, 2 * X + 5)]
    together = lt.estimators.predict_fleet(fits, X)
    np.testing.assert_array_equal(together, np.stack([clf.predict_proba(X) for clf in fits]))


def test_the_rows_that_an_audit_recognises_are_counted(study):
    X, y = study
    clf = lt.TideClassifier(**OPTIONS).fit(X, y)
    with pytest.warns(UserWarning, match="None of the 24 rows are recognised as training rows"):
        assert not clf.audit(X.round(3), y).out_of_fold.any()
    half = np.concatenate([X[:12], X[12:] + 1e-3])
    with pytest.warns(UserWarning, match="12 of the 24 rows are recognised"):
        assert clf.audit(half, y).out_of_fold.tolist() == [True] * 12 + [False] * 12
    assert lt.IgnoreClassifier(**OPTIONS).fit(X, y).audit(X.round(3), y).out_of_fold is None
