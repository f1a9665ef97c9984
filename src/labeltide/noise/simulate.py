"""Temporal label noise for simulations: named shapes and levels, and recorded labels drawn through them.

No torch at import, so that pages of results can draw the shapes.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from labeltide import _validation

if TYPE_CHECKING:
    from labeltide.noise.functions import FixedNoise, NoiseFunction


def make_noise(
    shape: str,
    n_classes: int = 2,
    n_steps: int = 100,
    rate: float = 0.3,
    *,
    class_conditional: bool = False,
    constants: Constants | None = None,
) -> FixedNoise:
    """Noise of a named shape at one of the paper's levels, or between them.

    The rate of leaving class i is spread evenly over the other classes.

    Parameters
    ----------
    shape : one of static, linear, decay, growth, periodic, mixed, jump
    n_classes : int from 2 to 127
    n_steps : int
        Points of the noise function, at the default clock ``k / (n_steps - 1)``.
    rate : float from 0 to 0.49
        The level as the paper's figures name it, such as 0.3 for 30 %: the constants are those of `LEVELS`, and
        between two levels they are interpolated linearly. With two classes and 50 steps or more, the rate of wrong
        labels averaged over steps and classes is within 0.014 of it, and within 0.006 at the paper's own levels.
    class_conditional : bool
        Divide the rate of class i by ``1 + i / 4``, as the paper's code does. The average rate falls accordingly.
    constants : dict, optional
        Constants of the shape that replace those of the level, such as ``{"phase": 1.0}``. None is negative but the
        phase.

    Examples
    --------
    >>> import labeltide as lt
    >>> lt.make_noise("linear", n_steps=50, rate=0.3).common_at([0.0, 0.5, 1.0])[:, 0, 1].round(2).tolist()
    [0.49, 0.29, 0.1]
    """
    from labeltide.noise.functions import FixedNoise

    matrices = noise_matrices(shape, n_classes, n_steps, rate, class_conditional=class_conditional, constants=constants)
    return FixedNoise(matrices)


# Shapes of temporal label noise and their levels: the six of Nagaraj and others (2025) and a step function.
#
# With :math:`T` steps, :math:`k = 0 \ldots T-1`, :math:`s = 100 / T` and :math:`x` = ``linspace(0, T, T)``,
# the rate of leaving a class is
#
# ========  =====================================================================================================
# static    :math:`a`
# linear    a straight line from :math:`a` down to :math:`b`
# decay     :math:`c + (a - c) (1 - b s)^k`, the base held at 0 where steps are few
# growth    :math:`(a - c) / (1 + \exp(-b s (x - T \cdot \mathrm{inflection}))) + c`
# periodic  :math:`c + (b - c) / 2 \cdot (1 + \sin(\mathrm{frequency} \cdot s x + \mathrm{phase}))`
# mixed     decay (a, b, c) for the first ``n_classes // 2`` classes, growth (mix_a, ..., mix_inflection) for the rest
# jump      :math:`c` before the middle of the clock, :math:`a` from there on
# ========  =====================================================================================================
#
# Of these, the paper's experiments vary the constants in `LEVELS` only.

Constants = Mapping[str, float]

_SHAPES: dict[str, dict[str, Any]] = tomllib.loads((Path(__file__).parent / "levels.toml").read_text("utf-8"))
DEFAULTS: dict[str, dict[str, float]] = {shape: entry["defaults"] for shape, entry in _SHAPES.items()}
SHAPES: tuple[str, ...] = tuple(DEFAULTS)
LEVELS: dict[str, dict[int, dict[str, float]]] = {  # by shape and percentage, without the last column
    shape: {
        int(percent): {name: values[number] for name, values in entry["levels"].items() if name != "percent"}
        for number, percent in enumerate(entry["levels"]["percent"][:-1])
    }
    for shape, entry in _SHAPES.items()
}
MAX_RATE = 0.49
MIN_PHASE = -100.0  # radians; every other constant is at least zero
MAX_STEPS = 10**8  # of one sequence


def level_constants(shape: str, rate: float) -> dict[str, float]:
    """All constants of a shape at a level of the paper, interpolated between its levels."""
    _validation.check_choice("shape", shape, SHAPES)
    _validation.check_number("rate", rate, 0)
    if rate > MAX_RATE:
        raise ValueError(
            f"The rate must be at most {MAX_RATE:g}, so that every class is recorded right more often than not. "
            f"Got rate={rate:g}. Lower it or name `constants`."
        )
    columns = dict(_SHAPES[shape]["levels"])
    rates = [percent / 100 for percent in columns.pop("percent")]
    return {**DEFAULTS[shape], **{name: float(np.interp(rate, rates, values)) for name, values in columns.items()}}


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
    _validation.check_choice("shape", shape, SHAPES, " Noise of your own is an array (n_steps, n_classes, n_classes).")
    _validation.check_number("n_classes", n_classes, 2, _validation.MAX_CLASSES, whole=True)
    _validation.check_number("n_steps", n_steps, 1, MAX_STEPS, whole=True)

    changed = constants or {}
    if not isinstance(changed, Mapping):
        raise ValueError(f"constants of {shape} noise must be a dict such as {DEFAULTS[shape]}. Got {changed!r}.")
    _validation.check_keys(f"constants of {shape} noise", changed, DEFAULTS[shape])
    for name, value in changed.items():
        _validation.check_number(f"The constant {name} of {shape} noise", value, MIN_PHASE if name == "phase" else 0)
    constants = {**level_constants(shape, rate), **changed}
    first, rest = _curves(shape, n_steps, constants)
    every = np.arange(n_classes)
    rates = np.where(every < n_classes // 2, first[:, None], rest[:, None])  # of leaving a class: (steps, classes)
    if class_conditional:
        rates = rates / (1 + every / 4)
    if not np.all((rates >= 0) & (rates < 1)):
        named = ", ".join(f"{name}={value:g}" for name, value in constants.items())
        raise ValueError(
            f"The rates of leaving a class must lie in [0, 1). The constants {named} of {shape} noise give "
            f"rates from {rates.min():g} to {rates.max():g}. The defaults are {DEFAULTS[shape]}."
        )
    matrices = np.repeat(rates[..., None] / (n_classes - 1), n_classes, axis=-1)  # (steps, classes, classes)
    matrices[:, every, every] = 1 - rates
    return matrices


def _curves(shape: str, n_steps: int, constants: Constants) -> tuple[np.ndarray, np.ndarray]:
    """The rates of leaving the first and the second half of the classes, (steps,) each."""
    if shape == "mixed":
        growth = {name.removeprefix("mix_"): value for name, value in constants.items() if name.startswith("mix_")}
        return _curves("decay", n_steps, constants)[0], _curves("growth", n_steps, growth)[0]
    a, b, c = (constants.get(name, 0.0) for name in "abc")
    x = np.linspace(0, n_steps, n_steps)
    if shape == "static":
        curve = np.full(n_steps, float(a))
    elif shape == "linear":
        curve = np.linspace(a, b, n_steps)
    elif shape == "decay":
        curve = c + (a - c) * max(1 - b * 100 / n_steps, 0) ** np.arange(n_steps)
    elif shape == "growth":
        exponent = b * 100 / n_steps * (x - n_steps * constants["inflection"])
        curve = (a - c) * (1 + np.tanh(exponent / 2)) / 2 + c  # the logistic function, without overflow
    elif shape == "periodic":
        angle = constants["frequency"] * 100 / n_steps * x + constants["phase"]
        curve = c + (b - c) / 2 * (1 + np.sin(angle))
    else:
        curve = np.where(np.linspace(0, 1, n_steps) < 0.5, c, a)
    return curve, curve


# Sampling from the noise model: recorded labels drawn from true ones by inverse transform sampling.

BLOCK_LABELS = 2**18  # labels drawn at a time: they fit into the cache, and memory stays constant

NoiseLike: TypeAlias = "NoiseFunction | ArrayLike"
# For a block of sequences: thresholds (points * classes, a power of two), the point of each step (rows or 1, steps).
OfRows: TypeAlias = "Callable[[slice], tuple[np.ndarray, np.ndarray]]"


def corrupt(
    y: Any,
    noise: NoiseLike,
    random_state: int | np.random.Generator | None = 0,
    *,
    clock: ArrayLike | None = None,
    lengths: ArrayLike | None = None,
    classes: Sequence[Hashable] | None = None,
    bursts: float = 0.0,
) -> Any:
    r"""Draw noisy labels: :math:`\tilde y_t = j` with probability :math:`Q_t[y_t, j]`.

    Labels that are missing stay missing, and padding beyond `lengths` stays as it is. A `Sequences` keeps its
    clock, lengths and gaps; its clean labels, or where it has none its only annotator's labels, are what
    is corrupted, once for each annotator.

    Parameters
    ----------
    y : array of shape (n, steps) or (n, steps, annotators), or Sequences
        Codes 0 .. classes - 1 into Q with -1 for missing, or labels of any type that, sorted, are exactly the
        classes of Q.
    noise : NoiseFunction, or array of shape (classes, classes) or (steps, classes, classes)
        A fleet's first member is used.
    clock : array of shape (n, steps) or (steps,), optional
        Moments at which a noise function is evaluated; from 0 at the first step to 1 at the last when left out.
    lengths : array of shape (n,), optional
    classes : names in the order of Q, optional
    bursts : float, default 0
        The probability of keeping the random number of the step before. The marginal distribution of every label is
        still Q, but errors are positively correlated: under static noise, whether a label is wrong is a two-state
        Markov chain with autocorrelation ``bursts ** k`` at lag k.

    Returns
    -------
    array of the shape, type and label values of `y`, or a new Sequences

    Examples
    --------
    >>> import labeltide as lt
    >>> import numpy as np
    >>> lt.corrupt(np.zeros((1, 8), dtype=int), [[0.5, 0.5], [0.5, 0.5]]).tolist()
    [[1, 0, 0, 0, 1, 1, 1, 1]]
    """
    generator = np.random.default_rng(random_state)
    _validation.check_number("bursts", bursts, 0, 1)
    if hasattr(y, "clean_labels"):  # a Sequences; `noise` does not import `data`
        if not (clock is None and lengths is None and classes is None):
            raise ValueError("A Sequences has its own clock, lengths and classes. Leave these arguments out.")
        return _corrupt_sequences(y, noise, generator, bursts)
    labels = _validation.as_labels(y)
    if labels.ndim not in (2, 3) or labels.size == 0:
        raise ValueError(
            "y must have shape (n, steps) or (n, steps, annotators), one label per step. "
            f"Got shape {labels.shape}. One sequence alone is y[None]."
        )
    cube = labels if labels.ndim == 3 else labels[..., None]  # (n, steps, annotators)
    counts = _validation.check_lengths(lengths, *cube.shape[:2])
    n_classes, of_rows = _lookup(noise, clock, counts, cube.shape[1])
    present = ~_validation.missing_labels(cube) & _validation.steps_mask(counts, cube.shape[1])[..., None]
    names = _names(cube, present, n_classes, classes)
    codes = cube if names is None else _validation.encode_labels(cube, present, names)
    drawn = _draw(codes, present, n_classes, of_rows, generator, bursts)
    return (drawn if names is None else _decode(drawn, present, names, cube)).reshape(labels.shape)


def _corrupt_sequences(sequences: Any, noise: NoiseLike, generator: np.random.Generator, bursts: float) -> Any:
    from labeltide.noise.functions import NoiseFunction

    labels, clean = sequences.labels, sequences.clean_labels
    if clean is None and labels.shape[2] > 1:
        raise ValueError(
            "Without clean_labels there must be one annotator, whose labels are taken as true. "
            f"Got {labels.shape[2]} annotators."
        )
    clean = labels[..., 0] if clean is None else clean
    clock = sequences.clock if isinstance(noise, NoiseFunction) else None
    n_classes, of_rows = _lookup(noise, clock, sequences.lengths, labels.shape[1])
    if n_classes != len(sequences.classes):
        raise ValueError(f"noise must have the {len(sequences.classes)} classes of the Sequences. Got {n_classes}.")
    truth = np.broadcast_to(clean[..., None], labels.shape)
    drawn = _draw(truth, (labels >= 0) & (truth >= 0), n_classes, of_rows, generator, bursts)
    return dataclasses.replace(sequences, labels=np.where(labels >= 0, drawn, labels), clean_labels=clean)


def _lookup(noise: NoiseLike, clock: ArrayLike | None, lengths: np.ndarray, n_steps: int) -> tuple[int, OfRows]:
    """The number of classes, and the thresholds of every label for a block of sequences."""
    from labeltide.noise.functions import NoiseFunction

    if not isinstance(noise, NoiseFunction):
        if clock is not None:
            raise ValueError(
                "A clock needs a noise function; an array of matrices goes by the step. "
                "Give FixedNoise(matrices, clock=moments_of_the_matrices) instead."
            )
        array = np.asarray(noise)
        fits_steps = array.ndim == 2 or (array.ndim == 3 and len(array) == n_steps)
        if array.dtype.kind not in "fiu" or not fits_steps:
            raise ValueError(
                "noise must be a noise function such as make_noise('mixed'), or matrices of shape "
                f"(classes, classes) or ({n_steps}, classes, classes). "
                f"Got {type(noise).__name__} of shape {array.shape}."
            )
        matrices = _validation.check_matrices(array, None)[0][0]
        matrices = np.broadcast_to(matrices, (n_steps, *matrices.shape[1:]))
    elif noise.annotators > 1:
        raise ValueError(
            f"Labels are drawn for one annotator at a time. Got noise for {noise.annotators}: corrupt with each alone "
            "and stack the labels along a last axis."
        )
    elif clock is None:
        matrices = noise.at(_validation.check_clock(None, lengths[:1], n_steps)[0])
    else:
        moments = _validation.check_clock(clock, lengths, n_steps)
        noise.check_covers(moments)
        longest = moments[np.argmax(lengths)]

        def of_rows(rows: slice) -> tuple[np.ndarray, np.ndarray]:
            distinct, index = np.unique(moments[rows], return_inverse=True)
            return _thresholds(noise.at(distinct)), index.reshape(-1, n_steps)

        if not np.all((moments == longest) | ~_validation.steps_mask(lengths, n_steps)):
            return noise.n_classes, of_rows
        matrices = noise.at(longest)
    thresholds, step = _thresholds(matrices), np.arange(n_steps)[None]
    return matrices.shape[-1], lambda rows: (thresholds, step)


def _names(
    labels: np.ndarray, present: np.ndarray, n_classes: int, classes: Sequence[Hashable] | None
) -> tuple[Hashable, ...] | None:
    """The labels' names in the order of Q, or None where they are codes already."""
    if classes is None and np.issubdtype(labels.dtype, np.integer):
        recorded = labels if present.all() else labels[present]
        if not recorded.size or (recorded.min() >= 0 and recorded.max() < n_classes):
            return None
    names = _validation.find_classes(labels, present) if classes is None else tuple(classes)
    if len(names) != n_classes or len(set(names)) != n_classes:
        raise ValueError(
            f"y must hold exactly the {n_classes} classes of the noise, or codes 0 to {n_classes - 1}. "
            f"{'Found' if classes is None else 'Got classes'} {names[:8]}{' ...' if len(names) > 8 else ''}. "
            f"Name all {n_classes}, in the order of Q, with `classes`."
        )
    return names


