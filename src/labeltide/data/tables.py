"""Tables in, the fields of `Sequences` out: one row per step (and annotator), in any order."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa
from pyarrow import csv, parquet

from labeltide._validation import (
    check_clock,
    check_number,
    encode_labels,
    find_classes,
    missing_labels,
    steps_mask,
)

ROLES = ("sequence", "time", "label", "features", "annotator", "clock", "clean", "zscore")
OPTIONAL = ("annotator", "clock", "clean", "zscore")
SEVERAL = ("sequence", "features", "zscore")  # roles that several columns can share among them
# A time may also be a clock or a feature. Any other column with two roles leaks a label or is a slip.
MAY_SHARE = [{"time", "clock"}, {"time", "features"}, {"clock", "features"}, {"sequence", "zscore"}]


@dataclass(frozen=True)
class TableLayout:
    """Which column plays which role, and how sequences are cut; see `Sequences.from_table`."""

    sequence: str | Sequence[str]
    time: str
    label: str
    features: str | Sequence[str]
    annotator: str | None = None
    clock: str | None = None
    clean: str | None = None
    zscore: str | Sequence[str] | None = None
    window: int | None = None
    offset: int = 0
    keep_tail: bool = True

    def read(self, table: Any) -> dict[str, Any]:
        """The fields of `Sequences`, by name."""
        roles, frame = self._load(table)
        steps = _find_steps(frame, roles, isinstance(self.sequence, str))
        starts, lengths = self._cut(np.bincount(steps.sequence))
        n_steps = self.window or int(lengths.max())
        real = steps_mask(lengths, n_steps)
        # Padding points at the last real step, so that clock and times hold real moments there too.
        index = starts[:, None] + np.minimum(np.arange(n_steps), lengths[:, None] - 1)  # (n, n_steps)
        labels, clean, classes = _read_labels(frame, steps, self.label, self.clean)
        features = _read_features(frame, steps, roles["features"], roles["zscore"])[index]
        features[~real] = 0
        clock = _read_clock(frame, steps, self.clock)[index] if self.clock else None
        return {
            "features": features,
            "labels": np.where(real[..., None], labels[index], np.int8(-1)),
            "lengths": lengths,
            "clock": check_clock(None, lengths, n_steps) if clock is None else clock,
            "ids": tuple(steps.ids[code] for code in steps.sequence[starts]),
            "classes": classes,
            "clean_labels": None if clean is None else np.where(real, clean[index], np.int8(-1)),
            "times": steps.times[index],
        }

    def _load(self, table: Any) -> tuple[dict[str, list[str]], nw.DataFrame]:
        """Check the request, then load only the columns it names."""
        if self.window is not None:
            check_number("window", self.window, 1, whole=True)
        check_number("offset", self.offset, 0, whole=True)
        there, load = _open(table)
        roles = {role: _as_list(role, getattr(self, role)) for role in ROLES}
        if self.zscore == "sequence" and "sequence" not in there:
            roles["zscore"] = roles["sequence"]
        _check_roles(roles, there)
        frame = load(list(dict.fromkeys(name for names in roles.values() for name in names)))
        if not len(frame):
            raise ValueError("The table must hold at least one row. Got none.")
        return roles, frame

    def _cut(self, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """First step and length of every window, from the number of steps of every sequence."""
        first = np.cumsum(counts) - counts
        found = [self._window_starts(int(count)) for count in counts]
        starts = np.concatenate([start + own for start, own in zip(first, found, strict=True)]).astype(
            np.int64
        )
        if not len(starts):
            raise ValueError(
                f"No sequence is long enough: the longest has {counts.max()} steps, window={self.window} "
                f"and offset={self.offset}. Take a shorter window or offset, or keep_tail=True."
            )
        ends = np.repeat(first + counts, [len(own) for own in found])
        return starts, np.minimum(self.window or np.iinfo(np.int64).max, ends - starts)

    def _window_starts(self, n_rows: int) -> np.ndarray:
        if self.window is None:
            return np.arange(self.offset, n_rows)[:1]
        if self.keep_tail:
            return np.arange(self.offset, n_rows, self.window)
        # With an offset we follow the paper's own cutting of its data, range(1, rows - 50, 50), so that its
        # windows come out the same: it leaves out a last window that would end exactly at the last row.
        last = n_rows - self.window + (self.offset == 0)
        return np.arange(self.offset, last, self.window)


@dataclass(frozen=True)
class _Steps:
    """How rows become steps: several rows, one for each annotator, may describe the same step."""

    rows: np.ndarray  # (steps,) the row that stands for each step; steps ordered by sequence, then time
    sequence: np.ndarray  # (steps,) codes into ids
    ids: list[Hashable]
    times: np.ndarray  # (steps,)
    step_of_row: np.ndarray  # (rows,)
    annotator_of_row: np.ndarray  # (rows,) codes in sorted order

    def pick(self, name: str, values: np.ndarray) -> np.ndarray:
        """One value for each step, after a check that its rows agree."""
        differs = values != values[self.rows[self.step_of_row]]
        if differs.any():
            raise ValueError(
                f"Column {name!r} must agree among annotators of the same sequence and time. "
                f"It differs in {_name_rows(np.flatnonzero(differs))}."
            )
        return values[self.rows]


def _find_steps(frame: nw.DataFrame, roles: dict[str, list[str]], one_name: bool) -> _Steps:
    sequence, ids = _group(frame, roles["sequence"], "sequence")
    times, moment = _read_times(frame[roles["time"][0]])
    annotator = np.zeros(len(frame), dtype=np.int64)
    for name in roles["annotator"]:
        annotator = _sort_codes(name, *_factorize(frame[name], "annotator"))[0]
    order = np.lexsort((annotator, moment, sequence))
    keys = np.stack([sequence, moment, annotator])[:, order]
    same_step = np.append(False, (keys[:2, 1:] == keys[:2, :-1]).all(0))
    repeats = same_step & np.append(False, keys[2, 1:] == keys[2, :-1])
    _check_repeats(np.sort(order[repeats]), bool(roles["annotator"]))
    rows = order[~same_step]
    step_of_row = np.empty(len(frame), dtype=np.int64)
    step_of_row[order] = np.cumsum(~same_step) - 1
    names: list[Hashable] = [key[0] if one_name else key for key in ids]
    return _Steps(rows, sequence[rows], names, times[rows], step_of_row, annotator)


def _read_labels(
    frame: nw.DataFrame, steps: _Steps, label: str, clean: str | None
) -> tuple[np.ndarray, np.ndarray | None, tuple[Hashable, ...]]:
    """Recorded labels (steps, annotators), clean labels (steps,) and the classes of both together."""
    parts = [_factorize_labels(frame[name]) for name in (label, clean) if name]
    known = np.concatenate([distinct for _, distinct in parts])
    if not len(parts[0][1]):
        raise ValueError(f"The label column {label!r} holds no label at all: every row is null, NaN or -1.")
    try:
        classes = find_classes(known, np.ones(len(known), dtype=bool))
    except ValueError as error:  # the same rule, said of the user's column instead of an array y
        raise ValueError(f"The label column {label!r} {str(error).removeprefix('y ')}") from None
    codes = [
        np.append(encode_labels(distinct, np.ones(len(distinct), dtype=bool), classes), np.int8(-1))[own]
        for own, distinct in parts
    ]
    labels = np.full((len(steps.rows), steps.annotator_of_row.max() + 1), -1, dtype=np.int8)
    labels[steps.step_of_row, steps.annotator_of_row] = codes[0]
    return labels, steps.pick(clean, codes[1]) if clean else None, classes


def _read_features(frame: nw.DataFrame, steps: _Steps, names: list[str], zscore: list[str]) -> np.ndarray:
    """Features of shape (steps, features), as float32."""
    columns = [steps.pick(name, _read_numbers(frame[name], "feature")) for name in names]
    if zscore:
        group = steps.pick(zscore[0], _group(frame, zscore, "zscore")[0])
        columns = [_zscore(column, group) for column in columns]
    return np.stack([column.astype(np.float32) for column in columns], axis=1)


def _zscore(values: np.ndarray, group: np.ndarray) -> np.ndarray:
    """Subtract the mean of the group and divide by its population standard deviation."""
    counts = np.bincount(group)
    anchor = np.empty(len(counts))
    anchor[group] = values  # any one value of the group
    centred = values - anchor[group]  # a constant is now exactly zero, with no rounding left to blow up
    centred -= (np.bincount(group, centred) / counts)[group]
    scale = np.sqrt(np.bincount(group, centred**2) / counts)
    return centred / np.where(scale > 0, scale, 1)[group]


def _read_clock(frame: nw.DataFrame, steps: _Steps, name: str) -> np.ndarray:
    """Numbers as they are; datetimes as days since the earliest."""
    if frame[name].dtype in (nw.Datetime, nw.Date):
        moments, _ = _read_times(frame[name], "clock")
        return steps.pick(name, (moments - moments.min()) / np.timedelta64(1, "D"))
    return steps.pick(name, _read_numbers(frame[name], "clock"))


def _read_numbers(series: nw.Series, role: str) -> np.ndarray:
    """A finite float64 column."""
    if not (series.dtype.is_numeric() or series.dtype == nw.Boolean):
        ways = "numbers or datetimes" if role == "clock" else "numbers"
        raise ValueError(f"The {role} column {series.name!r} must hold {ways}. Got {series.dtype}.")
    values = _to_arrow(series).cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    with np.errstate(over="ignore"):
        wrong = ~np.isfinite(values.astype(np.float32))
    if wrong.any():
        raise ValueError(
            f"The {role} column {series.name!r} must be finite. It is null, NaN, infinite or too large for "
            f"float32 in {_name_rows(np.flatnonzero(wrong))}. Fill or drop these."
        )
    return values


def _read_times(series: nw.Series, role: str = "time") -> tuple[np.ndarray, np.ndarray]:
    """The user's own moments, and whole numbers in the same order."""
    if not (series.dtype.is_integer() or series.dtype.is_float() or series.dtype.is_temporal()):
        codes, distinct = _factorize(series, role)
        codes, distinct = _sort_codes(series.name, codes, distinct)
        return distinct[codes], codes
    array = _to_arrow(series)
    _check_full(series.name, role, array.is_null(nan_is_null=True).to_numpy(zero_copy_only=False))
    values = array.to_numpy(zero_copy_only=False)
    return values, np.unique(values, return_inverse=True)[1].reshape(-1)


