"""The web application of a review: the page, and JSON for it."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import secrets
import signal
import socket
import sys
import tempfile
import threading
import webbrowser
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa

from labeltide import _validation, auditing
from labeltide._files import import_extra, os_error_text, write_json
from labeltide.auditing.decisions import ACTIONS, MAX_TEXT, Decision, Item
from labeltide.auditing.page.format import shorten
from labeltide.reviewing.session import CONTEXT, Session, find_item, open_session, stretch_of, target_index, view_item
from labeltide.reviewing.summary import REVIEW, publish, summarise

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send


KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
PAGE = Path(__file__).parent / "page"
STYLES = Path(auditing.__file__).parent / "page" / "templates"  # the page looks like that of an audit
FILES = {path.name: path for path in PAGE.iterdir() if path.suffix in KINDS} | {
    name: STYLES / name for name in ("page.css", "audit.css")
}

HOST = "127.0.0.1"
MAX_CONNECTIONS, BACKLOG = 100, 32
IDLE_SECONDS = 10.0  # after which a connection without a request is closed
SHUTDOWN_SECONDS = 2  # for which requests that are being answered may hold up the end of the server
LOG = logging.getLogger("labeltide")

SENTENCES = {404: "There is nothing at this address.", 405: "This address does not answer such a request."}


def make_app(session: Session, port: int, token: str | None = None) -> Guard:
    """The application behind its guard; the token is random where none is passed."""
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.exceptions import HTTPException
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route

    async def static(request: Request) -> Response:
        path = FILES.get(request.path_params.get("name", "review.html"))
        if path is None:
            return JSONResponse({"error": "There is no such file."}, 404)
        return Response(path.read_bytes(), media_type=KINDS[path.suffix])

    def answer(work: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[..., Any]:
        """A route: numbers and texts of the query or JSON in, JSON out, errors as sentences."""

        async def route(request: Request) -> Response:
            try:
                asked = {**request.query_params, **request.path_params}
                if request.method == "POST":
                    asked = _json_object(await request.body())
                return JSONResponse(await run_in_threadpool(work, asked))
            except OSError as error:
                sentence = f"{os_error_text(error)} Nothing was kept."
            except pa.ArrowException:  # before ValueError, of which some are
                sentence = "A file of the audit or its table is damaged or was replaced. Audit again, then review."
            except (ValueError, RecursionError) as error:
                sentence = shorten(str(error), MAX_SENTENCE)
            return JSONResponse({"error": sentence}, 400)

        return route

    async def no_route(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 400
        return JSONResponse({"error": SENTENCES.get(status, "The request cannot be answered.")}, status)

    def view(asked: dict[str, Any]) -> dict[str, Any]:
        position, context = whole_number(asked["position"]), whole_number(asked.get("context", CONTEXT))
        return view_item(session, position, check_reviewer(asked.get("reviewer")), context)

    def add_decision(asked: dict[str, Any]) -> dict[str, Any]:
        item, reviewer = decide(session, asked), check_reviewer(asked.get("reviewer"))
        return {"progress": session.progress(reviewer), **session.decisions_on(item, reviewer)}

    def undo(asked: dict[str, Any]) -> dict[str, Any]:
        reviewer = check_reviewer(asked.get("reviewer"))
        session.audit.check_current()
        undone = session.store.undo(reviewer)
        positions = {item.item_id: item.position for item in session.queue}
        return {
            "undone": None if undone is None else {"action": undone.action, "label": undone.label},
            "position": None if undone is None else positions.get(undone.item_id),
            "progress": session.progress(reviewer),
        }

    def summary(asked: dict[str, Any]) -> dict[str, Any]:
        """What the review has shown, also written into review.json; only counts while the review is blind."""
        session.audit.check_current()
        found = summarise(session.audit, session.store)
        write_json(session.audit.folder / REVIEW, found)
        if not session.is_blind:
            return found
        return {"blind": True, **{name: found[name] for name in ("items", "decisions", "disputed")}}

    routes = [
        Route("/", static),
        Route("/static/{name}", static),
        Route("/api/session", answer(lambda asked: session.describe())),
        Route("/api/item/{position}", answer(view)),
        Route("/api/progress", answer(lambda asked: session.progress(check_reviewer(asked.get("reviewer"))))),
        Route("/api/summary", answer(summary)),
        Route("/api/decide", answer(add_decision), methods=["POST"]),
        Route("/api/undo", answer(undo), methods=["POST"]),
    ]
    app = Starlette(routes=routes, exception_handlers={HTTPException: no_route})
    return Guard(app, token or secrets.token_urlsafe(32), port)


# Who may use the server: only its own page, on this machine, that knows the token or has the cookie.

MAX_BODY = 1 << 16  # bytes of a request
BODY_SECONDS = 10.0  # in which the body of a request must arrive
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "x-frame-options": "DENY",
}
ENTRY = "open"  # the path below which a one-time secret is exchanged for the cookie
ENTRY_PAGE = '<!doctype html><meta http-equiv="refresh" content="0; url=/"><a href="/">Open the review</a>'


class Guard:
    """Middleware that refuses every request except those of the page itself.

    The Host must be this server; otherwise a name that is made to point here (DNS rebinding) could read the page. The
    Origin, where there is one, must be this server too, and a POST must have one. Sec-Fetch-Site must not be another
    site. The first part of the path must be the token, or the cookie must be the one that the server set in exchange
    for a one-time secret; both are compared in constant time.

    The app answers the requests that pass, with the token as root of their path.
    """

    def __init__(self, app: ASGIApp, token: str, port: int) -> None:
        self.app = app
        self.token = token
        self.hosts = {f"{name}:{port}" for name in (HOST, "localhost")}
        if port == 80:  # browsers leave the default port out
            self.hosts |= {HOST, "localhost"}
        self.cookie = f"labeltide-review-{port}={secrets.token_urlsafe(32)}"
        self.once: str | None = None  # the one-time secret, until it is used

    def make_entry(self) -> str:
        """A path that can be opened once, to get the cookie."""
        self.once = secrets.token_urlsafe(32)
        return f"/{ENTRY}/{self.once}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # a web socket, which our page never opens: refused with 403
            await send({"type": "websocket.close", "code": 1008})
            return
        from starlette.datastructures import MutableHeaders
        from starlette.responses import HTMLResponse, JSONResponse

        async def refuse(status: int, sentence: str) -> None:
            await JSONResponse({"error": sentence}, status, HEADERS)(scope, receive, send)

        refusal = self.refuse(scope)
        if refusal is not None:
            await refuse(*refusal)
            return
        parts = unquote(scope["path"]).split("/")[1:]
        if parts[0] == ENTRY:
            self.once = None
            cookie = {"set-cookie": f"{self.cookie}; Path=/; HttpOnly; SameSite=Strict"}
            await HTMLResponse(ENTRY_PAGE, headers=HEADERS | cookie)(scope, receive, send)
            return
        try:
            body = await asyncio.wait_for(_read_body(receive), BODY_SECONDS) if scope["method"] == "POST" else b""
        except TimeoutError:
            await refuse(408, "The request did not arrive in time. Try again.")
            return
        if body is None:
            await refuse(413, f"A request must have at most {MAX_BODY} bytes. Shorten the comment.")
            return
        below = {**scope, "root_path": f"/{self.token}" if _is_equal(parts[0], self.token) else ""}

        async def replay() -> Message:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        try:
            await self.app(below, replay, send_with_headers)
        except Exception as error:  # already answered with status 500
            LOG.error("A request failed: %s: %s", type(error).__name__, error)

    def refuse(self, scope: Scope) -> tuple[int, str] | None:
        """The status and sentence with which a request is refused; None where it may pass."""
        headers = [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in scope["headers"]]
        hosts = [value for name, value in headers if name == "host"]
        origins = [value for name, value in headers if name == "origin"]
        sites = [value for name, value in headers if name == "sec-fetch-site"]
        cookies = [each.strip() for name, value in headers if name == "cookie" for each in value.split(";")]
        if len(hosts) != 1 or hosts[0].lower() not in self.hosts:
            return 403, "Refused: the request names another host."
        if any(origin.lower() != f"http://{hosts[0].lower()}" for origin in origins) or len(origins) > 1:
            return 403, "Refused: the request comes from another site."
        parts = unquote(scope["path"]).split("/")[1:]
        is_entry = parts[:1] == [ENTRY] and len(parts) == 2 and scope["method"] == "GET"
        if is_entry and self.once and _is_equal(parts[1], self.once):
            return None  # from a file on this machine, which a browser calls another site
        if any(site not in ("same-origin", "none") for site in sites):
            return 403, "Refused: the request comes from another site."
        has_token = bool(parts) and _is_equal(parts[0], self.token)
        has_cookie = parts[:1] != [ENTRY] and any(_is_equal(cookie, self.cookie) for cookie in cookies)
        if not has_token and not has_cookie:
            return 403, "Refused: the address lacks the token. Open the address that labeltide review printed."
        if scope["method"] not in ("GET", "POST"):
            return 405, "Only GET and POST are answered."
        if scope["method"] == "POST":
            kinds = [value for name, value in headers if name == "content-type"]
            if not origins or [kind.split(";")[0].strip().lower() for kind in kinds] != ["application/json"]:
                return 403, "Refused: a change must come from the page itself, as JSON."
        return None


def _is_equal(given: str, secret: str) -> bool:
    return secrets.compare_digest(given.encode("utf-8", "replace"), secret.encode())


async def _read_body(receive: Receive) -> bytes | None:
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return b""
        body += message.get("body", b"")
        if len(body) > MAX_BODY:
            return None
        if not message.get("more_body"):
            return bytes(body)


# What the page asks to be kept: checked, and turned into a decision.

MAX_NAME = 200  # characters of a reviewer's name
MAX_SHOWN = 40  # characters of a wrong number that are repeated
MAX_SENTENCE = 500  # characters of a refusal, which may repeat what was sent


def _json_object(body: bytes) -> dict[str, Any]:
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError):  # numbers of too many digits and nesting too deep, too
        asked = None
    if not isinstance(asked, dict):
        raise ValueError("A request must be a JSON object, as the page sends it. Reload the page, then try again.")
    return asked


def decide(session: Session, body: Mapping[str, Any]) -> Item:
    """Keep a decision that the page sent; returns the item that it is about."""
    session.audit.check_current()
    item = find_item(session, body.get("position"))
    decided, (first, last) = _unit(session, item, body)
    action, code, label, classes = body.get("action"), body.get("class"), None, session.audit.classes
    if action not in ACTIONS:
        raise ValueError(f"Unknown action {action!r}. Choose one of: {', '.join(ACTIONS)}.")
    if action == "label":
        if type(code) is not int or not 0 <= code < len(classes):
            raise ValueError(f"There is no class number {code!r}. The audit has {len(classes)}, numbered from 0.")
        label = classes[code]
    decision = Decision(
        item_id=decided.item_id,
        audit=session.audit.identity,
        reviewer=check_reviewer(body.get("reviewer")),
        action=action,
        label=label,
        first_row=first,
        last_row=last,
        sequence=item.sequence,
        annotator=item.annotator,
        comment=_text(body.get("comment") or "", "comment", MAX_TEXT),
        shown=_shown(session, decided, body),
        probability=decided.probability,
        request=_text(body.get("request"), "request", 100, may_be_empty=False),
    )
    session.store.add(decision, decided)
    return decided


def whole_number(text: Any) -> Any:
    """A number that was written in an address; what is none, or too long to be one, stays as it is, cut short."""
    is_number = isinstance(text, str) and len(text) < 19 and text.isascii() and text.isdigit()
    return int(text) if is_number else text[:MAX_SHOWN] if isinstance(text, str) else text


def check_reviewer(name: Any) -> str:
    """A reviewer's name that is not empty and not too long."""
    text = _text(name, "reviewer", MAX_NAME).strip()
    if not text:
        raise ValueError("A decision must name its reviewer. Write a name into the field at the top.")
    return text


