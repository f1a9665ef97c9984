"""Noise shapes and methods of the user's own, which a study names as "module:name"."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any

import numpy as np

from labeltide import _validation
from labeltide.estimators import METHODS, NoisyLabelClassifier
from labeltide.noise.functions import FixedNoise, NoiseFunction
from labeltide.noise.simulate import make_noise

OWN = "Or name your own as 'module:name', with module.py beside the study file or installed."


def is_own(name: Any) -> bool:
    """Whether a name has the form "module:name"."""
    return isinstance(name, str) and ":" in name


def check_name(what: str, name: Any, known: Iterable[str]) -> str:
    """One of the known names, or "module:name" of something that can be imported."""
    if is_own(name):
        _load(what, name)
        return name
    try:
        return _validation.check_choice(what, name, known)
    except ValueError as error:
        raise ValueError(f"{error} {OWN}") from None


def method_class(name: str) -> type[NoisyLabelClassifier]:
    """A method of ours by name, or a class of the user's own."""
    if not is_own(name):
        return METHODS[name]
    found = _load("method", name)
    if not isinstance(found, type) or not issubclass(found, NoisyLabelClassifier):
        raise ValueError(
            f"The method {name!r} must be a subclass of labeltide.estimators.NoisyLabelClassifier with `name` and "
            f"`_fit_fleet`, such as lt.IgnoreClassifier. Got {found!r}."
        )
    return found


def shaped_noise(
    shape: str, n_classes: int, n_steps: int, *, class_conditional: bool, rate: float = 0.3, constants: Any = None
) -> FixedNoise:
    """Q(t) of a shape of ours, or of a function of the user's own.

    The function takes ``(n_classes, n_steps, rate=rate)``, or the constants of a level in place of the rate, and gives
    Q as an array of shape (n_steps, n_classes, n_classes) or as a noise function.
    """
    if not is_own(shape):
        return make_noise(shape, n_classes, n_steps, rate, class_conditional=class_conditional, constants=constants)
    level: Mapping[str, Any] = {"rate": rate} if constants is None else constants
    try:
        made = _load("noise shape", shape)(n_classes, n_steps, **level)
    except TypeError as error:
        raise ValueError(f"{shape} cannot be called with (n_classes, n_steps, **{dict(level)}): {error}.") from None
    matrices = made.at(np.linspace(0, 1, n_steps)) if isinstance(made, NoiseFunction) else np.asarray(made)
    wanted = (n_steps, n_classes, n_classes)
    if matrices.shape != wanted:
        raise ValueError(
            f"{shape} must give Q of shape (n_steps, n_classes, n_classes) = {wanted}. Got {matrices.shape}."
        )
    if class_conditional:
        raise ValueError(f"The variant 'class-conditional' is for named shapes. Make it part of {shape}.")
    return FixedNoise(matrices)


def _load(what: str, name: str) -> Any:
    module, _, attribute = name.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(
            f"The {what} {name!r} cannot be imported: {error}. It must lie in a module beside the "
            "study file, or in one that is installed."
        ) from None