def _factorize_labels(series: nw.Series) -> tuple[np.ndarray, np.ndarray]:
    codes, distinct = _factorize(series)
    # Whole numbers become floats in pandas as soon as one is missing; give them back their names.
    if (codes < 0).any() and all(isinstance(value, float) and value.is_integer() for value in distinct):
        distinct = _as_objects([int(value) for value in distinct])
    return _drop(codes, distinct, missing_labels(distinct))


def _factorize(series: nw.Series, role: str | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Codes into the distinct values, in order of appearance; nulls are -1, or an error in a given role."""
    try:
        encoded = _to_arrow(series).dictionary_encode(null_encoding="encode")
        codes, distinct = encoded.indices.to_numpy(), _as_objects(_to_python(encoded.dictionary))
    except pa.ArrowException:  # tuples, mixed types and other Python objects
        codes, distinct = _factorize_objects(series)
    gaps = np.array([v is None or (v != v) is not False for v in distinct], dtype=bool)
    codes, distinct = _drop(codes, distinct, gaps)
    if role:
        _check_full(series.name, role, codes < 0)
    return codes, distinct


def _factorize_objects(series: nw.Series) -> tuple[np.ndarray, np.ndarray]:
    index: dict[Any, int] = {}
    try:
        codes = [index.setdefault(value, len(index)) for value in series.to_list()]
    except TypeError:
        rule = "must hold hashable values: numbers, strings, tuples and the like"
        raise ValueError(f"Column {series.name!r} {rule}. Got {series.dtype}.") from None
    return np.array(codes), _as_objects([v.item() if isinstance(v, np.generic) else v for v in index])


def _drop(codes: np.ndarray, distinct: np.ndarray, gaps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Give the code -1 to some of the values, and to what had it before."""
    return np.append(np.where(gaps, -1, np.cumsum(~gaps) - 1), -1)[codes], distinct[~gaps]


def _group(frame: nw.DataFrame, names: list[str], role: str) -> tuple[np.ndarray, list[tuple]]:
    """Codes and keys of the distinct combinations of the columns, in order of appearance."""
    parts = [_factorize(frame[name], role) for name in names]
    joined = parts[0][0]
    for codes, distinct in parts[1:]:
        joined = np.unique(joined, return_inverse=True)[1].reshape(-1) * len(distinct) + codes
    _, first, inverse = np.unique(joined, return_index=True, return_inverse=True)
    order = np.argsort(first)
    keys = [tuple(distinct[codes[row]] for codes, distinct in parts) for row in first[order]]
    return np.argsort(order)[inverse.reshape(-1)], keys


def _sort_codes(name: str, codes: np.ndarray, distinct: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same values, with codes in their sorted order."""
    try:
        order = np.array(sorted(range(len(distinct)), key=distinct.__getitem__))
    except TypeError:
        raise ValueError(f"Column {name!r} must hold values of one kind, which can be sorted.") from None
    return np.argsort(order)[codes], distinct[order]


def _to_arrow(series: nw.Series) -> pa.Array:
    if series.dtype == nw.Object:
        raise pa.ArrowInvalid("Python objects stay Python objects.")
    array = series.to_arrow()
    if pa.types.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def _to_python(array: pa.Array) -> list[Any]:
    if pa.types.is_timestamp(array.type) and array.type.unit == "ns":  # Python knows no nanoseconds
        array = array.cast(pa.timestamp("us", array.type.tz), safe=False)
    return array.to_pylist()


def _as_objects(values: Sequence[Any]) -> np.ndarray:
    return np.fromiter(values, dtype=object, count=len(values))  # np.array would unpack tuples


def _as_list(role: str, given: str | Sequence[str] | None) -> list[str]:
    """The columns of a role, after a check that they are named as they should be."""
    if given is None and role in OPTIONAL:
        return []
    names = list(given) if isinstance(given, list | tuple) and role in SEVERAL else [given]
    if not names or not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        rule = (
            "the name of a column, or a list of such names without repeats"
            if role in SEVERAL
            else "one column, by its name"
        )
        raise ValueError(f"{role} must be {rule}. Got {given!r}.")
    return [str(name) for name in names]


def _open(table: Any) -> tuple[list[str], Callable[[list[str]], nw.DataFrame]]:
    """The names of the columns, and a function that loads some of them."""
    if isinstance(table, str | Path):
        table = _open_file(Path(table))
    if isinstance(table, parquet.ParquetFile):
        return table.schema_arrow.names, lambda names: nw.from_native(table.read(columns=names))
    try:
        frame = nw.from_native(table).lazy()
    except TypeError:
        raise ValueError(
            "table must be a data frame (pandas, polars, pyarrow or another that narwhals reads) or the path "
            f"of a .parquet or .csv file. Got {type(table).__name__}."
        ) from None
    return frame.collect_schema().names(), lambda names: frame.select(names).collect()


def _open_file(path: Path) -> parquet.ParquetFile | pa.Table:
    name = path.name.lower()
    if not name.endswith((".parquet", ".csv", ".csv.gz")):
        raise ValueError(f"The file of a table must end in .parquet, .csv or .csv.gz. Got {str(path)!r}.")
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {str(path)!r}. The path is read from {str(Path.cwd())!r}.")
    try:
        if name.endswith(".parquet"):
            return parquet.ParquetFile(path)
        return csv.read_csv(path, convert_options=csv.ConvertOptions(strings_can_be_null=True))
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"The file {str(path)!r} cannot be read as {path.suffix[1:]}: {error}") from None


def _check_roles(roles: dict[str, list[str]], there: list[str]) -> None:
    absent = [name for names in roles.values() for name in names if name not in there]
    if absent:
        raise ValueError(f"The table has no column {_name_all(absent)}. It has: {_name_all(there)}.")
    for one, other in combinations(roles, 2):
        shared = set(roles[one]) & set(roles[other])
        if shared and {one, other} not in MAY_SHARE:
            raise ValueError(
                f"A column can play one role. Got {_name_all(sorted(shared))} for both {one} and {other}."
            )


def _check_full(name: str, role: str, gaps: np.ndarray) -> None:
    if gaps.any():
        rows = _name_rows(np.flatnonzero(gaps))
        raise ValueError(f"The {role} column {name!r} must be given in every row. It is null in {rows}.")


def _check_repeats(rows: np.ndarray, with_annotator: bool) -> None:
    if not len(rows):
        return
    key, hint = "sequence, time and annotator", "Drop the repeats."
    if not with_annotator:
        key, hint = (
            "sequence and time",
            "Give annotator= if several people labelled a step, or drop repeats.",
        )
    raise ValueError(f"Every {key} may occur once. An earlier row is repeated in {_name_rows(rows)}. {hint}")


def _name_rows(rows: np.ndarray, most: int = 5) -> str:
    """Rows by their number, counted from 0."""
    shown = ", ".join(str(row) for row in rows[:most])
    more = f", ... ({len(rows)} in all)" if len(rows) > most else ""
    return f"row{'s' if len(rows) > 1 else ''} {shown}{more}"


def _name_all(names: Sequence[str], most: int = 20) -> str:
    shown = ", ".join(repr(name) for name in names[:most])
    return shown + (f", ... ({len(names)} in all)" if len(names) > most else "")
