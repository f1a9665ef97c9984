"""The parameters of a method in a saved file: what JSON carries of them, and their validation."""

from __future__ import annotations

import reprlib
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from labeltide import _validation
from labeltide._clock import check_period
from labeltide.models import MODELS
from labeltide.noise.network import WIDTHS

if TYPE_CHECKING:
    from labeltide.estimators.base import NoisyLabelClassifier

PLAIN = (str, int, float, bool, type(None))  # what JSON carries with its type
NOT_SAVED = ("checkpoint", "noise", "noise_function")  # parameters that are None in the file
MAY_BE_NONE = ("rounds", "noise_learning_rate", "clip")
WHOLE_NUMBERS = ("noise_widths", "noise_milestones")  # parameters that are lists of them
# Parameters that files of earlier versions lack, with the values that they then had.
OLD_PARAMS: dict[str, dict[str, Any]] = {
    "tide": {"period": None},
    "discontinuous": {"objective": "volume", "diagonal_weight": 0.01},
    "continuous": {
        "linear": 1.0,
        "quadratic": 1.0,
        "gamma": 2.0,
        "eta": 2.0,
        "rounds": None,
        "epochs_per_round": 10,
        "noise_widths": list(WIDTHS),
        "noise_learning_rate": None,
        "noise_milestones": [50, 100],
        "noise_function": None,
        "clip": 5.0,
        "max_restarts": 8,
    },
}


def plain_params(estimator: NoisyLabelClassifier) -> dict[str, Any]:
    """The parameters as JSON can carry them."""
    params = estimator.get_params(deep=False)
    params = {name: value.item() if isinstance(value, np.generic) else value for name, value in params.items()}
    params |= {name: None for name in NOT_SAVED if name in params}
    params["model"] = params["model"] if isinstance(params["model"], str) else None
    params["device"] = "cpu" if str(params["device"]) == "cpu" else "auto"  # a GPU of ours may not be there
    params["random_state"] = params["random_state"] if type(params["random_state"]) is int else None
    for name, value in params.items():
        many = name == "period" or name in WHOLE_NUMBERS
        each = value if many and isinstance(value, tuple | list) else (value,)
        if any(type(part) not in PLAIN for part in each):
            raise ValueError(f"The parameter {name} must be a number or a string to be saved. Got {value!r}.")
    return params


def check_params(method: type[NoisyLabelClassifier], saved: Any) -> dict[str, Any]:
    """The validated parameters of a method in a file."""
    defaults = method().get_params(deep=False)
    params = _with_old_params(method.name, saved) if isinstance(saved, dict) else saved
    check_fields("params", params, defaults)
    for name, default in defaults.items():
        _check_param(name, params[name], default)
    return {name: tuple(value) if isinstance(value, list) else value for name, value in params.items()}


def check_fields(part: str, fields: Any, wanted: Iterable[str]) -> None:
    """Refuse a part of the header that does not hold exactly the wanted fields."""
    if not isinstance(fields, dict) or set(fields) != set(wanted):
        names = reprlib.repr(sorted(fields) if isinstance(fields, dict) else fields)
        raise ValueError(f"its {part} must hold the fields {', '.join(wanted)}. Got {names}.")


def _with_old_params(method: str, params: dict[str, Any]) -> dict[str, Any]:
    """The parameters of a file, with those that it is too old to have."""
    params = {**OLD_PARAMS.get(method, {}), **params}
    if method == "continuous":  # the network with raw steps was that of the paper's code in these respects too
        departs = not params.get("raw_steps")
        params = {"scaled_weights": departs, "bounded_logits": departs, **params}
    return params


def _check_param(name: str, value: Any, default: Any) -> None:
    if name in NOT_SAVED:
        if value is not None:
            raise ValueError(f"{name} must be empty in a file. Got {reprlib.repr(value)}.")
    elif name == "model":
        if value is not None:
            _validation.check_choice("model", value, MODELS)
    elif name == "device":
        _validation.check_choice("device", value, ("auto", "cpu"))
    elif name == "period":
        check_period(value)
    elif name in WHOLE_NUMBERS:
        _validation.check_whole_numbers(name, value, 0, may_be_empty=True)
    elif value is None and name in MAY_BE_NONE:
        return
    elif name == "random_state":
        if value is not None:
            _validation.check_number(name, value, 0, 2**32 - 1, whole=True)
    elif isinstance(default, str | bool):
        if not isinstance(value, str if isinstance(default, str) else int):
            raise ValueError(f"{name} must be of type {type(default).__name__}. Got {reprlib.repr(value)}.")
    elif isinstance(default, int):
        _validation.check_number(name, value, 0 if name == "max_restarts" else 1, whole=True)
    else:
        _validation.check_number(name, value, -sys.float_info.max, sys.float_info.max)
