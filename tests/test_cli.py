"""The command line: does what it is asked and exits with 0, or says why not and exits with 2."""

import inspect
import os
import signal
import subprocess
import sys
import time

import pytest
from pyarrow import csv

import labeltide as lt
from auditing.nights import write_night
from auditing.tables import make_table
from datasets import archives
from datasets.conftest import small as small
from labeltide import __version__, cli
from labeltide.auditing import fitting
from labeltide.cli.commands import AuditCommandOptions
from labeltide.inference.audit import FDR
from labeltide_bench.studies import read_records
from studies.toys import STUDY, write_study


@pytest.fixture
def run(monkeypatch, capsys):
    """Give it the words of a command; it gives back exit code, output and complaints, each on one line."""

    def command(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["labeltide", *map(str, words)])
        code = 0
        try:
            cli.main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        message = capsys.readouterr()
        return code, " ".join(message.out.split()), " ".join(message.err.split())

    return command


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("audit",),
        ("predict",),
        ("demo",),
        ("simulate",),
        ("export",),
        ("bench",),
        ("report",),
        ("datasets",),
        ("datasets", "list"),
        ("datasets", "fetch"),
    ],
)
def test_every_command_has_help(run, words):
    code, out, _ = run(*words, "--help")
    assert code == 0
    assert out.startswith(f"Usage: {' '.join(['labeltide', *words])}")


def test_the_version_is_said(run):
    assert run("--version")[:2] == (0, __version__)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("dance",), 'Unknown command "dance"'),
        (("bench",), "requires an argument"),
        (("bench", "a.toml", "--job", "2"), "Unknown option"),
        (("bench", "a.toml", "--jobs", "two"), "two"),
        (("bench", "nowhere/a.toml"), "labeltide: There is no study file nowhere/a.toml."),
        (("datasets", "fetch", "everything"), "labeltide: Unknown data set 'everything'. Choose one of: uci_har,"),
        (("datasets", "fetch", "uci_har", "--archives", "no.zip"), "labeltide: archives must be paths of files"),
        (("report", "nowhere"), "labeltide: "),
        (("audit", "nowhere.csv"), "labeltide: "),
        (("audit", "nowhere.csv", "--model", "forest"), "labeltide: "),
        (
            ("audit", "nowhere.csv", "--seed", "-1"),
            "labeltide: seed must be a whole number at least 0 and at most 4294967295. Got -1.",
        ),
        (
            ("predict", "nowhere", "study.csv", "--out", "new.csv"),
            "labeltide: The model must be the folder of an audit",
        ),
        (("predict", "nowhere", "study.csv", "--out", "new.txt"), "labeltide: The file must end in .parquet or .csv."),
        (("export", "nowhere"), "labeltide: Say what to write: either --onnx, or --to"),
        (("export", "nowhere", "--to", "docx"), "labeltide: Unknown to 'docx'. Choose one of: csv, labelstudio,"),
        (("export", "nowhere", "--to", "csv"), "labeltide: nowhere holds no audit.json."),
        (("audit", "nowhere.edf", "--epoch", "0"), "labeltide: epoch must be a number at least 0.001"),
        (("audit", "nowhere.edf", "--labels", "a.edf"), "labeltide: There is no file 'a.edf'."),
        (("simulate", "study.xlsx"), "labeltide: The file must end in .parquet, .csv or .csv.gz. Got 'study.xlsx'."),
        (("simulate", "study.csv", "--rate", "2"), "labeltide: rate must be a number at least 0 and at most 0.5."),
    ],
)
def test_wrong_use_ends_with_a_sentence_and_code_2(run, words, message):
    code, out, err = run(*words)
    assert code == 2
    assert message in out + err
    assert "Traceback" not in out + err


def test_the_demo_compares_with_the_truth_and_says_where_the_page_is(run, tmp_path, monkeypatch):
    monkeypatch.setattr(fitting, "EPOCHS", 3)
    monkeypatch.setattr(fitting, "HIDDEN_SIZE", 8)
    code, out, _ = run("demo", tmp_path / "demo", "--people", 4, "--days", 1)
    assert code == 0
    assert "Against the known truth" in out
    assert out.endswith("demo/report.html")
    assert (tmp_path / "demo" / "report.html").stat().st_size > 10_000


