"""A table that is read in parts gives the results of one in memory, in any order of files, stopped or not."""

import json
from datetime import datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet

import labeltide as lt
from auditing.streaming.quick import WINDOW, QuickTide, stream_quickly, study
from labeltide.auditing import fitting, judging, reading, resume, survey, writing
from labeltide.auditing import judging as flags
from labeltide.auditing import survey as chunks
from labeltide.auditing import survey as sorting
from labeltide.auditing.page import write_page
from labeltide.auditing.predict import predict_table, predict_to_file
from labeltide.auditing.results import LABEL_COLUMNS, OURS
from labeltide.inference.conclusion import NO_OTHER_LIKELIER
from oracles import choose_issues


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    """No training, small parts, and every file read in parts."""
    stream_quickly(monkeypatch)


def write(path, table=None, rows=170):
    parquet.write_table(study() if table is None else table, path, row_group_size=rows)
    return path


def run(table, out, **more):
    return lt.audit(table, window=WINDOW, out=out, device="cpu", **more)


def in_memory(table, out, **more):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "MAX_ROWS", 10**9)
        return run(table, out, **more)


def assert_same_files(one, other, but=()):
    """Labels, issues, Q and the model are the same bytes; numbers are the same but for what is said of parts."""
    for name in ("labels.parquet", "issues.parquet", "issues.csv", "noise.csv", "model/model.safetensors"):
        assert (one / name).read_bytes() == (other / name).read_bytes(), name
    audits = [json.loads((folder / "audit.json").read_text()) for folder in (one, other)]
    for audit in audits:
        for name in ("created", "seconds", *but):
            del audit[name]
        del audit["table"]["messages"]
    assert audits[0] == audits[1]


def test_parts_give_the_bytes_of_a_table_in_memory(tmp_path):
    path = write(tmp_path / "study.parquet")
    whole, parts = (f(path, tmp_path / f.__name__) for f in (in_memory, run))
    assert_same_files(whole.folder, parts.folder)
    assert {file.name for file in parts.folder.iterdir()} == OURS
    assert whole.labels.column_names == list(LABEL_COLUMNS)
    assert whole.issues.num_rows == parts.issues.count_rows() > 0
    assert whole.labels.equals(parts.labels.to_table().cast(whole.labels.schema))


def test_the_page_of_parts_is_the_page_from_the_folder(tmp_path):
    result = run(write(tmp_path / "study.parquet"), tmp_path / "out")
    page = result.page.read_text(encoding="utf-8")
    assert write_page(result.folder).read_text(encoding="utf-8") == page


@pytest.mark.parametrize("clock", ["hour_of_day", "days", "day_of_week"])
def test_every_clock_is_that_of_the_whole_table(tmp_path, clock):
    path = write(tmp_path / "study.parquet")
    whole, parts = (f(path, tmp_path / f.__name__, clock=clock) for f in (in_memory, run))
    clocks = [parquet.read_table(each.folder / "labels.parquet")["clock"].to_numpy() for each in (whole, parts)]
    np.testing.assert_allclose(*clocks)


def test_a_long_sequence_is_judged_in_parts_like_a_whole_one(tmp_path, monkeypatch):
    monkeypatch.setattr(survey, "ANCHOR", 32)
    monkeypatch.setattr(chunks, "ANCHOR", 32)
    table = study().filter(pa.compute.equal(study()["person"], "p1"))
    path = write(tmp_path / "one.parquet", table, rows=50)
    monkeypatch.setattr(chunks, "CHUNK_ROWS", 70)
    whole, parts = (f(path, tmp_path / f.__name__) for f in (in_memory, run))
    assert_same_files(whole.folder, parts.folder, but=["timelines"])  # the first part of a long sequence is drawn
    assert any("planned" in timeline for timeline in parts.summary["timelines"])


def test_the_order_and_number_of_files_do_not_matter(tmp_path, monkeypatch):
    monkeypatch.setattr(fitting, "TRAINING_STEPS", 20 * WINDOW)
    (tmp_path / "three").mkdir()
    one = run(write(tmp_path / "study.parquet"), tmp_path / "one")
    people = sorted(set(study()["person"].to_pylist()))
    for index, names in enumerate((people[3:], people[1:3], people[:1])):
        kept = pa.compute.is_in(study()["person"], pa.array(names))
        write(tmp_path / "three" / f"{index}.parquet", study().filter(kept), rows=90)
    three = run(tmp_path / "three", tmp_path / "out")
    assert one.summary["settings"]["windows learned from"] == three.summary["settings"]["windows learned from"] < 40
    tables = [parquet.read_table(each.folder / "labels.parquet") for each in (one, three)]
    keys = [(name, "ascending") for name in ("sequence", "time", "annotator")]
    ordered = [table.drop_columns(["row"]).sort_by(keys) for table in tables]
    assert ordered[0].equals(ordered[1])


