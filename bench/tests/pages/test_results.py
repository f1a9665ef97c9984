import gzip
import json

import pytest

from labeltide_bench.pages.results import read_results


def test_unknown_keys_are_passed_over(write, record):
    (run,) = read_results(write([record()])).runs
    assert (run.dataset, run.method, run.n_classes) == ("moving", "continuous", 2)


def test_a_torn_last_line_is_skipped_and_counted(write, record):
    results = read_results(write([record()], tail=json.dumps(record(draw=1))[:200]))
    assert len(results.runs) == 1
    assert results.unreadable == 1


@pytest.mark.parametrize("line", ["[]", "null", '"text"', '{"dataset": "moving"}', "{}", "12", "\x00", "[" * 5000])
def test_a_line_that_is_no_record_is_skipped_and_counted(write, record, line):
    results = read_results(write([record()], tail=line + "\n"))
    assert (len(results.runs), results.unreadable) == (1, 1)


@pytest.mark.parametrize("value", ["Infinity", "1" + "0" * 400, "-Infinity", "NaN"])
@pytest.mark.parametrize("name", ["draw", "fleet", "seconds", "rate", "format"])
def test_a_number_that_cannot_be_stops_no_page(write, record, name, value):
    line = json.dumps({**record(draw=1), name: "HERE"}).replace('"HERE"', value)
    if name == "format" and value in ("Infinity", "1" + "0" * 400):
        with pytest.raises(ValueError, match="Update labeltide"):
            read_results(write([record()], tail=line + "\n"))
        return
    assert len(read_results(write([record()], tail=line + "\n")).runs) in (1, 2)


def test_plain_and_compressed_files_are_read_together(write, record):
    folder = write([record(draw=0)])
    with gzip.open(folder / "records-2.jsonl.gz", "wt") as file:
        file.write(json.dumps(record(draw=1)) + "\n")
    assert [run.draw for run in read_results(folder).runs] == [1, 0]


def test_a_compressed_file_that_was_cut_off_gives_what_it_holds(tmp_path, record):
    lines = "".join(json.dumps(record(draw=draw)) + "\n" for draw in range(50))
    packed = gzip.compress(lines.encode())
    (tmp_path / "records.jsonl.gz").write_bytes(packed[: len(packed) - 20])
    results = read_results(tmp_path)
    assert len(results.runs) >= 1
    assert results.unreadable >= 1


def test_a_later_line_of_the_same_run_replaces_the_earlier(write, record):
    results = read_results(write([record(error=0.1), record(error=0.2)]))
    assert results.repeated == 1
    assert [run.metrics["test_error"] for run in results.runs] == [0.2]


def test_an_empty_folder_ends_in_a_sentence(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"holds no records\.jsonl\. Point to the folder"):
        read_results(tmp_path)


def test_a_study_without_a_finished_run_ends_in_a_sentence(write):
    with pytest.raises(ValueError, match=r"no finished run yet"):
        read_results(write([]))


def test_records_of_a_newer_format_ask_for_an_update(write, record):
    with pytest.raises(ValueError, match=r"format 2, and this labeltide reads up to 1\. Update"):
        read_results(write([record(format=2)]))


def test_a_file_that_only_pretends_to_be_compressed_is_named(tmp_path):
    (tmp_path / "records.jsonl.gz").write_text("plain")
    with pytest.raises(ValueError, match="is not compressed as its name says"):
        read_results(tmp_path)


def test_the_title_comes_from_the_study_and_a_broken_study_is_no_obstacle(write, record):
    folder = write([record()])
    (folder / "study.toml").write_text('title = "Ours"\ndescription = "What"\n')
    assert read_results(folder)[1:3] == ("Ours", "What")
    (folder / "study.toml").write_text("title = ")
    assert read_results(folder).title == "Benchmark results"
