"""Scores count steps, by name through step_scorer; scikit-learn's own names are refused with the way out."""

import warnings

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import f1_score, get_scorer, get_scorer_names
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline

import labeltide as lt

OPTIONS = {"epochs": 3, "random_state": 0, "device": "cpu", "hidden_size": 8}


@pytest.fixture(scope="module")
def study():
    X = np.random.default_rng(0).normal(size=(12, 10, 2))
    y = np.array(["rest", "walk", "run"], dtype=object)[(X[..., 0] > 0).astype(int) + (X[..., 1] > 1)]
    y[0, :3] = None
    return X, y


def test_accuracy_over_steps_is_the_method_s_own_score(study):
    estimator = lt.IgnoreClassifier(**OPTIONS).fit(*study)
    assert lt.step_scorer("accuracy")(estimator, *study) == pytest.approx(estimator.score(*study))


def test_any_scorer_of_scikit_learn_counts_labelled_steps(study):
    X, y = study
    estimator = lt.IgnoreClassifier(**OPTIONS).fit(X, y)
    there = y != None  # noqa: E711
    expected = f1_score(y[there].astype(str), estimator.predict(X)[there], average="macro")
    assert lt.step_scorer("f1_macro")(estimator, X, y) == pytest.approx(expected)
    assert lt.step_scorer("neg_log_loss")(estimator, X, y) < 0
    assert 0 <= lt.step_scorer("balanced_accuracy")(estimator, X, y, lengths=np.full(12, 5)) <= 1


def test_searches_take_it(study):
    X, y = study[0], (study[0][..., 0] > 0).astype(int) + (study[0][..., 1] > 1)
    scorer = lt.step_scorer("balanced_accuracy")
    pipeline = make_pipeline(lt.SequenceScaler(), lt.IgnoreClassifier(**OPTIONS))
    assert (cross_val_score(pipeline, X, y, cv=2, scoring=scorer, error_score="raise") > 0).all()
    search = GridSearchCV(lt.IgnoreClassifier(**OPTIONS), {"hidden_size": [8]}, scoring=scorer, cv=2)
    assert search.fit(X, y).best_score_ > 0


def test_an_unknown_scorer_is_named():
    with pytest.raises(ValueError, match="Unknown scoring 'acc'"):
        lt.step_scorer("acc")


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_scorer_by_name_alone_says_what_to_do_in_place_of_a_wrong_number(study, wrapped):
    X, y = study[0], (study[0][..., 0] > 0).astype(int)  # two classes: scikit-learn would count whole sequences
    estimator = lt.IgnoreClassifier(**OPTIONS)
    estimator = make_pipeline(lt.SequenceScaler(), estimator) if wrapped else estimator
    with pytest.raises(ValueError, match=r"labeltide\.step_scorer"):
        cross_val_score(estimator, X, y, cv=2, scoring="accuracy", error_score="raise")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert np.isnan(cross_val_score(estimator, X, y, cv=2, scoring="accuracy")).all()
    assert any("labeltide.step_scorer" in str(warning.message) for warning in caught)
    assert estimator.fit(X, y).predict(X).shape == y.shape  # a user may ask


@pytest.mark.parametrize("method", [lt.IgnoreClassifier, lt.AnchorClassifier, lt.PlugInClassifier, lt.TideClassifier])
def test_a_wrong_parameter_names_the_class_that_the_user_wrote(method):
    with pytest.raises(
        TypeError, match=rf"^{method.__name__}\.__init__\(\) got an unexpected keyword argument 'layers'"
    ):
        method(layers=3)
    assert "hidden_size" in method().get_params()


def test_labels_in_a_frame_come_back_on_its_index(study):
    pd = pytest.importorskip("pandas")
    X, y = study
    frame = pd.DataFrame(y, index=[f"p{number}" for number in range(12)])
    fixed = lt.IgnoreClassifier(**OPTIONS).fit(X, frame).corrected_labels(X, frame, min_confidence=0.4)
    assert fixed.index.equals(frame.index)
    assert fixed.columns.equals(frame.columns)
    plain = lt.IgnoreClassifier(**OPTIONS).fit(X, y).corrected_labels(X, y, min_confidence=0.4)
    there = frame.notna().to_numpy()
    assert fixed.notna().equals(frame.notna())
    np.testing.assert_array_equal(fixed.to_numpy()[there], plain[there])


@pytest.mark.parametrize("classes", [2, 3])
def test_every_scorer_of_scikit_learn_by_name_is_refused(study, classes):
    X = study[0]
    y = (X[..., 0] > 0).astype(int) + (X[..., 1] > 1) * (classes - 2)
    estimator = lt.IgnoreClassifier(**OPTIONS).fit(X, y)
    for name in get_scorer_names():
        with pytest.raises(ValueError, match=r"labeltide\.step_scorer"):
            get_scorer(name)(estimator, X, y)
    for name in ("roc_auc", "roc_auc_ovr", "average_precision", "accuracy"):
        for wrapped in (
            make_pipeline(lt.SequenceScaler(), estimator),
            GridSearchCV(estimator, {"hidden_size": [8]}, cv=2),
        ):
            with pytest.raises(ValueError, match=r"labeltide\.step_scorer"):
                get_scorer(name)(wrapped.fit(X, y), X, y)


def test_code_of_the_user_that_flattens_steps_may_be_scored(study):
    class PerStep(ClassifierMixin, BaseEstimator):
        def fit(self, X, y):
            self.classes_, self.inner_ = np.unique(y), lt.IgnoreClassifier(**OPTIONS).fit(X[None], y[None])
            return self

        def predict(self, X):
            return self.inner_.predict(X[None])[0]

    X, y = study[0].reshape(-1, 2), (study[0][..., 0] > 0).astype(int).ravel()
    assert 0 <= get_scorer("accuracy")(PerStep().fit(X, y), X, y) <= 1
