from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from auditing.page.fake import HOSTILE
from labeltide.auditing.decisions import file_digest
from labeltide.reviewing.folder import MAX_SIGNALS, AuditFolder
from labeltide.reviewing.session import open_session
from labeltide.tables.features import Encoder
from reviewing.fake_review import change_audit, open_page, write_review


def test_a_folder_that_is_no_audit_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"holds no audit.json. Name a folder that `labeltide audit` wrote"):
        AuditFolder.open(tmp_path)
    (tmp_path / "audit.json").write_text("{")
    with pytest.raises(ValueError, match="is not what an audit of this version writes"):
        AuditFolder.open(tmp_path)
    (tmp_path / "audit.json").write_text(json.dumps({"format": 99}))
    with pytest.raises(ValueError, match="must have format"):
        AuditFolder.open(tmp_path)
    (tmp_path / "audit.json").write_text(json.dumps({"format": 1, "table": {}}))
    with pytest.raises(ValueError, match="classes is missing"):
        AuditFolder.open(tmp_path)
    planted = [{"kind": "in runs", "planted": [4, 2], "found": [1], "named": [0, 0], "named_again": [0, 0]}]
    (tmp_path / "audit.json").write_text(json.dumps({"format": 1, "planted": planted}))
    with pytest.raises(ValueError, match="planted must be as many numbers for each kind"):
        AuditFolder.open(tmp_path)


def test_a_table_that_has_changed_is_refused(folder):
    table = folder.with_name("audit.parquet")
    changed = parquet.read_table(table)
    parquet.write_table(changed.take(pa.array(np.arange(len(changed))[::-1])), table)
    with pytest.raises(ValueError, match=r"has changed since the audit .* --table"):
        open_session(folder)
    assert not (folder / "decisions.sqlite").exists()


def test_a_table_that_has_moved_is_found_or_asked_for(folder, tmp_path):
    away = tmp_path / "elsewhere"
    away.mkdir()
    moved = folder.with_name("audit.parquet").rename(away / "moved.parquet")
    with pytest.raises(ValueError, match=r"is not at .* --table FILE"):
        open_session(folder)
    open_session(folder, table=moved).store.close()
    moved.rename(folder / "audit.parquet")  # into the folder, under its name
    open_session(folder).store.close()
    with pytest.raises(ValueError, match="is not at"):
        open_session(folder, table=tmp_path / "none.csv")


def test_another_table_of_another_length_is_refused(folder, tmp_path):
    other = tmp_path / "other.parquet"
    parquet.write_table(pa.table({"acc_x": [1.0, 2.0]}), other)
    change_audit(folder, digest=None)
    with pytest.raises(ValueError, match=r"must have the \d+ rows that were audited. It has 2"):
        open_session(folder, table=other)


def test_an_audit_of_a_data_frame_is_reviewed_without_signals(folder):
    change_audit(folder, path=None, digest=None)
    session, page = open_page(folder)
    with session.store:
        assert page.get("item/0")["window"]["signals"] == []


def test_a_csv_shows_the_same_signals_as_parquet(folder, tmp_path):
    session, page = open_page(folder)
    expected = page.get("item/0")["window"]["signals"]
    session.store.close()
    table = parquet.read_table(folder.with_name("audit.parquet"))
    csv.write_csv(table, tmp_path / "audit.csv")
    change_audit(folder, digest=None)
    (folder / "decisions.sqlite").unlink()
    session, page = open_page(folder, table=tmp_path / "audit.csv")
    with session.store:
        found = page.get("item/0")["window"]["signals"]
    assert [signal["name"] for signal in found] == [signal["name"] for signal in expected]
    assert found[0]["values"] == pytest.approx(expected[0]["values"], rel=1e-4)


def test_of_many_signals_those_of_the_timelines_are_shown(tmp_path):
    names = tuple(f"s{number}" for number in range(9))
    folder = write_review(tmp_path / "wide", columns=names)
    session, _ = open_page(folder)
    with session.store:
        assert session.signals.names == list(names[:MAX_SIGNALS])
    encoders = [asdict(Encoder(name, (name, f"{name} (missing)"), has_mask=True)) for name in names]
    audit = json.loads((folder / "audit.json").read_text())
    audit |= {"timelines": [{"signals": {"s8": [], "s3": []}}, {}], "encoders": encoders}
    (folder / "audit.json").write_text(json.dumps(audit))
    (folder / "decisions.sqlite").unlink()
    session, _ = open_page(folder)
    with session.store:
        assert session.signals.names == ["s3", "s8"]


def test_rows_in_any_order_are_shown_in_the_order_of_time(folder):
    path = folder / "labels.parquet"
    labels = parquet.read_table(path)
    order = np.random.default_rng(0).permutation(len(labels))
    parquet.write_table(labels.take(pa.array(order)), path)
    lines = AuditFolder.open(folder).lines
    times = np.array(lines.texts(lines.by_step, ["time"])["time"])
    for code in range(len(lines.sequence_names)):
        own = times[lines.sequence[lines.by_step] == code]
        assert own.tolist() == sorted(own)
        assert len(np.unique(lines.step[lines.sequence == code])) == len(set(own))


def test_labels_without_annotators_are_reviewed(tmp_path):
    session, page = open_page(write_review(tmp_path / "one", annotators=None))
    with session.store:
        view = page.get("item/0")
        assert [track["annotator"] for track in view["window"]["tracks"]] == [None]
        page.decide(0, unit="stretch")
        assert session.store.all()[0].annotator is None
        assert page.get("summary")["decisions"]["standing"] == 1


def test_a_column_for_each_annotator_shares_the_table_rows(folder):
    path, table = folder / "labels.parquet", folder.with_name("audit.parquet")
    labels, signals = parquet.read_table(path), parquet.read_table(table)
    shared = pa.array(np.arange(len(labels)) // 2)
    parquet.write_table(labels.set_column(0, "row", shared), path)
    parquet.write_table(signals.take(pa.array(np.arange(0, len(signals), 2))), table)
    change_audit(folder, rows=len(signals) // 2, digest=file_digest(table))
    session, page = open_page(folder)
    with session.store:
        for item in session.queue[:6]:
            view = page.get(f"item/{item.position}")
            own = next(track for track in view["window"]["tracks"] if track["is_own"])
            other = next(track for track in view["window"]["tracks"] if not track["is_own"])
            assert own["annotator"] == item.annotator != other["annotator"]
            assert own["rows"][view["target"]] == item.target
            values = session.signals.read(np.array([item.target]))["acc_y"]
            assert view["window"]["signals"][1]["values"][view["target"]] == pytest.approx(values[0], rel=1e-4)
            page.decide(item.position, unit="stretch")
        settled = page.get("summary")
    assert settled["decisions"]["standing"] == 6


def test_hostile_names_are_reviewed_like_others(tmp_path):
    folder = write_review(
        tmp_path / "hostile",
        classes=tuple(HOSTILE),
        annotators=tuple(HOSTILE[:3]),
        names=HOSTILE,
        sequences=9,
        steps=30,
    )
    session, page = open_page(folder, reviewer=HOSTILE[0])
    with session.store:
        for position in range(10):
            assert page.get(f"item/{position}")["status"] == 200
            assert page.decide(position, "label", **{"class": position % len(HOSTILE)})["status"] == 200
        assert page.get("summary")["decisions"]["standing"] == 10


def test_the_digest_is_that_of_the_file(folder):
    audit = AuditFolder.open(folder)
    assert audit.table["digest"] == file_digest(folder.with_name("audit.parquet"))
