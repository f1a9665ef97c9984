"""Validation of user input: all checks and the wording of their errors.

An error states the rule, the value that was passed, and how to correct it. Values that passed are trusted inside the
package.
"""

from __future__ import annotations

import math
import reprlib
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple
from unicodedata import normalize

import numpy as np
from numpy.typing import ArrayLike

HASHABLE = "must hold hashable labels: numbers, strings, tuples and the like."
MIN_ONE_HOT = 10  # steps; in fewer, annotators may disagree at every one by chance
MAX_CLASSES = 127  # labels are kept as signed bytes, with -1 for "not recorded"


class UnanswerableError(ValueError):
    """The request is sound, but these data cannot answer it, for the reason given.

    Examples
    --------
    >>> import labeltide as lt, pyarrow as pa
    >>> lt.audit(pa.table({"label": pa.array([], pa.string())}))
    Traceback (most recent call last):
        ...
    labeltide._validation.UnanswerableError: The table must hold at least one row. Got none.
    """


def check_features(X: ArrayLike, lengths: ArrayLike | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Finite float32 features of shape (n, steps, features), zero on padding, and lengths of shape (n,)."""
    try:
        with np.errstate(over="ignore"):  # values that overflow become infinite and are refused below
            # A copy, because padding becomes zero; in C order, because sums depend on the order in memory.
            features = np.array(plain_array(X), dtype=np.float32, order="C", copy=True)
    except (TypeError, ValueError) as error:
        raise ValueError(f"X must be numbers of shape (n, steps, features). Got {_describe(X)}: {error}") from None
    if features.ndim != 3:
        raise ValueError(
            "X must have shape (n, steps, features), one row of features per step. "
            f"Got shape {features.shape}. One sequence alone is X[None]; one feature alone is X[..., None]; "
            "labeltide.Sequences.from_table reads a table with one row per step."
        )
    if 0 in features.shape:
        raise ValueError(f"X must hold at least one sequence, one step and one feature. Got shape {features.shape}.")
    counts = check_lengths(lengths, *features.shape[:2])
    features[~steps_mask(counts, features.shape[1])] = 0
    bad = np.argwhere(~np.isfinite(features))
    if len(bad):
        raise ValueError(
            f"X must be finite within float32. {len(bad)} values are NaN, infinite or too large, the first "
            f"in sequence {bad[0][0]}, step {bad[0][1]}, feature {bad[0][2]}. Fill or drop them; put padding "
            "beyond `lengths`."
        )
    return features, counts


def plain_array(values: Any) -> Any:
    """Tensors on any device and masked arrays as plain arrays, NaN where masked; other values as they are."""
    if hasattr(values, "detach") and hasattr(values, "cpu"):
        return (values.float() if "bfloat" in str(values.dtype) else values).detach().cpu().numpy()
    if isinstance(values, np.ma.MaskedArray):
        return np.ma.filled(values.astype(np.float64), np.nan) if np.ma.is_masked(values) else values.data
    return values


def check_lengths(lengths: ArrayLike | None, n: int, n_steps: int) -> np.ndarray:
    """Whole numbers from 1 to n_steps, one for each sequence."""
    if lengths is None:
        return np.full(n, n_steps, dtype=np.int64)
    values = np.asarray(plain_array(lengths))
    if values.shape != (n,) or not np.issubdtype(values.dtype, np.integer):
        raise ValueError(f"lengths must be {n} whole numbers, one per sequence. Got {_describe(values)}.")
    wrong = np.flatnonzero((values < 1) | (values > n_steps))
    if len(wrong):
        raise ValueError(
            f"lengths must lie between 1 and {n_steps}, the steps of X. Got {values[wrong[0]]} for sequence "
            f"{wrong[0]}{f' (and {len(wrong) - 1} more)' if len(wrong) > 1 else ''}."
        )
    return values.astype(np.int64)


def steps_mask(lengths: np.ndarray, n_steps: int) -> np.ndarray:
    """True on real steps, False on padding: shape (n, steps)."""
    return np.arange(n_steps) < lengths[:, None]


def check_clock(clock: ArrayLike | None, lengths: np.ndarray, n_steps: int) -> np.ndarray:
    """A finite moment for every step, of shape (n, steps); without `clock` from 0 at the first step to 1 at the end."""
    if clock is None:
        return np.broadcast_to(np.arange(n_steps) / max(n_steps - 1, 1), (len(lengths), n_steps)).copy()
    try:
        values = np.array(plain_array(clock), dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"clock must be numbers. Got {_describe(clock)}; turn dates into days or hours.") from None
    values = spread_steps("clock", "one moment per step", values, (len(lengths), n_steps))
    real = steps_mask(lengths, n_steps)
    bad = np.argwhere(~np.isfinite(values) & real)
    if len(bad):
        raise ValueError(
            f"clock must be finite. Got {values[tuple(bad[0])]} in sequence {bad[0][0]}, step {bad[0][1]}."
        )
    values[~real] = values[0, 0]  # any valid moment, as padding never counts
    return values


def spread_steps(name: str, rule: str, values: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Values of each step of each sequence, (n, steps), from that shape or from (steps,)."""
    if values.shape not in (shape, shape[1:]):
        raise ValueError(
            f"{name} must have shape {shape}, {rule}, or {shape[1:]}, shared by all sequences. "
            f"Got shape {values.shape}."
        )
    return np.broadcast_to(values, shape).copy()


def check_sample_weight(sample_weight: ArrayLike | None, n: int) -> np.ndarray:
    """A finite weight, not negative, for each sequence; ones when `sample_weight` is None."""
    weights = np.ones(n) if sample_weight is None else np.asarray(sample_weight)
    numbers = np.issubdtype(weights.dtype, np.number) or weights.dtype == bool
    if weights.shape != (n,) or not numbers or not np.all((weights >= 0) & (weights < np.inf)):
        raise ValueError(
            f"sample_weight must be {n} numbers, one per sequence, finite, none negative. Got {_describe(weights)}."
        )
    return weights.astype(float)


def check_labels(y: ArrayLike, n: int, n_steps: int) -> np.ndarray:
    """Labels with an annotator axis, shape (n, steps, annotators), not yet encoded."""
    labels = as_labels(y)
    if labels.shape[:2] != (n, n_steps) or labels.ndim not in (2, 3) or labels.size == 0:
        raise ValueError(
            f"y must have shape {(n, n_steps)}, one label per step of X, or {(n, n_steps, 'annotators')}. "
            f"Got shape {labels.shape}."
        )
    if labels.ndim == 2:
        return labels[..., None]
    check_not_one_hot(labels)
    return labels


def check_not_one_hot(labels: np.ndarray) -> None:
    """Refuse one-hot labels, probabilities or votes of shape (n, steps, classes): the last axis is for annotators.

    They sum to the same at every step, but for rounding. Some steps may hold nothing: zeros, NaN, None or -1 alone.
    Annotators who agree on 0 at most steps, and never on 1, are not taken for classes.
    """
    objects = labels.flat if labels.dtype == object else ()
    is_numeric = all(v is None or isinstance(v, int | float | np.number) for v in objects)
    if labels.ndim != 3 or labels.shape[-1] < 2 or labels.dtype.kind not in "biufO" or not is_numeric:
        return
    values = labels.astype(np.float64)
    empty = (values == 0).all(-1)
    filled = ~empty & ~(np.isnan(values) | (values == -1)).all(-1)
    inside = np.flip(np.maximum.accumulate(np.flip(filled, 1), 1), 1)  # up to the last step with a label
    scores = values[filled]
    if len(scores) < MIN_ONE_HOT or not (scores >= 0).all() or 2 * (empty & inside).sum() > inside.sum():
        return
    total = float(scores[0].sum())
    decimals = next((d for d in range(5) if np.allclose(scores.round(d), scores, rtol=0, atol=1e-6)), 5)
    rounding = max(0.5 * scores.shape[-1] * 10.0**-decimals, 1e-3 * total) if decimals else 0
    is_one_hot = np.isin(scores, (0, total)).all()
    is_constant = not is_one_hot and (scores == scores[0]).all()  # each annotator records one class
    if is_constant or not np.allclose(scores.sum(-1), total, rtol=0, atol=rounding):
        return
    what, why = ("one-hot encoded", "a single") if is_one_hot else ("like scores of classes", "numbers that sum to")
    gaps = ", with -1 where a step has none: np.where(np.nansum(y, -1) > 0, y.argmax(-1), -1)"
    raise ValueError(
        f"y looks {what}: it has shape {labels.shape} and {why} {total:.3g} at every step with a label. The last axis "
        f"of y is for annotators. Pass y.argmax(-1), one label per step{'' if filled.all() else gaps}."
    )


def as_labels(y: ArrayLike) -> np.ndarray:
    """Labels as an array that keeps NaN among texts, and masked values, as missing; texts in one Unicode form (NFC)."""
    if isinstance(y, np.ma.MaskedArray) and y.dtype.kind in "iuf":
        labels = np.ma.filled(y, np.nan) if y.dtype.kind == "f" else np.ma.filled(y.astype(np.int64), -1)
    elif isinstance(y, np.ma.MaskedArray):
        labels = np.where(np.ma.getmaskarray(y), None, y.data.astype(object))  # type: ignore[call-overload]
    else:
        labels = np.asarray(plain_array(y))
        if not isinstance(y, np.ndarray) and labels.dtype.kind in "US":
            objects = np.asarray(y, dtype=object)
            labels = labels if all(isinstance(value, str) for value in objects.ravel()) else objects
    flat = labels.ravel().tolist() if labels.dtype.kind in "UO" else []
    texts = {value for value in flat if isinstance(value, str) and not value.isascii()}
    changed = {text: normalize("NFC", text) for text in texts if normalize("NFC", text) != text}
    if not changed:
        return labels
    flat = [changed.get(value, value) if isinstance(value, str) else value for value in flat]
    return np.fromiter(flat, dtype=object, count=len(flat)).reshape(labels.shape).astype(labels.dtype)


def missing_labels(labels: np.ndarray) -> np.ndarray:
    """True where nothing was recorded: None, NaN, and -1 where all labels are whole numbers (also as floats)."""
    if labels.dtype.kind in "mM":
        return np.isnat(labels)
    if np.issubdtype(labels.dtype, np.integer):
        return labels == -1
    if np.issubdtype(labels.dtype, np.floating):
        gaps = np.isnan(labels)
        return gaps | (labels == -1) if (gaps | (labels == np.floor(labels))).all() else gaps
    if labels.dtype != object:
        return np.zeros(labels.shape, dtype=bool)
    flat = labels.ravel()
    gaps = null_values(flat)
    if not gaps.all() and all(is_whole(v) for v, gap in zip(flat, gaps, strict=True) if not gap):
        gaps |= np.fromiter((not gap and v == -1 for v, gap in zip(flat, gaps, strict=True)), bool, flat.size)
    return gaps.reshape(labels.shape)


def null_values(values: np.ndarray | Sequence[Any]) -> np.ndarray:
    """True where a value is None, NaN or another null: NaN alone differs from itself, and pandas.NA compares as NA."""
    return np.fromiter((v is None or (v != v) is not False for v in values), dtype=bool, count=len(values))


def is_whole(value: Any) -> bool:
    """Whether a value is a whole number, also as a float; True and False are not."""
    if isinstance(value, float | np.floating):
        return bool(np.isfinite(value)) and float(value).is_integer()
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def find_classes(labels: np.ndarray, present: np.ndarray, name: str = "y", least: int = 2) -> tuple[Hashable, ...]:
    """The distinct labels, sorted where they can be sorted, else in order of appearance."""
    values = labels[present] if labels.dtype == object else np.unique(labels[present])
    if not len(values):
        raise ValueError(f"{name} holds no label at all: every step is missing (-1, None or NaN) or beyond `lengths`.")
    try:
        classes = list(dict.fromkeys(v.item() if isinstance(v, np.generic) else v for v in values))
    except TypeError:
        raise ValueError(f"{name} {HASHABLE}") from None
    with suppress(TypeError):
        classes = sorted(classes)
    return check_classes(classes, name, least)


def check_classes(classes: Iterable[Hashable], name: str, least: int = 2) -> tuple[Hashable, ...]:
    """At most 127 distinct class names, in their order."""
    names = tuple(normalize("NFC", name) if isinstance(name, str) else name for name in classes)
    try:
        repeated = [value for value, count in Counter(names).items() if count > 1]
    except TypeError:
        raise ValueError(f"{name} {HASHABLE}") from None
    if repeated:
        raise ValueError(f"{name} must hold every class once. Got {listed(repeated)} more than once.")
    if len(names) < least:
        note = " Whole-number labels of -1 mean 'not recorded'." if names and is_whole(names[0]) else ""
        got = f"only {names[0]!r}" if names else "none"
        raise ValueError(f"{name} must hold at least two classes. Got {got}.{note}")
    if len(names) > MAX_CLASSES:
        raise ValueError(f"{name} must hold at most {MAX_CLASSES} classes. Got {len(names)}: is it a measurement?")
    return names


def encode_labels(labels: np.ndarray, present: np.ndarray, classes: Sequence[Hashable], name: str = "y") -> np.ndarray:
    """Codes 0 .. classes - 1 as signed bytes, -1 where not present."""
    index = {value: code for code, value in enumerate(classes)}
    values = labels[present].tolist()
    code_of = {v: index.get(normalize("NFC", v) if isinstance(v, str) else v, -1) for v in dict.fromkeys(values)}
    unknown = [value for value, code in code_of.items() if code < 0]
    if unknown:
        raise ValueError(
            f"{name} holds labels that are not among the known ones: {listed(unknown)}. "
            f"Known labels: {listed(classes)}."
        )
    codes = np.full(labels.shape, -1, dtype=np.int8)
    codes[present] = [code_of[value] for value in values]
    return codes


def encode_trusted(trusted: ArrayLike, mask: np.ndarray, classes: Sequence[Any]) -> np.ndarray:
    """Codes of the labels that are known to be right, -1 elsewhere: shape (n, steps)."""
    labels = as_labels(trusted)
    if labels.shape not in (mask.shape, (*mask.shape, 1)):
        raise ValueError(f"trusted must have shape {mask.shape}, one label or gap per step. Got shape {labels.shape}.")
    labels = labels.reshape(mask.shape)
    return encode_labels(labels, mask & ~missing_labels(labels), classes, "trusted")


def check_probabilities(name: str, values: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """The same with an equal share for every class on padding, normalised: shape (n, steps, classes)."""
    values[~mask] = 1 / values.shape[-1]
    bad = np.argwhere(~np.isfinite(values).all(-1))
    if len(bad):
        raise ValueError(
            f"{name} must be finite. {len(bad)} steps hold NaN or infinity, the first in sequence {bad[0][0]}, "
            f"step {bad[0][1]}. Leave these steps out and say so with gaps."
        )
    sums = values.sum(-1)
    if values.min() < -1e-6 or np.abs(sums - 1).max() > 0.01:
        raise ValueError(
            f"{name} must be probabilities that sum to one over classes. Got values from {values.min():.3g} to "
            f"{values.max():.3g} and sums from {sums.min():.3g} to {sums.max():.3g}. Apply softmax to logits."
        )
    return np.asarray((values / sums[..., None]).clip(0))


def check_matrices(matrices: ArrayLike, clock: ArrayLike | None) -> tuple[np.ndarray, np.ndarray]:
    """Valid matrices of shape (members, [annotators,] points, classes, classes) and their rising moments (points,)."""
    values = np.asarray(matrices, dtype=np.float64)
    if values.ndim not in (2, 3, 4, 5) or values.shape[-1] != values.shape[-2] or values.size == 0:
        raise ValueError(
            "Noise matrices must have shape (classes, classes), (points, classes, classes), (members, points, classes, "
            f"classes) or (members, annotators, points, classes, classes). Got shape {values.shape}."
        )
    if values.ndim < 4:
        values = values.reshape((1,) * (4 - values.ndim) + values.shape)
    if not np.all((values >= 0) & (values <= 1 + 1e-6)) or not np.allclose(values.sum(-1), 1, atol=1e-4):
        raise ValueError(
            "Every row of a noise matrix must be a distribution: Q[i, j] = P(recorded j | true i), no entry "
            "negative, rows summing to one. Is the matrix transposed?"
        )
    points = values.shape[-3]
    moments = np.linspace(0, 1, points) if clock is None else np.asarray(clock, dtype=np.float64)
    if moments.shape != (points,) or not np.all(np.isfinite(moments)) or np.any(np.diff(moments) <= 0):
        raise ValueError(f"The clock of {points} matrices must be {points} rising numbers. Got {_describe(moments)}.")
    return values, moments


def check_whole_numbers(name: str, values: Any, low: int, *, may_be_empty: bool = False) -> None:
    """Refuse anything but a sequence of whole numbers from `low` on."""
    if not isinstance(values, list | tuple) or not (values or may_be_empty):
        raise ValueError(f"{name} must be a list of whole numbers at least {low}. Got {values!r}.")
    for value in values:
        check_number(f"Every value of {name}", value, low, whole=True)


def check_choice(name: str, value: Any, choices: Iterable[str], else_: str = "") -> str:
    """A value that must be one of `choices`."""
    options = list(choices)
    if value not in options:
        raise ValueError(f"Unknown {name} {value!r}. Choose one of: {', '.join(options)}.{else_}")
    return value


def check_number(
    name: str, value: Any, low: float, high: float = float("inf"), *, whole: bool = False, above: bool = False
) -> None:
    """A finite number from low to high, excluding low where `above` is set."""
    kinds = (int, np.integer) if whole else (int, float, np.integer, np.floating)
    is_number = isinstance(value, kinds) and not isinstance(value, bool)
    is_number = is_number and (isinstance(value, int) or bool(np.isfinite(value)))
    if not is_number or not (low < value if above else low <= value) or not value <= high:
        rule = f"{'a whole' if whole else 'a'} number {'above' if above else 'at least'} {low:g}"
        limit = f" and at most {high:.12g}" if np.isfinite(high) else ""
        raise ValueError(f"{name} must be {rule}{limit}. Got {value!r}.")


def check_keys(kind: str, mapping: Mapping[str, Any], allowed: Iterable[str]) -> None:
    """A mapping whose keys must all be allowed."""
    unknown = sorted(set(mapping) - set(allowed))
    if unknown:
        raise ValueError(f"Unknown {kind}: {', '.join(unknown)}. Choose from: {', '.join(allowed)}.")


def check_device(device: str) -> str:
    """A device that exists; "auto" means a GPU where there is one."""
    import torch  # a local import, because torch is slow to load and often not needed

    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, TypeError, ValueError):
        here = ["auto", "cpu"] + [f"cuda:{i}" for i in range(torch.cuda.device_count())]
        raise ValueError(f"Unknown or absent device {device!r}. This machine has: {', '.join(here)}.") from None
    return str(device)


def _describe(value: Any) -> str:
    array = np.asarray(value, dtype=object) if not isinstance(value, np.ndarray) else value
    return f"{type(value).__name__} of shape {array.shape} and type {array.dtype}"


def listed(values: Sequence[Any], most: int = 8) -> str:
    """The representation of each value, with commas between; the first of them where there are many."""
    shown = ", ".join(repr(value) for value in list(values)[:most])
    return shown + (f", ... ({len(values)} in all)" if len(values) > most else "")


# The content of files, which may come from strangers: one declarative check for all of them.

MAX_ROWS = 2**53  # of a table
MAX_DIGITS = 19  # of a whole number, as 2 ** 63 has


class Rule(NamedTuple):
    """A condition on one value, with the words that follow "must be"."""

    words: str
    holds: Callable[[Any], bool]


class Maybe(NamedTuple):
    """A shape that null also fits."""

    shape: Any


TEXT = Rule("a text", lambda value: isinstance(value, str))
FLAG = Rule("true or false", lambda value: isinstance(value, bool))
COUNT = Rule("a whole number from 0", lambda value: type(value) is int and 0 <= value < MAX_ROWS)
NUMBER = Rule("a number", lambda value: type(value) in (int, float) and math.isfinite(value) and abs(value) <= 1e300)
POSITIVE = Rule("a number above 0", lambda value: NUMBER.holds(value) and value > 0)


def read_whole(digits: str) -> int:
    """A whole number of JSON that fits into 64 bits."""
    if len(digits) > MAX_DIGITS:
        raise OverflowError(f"it holds a whole number of {len(digits)} digits.")
    return int(digits)


def one_of(choices: Sequence[str]) -> Rule:
    """One of some texts."""
    return Rule(f"one of: {', '.join(choices)}", lambda value: value in choices)


def check_content(value: Any, shape: Any, key: str = "") -> None:
    """Refuse a value read from a file that does not have a shape; the ValueError names the key and the rule.

    Parameters
    ----------
    shape : a `Rule`; a `Maybe`; [shape] for a list; {name: shape} for an object, in which names that end in "*" must be
        present and names that are not listed are ignored; or a tuple of shapes, all of which must fit
    key : of the value in its file, such as "table.columns"
    """
    if isinstance(shape, Rule):
        if not shape.holds(value):
            raise ValueError(f"{key or 'it'} must be {shape.words}. Got {reprlib.repr(value)}.")
    elif isinstance(shape, Maybe):
        if value is not None:
            check_content(value, shape.shape, key)
    elif isinstance(shape, tuple):
        for each in shape:
            check_content(value, each, key)
    elif isinstance(shape, list):
        check_content(value, Rule("a list", lambda value: isinstance(value, list)), key)
        for index, item in enumerate(value):
            check_content(item, shape[0], f"{key}[{index}]")
    else:
        check_content(value, Rule("an object", lambda value: isinstance(value, Mapping)), key)
        for name, each in shape.items():
            field = name.rstrip("*")
            if field in value:
                check_content(value[field], each, f"{key}.{field}".lstrip("."))
            elif name != field:
                raise ValueError(f"{key}.{field} is missing".lstrip("."))
