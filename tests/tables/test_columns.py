"""Columns of any kind of table come out alike, and what cannot be read is refused in a sentence."""

import datetime
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from labeltide.data.sequences import Sequences
from tables.test_layout import ROLES, assert_refused, assert_same, small_table, with_column

# Kinds of tables


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame, pl.LazyFrame])
def test_every_table_library_gives_the_same_sequences(kind):
    for stage in (small_table()["stage"], [0, None, 1, 2, -1, 0, 1, 2, 0, 1, 2, 0], [True, False, None] * 4):
        columns = with_column("stage", stage)
        expected = Sequences.from_table(pa.table(columns), **ROLES, clock="hour", zscore="night", window=2)
        assert_same(Sequences.from_table(kind(columns), **ROLES, clock="hour", zscore="night", window=2), expected)


@pytest.mark.parametrize("ending", ["parquet", "csv", "csv.gz"])
@pytest.mark.parametrize("as_type", [str, Path])
def test_files_give_the_same_sequences_as_tables(tmp_path, ending, as_type):
    table = pa.table(small_table())
    path = tmp_path / f"nights.{ending}"
    if ending == "parquet":
        parquet.write_table(table, path)
    else:
        with pa.output_stream(path) as sink:  # packs by the ending of the name
            csv.write_csv(table, sink)
    assert_same(Sequences.from_table(as_type(path), **ROLES), Sequences.from_table(table, **ROLES))


def test_categoricals_and_dictionaries_are_read_by_their_values():
    columns = small_table()
    expected = Sequences.from_table(pa.table(columns), **ROLES)
    frame = pd.DataFrame(columns).astype({"night": "category", "stage": "category"})
    assert_same(Sequences.from_table(frame, **ROLES), expected)
    assert_same(Sequences.from_table(pl.DataFrame(columns).cast({"stage": pl.Categorical}), **ROLES), expected)
    table = pa.table({**columns, "stage": pa.array(columns["stage"]).dictionary_encode()})
    chunked = pa.concat_tables([table.slice(0, 5), table.slice(5)])
    assert_same(Sequences.from_table(chunked, **ROLES), expected)
    whole = pd.DataFrame(with_column("stage", [3, 1, 2] * 4)).astype({"stage": "category"})
    assert Sequences.from_table(whole, **ROLES).classes == (1, 2, 3)


# Kinds of columns


@pytest.mark.parametrize(
    ("stage", "classes"),
    [
        ([1, 2, None, 2], (1, 2)),  # pandas turns these into floats
        ([-1, 0, 1, -1], (-1, 0, 1)),
        (["?", "x", "y", "Unknown"], ("x", "y")),
        ([1.0, 2.0, 1.0, 2.0], (1.0, 2.0)),
        ([0.5, 1.5, None, 0.5], (0.5, 1.5)),
        ([-1.0, 1.0, 1.0, -1.0], (-1.0, 1.0)),
        ([True, False, True, True], (False, True)),
        ([True, None, False, True], (False, True)),
        ([("a", 1), ("b", 2), None, ("a", 1)], (("a", 1), ("b", 2))),
        ([3, "x", None, 3], (3, "x")),
    ],
)
def test_class_names_keep_their_values_and_types(stage, classes):
    frame = pd.DataFrame({"s": [0] * 4, "t": range(4), "y": pd.Series(stage)})
    data = Sequences.from_table(frame, sequence="s", time="t", label="y", features="t")
    assert data.classes == classes
    assert [type(name) for name in data.classes] == [type(name) for name in classes]
    absent = [value not in classes for value in stage]
    expected = [None if gap else value for value, gap in zip(stage, absent, strict=True)]
    assert data.decode(data.labels)[0, :, 0].tolist() == expected


def test_times_keep_the_users_own_values():
    start = datetime.datetime(2024, 3, 1)
    columns = {"s": [0, 0, 1], "y": [0, 1, 0], "v": [1.0, 2.0, 3.0]}
    moments = [start + datetime.timedelta(hours=k) for k in (6, 0, 30)]
    roles = {"sequence": "s", "label": "y", "features": "v", "time": "t"}
    data = Sequences.from_table(pl.DataFrame({**columns, "t": moments}), **roles, clock="t")
    assert data.times.dtype.kind == "M"
    assert data.times[0].tolist() == [moments[1], moments[0]]
    np.testing.assert_allclose(data.clock, [[0, 0.25], [1.25, 1.25]])  # days since the earliest
    text = Sequences.from_table(pd.DataFrame({**columns, "t": ["10:00", "09:00", "08:00"]}), **roles)
    assert text.times.tolist() == [["09:00", "10:00"], ["08:00", "08:00"]]
    days = [datetime.date(2024, 3, day) for day in (2, 1, 3)]
    dates = Sequences.from_table(pa.table({**columns, "t": days}), **roles)
    assert dates.times.tolist() == [[days[1], days[0]], [days[2], days[2]]]


def test_dates_and_time_zones_become_days():
    columns = {"s": [0, 0], "t": [0, 1], "y": [0, 1]}
    roles = {"sequence": "s", "label": "y", "features": "t", "time": "t", "clock": "when"}
    days = pa.array([datetime.date(2024, 1, 3), datetime.date(2024, 1, 1)])
    assert Sequences.from_table(pa.table({**columns, "when": days}), **roles).clock.tolist() == [[2, 0]]
    zoned = pd.to_datetime(["2024-01-01 12:00", "2024-01-01 00:00"]).tz_localize("Europe/Berlin")
    frame = pd.DataFrame({**columns, "when": zoned})
    assert Sequences.from_table(frame, **roles).clock.tolist() == [[0.5, 0]]


