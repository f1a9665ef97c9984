"""How many labels are learned from can be asked for; what does not fit into memory is refused."""

import math

import numpy as np
import pytest

import labeltide as lt
from auditing.streaming.quick import WINDOW, fit_quickly, study
from labeltide.auditing import fitting, reading
from labeltide.auditing.fitting import TableSize, check_training_memory, most_windows, training_bytes
from labeltide.auditing.options import read_train_on
from labeltide.cli import app
from labeltide_bench.tables import read_audit_table


@pytest.mark.parametrize(
    ("given", "number"), [(None, None), ("all", math.inf), (1000, 1000), (1e6, 1e6), ("1e6", 1e6), ("20000", 20_000)]
)
def test_a_number_of_labels_is_read(given, number):
    assert read_train_on(given) == number


@pytest.mark.parametrize("given", ["many", 0, -5, 1.5, "nan", True, float("nan"), float("inf"), "inf", [1]])
def test_other_numbers_of_labels_are_refused(given):
    with pytest.raises(ValueError, match="train_on must be a whole number of labels"):
        read_train_on(given)


def test_the_command_line_refuses_what_is_no_number_of_labels(tmp_path, capsys):
    with pytest.raises((ValueError, SystemExit)):
        app(["audit", str(tmp_path / "none.csv"), "--train-on", "many"])


def test_windows_that_are_wanted_hold_about_so_many_labels():
    size = TableSize(steps=50_000, windows=500, window=100, labels=10_000)
    assert most_windows(size, train_on=math.inf) == 500
    assert most_windows(size, train_on=1000) == 50
    assert most_windows(size, train_on=1) == 2
    assert most_windows(size, train_on=1e9) == 500


def test_more_and_fewer_windows_than_usual_are_drawn_on_demand(monkeypatch):
    table = read_audit_table(study(), window=WINDOW)
    monkeypatch.setattr(fitting, "TRAINING_STEPS", 20 * WINDOW)
    usual, few, every = (fitting.choose_windows(table, 0, train_on=number) for number in (None, 100, math.inf))
    assert len(few) < len(usual) < len(every) == len(table.index)
    assert 80 <= (table.fit_labels[few] >= 0).sum() <= 160


def test_too_many_labels_are_refused_with_the_memory_that_they_need():
    needed, least = (training_bytes(steps, 7, 4, 2) for steps in (1_000_000, 0))
    check_training_memory((10_000, 100), 1_000_000, 7, 4, 2, free=lambda: needed)
    with pytest.raises(
        ValueError, match=r"Learning from 1,000,000 labels needs about 1\.\d GiB .*--train-on 5e5 would do"
    ):
        check_training_memory((10_000, 100), 1_000_000, 7, 4, 2, free=lambda: least + 0.59 * (needed - least))
    with pytest.raises(ValueError, match=r"--train-on N"):
        check_training_memory((10_000, 100), 1_000_000, 7, 4, 2, free=lambda: least / 2)


def test_memory_for_training_grows_with_all_that_it_holds():
    base = training_bytes(1000, 7, 4, 1)
    for more in ((2000, 7, 4, 1), (1000, 14, 4, 1), (1000, 7, 8, 1), (1000, 7, 4, 2)):
        assert training_bytes(*more) > base


@pytest.mark.parametrize("most_rows", [0, 10**9])
def test_audits_in_memory_and_in_parts_learn_from_as_many_labels(tmp_path, monkeypatch, most_rows):
    from pyarrow import parquet

    fit_quickly(monkeypatch)
    monkeypatch.setattr(reading, "_may_be_large", lambda path: True)
    monkeypatch.setattr(reading, "MAX_ROWS", most_rows)
    monkeypatch.setattr(fitting, "TRAINING_STEPS", 20 * WINDOW)
    parquet.write_table(study(), tmp_path / "study.parquet", row_group_size=200)

    def audit(number):
        out = tmp_path / str(number)
        return lt.audit(tmp_path / "study.parquet", window=WINDOW, out=out, device="cpu", train_on=number).summary

    few, every = audit(300), audit("all")
    assert few["settings"]["train_on"] == 300
    n_windows = every["settings"]["windows learned from"]
    assert few["settings"]["windows learned from"] == math.ceil(300 * n_windows / 1059)
    assert every["settings"]["train_on"] == "all"
    assert any(
        "As asked by train_on (--train-on): the networks learned from" in message
        for message in few["table"]["messages"]
    )
    assert not any("networks learned from" in sentence for sentence in every["table"]["messages"])
    assert every["table"]["labels"] == few["table"]["labels"] == 1059
    assert np.isfinite(every["issues"]["count"])
