"""scikit-learn's own checks. They know two-dimensional data only: `OneStep` gives classifiers one-step sequences."""

import numpy as np
import pytest
import sklearn
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_validate
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.validation import check_is_fitted, validate_data

import labeltide as lt


class OneStep(ClassifierMixin, BaseEstimator):
    """A classifier of rows: each is a sequence of one step."""

    def __init__(self, random_state=None):
        self.random_state = random_state

    def fit(self, X, y):
        X, y = validate_data(self, X, y)
        inner = lt.IgnoreClassifier(epochs=60, device="cpu", hidden_size=16, random_state=self.random_state)
        self.inner_ = inner.fit(X[:, None], np.asarray(y)[:, None])
        self.classes_ = self.inner_.classes_
        return self

    def predict(self, X):
        check_is_fitted(self)
        return self.inner_.predict(validate_data(self, X, reset=False)[:, None])[:, 0]

    def predict_proba(self, X):
        check_is_fitted(self)
        return self.inner_.predict_proba(validate_data(self, X, reset=False)[:, None])[:, 0]


EXPECTED = {  # check: why it fails
    "check_classifiers_classes": "it uses -1 as a class, which means 'not recorded' here",
    "check_classifiers_regression_target": "a continuous y is refused, in a sentence that counts its values instead",
    "check_fit2d_1sample": "a single row is refused, in a sentence about its single class",
}


@parametrize_with_checks([OneStep(random_state=0)], expected_failed_checks=lambda estimator: EXPECTED)
def test_checks_of_scikit_learn(estimator, check):
    check(estimator)


def study():
    sequences = lt.make_sequences(n=24, n_steps=8, n_features=3, random_state=0)
    return np.asarray(sequences.features), np.asarray(sequences.labels)[..., 0]


def small(**options):
    return lt.IgnoreClassifier(epochs=2, device="cpu", random_state=0, **options)


def test_a_search_runs_in_several_processes_and_finds_the_same():
    X, y = study()
    grid, folds = {"hidden_size": [4, 8]}, GroupKFold(3)
    people = np.arange(24) // 2
    scores = [
        GridSearchCV(small(), grid, cv=folds, n_jobs=n).fit(X, y, groups=people).cv_results_["mean_test_score"]
        for n in (1, 2)
    ]
    np.testing.assert_allclose(*scores, rtol=1e-5)


def test_lengths_are_routed_to_fit_and_score():
    X, y = study()
    lengths = np.full(24, 5)
    with sklearn.config_context(enable_metadata_routing=True):
        estimator = small().set_fit_request(lengths=True).set_score_request(lengths=True)
        found = cross_validate(estimator, X, y, cv=2, params={"lengths": lengths}, error_score="raise")
    cut = cross_validate(small(), X[:, :5], y[:, :5], cv=2, error_score="raise")
    np.testing.assert_allclose(found["test_score"], cut["test_score"], rtol=1e-5)


def test_the_tags_say_that_the_input_has_three_dimensions():
    tags = lt.TideClassifier().__sklearn_tags__()
    assert tags.input_tags.three_d_array
    assert not tags.input_tags.two_d_array
    assert tags.estimator_type == "classifier"
    with pytest.raises(ValueError, match="steps, features"):
        small().fit(np.zeros((4, 3)), np.zeros((4, 3)))
