"""A messy table gets the same decisions in memory and in parts, in the same sentences."""

from datetime import UTC, timedelta

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet

import labeltide as lt
from auditing.reviewed import decide
from auditing.streaming.quick import WINDOW, stream_quickly, study
from auditing.streaming.test_run import assert_same_files
from labeltide.auditing import fitting, sampling, survey
from labeltide.auditing import reading as source
from labeltide.auditing.predict import predict_table, predict_to_file
from labeltide.tables.files import open_files
from labeltide.tables.roles import RoleColumns
from labeltide.tables.stream import RowStream
from labeltide.tables.tidy import ColumnCount

PARTS = ("The table is read in", "The rows were not ordered")  # sentences that only audits in parts say


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """No training, and small parts."""
    stream_quickly(monkeypatch)


def messy():
    """Spellings, blanks and a rare class; decimal commas; columns that say nothing; gaps; trusted labels."""
    table = study().drop_columns(["light", "true_label"])
    table = table.filter(pa.array(np.arange(len(table)) % 40 > 1))
    rows = np.arange(len(table))
    labels = np.array(table["label"].to_pylist(), dtype=object)
    trusted = np.where(rows % 50 == 7, labels, None)
    rest = np.flatnonzero(labels == "rest")
    for index, spelling in enumerate((" rest", "REST", "Rest ")):
        labels[rest[index::9]] = spelling
    labels[[5, 300, 700]] = "glitch"
    labels[[20, 21]] = "  "
    trusted[trusted == "sit"] = "Sit"
    pulse = [value and f"{value:.2f}".replace(".", ",") for value in table["heart_rate"].to_pylist()]
    columns = {
        "label": pa.array(labels.tolist()),
        "heart_rate": pa.array(pulse),
        "device": pa.array(["old" if time.hour < 10 else "new" for time in table["time"].to_pylist()]),
        "verified": pa.array(trusted.tolist(), pa.string()),
        "site": pa.array(["one"] * len(rows)),
        "note": pa.array([f"note {row % 30}" for row in rows]),
    }
    table = table.drop_columns([name for name in columns if name in table.column_names])
    return pa.table({**dict(zip(table.column_names, table.columns, strict=True)), **columns})


def write(folder, ending, table=None):
    path = folder / f"study.{ending}"
    table = messy() if table is None else table
    if ending == "csv":
        csv.write_csv(table, path)
    else:
        parquet.write_table(table, path, row_group_size=170)
    return path


def both(path, folder, monkeypatch, **more):
    """The audit in memory, and that in parts; nobody reads their pages."""
    monkeypatch.setattr("labeltide.auditing.run.write_page", lambda *_: None)
    audits = []
    for name, most in (("memory", 10**9), ("parts", 0)):
        monkeypatch.setattr(source, "MAX_ROWS", most)
        audits.append(lt.audit(path, window=WINDOW, out=folder / name, device="cpu", **more))
    return audits


def decided(audit):
    return [sentence for sentence in audit.summary["table"]["messages"] if not sentence.startswith(PARTS)]


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_decisions_in_parts_are_those_in_memory(tmp_path, monkeypatch, ending):
    memory, parts = both(write(tmp_path, ending), tmp_path, monkeypatch, trusted="verified")
    assert decided(parts) == decided(memory)
    for words in (
        "capitals or blanks",
        "decimal commas",
        "are blank",
        "Trusted: ",
        "the time between two steps is longer",
        "'glitch' had too",
    ):
        assert any(words in sentence for sentence in decided(parts)), words
    tables = [audit.summary["table"] for audit in (memory, parts)]
    for name in ("overview", "classes", "features", "labels", "rows", "sequences", "annotators", "columns"):
        assert tables[1][name] == tables[0][name], name
    assert tables[1]["classes"] == ["exercise", "rest", "sit", "walk"]
    assert_same_files(memory.folder, parts.folder)
    assert parts.summary["issues"]["by_class"] == memory.summary["issues"]["by_class"]
    assert parts.summary["issues"]["corrected"] == memory.summary["issues"]["corrected"]
    recorded = parquet.read_table(parts.folder / "labels.parquet").to_pylist()
    assert [line["probability_right"] for line in recorded if line["recorded"] == "glitch"] == [None] * 3
    assert "glitch" not in {line["suggested"] for line in recorded}


