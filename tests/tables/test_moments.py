"""Times of every kind are ordered, shown as written, and read on the wall clock."""

import datetime

import numpy as np
import pyarrow as pa
import pytest

from labeltide.tables.times import DAY, read_moments

MOMENT = datetime.datetime(2026, 3, 29, 10, 30)


def hours(moments):
    return ((moments.local % DAY) / (DAY / 24)).tolist()


def test_numbers_stay_numbers():
    moments = read_moments("t", pa.array([3, 1]))
    assert moments.local is None
    assert moments.texts.to_pylist() == ["3", "1"]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_timestamps_of_every_unit_are_shown_without_empty_digits(unit):
    moments = read_moments("t", pa.array([MOMENT]).cast(pa.timestamp(unit)))
    assert moments.texts.to_pylist() == ["2026-03-29 10:30:00"]
    assert hours(moments) == [10.5]


def test_hours_are_those_of_the_time_zone():
    utc = [
        datetime.datetime(2026, 3, 29, 0, 30),
        datetime.datetime(2026, 3, 29, 1, 30),
    ]  # clocks go forward at 1:00 UTC
    moments = read_moments("t", pa.array(utc).cast(pa.timestamp("us", "Europe/Berlin")))
    assert hours(moments) == [1.5, 3.5]
    assert moments.messages[0] == "Hours of 't' are those of its time zone, Europe/Berlin."
    assert "daylight saving time" in moments.messages[1]
    assert moments.texts.to_pylist() == ["2026-03-29 01:30:00+01:00", "2026-03-29 03:30:00+02:00"]


@pytest.mark.parametrize(
    ("texts", "first"),
    [
        (["2026-03-29 10:30", "2026-03-29T11:00:00.5"], "2026-03-29 10:30:00.000"),
        (["2026/03/29 10:30:00", "2026/03/29 11:00:00"], "2026-03-29 10:30:00"),
        (["29.03.2026 10:30", "30.03.2026 10:30"], "2026-03-29 10:30:00"),
        (["2026-03-29T10:30:00Z", "2026-03-29T11:00:00+02:00"], "2026-03-29 10:30:00+00:00"),
        (["10", "9"], "10"),
        (["1.5", "2"], "1.5"),
    ],
)
def test_texts_are_read_as_what_they_say(texts, first):
    moments = read_moments("t", pa.array(texts))
    assert moments.texts[0].as_py() == first
    assert moments.messages[0].startswith("The texts of 't' are read as ")


def test_dates_have_no_hours():
    moments = read_moments("t", pa.array([MOMENT.date()]))
    assert not moments.has_hours
    assert moments.texts.to_pylist() == ["2026-03-29"]


def test_durations_are_seconds():
    moments = read_moments("t", pa.array([datetime.timedelta(seconds=90.5)]))
    np.testing.assert_array_equal(moments.order.to_numpy(), [90.5])


@pytest.mark.parametrize(
    ("array", "match"),
    [
        (pa.array(["2026-03-29", "03/29/26"]), r"It holds texts that are read as neither, such as '03/29/26'. Write"),
        (pa.array(["Monday"]), r"such as 'Monday'. Write moments as in"),
        (pa.array([datetime.time(10)]), r"hours of the day without a date.* Join date and time"),
        (pa.array([True]), r"must hold moments or numbers. Got bool"),
        (pa.array([None]), r"It is empty"),
        (pa.array([2**62], pa.timestamp("s")), r"cannot be read as moments"),
        (pa.array([0], pa.timestamp("s", "Mars/Olympus")), r"cannot be read as moments"),
    ],
)
def test_what_is_no_moment_is_refused(array, match):
    with pytest.raises(ValueError, match=match):
        read_moments("t", array)
