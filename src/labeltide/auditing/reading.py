"""From a table to the arrays of an audit: the reader of `labeltide.tables`, with columns found where not named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from labeltide._validation import UnanswerableError
from labeltide.auditing.audit_input import AuditInput, decode
from labeltide.tables.bad_rows import keep_rows
from labeltide.tables.clock_columns import ClockInfo, positions, read_clocks
from labeltide.tables.column_counts import TableCounts
from labeltide.tables.decimal_commas import read_decimal_commas
from labeltide.tables.features import Encoder, Features, apply_encoders, encode_features
from labeltide.tables.intake import OpenTable, load_table, open_table, whole
from labeltide.tables.labels import read_table_labels, read_trusted
from labeltide.tables.moments import find_gaps, read_moments
from labeltide.tables.overview import ColumnOverview, describe_overview
from labeltide.tables.role_guesses import RoleColumns, find_columns
from labeltide.tables.roles import Names, Reading, Request
from labeltide.tables.table_rows import GivenRows, TableRows, find_rows
from labeltide.tables.tidying import choose_tidying, tidy_contents
from labeltide.tables.vocabulary import ANNOTATORS, means
from labeltide.tables.windows import Windows, cut_windows, say_windows
from labeltide.tables.wording import unique_texts


@dataclass(frozen=True)
class AuditSteps:
    """A table as steps, before windows are cut; `cut` makes the arrays of an audit.

    Attributes
    ----------
    labels : int8 array of shape (all steps, annotators)
    clock : float64 array of shape (all steps,), or (all steps, clocks)
    trusted : int8 array of shape (all steps,), or None
    gaps : int64 array of shape (all steps,), or None where no step is missing
    said : sentences about what was read
    overview : type, missing values, levels and role of every column
    decisions : how many labels reviewers settled, used and left out; None without decisions
    """

    rows: TableRows
    features: Features
    labels: np.ndarray
    class_names: tuple[str, ...]
    clock: np.ndarray
    clocks: tuple[ClockInfo, ...]
    trusted: np.ndarray | None = None
    gaps: np.ndarray | None = None
    said: tuple[str, ...] = ()
    overview: tuple[ColumnOverview, ...] = ()
    decisions: dict[str, Any] | None = None

    def cut(self, window: int | None = None) -> AuditInput:
        """Cut windows; None chooses their length from the data."""
        counts = self.rows.steps.counts
        windows = cut_windows(counts, window)
        names = tuple(unique_texts(self.rows.steps.ids))
        return AuditInput(
            **_arrays(self, windows),
            **self.rows.lines(),
            ids=self.rows.of_given(decode(self.rows.steps.sequence[self.rows.steps.step_of_row], names)),
            times=self.rows.of_given(self.rows.times),
            sequence_names=names,
            class_names=self.class_names,
            annotator_names=self.rows.annotators,
            feature_names=self.features.names or ("position in the sequence",),
            clocks=self.clocks,
            columns=self.rows.columns.describe(),
            window=windows.window,
            encoders=self.features.encoders,
            said=(*self.said, say_windows(len(windows.groups), windows.window, counts)),
            overview=self.overview,
            decisions=self.decisions,
        )


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
    drop_bad_rows: bool = False,
    timezone: str | None = None,
) -> AuditInput:
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
    drop_bad_rows : bool
        Leave out rows without a time or a sequence and exact repeats of an earlier row. Row numbers stay those of the
        table as it was given.
    timezone : str
        Name of a time zone, to whose wall clock times are converted; hours stay as written when left out.
    """
    request = Request(sequence, time, label, features, annotator, clock, trusted)
    return read_audit_steps(table, request, Reading(drop_bad_rows, timezone)).cut(window)


def read_audit_steps(table: Any, request: Request, reading: Reading = Reading()) -> AuditSteps:  # noqa: B008  (frozen)
    """Read the columns of a request, and those that it leaves to be found."""
    try:
        return _read_steps(open_table(table), request, reading)
    except pa.ArrowException as error:  # what no check above foresaw, in Arrow's own words
        raise ValueError(f"The table cannot be read: {str(error).rstrip('.')}.") from None


def _read_steps(table: OpenTable, request: Request, reading: Reading) -> AuditSteps:
    given = load_table(table, needed_columns(table.names, request))
    columns = find_columns(given, request)
    given, kept, rows_said = _keep_rows(given, columns, reading)
    counts = TableCounts()
    counts.add(given, columns)
    tidy, tidied_said = choose_tidying(counts, columns)
    loaded = tidy(given)
    labels = read_table_labels(loaded, columns.label)
    rows = find_rows(loaded, columns, labels.codes, reading.timezone, kept)
    recorded = labels.of_steps(rows)
    features = encode_features(loaded, columns.features, rows.steps, recorded, named=columns.features_named)
    clock, clocks, clocks_said = read_clocks(loaded, columns.clock, columns.time, rows.moments, rows.steps)
    moments_said = rows.moments.said if rows.moments else ()
    said = [*columns.said, *rows_said, *tidied_said, *labels.said, *moments_said, *features.said, *clocks_said]
    trusted = None
    if columns.trusted:
        trusted, sentence = read_trusted(loaded, columns.trusted, labels, rows.steps)
        said.append(sentence)
    used, why = [encoder.column for encoder in features.encoders], {**columns.left_out, **features.left_out}
    overview = describe_overview(tidy_contents(counts, tidy), table.names, columns, used, why, tidy.as_numbers)
    if not features.columns:
        features = _only_position(rows)
        said += features.said
    gaps, gaps_said = find_gaps(rows.steps) if rows.moments else (None, "")
    said += [gaps_said] if gaps_said else []
    return AuditSteps(rows, features, recorded, labels.names, clock, clocks, trusted, gaps, tuple(said), overview)