def test_texts_among_numbers_are_gaps_also_in_a_part_that_holds_many_of_them(tmp_path, monkeypatch):
    table = messy()
    steps = list(zip(table["person"].to_pylist(), table["time"].to_pylist(), strict=True))
    off = set(steps[-60:])  # of the last person, who has some 200 rows
    lux = ["off" if step in off else f"{20 + step[1].hour}.{step[1].minute}" for step in steps]
    device = table.column_names.index("device")
    path = write(tmp_path, "parquet", table.set_column(device, "device", pa.array(lux)).drop_columns(["posture"]))
    monkeypatch.setattr(survey, "CHUNK_ROWS", 200)
    memory, parts = both(path, tmp_path, monkeypatch)
    assert any("read as numbers, texts among them as gaps" in sentence for sentence in decided(memory))
    assert decided(parts) == decided(memory)
    assert_same_files(memory.folder, parts.folder)


def test_categories_are_read_as_texts_and_levels_that_no_row_has_are_no_classes(tmp_path, monkeypatch):
    table = messy()
    for name in ("label", "device", "person"):
        levels = pa.array([*table[name].unique().to_pylist(), "never"])
        indices = pa.compute.index_in(table[name], levels)
        categories = pa.DictionaryArray.from_arrays(indices.combine_chunks(), levels)
        table = table.set_column(table.column_names.index(name), name, categories)
    memory, parts = both(write(tmp_path, "parquet", table), tmp_path, monkeypatch)
    assert decided(parts) == decided(memory)
    assert parts.summary["table"]["overview"] == memory.summary["table"]["overview"]
    assert_same_files(memory.folder, parts.folder)


def with_times(table, write):
    """The table with other times: `write` is called with each."""
    times = pa.array([write(time) for time in table["time"].to_pylist()])
    return table.set_column(table.column_names.index("time"), "time", times)


@pytest.mark.parametrize(
    ("form", "ending"),
    [
        ("%d/%m/%Y %I:%M %p", "csv"),  # a text in any file
        ("%d.%m.%Y %H:%M", "parquet"),
        ("%Y-%m-%dT%H:%M+02:00", "csv"),
        ("%Y-%m-%dT%H:%M+02:00", "parquet"),
    ],
)
def test_written_dates_are_read_in_parts_as_in_memory(tmp_path, monkeypatch, form, ending):
    late = with_times(messy(), lambda time: (time + timedelta(days=20)).strftime(form))  # no day that may be a month
    memory, parts = both(write(tmp_path, ending, late), tmp_path, monkeypatch, clock="hour_of_day", time="time")
    if ending == "csv" and "+" in form:
        assert any("those of its time zone, UTC" in sentence for sentence in decided(parts))  # as pyarrow reads them
        return
    assert decided(parts) == decided(memory)
    assert_same_files(memory.folder, parts.folder)


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "Europe/Berlin"])
def test_a_time_zone_in_parts_is_that_in_memory(tmp_path, monkeypatch, zone):
    moved = with_times(messy(), lambda time: (time + timedelta(days=26, hours=10)).replace(tzinfo=UTC))
    memory, parts = both(write(tmp_path, "parquet", moved), tmp_path, monkeypatch, clock="hour_of_day", timezone=zone)
    assert decided(parts) == decided(memory)
    assert_same_files(memory.folder, parts.folder)


def test_bad_rows_are_left_out_in_parts_as_in_memory(tmp_path, monkeypatch):
    table = messy()
    order = np.sort(np.append(np.arange(len(table)), [5, 5, 300, 301]))
    again = table.take(pa.array(order))
    times = again["time"].to_pylist()
    times[40] = times[700] = None
    again = again.set_column(again.column_names.index("time"), "time", pa.array(times, table["time"].type))
    path = write(tmp_path, "parquet", again)
    memory, parts = both(path, tmp_path, monkeypatch, drop_bad_rows=True)
    assert decided(parts) == decided(memory)
    assert any("Left out: 4 rows that repeat an earlier one exactly" in sentence for sentence in decided(parts))
    assert parts.summary["table"]["rows"] == memory.summary["table"]["rows"] == len(again)
    assert_same_files(memory.folder, parts.folder)
    pulse = again["heart_rate"].to_pylist()
    pulse[6] = "99,5"
    path = write(tmp_path, "parquet", again.set_column(again.column_names.index("heart_rate"), "heart_rate", [pulse]))
    with pytest.raises(ValueError, match="with other values"):
        lt.audit(path, window=WINDOW, out=tmp_path / "no", device="cpu", drop_bad_rows=True)


