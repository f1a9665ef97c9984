"""Tables whose labels are late: judged at their own step, and moved by `apply --align`."""

import numpy as np
import pandas as pd
import pytest

import labeltide as lt


@pytest.fixture(scope="module")
def late_audit(tmp_path_factory):
    folder = tmp_path_factory.mktemp("late")
    study = lt.make_sequences(n=16, n_steps=120, n_features=3, n_classes=2, stay=0.95, random_state=0)
    rows, steps = study.clean_labels.shape
    truth = pd.Series(np.array(["rest", "walk"])[study.clean_labels].ravel())
    table = pd.DataFrame({f"x{k}": study.features[..., k].ravel() for k in range(3)})
    table.insert(0, "person", np.repeat([f"p{row}" for row in range(rows)], steps))
    table.insert(1, "t", np.tile(np.arange(steps), rows))
    table["label"] = truth.groupby(table["person"], sort=False).shift(5)
    table.to_csv(folder / "study.csv", index=False)
    return folder, truth, lt.audit(folder / "study.csv", out=folder / "audit", fast=True)


def test_late_labels_of_a_table_are_named_where_they_are_wrong(late_audit):
    _, truth, audit = late_audit
    lines = audit.to_frame().sort_values("row")
    has_label = lines["recorded"].notna().to_numpy()
    wrong = (lines["recorded"].to_numpy() != truth.to_numpy()) & has_label
    flagged = lines["is_issue"].to_numpy()
    assert set(lines["shift"]) == {5}
    assert flagged[wrong].mean() > 0.9
    assert flagged[has_label & ~wrong].mean() < 0.02


def test_the_page_says_that_labels_are_late(late_audit):
    folder, _, audit = late_audit
    assert "late by 5 steps" in str(audit)
    assert "Late and early labels" in (folder / "audit" / "report.html").read_text(encoding="utf-8")


def test_align_writes_the_labels_at_their_time(late_audit):
    folder, truth, _ = late_audit
    lt.apply_decisions(folder / "audit", folder / "aligned.csv", align=True)
    label = pd.read_csv(folder / "aligned.csv")["label"]
    assert label.notna().mean() > 0.9
    assert (label == truth)[label.notna()].all()
