"""Encoding of columns as features, fitted on one table and applied to others.

Numbers are winsorised and standardised; missing values take the last observation carried forward and a missingness
indicator. Text of few levels and booleans are one-hot encoded.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from labeltide.tables.columns import SAME_LABELS, Steps, agreement, is_number, is_text, whole
from labeltide.tables.tidy import MAX_LEVELS, MIN_NUMBERS, NOTE, WHOLE, WholeColumns, count_numbers, text_numbers
from labeltide.tables.words import left_out, name_rows, quoted, unique_texts

MAX_VALUE = 1e30  # what is larger is a gap: its square must fit a float64
FEW_TO_JUDGE = 50  # with fewer labels, a measurement can match them by chance
TAIL = 0.001  # share of values on either side that do not count as the usual range


@dataclass(frozen=True)
class Encoder:
    """The fitted encoding of one column, which JSON can hold."""

    column: str
    names: tuple[str, ...]  # of its features
    levels: tuple[str, ...] = ()  # of text and of true and false; empty for numbers
    centre: float = 0.0
    scale: float = 1.0
    low: float = -MAX_VALUE  # values beyond low and high are pulled in
    high: float = MAX_VALUE
    fill: float = 0.0  # where nothing came before
    has_mask: bool = False
    is_log: bool = False  # of a probability, whose logarithm is the feature; a gap is filled, not carried forward

    def encode(self, values: np.ndarray, first: np.ndarray) -> list[np.ndarray]:
        """The features of a column, float32 of shape (steps,) each.

        Parameters
        ----------
        values : array of shape (steps,)
            Numbers with NaN for gaps, or codes into the levels with -1 for gaps.
        first : int array of shape (steps,)
            The first step of the sequence to which each step belongs.
        """
        if self.levels:
            shown = range(len(self.levels) - len(self.names), len(self.levels))  # without the first of two levels
            return [(values == index).astype(np.float32) for index in shown]
        gaps = np.isnan(values)
        if self.is_log:
            if values[~gaps].size and not -1e-6 <= values[~gaps].min() <= values[~gaps].max() <= 1 + 1e-6:
                raise ValueError(
                    f"Probabilities must lie between 0 and 1. {quoted([self.column])} has values from "
                    f"{values[~gaps].min():.3g} to {values[~gaps].max():.3g}. Apply softmax to logits."
                )
            return [np.log(np.where(gaps, self.fill, values).clip(self.low, 1)).astype(np.float32)]
        filled = fill_forward(values, first, self.fill) if gaps.any() else values
        scaled = (np.clip(filled, self.low, self.high) - self.centre) / self.scale
        return [scaled.astype(np.float32), *([gaps.astype(np.float32)] if self.has_mask else [])]

    def original(self, feature: np.ndarray) -> np.ndarray:
        """The values of the column, in the user's unit, from its first feature."""
        values = feature.astype(np.float64) * self.scale + self.centre
        return np.exp(values) if self.is_log else values


def fill_forward(values: np.ndarray, first: np.ndarray, fill: float) -> np.ndarray:
    """Last observation carried forward within each sequence; `fill` where there is none before."""
    latest = np.maximum.accumulate(np.where(np.isnan(values), -1, np.arange(len(values))))
    return np.where(latest >= first, values[np.maximum(latest, 0)], fill)


@dataclass(frozen=True)
class Features:
    """All features of all steps, and what was done to them."""

    columns: list[np.ndarray]  # float32 of shape (steps,)
    encoders: tuple[Encoder, ...]
    messages: tuple[str, ...]
    left_out: dict[str, str] = field(default_factory=dict)  # why a column is no feature

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(unique_texts(name for encoder in self.encoders for name in encoder.names))


class UnusableError(ValueError):
    """A column that cannot be a feature: left out where we chose it, an error where the user did.

    `where` names rows of the table, which are other ones in a part of it.
    """

    def __init__(self, why: str, where: str = "") -> None:
        super().__init__(why + where)
        self.why = why


CONSTANT = "a constant column carries no information"  # it is left out even where the user named it


