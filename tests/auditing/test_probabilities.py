"""Audits of tables with the probabilities of another model."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import labeltide as lt
from labeltide.auditing import reading

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
