"""Faults of the machine: every one ends with a sentence, nothing is left half written, and nothing kept is lost."""

import errno
import io
import os
import resource
import signal
import sys
import threading
import time

import numpy as np
import pyarrow as pa
import pytest
import torch
from pyarrow import parquet

import labeltide as lt
from auditing.conftest import quick_fit as quick_fit
from auditing.stub import StubTide
from auditing.tables import make_table
from labeltide import cli
from labeltide.auditing import decisions as store
from labeltide.auditing import results as results_folder
from labeltide.auditing import run as audit_run
from labeltide.auditing.decisions import Decision, DecisionStore
from labeltide.training import loop

ROLES = ("--sequence", "person", "--time", "minute", "--label", "label", "--features", "signal")


@pytest.fixture
def run(monkeypatch):
    """Give it the words of a command; it gives back the exit code and what was said on standard error."""

    def command(*words: object) -> tuple[int, str]:
        message = io.StringIO()
        monkeypatch.setattr(sys, "argv", ["labeltide", *map(str, words)])
        monkeypatch.setattr(sys, "stderr", message)
        try:
            cli.main()
        except SystemExit as end:
            return int(end.code or 0), message.getvalue()
        return 0, message.getvalue()

    return command


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "study.parquet"
    parquet.write_table(make_table(), path)
    return path


