"""A fast audit does less, and says so."""

import json
from types import SimpleNamespace

import numpy as np

from auditing.page.fake import write_audit
from labeltide.auditing import fitting
from labeltide.auditing.fitting import expected_seconds
from labeltide.auditing.options import FAST, USUAL, say_pace
from labeltide.auditing.page import summary_text


def table(rows=60_000, steps=100, annotators=1, classes=3):
    windows = rows // steps
    labels = np.zeros((windows, steps, annotators), dtype=np.int8)
    names = tuple(f"annotator {i}" for i in range(annotators)) if annotators > 1 else None
    return SimpleNamespace(
        features=np.zeros((1, 1, 3)),
        fit_labels=labels,
        index=np.zeros((windows, steps)),
        class_names=("a",) * classes,
        flat_index=np.zeros(rows),
        n_rows=rows,
        n_all_steps=rows,
        annotator_names=names,
    )


def test_a_fast_audit_learns_from_fewer_windows_for_fewer_epochs():
    large = table()
    usual, fast = (fitting.choose_windows(large, 0, pace) for pace in (USUAL, FAST))
    assert len(usual) == 600
    assert len(fast) <= 150 + 2 * 3
    assert fitting.choose_epochs(large, fast, FAST) < fitting.choose_epochs(large, fast)


def test_a_fast_audit_says_what_it_leaves_out(tmp_path):
    (sentence,) = say_pace(FAST)
    assert "25\N{NO-BREAK SPACE}%" in sentence
    assert say_pace(USUAL) == []
    audit = json.loads((write_audit(tmp_path, sequences=3, steps=30) / "audit.json").read_text())
    fast, usual, unsaid = ({**audit, "settings": settings} for settings in ({"fast": True}, {"fast": False}, {}))
    assert "fast audit" in summary_text(fast)
    assert "fast audit" not in summary_text(usual) + summary_text(unsaid)


def test_expected_costs_grow_with_annotators_and_classes_and_shrink_when_fast():
    windows = np.arange(100)
    few, many, classes = (
        expected_seconds(table(**size), windows, 20, USUAL) for size in ({}, {"annotators": 12}, {"classes": 18})
    )
    fast = expected_seconds(table(), windows[:25], 15, FAST)
    for stage in ("fit", "bands"):
        assert fast[stage] < few[stage] < min(many[stage], classes[stage])
