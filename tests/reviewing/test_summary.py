from __future__ import annotations

import json

import numpy as np
import pyarrow.compute as pc
import pytest
from pyarrow import parquet

from labeltide.reviewing.queue import sample_outcomes
from labeltide.reviewing.summary import publish, summarise
from reviewing.fake_review import open_page, write_review


def settle(session, page, wrong, positions=None) -> None:
    """Decide items: those that `wrong` names get another class, the others are kept."""
    n = len(session.audit.classes)
    for item in session.queue if positions is None else [session.queue[index] for index in positions]:
        index = session.audit.lines.find(item.target, item.annotator)
        code = int(session.audit.lines.recorded[index])
        if wrong(item, index):
            page.decide(item.position, "label", **{"class": (code + 1) % n})
        else:
            page.decide(item.position, "keep")


def test_nothing_reviewed_says_so(opened):
    session, _ = opened()
    found = summarise(session.audit, session.store)
    assert found["checked"] is None
    assert found["remaining"] is None
    assert "None of the sample has been reviewed" in found["sentences"][0]


def test_the_checked_rate_rests_on_the_sample_alone(opened):
    session, page = opened(items=10, sample=60)
    settle(session, page, lambda item, index: item.kind == "suspect")
    found = summarise(session.audit, session.store)
    overall = found["checked"]["overall"]
    assert found["sample"] == {"drawn": 60, "reviewed": 60, "untold": 0, "waiting": 0}
    targets = {(item.target, item.annotator) for item in session.queue if item.kind == "suspect"}
    both = [item for item in session.queue if item.kind == "sample" and (item.target, item.annotator) in targets]
    assert overall["reviewed"] == 60
    assert overall["wrong"] <= len(both)
    assert overall["lower"] <= overall["rate"] <= overall["upper"] < 0.2
    assert overall["disagrees"]
    assert "they disagree" in found["sentences"][0]
    assert {entry["name"] for entry in found["checked"]["annotator"]} == {"Ada", "Ben"}
    assert {entry["name"] for entry in found["checked"]["class"]} == set(session.audit.classes)
    assert sum(entry["labels"] for entry in found["checked"]["clock"]) == overall["labels"]


def test_the_interval_for_more_people_is_never_narrower_than_the_one_that_may_be_watched(opened):
    session, page = opened(items=0, sample=60)
    settle(session, page, lambda item, index: session.audit.lines.is_issue[index])
    checked = summarise(session.audit, session.store)["checked"]
    assert checked["people"]["lower"] <= checked["overall"]["lower"]
    assert checked["people"]["upper"] >= checked["overall"]["upper"]


def test_decided_suspects_are_counted_by_kind(opened):
    session, page = opened(items=10, sample=5)
    suspects = [item.position for item in session.queue if item.kind == "suspect"]
    settle(session, page, lambda item, index: item.position != suspects[0], suspects[:4])
    found = summarise(session.audit, session.store)
    (suspects,) = found["suspects"]
    assert (suspects["kind"], suspects["decided"], suspects["wrong"]) == ("isolated", 4, 3)
    assert 0 < suspects["expected"] <= 4
    assert 0 < suspects["lower"] < 0.75 < suspects["upper"] < 1
    assert "Of 4 suspects of the kind isolated that were decided, 3 are wrong" in found["sentences"][-1]


@pytest.mark.parametrize("at_fault", ["labels", "signals"])
def test_decided_runs_say_whether_labels_or_signals_are_at_fault(folder, opened, at_fault):
    labels = parquet.read_table(folder / "labels.parquet")
    kinds = pc.if_else(pc.is_valid(labels["kind"]), "run", labels["kind"])
    parquet.write_table(labels.set_column(labels.column_names.index("kind"), "kind", kinds), folder / "labels.parquet")
    session, page = opened(items=10, sample=0)
    settle(session, page, lambda item, index: at_fault == "labels")
    assert f"{at_fault} are at fault in most of these runs" in summarise(session.audit, session.store)["sentences"][-1]


