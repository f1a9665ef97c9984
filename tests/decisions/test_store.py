from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from labeltide.auditing import decisions as store_module
from labeltide.auditing.decisions import DECISIONS, Decision, DecisionStore, Item, disputed_items

SOURCE = Path(__file__).parents[2] / "src"
WRITER = """
import sys
from pathlib import Path
from labeltide.auditing.decisions import Decision, DecisionStore
folder, who = Path(sys.argv[1]), sys.argv[2]
with DecisionStore.open(folder, create=True) as store:
    for number in range(int(sys.argv[3])):
        decision = Decision(f"i{number}", "a", who, "keep", None, number, number, request=f"{who}{number}")
        print(store.add(decision), flush=True)
"""


def decision(item: str = "i1", reviewer: str = "Ada", action: str = "keep", **changes) -> Decision:
    label = changes.pop("label", "walk" if action == "label" else None)
    return replace(Decision(item, "a", reviewer, action, label, 3, 5), **changes)


@pytest.fixture
def store(tmp_path):
    with DecisionStore.open(tmp_path, create=True) as opened:
        yield opened


def write_in_another_process(folder: Path, who: str, count: int) -> subprocess.Popen:
    environment = os.environ | {"PYTHONPATH": str(SOURCE)}
    command = [sys.executable, "-c", WRITER, str(folder), who, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def test_a_decision_comes_back_as_it_was_made(store):
    made = decision(
        action="label", sequence="p1", annotator="Ben", comment="<b>'\"", shown='{"blind": true}', probability=0.25
    )
    number = store.add(made)
    (found,) = store.all()
    assert found == replace(made, decision_id=number, decided_at=found.decided_at)
    assert found.decided_at.endswith("+00:00")


def test_a_repeated_request_is_the_same_decision(store):
    assert store.add(decision(request="r")) == store.add(decision(request="r"))
    assert store.add(decision()) != store.add(decision())
    assert len(store.all()) == 3


def test_undo_takes_back_the_last_and_deletes_nothing(store):
    store.add(decision("i1"))
    store.add(decision("i1", action="label"))
    store.add(decision("i2", reviewer="Ben"))
    undone = store.undo("Ada")
    assert undone is not None
    assert undone.action == "label"
    assert undone.undone_at
    assert [(d.item_id, d.action) for d in store.standing()] == [("i1", "keep"), ("i2", "keep")]
    assert store.undo("Ada") is not None
    assert store.undo("Ada") is None
    assert len(store.all()) == 3


def test_what_another_connection_adds_and_undoes_is_seen(tmp_path):
    with DecisionStore.open(tmp_path, create=True) as one, DecisionStore.open(tmp_path, create=True) as other:
        one.add(decision("i1"))
        assert [d.item_id for d in other.all()] == ["i1"]
        one.add(decision("i2"))
        one.undo("Ada")
        assert [d.undone_at is None for d in other.all()] == [True, False]
        one.undo("Ada")
        assert other.standing() == []


def test_reviewers_who_differ_are_both_kept(store):
    store.add(decision("i1"))
    store.add(decision("i1", reviewer="Ben", action="label"))
    store.add(decision("i2"))
    store.add(decision("i2", reviewer="Ben", action="skip"))
    differing = disputed_items(store.standing())
    assert {item: [d.reviewer for d in found] for item, found in differing.items()} == {"i1": ["Ada", "Ben"]}
    assert len(store.standing()) == 4


def test_items_keep_their_order_and_are_added_once(store):
    items = [
        Item("b", "a", "sample", "p1", None, 4, 4, probability=0.1, draws=1, target=4, position=0, draw=0),
        Item("a", "a", "suspect", "p1", "Ben", 2, 9, target=3, position=1),
    ]
    store.add_items(items)
    store.add_items([replace(items[0], first_row=0), Item("a:3", "a", "suspect", "p1", "Ben", 3, 3)])
    assert [item.item_id for item in store.items()] == ["b", "a", "a:3"]
    assert store.items()[:2] == items


def test_settings_are_kept(store):
    store.keep_setting("seed", {"seed": 3})
    assert store.setting("seed") == {"seed": 3}
    assert store.setting("other", 1) == 1


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"action": "burn"}, "action must be one of: label, keep, skip. Got 'burn'"),
        ({"action": "label", "label": None}, "with a label if its action is 'label'"),
        ({"label": "walk"}, "without one otherwise"),
        ({"reviewer": " "}, "reviewer must be a name that is not empty"),
        ({"comment": "x" * 10_001}, "comment must be a text of at most 10000 characters"),
        ({"first_row": 9}, "the first not after the last"),
    ],
)
def test_a_decision_that_makes_no_sense_is_refused(store, changes, words):
    with pytest.raises(ValueError, match=words):
        store.add(decision(**changes))
    assert store.all() == []


def test_a_killed_writer_loses_nothing_that_it_was_told_is_kept(tmp_path):
    writer = write_in_another_process(tmp_path, "Ada", 100_000)
    told = [int(writer.stdout.readline()) for _ in range(20)]
    time.sleep(0.05)
    writer.send_signal(signal.SIGKILL)
    told += [int(line) for line in writer.stdout.read().split("\n")[:-1]]
    writer.wait()
    with DecisionStore.open(tmp_path, create=False) as store:
        found = [d.decision_id for d in store.all()]
    assert found[: len(told)] == told
    assert len(found) <= len(told) + 1  # the last may be kept before it could be told