def test_workers_judge_with_the_same_bytes(tmp_path):
    path = write(tmp_path / "study.parquet")
    alone = run(path, tmp_path / "alone")
    with lt.workers(2):
        shared = run(path, tmp_path / "shared")
    for name in ("labels.parquet", "issues.parquet"):
        assert (alone.folder / name).read_bytes() == (shared.folder / name).read_bytes()


def test_a_killed_audit_goes_on_with_the_same_bytes(tmp_path, monkeypatch):
    stream_quickly(monkeypatch, keep=True)
    path = write(tmp_path / "study.parquet")
    whole = run(path, tmp_path / "whole")
    judge, calls = judging.judge_lines, []

    def stop(*arguments):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return judge(*arguments)

    monkeypatch.setattr(judging, "judge_lines", stop)
    with pytest.raises(KeyboardInterrupt):
        run(path, tmp_path / "resumed")
    monkeypatch.setattr(judging, "judge_lines", judge)
    monkeypatch.setattr(QuickTide, "fit", None)  # it is not fitted again
    resumed = run(path, tmp_path / "resumed", resume=True)
    for name in ("labels.parquet", "issues.parquet", "issues.csv", "noise.csv", "model/model.safetensors"):
        assert (whole.folder / name).read_bytes() == (resumed.folder / name).read_bytes(), name
    assert not list(tmp_path.glob(".*-unfinished"))


def test_an_audit_of_another_table_does_not_go_on(tmp_path, monkeypatch):
    stream_quickly(monkeypatch, keep=True)
    path = write(tmp_path / "study.parquet")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(judging, "judge_lines", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run(path, tmp_path / "out")
    with pytest.raises(ValueError, match="seed was"):
        run(path, tmp_path / "out", resume=True, seed=5)


def test_unsorted_csv_files_are_sorted_on_disk(tmp_path):
    pytest.importorskip("duckdb")
    folder = tmp_path / "files"
    folder.mkdir()
    order = np.random.default_rng(0).permutation(len(study()))
    shuffled = study().take(pa.array(order))
    for number in range(3):
        csv.write_csv(shuffled.slice(number * 400, 400 if number < 2 else None), folder / f"{number}.csv")
    (folder / "empty.csv").write_bytes(b"")
    parts = run(str(folder / "*.csv"), tmp_path / "parts")
    whole = in_memory(study(), tmp_path / "whole")
    found, known = (parquet.read_table(each.folder / "labels.parquet") for each in (parts, whole))
    assert sorted(found["row"].to_pylist()) == list(range(len(found)))
    by_row = found.take(pa.compute.sort_indices(found["row"]))
    expected = known.take(pa.array(order))
    for name in ("sequence", "annotator", "recorded"):
        assert by_row[name].to_pylist() == expected[name].to_pylist()
    assert "sorted on disk" in " ".join(parts.summary["table"]["messages"])


def test_unsorted_rows_without_duckdb_are_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "duckdb", None)
    path = write(tmp_path / "study.parquet", study().take(pa.array(np.arange(len(study()))[::-1])))
    with pytest.raises(ValueError, match=r"labeltide\[sort\]"):
        run(path, tmp_path / "out")


def test_too_little_disk_is_said_before_anything_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(resume, "PART_BYTES", 10**15)
    with pytest.raises(ValueError, match="GB of disk"):
        run(write(tmp_path / "study.parquet"), tmp_path / "out")


def test_a_large_table_needs_a_folder(tmp_path):
    with pytest.raises(ValueError, match="Name one with out"):
        lt.audit(write(tmp_path / "study.parquet"))


def test_repeated_rows_are_refused_across_row_groups(tmp_path):
    table = study().take(pa.array(np.repeat(np.arange(len(study())), 1 + (np.arange(len(study())) == 169))))
    with pytest.raises(ValueError, match="repeated in row 170"):
        run(write(tmp_path / "study.parquet", table), tmp_path / "out")


def test_predictions_in_parts_are_those_in_memory(tmp_path, monkeypatch):
    path = write(tmp_path / "study.parquet")
    folder = run(path, tmp_path / "out").folder
    assert predict_to_file(folder, path, tmp_path / "p.parquet") == len(study())
    monkeypatch.setattr(reading, "MAX_ROWS", 10**9)
    expected, found = predict_table(folder, path), parquet.read_table(tmp_path / "p.parquet")
    assert found.equals(expected)