def encode_features(
    table: pa.Table,
    names: Sequence[str],
    steps: Steps,
    labels: np.ndarray,
    *,
    named: bool,
    of_whole: WholeColumns = WHOLE,
) -> Features:
    """Fit an encoder to each column and apply it; columns that the user `named` must all be usable."""
    first = steps.first
    columns: list[np.ndarray] = []
    encoders: list[Encoder] = []
    out: dict[str, list[str]] = {}
    notes: dict[str, list[str]] = {}
    for name in names:
        if name in of_whole.in_text:
            notes.setdefault(NOTE, []).append(name)
        try:
            values, levels = _read_feature(name, whole(table[name]), steps, notes, of_whole.texts)
            judged = [codes for codes in labels.T if not named and (codes >= 0).sum() >= FEW_TO_JUDGE]
            match = max((agreement(values, codes) for codes in judged), default=0.0)
            if match == 1:
                raise UnusableError("values that follow from the label would give the answer away")
            if match >= SAME_LABELS and len(np.unique(values)) == labels.max() + 1 > 2:
                why = "one value for nearly every class, as codes of labels have"
                raise UnusableError(f"{why}. Name a measurement with features (--features)")
            encoder = _fit_encoder(name, values, levels, notes)
            if match >= SAME_LABELS:
                notes.setdefault("labels", []).append(name)
        except UnusableError as error:
            is_constant = error.why == CONSTANT
            if named and not is_constant:
                raise ValueError(f"The feature column {quoted([name])} cannot be used: {error}.") from None
            why = str(error) if of_whole is WHOLE else error.why
            why = "it never changes in the windows learned from" if is_constant and name in of_whole.varying else why
            out.setdefault(why, []).append(name)
            continue
        columns += encoder.encode(values, first)
        encoders.append(encoder)
    reasons = {name: reason for reason, names in out.items() for name in names}
    return Features(columns, tuple(encoders), tuple(_sentences(encoders, out, notes, of_whole.is_drawn)), reasons)


MIN_PROBABILITY = 1e-4  # by hand: forests and boosting give exact zeros after seeing a few hundred labels


def encode_probabilities(table: pa.Table, names: Sequence[str], steps: Steps, class_names: Sequence[str]) -> Features:
    """Logarithms of the probabilities that another model gives each class, one column each, in the order of classes."""
    endings = {name: re.sub(r"[\W_]+", " ", name.casefold()).strip() for name in names}
    columns: list[str] = []
    for wanted in class_names:
        ending = re.sub(r"[\W_]+", " ", wanted.casefold()).strip()
        found = [name for name, text in endings.items() if text == ending]
        found = found or [name for name, text in endings.items() if text.endswith(f" {ending}")]
        if len(found) != 1:
            raise ValueError(
                f"Every class needs one column of probabilities, whose name is that of the class or ends in it, such "
                f"as {'p_' + wanted!r}. For {wanted!r} got {quoted(found) if found else 'none'} of {quoted(names)}."
            )
        columns += found
    fill, low = 1 / len(columns), MIN_PROBABILITY
    encoders = tuple(Encoder(name, (name,), low=low, high=1.0, fill=fill, is_log=True) for name in columns)
    features = apply_encoders(table, encoders, steps)
    sums, without = np.exp(np.stack(features.columns)).sum(0), [name for name in names if name not in columns]
    if not without and np.abs(sums - 1).max() > 0.02 + low * len(columns):
        raise ValueError(f"Probabilities must sum to one. Got sums from {sums.min():.3g} to {sums.max():.3g}.")
    messages = [f"Probabilities of the classes are read from {quoted(columns)}; nothing was trained."]
    if without:
        messages.append(f"No label is of the class of {quoted(without)}; the others were scaled to sum to one.")
    return Features(features.columns, encoders, tuple(messages))