def _draw(
    codes: np.ndarray,
    present: np.ndarray,
    n_classes: int,
    of_rows: OfRows,
    generator: np.random.Generator,
    bursts: float,
) -> np.ndarray:
    """Codes drawn through the noise where present, and left alone elsewhere; shape (n, steps, annotators)."""
    drawn = codes.copy()
    # Where all moments differ, the matrices of a block have classes ** 2 times as many entries as it has labels.
    size = max(1, BLOCK_LABELS // max(1, n_classes**2 // 16) // (codes.shape[1] * codes.shape[2]))
    for start in range(0, len(codes), size):
        rows = slice(start, start + size)
        thresholds, index = of_rows(rows)
        true = np.where(present[rows], codes[rows], 0).astype(np.intp)
        entries = index[..., None] * n_classes + true  # rows of `thresholds`
        if bursts:
            # Rotate [0, 1) so that the interval of the true class comes first: small numbers are right in every class.
            before = np.where(true > 0, thresholds[entries, true - 1], 0.0)
            chance = (_kept(generator, true.shape, bursts) + before) % 1.0
        else:
            chance = generator.random(true.shape)
        # How many thresholds of its row each random number reaches, by binary search in log2(classes) steps.
        half = thresholds.shape[1] // 2
        position = first = entries * thresholds.shape[1]
        while half:
            position = position + half * (chance >= thresholds.take(position + (half - 1)))
            half //= 2
        recorded = position - first
        np.copyto(drawn[rows], recorded, where=present[rows], casting="unsafe")
    return drawn


def _kept(generator: np.random.Generator, shape: tuple[int, ...], bursts: float) -> np.ndarray:
    """Uniform random numbers (n, steps, annotators), each kept from the step before with probability `bursts`."""
    n, n_steps, annotators = shape
    # Drawn in one call, so that the block size does not change the labels.
    chance, fresh = np.moveaxis(generator.random((n, 2, n_steps, annotators)), 1, 0)
    steps = np.where(fresh >= bursts, np.arange(n_steps)[:, None], 0)
    return np.take_along_axis(chance, np.maximum.accumulate(steps, axis=1), axis=1)


def _thresholds(matrices: np.ndarray) -> np.ndarray:
    """Cumulative probabilities of the classes, as rows (points * classes, a power of two)."""
    sums = matrices.cumsum(-1)
    n_classes = sums.shape[-1]
    # Dividing by the last sum makes it exactly one, so that a class of probability zero is never drawn.
    rows = (sums / sums[..., -1:]).reshape(-1, n_classes)
    rows[:, -1] = np.inf  # no random number reaches the last threshold
    return np.pad(rows, ((0, 0), (0, (1 << (n_classes - 1).bit_length()) - n_classes)), constant_values=np.inf)


def _decode(codes: np.ndarray, present: np.ndarray, names: tuple[Hashable, ...], labels: np.ndarray) -> np.ndarray:
    """Names in place of codes, in the type of `labels` unless a name does not fit it."""
    values = np.fromiter(names, dtype=object, count=len(names))  # np.array would unpack tuples
    if labels.dtype != object:
        exact = np.array(list(names))
        cast = exact.astype(labels.dtype)
        values = cast if np.array_equal(cast, exact) else exact
    result = labels.astype(np.result_type(labels.dtype, values.dtype))
    result[present] = values[codes[present]]
    return result