def test_predictions_take_a_time_zone_where_clocks_go_back(tmp_path, monkeypatch):
    folder = run(write(tmp_path / "study.parquet"), tmp_path / "out").folder
    start = datetime(2026, 10, 25, 0, 15)
    moments = [start + timedelta(minutes=15 * (step - 4 * (step > 10))) for step in range(40)]
    table = study().filter(pa.compute.equal(study()["person"], "p1"))
    table = table.filter(pa.compute.equal(table["annotator"], table["annotator"][0])).slice(0, 40)
    path = write(tmp_path / "autumn.parquet", table.set_column(table.column_names.index("time"), "time", [moments]))
    options = {"sequence": "person", "time": "time"}
    with pytest.raises(ValueError, match="--timezone"):
        predict_table(folder, path, **options)
    monkeypatch.setattr(reading, "MAX_ROWS", 10)
    predict_to_file(folder, path, tmp_path / "p.parquet", **options, timezone="Europe/Berlin")
    expected = predict_table(folder, path, **options, timezone="Europe/Berlin")
    assert parquet.read_table(tmp_path / "p.parquet").equals(expected)
    assert expected["time"][0].as_py() == "2026-10-25 00:15:00+02:00"


def test_the_threshold_of_a_histogram_is_that_of_sorted_qualities():
    generator = np.random.default_rng(0)
    quality, differs = generator.beta(0.5, 2, 20_000).astype(np.float32), generator.random(20_000) < 0.4
    part = pa.table({"probability_right": quality, "support": differs.astype(np.uint64)})
    found = flags.find_flags([part.slice(0, 7000), part.slice(7000)], 0.1)
    exact = choose_issues(quality, differs, 0.1)
    assert not (found.of(part) & ~exact).any()
    assert (exact & ~found.of(part)).sum() <= 3
    assert found.n_issues == found.of(part).sum()


def test_a_histogram_spends_the_allowance_as_sorted_qualities_do():
    quality = np.random.default_rng(0).beta(0.5, 2, 20_000).astype(np.float32)
    quality[::7] = np.nan
    part = pa.table({"probability_right": pa.array(quality, from_pandas=True), "support": np.zeros(20_000, np.uint64)})
    found = flags.find_flags([part], 0.1, spend_fdr=True)
    exact = choose_issues(quality, np.isfinite(quality), 0.1)
    assert not (found.of(part) & ~exact).any()
    assert (exact & ~found.of(part)).sum() <= 3
    assert flags.find_flags([part], 1.0, spend_fdr=True).of(part).sum() == np.isfinite(quality).sum()


def test_spending_the_allowance_gives_the_same_flags_in_parts_and_in_memory(tmp_path, monkeypatch):
    path = write(tmp_path / "study.parquet")
    streamed = run(path, tmp_path / "out", spend_fdr=True, fdr=0.4)
    usual = run(path, tmp_path / "usual", fdr=0.4)
    monkeypatch.setattr(reading, "MAX_ROWS", 10**9)
    whole = run(path, tmp_path / "whole", spend_fdr=True, fdr=0.4)
    found, expected, before = (
        each.labels.to_table() if each is not whole else each.labels for each in (streamed, whole, usual)
    )
    flagged = found["is_issue"].to_numpy()
    assert (flagged == expected["is_issue"].to_numpy()).all()
    assert flagged.sum() > before["is_issue"].to_numpy().sum()
    assert found["corrected"].to_pylist() == before["corrected"].to_pylist()
    same = flagged & (np.array(found["recorded"].to_pylist()) == np.array(found["suggested"].to_pylist()))
    assert same.any()
    assert set(np.array(found["reason"].to_pylist(), dtype=object)[same]) == {NO_OTHER_LIKELIER}
    assert streamed.summary["noise"]["rate"] == pytest.approx(
        1 - np.mean(found["probability_right"].to_numpy()), abs=1e-5
    )
    assert streamed.summary["issues"]["spend_fdr"]
    assert not usual.summary["issues"]["spend_fdr"]
    assert "worth a look" in streamed.page.read_text()
    assert "only where another label is more likely" in usual.page.read_text()


def test_issues_of_many_ranges_are_the_flagged_labels_in_the_order_of_their_quality(tmp_path, monkeypatch):
    monkeypatch.setattr(writing, "BUCKET", 20)
    result = run(write(tmp_path / "study.parquet"), tmp_path / "out")
    labels, issues = (parquet.read_table(result.folder / f"{name}.parquet") for name in ("labels", "issues"))
    flagged = labels.filter(labels["is_issue"])
    assert len(flagged) > 60
    assert issues["rank"].to_pylist() == list(range(1, len(issues) + 1))
    order = np.argsort(flagged["probability_right"].to_numpy(), kind="stable")
    assert issues.drop_columns(["rank"]).equals(flagged.take(pa.array(order)))


def test_rows_keep_their_numbers_when_they_are_copied(tmp_path):
    path = tmp_path / "study.csv"
    csv.write_csv(study(), path)
    result = run(path, tmp_path / "out")
    assert parquet.read_table(result.folder / "labels.parquet")["row"].to_pylist() == list(range(len(study())))
    assert sorting.ROW not in result.summary["table"]["features"]