def apply_encoders(table: pa.Table, encoders: Sequence[Encoder], steps: Steps) -> Features:
    """The features of another table, encoded as those of the table on which a model was trained."""
    absent = [encoder.column for encoder in encoders if encoder.column not in table.column_names]
    if absent:
        raise ValueError(
            f"The table must have the columns on which the model was trained. It has no {quoted(absent)}. It has: "
            f"{quoted(table.column_names)}."
        )
    first = steps.first
    columns: list[np.ndarray] = []
    for encoder in encoders:
        array = whole(table[encoder.column])
        try:
            if encoder.levels:
                values = _read_levels(encoder, array, steps)
            else:
                if is_text(array.type):
                    array = _numbers_in_text(encoder.column, array, str(len(array.unique())), {})
                if pa.types.is_null(array.type) or pa.types.is_boolean(array.type):
                    array = array.cast(pa.float64())
                values, _ = _read_feature(encoder.column, array, steps, {}, {})
        except (UnusableError, pa.ArrowException) as error:
            raise ValueError(f"The feature column {quoted([encoder.column])} cannot be used: {error}.") from None
        columns += encoder.encode(values, first)
    return Features(columns, tuple(encoders), ())


def _read_levels(encoder: Encoder, array: pa.Array, steps: Steps) -> np.ndarray:
    """Codes into the known levels; a level that was never seen is a gap, and a warning names it."""
    if pa.types.is_boolean(array.type):
        array = pc.if_else(array, "True", "False")
    texts = array.cast(pa.string())
    codes = pc.index_in(texts, pa.array(encoder.levels)).fill_null(-1).to_numpy(zero_copy_only=False)
    unseen = pc.unique(texts.filter(pa.array(codes < 0)).drop_null()).to_pylist()
    if unseen:
        warnings.warn(
            f"The column {quoted([encoder.column])} holds values that were not there in training: {quoted(unseen)}. "
            f"They are read as missing. The model knows {quoted(encoder.levels)}.",
            UserWarning,
            stacklevel=2,
        )
    return _merge(codes, codes >= 0, steps, -1)


def _read_feature(
    name: str,
    array: pa.Array,
    steps: Steps,
    notes: dict[str, list[str]],
    texts: Mapping[str, Sequence[str] | None],
) -> tuple[np.ndarray, tuple[str, ...]]:
    """One value for each step: numbers with NaN for gaps, or codes with -1 for gaps and their levels.

    `texts` are the distinct ones of columns of a whole table, of which this is a part.
    """
    kind = array.type
    if is_text(kind):
        distinct = texts[name] if name in texts else [text for text in array.unique().to_pylist() if text is not None]
        if distinct is None or len(distinct) > MAX_LEVELS:
            count = "very many" if distinct is None else str(len(distinct))
            array, kind = _numbers_in_text(name, array, count, notes), pa.float64()
        else:
            levels = tuple(sorted(distinct))
            codes = pc.index_in(array, pa.array(levels, array.type)).fill_null(-1).to_numpy(zero_copy_only=False)
            return _merge(codes, codes >= 0, steps, -1), levels
    if pa.types.is_boolean(kind):
        codes = array.cast(pa.int8()).fill_null(-1).to_numpy(zero_copy_only=False)
        return _merge(codes, codes >= 0, steps, -1), ("False", "True")
    if pa.types.is_null(kind):
        raise UnusableError(CONSTANT)
    if pa.types.is_temporal(kind) and not pa.types.is_duration(kind):
        raise UnusableError("dates and times are not measurements")
    if not is_number(kind):
        raise UnusableError(f"{kind} is neither a number nor a text of few levels")
    values = array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    with np.errstate(invalid="ignore"):
        present = np.abs(values) <= MAX_VALUE  # neither NaN nor infinite
    if (~present & np.isfinite(values)).any():
        notes.setdefault(f"taken for gaps where beyond {MAX_VALUE:g}", []).append(name)
        if not present.any():
            raise UnusableError(f"all of its values are beyond {MAX_VALUE:g}")
    return _merge(values, present, steps, np.nan), ()


def _numbers_in_text(name: str, array: pa.Array, n_distinct: str, notes: dict[str, list[str]]) -> pa.Array:
    """Text that is nearly all numbers, as numbers with gaps."""
    if count_numbers(array) < MIN_NUMBERS * (len(array) - array.null_count):
        raise UnusableError(f"text with more than {MAX_LEVELS} different values (here {n_distinct}) is not encoded")
    notes.setdefault(NOTE, []).append(name)
    return text_numbers(array)


