"""Reading a table for an audit: roles, labels, features, clock and windows, one after the other."""

from __future__ import annotations

from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from labeltide.auditing.clock import positions, read_clock
from labeltide.auditing.columns import Columns, Names, Request, find_columns
from labeltide.auditing.features import Features, encode_features
from labeltide.auditing.intake import UnanswerableError, column_names, load_table, whole
from labeltide.auditing.labels import MOST_ANNOTATORS, labels_of_steps, read_labels, read_trusted
from labeltide.auditing.moments import Moments, read_moments
from labeltide.auditing.table import AuditTable, decode
from labeltide.auditing.windows import Windows, cut_windows
from labeltide.auditing.words import ANNOTATORS, means, quoted, texts
from labeltide.data.tables import Steps, find_steps

UNNAMED = "(not named)"


def read_audit_table(
    table: Any,
    *,
    sequence: Names = None,
    time: str | None = None,
    label: Names = None,
    features: Names = None,
    annotator: str | None = None,
    clock: str | None = None,
    trusted: str | None = None,
    window: int | None = None,
) -> AuditTable:
    """Read a table with one row per step, or per step and annotator, in any order of rows.

    Parameters
    ----------
    table : data frame or path
        Anything narwhals takes; or a .parquet, .csv, .tsv (also .gz), .arrow, .feather or .ipc file.
    sequence, time, label, features, annotator : columns
        Found by name and type where that is plain. Several label columns, in a list or with commas between, hold
        one annotator each.
    clock : column, "hour_of_day", "day_of_week" or "days"
        The position in the sequence when left out.
    trusted : column
        Labels known to be right, empty elsewhere.
    window : int
        Longer sequences are cut; chosen from the data when left out.
    """
    request = Request(sequence, time, label, features, annotator, clock, trusted)
    try:
        return _read(table, request, window)
    except pa.ArrowException as error:  # what no check above foresaw, in Arrow's own words
        raise ValueError(f"The table cannot be read: {str(error).rstrip('.')}.") from None


def _read(table: Any, request: Request, window: int | None) -> AuditTable:
    loaded = load_table(table, _needed(table, request))
    columns = find_columns(loaded, request)
    labels = read_labels(loaded, columns.label)
    steps, moments, people, annotators = _find_steps(loaded, columns, labels.codes)
    recorded = labels_of_steps(labels, steps, people, len(annotators or (None,)))
    found = encode_features(loaded, columns.features, steps, recorded, named=columns.features_named)
    counts = np.bincount(steps.sequence)
    cut = cut_windows(counts, window)
    moment, clock_info, clock_said = read_clock(loaded, columns.clock, columns.time, moments, steps)
    said = [*columns.said, *labels.said, *(moments.said if moments else ()), *found.said, clock_said]
    known = None
    if columns.trusted:
        known, sentence = read_trusted(loaded, columns.trusted, labels, steps)
        said.append(sentence)
    if not found.columns:
        found = _only_position(steps, recorded)
        said += found.said
    said.append(_say_windows(cut, counts))
    lines = _lines(loaded.num_rows, steps, people, labels.codes.shape[1])
    names = texts(steps.ids)
    return AuditTable(
        **_arrays(cut, found.columns, recorded, moment, known),
        **lines,
        ids=decode(steps.sequence[steps.step_of_row], tuple(names)),
        times=moments.texts if moments else pa.array(np.arange(loaded.num_rows)).cast(pa.string()),
        sequence_names=tuple(names),
        class_names=labels.names,
        annotator_names=annotators,
        feature_names=found.names or ("position in the sequence",),
        clock_info=clock_info,
        columns=_describe(columns),
        window=cut.window,
        encoders=found.encoders,
        said=tuple(said),
    )


def _needed(table: Any, request: Request) -> set[str] | None:
    """The columns to load: all of them, unless the user has named the features and all else that we would guess."""
    if None in (request.features, request.sequence, request.time, request.label):
        return None
    there = column_names(table)
    named = {name for names in request.columns(there).values() for name in names}
    return named | {name for name in there if means(name, ANNOTATORS)}


