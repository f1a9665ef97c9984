r"""Shapes of temporal label noise and their levels: the six of Nagaraj and others (2025) and a step function.

NumPy alone, so that pages of results can draw them.

With :math:`T` steps, :math:`k = 0 \ldots T-1`, :math:`s = 100 / T` and :math:`x` = ``linspace(0, T, T)``,
the rate of leaving a class is

========  =====================================================================================================
static    :math:`a`
linear    a straight line from :math:`a` down to :math:`b`
decay     :math:`c + (a - c) (1 - b s)^k`, the base held at 0 where steps are few
growth    :math:`(a - c) / (1 + \exp(-b s (x - T \cdot \mathrm{inflection}))) + c`
periodic  :math:`c + (b - c) / 2 \cdot (1 + \sin(\mathrm{frequency} \cdot s x + \mathrm{phase}))`
mixed     decay (a, b, c) for the first ``n_classes // 2`` classes, growth (mix_a, ..., mix_inflection) for the rest
jump      :math:`c` before the middle of the clock, :math:`a` from there on
========  =====================================================================================================

Of these, the paper's experiments vary the constants in `LEVELS` only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from labeltide import _validation

Constants = Mapping[str, float]

# The constants of the level that the paper calls 30 %, or the nearest (decay 31, growth and mixed 29).
DEFAULTS: dict[str, dict[str, float]] = {
    "static": {"a": 0.3},
    "linear": {"a": 0.49, "b": 0.1},
    "decay": {"a": 0.49, "b": 0.01, "c": 0.0},
    "growth": {"a": 0.49, "b": 0.1, "c": 0.1, "inflection": 0.5},
    "periodic": {"b": 0.49, "c": 0.0, "frequency": 0.095, "phase": 0.0},
    "mixed": {"a": 0.49, "b": 0.02, "c": 0.0, "mix_a": 0.49, "mix_b": 0.1, "mix_c": 0.25, "mix_inflection": 0.5},
    "jump": {"a": 0.49, "c": 0.1},  # not in the paper
}
SHAPES: tuple[str, ...] = tuple(DEFAULTS)

# The noise levels of the paper's experiments: the percentage at which its figures show a level, which is its average
# rate, rounded, and its constants. Constants that are not named have their defaults.
LEVELS: dict[str, dict[int, dict[str, float]]] = {
    "static": {percent: {"a": percent / 100} for percent in (0, 10, 15, 20, 25, 30, 35, 40)},
    "linear": {
        percent: {"a": a, "b": b}
        for percent, a, b in (
            (0, 0, 0),
            (10, 0.2, 0),
            (12, 0.25, 0),
            (15, 0.3, 0),
            (17, 0.35, 0),
            (20, 0.4, 0),
            (25, 0.49, 0),
            (27, 0.49, 0.05),
            (30, 0.49, 0.1),
            (34, 0.49, 0.2),
            (39, 0.49, 0.3),
            (40, 0.49, 0.31),
        )
    },
    "decay": {
        percent: {"a": a, "b": b}
        for percent, a, b in (
            (0, 0, 0.06),
            (8, 0.49, 0.06),
            (16, 0.49, 0.03),
            (18, 0.49, 0.025),
            (20, 0.49, 0.022),
            (25, 0.49, 0.015),
            (31, 0.49, 0.01),
            (34, 0.49, 0.008),
            (40, 0.49, 0.004),
        )
    },
    "growth": {
        percent: {"a": a, "c": c}
        for percent, a, c in (
            (0, 0, 0),
            (10, 0.2, 0),
            (15, 0.3, 0),
            (20, 0.4, 0),
            (25, 0.45, 0.05),
            (29, 0.49, 0.1),
            (35, 0.49, 0.2),
            (40, 0.49, 0.3),
        )
    },
    "periodic": {
        percent: {"b": b, "c": c}
        for percent, b, c in (
            (0, 0, 0),
            (9, 0.15, 0),
            (12, 0.2, 0),
            (15, 0.25, 0),
            (18, 0.3, 0),
            (20, 0.33, 0),
            (25, 0.41, 0),
            (27, 0.45, 0),
            (30, 0.49, 0),
            (34, 0.49, 0.1),
            (40, 0.49, 0.26),
        )
    },
    "mixed": {
        percent: {"a": a, "b": b, "mix_a": mix_a, "mix_c": mix_c}
        for percent, a, b, mix_a, mix_c in (
            (0, 0, 0.08, 0, 0),  # the paper has b = 1 here, which changes nothing where a = 0
            (9, 0.49, 0.08, 0.25, 0),
            (11, 0.49, 0.07, 0.3, 0),
            (13, 0.49, 0.06, 0.35, 0),
            (15, 0.49, 0.05, 0.4, 0),
            (20, 0.49, 0.04, 0.45, 0.1),
            (25, 0.49, 0.03, 0.49, 0.2),
            (29, 0.49, 0.02, 0.49, 0.25),
            (35, 0.49, 0.01, 0.49, 0.3),
            (40, 0.49, 0.005, 0.49, 0.35),
        )
    },
    "jump": {0: {"a": 0, "c": 0}, 25: {"a": 0.49, "c": 0.01}, 40: {"a": 0.49, "c": 0.31}},  # ours
}

LEAST_PHASE = -100.0  # radians; every other constant is at least zero

# Beyond the paper's last level: the most noise at which every class is still recorded right more often than not.
MOST_RATE = 0.49
MOST: dict[str, dict[str, float]] = {
    "static": {"a": 0.49},
    "linear": {"a": 0.49, "b": 0.49},
    "decay": {"a": 0.49, "b": 0},
    "growth": {"a": 0.49, "c": 0.49},
    "periodic": {"b": 0.49, "c": 0.49},
    "mixed": {"a": 0.49, "b": 0, "mix_a": 0.49, "mix_c": 0.49},
    "jump": {"a": 0.49, "c": 0.49},
}
MAX_STEPS = 10**8  # of one sequence


def level_constants(shape: str, rate: float) -> dict[str, float]:
    """All constants of a shape at a level of the paper, interpolated between its levels."""
    _validation.check_choice("shape", shape, SHAPES)
    _validation.check_number("rate", rate, 0)
    if rate > MOST_RATE:
        raise ValueError(
            f"The rate must be at most {MOST_RATE:g}, so that every class is recorded right more often than not. "
            f"Got rate={rate:g}. Lower it or name `constants`."
        )
    corners = {percent / 100: named for percent, named in LEVELS[shape].items()} | {MOST_RATE: MOST[shape]}
    moving = {
        name: float(np.interp(rate, list(corners), [named[name] for named in corners.values()])) for name in MOST[shape]
    }
    return {**DEFAULTS[shape], **moving}


def noise_matrices(
    shape: str,
    n_classes: int,
    n_steps: int,
    rate: float,
    *,
    class_conditional: bool = False,
    constants: Constants | None = None,
) -> np.ndarray:
    """Q at every step, (steps, classes, classes): what `labeltide.make_noise` wraps."""
    _validation.check_choice("shape", shape, SHAPES)
    _validation.check_number("n_classes", n_classes, 2, _validation.MAX_CLASSES, whole=True)
    _validation.check_number("n_steps", n_steps, 1, MAX_STEPS, whole=True)

    constants = {**level_constants(shape, rate), **_checked(shape, constants or {})}
    rates = _leaving_rates(shape, constants, n_classes, n_steps, class_conditional)
    if not np.all((rates >= 0) & (rates < 1)):
        named = ", ".join(f"{name}={value:g}" for name, value in constants.items())
        raise ValueError(
            f"The rates of leaving a class must lie in [0, 1). The constants {named} of {shape} noise give "
            f"rates from {rates.min():g} to {rates.max():g}. The defaults are {DEFAULTS[shape]}."
        )
    return _spread(rates)


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
    if not isinstance(constants, Mapping):
        raise ValueError(f"constants of {shape} noise must be a dict such as {DEFAULTS[shape]}. Got {constants!r}.")
    _validation.check_keys(f"constants of {shape} noise", constants, DEFAULTS[shape])
    for name, value in constants.items():
        _validation.check_number(f"The constant {name} of {shape} noise", value, LEAST_PHASE if name == "phase" else 0)
    return dict(constants)


def _decay(n_steps: int, a: float, b: float, c: float) -> np.ndarray:
    return c + (a - c) * max(1 - b * 100 / n_steps, 0) ** np.arange(n_steps)


def _growth(n_steps: int, a: float, b: float, c: float, inflection: float) -> np.ndarray:
    x = np.linspace(0, n_steps, n_steps)
    exponent = b * 100 / n_steps * (x - n_steps * inflection)
    return (a - c) * (1 + np.tanh(exponent / 2)) / 2 + c  # the logistic function, without overflow


def _periodic(n_steps: int, b: float, c: float, frequency: float, phase: float) -> np.ndarray:
    x = np.linspace(0, n_steps, n_steps)
    return c + (b - c) / 2 * (1 + np.sin(frequency * 100 / n_steps * x + phase))


def _mixed(n_steps: int, a: float, b: float, c: float, **growth: float) -> tuple[np.ndarray, np.ndarray]:
    return _decay(n_steps, a, b, c), _growth(n_steps, **{name.removeprefix("mix_"): v for name, v in growth.items()})


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
