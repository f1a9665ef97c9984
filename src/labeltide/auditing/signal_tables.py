"""Signals from a table: a column of times and one for each channel, perhaps one that names the recording."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from labeltide.spans.table import Signal, SpanFile, no_spans
from labeltide.tables.intake import is_number, load_table, open_table
from labeltide.tables.vocabulary import LESSER_TIMES, SEQUENCES, TIMES, means
from labeltide.tables.wording import quoted

MOST_SAMPLES = 100_000_000  # of a grid on which the rows are placed
FILLED = 10  # times as many samples as there are may be missing before the first row


def read_signal_table(path: Path) -> dict[str, SpanFile]:
    """The signals of each recording; rows are placed on an even grid of the usual time between them."""
    table = load_table(open_table(path))
    time = _time_column(table)
    recording = next((name for name in table.column_names if name != time and means(name, SEQUENCES)), None)
    if recording is None:
        return {path.stem: _signals(table, time)}
    texts = table[recording].cast(pa.string())
    names = [name for name in pc.unique(texts).to_pylist() if name is not None]
    rest = table.drop_columns([recording])
    return {name: _signals(rest.filter(pc.fill_null(pc.equal(texts, name), False)), time) for name in names}


def _time_column(table: pa.Table) -> str:
    for vocabulary in (TIMES, LESSER_TIMES):
        for name in table.column_names:
            kind = table.schema.field(name).type
            if means(name, vocabulary) and (is_number(kind) or pa.types.is_timestamp(kind)):
                return str(name)
    raise ValueError(
        "A table of signals must have a column of times, named time, t or timestamp, in seconds or as dates with "
        f"times. It has: {quoted(table.column_names)}."
    )


def _signals(table: pa.Table, time: str) -> SpanFile:
    seconds, start = _seconds(table[time])
    order = np.argsort(seconds, kind="stable")
    seconds = seconds[order]
    gaps = np.diff(seconds)
    if not len(gaps) or not np.isfinite(seconds).all() or not (usual := float(np.median(gaps))) > 0:
        raise ValueError(
            f"The times in {quoted([time])} must be finite and differ from row to row, at least two of them."
        )
    place = np.rint((seconds - seconds[0]) / usual).astype(np.int64)
    count = int(place[-1]) + 1
    if count > MOST_SAMPLES:
        raise ValueError(
            f"The times in {quoted([time])} leave gaps so long that the signals cannot be held. Split the table."
        )
    said = []
    moved = float(np.abs(seconds - seconds[0] - place * usual).max())
    if moved > usual / 10:
        said.append(f"Times are not even: samples were moved by up to {moved:.3g} s onto steps of {usual:.3g} s.")
    before = round(seconds[0] / usual) if start is None and 0 < seconds[0] / usual < FILLED * count else 0
    if start is None and abs(seconds[0] - before * usual) > usual:
        said.append(f"Times count from the first row, which was {seconds[0]:g} s.")
    columns = [name for name in table.column_names if name != time and is_number(table.schema.field(name).type)]
    if not columns:
        raise ValueError("A table of signals must have at least one column of numbers beside the times. Got none.")
    signals = []
    for name in columns:
        values = np.full(before + count, np.nan)
        values[before + place] = table[name].to_numpy().astype(np.float64)[order]
        signals.append(Signal(name, "", 1 / usual, before + count, lambda a, b, held=values: held[a:b]))  # type: ignore[misc]
    return SpanFile(no_spans(), tuple(signals), start, tuple(said))


def _seconds(column: pa.ChunkedArray):  # type: ignore[no-untyped-def]
    """Times in seconds, and the wall clock at second 0 where the column holds moments."""
    if pa.types.is_timestamp(column.type):
        moments = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()).to_numpy().astype(np.float64) / 1e6
        first = np.datetime64(int(moments.min() * 1e6), "us").item() if len(moments) else None
        return moments - moments.min() if len(moments) else moments, first
    return column.to_numpy().astype(np.float64), None
