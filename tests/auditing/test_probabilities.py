"""Audits of tables with the probabilities of another model."""

import re

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest

import labeltide as lt
from labeltide.auditing import fitting, reading, survey
from labeltide.auditing.options import AuditOptions
from labeltide.auditing.reading import read_audit_steps
from labeltide.tables.roles import Request

pytestmark = pytest.mark.usefixtures("few_replicates")

N, STEPS = 40, 50
NAMES = np.array(["REM", "wake"])


def make_table(scale=2.0, rare=False):
    study = lt.make_sequences(n=N, n_steps=STEPS, n_features=1, stay=0.9, random_state=1)
    clean = study.clean_labels.reshape(N, STEPS)
    y = lt.corrupt(study.clean_labels, lt.make_noise("growth", n_steps=STEPS, rate=0.25), random_state=2)
    right = 1 / (1 + np.exp(-scale * np.random.default_rng(0).normal(2.0 * clean - 1, 1.0)))
    stage = NAMES[y.reshape(N, STEPS)].astype(object)
    columns = {"P(wake)": right, "p_rem": 1 - right}
    if rare:
        stage[0, :3] = "artefact"
        columns = {name: 0.99 * values for name, values in columns.items()} | {"p_artefact": np.full((N, STEPS), 0.01)}
    table = {"night": np.repeat([f"n{k:02d}" for k in range(N)], STEPS), "epoch": np.tile(np.arange(STEPS), N)}
    table |= {"stage": stage.ravel(), **{name: values.ravel() for name, values in columns.items()}}
    return pa.table(table), (y.reshape(N, STEPS) != clean).ravel()


@pytest.fixture(scope="module")
def audit():
    return lt.audit(make_table()[0], probabilities="P(wake),p_rem", fast=True)


def test_wrong_labels_are_found_by_the_probabilities_of_another_model(audit):
    wrong = make_table()[1]
    flagged = audit.labels["is_issue"].to_numpy()
    assert wrong[flagged].mean() > 0.8
    assert flagged[wrong].mean() > 0.5
    assert audit.summary["conclusion"]["names_labels"]
    assert any("nothing was trained" in sentence for sentence in audit.summary["table"]["messages"])


def test_a_table_read_in_parts_gets_the_same_labels(audit, tmp_path, monkeypatch):
    pq.write_table(make_table()[0], tmp_path / "all.parquet")
    monkeypatch.setattr(reading, "MAX_ROWS", 0)
    parts = lt.audit(tmp_path / "all.parquet", probabilities=["P(wake)", "p_rem"], fast=True, out=tmp_path / "out")
    labels = pq.read_table(tmp_path / "out" / "labels.parquet").sort_by("row")
    difference = labels["probability_right"].to_numpy() - audit.labels["probability_right"].to_numpy()
    assert np.abs(difference).max() < 1e-4
    assert "The probabilities of your model" in parts.page.read_text(encoding="utf-8")


def split_table(folder):
    """The table without probabilities, and the file of probabilities beside it."""
    table = make_table()[0]
    keys = ["night", "epoch"]
    pq.write_table(table.select([*keys, "stage"]), folder / "labels.parquet")
    pq.write_table(table.select([*keys, "P(wake)", "p_rem"]), folder / "chances.parquet")
    pc.write_csv(table.select([*keys, "stage"]), folder / "labels.csv")
    return folder


@pytest.mark.parametrize("kind", ["parquet", "csv", "frame"])
def test_a_second_file_may_hold_the_probabilities(audit, kind, tmp_path):
    folder = split_table(tmp_path)
    table = make_table()[0].select(["night", "epoch", "stage"]).to_pandas()
    table = table if kind == "frame" else folder / f"labels.{kind}"
    result = lt.audit(table, probabilities=folder / "chances.parquet", fast=True)
    np.testing.assert_array_equal(result.labels["probability_right"], audit.labels["probability_right"])
    assert any("chances.parquet" in sentence for sentence in result.summary["table"]["messages"])


def test_of_tables_read_in_parts_too(audit, tmp_path, monkeypatch):
    folder = split_table(tmp_path)
    monkeypatch.setattr(reading, "MAX_ROWS", 0)
    monkeypatch.setattr(survey, "BATCH", 300)
    pq.write_table(pq.read_table(folder / "chances.parquet"), folder / "chances.parquet", row_group_size=170)
    result = lt.audit(
        folder / "labels.parquet", probabilities=folder / "chances.parquet", fast=True, out=tmp_path / "out"
    )
    labels = pq.read_table(tmp_path / "out" / "labels.parquet").sort_by("row")
    difference = labels["probability_right"].to_numpy() - audit.labels["probability_right"].to_numpy()
    assert np.abs(difference).max() < 1e-4
    assert result.summary["settings"]["model"] == "probabilities"
    assert any("chances.parquet" in sentence for sentence in result.summary["table"]["messages"])
    with pytest.raises(ValueError, match="in Parquet, not in CSV"):
        lt.audit(folder / "labels.parquet", probabilities=folder / "labels.csv", fast=True, out=tmp_path / "other")


