"""One place decides what may be said, and the words, numbers, flags and corrections of an audit follow it."""

import json

import numpy as np
import pyarrow as pa
import pytest

import labeltide as lt
from auditing.page.fake import write_audit
from labeltide.auditing import fitting
from labeltide.auditing.page import write_page
from labeltide.auditing.page.summary import summary_text
from labeltide.auditing.page.verdict import write_verdict
from labeltide.inference.bands import interval_around
from labeltide.inference.conclusion import (
    CANNOT_BE_TOLD,
    NOT_SHOWN,
    SHOWN,
    Diagnostic,
    Finding,
    conclude,
    conclude_noise,
    named_pairs,
)

pytestmark = pytest.mark.usefixtures("few_replicates")


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(fitting, "EPOCHS", 12)
    monkeypatch.setattr(fitting, "HIDDEN_SIZE", 8)
    monkeypatch.setattr(fitting, "plant", lambda *_: ())


@pytest.fixture
def noisy(tmp_path):
    folder = write_audit(tmp_path, sequences=4, steps=60, annotators=None)
    return json.loads((folder / "audit.json").read_text())


def table_of(true, recorded, signal):
    people, steps = true.shape
    columns = {"person": np.repeat([f"p{number}" for number in range(people)], steps)}
    columns |= {"minute": np.tile(np.arange(steps), people)}
    columns |= {f"x{number}": signal[..., number].ravel() for number in range(signal.shape[-1])}
    return pa.table(columns | {"label": np.array(["a", "b", "c"])[recorded.ravel()]})


def persistent(people, steps, classes, seed=0):
    random = np.random.default_rng(seed)
    true = (np.cumsum(random.random((people, steps)) < 0.15, axis=1) + random.integers(2, size=(people, 1))) % classes
    return random, true


def silent(found):
    """Nothing is named or corrected, in the summary or in the table of labels."""
    labels = found.labels
    changed = [a != b for a, b in zip(labels["recorded"].to_pylist(), labels["corrected"].to_pylist(), strict=True)]
    counts = found.summary["issues"]
    return not (counts["count"] or counts["corrected"] or any(labels["is_issue"].to_pylist()) or any(changed))


def test_noise_is_shown_where_its_test_rejects_and_no_check_denies_it(noisy):
    assert conclude(noisy).noise.answer == SHOWN
    assert conclude(noisy).names_labels
    noisy["temporality"]["is_noisy_p"], noisy["diagnostics"] = 0.3, []
    assert conclude(noisy).noise.answer == conclude(noisy).changes[0].answer == NOT_SHOWN
    assert not conclude(noisy).names_labels
    noisy["diagnostics"] = [{"name": "bursts", "is_warning": True, "sentence": "They may come in runs.", "advice": ""}]
    assert conclude(noisy).noise == Finding(CANNOT_BE_TOLD, "They may come in runs.")


def test_runs_are_the_reason_and_are_named_alone_where_planted_errors_are_lost_beside_them():
    runs = Diagnostic("bursts", True, "They disagree in runs.")
    lost = Diagnostic("planted", True, "Planted errors are lost.", denies=True)
    copies = Diagnostic("copies", True, "Recordings are copies.", denies=True)
    noise = conclude_noise(0.001, [runs, lost])
    assert noise == Finding(CANNOT_BE_TOLD, runs.sentence)
    others, in_runs = named_pairs(noise, [runs, lost, Diagnostic("planted class", True, "", unnamed=(1,))], 2)
    assert not others.any()
    assert in_runs.tolist() == [[True, True], [False, False]]
    for checks in ([runs, lost, copies], [lost]):
        noise = conclude_noise(0.001, checks)
        assert noise.reason != runs.sentence
        assert not named_pairs(noise, checks, 2).any()


def test_a_check_that_denies_outweighs_the_tests_and_is_the_reason(noisy):
    why = "Nothing tells them apart."
    check = {"name": "identifiability", "is_warning": True, "sentence": why, "advice": "", "denies": True}
    noisy["diagnostics"] = [check]
    conclusion = conclude(noisy)
    assert conclusion.noise.answer == conclusion.changes[0].answer == CANNOT_BE_TOLD
    assert conclusion.noise.reason == why
    verdict = write_verdict(noisy)
    assert verdict.headline == f"The share of wrong labels cannot be estimated from these data. {why}"
    assert [card.answer for card in verdict.cards[:3]] == [
        "Cannot be estimated",
        "Cannot be estimated",
        "Cannot be tested",
    ]
    assert "cannot be estimated" in summary_text(noisy).splitlines()[1]


def test_a_change_is_not_claimed_beside_noise_that_is_not_shown(noisy):
    noisy["diagnostics"] = []
    noisy["temporality"] |= {"is_noisy_p": 1.0, "p_value": 0.02}
    noisy["noise"] |= {"rate_lower": 0.0, "rate_upper": 0.44}
    assert conclude(noisy).changes[0].answer == NOT_SHOWN
    message = summary_text(noisy)
    assert "no change shown, because no wrong labels are" in message
    assert "p = 0.020" not in message
    verdict = write_verdict(noisy)
    assert verdict.cards[2].detail == "There is no evidence of wrong labels, so a change cannot be shown either."
    assert verdict.cards[-1].answer == "Check some stretches by hand"
    assert "0 to 44" in verdict.cards[0].detail


def test_too_few_people_leave_only_the_change_untold(noisy):
    noisy["temporality"] |= {"p_value": None, "method": "none"}
    assert conclude(noisy).noise.answer == SHOWN
    assert conclude(noisy).changes[0].answer == CANNOT_BE_TOLD


