"""Sampling from the noise model: recorded labels drawn from true ones by inverse transform sampling."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from labeltide import _validation
from labeltide.noise.base import NoiseFunction

BLOCK_LABELS = 2**18  # labels drawn at a time: they fit into the cache, and memory stays constant
UNREACHABLE = 2.0  # a threshold above all random numbers in [0, 1)

NoiseLike = NoiseFunction | ArrayLike


class Lookup(NamedTuple):
    """Cumulative distributions of the recorded label, looked up for a block of sequences.

    `of_rows` gives thresholds of shape (points * classes, a power of two) and the point of each step, an
    index of shape (rows or 1, steps).
    """

    n_classes: int
    labels_at_once: int
    of_rows: Callable[[slice], tuple[np.ndarray, np.ndarray]]


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
    lookup = _lookup(noise, clock, counts, cube.shape[1])
    present = ~_validation.missing_labels(cube) & _validation.steps_mask(counts, cube.shape[1])[..., None]
    names = _names(cube, present, lookup.n_classes, classes)
    codes = cube if names is None else _validation.encode_labels(cube, present, names)
    drawn = _draw(codes, present, lookup, generator, bursts)
    return (drawn if names is None else _decode(drawn, present, names, cube)).reshape(labels.shape)


def _corrupt_sequences(sequences: Any, noise: NoiseLike, generator: np.random.Generator, bursts: float) -> Any:
    labels, clean = sequences.labels, sequences.clean_labels
    if clean is None and labels.shape[2] > 1:
        raise ValueError(
            "Without clean_labels there must be one annotator, whose labels are taken as true. "
            f"Got {labels.shape[2]} annotators."
        )
    clean = labels[..., 0] if clean is None else clean
    clock = sequences.clock if isinstance(noise, NoiseFunction) else None
    lookup = _lookup(noise, clock, sequences.lengths, labels.shape[1])
    if lookup.n_classes != len(sequences.classes):
        raise ValueError(
            f"noise must have the {len(sequences.classes)} classes of the Sequences. Got {lookup.n_classes}."
        )
    truth = np.broadcast_to(clean[..., None], labels.shape)
    drawn = _draw(truth, (labels >= 0) & (truth >= 0), lookup, generator, bursts)
    return dataclasses.replace(sequences, labels=np.where(labels >= 0, drawn, labels), clean_labels=clean)


def _lookup(noise: NoiseLike, clock: ArrayLike | None, lengths: np.ndarray, n_steps: int) -> Lookup:
    if not isinstance(noise, NoiseFunction):
        return _shared_lookup(_checked_matrices(noise, clock, n_steps))
    if noise.annotators > 1:
        raise ValueError(
            f"Labels are drawn for one annotator at a time. Got noise for {noise.annotators}: corrupt with each alone "
            "and stack the labels along a last axis."
        )
    if clock is None:
        return _shared_lookup(noise.at(_validation.check_clock(None, lengths[:1], n_steps)[0]))
    moments = _validation.check_clock(clock, lengths, n_steps)
    noise.check_covers(moments)
    longest = moments[np.argmax(lengths)]
    if np.all((moments == longest) | ~_validation.steps_mask(lengths, n_steps)):
        return _shared_lookup(noise.at(longest))

    def of_rows(rows: slice) -> tuple[np.ndarray, np.ndarray]:
        distinct, index = np.unique(moments[rows], return_inverse=True)
        return _thresholds(noise.at(distinct)), index.reshape(-1, n_steps)

    # Where all moments differ, the matrices of a block have classes ** 2 times as many entries as it has labels.
    return Lookup(noise.n_classes, BLOCK_LABELS // max(1, noise.n_classes**2 // 16), of_rows)


def _shared_lookup(matrices: np.ndarray) -> Lookup:
    """The same matrices (steps, classes, classes) for all sequences."""
    thresholds, index = _thresholds(matrices), np.arange(len(matrices))[None]
    return Lookup(matrices.shape[-1], BLOCK_LABELS, lambda rows: (thresholds, index))


def _checked_matrices(noise: ArrayLike, clock: ArrayLike | None, n_steps: int) -> np.ndarray:
    """An array of matrices as (steps, classes, classes)."""
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
    return np.broadcast_to(matrices, (n_steps, *matrices.shape[1:]))


def _names(
    labels: np.ndarray, present: np.ndarray, n_classes: int, classes: Sequence[Hashable] | None
) -> tuple[Hashable, ...] | None:
    """The labels' names in the order of Q, or None where they are codes already."""
    if classes is None and np.issubdtype(labels.dtype, np.integer):
        low, high = (labels.min(), labels.max()) if present.all() else _range(labels[present])
        if low >= 0 and high < n_classes:
            return None
    names = _validation.find_classes(labels, present) if classes is None else tuple(classes)
    if len(names) != n_classes or len(set(names)) != n_classes:
        raise ValueError(
            f"y must hold exactly the {n_classes} classes of the noise, or codes 0 to {n_classes - 1}. "
            f"{'Found' if classes is None else 'Got classes'} {names[:8]}{' ...' if len(names) > 8 else ''}. "
            f"Name all {n_classes}, in the order of Q, with `classes`."
        )
    return names