def test_two_writers_at_once_lose_nothing(tmp_path):
    writers = [write_in_another_process(tmp_path, who, 60) for who in ("Ada", "Ben")]
    told = [int(line) for writer in writers for line in writer.communicate()[0].split()]
    with DecisionStore.open(tmp_path, create=False) as store:
        found = store.all()
    assert sorted(told) == [d.decision_id for d in found]
    assert len(found) == 120


def test_a_folder_without_decisions_is_told(tmp_path):
    with pytest.raises(ValueError, match=r"holds no decisions. Make some with: labeltide review"):
        DecisionStore.open(tmp_path, create=False)
    with pytest.raises(ValueError, match="There is no folder"):
        DecisionStore.open(tmp_path / "no", create=True)


def test_a_newer_database_is_refused_and_left_alone(tmp_path):
    DecisionStore.open(tmp_path, create=True).close()
    with sqlite3.connect(tmp_path / DECISIONS) as raw:
        raw.execute("PRAGMA user_version = 2")
    raw.close()
    with pytest.raises(ValueError, match=r"newer version of labeltide .* pip install -U labeltide"):
        DecisionStore.open(tmp_path, create=True)


def test_a_damaged_database_is_refused(tmp_path):
    (tmp_path / DECISIONS).write_bytes(b"SQLite? no." * 400)
    with pytest.raises(ValueError, match="is damaged or not a database of decisions"):
        DecisionStore.open(tmp_path, create=True)
    assert (tmp_path / DECISIONS).read_bytes().startswith(b"SQLite? no.")


def test_a_page_of_the_database_that_was_overwritten_is_found(tmp_path):
    with DecisionStore.open(tmp_path, create=True) as store:
        for number in range(200):
            store.add(decision(f"i{number}", comment="x" * 100))
    content = bytearray((tmp_path / DECISIONS).read_bytes())
    content[8192:16384] = os.urandom(8192)
    (tmp_path / DECISIONS).write_bytes(content)
    with pytest.raises(ValueError, match="is damaged"):
        DecisionStore.open(tmp_path, create=False)


def test_the_database_of_another_program_is_refused(tmp_path):
    with sqlite3.connect(tmp_path / DECISIONS) as raw:
        raw.execute("CREATE TABLE mine(x)")
    raw.close()
    with pytest.raises(ValueError, match="of another program"):
        DecisionStore.open(tmp_path, create=True)


def test_a_locked_database_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(store_module, "PATIENCE", 0.05)
    with DecisionStore.open(tmp_path, create=True) as store:
        other = sqlite3.connect(tmp_path / DECISIONS, isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(ValueError, match="is locked by another program"):
            store.add(decision())
        other.execute("ROLLBACK")
        assert store.add(decision()) == 1
        other.close()


def test_a_database_that_was_deleted_or_replaced_keeps_no_decision(tmp_path, monkeypatch):
    monkeypatch.setattr(store_module, "RENAME_SECONDS", 0.05)
    with DecisionStore.open(tmp_path, create=True) as store:
        store.add(decision())
        moved = (tmp_path / DECISIONS).rename(tmp_path / "away.sqlite")
        with pytest.raises(ValueError, match="was deleted, moved or replaced, so this decision was not kept"):
            store.add(decision("i2"))
        (tmp_path / DECISIONS).write_bytes(b"")
        with pytest.raises(ValueError, match="was not kept"):
            store.undo("Ada")
        moved.rename(tmp_path / DECISIONS)
        assert store.add(decision("i3")) == 2


@pytest.mark.parametrize("version", [0, 1])
def test_the_database_of_another_program_is_left_as_it_was(tmp_path, version):
    with sqlite3.connect(tmp_path / DECISIONS) as raw:
        raw.execute("CREATE TABLE mine(x)")
        raw.execute(f"PRAGMA user_version = {version}")
    raw.close()
    before = (tmp_path / DECISIONS).read_bytes()
    for create in (True, False):
        with pytest.raises(ValueError, match="of another program"):
            DecisionStore.open(tmp_path, create=create)
    assert (tmp_path / DECISIONS).read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == [DECISIONS]


def test_a_full_disk_is_told_and_the_store_goes_on_when_there_is_room(store):
    pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
    store._connection.execute(f"PRAGMA max_page_count = {pages}")
    big = [decision(f"i{number}", comment="x" * 9_000) for number in range(100)]
    with pytest.raises(ValueError, match="database or disk is full"):
        list(map(store.add, big))
    kept = len(store.all())
    store._connection.execute("PRAGMA max_page_count = 100000")
    store.add(decision("last"))
    assert len(store.all()) == kept + 1


def test_decisions_are_read_in_a_folder_where_nothing_can_be_written(tmp_path):
    with DecisionStore.open(tmp_path, create=True) as store:
        store.add(decision())
        before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
        (tmp_path / DECISIONS).chmod(0o444)
        tmp_path.chmod(0o555)
        with DecisionStore.open(tmp_path, create=False) as reader:
            assert [each.item_id for each in reader.all()] == ["i1"]
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