def test_labels_by_protocol_are_neither_named_nor_corrected(tmp_path):
    """Three classes in blocks at fixed moments, right by design; people differ more than classes do."""
    random, people, steps = np.random.default_rng(1), 12, 30
    true = np.tile(np.repeat([0, 1, 2], steps // 3), (people, 1))
    person = random.normal(size=(people, 1, 3)) * 1.5
    signal = random.normal(size=(3, 3))[true] * 0.8 + person + random.normal(size=(people, steps, 3)) * 0.5
    found = lt.audit(table_of(true, true, signal), out=tmp_path / "audit")
    assert found.summary["conclusion"]["noise"]["answer"] == CANNOT_BE_TOLD
    assert "The clock alone" in found.summary["conclusion"]["noise"]["reason"]
    assert silent(found)
    assert found.issues.num_rows == 0
    page = write_page(found.folder).read_text()
    assert "cannot be estimated" in page
    assert "each class is right more often than not" in page


def test_coin_flips_cannot_be_told():
    random, true = persistent(25, 30, 2)
    signal = 2.0 * true[..., None] + random.normal(size=(*true.shape, 2))
    found = lt.audit(table_of(true, random.integers(2, size=true.shape), signal))
    assert found.summary["conclusion"]["noise"]["answer"] == CANNOT_BE_TOLD
    assert silent(found)


def test_sound_labels_are_named_and_test_and_interval_agree():
    random, true = persistent(25, 30, 2)
    signal = 2.0 * true[..., None] + random.normal(size=(*true.shape, 2))
    found = lt.audit(table_of(true, true ^ (random.random(true.shape) < 0.2), signal))
    assert found.summary["conclusion"]["noise"] == {"answer": SHOWN, "reason": ""}
    assert found.summary["noise"]["rate_lower"] > 0
    assert not silent(found)


def test_three_stray_labels_of_a_class_are_left_as_they_are_and_named():
    random, true = persistent(24, 30, 2)
    signal = 3.0 * true[..., None] + random.normal(size=(*true.shape, 2))
    recorded = true.copy()
    recorded.ravel()[[5, 200, 533]] = 2
    found = lt.audit(table_of(true, recorded, signal))
    messages = found.summary["table"]["messages"]
    assert any("'c' had too few labels to learn from (3 of 20" in sentence for sentence in messages)
    assert "c" not in found.labels["suggested"].to_pylist()
    assert found.labels["corrected"].to_pylist().count("c") == found.labels["recorded"].to_pylist().count("c") == 3
    assert found.summary["noise"]["rate_upper"] < 0.05
    assert silent(found)


def test_sequences_of_one_step_can_be_audited():
    random, true = persistent(200, 1, 2)
    signal = 3.0 * true[..., None] + random.normal(size=(*true.shape, 2))
    found = lt.audit(table_of(true, true ^ (random.random(true.shape) < 0.2), signal))
    assert 0.05 < found.summary["noise"]["rate"] < 0.4


@pytest.fixture(scope="module")
def clean():
    """A fit to labels without mistakes, whose posterior doubts a few of them."""
    study = lt.make_sequences(n=40, n_steps=20, n_features=2, stay=0.9, variance=2.0, random_state=1)
    clf = lt.TideClassifier(epochs=20, hidden_size=8, random_state=0, device="cpu")
    return study, clf.fit(study.features, study.labels)


def test_labels_of_a_fit_that_shows_no_wrong_ones_are_neither_named_nor_corrected(clean):
    study, clf = clean
    assert clf.conclusion_.answer == NOT_SHOWN
    assert clf.conclusion_.reason
    audit = clf.audit(study.features, study.labels)
    assert not audit.may_name
    assert not audit.is_issue.any()
    np.testing.assert_array_equal(clf.corrected_labels(study.features, study.labels), study.labels)
    assert clf.audit(study.features, study.labels, may_name=True).may_name


def test_a_file_keeps_the_conclusion(clean, tmp_path):
    study, clf = clean
    clf.save(tmp_path / "model")
    again = lt.load(tmp_path / "model")
    assert again.conclusion_ == clf.conclusion_
    assert not again.audit(study.features, study.labels).may_name


def test_wrong_labels_that_are_shown_are_named_and_corrected_by_one_rule():
    study = lt.make_sequences(n=80, n_steps=30, n_features=6, stay=0.95, random_state=1)
    recorded = lt.corrupt(study.labels[..., 0], np.array([[0.8, 0.2], [0.2, 0.8]]), random_state=0)
    clf = lt.TideClassifier(epochs=20, hidden_size=8, random_state=0, device="cpu").fit(study.features, recorded)
    audit = clf.audit(study.features, recorded)
    assert clf.conclusion_.answer == SHOWN
    assert audit.is_issue.sum() > 200
    corrected = clf.corrected_labels(study.features, recorded)
    single = audit.is_issue & (audit.kind != "run")  # in runs, the signals may be at fault
    np.testing.assert_array_equal(corrected, np.where(single, audit.suggested, recorded))
    assert (corrected != study.labels[..., 0]).mean() < (recorded != study.labels[..., 0]).mean() / 3


@pytest.mark.parametrize("share", [0.0, 0.01, 0.05, 0.2])
@pytest.mark.parametrize(("estimate", "lower", "upper"), [(0.04, 0.02, 0.07), (0.04, 0.0, 0.07), (0.0, 0.0, 0.01)])
def test_an_interval_is_moved_to_the_share_that_is_stated(share, estimate, lower, upper):
    low, high = interval_around(share, estimate, lower, upper)
    assert 0 <= low <= share <= high <= 1
    assert (low > 0) == (lower > 0 and share > 0)
    assert interval_around(estimate, estimate, lower, upper) == pytest.approx((lower, upper))
