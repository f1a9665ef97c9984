import pytest

from labeltide.auditing.page.format import Clock, nice_step


def clock(kind, name="hour of day", unit="", period=None):
    return Clock.read({"kind": kind, "name": name, "unit": unit, "period": period})


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("hour_of_day", 21.5, "near 21:30"),
        ("hour_of_day", 23.999, "near 00:00"),
        ("day_of_week", 5.5, "on Saturdays near 12:00"),
        ("position", 0.0, "at the start of a sequence"),
        ("position", 0.63, "about 63 % of the way through a sequence"),
        ("days", 12.25, "about 12.2 days after the start"),
    ],
)
def test_a_moment_is_said_as_people_say_it(kind, value, expected):
    assert clock(kind).moment(value) == expected


def test_a_column_of_times_of_day_is_read_as_hours():
    found = clock("column", "went to bed", "h", 24.0)
    assert found.moment(22.75) == "near 22:45"
    assert found.title == "went to bed (hour of day)"


def test_a_column_keeps_its_name_and_unit():
    found = clock("column", "minutes on shift", "min")
    assert found.title == "minutes on shift (min)"
    assert found.moment(30.0).endswith("is near 30 min")


def test_axes_cover_the_period_and_mark_whole_hours():
    found = clock("hour_of_day", period=24)
    assert found.range([0.5, 23.0]) == (0.0, 24.0)
    assert found.ticks(0, 24, 4) == [0, 6, 12, 18, 24]
    assert [found.short(value) for value in (0, 6, 24)] == ["00:00", "06:00", "24:00"]
    assert 7 not in clock("day_of_week", period=7).ticks(0, 7, 12)


@pytest.mark.parametrize("ends", [(0.0, 1.0), (-3.0, 1e6), (5.0, 5.001), (1e-9, 2e-9)])
def test_any_range_gets_a_few_marks_within_it(ends):
    ticks = clock("column").ticks(*ends, 5)
    assert 1 <= len(ticks) <= 7
    assert ends[0] - 1e-6 <= ticks[0] <= ticks[-1] <= ends[1] + 1e-6


def test_one_moment_alone_still_has_an_axis():
    low, high = clock("column").range([3.0])
    assert low < 3.0 < high


@pytest.mark.parametrize(("rough", "step"), [(0.11, 0.2), (0.2, 0.2), (23, 25), (6, 10), (0, 1), (float("nan"), 1)])
def test_steps_are_round(rough, step):
    assert nice_step(rough) == pytest.approx(step)
