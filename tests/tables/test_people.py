"""Tables as people have them: what stopped or misled an audit before, and how each is read now."""

import csv
from pathlib import Path

import numpy as np
import pytest

from auditing.lines import lines_of
from labeltide.tables.roles import Reading
from labeltide_bench.tables import read_audit_table

HERE = Path(__file__).parent / "people"


def read(name, **options):
    return read_audit_table(HERE / name, **options)


def message(table, words):
    return [sentence for sentence in table.messages if words in sentence]


def column(table, name):
    return next(each for each in table.overview if each.name == name)


def hours(table):
    """The hour of day of the first and the last step of the first person."""
    clock = table.from_steps(table.clock)
    return clock[0], clock[29]


def test_spellings_of_a_label_are_one_class_where_they_were_four():
    table = read("spellings.csv")
    assert table.class_names == ("rest", "walk")
    (sentence,) = message(table, "capitals or blanks")
    assert "Read as 'rest': ' rest', 'REST' and 'Rest ' (18 labels)" in sentence
    assert column(table, "label").role == "label"


def test_decimal_commas_are_numbers_where_the_column_was_dropped_silently():
    table = read("decimal_commas.csv")
    assert table.feature_names == ("pulse",)
    assert table.signal(0)[:2] == pytest.approx([60.0, 61.1], abs=1e-4)
    assert message(table, '"3,14" is 3.14')
    assert column(table, "pulse").why == "numbers with decimal commas"


def test_hours_with_an_offset_are_those_written_where_they_became_hours_of_utc():
    table = read("offsets.csv", clock="hour_of_day")
    assert hours(table) == pytest.approx((8.0, 17 + 2 / 3))
    assert table.times[0].as_py() == "2024-03-30 08:00:00"
    assert message(table, "+01:00 from UTC")


def test_a_time_zone_converts_hours():
    table = read("offsets.csv", clock="hour_of_day", timezone="America/New_York")
    assert hours(table) == pytest.approx((3.0, 12 + 2 / 3))
    assert message(table, "America/New_York")
    with pytest.raises(
        ValueError, match=r"timezone must be the name of a time zone, such as Europe/Berlin. Got 'Mars'"
    ):
        Reading(timezone="Mars")


def test_dates_with_the_day_first_are_read_where_they_stopped_everything():
    table = read("day_first.csv", clock="hour_of_day")
    assert table.times[0].as_py() == "2024-03-30 08:00:00"
    assert message(table, "with the day first, because of '30/03/2024 08:00'")


def test_am_and_pm_are_read_where_they_stopped_everything():
    table = read("am_pm.csv", clock="hour_of_day")
    assert hours(table) == pytest.approx((8.0, 17 + 2 / 3))
    assert message(table, "AM and PM")
    assert message(table, "with the month first")


def test_dates_that_can_be_read_in_two_ways_are_refused_with_both_readings():
    with pytest.raises(ValueError, match=r"is day 1 of a month with the day first, and month 1 with the month first"):
        read("open_dates.csv")


def test_missing_times_can_be_left_out_where_they_stopped_everything():
    with pytest.raises(ValueError, match=r"null in rows 4, 9.*\(11 in all\).*leave them out with .*--drop-bad-rows"):
        read("missing_times.csv")
    table = read("missing_times.csv", drop_bad_rows=True)
    assert message(table, "Left out: 11 rows without 'time'")
    assert table.n_rows == 60
    assert table.n_labels == 49


def test_exact_duplicates_can_be_left_out_where_they_stopped_everything():
    with pytest.raises(ValueError, match=r"repeated exactly in .*\(18 in all\).*--drop-bad-rows"):
        read("duplicates.csv")
    table = read("duplicates.csv", drop_bad_rows=True)
    assert message(table, "18 rows that repeat an earlier one exactly")
    assert table.n_labels == 60


@pytest.mark.parametrize("name", ["missing_times.csv", "duplicates.csv"])
def test_row_numbers_are_those_of_the_table_as_given(name):
    with (HERE / name).open(encoding="utf-8") as file:
        given = list(csv.DictReader(file))
    table = read(name, drop_bad_rows=True)
    lines = lines_of(table).to_pylist()
    assert len(table.ids) == len(table.times) == len(given)
    for line in lines:
        row = given[line["row"]]
        assert (row["person"], row["label"]) == (line["sequence"], line["recorded"])
        assert line["time"].startswith(row["time"])