@pytest.mark.parametrize("in_parts", [False, True])
@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (np.arange(N * STEPS - 1), "Row 2,000 stands in one of them alone"),
        (np.arange(N * STEPS + 1).clip(0, N * STEPS - 1), "Row 2,001 stands in one of them alone"),
        (np.r_[1, 0, 2 : N * STEPS], "In row 1 'epoch' is 0 in the table and 1 in"),
        (np.r_[0:700, 750, 701 : N * STEPS], "In row 701 'night' is 'n14' in the table and 'n15' in"),
    ],
)
def test_a_second_file_with_other_rows_is_refused(rows, words, in_parts, tmp_path, monkeypatch):
    folder = split_table(tmp_path)
    pq.write_table(pq.read_table(folder / "chances.parquet").take(rows), folder / "other.parquet")
    monkeypatch.setattr(survey, "BATCH", 300)
    if in_parts:
        monkeypatch.setattr(reading, "MAX_ROWS", 0)
    with pytest.raises(ValueError, match=re.escape(words)):
        lt.audit(folder / "labels.parquet", probabilities=folder / "other.parquet", fast=True, out=tmp_path / "out")


def test_probabilities_are_calibrated_for_each_sequence():
    table, _ = make_table(scale=6.0)
    person = np.repeat(np.arange(4), N * STEPS // 4)
    unknown = person >= 2  # of these the model knows nothing, and is as sure
    chance = np.where(unknown, np.random.default_rng(1).permutation(table["P(wake)"].to_numpy()), table["P(wake)"])
    columns = {"night": person.astype(str), "epoch": np.arange(N * STEPS), "P(wake)": chance, "p_rem": 1 - chance}
    table = pa.table(columns | {"stage": table["stage"]})
    read = read_audit_steps(table, Request(probabilities=True, features=["P(wake)", "p_rem"])).cut()
    options = AuditOptions(probabilities="P(wake),p_rem")
    factors = fitting.find_powers(read, np.arange(len(read.index)), options).factors
    assert min(factors["0"], factors["1"]) > 1.5 * max(factors["2"], factors["3"])
    one = lt.audit(table.slice(0, N * STEPS // 4), probabilities="P(wake),p_rem", fast=True)  # nothing to compare with
    assert one.labels.num_rows == N * STEPS // 4


def test_the_column_of_a_rare_class_is_left_out_with_it():
    result = lt.audit(make_table(rare=True)[0], probabilities="P(wake),p_rem,p_artefact", fast=True)
    assert result.summary["table"]["classes"] == ["REM", "wake"]
    assert result.labels["probability_right"].null_count == 3


def test_probabilities_that_repeat_the_labels_are_reported_and_name_nothing():
    table, _ = make_table()
    recorded = table["stage"].to_numpy() == "wake"
    table = table.set_column(3, "P(wake)", pa.array(np.where(recorded, 0.95, 0.05)))
    table = table.set_column(4, "p_rem", pa.array(np.where(recorded, 0.05, 0.95)))
    result = lt.audit(table, probabilities="P(wake),p_rem", fast=True)
    assert result.issues.num_rows == 0
    assert any("neighbours contradict" in check["sentence"] for check in result.summary["diagnostics"])


@pytest.mark.parametrize(
    ("change", "options", "words"),
    [
        ({}, {"probabilities": "P(wake)"}, "Every class needs one column"),
        ({"p_rem": 3.0}, {"probabilities": "P(wake),p_rem"}, "between 0 and 1"),
        ({"p_rem": 0.9}, {"probabilities": "P(wake),p_rem"}, "sum to one"),
        ({}, {"probabilities": "P(wake),p_rem", "features": "epoch"}, "take the place of features"),
    ],
)
def test_wrong_probabilities_get_one_sentence(change, options, words):
    table, _ = make_table()
    for name, value in change.items():
        table = table.set_column(table.column_names.index(name), name, pa.array(np.full(len(table), value)))
    with pytest.raises(ValueError, match=words):
        lt.audit(table, **options)
