"""Reading a table for an audit: roles, labels, features, clock and windows, one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from labeltide._validation import UnanswerableError
from labeltide.auditing.clock import positions, read_clocks
from labeltide.auditing.columns import Columns, Names, Request, find_columns
from labeltide.auditing.features import Encoder, Features, apply_encoders, encode_features
from labeltide.auditing.gaps import find_gaps
from labeltide.auditing.intake import column_names, load_table
from labeltide.auditing.labels import labels_of_steps, read_labels, read_trusted
from labeltide.auditing.rows import Rows, find_rows
from labeltide.auditing.table import AuditTable, decode
from labeltide.auditing.windows import Windows, cut_windows
from labeltide.auditing.words import ANNOTATORS, means, texts


def read_audit_table(
    table: Any,
    *,
    sequence: Names = None,
    time: str | None = None,
    label: Names = None,
    features: Names = None,
    annotator: str | None = None,
    clock: Names = None,
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
    clock : column, "hour_of_day", "day_of_week", "days" or "position"
        The position in the sequence when left out. Several, in a list or with commas between, add up.
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
    rows = find_rows(loaded, columns, labels.codes)
    recorded = labels_of_steps(labels, rows)
    features = encode_features(loaded, columns.features, rows.steps, recorded, named=columns.features_named)
    clock, clocks, clocks_said = read_clocks(loaded, columns.clock, columns.time, rows.moments, rows.steps)
    said = [*columns.said, *labels.said, *(rows.moments.said if rows.moments else ()), *features.said, *clocks_said]
    trusted = None
    if columns.trusted:
        trusted, sentence = read_trusted(loaded, columns.trusted, labels, rows.steps)
        said.append(sentence)
    if not features.columns:
        features = _only_position(rows)
        said += features.said
    gaps, gaps_said = find_gaps(rows.steps) if rows.moments else (None, "")
    said += [gaps_said] if gaps_said else []
    cut = cut_windows(np.bincount(rows.steps.sequence), window)
    said.append(_say_windows(cut, np.bincount(rows.steps.sequence)))
    arrays = _arrays(cut, features.columns, recorded, clock, trusted, gaps)
    return _build(rows, features, labels.names, arrays, clocks=clocks, window=cut.window, said=tuple(said))


def read_new_table(
    table: Any,
    *,
    encoders: Sequence[Encoder],
    class_names: Sequence[str],
    window: int,
    sequence: Names = None,
    time: str | None = None,
    annotator: str | None = None,
) -> AuditTable:
    """Read another table as a trained model knows it: the same features, no labels, the position as clock.

    Parameters
    ----------
    encoders, class_names, window : as in the `AuditTable` on which the model was trained
    sequence, time, annotator : columns, found where that is plain
    """
    loaded = load_table(table)
    columns = find_columns(loaded, Request(sequence, time, annotator=annotator), labelled=False)
    rows = find_rows(loaded, columns, np.full((len(loaded), 1), -1, dtype=np.int8))
    features = apply_encoders(loaded, encoders, rows.steps) if encoders else _position(rows)
    nothing = np.full((len(rows.steps.rows), rows.n_annotators), -1, dtype=np.int8)
    clock, clocks, _ = read_clocks(loaded, [], columns.time, rows.moments, rows.steps)
    cut = cut_windows(np.bincount(rows.steps.sequence), window)
    arrays = _arrays(cut, features.columns, nothing, clock)
    said = tuple(columns.said)
    return _build(rows, features, tuple(class_names), arrays, clocks=clocks, window=cut.window, said=said)


def _build(
    rows: Rows, features: Features, class_names: tuple[str, ...], arrays: dict[str, Any], **about: Any
) -> AuditTable:
    names = tuple(texts(rows.steps.ids))
    return AuditTable(
        **arrays,
        **rows.lines(),
        **about,
        ids=decode(rows.steps.sequence[rows.steps.step_of_row], names),
        times=rows.times,
        sequence_names=names,
        class_names=class_names,
        annotator_names=rows.annotators,
        feature_names=features.names or ("position in the sequence",),
        columns=_describe(rows.columns),
        encoders=features.encoders,
    )


def _needed(table: Any, request: Request) -> set[str] | None:
    """The columns to load: all of them, unless the user has named the features and all else that we would guess."""
    if None in (request.features, request.sequence, request.time, request.label):
        return None
    there = column_names(table)
    named = {name for names in request.columns(there).values() for name in names}
    return named | {name for name in there if means(name, ANNOTATORS)}


def _only_position(rows: Rows) -> Features:
    """The place in the sequence as the only feature, where several annotators can still be compared."""
    if rows.n_annotators < 2:
        raise UnanswerableError(
            "With one annotator an audit needs features: nothing else can tell a wrong label from a right one. No "
            "column is left that can be one. Name some with the option features (--features COLUMN,...)."
        )
    said = "No column is left for features, so the audit rests on the annotators and the position in the sequence."
    return replace(_position(rows), said=(said,))


def _position(rows: Rows) -> Features:
    return Features([(positions(rows.steps) * 2 - 1).astype(np.float32)], (), ())


def _arrays(
    cut: Windows,
    columns: list[np.ndarray],
    recorded: np.ndarray,
    clock: np.ndarray,
    trusted: np.ndarray | None = None,
    gaps: np.ndarray | None = None,
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
        "gaps": None if gaps is None else np.where(real, gaps[index], 1),
        "groups": cut.groups,
        "index": index,
        "place": place,
    }


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
