from __future__ import annotations

import json

import numpy as np
import pytest

from labeltide.auditing.decisions import DecisionStore
from labeltide.reviewing.folder import AuditFolder
from labeltide.reviewing.queue import kept_sample, prepare_queue, rank_suspects, same_label_run
from reviewing.fake_review import change_audit


@pytest.fixture
def audit(folder) -> AuditFolder:
    return AuditFolder.open(folder)


def test_stretches_hold_flagged_labels_of_one_annotator_and_one_suggestion(audit):
    lines = audit.lines
    ranked = rank_suspects(lines)
    assert sum(stretch.size for stretch in ranked) == int(lines.is_issue.sum())
    for first, last, target, size in ranked:
        inside = (lines.row >= first) & (lines.row <= last) & (lines.sequence == lines.sequence[target])
        inside &= lines.annotator == lines.annotator[target]
        assert inside.sum() == size
        assert lines.is_issue[inside].all()
        assert len(set(lines.suggested[inside])) == len(set(lines.recorded[inside])) == 1


def test_the_surest_suspects_come_first_not_the_longest(audit):
    lines = audit.lines
    ranked = rank_suspects(lines)
    sure = []
    for first, last, target, _ in ranked:
        inside = (lines.row >= first) & (lines.row <= last) & (lines.sequence == lines.sequence[target])
        sure.append(lines.wrong[inside & (lines.annotator == lines.annotator[target])].mean().round(2))
    assert sure == sorted(sure, reverse=True)
    assert [stretch.size for stretch in ranked] != sorted((stretch.size for stretch in ranked), reverse=True)


def test_the_plan_of_the_audit_comes_first(audit):
    lines = audit.lines
    times = lines.texts(np.flatnonzero(lines.sequence == 4), ["time"])["time"]
    plan = [{"sequence": lines.sequence_names[4], "first": times[0], "last": times[-1]}]
    ranked = rank_suspects(lines, plan)
    inside = [lines.sequence[stretch.target] == 4 for stretch in ranked if stretch.size > 1]
    assert inside == sorted(inside, reverse=True)
    assert any(inside)


def test_the_queue_mixes_both_kinds_and_is_the_same_again(audit):
    with DecisionStore.open(audit.folder, create=True) as store:
        first = prepare_queue(store, audit, 10, 20)
    with DecisionStore.open(audit.folder, create=True) as store:
        assert prepare_queue(store, audit, None, None) == first
        assert prepare_queue(store, audit, 10, 20) == first
    kinds = [item.kind for item in first]
    assert (kinds.count("suspect"), kinds.count("sample")) == (10, 20)
    assert kinds[:10].count("suspect") < 10
    assert [item.position for item in first] == list(range(30))
    assert all((item.probability is None) == (item.kind == "suspect") for item in first)


def test_a_killed_start_gives_the_same_queue(audit):
    with DecisionStore.open(audit.folder, create=True) as store:
        whole = prepare_queue(store, audit, 10, 20)
    (audit.folder / "decisions.sqlite").unlink()
    with DecisionStore.open(audit.folder, create=True) as store:
        store.keep_setting("smallest inclusion probability of each draw", [0.5])  # as left by a kill in between
        assert prepare_queue(store, audit, 10, 20) == whole


def test_a_longer_queue_keeps_what_was_queued_and_draws_again(audit):
    with DecisionStore.open(audit.folder, create=True) as store:
        first = prepare_queue(store, audit, 5, 10)
        longer = prepare_queue(store, audit, 8, 25)
        sample = kept_sample(store, longer, audit.lines)
    assert longer[:15] == first
    assert len(longer) == 33
    assert np.bincount(sample.draws).tolist() == [10, 15]
    assert len(sample.smallest) == 2
    assert len(set(sample.items.tolist())) == 25
    assert (sample.inclusion > 0).all()


def test_decisions_of_another_audit_are_refused(audit):
    with DecisionStore.open(audit.folder, create=True) as store:
        prepare_queue(store, audit, 1, 1)
        change_audit(audit.folder, digest="sha256:other")
        with pytest.raises(ValueError, match="belongs to another audit"):
            prepare_queue(store, AuditFolder.open(audit.folder), 1, 1)


def test_more_than_there_is_gives_all_there_is(audit):
    with DecisionStore.open(audit.folder, create=True) as store:
        queue = prepare_queue(store, audit, 100_000, 100_000)
    recorded = int((audit.lines.recorded >= 0).sum())
    assert sum(item.kind == "sample" for item in queue) == recorded
    with pytest.raises(ValueError, match="items must be a whole number"):
        prepare_queue(store, audit, -1, None)


def test_a_run_of_one_label_ends_where_the_label_changes(audit):
    lines = audit.lines
    for index in range(0, len(lines), 7):
        first, last = same_label_run(lines, index)
        assert first <= lines.row[index] <= last
        inside = (lines.row >= first) & (lines.row <= last) & (lines.annotator == lines.annotator[index])
        inside &= lines.sequence == lines.sequence[index]
        assert set(lines.recorded[inside]) == {lines.recorded[index]}


def test_the_queue_does_not_depend_on_the_clock_of_the_machine(audit):
    with DecisionStore.open(audit.folder, create=True) as store:
        first = prepare_queue(store, audit, 3, 3)
    assert "created" not in json.dumps([item.item_id for item in first])
    assert len({item.item_id for item in first}) == 6
