"""Run the server of a review on this machine and open its page."""

from __future__ import annotations

import signal
import socket
import threading
import webbrowser
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from labeltide import _validation
from labeltide._extras import import_extra
from labeltide.reviewing.app import make_app
from labeltide.reviewing.publish import publish
from labeltide.reviewing.requests import check_reviewer
from labeltide.reviewing.session import open_session
from labeltide.reviewing.summary import summarise

HOST = "127.0.0.1"


def review(
    folder: Path,
    *,
    table: Path | None = None,
    items: int | None = None,
    sample: int | None = None,
    is_blind: bool = False,
    reviewer: str = "reviewer",
    port: int | None = None,
    opens_browser: bool = True,
    say: Callable[[str], None] = print,
) -> None:
    """Serve the review of an audit's folder until it is stopped, then write review.json.

    Parameters
    ----------
    table : the table of the audit, where it is no longer where it was
    items, sample : how many stretches that are likely wrong, and how many labels of the probability sample, to queue
    say : called with the address as soon as the server listens
    """
    check_extra()
    listener = listen(port)
    with listener:
        session = open_session(
            folder, table=table, items=items, sample=sample, is_blind=is_blind, reviewer=check_reviewer(reviewer)
        )
        with session.store:
            app = make_app(session, listener.getsockname()[1])
            address = f"http://{HOST}:{listener.getsockname()[1]}/{app.token}/"
            say(address)
            if opens_browser:
                open_browser(address)
            try:
                _run(app, listener)
            finally:
                publish(session.audit.folder, summarise(session.audit, session.store))


def check_extra() -> None:
    """The server is an extra."""
    for module in ("starlette", "uvicorn"):
        import_extra(module, "review", "The page of `labeltide review`")


def listen(port: int | None) -> socket.socket:
    """A socket on this machine alone, on the wished port or a free one."""
    if port is not None:
        _validation.check_number("port", port, 1, 65535, whole=True)
    # With the protocol named, asyncio sets TCP_NODELAY; without it answers may wait for a delayed acknowledgement.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port or 0))
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise ValueError(f"Port {port} cannot be used: {error.strerror}. Name another with --port, or none.") from None
    return listener


def open_browser(address: str) -> None:
    """Open the page; where no browser can be opened, the printed address is enough."""
    try:
        webbrowser.open(address)
    except (webbrowser.Error, OSError):
        return


def _run(app: object, listener: socket.socket) -> None:
    import uvicorn

    config = uvicorn.Config(app, log_level="error", access_log=False, lifespan="off", server_header=False)  # type: ignore[arg-type]
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # uvicorn raises it again when it has shut down
    with suppress(KeyboardInterrupt):  # the usual end
        uvicorn.Server(config).run(sockets=[listener])