def test_the_bound_falls_as_suspects_are_settled(opened):
    session, page = opened(items=40, sample=60)
    settle(
        session,
        page,
        lambda item, index: session.audit.lines.is_issue[index],
        [i.position for i in session.queue if i.kind == "sample"],
    )
    before = summarise(session.audit, session.store)["remaining"]["decisions"]
    settle(session, page, lambda item, index: True, [i.position for i in session.queue if i.kind == "suspect"])
    after = summarise(session.audit, session.store)["remaining"]["decisions"]
    assert after["settled"] > before["settled"] == 0
    assert after["bound"] < before["bound"]
    assert after["sentence"].startswith("With 95\N{NO-BREAK SPACE}% confidence at most")
    bounds = np.array(after["curve"]["bound"])
    assert (np.diff(bounds) <= 1e-9).all()
    assert bounds[-1] == 0


def test_only_the_first_items_of_the_sample_count_until_those_before_are_settled(opened):
    session, page = opened(items=0, sample=20)
    settle(session, page, lambda item, index: False, [0, 1, 2, 5])
    outcomes = sample_outcomes(session.store, session.store.items(), session.audit.lines)
    assert len(outcomes.truth) == 3
    assert outcomes.n_waiting == 1
    assert outcomes.sample.chances == pytest.approx([item.probability for item in session.queue[:3]])


def test_what_cannot_be_told_widens_the_interval_both_ways(opened):
    session, page = opened(items=0, sample=30)
    settle(session, page, lambda item, index: item.position < 5, range(20))
    for position in range(20, 30):
        page.decide(position, "keep")
    told = summarise(session.audit, session.store)["checked"]["overall"]
    for position in range(20, 30):
        page.decide(position, "skip")
    untold = summarise(session.audit, session.store)
    overall = untold["checked"]["overall"]
    assert untold["sample"]["untold"] == 10
    assert overall["lower"] <= told["lower"]
    assert overall["upper"] > told["upper"]


def test_a_disputed_label_counts_as_untold(opened):
    session, page = opened(items=0, sample=10)
    settle(session, page, lambda item, index: False)
    page.reviewer = "Ben"
    settle(session, page, lambda item, index: True, [4])
    found = summarise(session.audit, session.store)
    assert found["disputed"] == 1
    assert found["sample"]["untold"] == 1
    assert found["decisions"]["by_reviewer"] == {"Ada": 10, "Ben": 1}


def test_review_json_is_strict_json(opened, monkeypatch):
    monkeypatch.setattr("labeltide.reviewing.summary.write_page", lambda folder: None)
    session, page = opened(items=2, sample=5)
    settle(session, page, lambda item, index: False, range(3))
    publish(session.audit.folder, summarise(session.audit, session.store))
    path = session.audit.folder / "review.json"
    found = json.loads(path.read_text(), parse_constant=lambda word: pytest.fail(word))
    assert found["audit"] == session.audit.identity


def test_the_audit_and_its_page_show_the_checked_rate_beside_the_models(opened, monkeypatch):
    session, page = opened(items=2, sample=12)
    settle(session, page, lambda item, index: index % 3 == 0)
    pages = []
    monkeypatch.setattr("labeltide.reviewing.summary.write_page", pages.append)
    publish(session.audit.folder, summarise(session.audit, session.store))
    checked = json.loads((session.audit.folder / "audit.json").read_text())["checked"]
    assert checked["rows"][0]["of"] == "all labels"
    assert {"model", "rate", "lower", "upper", "disagrees"} <= set(checked["rows"][0])
    assert "confidence at most" in checked["remaining"]["decisions"]["sentence"]
    assert pages == [session.audit.folder]


def test_a_review_of_every_label_leaves_nothing_to_estimate(tmp_path):
    session, page = open_page(write_review(tmp_path / "small", sequences=2, steps=20), items=0, sample=10_000)
    with session.store:
        settle(session, page, lambda item, index: False)
        overall = summarise(session.audit, session.store)["checked"]["overall"]
    assert overall["reviewed"] == len(session.queue)
    assert overall["rate"] == overall["lower"] == overall["upper"] == 0