def test_a_recording_is_audited_and_exported(run, tmp_path, monkeypatch):
    monkeypatch.setattr(fitting, "EPOCHS", 3)
    monkeypatch.setattr(fitting, "HIDDEN_SIZE", 8)
    monkeypatch.setattr(fitting, "plant", lambda *_: ())
    monkeypatch.chdir(tmp_path)
    write_night(tmp_path, "n01", epochs=120, length=10)
    code, out, err = run("audit", "n01-PSG.edf", "--labels", "n01-Hypnogram.edf", "--epoch", 10, "--field", "sleep")
    assert code == 0
    assert err.startswith("Read n01-PSG.edf: 120 rows, 120 labels, 1 sequence")
    assert out.startswith("n01-PSG.edf: 120 labels in 1 sequence")
    write_night(tmp_path, "n02", seed=2, epochs=50, length=10, labels=False)
    assert run("predict", "n01-PSG-audit", "n02-PSG.edf", "--out", "new.csv")[:2] == (0, "50 rows: new.csv")
    code, out, _ = run("export", "n01-PSG-audit", "--to", "edf", "--what", "corrected")
    assert (code, out) == (0, "1 file: n01-PSG-audit-edf")
    assert (tmp_path / "n01-PSG-audit-edf" / "n01-PSG-corrected.edf").is_file()


def test_audit_and_predict_go_from_table_to_folder_to_table(run, tmp_path, monkeypatch):
    monkeypatch.setattr(fitting, "EPOCHS", 3)
    monkeypatch.setattr(fitting, "HIDDEN_SIZE", 8)
    monkeypatch.setattr(fitting, "plant", lambda *_: ())
    monkeypatch.chdir(tmp_path)
    csv.write_csv(make_table(people=6), "study.csv")
    code, out, err = run("audit", "study.csv", "--sequence", "person", "--time", "minute")
    assert code == 0
    assert err.startswith("Read study.csv: 120 rows, 120 labels, 6 sequences, 5 columns.")  # before the fit, also piped
    assert "truth text 0 2 left out a column of labels or true labels would give the answer away" in err
    assert "Decided - The label is read from 'label'." in err
    assert out.startswith("study.csv: 120 labels in 6 sequences")
    assert out.endswith("Page study-audit/report.html")
    assert (
        '"command": "labeltide audit study.csv --sequence person' in (tmp_path / "study-audit/audit.json").read_text()
    )
    code, out, _ = run("predict", "study-audit", "study.csv", "--out", "new.parquet")
    assert (code, out) == (0, "120 rows: new.parquet")
    assert run("predict", "study-audit", "study.csv", "--out", "new.parquet")[0] == 2


def test_a_table_that_cannot_answer_ends_with_a_sentence_and_code_3(run, tmp_path):
    csv.write_csv(make_table(people=1, steps=5), tmp_path / "study.csv")
    code, _, err = run("audit", tmp_path / "study.csv", "--out", tmp_path / "out")
    assert code == 3
    assert "labeltide: An audit judges each stretch of labels by the others" in err
    assert not (tmp_path / "out").exists()


def test_simulate_writes_a_table_that_is_never_written_over(run, tmp_path):
    path = tmp_path / "study.csv"
    code, out, _ = run("simulate", path, "--people", 2, "--days", 1, "--seed", 3)
    assert code == 0
    assert f"rows with the columns label and true_label: {path}" in out
    before = path.read_bytes()
    code, _, err = run("simulate", path, "--people", 2, "--days", 1)
    assert code == 2
    assert "is there already; remove it or name another." in err
    assert path.read_bytes() == before