def _unit(session: Session, item: Item, body: Mapping[str, Any]) -> tuple[Item, tuple[int, int]]:
    """What is decided: the item, over its stretch or its marked step, or another step as an item of its own."""
    unit = body.get("unit")
    if unit == "stretch":
        return item, stretch_of(session, item)
    if unit != "step":
        raise ValueError(f"Unknown unit {unit!r}. Choose one of: stretch, step.")
    row = body.get("row", item.target)
    lines = session.audit.lines
    is_row = type(row) is int and 0 <= row < _validation.MAX_ROWS
    index = lines.find(row, item.annotator) if is_row else None
    if index is None or lines.sequence[index] != lines.sequence[target_index(session, item)]:
        raise ValueError(f"A step must be a table row of the item's sequence and annotator. Got {row!r}.")
    if row == item.target:
        return item, (row, row)
    name = hashlib.sha256(f"{session.audit.identity} step {row} {item.annotator}".encode()).hexdigest()[:16]
    split = Item(name, item.audit, "suspect", item.sequence, item.annotator, row, row, target=row)
    return split, (row, row)


def _shown(session: Session, item: Item, body: Mapping[str, Any]) -> str:
    """What was on the screen, as JSON."""
    lines, index = session.audit.lines, target_index(session, item)

    def name(code: int) -> str | None:
        return lines.classes[code] if code >= 0 else None

    shown: dict[str, Any] = {
        "blind": session.is_blind,
        "unit": body.get("unit"),
        "position": item.position,
        "recorded": name(int(lines.recorded[index])),
        "signals": [] if session.signals is None else session.signals.names,
    }
    if not session.is_blind:
        shown |= {"suggested": name(int(lines.suggested[index])), "quality": round(float(lines.right[index]), 6)}
    return json.dumps(shown)