def _find_steps(
    table: pa.Table, columns: Columns, codes: np.ndarray
) -> tuple[Steps, Moments | None, np.ndarray, tuple[str, ...] | None]:
    """Steps, their moments, and the annotator of every row (a place among the names)."""
    moments = read_moments(columns.time, whole(table[columns.time])) if columns.time else None
    order = columns.time or _new_name("order of rows", table)
    whole_table = _new_name("whole table", table)
    parts = {name: table[name] for name in columns.sequence} or {whole_table: pa.array(["table"] * len(table))}
    parts[order] = moments.order if moments else pa.array(np.arange(len(table)))
    roles = {"sequence": list(parts)[:-1], "time": [order], "annotator": []}
    if columns.annotator:
        roles["annotator"] = [columns.annotator]
        parts[columns.annotator] = _name_annotators(table[columns.annotator])
    try:
        steps = find_steps(nw.from_native(pa.table(parts)), roles, len(roles["sequence"]) == 1)
    except ValueError as error:
        if "may occur once" not in str(error) or columns.sequence:
            raise
        raise ValueError(f"{error} Or name the column of the sequences with the option sequence.") from None
    if len(columns.label) > 1:
        return steps, moments, steps.annotator_of_row, tuple(texts(columns.label))
    if steps.annotators is None:
        return steps, moments, steps.annotator_of_row, None
    return steps, moments, *_people(steps, codes[:, 0])


def _people(steps: Steps, codes: np.ndarray) -> tuple[np.ndarray, tuple[str, ...]]:
    """Annotators who recorded something; rows that name none and hold no label belong to nobody."""
    assert steps.annotators is not None
    names, people = texts(steps.annotators), steps.annotator_of_row
    nobody = names.index(UNNAMED) if UNNAMED in names else -1
    if nobody >= 0 and not (codes[people == nobody] >= 0).any():
        people = np.where(people == nobody, -1, people - (people > nobody))
        names.remove(UNNAMED)
    if len(names) > MOST_ANNOTATORS:
        raise ValueError(f"There can be at most {MOST_ANNOTATORS} annotators. Got {len(names)}: {quoted(names)}.")
    return people, tuple(names)


def _name_annotators(column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    if pa.types.is_null(column.type):
        return pa.array([UNNAMED] * len(column))
    return pc.fill_null(column.cast(pa.string()), UNNAMED) if column.null_count else column


def _only_position(steps: Steps, recorded: np.ndarray) -> Features:
    """The place in the sequence as the only feature, where several annotators can still be compared."""
    if recorded.shape[1] < 2:
        raise UnanswerableError(
            "With one annotator an audit needs features: nothing else can tell a wrong label from a right one. No "
            "column is left that can be one. Name some with the option features (--features COLUMN,...)."
        )
    values = (positions(steps) * 2 - 1).astype(np.float32)
    said = (
        "No column is left for features, so the audit rests on the annotators and the position in the sequence alone."
    )
    return Features([values], (), (said,))


def _arrays(
    cut: Windows, columns: list[np.ndarray], recorded: np.ndarray, clock: np.ndarray, trusted: np.ndarray | None
) -> dict[str, Any]:
    index, belongs = cut.index, cut.belongs
    real = index >= 0
    features = np.zeros((*index.shape, len(columns)), dtype=np.float32)
    for number in range(len(columns)):
        features[..., number][real] = columns[number][index[real]]
    labels = np.where(real[..., None], recorded[index], np.int8(-1))
    known = None if trusted is None else np.where(real, trusted[index], np.int8(-1))
    place = np.empty(len(recorded), dtype=np.int64)
    place[index[belongs]] = np.flatnonzero(belongs)
    last = cut.starts + cut.lengths - 1  # padding shows the last real moment
    return {
        "features": features,
        "labels": labels,
        "fit_labels": np.where(belongs[..., None], labels, np.int8(-1)),
        "lengths": cut.lengths,
        "clock": clock[np.where(real, index, last[:, None])],
        "trusted": known,
        "fit_trusted": None if known is None else np.where(belongs, known, np.int8(-1)),
        "groups": cut.groups,
        "index": index,
        "place": place,
    }


def _lines(n_rows: int, steps: Steps, people: np.ndarray, n_columns: int) -> dict[str, np.ndarray]:
    rows = np.repeat(np.arange(n_rows), n_columns)
    annotator = people if n_columns == 1 else np.tile(np.arange(n_columns), n_rows)
    return {"line_row": rows, "line_step": steps.step_of_row[rows], "line_annotator": annotator}


def _say_windows(cut: Windows, counts: np.ndarray) -> str:
    if len(cut.groups) == len(counts):
        return f"Sequences have up to {counts.max()} steps and stay whole."
    long = int((counts > cut.window).sum())
    return (
        f"{long} sequence{'s' if long > 1 else ''} longer than {cut.window} steps {'are' if long > 1 else 'is'} cut "
        "into windows of that length, a quarter of which overlap; every row gets its result from one window."
    )


def _describe(columns: Columns) -> dict[str, str | None]:
    joined = {"sequence": ",".join(columns.sequence) or None, "label": ",".join(columns.label)}
    return {**joined, "time": columns.time, "annotator": columns.annotator, "trusted": columns.trusted}


def _new_name(wish: str, table: pa.Table) -> str:
    while wish in table.column_names:
        wish += "_"
    return wish
