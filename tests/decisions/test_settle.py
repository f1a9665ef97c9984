from __future__ import annotations

import pyarrow as pa

from labeltide.auditing.decisions import Decision, settled_labels

LINES = pa.table(
    {
        "row": [0, 0, 1, 1, 2, 2, 3, 3],
        "sequence": ["p"] * 6 + ["q"] * 2,
        "annotator": ["Ada", "Ben"] * 4,
        "recorded": ["rest", "walk", "rest", None, "walk", "walk", "rest", "rest"],
    }
)


def decide(number: int, reviewer: str, label: str | None, first: int, last: int, **changes) -> Decision:
    action = changes.pop("action", "keep" if label is None else "label")
    return Decision(f"i{number}", "a", reviewer, action, label, first, last, "p", "Ada", decision_id=number, **changes)


def test_a_decision_settles_the_rows_of_its_sequence_and_annotator():
    settled = settled_labels([decide(1, "X", "walk", 0, 3, comment="late")], LINES)
    assert settled.row.tolist() == [0, 1, 2]
    assert settled.line.tolist() == [0, 2, 4]
    assert settled.label == ["walk"] * 3
    assert settled.annotator == ["Ada"] * 3
    assert settled.comment == ["late"] * 3


def test_a_kept_label_is_the_recorded_one():
    settled = settled_labels([decide(1, "X", None, 0, 2)], LINES)
    assert settled.label == ["rest", "rest", "walk"]


def test_the_latest_decision_of_a_reviewer_on_a_label_stands():
    settled = settled_labels([decide(2, "X", "rest", 1, 1), decide(1, "X", "walk", 0, 2)], LINES)
    assert settled.label == ["walk", "rest", "walk"]


def test_labels_on_which_reviewers_differ_are_left_out_and_counted():
    settled = settled_labels([decide(1, "X", "walk", 0, 1), decide(2, "Y", None, 1, 2)], LINES)
    assert settled.row.tolist() == [0, 2]
    assert settled.n_disputed == 1


def test_reviewers_who_agree_are_both_named():
    settled = settled_labels([decide(1, "X", "rest", 0, 0), decide(2, "Y", None, 0, 0)], LINES)
    assert settled.reviewer == ["X, Y"]


def test_skipped_and_undone_decisions_settle_nothing():
    decisions = [decide(1, "X", None, 0, 2, action="skip"), decide(2, "X", "walk", 0, 2, undone_at="now")]
    assert len(settled_labels(decisions, LINES)) == 0