def _text(value: Any, name: str, most: int, *, may_be_empty: bool = True) -> str:
    if not isinstance(value, str) or not (value or may_be_empty):
        raise ValueError(f"The {name} must be a text. Got {type(value).__name__}.")
    if len(value) > most:
        raise ValueError(f"The {name} must have at most {most} characters. Got {len(value)}.")
    return value.encode("utf-8", "replace").decode()


# Run the server of a review on this machine and open its page.


def review(
    folder: Path,
    *,
    reviewer: str = "reviewer",
    port: int | None = None,
    opens_browser: bool = True,
    say: Callable[[str], None] = print,
    **how: Any,
) -> None:
    """Serve the review of an audit's folder until it is stopped, then write review.json.

    Parameters
    ----------
    say : called with the address as soon as the server listens
    how : options of `open_session`
    """
    check_extra()
    with listen(port) as listener:
        session = open_session(folder, reviewer=check_reviewer(reviewer), **how)
        with session.store:
            port = listener.getsockname()[1]
            app, server = make_app(session, port), f"http://{HOST}:{port}"
            say(f"{server}/{app.token}/")
            entry = open_browser(server + app.make_entry()) if opens_browser else None
            try:
                _run(app, listener)
            finally:
                if entry is not None:
                    entry.unlink(missing_ok=True)
                publish(session.audit.folder, summarise(session.audit, session.store))