def _merge(values: np.ndarray, present: np.ndarray, steps: Steps, gap: float) -> np.ndarray:
    """One value for each step: the one that its rows agree on, where any of them has it."""
    if len(steps.rows) == len(values):  # one row for each step
        return np.where(present, values, gap)[steps.rows]
    merged = np.full(len(steps.rows), gap, dtype=values.dtype)
    filled = np.flatnonzero(present)
    merged[steps.step_of_row[filled]] = values[filled]
    differs = filled[merged[steps.step_of_row[filled]] != values[filled]]
    if len(differs):
        raise UnusableError("it differs among annotators of the same step", f" ({name_rows(differs)})")
    return merged


def _fit_encoder(name: str, values: np.ndarray, levels: tuple[str, ...], notes: dict[str, list[str]]) -> Encoder:
    if levels:
        there = np.unique(values)
        if len(there) < 2:
            raise UnusableError(CONSTANT)
        notes.setdefault("levels", []).append(name)
        shown = levels[1:] if len(levels) == 2 and there[0] >= 0 else levels  # one is the opposite of the other
        return Encoder(name, tuple(f"{name}={level}" for level in shown), levels)
    gaps = np.isnan(values)
    present = values[~gaps] if gaps.any() else values
    if not len(present) or (not gaps.any() and (present == present[0]).all()):
        raise UnusableError(CONSTANT)
    low, low_usual, middle, high_usual, high = np.quantile(present, [0, TAIL, 0.5, 1 - TAIL, 1])
    spread = high_usual - low_usual
    if spread > 0:  # one artefact must not decide the scale: the usual range, as much again on either side
        if low < low_usual - spread or high > high_usual + spread:
            notes.setdefault("pulled in where far beyond the range of all but 1 in 500 values", []).append(name)
        low, high = max(low, low_usual - spread), min(high, high_usual + spread)
        present = np.clip(present, low, high)
    if gaps.any():
        notes.setdefault("gaps", []).append(name)
    centre = float(middle + (present - middle).mean())
    unit = float(np.abs(present - centre).max()) or 1.0  # the square of 1e-300 would be zero
    scale = unit * float(np.sqrt(np.square((present - centre) / unit).mean()))
    usable = scale if np.isfinite(scale) and scale > abs(centre) * 1e-12 else 1.0
    mask = (f"{name} (missing)",) if gaps.any() else ()
    return Encoder(name, (name, *mask), (), centre, usable, float(low), float(high), float(middle), bool(gaps.any()))


def _sentences(
    encoders: list[Encoder], out: dict[str, list[str]], notes: dict[str, list[str]], is_drawn: bool
) -> list[str]:
    numbers = [encoder.column for encoder in encoders if not encoder.levels]
    messages = [left_out(names, why) for why, names in out.items()]
    if numbers:
        over = "windows learned from" if is_drawn else "whole table"
        messages.append(f"Features are {quoted(numbers)}, centred and scaled over the {over} (z-scores).")
    levels, gaps, near = (notes.pop(kind, []) for kind in ("levels", "gaps", "labels"))
    if near:
        messages.append(
            f"The label nearly follows from {quoted(near)}. If this holds labels, such as codes or those of "
            "another annotator, list the features without it (--features): it makes wrong labels look right."
        )
    if levels:
        messages.append(
            f"Each value of {quoted(levels)} became a feature of its own, 1 where it holds and 0 elsewhere."
        )
    if gaps:
        messages.append(
            f"Gaps in {quoted(gaps)} were filled with the last value before them in the sequence, else with the "
            "column's median; an extra feature marks the gaps."
        )
    return messages + [f"Values of {quoted(names)} were {what}." for what, names in notes.items()]


def encoder_from_json(fields: dict[str, Any]) -> Encoder:
    """The encoder that `dataclasses.asdict` wrote."""
    return Encoder(**{**fields, "names": tuple(fields["names"]), "levels": tuple(fields["levels"])})
