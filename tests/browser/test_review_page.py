"""The page of a review in chromium: the loop by keyboard, a server that is killed, blind mode, many classes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

import labeltide as lt
from auditing.page.fake import HOSTILE
from labeltide.auditing import fitting
from labeltide.auditing.decisions import DecisionStore
from labeltide.data.studies import simulate_study, write_study
from reviewing.fake_review import change_audit, write_review

SOURCE = Path(__file__).parents[2] / "src"
SETTLED = (
    "(before) => document.getElementById('title').innerText !== before && !document.body.hasAttribute('aria-busy')"
)
BOXES = "all => all.map((each) => each.getBoundingClientRect()).map((box) => [box.left, box.right])"
IDLE = "() => !document.body.hasAttribute('aria-busy')"


class Reviewer:
    """A person at the page, who waits for each answer."""

    def __init__(self, page: Any) -> None:
        self.page = page

    def press(self, *keys: str) -> None:
        for key in keys:
            before = self.page.inner_text("#title")
            self.page.keyboard.press(key)
            self.page.wait_for_function(SETTLED, arg=before)

    def press_and_stay(self, key: str) -> None:
        self.page.keyboard.press(key)
        self.page.wait_for_function(IDLE)

    @property
    def progress(self) -> str:
        return self.page.inner_text("#progress")


@pytest.fixture
def visit_review(browser: Any) -> Iterator[Callable[..., Reviewer]]:
    """A function that opens an address; afterwards the page may have complained of nothing, and asked nobody else."""
    opened: list[tuple[str, Any, list[str], list[str]]] = []

    def visit(address: str, *, may_complain: bool = False, **context: Any) -> Reviewer:
        around = browser.new_context(**({"viewport": {"width": 1280, "height": 860}} | context))
        around.set_default_timeout(30_000)
        page = around.new_page()
        complaints: list[str] = []
        requests: list[str] = []
        page.on("console", lambda message: None if may_complain else complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: (complaints.append("a dialog"), dialog.dismiss()))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(address)
        page.wait_for_selector("#drawing svg")
        page.wait_for_function(IDLE)
        opened.append((address, around, complaints, requests))
        return Reviewer(page)

    yield visit
    for address, around, complaints, requests in opened:
        assert complaints == []
        assert [url for url in requests if not url.startswith(address)] == []
        around.close()


@pytest.fixture
def serve() -> Iterator[Callable[..., str]]:
    """A function that serves a review from a thread and gives its address."""
    import uvicorn

    from labeltide.reviewing.app import listen, make_app
    from labeltide.reviewing.session import open_session

    running: list[tuple[Any, threading.Thread, Any]] = []

    def start(folder: Path, **how: Any) -> str:
        session, listener = open_session(folder, **({"items": 6, "sample": 6, "reviewer": "Ada"} | how)), listen(None)
        port = listener.getsockname()[1]
        app = make_app(session, port)
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))  # type: ignore[arg-type]
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        running.append((server, thread, session))
        return f"http://127.0.0.1:{port}/{app.token}/"

    yield start
    for server, thread, session in running:
        server.should_exit = True
        thread.join(10)
        session.store.close()


def start_command(folder: Path, *options: str) -> tuple[subprocess.Popen, str]:
    command = [sys.executable, "-m", "labeltide", "review", str(folder), "--no-browser", "--reviewer", "Ada", *options]
    environment = os.environ | {"PYTHONPATH": str(SOURCE)}
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    return server, server.stdout.readline().split()[-1]


def test_the_loop_by_keyboard_survives_a_killed_server(tmp_path, visit_review):
    folder = write_review(tmp_path / "audit")
    server, address = start_command(folder, "--items", "10", "--sample", "14")
    ada = visit_review(address, may_complain=True)  # of the server that is gone
    assert ada.progress.startswith("0 of 24 decided")
    ada.press(*("y", "1", "2", "s", "3", "y", "1", "y"))
    assert ada.progress.startswith("8 of 24 decided, 16 left")
    ada.press("u", "Control+z")
    assert ada.progress.startswith("6 of 24 decided")
    ada.press("ArrowRight", "ArrowLeft")
    server.send_signal(signal.SIGKILL)
    server.wait()
    ada.press_and_stay("y")
    assert "this was not saved" in ada.page.inner_text("#alert")
    server, address = start_command(folder)
    try:
        ada = visit_review(address)
        assert ada.progress.startswith("6 of 24 decided")
        ada.press(*["y"] * 17)
        ada.press_and_stay("y")
        assert ada.progress.startswith("24 of 24 decided, 0 left")
        assert "All items are decided" in ada.page.inner_text("#status")
        ada.page.keyboard.press("g")
        ada.page.wait_for_selector("#summary[open]")
        assert "at most" in ada.page.inner_text("#summary-body")
    finally:
        server.terminate()
        server.wait()
    with DecisionStore.open(folder, create=False) as store:
        assert len(store.standing()) == 24
        assert len(store.all()) == 26


def test_two_tabs_and_two_reviewers(tmp_path, serve, visit_review):
    address = serve(write_review(tmp_path / "audit"))
    ada, tab = visit_review(address), visit_review(address)
    ada.press("y")
    tab.press("2")  # the same item in the other tab
    assert tab.progress.startswith("1 of 12 decided")
    ben = visit_review(address)
    ben.page.fill("#reviewer", "Ben")
    ben.page.keyboard.press("Enter")
    ben.page.wait_for_function("() => document.getElementById('progress').innerText.includes('Ada')")
    ben.page.wait_for_function(IDLE)
    ben.page.focus("#title")
    ben.press("3")
    ben.press("ArrowLeft")
    assert "Ada" in ben.page.inner_text("#decided")
    assert "Disputed" in ben.page.inner_text("#decided")
    assert "1 disputed" in ben.progress


def test_a_comment_and_a_single_step_are_kept(tmp_path, serve, visit_review):
    folder = write_review(tmp_path / "audit")
    ada = visit_review(serve(folder))
    ada.page.keyboard.press("c")
    ada.page.keyboard.type("late by 2, y")
    ada.page.keyboard.press("Escape")
    ada.page.keyboard.press("t")
    ada.page.keyboard.press("t")
    ada.press("1")
    for key in (".", ","):  # back at the mark, about the step alone
        ada.page.keyboard.press(key)
    assert ada.page.is_checked("input[value=step]")
    ada.page.keyboard.press(".")
    ada.press_and_stay("2")
    assert "still open" in ada.page.inner_text("#status")
    with DecisionStore.open(folder, create=False) as store:
        first, second = store.all()
    assert first.comment == "late by 2, y"
    assert second.first_row == second.last_row


def test_blind_pages_show_nothing_of_the_model(tmp_path, serve, visit_review):
    ada = visit_review(serve(write_review(tmp_path / "audit"), is_blind=True))
    for _ in range(11):
        text = ada.page.content()
        assert "Suggested by the model" not in text
        assert "according to the model" not in text
        assert ada.page.is_hidden("#model")
        assert "suggested" not in ada.page.inner_text("#classes")
        ada.press("y")
    ada.page.keyboard.press("g")
    ada.page.wait_for_selector("#summary[open]")
    assert "While the review is blind" in ada.page.inner_text("#summary-body")


def test_many_classes_are_found_by_number_or_name(tmp_path, serve, visit_review):
    folder = write_review(tmp_path / "audit", sequences=3)
    change_audit(folder, classes=["rest", "walk", "sleep", *(f"stage {number}" for number in range(4, 10_001))])
    ada = visit_review(serve(folder))
    before = ada.page.inner_text("#title")
    ada.page.keyboard.type("1234")
    ada.page.keyboard.press("Enter")
    ada.page.wait_for_function(SETTLED, arg=before)
    before = ada.page.inner_text("#title")
    ada.page.keyboard.press("/")
    ada.page.keyboard.type("stage 99")
    assert ada.page.locator("#classes button").count() == 12
    ada.page.keyboard.type("99")
    ada.page.keyboard.press("Enter")
    ada.page.wait_for_function(SETTLED, arg=before)
    with DecisionStore.open(folder, create=False) as store:
        assert [d.label for d in store.all()] == ["stage 1234", "stage 9999"]


def test_hostile_names_stay_text(tmp_path, serve, visit_review):
    names = {"classes": tuple(HOSTILE), "annotators": tuple(HOSTILE[:3]), "names": HOSTILE}
    ada = visit_review(serve(write_review(tmp_path / "audit", sequences=9, steps=30, **names)))
    ada.press("1", "2", "3", "y")
    ada.page.keyboard.press("g")
    ada.page.wait_for_selector("#summary[open]")
    assert ada.page.title() != "taken"
    assert ada.page.locator("main img, main script, dialog img, dialog script").count() == 0


def test_controls_are_large_enough_to_touch_and_have_names(tmp_path, serve, visit_review):
    tablet = {"viewport": {"width": 820, "height": 1180}, "has_touch": True}
    ada = visit_review(serve(write_review(tmp_path / "audit")), **tablet)
    small = ada.page.evaluate(
        """() => [...document.querySelectorAll('main button, header button, header input, fieldset label')]
        .filter((one) => { const box = one.getBoundingClientRect(); return box.width < 44 || box.height < 44; })
        .map((one) => one.id || one.innerText)"""
    )
    assert small == []
    unnamed = ada.page.evaluate(
        """() => [...document.querySelectorAll('button, input, textarea')].filter((one) =>
        !(one.innerText || one.getAttribute('aria-label') || (one.labels && one.labels.length))).map((one) => one.id)"""
    )
    assert unnamed == []
    assert ada.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    before = ada.page.inner_text("#title")
    ada.page.tap("#keep")
    ada.page.wait_for_function(SETTLED, arg=before)
    assert ada.progress.startswith("1 of 12")


@pytest.mark.usefixtures("few_replicates")
def test_the_whole_loop_audit_review_audit_again_apply_and_compare(tmp_path, visit_review, monkeypatch):
    monkeypatch.setattr(fitting, "EPOCHS", 6)
    monkeypatch.setattr(fitting, "HIDDEN_SIZE", 8)
    table, first, second = tmp_path / "study.csv", tmp_path / "first", tmp_path / "second"
    write_study(simulate_study(people=8, days=1), table)
    lt.audit(table, out=first, fast=True)
    server, address = start_command(first, "--items", "10", "--sample", "20")
    ada = visit_review(address, may_complain=True)
    total = int(ada.progress.split()[2])
    assert total >= 20
    ada.press(*(str(1 + number % 4) if number % 5 == 0 else "y" for number in range(15)))
    ada.press("u", "u", "Control+z")
    server.send_signal(signal.SIGKILL)
    server.wait()
    server, address = start_command(first)
    try:
        ada = visit_review(address)
        assert ada.progress.startswith(f"12 of {total} decided")
        ada.press(*["y"] * (total - 13))
        ada.press_and_stay("y")
        assert ada.progress.startswith(f"{total} of {total} decided, 0 left")
    finally:
        server.terminate()
        server.wait()
    assert json.loads((first / "audit.json").read_text())["checked"]["rows"][0]["reviewed"] == 20
    assert "Checked by people" in (first / "report.html").read_text()
    again = lt.audit(table, out=second, decisions=first, fast=True)
    assert again.summary["decisions"]["used"] > 0
    corrected = tmp_path / "corrected.parquet"
    lt.apply_decisions(first, corrected)
    authors = parquet.read_table(corrected)["label_author"].to_pylist()
    assert "Ada" in authors
    assert lt.compare_audits(first, second).summary["rate"]


@pytest.mark.parametrize("width", [1280, 900, 390])
def test_times_below_the_drawing_never_overlap(tmp_path, visit_review, serve, width):
    ada = visit_review(serve(write_review(tmp_path / "audit")), viewport={"width": width, "height": 860})
    for _ in range(4):
        boxes = ada.page.eval_on_selector_all(
            "#drawing text.time",
            BOXES,
        )
        assert boxes
        assert all(right <= left for (_, right), (left, _) in pairwise(boxes))
        ada.press("s")