def _keep_rows(
    table: pa.Table, columns: RoleColumns, reading: Reading
) -> tuple[pa.Table, GivenRows | None, tuple[str, ...]]:
    """The table without bad rows, which rows of it these are, and what is said of that."""
    kept = keep_rows(_with_moments(table, columns.time, reading.timezone), columns, reading.drop_bad_rows)
    if kept.rows is None:
        return table, None, kept.said
    return table.take(pa.array(kept.rows)), GivenRows(kept.rows, len(table)), kept.said


def _with_moments(table: pa.Table, time: str | None, timezone: str | None) -> pa.Table:
    """The table with moments in a named time zone, where the hour that a clock shows twice is no repeat."""
    if time is None or timezone is None:
        return table
    return table.set_column(
        table.column_names.index(time), time, read_moments(time, whole(table[time]), timezone).order
    )


def read_new_table(
    table: Any,
    *,
    encoders: Sequence[Encoder],
    class_names: Sequence[str],
    window: int,
    sequence: Names = None,
    time: str | None = None,
    annotator: str | None = None,
) -> AuditInput:
    """Read another table as a trained model knows it: the same features, no labels, the position as clock.

    Parameters
    ----------
    encoders, class_names, window : as in the `AuditInput` on which the model was trained
    sequence, time, annotator : columns, found where that is plain
    """
    loaded = load_table(open_table(table))
    columns = find_columns(loaded, Request(sequence, time, annotator=annotator), labelled=False)
    numbers = [encoder.column for encoder in encoders if not encoder.levels]
    loaded = read_decimal_commas(loaded, [*numbers, *([columns.time] if columns.time else [])])
    rows = find_rows(loaded, columns, np.full((len(loaded), 1), -1, dtype=np.int8))
    features = apply_encoders(loaded, encoders, rows.steps) if encoders else _position(rows)
    unlabelled = np.full((len(rows.steps.rows), rows.n_annotators), -1, dtype=np.int8)
    clock, clocks, _ = read_clocks(loaded, [], columns.time, rows.moments, rows.steps)
    steps = AuditSteps(rows, features, unlabelled, tuple(class_names), clock, clocks, said=tuple(columns.said))
    return replace(steps.cut(window), said=steps.said)


def needed_columns(names: Sequence[str], request: Request) -> set[str] | None:
    """The columns to load: all of them, unless the user has named the features and all else that we would guess."""
    if None in (request.features, request.sequence, request.time, request.label):
        return None
    there = [str(name) for name in names]
    named = {name for names in request.columns(there).values() for name in names}
    return named | {name for name in there if means(name, ANNOTATORS)}


def _only_position(rows: TableRows) -> Features:
    """The place in the sequence as the only feature, where several annotators can still be compared."""
    if rows.n_annotators < 2:
        raise UnanswerableError(
            "With one annotator an audit needs features: nothing else can tell a wrong label from a right one. No "
            "column is left that can be one. Name some with the option features (--features COLUMN,...)."
        )
    said = "No column is left for features, so the audit rests on the annotators and the position in the sequence."
    return replace(_position(rows), said=(said,))


def _position(rows: TableRows) -> Features:
    return Features([(positions(rows.steps) * 2 - 1).astype(np.float32)], (), ())


def _arrays(steps: AuditSteps, windows: Windows) -> dict[str, Any]:
    index, belongs = windows.index, windows.belongs
    real = index >= 0
    columns = steps.features.columns
    features = np.zeros((*index.shape, len(columns)), dtype=np.float32)
    for number in range(len(columns)):
        features[..., number][real] = columns[number][index[real]]
    labels = np.where(real[..., None], steps.labels[index], np.int8(-1))
    trusted = None if steps.trusted is None else np.where(real, steps.trusted[index], np.int8(-1))
    place = np.empty(len(steps.labels), dtype=np.int64)
    place[index[belongs]] = np.flatnonzero(belongs)
    return {
        "features": features,
        "labels": labels,
        "fit_labels": np.where(belongs[..., None], labels, np.int8(-1)),
        "lengths": windows.lengths,
        "clock": steps.clock[windows.filled_index()],  # padding shows the last real moment
        "trusted": trusted,
        "fit_trusted": None if trusted is None else np.where(belongs, trusted, np.int8(-1)),
        "gaps": None if steps.gaps is None else np.where(real, steps.gaps[index], 1),
        "groups": windows.groups,
        "index": index,
        "place": place,
    }