def test_steps_without_a_time_column_bear_the_numbers_of_their_rows(tmp_path, monkeypatch):
    table = messy().drop_columns(["time", "annotator"])
    table = table.append_column("second", table["label"])
    path, columns = write(tmp_path, "parquet", table), {"sequence": "person", "label": ["label", "second"]}
    memory, parts = both(path, tmp_path, monkeypatch, **columns)
    lines = parquet.read_table(parts.folder / "labels.parquet")
    assert lines["time"].to_pylist() == list(map(str, lines["row"].to_pylist()))
    assert_same_files(memory.folder, parts.folder)


def test_decisions_and_a_baseline_count_in_parts_as_in_memory(tmp_path, monkeypatch):
    path = write(tmp_path, "parquet")
    memory, _ = both(path, tmp_path, monkeypatch)
    rows = memory.issues["row"].to_pylist()[:4]
    decide(memory.folder, [("Ada", row, None, None) for row in rows])
    again, parts = both(path, tmp_path / "again", monkeypatch, decisions=memory.folder, baseline=memory.folder)
    assert decided(parts) == decided(again)
    assert parts.summary["decisions"]["used"] == 4
    assert_same_files(again.folder, parts.folder, but=["compare"])
    assert parts.summary["compare"]["issues"] == again.summary["compare"]["issues"]
    trusted, both_kinds = both(path, tmp_path / "both", monkeypatch, decisions=memory.folder, trusted="verified")
    assert decided(both_kinds) == decided(trusted)
    assert_same_files(trusted.folder, both_kinds.folder)


