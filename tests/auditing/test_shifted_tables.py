"""Tables whose labels are late: judged at their own step, and moved by `apply --align`."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import labeltide as lt
from auditing.nights import write_night
from labeltide.auditing.alignment import find_patterns, find_table_shifts
from labeltide_bench.tables import read_audit_table

pytestmark = pytest.mark.usefixtures("few_replicates")


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
    return folder, truth, lt.audit(folder / "study.csv", out=folder / "audit", fast=True, spend_fdr=True)


def test_late_labels_of_a_table_are_named_where_they_are_wrong(late_audit):
    _, truth, audit = late_audit
    lines = audit.to_frame().sort_values("row")
    has_label = lines["recorded"].notna().to_numpy()
    wrong = (lines["recorded"].to_numpy() != truth.to_numpy()) & has_label
    flagged = lines["is_issue"].to_numpy()
    assert set(lines["shift"]) == {5}
    assert flagged[wrong].mean() > 0.9
    assert flagged[has_label & ~wrong].mean() < 0.02


def test_the_allowance_is_spent_only_where_wrong_labels_are_shown(late_audit):
    _, _, audit = late_audit
    assert audit.summary["conclusion"]["noise"]["answer"] != "shown"
    assert audit.summary["settings"]["spend_fdr"]
    assert not audit.summary["issues"]["spend_fdr"]


def test_labels_that_seem_early_are_not_listed_as_signals_may_lag(tmp_path):
    study = lt.make_sequences(n=16, n_steps=120, n_features=3, n_classes=2, stay=0.95, random_state=0)
    early = np.roll(study.clean_labels, -5, axis=1)
    early[:, -5:] = early[:, -6:-5]
    audit = lt.audit(timed(study, early), fast=True)
    assert set(audit.to_frame()["shift"]) == {-5}
    assert audit.summary["issues"]["by_kind"]["misaligned"] == 0
    assert "early by 5 steps (25 min), unless the signals lag\n" in str(audit).replace("\N{NO-BREAK SPACE}", " ")


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_where_all_labels_seem_early_those_are_listed_that_are_wrong_if_signals_lag(missing):
    study = lt.make_sequences(n=16, n_steps=120, n_features=3, n_classes=2, stay=0.95, random_state=0)
    early = np.roll(study.clean_labels, -5, axis=1)
    noisy = lt.corrupt(early, lt.make_noise("static", n_steps=120, rate=0.15), random_state=0)
    gone = np.random.default_rng(0).random(noisy.shape) < missing
    table = timed(study, noisy)
    table.loc[gone.ravel(), "label"] = None
    audit = lt.audit(table, fast=True)
    lines = audit.to_frame()
    listed, wrong = lines.sort_values("row")["is_issue"].to_numpy(), (noisy != early).ravel()
    assert wrong[listed].mean() > 0.85
    assert listed[wrong & ~gone.ravel()].mean() > 0.5
    assert (lines["corrected"].dropna() == lines["recorded"].dropna()).all()
    arrays = lt.TideClassifier(epochs=15, random_state=0).fit(study.features, np.where(gone, -1, noisy))
    of_arrays = arrays.audit(study.features, np.where(gone, -1, noisy))
    assert (of_arrays.is_issue.ravel() == listed).mean() > 0.98
    assert (of_arrays.corrected() == np.where(gone, -1, noisy)).all()
    for each in audit.summary["plan"]:
        inside = (lines["sequence"] == each["sequence"]) & lines["time"].between(each["first"], each["last"])
        assert f", {(inside & lines['is_issue']).sum()} of them to check" in each["why"]


def test_the_page_says_that_labels_are_late(late_audit):
    folder, _, audit = late_audit
    assert "late by 5 steps" in str(audit)
    assert "(" not in str(audit).split("late by 5 steps")[1].split("\n")[0]  # the unit of the column t is not known
    assert "Late and early labels" in (folder / "audit" / "report.html").read_text(encoding="utf-8")


def test_align_writes_the_labels_at_their_time(late_audit):
    folder, truth, _ = late_audit
    done = lt.apply_decisions(folder / "audit", folder / "aligned.csv", align=True)
    assert "80 steps that no moved label reaches" in str(done)  # five of each of 16 sequences
    label = pd.read_csv(folder / "aligned.csv")["label"]
    assert label.notna().mean() > 0.9
    assert (label == truth)[label.notna()].all()


def timed(study, labels, step="5min"):
    """A table that begins at 20:00, with dates as times."""
    rows, steps = labels.shape
    table = pd.DataFrame({f"x{k}": study.features[:rows, :, k].ravel() for k in range(study.features.shape[2])})
    table["person"] = np.repeat([f"p{row}" for row in range(rows)], steps)
    table["time"] = np.tile(pd.date_range("2026-03-01 20:00", periods=steps, freq=step), rows)
    return table.assign(label=np.array(["rest", "walk"])[labels].ravel())


@pytest.mark.parametrize(("lag", "seconds", "words"), [(120, 30, "(1 h)"), (720, 120, "(1 day)")])
def test_shifts_of_a_dated_table_are_given_in_time_and_whole_hours_suggest_a_clock(lag, seconds, words):
    study = lt.make_sequences(n=12, n_steps=10 * lag, n_features=3, stay=0.95, random_state=0)
    labels = np.roll(study.clean_labels, lag, axis=1)
    found = find_table_shifts(read_audit_table(timed(study, labels, f"{seconds}s"))).described
    assert (found["lag"], found["step_seconds"]) == (lag, seconds)
    assert f"Shifts by whole hours {words}" in found["sentence"]


def test_an_annotator_who_is_late_is_named_alone(tmp_path):
    study = lt.make_sequences(n=16, n_steps=120, n_features=3, n_classes=2, stay=0.95, random_state=0)
    table = timed(study, study.clean_labels).rename(columns={"label": "ann"})
    table["bob"] = table.groupby("person", sort=False)["ann"].shift(5)
    audit = lt.audit(table, label="ann,bob", out=tmp_path / "audit", fast=True)
    words = str(audit).replace("\N{NO-BREAK SPACE}", " ")
    assert 'the labels by "bob" are late by 5 steps (25 min)' in words
    assert "Varying delays" not in words
    page = (tmp_path / "audit" / "report.html").read_text(encoding="utf-8")
    assert "&#39;bob&#39;: Labels are late by 5 steps" in page
    assert "'ann': " not in page.replace("&#39;", "'")
    shift = audit.to_frame().groupby("annotator")["shift"].unique()
    assert (shift["ann"].tolist(), shift["bob"].tolist()) == ([0], [5])


def test_a_shifted_recording_is_described_with_an_interval():
    study = lt.make_sequences(n=12, n_steps=300, n_features=3, stay=0.95, random_state=0)
    labels = study.clean_labels.copy()
    labels[3] = np.roll(labels[3], 40)
    (recording,) = find_table_shifts(read_audit_table(timed(study, labels))).described["recordings"]
    assert (recording["sequence"], recording["shift"]) == ("p3", 40)
    low, high = recording["interval"]
    assert low <= 40 <= high
    assert high - low <= 4


@pytest.fixture(scope="module")
def events():
    first, second = (lt.make_sequences(n=20, n_steps=200, n_features=1, stay=0.95, random_state=n) for n in (0, 1))
    return replace(first, clean_labels=first.clean_labels * second.clean_labels)


def recorded_as(study, kind):
    """True labels of which some are replaced: by chance, or those of one part of the events."""
    random, labels = np.random.default_rng(0), study.clean_labels.copy()
    if kind == "random":
        return np.where(random.random(labels.shape) < 0.1, 1 - labels, labels)
    for row, truth in enumerate(study.clean_labels):
        for run in np.split(np.arange(200), np.flatnonzero(np.diff(truth)) + 1):
            if not truth[run[0]]:
                continue
            wrong = {
                "onset alone": run[max(1, len(run) // 5) :],
                "start late": run[:3],
                "end late": np.arange(run[-1] + 1, min(run[-1] + 4, 200)),
                "cut at midnight": run[run >= 48] if run[0] < 48 else run[:0],
                "cut at the end": run if run[-1] == 199 else run[:0],
            }[kind]
            labels[row, wrong] = kind == "end late"
    return labels


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("random", None),
        ("onset alone", "end too early"),
        ("start late", "begin too late"),
        ("end late", "end too late"),
        ("cut at midnight", "midnight"),
        ("cut at the end", "beginning or end of a sequence"),
    ],
)
def test_errors_on_one_side_of_events_are_described(events, kind, words):
    table = read_audit_table(timed(events, recorded_as(events, kind)))
    truth = read_audit_table(timed(events, events.clean_labels))
    posterior = np.eye(2)[truth.from_steps(truth.labels)[:, 0]] * 0.98 + 0.01
    found = find_patterns(table, table.from_steps(table.labels), posterior)
    assert any(words in sentence for sentence in found) if words else found == []
    assert ("is labelled" in " ".join(found)) == (kind == "onset alone")


@pytest.mark.parametrize(("kind", "is_said"), [("start late", True), ("late", False)])
def test_starts_late_alone_are_described_where_all_labels_were_moved(events, kind, is_said):
    labels = np.roll(events.clean_labels, 3, axis=1) if kind == "late" else recorded_as(events, kind)
    table, truth = (read_audit_table(timed(events, each)) for each in (labels, events.clean_labels))
    posterior = np.eye(2)[truth.from_steps(truth.labels)[:, 0]] * 0.98 + 0.01
    found = find_patterns(replace(table, moved=table.labels), table.from_steps(table.labels), posterior)
    assert ["begin too late" in sentence for sentence in found] == [True] * is_said


def test_align_moves_the_spans_of_recordings_and_keeps_each_of_them(tmp_path):
    folder, nights = tmp_path / "nights", []
    folder.mkdir()
    for night in range(6):
        states = np.array(write_night(folder, f"n{night}", night, epochs=100, rate=16, labels=False))
        edges = np.append(np.flatnonzero(np.r_[True, states[1:] != states[:-1]]), 100) * 30.0
        spans = {"onset": edges[:-1] + 90, "duration": np.diff(edges), "label": states[(edges[:-1] // 30).astype(int)]}
        nights.append(pd.DataFrame(spans))
        nights[-1].to_csv(folder / f"n{night}-stages.csv", index=False)
    late = pd.concat(nights, ignore_index=True)
    lt.audit(folder, epoch=30, out=tmp_path / "audit", fast=True)
    done = lt.apply_decisions(tmp_path / "audit", tmp_path / "aligned.csv", align=True)
    aligned = pd.read_csv(tmp_path / "aligned.csv")
    assert done.rows == len(late)
    assert (aligned["label"] == late["label"]).all()
    assert np.allclose(aligned["onset"], late["onset"] - 90)
    assert np.allclose(aligned["duration"], late["duration"])
    assert np.allclose(aligned["onset_original"], late["onset"])