def _range(values: np.ndarray) -> tuple[int, int]:
    return (values.min(), values.max()) if len(values) else (0, 0)


def _draw(
    codes: np.ndarray, present: np.ndarray, lookup: Lookup, generator: np.random.Generator, bursts: float
) -> np.ndarray:
    """Codes drawn through the noise where present, and left alone elsewhere; shape (n, steps, annotators)."""
    drawn = codes.copy()
    size = max(1, lookup.labels_at_once // (codes.shape[1] * codes.shape[2]))
    for start in range(0, len(codes), size):
        rows = slice(start, start + size)
        thresholds, index = lookup.of_rows(rows)
        true = np.where(present[rows], codes[rows], 0).astype(np.intp)
        places = index[..., None] * lookup.n_classes + true  # rows of `thresholds`
        if bursts:
            chance = _right_first(_kept(generator, true.shape, bursts), thresholds, places, true)
        else:
            chance = generator.random(true.shape)
        recorded = _search(thresholds, places, chance)
        np.copyto(drawn[rows], recorded, where=present[rows], casting="unsafe")
    return drawn


def _kept(generator: np.random.Generator, shape: tuple[int, ...], bursts: float) -> np.ndarray:
    """Uniform random numbers (n, steps, annotators), each kept from the step before with probability `bursts`."""
    n, n_steps, annotators = shape
    # Drawn in one call, so that the block size does not change the labels.
    chance, fresh = np.moveaxis(generator.random((n, 2, n_steps, annotators)), 1, 0)
    steps = np.where(fresh >= bursts, np.arange(n_steps)[:, None], 0)
    return np.take_along_axis(chance, np.maximum.accumulate(steps, axis=1), axis=1)


def _right_first(chance: np.ndarray, thresholds: np.ndarray, places: np.ndarray, true: np.ndarray) -> np.ndarray:
    """Rotate [0, 1) so that the interval of the true class comes first: small numbers are right in every class."""
    before = np.where(true > 0, thresholds[places, true - 1], 0.0)
    return (chance + before) % 1.0


def _thresholds(matrices: np.ndarray) -> np.ndarray:
    """Cumulative probabilities of the classes, as rows (points * classes, a power of two)."""
    n_classes = matrices.shape[-1]
    sums = matrices.cumsum(-1)
    width = 1 << (n_classes - 1).bit_length()
    rows = np.full((*sums.shape[:-1], width), UNREACHABLE)
    # Dividing by the last sum makes it exactly one, so that a class of probability zero is never drawn.
    rows[..., : n_classes - 1] = (sums / sums[..., -1:])[..., :-1]
    return rows.reshape(-1, width)


def _search(thresholds: np.ndarray, rows: np.ndarray, chance: np.ndarray) -> np.ndarray:
    """How many thresholds of its row each random number reaches, by binary search in log2(classes) steps."""
    flat, width = thresholds.ravel(), thresholds.shape[1]
    position = rows * width  # in `flat`: start of the row plus the thresholds known to be reached
    half = width // 2
    while half:
        position += half * (chance >= flat.take(position + (half - 1)))
        half //= 2
    return position - rows * width


def _decode(codes: np.ndarray, present: np.ndarray, names: tuple[Hashable, ...], labels: np.ndarray) -> np.ndarray:
    """Names in place of codes, in the type of `labels` unless a name does not fit it."""
    values = np.empty(len(names), dtype=object)
    for code, name in enumerate(names):  # in a loop, because a name may itself be a tuple
        values[code] = name
    if labels.dtype != object:
        exact = np.array(list(names))
        cast = exact.astype(labels.dtype)
        values = cast if np.array_equal(cast, exact) else exact
    result = labels.astype(np.result_type(labels.dtype, values.dtype))
    result[present] = values[codes[present]]
    return result
