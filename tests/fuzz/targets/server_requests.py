"""Requests to the server of a review: only answers below 500, and nothing invalid in the database."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import sqlite3
import time
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from fuzz.engine import ForbiddenError, Room, Target
from fuzz.request_mutations import PIECE, first_requests, mutate_request, read_request
from labeltide.auditing.decisions import DECISIONS, Decision, DecisionStore
from labeltide.reviewing.app import HEADERS, MAX_BODY, MAX_NAME, Guard, make_app
from labeltide.reviewing.session import Session, open_session
from reviewing.fake_review import HOST, PORT, TOKEN, write_review

SECONDS = 2.0  # of processor time for one answer
MAX_ANSWER = 1 << 22  # bytes
MAX_DECISIONS = 60  # after which the database begins anew


class RefusedError(ValueError):
    """An answer with a status of 4xx; its place is the sentence, without what was sent.

    All that the guard refuses has one location, so that most inputs go on to the application.
    """

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence or str(status))
        words = re.split(r"['\"\[{(0-9]|Got|None|True|False|nan|inf", sentence)[0]
        self.location = "guard" if status in (403, 413) else f"{status} {words}"


@dataclass
class Answer:
    """What the application sent."""

    status: int = 0
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    body: bytes = b""
    n_read: int = 0  # bytes of the request that were taken


@dataclass
class Server:
    """An open review, and the state of its database that was found sound."""

    session: Session
    app: Guard
    reader: sqlite3.Connection
    loop: asyncio.AbstractEventLoop
    counts: tuple[int, ...] = ()
    n_checked: int = 0


def prepare(blind: bool) -> Any:
    def prepare_room(room: Room) -> list[bytes]:
        folder = write_review(room.folder / "audit")
        session = open_session(folder, items=10, sample=20, is_blind=blind)
        session.store.close()
        shutil.copy(folder / DECISIONS, room.folder / "clean.sqlite")
        app, reader = make_app(session, PORT, TOKEN), sqlite3.connect(":memory:")
        room.things["server"] = server = Server(session, app, reader, asyncio.new_event_loop())
        renew(server, room)
        return first_requests()

    return prepare_room


def renew(server: Server, room: Room) -> None:
    """Begin with a database without decisions."""
    server.session.store.close()
    server.reader.close()
    path = server.session.audit.folder / DECISIONS
    for left in ("-journal", "-wal", "-shm"):
        path.with_name(path.name + left).unlink(missing_ok=True)
    shutil.copy(room.folder / "clean.sqlite", path)
    server.session.store = DecisionStore.open(path.parent, create=False)
    server.reader = sqlite3.connect(path)
    server.counts, server.n_checked = count(server.reader), 0


def run(content: bytes, room: Room) -> None:
    """Send one request through guard and application, as uvicorn would."""
    server: Server = room.things["server"]
    if server.n_checked > MAX_DECISIONS:
        renew(server, room)
    scope, messages = read_request(content)
    began = time.process_time()
    answer = server.loop.run_until_complete(_send(server.app, scope, messages))
    seconds = time.process_time() - began
    if seconds > SECONDS:
        raise ForbiddenError(f"an answer took {seconds:.1f} s")
    check_answer(answer)
    check_database(server, is_change=scope["method"] == "POST" and answer.status == 200)
    if server.session.is_blind:
        check_blind(server.session, answer)
    if answer.status >= 400:
        raise RefusedError(answer.status, _sentence(answer))


async def _send(app: Any, scope: dict[str, Any], messages: Any) -> Answer:
    answer = Answer()

    async def receive() -> dict[str, Any]:
        message = next(messages)
        answer.n_read += len(message.get("body", b""))
        return message

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            answer.status, answer.headers = message["status"], list(message["headers"])
        else:
            answer.body += message.get("body", b"")

    try:
        await app(scope, receive, send)
    except ValueError as error:
        if "This is no HTTP" in str(error):  # found in the body, while it was read
            raise
        raise ForbiddenError(f"the application raised {error!r}") from error
    except Exception as error:
        raise ForbiddenError(f"the application raised {error!r}") from error
    return answer


def check_answer(answer: Answer) -> None:
    """A status below 500, the headers of the guard, a sentence where it is refused, and limits of size."""
    own = f"http://{HOST}/{TOKEN}/".encode()
    goes_on = any(name == b"location" and value.lower().startswith(own) for name, value in answer.headers)
    if not (200 <= answer.status < 300 or 400 <= answer.status < 500 or (answer.status == 307 and goes_on)):
        raise ForbiddenError(f"the answer has the status {answer.status}")
    missing = set(HEADERS) - {name.decode() for name, _ in answer.headers}
    if missing:
        raise ForbiddenError(f"the answer lacks the headers {sorted(missing)}")
    if answer.n_read > MAX_BODY + PIECE or len(answer.body) > MAX_ANSWER:
        raise ForbiddenError(f"{answer.n_read} bytes were read, {len(answer.body)} answered")
    if answer.status >= 400 and not _sentence(answer):
        raise ForbiddenError(f"{answer.status} without a sentence")
    if TOKEN.encode() in answer.body and answer.status >= 400:
        raise ForbiddenError("a refusal tells the token")


def _sentence(answer: Answer) -> str:
    try:
        return str(json.loads(answer.body)["error"])
    except (ValueError, KeyError, TypeError):
        return ""


def check_blind(session: Session, answer: Answer) -> None:
    told = [word for word in (b"probability", b'"suspect"', b"item_id") if word in answer.body]
    if answer.headers and told and (b"content-type", b"application/json") in answer.headers:
        raise ForbiddenError(f"a blind answer holds {told}")


def count(reader: sqlite3.Connection) -> tuple[int, ...]:
    undone = "SELECT count(*) FROM decisions WHERE undone_at IS NOT NULL"
    tables = ("items", "decisions", "settings")
    query = ", ".join([*(f"(SELECT count(*) FROM {name})" for name in tables), f"({undone})"])
    return tuple(reader.execute(f"SELECT {query}").fetchone())


def check_database(server: Server, is_change: bool) -> None:
    """A request that is refused or only asks changes nothing; what is kept is sound."""
    counts = count(server.reader)
    if counts != server.counts and not is_change:
        raise ForbiddenError(f"a request that was no change changed the database: {server.counts} to {counts}")
    if counts == server.counts:
        return
    server.counts = counts
    items = {item.item_id: item for item in server.session.store.items()}
    known = server.session.store.all()  # which checks types and ranges
    for decision in known[server.n_checked :]:
        check_decision(server.session, decision, items)
    server.n_checked = len(known)


def check_decision(session: Session, decision: Decision, items: dict[str, Any]) -> None:
    """A decision must be about labels of the audit, with one of its classes, by somebody with a name."""
    lines, item = session.audit.lines, items[decision.item_id]
    indices = [lines.find(row, decision.annotator) for row in (decision.first_row, decision.last_row)]
    sound = {
        "rows": all(index is not None for index in indices),
        "sequence": {lines.sequence_names[lines.sequence[index]] for index in indices} == {decision.sequence},
        "item": (item.sequence, item.annotator) == (decision.sequence, decision.annotator),
        "audit": decision.audit == session.audit.identity,
        "label": decision.label is None or decision.label in session.audit.classes,
        "reviewer": 0 < len(decision.reviewer) <= MAX_NAME and decision.reviewer == decision.reviewer.strip(),
        "shown": isinstance(json.loads(decision.shown), dict),
        "time": datetime.fromisoformat(decision.decided_at).tzinfo is not None,
        "request": bool(decision.request),
    }
    wrong = [name for name, is_sound in sound.items() if not is_sound]
    if wrong:
        raise ForbiddenError(f"a decision was kept with a wrong {', '.join(wrong)}: {decision}")


SERVERS = tuple(
    Target(kind, prepare(blind), run, mutate_request)
    for kind, blind in (("review requests", False), ("review requests, blind", True))
)
