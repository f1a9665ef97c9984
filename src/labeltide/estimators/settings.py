"""Validation of the parameters of estimators that are fitted as one fleet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state

from labeltide import _validation
from labeltide._clock import check_period

if TYPE_CHECKING:
    from labeltide.estimators.base import NoisyLabelClassifier

PER_MEMBER = {"random_state", "noise"}  # the parameters in which the estimators of one fleet may differ
UNRELATED = PER_MEMBER | {"device", "checkpoint", "verbose", "model"}  # parameters that a resumed fit may change


def check_fleet(estimators: Sequence[NoisyLabelClassifier], labels: Sequence[ArrayLike]) -> None:
    """Check that estimators are of one method with the same settings, with a label array for each."""
    if not len(estimators) or len(estimators) != len(labels):
        raise ValueError(f"Give one label array for each estimator. Got {len(estimators)} and {len(labels)}.")
    first = estimators[0]
    _check_settings(first)
    for other in estimators[1:]:
        theirs, wanted = other.get_params(deep=False), first.get_params(deep=False)
        differing = [name for name in wanted if name not in PER_MEMBER and theirs.get(name) != wanted[name]]
        if type(other) is not type(first) or differing:
            raise ValueError(
                "The estimators of one fleet must be of one method and differ in "
                f"{' and '.join(sorted(PER_MEMBER))} only. Got {type(other).__name__} with other values of "
                f"{differing}. A module of your own must be the same object in all of them; better pass a factory."
            )


def _check_settings(estimator: NoisyLabelClassifier) -> None:
    for name in ("hidden_size", "epochs", "batch_size"):
        _validation.check_number(name, getattr(estimator, name), 1, whole=True)
    _validation.check_number("learning_rate", estimator.learning_rate, 0, above=True)
    _validation.check_number("validation_fraction", estimator.validation_fraction, 0, 0.9, above=True)
    check_period(estimator.period)
    if estimator.checkpoint is not None and not isinstance(estimator.random_state, int | np.integer):
        raise ValueError(
            "With checkpoint, random_state must be a whole number: a resumed fit goes on with the same seed. "
            f"Got random_state={estimator.random_state!r}."
        )


def find_seed(random_state: Any) -> int:
    """A whole number from what scikit-learn calls a random state."""
    if isinstance(random_state, int | np.integer) and not isinstance(random_state, bool):
        _validation.check_number("random_state", random_state, 0, 2**32 - 1, whole=True)
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))