def test_the_page_and_the_terminal_of_parts_have_the_overview_of_columns(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(source, "MAX_ROWS", 0)
    result = lt.audit(write(tmp_path, "parquet"), window=WINDOW, out=tmp_path / "out", device="cpu", verbose=True)
    told = capfd.readouterr().err
    page = result.page.read_text(encoding="utf-8")
    for words in ("heart_rate", "numbers with decimal commas", "a constant column carries no information"):
        assert words in told
        assert words in page


def test_numbers_with_decimal_commas_are_sorted_and_predicted_as_numbers(tmp_path, monkeypatch):
    pytest.importorskip("duckdb")
    table = messy()
    hours = [f"{row / 4:.2f}".replace(".", ",") for row in range(len(table))]
    table = table.set_column(table.column_names.index("time"), "time", pa.array(hours))
    order = np.random.default_rng(0).permutation(len(table))
    path = write(tmp_path, "parquet", table.take(pa.array(order)))
    memory, parts = both(path, tmp_path, monkeypatch, annotator="annotator")
    assert decided(parts) == decided(memory)
    memory_lines, lines = (
        parquet.read_table(each.folder / "labels.parquet").sort_by("row") for each in (memory, parts)
    )
    for name in ("sequence", "recorded", "suggested", "is_issue"):
        assert lines[name].to_pylist() == memory_lines[name].to_pylist(), name
    assert predict_to_file(parts.folder, path, tmp_path / "p.parquet") == len(table)
    found = parquet.read_table(tmp_path / "p.parquet").sort_by("row")
    monkeypatch.setattr(source, "MAX_ROWS", 10**9)
    expected = predict_table(parts.folder, path)
    assert found["predicted"].to_pylist() == expected.sort_by("row")["predicted"].to_pylist()


def test_a_fast_audit_in_parts_draws_as_few_windows_as_one_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(fitting, "TRAINING_STEPS", 40 * WINDOW)
    audits = both(write(tmp_path, "parquet"), tmp_path, monkeypatch, fast=True)
    assert {audit.summary["settings"]["windows learned from"] for audit in audits} == {10}


def test_a_column_that_varies_elsewhere_is_not_called_constant(tmp_path, monkeypatch):
    monkeypatch.setattr(fitting, "TRAINING_STEPS", 20 * WINDOW)
    monkeypatch.setattr(source, "MAX_ROWS", 0)
    table = messy().append_column("alarm", pa.array([row == 0 for row in range(len(messy()))]))
    captured = {}
    read_large_table = sampling.read_large_table
    monkeypatch.setattr(
        "labeltide.auditing.run.read_large_table",
        lambda *given: captured.setdefault("read", read_large_table(*given)),
    )
    lt.audit(write(tmp_path, "parquet", table), window=WINDOW, out=tmp_path / "out", device="cpu", seed=1)
    alarm = next(column for column in captured["read"][1].overview if column.name == "alarm")
    assert alarm.why == "it never changes in the windows learned from"


def test_times_that_differ_too_much_are_said_not_to_be_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(survey, "MAX_LENGTHS", 1)
    _, parts = both(write(tmp_path, "parquet"), tmp_path, monkeypatch)
    assert any("too irregular to count gaps" in sentence for sentence in decided(parts))


def test_the_usual_time_between_steps_is_the_median_of_all(tmp_path):
    spent = np.random.default_rng(0).choice([1.0, 2.0, 3.0, 10.0], 1001, p=[0.3, 0.4, 0.2, 0.1])
    times = np.append(0.0, np.cumsum(spent))
    table = pa.table({"night": np.zeros(1002, int), "time": times, "label": np.arange(1002) % 2})
    parquet.write_table(table, tmp_path / "times.parquet", row_group_size=100)
    roles = RoleColumns(["night"], "time", ["label"], None, [], None, [], True)
    found = survey.survey(RowStream(open_files(tmp_path / "times.parquet"), table.column_names, []), roles)
    usual = np.median(spent)
    assert (found.usual, found.n_gaps) == (usual, (np.rint(spent / usual) > 1).sum())


def survey_trusted(folder, labels, border):
    """The survey of a table of two annotators with these trusted labels, in row groups of so many rows."""
    rows = {"night": [1] * 6, "time": [0, 0, 1, 2, 2, 3], "who": ["p", "q", "p", "p", "q", "p"], "verified": labels}
    table = pa.table({**rows, "label": list("abcabc"), "pulse": [1.0, 1.0, 2.0, 3.0, 3.0, 4.0]})
    parquet.write_table(table, folder / "trusted.parquet", row_group_size=border)
    files = open_files(folder / "trusted.parquet")
    roles = RoleColumns(["night"], "time", ["label"], "who", [], "verified", ["pulse"], True)
    return survey.survey(RowStream(files, table.column_names, []), roles)


@pytest.mark.parametrize("border", range(1, 6))
def test_trusted_steps_are_counted_across_row_groups(tmp_path, border):
    found = survey_trusted(tmp_path, ["a", None, None, "b", "b", None], border)
    assert found.trusted == 2
    assert found.trusted_codes == (0, 1)


@pytest.mark.parametrize("border", range(1, 6))
def test_trusted_labels_of_a_step_that_differ_are_refused_across_row_groups(tmp_path, border):
    with pytest.raises(ValueError, match=r"It differs in row [34]\."):
        survey_trusted(tmp_path, ["c", None, "a", "a", "b", "a"], border)


@pytest.mark.parametrize("values", [[1.0, None, float("nan"), 2.0, 1.0], ["a", " ", None, "b", "a", ""], [True, None]])
def test_columns_counted_part_by_part_are_those_counted_at_once(values):
    array = pa.array(values, from_pandas=False)
    whole, parts = ColumnCount(array.type), ColumnCount(array.type)
    whole.add(array)
    for index in range(len(values)):
        parts.add(array.slice(index, 1))
    assert (parts.missing, parts.blank, parts.levels) == (whole.missing, whole.blank, whole.levels)
    assert sorted(map(str, parts.texts)) == sorted(map(str, whole.texts))
