"""The clock is the position, a column or a part of the time, and says what it counts."""

import datetime

import numpy as np
import pyarrow as pa
import pytest

from auditing.lines import lines_of, of_lines
from labeltide.tables.windows import ClockInfo
from labeltide_bench.tables import read_audit_table

START = datetime.datetime(2026, 3, 1, 18)  # a Sunday
ROWS = {
    "person": ["a", "a", "a", "b"],
    "time": [START + datetime.timedelta(hours=h) for h in (0, 3, 9, 24)],
    "label": ["x", "y", "x", "y"],
    "v": [1.0, 2, 3, 4],
}


def clock_of(clock=None, **columns):
    audit = read_audit_table(pa.table({**ROWS, **columns}), clock=clock)
    return of_lines(audit, audit.clock), audit.clocks[0], audit.messages


@pytest.mark.parametrize(
    ("clock", "expected", "info"),
    [
        (None, [0, 0.5, 1, 0], ClockInfo("position in the sequence", "position")),
        ("hour_of_day", [18, 21, 3, 18], ClockInfo("hour of day", "hour_of_day", "h", 24)),
        (
            "day_of_week",
            [6.75, 6.875, 0.125, 0.75],
            ClockInfo("day of the week (0 is Monday)", "day_of_week", "days", 7),
        ),
        ("days", [0, 0.125, 0.375, 1], ClockInfo("days since the start", "days", "days")),
        ("time", [0, 0.125, 0.375, 1], ClockInfo("time", "column", "days")),
        ("position", [0, 0.5, 1, 0], ClockInfo("position in the sequence", "position")),
    ],
)
def test_clocks_from_the_time(clock, expected, info):
    found, about, messages = clock_of(clock)
    np.testing.assert_allclose(found, expected)
    assert about == info
    assert any(sentence.startswith("The clock is ") for sentence in messages)


def test_a_column_is_a_clock():
    assert clock_of("load", load=[5, 1, 2, 9])[:2] == (pytest.approx([5, 1, 2, 9]), ClockInfo("load", "column"))
    found, about, _ = clock_of("hour", hour=[18, 21, 3, 24])
    assert about == ClockInfo("hour", "hour_of_day", "h", 24)
    assert found.tolist() == [18, 21, 3, 0]
    found, about, _ = clock_of("clock_time", clock_time=[datetime.time(h, 30) for h in (1, 2, 3, 4)])
    assert about == ClockInfo("clock_time", "column", "h", 24)
    assert found.tolist() == [1.5, 2.5, 3.5, 4.5]


def test_a_column_called_as_a_derived_clock_comes_first():
    assert clock_of("days", days=[5, 1, 2, 9])[1] == ClockInfo("days", "column")


@pytest.mark.parametrize(
    ("clock", "columns", "match"),
    [
        (
            "hour_of_day",
            {"time": [0, 1, 2, 3]},
            r"needs a time column of dates and times. Time is the numbers of 'time'",
        ),
        ("hour_of_day", {"time": [d.date() for d in ROWS["time"][:3:2]] * 2}, r"holds dates alone"),
        ("lunar", {}, r"no column 'lunar'"),
        ("load", {"load": [1.0, None, 2, 3]}, r"clock column 'load' must be finite"),
        ("load", {"load": ["a", "b", "c", "d"]}, r"must hold numbers or datetimes"),
        ("load", {"load": [START, None, START, START]}, r"must be given in every row"),
    ],
)
def test_impossible_clocks_are_refused(clock, columns, match):
    person = {"person": ["a", "b", "c", "d"]}
    with pytest.raises(ValueError, match=match):
        clock_of(clock, **columns, **person)


LONG = {
    "person": np.repeat(["a", "b"], 48),
    "time": [START + datetime.timedelta(minutes=30 * step) for step in range(96)],
    "label": ["x", "y"] * 48,
    "v": np.arange(96) % 7,
    "since": np.arange(96) / 2 % 24,  # all start at the same hour
    "minutes": np.arange(96) * 30 % 1440,
    "still": np.ones(96),
}


@pytest.mark.parametrize("clock", ["load,hour_of_day,position", ["load", "hour_of_day", "position"]])
def test_several_clocks_are_read_as_each_is_alone(clock):
    later = [moment + datetime.timedelta(hours=7 * (step >= 48)) for step, moment in enumerate(LONG["time"])]
    table = pa.table({**LONG, "time": later, "load": np.arange(96) * 37 % 96})
    audit = read_audit_table(table, sequence="person", clock=clock)
    assert audit.clock.shape == (*audit.index.shape, 3)
    alone = [read_audit_table(table, sequence="person", clock=name) for name in ("load", "hour_of_day", "position")]
    assert audit.clocks == tuple(one.clocks[0] for one in alone)
    for found, one in zip(audit.each_clock, alone, strict=True):
        np.testing.assert_array_equal(found, one.clock)
    assert lines_of(audit).column_names[4:7] == ["clock", "clock_2", "clock_3"]
    assert lines_of(audit)["clock_2"].to_pylist()[:3] == [18, 18.5, 19]
    assert sum(sentence.startswith("One of the clocks, whose effects add up, is ") for sentence in audit.messages) == 3


def test_a_column_with_a_comma_in_its_name_is_one_clock():
    assert clock_of("a,b", **{"a,b": [5, 1, 2, 9]})[1] == ClockInfo("a,b", "column")


@pytest.mark.parametrize(
    ("clock", "match"),
    [
        ("since,since", r"clock must be columns by their names, with commas between and without repeats"),
        ("since,lunar", r"no column 'lunar'"),
        ("since,person", r"'person' for both"),
        (
            "since,minutes,days,position",
            r"At most 3 clocks can be distinguished at once. Got 4: 'since', 'minutes', 'da",
        ),
        ("since,minutes", r"'minutes' is nearly a function of 'since'. Leave one of them out"),
        ("since,hour_of_day", r"'hour_of_day' is nearly a function of 'since'"),
        ("since,still", r"'still' is nearly a function of 'since'"),
    ],
)
def test_clocks_that_cannot_be_told_apart_are_refused(clock, match):
    with pytest.raises(ValueError, match=match):
        read_audit_table(pa.table(LONG), sequence="person", clock=clock)


def test_a_clock_and_a_longer_one_can_be_told_apart():
    audit = read_audit_table(pa.table(LONG), sequence="person", clock="days,hour_of_day")
    assert [info.period for info in audit.clocks] == [None, 24]