def test_repeats_that_differ_are_never_dropped(tmp_path):
    text = (HERE / "duplicates.csv").read_text(encoding="utf-8").splitlines()
    text[2] = text[2].replace("rest", "walk")
    (tmp_path / "table.csv").write_text("\n".join(text), encoding="utf-8")
    with pytest.raises(ValueError, match=r"repeat an earlier one with other values: row 1\..*--annotator COLUMN"):
        read_audit_table(tmp_path / "table.csv", drop_bad_rows=True)


def test_a_workbook_is_read_where_it_had_to_be_saved_as_csv(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    with (HERE / "spellings.csv").open(encoding="utf-8") as file:
        for row in csv.reader(file):
            book.active.append(row)
    book.save(tmp_path / "table.xlsx")
    assert read_audit_table(tmp_path / "table.xlsx").class_names == ("rest", "walk")


def test_the_hour_that_daylight_saving_time_repeats_is_read_where_it_stopped_everything():
    with pytest.raises(ValueError, match=r"may occur once.*clocks went back.*--timezone Europe/Berlin"):
        read("daylight_saving.csv")
    table = read("daylight_saving.csv", timezone="Europe/Berlin", clock="hour_of_day")
    assert message(table, "the hour that the clock shows twice")
    assert table.gaps is None
    assert hours(table) == pytest.approx((22.0, 6 + 2 / 3))
    assert len(set(table.times.to_pylist()[:30])) == 30


def test_equal_rows_an_hour_apart_are_no_repeats_when_clocks_go_back(tmp_path):
    wall = ["01:30", "02:00", "02:30", "02:00", "02:30", "03:00"]  # by the clock of Berlin
    lines = [f"ann,2024-10-27 {time},{label},60" for time, label in zip(wall, "abbbba", strict=True)]
    lines += [f"bo,2024-10-28 0{i}:00,{'ab'[i % 2]},{i}" for i in range(8)]
    (tmp_path / "table.csv").write_text("\n".join(["person,time,label,pulse", *lines]), encoding="utf-8")
    for drop in (False, True):
        table = read_audit_table(tmp_path / "table.csv", timezone="Europe/Berlin", drop_bad_rows=drop)
        assert table.n_labels == 14


def test_every_decision_is_in_the_overview_of_columns(tmp_path):
    (tmp_path / "table.csv").write_text(
        "person,time,label,row,patient_id,pulse,notes,truth\n"
        + "\n".join(f"a,{i},{'xy'[i % 2]},{i},7,{i % 7},note {i},{'xy'[i % 2]}" for i in range(40)),
        encoding="utf-8",
    )
    table = read_audit_table(tmp_path / "table.csv", sequence="person")
    roles = {each.name: each.role for each in table.overview}
    assert list(roles) == ["person", "time", "label", "row", "patient_id", "pulse", "notes", "truth"]
    used = {name: role for name, role in roles.items() if role != "left out"}
    assert used == {"person": "sequence", "time": "time", "label": "label", "pulse": "feature"}
    assert all(each.why for each in table.overview if each.role == "left out")
    pulse = column(table, "pulse")
    assert (pulse.type, pulse.missing, pulse.levels) == ("whole number", 0, 7)


def test_single_letters_keep_their_capitals(tmp_path):
    """Codes of beats (MIT-BIH) tell A from a."""
    labels = np.tile(["A", "a", "N", "N "], 10)
    lines = [f"x,{i},{label},{i % 5}" for i, label in enumerate(labels)]
    (tmp_path / "table.csv").write_text("\n".join(["person,time,label,v", *lines]), encoding="utf-8")
    assert read_audit_table(tmp_path / "table.csv").class_names == ("A", "N", "a")


def test_thousands_and_decimals_that_look_alike_stay_text(tmp_path):
    lines = [f"x;{i};{'ab'[i % 2]};{1 + i % 5},{100 + i};{i % 3}" for i in range(40)]
    (tmp_path / "table.csv").write_text("\n".join(["person;time;label;v;w", *lines]), encoding="utf-8")
    table = read_audit_table(tmp_path / "table.csv")
    assert table.feature_names == ("w",)
    assert message(table, "It is unclear whether '1,100' in 'v' is 1.100 or 1100")