def in_child(function) -> tuple[int, str]:
    """Run a function in a fork, of which limits do not touch this process: exit code, and what it wrote to fd 2."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        os.dup2(writer, 2)
        sys.stderr = io.TextIOWrapper(os.fdopen(2, "wb", 0), write_through=True)
        code = 99
        try:
            function()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader) as message:
        text = message.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), text


def left_in(folder) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def main(*words: object) -> None:
    sys.argv = ["labeltide", *map(str, words)]
    cli.main()


@pytest.mark.usefixtures("quick_fit")
def test_a_full_disk_ends_with_a_sentence_and_leaves_the_earlier_results(run, table, tmp_path):
    out = tmp_path / "out"
    words = ("audit", table, *ROLES, "--out", out, "--quiet")
    assert run(*words)[0] == 0
    before = {path.name: path.read_bytes() for path in out.rglob("*") if path.is_file()}

    def with_little_disk():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))  # files end there, as on a full disk
        main(*words)

    code, message = in_child(with_little_disk)
    assert code == 2
    assert "labeltide: " in message
    assert "Traceback" not in message
    assert {path.name: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
    assert [name for name in left_in(tmp_path) if "unfinished" not in name] == ["out", "study.parquet"]
    assert run(*words)[0] == 0


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES])
@pytest.mark.usefixtures("quick_fit")
def test_the_sentence_says_the_way_out_where_the_system_refuses(number, run, table, tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(results_folder, "write_json", refuse)
    code, message = run("audit", table, *ROLES, "--out", tmp_path / "out", "--quiet")
    assert code == 2
    assert os.strerror(number) in message
    assert "folder" in " ".join(message.split())
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("folder", ["/proc/labeltide/out", "/dev/null/out"])
@pytest.mark.usefixtures("quick_fit")
def test_a_place_where_nobody_may_write_is_a_sentence(folder, run, table):
    code, message = run("audit", table, *ROLES, "--out", folder, "--quiet")
    assert code == 2
    assert message.startswith("labeltide: ")
    assert "Traceback" not in message


@pytest.mark.usefixtures("quick_fit")
def test_an_audit_needs_no_standard_output(run, table, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)  # as Python has it after >&-
    code, message = run("audit", table, *ROLES, "--out", tmp_path / "out", "--quiet")
    assert (code, message) == (0, "")
    assert (tmp_path / "out" / "report.html").exists()


def test_an_audit_that_is_stopped_before_it_keeps_work_promises_none(run, table, tmp_path, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(audit_run, "choose_source", stop)
    code, message = run("audit", table, *ROLES, "--out", tmp_path / "out", "--quiet")
    assert (code, message) == (130, "labeltide: stopped.\n")
    assert [path.name for path in tmp_path.iterdir()] == ["study.parquet"]


@pytest.mark.usefixtures("quick_fit")
def test_sigterm_stops_as_ctrl_c_does(run, table, tmp_path, monkeypatch):
    monkeypatch.setattr(StubTide, "fit", lambda *_, **__: os.kill(os.getpid(), signal.SIGTERM))
    earlier = signal.getsignal(signal.SIGTERM)
    code, message = run("audit", table, *ROLES, "--out", tmp_path / "out", "--quiet")
    assert code == 143
    assert message == "labeltide: stopped. The same command with --resume goes on from here.\n"
    assert signal.getsignal(signal.SIGTERM) is earlier
    assert not (tmp_path / "out").exists()


def test_a_closed_standard_output_is_no_error(tmp_path):
    def with_closed_output():
        reader, writer = os.pipe()
        os.close(reader)
        os.dup2(writer, 1)
        sys.stdout = io.TextIOWrapper(os.fdopen(1, "wb"), write_through=True)
        main("simulate", tmp_path / "study.csv", "--people", 2, "--days", 1)

    assert in_child(with_closed_output) == (0, "")
    assert (tmp_path / "study.csv").stat().st_size > 1000


@pytest.mark.usefixtures("quick_fit")
def test_a_terminal_that_cannot_show_a_name_still_gets_the_result(run, tmp_path, monkeypatch):
    path = tmp_path / "größe 日本.parquet"
    parquet.write_table(make_table(), path)
    shown = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    monkeypatch.setattr(sys, "stdout", shown)
    assert run("audit", path, *ROLES, "--out", tmp_path / "結果")[0] == 0
    assert rb"gr\xf6\xdfe \u65e5\u672c.parquet".replace(rb"\xf6\xdf", "öß".encode("latin-1")) in shown.buffer.getvalue()


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory"), pa.ArrowMemoryError("x")]
)
@pytest.mark.usefixtures("quick_fit")
def test_too_little_memory_is_a_sentence(error, run, table, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(StubTide, "fit", fail)
    code, message = run("audit", table, *ROLES, "--out", tmp_path / "out", "--quiet")
    assert (code, message[:44]) == (2, "labeltide: There is not enough memory. Free ")


def test_without_home_and_user_commands_run(tmp_path):
    def without():
        for name in ("HOME", "USER", "LOGNAME", "XDG_CACHE_HOME"):
            os.environ.pop(name, None)
        os.environ["HOME"] = "/nowhere"
        main("simulate", tmp_path / "study.csv", "--people", 2, "--days", 1)

    assert in_child(without)[0] == 0


def fit_small(seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(12, 6, 2)), rng.integers(0, 2, (12, 6))
    estimator = lt.METHODS["ignore"](epochs=3, hidden_size=4, random_state=seed, device="cpu").fit(X, y)
    return estimator.predict_proba(X)


def test_fits_in_several_threads_give_the_numbers_of_fits_one_by_one():
    found: dict[int, np.ndarray] = {}
    threads = [threading.Thread(target=lambda seed=seed: found.update({seed: fit_small(seed)})) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed in range(3):
        assert np.array_equal(found[seed], fit_small(seed))


def test_an_interrupted_fit_leaves_a_session_that_goes_on(monkeypatch):
    expected, n_threads, draw = fit_small(0), torch.get_num_threads(), torch.get_rng_state()
    run_epoch, calls = loop._run_epoch, []

    def interrupted(*step):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return run_epoch(*step)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "_run_epoch", interrupted)
        with pytest.raises(KeyboardInterrupt):
            fit_small(0)
    assert torch.get_num_threads() == n_threads
    assert torch.equal(torch.get_rng_state(), draw)
    assert np.array_equal(fit_small(0), expected)


@pytest.mark.usefixtures("quick_fit")
def test_a_clock_that_jumps_changes_no_result(table, tmp_path, monkeypatch):
    lt.audit(table, out=tmp_path / "one")
    jumps = iter(range(10**9, 0, -1000))
    monkeypatch.setattr(time, "time", lambda: float(next(jumps)))
    lt.audit(table, out=tmp_path / "two")
    for name in ("labels.parquet", "noise.csv", "issues.csv"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_the_last_decision_stands_also_where_the_clock_went_back(tmp_path, monkeypatch):
    years = iter(range(2030, 2000, -1))
    monkeypatch.setattr(store, "_now", lambda: f"{next(years)}-01-01T00:00:00+00:00")
    with DecisionStore.open(tmp_path, create=True) as decisions:
        for label in ("walk", "rest"):
            decisions.add(Decision("item", "audit", "Ada", "label", label, 3, 3))
        assert [decision.label for decision in decisions.standing()] == ["rest"]
