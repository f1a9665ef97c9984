"""A review under attack, or beside a new audit: nothing is let in, nothing is lost, nothing is written elsewhere."""

from __future__ import annotations

import json
import re
import resource
import shutil
import signal
import socket
import stat
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pyarrow as pa
import pytest
from pyarrow import parquet

from labeltide.auditing import decisions
from labeltide.auditing.decisions import DecisionStore
from labeltide.reviewing import app as serve
from labeltide.reviewing import queue
from labeltide.reviewing.app import Guard
from labeltide.reviewing.folder import AuditFolder
from labeltide.reviewing.queue import prepare_queue
from labeltide.reviewing.summary import publish, summarise
from reviewing.fake_review import HOST, PORT, TOKEN, change_audit
from reviewing.test_guard import scope
from reviewing.test_serve import origin, start


def test_a_review_writes_nothing_into_another_audit(opened, folder):
    session, page = opened()
    assert page.decide(0)["status"] == 200
    found = summarise(session.audit, session.store)
    change_audit(folder, digest="sha256:another")
    before = (folder / "audit.json").read_bytes()
    assert page.decide(1)["status"] == 400
    assert "was audited anew" in page.decide(1)["error"]
    assert page.get("summary")["status"] == 400
    with pytest.raises(ValueError, match="was audited anew"):
        publish(folder, found)
    with pytest.raises(ValueError, match="belongs to another audit"):
        summarise(AuditFolder.open(folder), session.store)
    assert (folder / "audit.json").read_bytes() == before
    assert not (folder / "review.json").exists()
    assert len(session.store.all()) == 1


def test_the_same_audit_again_goes_on(opened, folder):
    _, page = opened()
    audit = json.loads((folder / "audit.json").read_text())
    (folder / "audit.json").write_text(json.dumps(audit | {"created": "later"}))
    assert page.decide(0)["status"] == 200


def test_a_folder_or_database_deleted_meanwhile_is_an_error(opened, folder, monkeypatch):
    monkeypatch.setattr(decisions, "RENAME_SECONDS", 0.05)
    _, page = opened()
    (folder / "decisions.sqlite").rename(folder.with_name("away"))
    assert page.decide(0)["status"] == 400
    folder.with_name("away").rename(folder / "decisions.sqlite")
    assert page.decide(0)["status"] == 200
    shutil.rmtree(folder)
    for answer in (page.decide(1), page.get("summary"), page.post("undo")):
        assert answer["status"] == 400
        assert "Errno" not in answer["error"]


def test_two_reviews_that_start_at_once_share_one_queue(folder, monkeypatch):
    audit, keep, barrier = AuditFolder.open(folder), DecisionStore.add_items, threading.Barrier(2)
    assert len(audit.lines)

    def slowly(store, items):
        time.sleep(0.05 * len(items))  # between reading the queue and writing it; the shorter one is written first
        return keep(store, items)

    monkeypatch.setattr(DecisionStore, "add_items", slowly)

    def run(sizes):
        with DecisionStore.open(folder, create=True) as store:
            barrier.wait()
            return prepare_queue(store, audit, *sizes)

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(run, [(2, 4), (5, 9)]))
    with DecisionStore.open(folder, create=False) as store:
        queued = [item for item in store.items() if item.position is not None]
        probabilities = store.setting(queue.DRAWS)
    assert [item.position for item in queued] == list(range(14))
    sample = [item for item in queued if item.kind == "sample"]
    assert len({(item.target, item.annotator) for item in sample}) == len(sample) == 9
    assert len(probabilities) == 1 + max(item.draw for item in sample)


def test_the_command_line_of_the_browser_holds_no_secret(monkeypatch):
    opened = []
    monkeypatch.setattr(serve.webbrowser, "open", opened.append)
    path = serve.open_browser("http://127.0.0.1:1/open/secret")
    try:
        assert opened == [path.as_uri()]
        assert "secret" not in opened[0]
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert "url=http://127.0.0.1:1/open/secret" in path.read_text()
    finally:
        path.unlink()


def test_a_one_time_secret_is_exchanged_for_a_cookie(opened):
    session, page = opened()
    client = page.client
    entry = client.app.make_entry()
    assert client.get("/").status_code == 403
    assert client.get("/open/wrong").status_code == 403
    answer = client.get(entry, headers={"sec-fetch-site": "cross-site"})
    assert answer.status_code == 200
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert TOKEN not in cookie
    assert client.get(entry).status_code == 403  # once
    assert client.get("/").status_code == 200
    body = {"position": 0, "reviewer": "Ada", "action": "keep", "unit": "step", "request": "r"}
    assert client.post("/api/decide", json=body).status_code == 200
    assert client.post("/api/decide", json=body, headers={"origin": "http://evil.example"}).status_code == 403
    assert client.post("/api/decide", json=body, headers={"sec-fetch-site": "cross-site"}).status_code == 403
    client.cookies.clear()
    assert client.post("/api/decide", json=body).status_code == 403
    forged = {"cookie": f"labeltide-review-{PORT}=forged"}
    assert client.get("/api/session", headers=forged).status_code == 403
    assert len(session.store.all()) == 1


def test_the_default_port_of_http_may_be_left_out():
    guard = Guard(None, TOKEN, 80)
    assert guard.refuse(scope(host="127.0.0.1", origin="http://127.0.0.1")) is None
    assert guard.refuse(scope(host=HOST)) is not None


def start_with_few_files(folder: Path) -> tuple[subprocess.Popen, str]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        return start(folder, "--items", "5", "--sample", "10")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_idle_connections_do_not_stop_the_server(folder):
    server, address = start_with_few_files(folder)
    port = int(re.search(r":(\d+)/", address)[1])
    idle = []
    try:
        for _ in range(600):
            idle.append(socket.create_connection(("127.0.0.1", port), timeout=5))
        assert httpx.get(f"{address}api/progress?reviewer=Ada", timeout=5).status_code == 200
    finally:
        for each in idle:
            each.close()
        server.terminate()
    assert server.wait(10) == 143
    message = server.stderr.read()
    assert len(message.splitlines()) <= 3
    assert "idle ones are closed" in message


def test_half_a_request_does_not_hold_up_the_end(folder):
    server, address = start(folder, "--items", "5", "--sample", "10")
    port, path = int(re.search(r":(\d+)/", address)[1]), address.removeprefix(origin(address))
    head = (
        f"POST {path}api/decide HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nOrigin: {origin(address)}\r\n"
        "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
    )
    with socket.create_connection(("127.0.0.1", port)) as half:
        half.sendall(head.encode())
        time.sleep(0.3)
        server.send_signal(signal.SIGTERM)
        assert server.wait(8) == 143
    assert server.stderr.read() == "labeltide: stopped.\n"


def test_steps_are_in_the_order_of_time_when_clocks_go_back(folder):
    labels = parquet.read_table(folder / "labels.parquet")
    n_steps = len(set(labels["time"].to_pylist()))
    minutes = [1 * step for step in range(n_steps)]
    texts = [f"2026-10-25 02:{m:02d}:00+02:00" if m < 30 else f"2026-10-25 02:{m - 30:02d}:00+01:00" for m in minutes]
    order = {time_: step for step, time_ in enumerate(sorted(set(labels["time"].to_pylist())))}
    times = pa.array([texts[order[time_]] for time_ in labels["time"].to_pylist()])
    expected = AuditFolder.open(folder).lines.step
    labels = labels.set_column(labels.column_names.index("time"), "time", times)
    parquet.write_table(labels, folder / "labels.parquet")
    assert AuditFolder.open(folder).lines.step.tolist() == expected.tolist()
