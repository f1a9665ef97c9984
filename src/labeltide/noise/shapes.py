r"""Temporal label noise for simulations: the six shapes of Nagaraj and others (2025) and a step function.

Every shape is scaled to any average rate.

With :math:`T` steps, :math:`k = 0 \ldots T-1`, :math:`s = 100 / T` and :math:`x` = ``linspace(0, T, T)``,
the rate of leaving a class is

========  ==============================================================
static    :math:`a`
linear    a straight line from :math:`a` down to :math:`b`
decay     :math:`a (1 - b s)^k`, the base held at 0 where steps are few
growth    :math:`(a - c) / (1 + \exp(-b s (x - T/2))) + c`
periodic  :math:`c + (b - c) / 2 \cdot (1 + \sin(0.095 s x))`
mixed     decay (a, b) for the first ``n_classes // 2`` classes, growth (mix_a, mix_b, mix_c) for the rest
jump      :math:`c` before the middle of the clock, :math:`a` from there on
========  ==============================================================
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import ArrayLike

from labeltide import _validation
from labeltide.noise.fixed import FixedNoise

Constants = Mapping[str, float]

# About 30 % wrong labels, as in the paper; also the values of constants that are not named.
DEFAULTS: dict[str, dict[str, float]] = {
    "static": {"a": 0.3},
    "linear": {"a": 0.49, "b": 0.1},
    "decay": {"a": 0.49, "b": 0.01},
    "growth": {"a": 0.49, "b": 0.1, "c": 0.1},
    "periodic": {"b": 0.49, "c": 0.1},
    "mixed": {"a": 0.49, "b": 0.02, "mix_a": 0.49, "mix_b": 0.1, "mix_c": 0.25},
    "jump": {"a": 0.49, "c": 0.1},  # not in the paper
}
SHAPES: tuple[str, ...] = tuple(DEFAULTS)

# Piecewise linear paths of the constants from no noise to the most noise, through the defaults above.
# The average rate rises monotonically along them, and no rate exceeds 0.49.
PATHS: dict[str, tuple[dict[str, float], ...]] = {
    "static": ({"a": 0}, {"a": 0.49}),
    "linear": ({"a": 0, "b": 0}, {"a": 0.49, "b": 0}, {"a": 0.49, "b": 0.49}),
    "decay": ({"a": 0, "b": 0.06}, {"a": 0.49, "b": 0.06}, {"a": 0.49, "b": 0}),
    "growth": ({"a": 0, "c": 0}, {"a": 0.49, "c": 0}, {"a": 0.49, "c": 0.49}),
    "periodic": ({"b": 0, "c": 0}, {"b": 0.49, "c": 0}, {"b": 0.49, "c": 0.49}),
    "mixed": (
        {"a": 0, "b": 0.06, "mix_a": 0, "mix_c": 0},
        {"a": 0.49, "b": 0.06, "mix_a": 0.49, "mix_c": 0},
        {"a": 0.49, "b": 0.02, "mix_a": 0.49, "mix_c": 0.25},
        {"a": 0.49, "b": 0, "mix_a": 0.49, "mix_c": 0.49},
    ),
    "jump": ({"a": 0, "c": 0}, {"a": 0.49, "c": 0}, {"a": 0.49, "c": 0.49}),
}


def make_noise(
    shape: str,
    n_classes: int = 2,
    n_steps: int = 100,
    rate: float = 0.3,
    *,
    class_conditional: bool = False,
    constants: Constants | None = None,
) -> FixedNoise:
    """Noise of a named shape whose rate of wrong labels, averaged over steps and classes, is `rate`.

    The rate of leaving class i is spread evenly over the other classes. The constants of the shape are found
    by bisection along `PATHS`, to within 1e-6 of the average; rates never reach one half.

    Parameters
    ----------
    shape : one of static, linear, decay, growth, periodic, mixed, jump
    n_classes : int from 2 to 127
    n_steps : int
        Points of the noise function, at the default clock ``k / (n_steps - 1)``.
    rate : float
        Not used when `constants` are given.
    class_conditional : bool
        Divide the rate of class i by ``1 + i / 4``, before the average is taken.
    constants : dict, optional
        The shape's raw constants, none negative; those not named come from `DEFAULTS`.
    """
    _validation.check_choice("shape", shape, SHAPES)
    _validation.check_number("n_classes", n_classes, 2, _validation.MAX_CLASSES, whole=True)
    _validation.check_number("n_steps", n_steps, 1, whole=True)

    def leaving(values: Constants) -> np.ndarray:
        return _leaving_rates(shape, values, n_classes, n_steps, class_conditional)

    if constants is None:
        constants = _solve(shape, rate, lambda values: leaving(values).mean())
    else:
        constants = _checked(shape, constants)
    rates = leaving(constants)
    if not np.all((rates >= 0) & (rates < 1)):
        named = ", ".join(f"{name}={value:g}" for name, value in constants.items())
        raise ValueError(
            f"The rates of leaving a class must lie in [0, 1). The constants {named} of {shape} noise give "
            f"rates from {rates.min():g} to {rates.max():g}. The defaults are {DEFAULTS[shape]}."
        )
    return FixedNoise(_spread(rates))


def average_rate(noise_matrices: ArrayLike) -> float:
    r"""The share of wrong labels when all classes and moments weigh the same: the mean of :math:`1 - Q_{ii}`.

    Parameters
    ----------
    noise_matrices : array of shape (..., classes, classes), or a FixedNoise
    """
    diagonal = np.diagonal(np.asarray(noise_matrices, dtype=np.float64), axis1=-2, axis2=-1)
    return float(1 - diagonal.mean())


def _leaving_rates(
    shape: str, constants: Constants, n_classes: int, n_steps: int, class_conditional: bool
) -> np.ndarray:
    """P(leave class i) at every step, of shape (steps, classes)."""
    first, rest = _CURVES[shape](n_steps, **constants)
    is_first = np.arange(n_classes) < n_classes // 2
    rates = np.where(is_first, first[:, None], rest[:, None])  # (steps, classes)
    return rates / (1 + np.arange(n_classes) / 4) if class_conditional else rates


def _spread(rates: np.ndarray) -> np.ndarray:
    """Noise matrices (steps, classes, classes) with these error rates, spread evenly over the other classes."""
    n_classes = rates.shape[1]
    matrices = np.repeat(rates[..., None] / (n_classes - 1), n_classes, axis=-1)  # (steps, classes, classes)
    every = np.arange(n_classes)
    matrices[:, every, every] = 1 - rates
    return matrices


def _checked(shape: str, constants: Constants) -> dict[str, float]:
    _validation.check_keys(f"constants of {shape} noise", constants, DEFAULTS[shape])
    for name, value in constants.items():
        _validation.check_number(f"The constant {name} of {shape} noise", value, 0)
    return {**DEFAULTS[shape], **constants}


def _solve(shape: str, rate: float, average: Callable[[Constants], float]) -> dict[str, float]:
    """The constants on the shape's path whose average rate is `rate`, by bisection."""
    _validation.check_number("rate", rate, 0, 1)
    low, high = 0.0, float(len(PATHS[shape]) - 1)
    most = average(_along(shape, high))
    if rate > most + 1e-6:
        raise ValueError(
            f"{shape} noise with these classes, steps and variant has an average rate in [0, {most:.4g}], "
            "so that every class is recorded right more often than not. "
            f"Got rate={rate:g}. Lower it or name `constants`."
        )
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if average(_along(shape, middle)) < rate else (low, middle)
    return _along(shape, low)


