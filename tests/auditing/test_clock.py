"""The clock is the position, a column or a part of the time, and says what it counts."""

import datetime

import numpy as np
import pyarrow as pa
import pytest

from labeltide.auditing import read_audit_table
from labeltide.auditing.clock import ClockInfo

START = datetime.datetime(2026, 3, 1, 18)  # a Sunday
ROWS = {
    "person": ["a", "a", "a", "b"],
    "time": [START + datetime.timedelta(hours=h) for h in (0, 3, 9, 24)],
    "label": ["x", "y", "x", "y"],
    "v": [1.0, 2, 3, 4],
}


def clock_of(clock=None, **columns):
    audit = read_audit_table(pa.table({**ROWS, **columns}), clock=clock)
    return audit.rows_from_steps(audit.clock), audit.clock_info, audit.said


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
    ],
)
def test_clocks_from_the_time(clock, expected, info):
    found, about, said = clock_of(clock)
    np.testing.assert_allclose(found, expected)
    assert about == info
    assert any(sentence.startswith("The clock is ") for sentence in said)


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