def check_extra() -> None:
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


def open_browser(address: str) -> Path:
    """Open an address through a file that only its owner can read; where no browser opens, the printed one is enough.

    Every user of the machine can read the command line of a browser, so the address itself must not be there.
    """
    handle, name = tempfile.mkstemp(prefix="labeltide-review-", suffix=".html")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(f'<!doctype html><meta http-equiv="refresh" content="0; url={address}">')
    with suppress(webbrowser.Error, OSError):
        webbrowser.open(Path(name).as_uri())
    return Path(name)


def _run(app: object, listener: socket.socket) -> None:
    import uvicorn

    config = uvicorn.Config(
        app,  # type: ignore[arg-type]
        http=_limited_protocol(),
        backlog=BACKLOG,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        log_level="critical",
        access_log=False,
        lifespan="off",
        server_header=False,
    )
    # uvicorn raises SIGTERM again when it has shut down, and review.json must be written after that.
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))

    async def serve() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: _warn_once(str(context.get("message"))))
        await uvicorn.Server(config).serve(sockets=[listener])

    try:
        asyncio.run(serve())
    except KeyboardInterrupt as stop:
        if type(stop) is not KeyboardInterrupt:  # SIGTERM; Ctrl-C is the usual end
            raise


def _limited_protocol() -> Any:
    """uvicorn's protocol for a limited number of connections; those that send no request are closed."""
    from uvicorn.protocols.http.h11_impl import H11Protocol

    limit = MAX_CONNECTIONS
    with suppress(ImportError):
        import resource  # not on Windows

        limit = min(limit, max(8, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2 - BACKLOG))

    class LimitedProtocol(H11Protocol):
        is_watched = False

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            open_connections[self] = None
            if len(open_connections) > limit:
                _warn_once(f"More than {limit} connections at once: idle ones are closed.")
                idle = next((each for each in open_connections if each.is_idle), self)
                idle.transport.abort()
                del open_connections[idle]
            self.watch(None)

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            open_connections.pop(self, None)

        @property
        def is_idle(self) -> bool:
            return self.cycle is None or bool(self.cycle.response_complete)

        def watch(self, last_request: Any) -> None:
            """Close the connection where no request arrived since the last look and none is being answered."""
            if self.is_watched and self.is_idle and self.cycle is last_request:
                self.transport.close()
            elif not self.transport.is_closing():
                self.is_watched = True
                self.loop.call_later(IDLE_SECONDS, self.watch, self.cycle)

    open_connections: dict[LimitedProtocol, None] = {}  # oldest first
    return LimitedProtocol


@cache
def _warn_once(sentence: str) -> None:
    """One line for each kind of trouble, however often it comes."""
    LOG.warning("%s", sentence)
