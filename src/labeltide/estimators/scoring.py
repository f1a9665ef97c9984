"""scikit-learn's metrics over steps, for `cross_val_score` and `GridSearchCV`."""

from __future__ import annotations

import inspect
import traceback
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import get_scorer, get_scorer_names

from labeltide import _validation


def step_scorer(scoring: str = "accuracy") -> StepScorer:
    """A scorer of scikit-learn that counts every step with a label once: missing labels and padding do not count.

    By its name alone, such as ``scoring="accuracy"``, scikit-learn would compare whole sequences.

    Parameters
    ----------
    scoring : str
        A scorer of scikit-learn for classifiers, such as "accuracy", "balanced_accuracy", "f1_macro" or "neg_log_loss".

    Examples
    --------
    >>> import labeltide as lt
    >>> lt.step_scorer("f1_macro")
    step_scorer('f1_macro')
    """
    _validation.check_choice("scoring", scoring, get_scorer_names())
    return StepScorer(scoring)


def refuse_scorers_by_name() -> None:
    """Raise where `predict` or `predict_proba` is called by a scorer of scikit-learn that takes sequences for samples.

    ``scoring="accuracy"`` takes labels of shape (n, steps) as n labels that must agree in all steps, and "roc_auc"
    takes the probabilities of one step for those of all. scikit-learn does not tell the estimator who asks, so the call
    is recognised from the stack. A Pipeline or a search may stand in between; the user's own code ends the search.
    """
    for frame, _ in traceback.walk_stack(inspect.currentframe()):
        module = frame.f_globals.get("__name__", "")
        if module == "sklearn.utils._response":
            raise ValueError(
                "scikit-learn's scorers by name, such as scoring='accuracy' or 'roc_auc', take one label per sequence, "
                "and here every step has one. Leave scoring out, which gives the accuracy over steps, or pass "
                "scoring=labeltide.step_scorer('accuracy') with the name of the scorer."
            )
        if not module.startswith(("sklearn.", "labeltide.")):
            return


@dataclass(frozen=True, repr=False)
class StepScorer:
    """Calls scikit-learn's scorer with one line for every labelled step."""

    scoring: str

    def __call__(self, estimator: Any, X: ArrayLike, y: ArrayLike, lengths: ArrayLike | None = None) -> float:
        """The score of a fitted estimator, or of a Pipeline that ends in one."""
        options = {} if lengths is None else {"lengths": lengths}
        probabilities = estimator.predict_proba(X, **options)  # (n, steps, classes)
        labels = _validation.check_labels(y, *probabilities.shape[:2])
        present = ~_validation.missing_labels(labels) & (probabilities.sum(-1) > 0)[..., None]
        if not present.any():
            raise ValueError("y holds no label to score: every step is missing or beyond `lengths`.")
        row, step, _ = np.nonzero(present)
        chances = probabilities[row, step].astype(np.float64)
        steps = StepPredictions(chances / chances.sum(-1, keepdims=True), estimator.classes_)
        recorded = np.array(labels[present].tolist())
        return float(get_scorer(self.scoring)(steps, np.zeros((len(row), 1)), recorded))

    def __repr__(self) -> str:
        return f"step_scorer({self.scoring!r})"


class StepPredictions(ClassifierMixin, BaseEstimator):
    """Predictions that are there already, one line for each step, as a classifier that a scorer can ask."""

    def __init__(self, probabilities: np.ndarray, classes: np.ndarray) -> None:
        self.probabilities = probabilities
        self.classes = classes
        self.classes_ = classes

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        return self

    def predict(self, X: ArrayLike) -> np.ndarray:
        return np.asarray(self.classes_[self.probabilities.argmax(-1)])

    def predict_proba(self, X: ArrayLike) -> np.ndarray:
        return self.probabilities
