"""Every run is made once and kept, whatever happens in between."""

import logging
import multiprocessing
import os
import random
import time
from pathlib import Path

import numpy as np
import pytest

from fresh_process import run_code
from labeltide.noise.simulate import make_noise
from labeltide_bench.evaluation import average_rate
from labeltide_bench.studies import run_study
from labeltide_bench.studies.lock import locked
from labeltide_bench.studies.plan import plan_fleets
from labeltide_bench.studies.records import RECORDS_FILE, append_records, read_records
from labeltide_bench.studies.workers import FleetTask, run_fleets
from studies.toys import DATASET, METHODS, NOISE, TABLE, run_toy, timeless, toy_study, write_people

# Its children are forks of a process that has loaded torch and done nothing: they start at once and die alone.
processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(["labeltide_bench.studies.run", "labeltide_bench.studies.rows"])


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The toy study, and the records of a run that nothing disturbs."""
    folder = tmp_path_factory.mktemp("undisturbed")
    study = toy_study(folder)
    start(study, folder / "out").join()
    records = timeless(folder / "out")
    assert len(records) == study.n_runs
    return study, records


def start(study, out, jobs=1) -> multiprocessing.process.BaseProcess:
    child = processes.Process(target=run_toy, args=(study, out, jobs))
    child.start()
    return child


def wait_for(condition, seconds=60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.002)


def n_lines(out: Path) -> int:
    return (out / RECORDS_FILE).read_bytes().count(b"\n") if (out / RECORDS_FILE).exists() else 0


def is_checkpointed(out: Path) -> bool:
    return any(out.glob("unfinished/*/*.safetensors"))


def test_killed_at_any_moment_it_goes_on_to_the_same_records(undisturbed, tmp_path):
    study, expected = undisturbed
    moments = random.Random(0)
    out, kills = tmp_path / "out", 0
    while True:
        child = start(study, out)
        if kills == 0:
            wait_for(lambda: is_checkpointed(out))
        elif kills == 1:
            wait_for(lambda: n_lines(out) > 0)
        else:
            child.join(moments.uniform(0.05, 0.9))
        if child.exitcode is not None or kills == 7:
            break
        child.kill()
        child.join()
        kills += 1
    child.join()
    assert child.exitcode == 0
    assert kills >= 2
    assert timeless(out) == expected
    assert sorted(path.name for path in out.iterdir()) == ["records.jsonl", "study.toml"]


def test_the_same_records_come_from_two_processes_killed_and_started_again(undisturbed, tmp_path):
    study, expected = undisturbed
    out = tmp_path / "out"
    child = start(study, out, jobs=2)
    wait_for(lambda: n_lines(out) > 0 or child.exitcode is not None)
    workers = children_of(child.pid)
    child.kill()
    child.join()
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers), 20)
    again = start(study, out, jobs=2)
    again.join()
    assert again.exitcode == 0
    assert timeless(out) == expected


def children_of(pid: int) -> list[int]:
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in path.read_text().split()] if path.exists() else []


def test_a_torn_line_is_run_again(undisturbed, tmp_path):
    study, expected = undisturbed
    out = tmp_path / "out"
    start(study, out).join()
    content = (out / RECORDS_FILE).read_bytes()
    (out / RECORDS_FILE).write_bytes(content[: content.rfind(b"\n", 0, -1) + 40])
    assert len(timeless(out)) == len(expected) - 1
    start(study, out).join()
    assert timeless(out) == expected


def test_what_is_done_is_not_run_again(undisturbed, tmp_path, monkeypatch):
    study, expected = undisturbed
    (tmp_path / "study.toml").write_text(study.text)
    append_records(tmp_path, expected.values())
    monkeypatch.setattr("labeltide_bench.studies.workers.run_fleet", lambda *job: pytest.fail("it ran"))
    run_study(study, "nowhere", tmp_path)
    assert timeless(tmp_path) == expected


def test_fleets_of_one_give_the_same_metrics(undisturbed, tmp_path):
    study, expected = undisturbed
    run_study(study, "nowhere", tmp_path, fleet_size=1, device="cpu")
    for key, record in timeless(tmp_path).items():
        assert record["fleet"] == 1
        assert record["metrics"] == pytest.approx(expected[key]["metrics"], abs=0.02)
        np.testing.assert_allclose(record["noise"], expected[key]["noise"], atol=2e-3)


def test_a_record_says_what_was_run(undisturbed):
    record = undisturbed[1]['told|toy|mixed|{"rate": 0.3}|uniform|1']
    assert record["dataset_info"]["n_train"] + record["dataset_info"]["n_test"] == 14
    assert record["settings"] == {"epochs": 8, "batch_size": 6, "hidden_size": 4, "noise": "static"}
    assert (record["method"], record["estimator"], record["draw"], record["fleet"]) == ("told", "known", 1, 2)
    assert set(record["metrics"]) == {
        "test_error",
        "train_error",
        "balanced_test_error",
        "frobenius",
        "absolute",
        "wrong_labels",
        "test_error_rounded",
    }
    assert set(record["over_time"]) == {"test_error", "frobenius", "absolute"}
    assert np.shape(record["noise"]) == np.shape(record["true_noise"]) == (6, 2, 2)
    assert record["rate"] == pytest.approx(average_rate(make_noise("mixed", 2, 6, 0.3)), abs=1e-4)
    assert set(record["versions"]) == {"labeltide", "python", "torch", "numpy"}
    np.testing.assert_allclose(record["noise"][0], np.mean(record["true_noise"], 0), atol=1e-3)


def test_every_method_of_a_draw_had_the_same_wrong_labels(undisturbed):
    wrong: dict[tuple, set] = {}
    for record in undisturbed[1].values():
        wrong.setdefault((str(record["level"]), record["draw"]), set()).add(record["metrics"]["wrong_labels"])
    assert all(len(found) == 1 for found in wrong.values())


def test_a_second_bench_on_the_same_folder_is_refused(tmp_path):
    study = toy_study(tmp_path)
    with locked(tmp_path / "out"), pytest.raises(BlockingIOError, match="Another process is running a study"):
        run_study(study, "nowhere", tmp_path / "out")
    with locked(tmp_path / "out"):
        pass
    assert not list((tmp_path / "out").iterdir()), "and nothing is left behind"


def test_a_file_in_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "out").write_text("mine")
    with pytest.raises(NotADirectoryError, match=r"out is a file\. Name a folder"):
        run_study(toy_study(tmp_path), "nowhere", tmp_path / "out")


def test_the_folder_of_another_study_is_refused(tmp_path):
    (tmp_path / "study.toml").write_text("title = 'another'")
    with pytest.raises(ValueError, match="holds the results of another study"):
        run_study(toy_study(tmp_path), "nowhere", tmp_path)


def test_records_of_an_unknown_study_are_refused(tmp_path):
    append_records(tmp_path / "out", [{"key": "a"}])
    with pytest.raises(ValueError, match=r"holds records but no study\.toml"):
        run_study(toy_study(tmp_path), "nowhere", tmp_path / "out")


@pytest.mark.parametrize(("name", "value"), [("jobs", 0), ("fleet_size", 0), ("jobs", "2")])
def test_wrong_numbers_are_named(tmp_path, name, value):
    with pytest.raises(ValueError, match=rf"{name} must be a whole number at least 1"):
        run_study(toy_study(tmp_path), "nowhere", tmp_path / "out", **{name: value})


def test_missing_files_are_named_before_anything_runs(tmp_path):
    study = toy_study(tmp_path, DATASET + TABLE + NOISE + METHODS)
    with pytest.raises(FileNotFoundError, match=r"1 file of the study cannot be found .*: people\.parquet\."):
        run_study(study, tmp_path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_data_that_do_not_fit_are_named_before_anything_runs(tmp_path):
    study = toy_study(tmp_path, DATASET + TABLE.replace('"y"', '"z"') + NOISE + METHODS)
    write_people(tmp_path)
    with pytest.raises(ValueError, match=r"\[datasets.'people'\]: .* has no column 'z'"):
        run_study(study, tmp_path, tmp_path / "out")
    assert not list(read_records(tmp_path / "out"))


def test_an_optional_data_set_without_files_is_left_out_with_a_sentence(tmp_path, caplog):
    few = "draws = 1\n" + DATASET + TABLE + "optional = true\n" + NOISE + "[methods.ignore]\n"
    study = toy_study(tmp_path, few)
    with caplog.at_level(logging.WARNING):
        run_study(study, tmp_path, tmp_path / "out", device="cpu")
    assert f"Left out, because their files are not below {tmp_path}: people." in caplog.messages
    assert {record["dataset"] for record in read_records(tmp_path / "out")} == {"toy"}
    write_people(tmp_path)
    run_study(study, tmp_path, tmp_path / "out", device="cpu")
    assert {record["dataset"] for record in read_records(tmp_path / "out")} == {"toy", "people"}


def test_a_study_of_which_nothing_is_there_is_refused(tmp_path):
    study = toy_study(tmp_path, TABLE + "optional = true\n" + NOISE + METHODS)
    with pytest.raises(FileNotFoundError, match="None of the study's data sets is below"):
        run_study(study, tmp_path, tmp_path / "out")


class Deadly:
    """What ends the process that unpacks it, in place of a path."""

    def __reduce__(self):
        return os._exit, (1,)


def test_a_worker_that_dies_is_named_and_what_is_finished_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr("labeltide._workers.TRIES", 1)
    study = toy_study(tmp_path)
    jobs = [FleetTask(plan, tmp_path, tmp_path / plan.digest, "cpu") for plan in plan_fleets(study, 2)]
    before = set(multiprocessing.active_children())  # joblib keeps those of other tests
    running = run_fleets([*jobs[:2], jobs[2]._replace(data=Deadly())], 2, lambda title, runs: print)
    plan, records = next(running)
    assert [record["key"] for record in records] == [run.key for run in plan.runs]
    with pytest.raises(ChildProcessError, match=r"A worker process died; .* Finished runs are kept"):
        list(running)
    assert set(multiprocessing.active_children()) <= before


def test_the_benchmark_starts_without_what_only_pages_and_commands_need():
    code = (
        "import sys\n"
        "from labeltide_bench.studies import read_study, run_study\n"
        "print({'cyclopts', 'matplotlib', 'jinja2', 'pooch'} & set(sys.modules))"
    )
    answer = run_code(code)
    assert answer.stdout.strip() == "set()"