def test_bench_runs_a_study_and_goes_on_where_it_stopped(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = write_study(tmp_path, STUDY.replace("draws = 2", "draws = 1"))
    code, out, _ = run("bench", path, "--device", "cpu")
    assert code == 0
    assert "Make the page with: labeltide report results/toy" in out
    records = list(read_records(tmp_path / "results" / "toy"))
    assert len(records) == 6
    assert run("bench", path, "--device", "cpu")[0] == 0
    assert list(read_records(tmp_path / "results" / "toy")) == records


def test_bench_names_what_is_wrong_in_a_study(run, tmp_path):
    path = write_study(tmp_path, STUDY.replace("mixed", "wavy"))
    code, _, err = run("bench", path, "--out", tmp_path / "out")
    assert code == 2
    assert "toy.toml: Unknown noise shape 'wavy'. Choose one of: static, linear" in err


def test_datasets_list_says_what_is_there_and_what_is_missing(run, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    folder = tmp_path / "eeg_eye_state"
    folder.mkdir()
    (folder / "eeg_eye_state.parquet").touch()
    code, out, _ = run("datasets", "list", "--data", tmp_path)
    assert code == 0
    for name in ("uci_har", "eeg_eye_state", "har70plus", "sleep_edf", "CC BY 4.0"):
        assert name in out
    assert out.count("present") == 1
    assert "train.parquet" in out


def test_datasets_fetch_converts_an_archive(run, tmp_path, small):
    archive = archives.make_har(tmp_path / "har.zip", 12)
    code, out, err = run("datasets", "fetch", "uci_har", "--data", tmp_path / "data", "--archives", archive)
    assert (code, err) == (0, "")
    assert "uci_har is in" in out
    assert (tmp_path / "data" / "uci_har" / "train.parquet").is_file()


def test_a_broken_archive_ends_with_a_sentence_and_code_2(run, tmp_path, small):
    (tmp_path / "har.zip").write_text("no zip")
    code, _, err = run("datasets", "fetch", "uci_har", "--data", tmp_path / "data", "--archives", tmp_path / "har.zip")
    assert code == 2
    assert "labeltide: uci_har could not be converted from the given archives" in err
    assert "Nothing was changed." in err


def test_ctrl_c_stops_a_bench_that_can_go_on(tmp_path):
    path = write_study(tmp_path, STUDY.replace("epochs = 8", "epochs = 100000"))
    out = tmp_path / "out"
    words = ["bench", str(path), "--out", str(out), "--device", "cpu"]
    code = "from labeltide.cli import main; main()"
    child = subprocess.Popen(
        [sys.executable, "-c", code, *words],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    end = time.monotonic() + 60
    while not (out / "study.toml").exists() and time.monotonic() < end:
        time.sleep(0.05)
    child.send_signal(signal.SIGINT)
    message = child.communicate(timeout=60)[1]
    assert child.returncode == 130
    assert message.splitlines()[-1] == "labeltide: stopped. The same command goes on from here."  # after progress
    assert not (out / "bench.lock").exists(), "the folder is free again"


@pytest.mark.parametrize(
    "command", [["bench", "study.toml"], ["report", "folder"], ["datasets", "list"], ["pack", "x"]]
)
def test_without_the_bench_its_commands_say_what_to_install(command):
    code = "import sys; sys.modules['labeltide_bench'] = None; import labeltide.cli; labeltide.cli.main()"
    result = subprocess.run([sys.executable, "-c", code, *command], capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert f"`labeltide {command[0]}` is part of labeltide-bench" in result.stdout + result.stderr
    assert "Traceback" not in result.stderr


def test_without_the_bench_its_names_say_what_to_install():
    code = "import sys; sys.modules['labeltide_bench'] = None; import labeltide; labeltide.read_study"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "labeltide.read_study is part of labeltide-bench, which is not installed" in result.stderr


def test_function_and_command_have_the_options_of_one_definition_with_their_defaults_and_descriptions():
    function = inspect.signature(lt.audit).parameters
    command = inspect.signature(AuditCommandOptions).parameters
    only_python = {"table", "out", "verbose", "command"}  # the command has these in a form of its own
    assert [name for name in function if name not in only_python] == list(command)
    assert {name: function[name].default for name in command} == {name: each.default for name, each in command.items()}
    assert all(f"\n{name} : " in lt.audit.__doc__ for name in function)
    assert function["fdr"].default == FDR


def test_an_unknown_option_of_audit_is_named():
    with pytest.raises(TypeError, match="'labl'"):
        lt.audit("table.csv", labl="label")