def _along(shape: str, position: float) -> dict[str, float]:
    """The constants at a position of the shape's path: 0 is its start, 1 its first corner, and so on."""
    corners = PATHS[shape]
    moving = {name: np.interp(position, range(len(corners)), [c[name] for c in corners]) for name in corners[0]}
    return {**DEFAULTS[shape], **moving}


def _decay(n_steps: int, a: float, b: float) -> np.ndarray:
    return a * max(1 - b * 100 / n_steps, 0) ** np.arange(n_steps)


def _growth(n_steps: int, a: float, b: float, c: float) -> np.ndarray:
    x = np.linspace(0, n_steps, n_steps)
    exponent = b * 100 / n_steps * (x - n_steps / 2)
    return (a - c) * (1 + np.tanh(exponent / 2)) / 2 + c  # the logistic function, without overflow


def _periodic(n_steps: int, b: float, c: float) -> np.ndarray:
    x = np.linspace(0, n_steps, n_steps)
    return c + (b - c) / 2 * (1 + np.sin(0.095 * 100 / n_steps * x))


def _mixed(n_steps: int, a: float, b: float, mix_a: float, mix_b: float, mix_c: float) -> tuple[np.ndarray, np.ndarray]:
    return _decay(n_steps, a, b), _growth(n_steps, mix_a, mix_b, mix_c)


def _jump(n_steps: int, a: float, c: float) -> np.ndarray:
    return np.where(np.linspace(0, 1, n_steps) < 0.5, c, a)


def _for_both(curve: Callable[..., np.ndarray]) -> Callable[..., tuple[np.ndarray, np.ndarray]]:
    """The same curve for both halves of the classes."""
    return lambda n_steps, **constants: (curve(n_steps, **constants),) * 2


# Each gives the curves of the first and the second half of the classes, two arrays of shape (steps,).
_CURVES: dict[str, Callable[..., tuple[np.ndarray, np.ndarray]]] = {
    "static": _for_both(lambda n_steps, a: np.full(n_steps, float(a))),
    "linear": _for_both(lambda n_steps, a, b: np.linspace(a, b, n_steps)),
    "decay": _for_both(_decay),
    "growth": _for_both(_growth),
    "periodic": _for_both(_periodic),
    "mixed": _mixed,
    "jump": _for_both(_jump),
}
