from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from labeltide.auditing.decisions import DecisionStore
from labeltide.cli import app
from labeltide.reviewing import app as serve

SOURCE = Path(__file__).parents[2] / "src"


def start(folder: Path, *options: str) -> tuple[subprocess.Popen, str]:
    command = [sys.executable, "-m", "labeltide", "review", str(folder), "--no-browser", "--reviewer", "Ada", *options]
    environment = os.environ | {"PYTHONPATH": str(SOURCE)}
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    line = server.stdout.readline()
    assert line.startswith("Review "), server.stderr.read()
    return server, line.split()[-1]


def origin(address: str) -> str:
    return re.match("http://[^/]+", address)[0]


def decide(address: str, position: int, request: str) -> dict:
    body = {"position": position, "reviewer": "Ada", "action": "keep", "unit": "step", "request": request}
    answer = httpx.post(f"{address}api/decide", json=body, headers={"origin": origin(address)})
    answer.raise_for_status()
    return answer.json()


def test_a_killed_server_goes_on_where_it_was(folder):
    server, address = start(folder, "--items", "5", "--sample", "10")
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{43}/", address)
    decide(address, 0, "r0")
    first = httpx.get(f"{address}api/item/1?reviewer=Ada").json()
    server.send_signal(signal.SIGKILL)
    server.wait()
    server, again = start(folder)
    try:
        assert again.split("/")[3] != address.split("/")[3]
        assert httpx.get(f"{again}api/item/1?reviewer=Ada").json() == first
        assert httpx.get(f"{again}api/progress?reviewer=Ada").json()["done"] == 1
        assert decide(again, 0, "r0")["progress"]["done"] == 1  # sent again, kept once
        assert httpx.get(f"{origin(again)}/wrong/").status_code == 403
    finally:
        server.terminate()
    assert server.wait() == 143
    assert (folder / "review.json").exists()
    with DecisionStore.open(folder, create=False) as store:
        assert len(store.all()) == 1


def test_decisions_outlive_a_kill_after_the_journal_was_deleted(folder):
    server, address = start(folder, "--items", "5", "--sample", "10")
    decide(address, 0, "r0")
    for path in folder.glob("decisions.sqlite-*"):
        path.unlink()
    decide(address, 1, "r1")
    server.kill()
    server.wait()
    for path in folder.glob("decisions.sqlite-*"):
        path.unlink()
    with DecisionStore.open(folder, create=False) as store:
        assert [decision.request for decision in store.all()] == ["r0", "r1"]


def test_ctrl_c_is_the_usual_end(folder):
    server, address = start(folder, "--items", "5", "--sample", "10")
    decide(address, 0, "r0")
    server.send_signal(signal.SIGINT)
    assert server.wait(10) == 0
    assert (folder / "review.json").exists()


def test_a_port_in_use_is_told():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ValueError, match=rf"Port {port} cannot be used: .*--port"):
            serve.listen(port)
    with pytest.raises(ValueError, match="port must be a whole number"):
        serve.listen(70_000)


def test_the_server_listens_on_this_machine_alone():
    with serve.listen(None) as listener:
        assert listener.getsockname()[0] == "127.0.0.1"


def test_a_browser_that_cannot_be_opened_is_no_error(monkeypatch):
    def fail(address: str) -> bool:
        raise serve.webbrowser.Error("no browser")

    monkeypatch.setattr(serve.webbrowser, "open", fail)
    serve.open_browser("http:")


def test_a_missing_extra_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(ValueError, match=r"pip install 'labeltide\[review\]'"):
        serve.check_extra()


def test_the_command_refuses_a_folder_that_is_no_audit(tmp_path):
    with pytest.raises(FileNotFoundError, match="Name a folder that `labeltide audit` wrote"):
        app(["review", str(tmp_path), "--no-browser"], exit_on_error=False)
    with pytest.raises(ValueError, match="at most 200 characters"):
        app(["review", str(tmp_path), "--reviewer", "x" * 300], exit_on_error=False)