# Refusals


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"label": "sleep"}, "no column 'sleep'. It has: 'night', 't', 'stage', 'a', 'b' and 'hour'"),
        ({"features": ["a", "stage"]}, "'stage' for both label and features"),
        ({"clean": "stage"}, "'stage' for both label and clean"),
        ({"zscore": "stage"}, "'stage' for both label and zscore"),
        ({"annotator": "night"}, "'night' for both sequence and annotator"),
        ({"features": []}, "list of such names without repeats. Got \\[\\]"),
        ({"features": ["a", "a"]}, "without repeats"),
        ({"features": [3]}, "features must be the name of a column, or a list"),
        ({"label": None}, "label must be one column, by its name. Got None"),
        ({"time": ["t"]}, "time must be one column, by its name"),
        ({"features": ["a", "night"]}, "'night' for both sequence and features"),
        (
            {"clock": "stage", "label": "b", "features": "a"},
            "clock column 'stage' must hold numbers or datetimes",
        ),
    ],
)
def test_impossible_roles_are_refused(changes, match):
    assert_refused(small_table(), match, **changes)


@pytest.mark.parametrize(
    ("name", "values", "match"),
    [
        ("a", ["x"] * 12, "feature column 'a' must hold numbers"),
        ("a", [1.0, None, 2.0, float("inf"), *range(8)], "feature column 'a' must be finite.* rows 1, 3"),
        ("a", [1e300] + [0.0] * 11, "too large for float32 in row 0"),
        ("b", [None] * 7 + [1] * 5, r"rows 0, 1, 2, 3, 4, ... \(7 in all\)"),
        ("night", [None, *small_table()["night"][1:]], "sequence column 'night' .* null in row 0"),
        ("t", [0.0, None, *small_table()["t"][2:]], "time column 't' .* null in row 1"),
        ("t", [str(k) if k else None for k in range(12)], "time column 't' .* null in row 0"),
        ("t", [0.0, 0.0, *small_table()["t"][2:]], "repeated in row 1. Give annotator="),
        ("stage", ["wake", None] * 6, "label column 'stage' must hold at least two classes. Got only 'wake'"),
        ("stage", [None] * 12, "label column 'stage' holds no label at all"),
        ("stage", [-1] * 12, "label column 'stage' must hold at least two classes. Got only -1"),
    ],
)
def test_broken_columns_are_refused(name, values, match):
    assert_refused(with_column(name, values), match)


def test_gaps_in_clock_groups_and_annotators_are_refused():
    gap = [None] + [1.0] * 11
    assert_refused(with_column("hour", gap), "clock column 'hour' must be finite.* row 0", clock="hour")
    assert_refused(with_column("hour", gap), "zscore column 'hour' .* null in row 0", zscore="hour")
    assert_refused(with_column("hour", gap), "annotator column 'hour' .* null in row 0", annotator="hour")
    moments = [None] + [datetime.datetime(2024, 1, 1)] * 11
    assert_refused(with_column("hour", moments), "clock column 'hour' .* null in row 0", clock="hour")


def test_unsortable_and_unhashable_columns_are_refused():
    frame = pd.DataFrame({"s": [0, 0], "t": pd.Series([1, "x"], dtype=object), "y": [0, 1], "v": [1, 2]})
    with pytest.raises(ValueError, match="'t' must hold values of one kind"):
        Sequences.from_table(frame, sequence="s", time="t", label="y", features="v")
    frame = pl.DataFrame({"s": [0, 0], "t": [0, 1], "y": [[0], [1]]})
    with pytest.raises(ValueError, match="'y' must hold hashable values"):
        Sequences.from_table(frame, sequence="s", time="t", label="y", features="t")


def write_repeats(kind, folder):
    """The small table with its column b twice, as a table or a file."""
    names = [*small_table(), "b"]
    columns = [pa.array(small_table()[name]) for name in names]
    table = pa.Table.from_arrays(columns, names=names)
    if kind == "pandas":
        return pd.DataFrame(dict(enumerate(small_table()[name] for name in names))).set_axis(names, axis=1)
    if kind == "pyarrow":
        return table
    path = folder / f"nights.{kind}"
    (parquet.write_table if kind == "parquet" else csv.write_csv)(table, path)
    return path


@pytest.mark.parametrize("kind", ["pandas", "pyarrow", "parquet", "csv"])
def test_repeated_column_names_are_refused(tmp_path, kind):
    with pytest.raises(ValueError, match=r"must have its own name. Got 'b' more than once. Rename or drop"):
        Sequences.from_table(write_repeats(kind, tmp_path), **ROLES)


def test_what_is_no_table_is_refused(tmp_path):
    for wrong in ([1, 2], np.zeros((2, 2)), None, {"night": [1]}):
        with pytest.raises(ValueError, match="table must be a data frame"):
            Sequences.from_table(wrong, **ROLES)
    with pytest.raises(FileNotFoundError, match=r"no file .*gone\.parquet"):
        Sequences.from_table(tmp_path / "gone.parquet", **ROLES)
    with pytest.raises(ValueError, match=r"must end in \.parquet, \.csv, \.csv\.gz, \.tsv"):
        Sequences.from_table("nights.docx", **ROLES)
    for name in ("broken.parquet", "empty.csv"):
        (tmp_path / name).write_text("")
        with pytest.raises(ValueError, match=rf"{name}.* cannot be read"):
            Sequences.from_table(tmp_path / name, **ROLES)
