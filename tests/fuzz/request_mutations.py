"""Mutations of HTTP requests to the server of a review, and how their bytes are read."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

import h11

from fuzz.mutations import TEXTS, mutate_json
from reviewing.fake_review import HOST, TOKEN

PIECE = 1 << 16  # bytes that come at once
END = b"\r\n\r\n"
OWN = f"http://{HOST}"
LARGE = 10_000_000  # bytes of a large body
METHODS = ["GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT", "get", "X" * 300]
PATHS = ["", "api", "static", "api/session", "api/item/0", "api/progress", "api/summary", "api/decide", "api/undo"]
PARTS = [
    *("..", "%2e%2e", "%00", "%ff", "%C0%AF", "%2F", "", ".", "item", "-1", "0", "29", "30", "1e3", "%D9%A3", "~", ";"),
    *("9" * 19, "9" * 400, "9" * 5000, "review.js", "decisions.sqlite", "a" * 3000, "%ED%A0%80", TOKEN, f"{TOKEN}%00"),
]
QUERIES = [
    *("reviewer=Ada", "reviewer=", "reviewer=%ff", "reviewer=%00", "reviewer=%ED%A0%80", f"reviewer={'x' * 300}"),
    *("context=60", "context=0", "context=-1", "context=1e3", "context=NaN", f"context={'9' * 5000}", "context=60.0"),
    *("position=0", "reviewer=Ada&reviewer=Ben", "%", "=", "a=b&" * 2000, "context=1000&reviewer=%E2%80%AE", "&&&"),
    "context=%D9%A6%D9%A0",
]
HEADER_VALUES = {
    "host": [HOST, "evil.example", "", HOST.upper(), "localhost:8765"],
    "origin": [OWN, "null", "http://evil.example", f"{OWN}/", ""],
    "sec-fetch-site": ["cross-site", "same-origin", "none"],
    "content-type": ["application/json", "text/plain", "application/json; x=\xff"],
    "cookie": ["token=x", "=;=;\xff\xfe" * 200, f"secret={TOKEN}"],
    "content-length": ["0", "99999999999"],
    "transfer-encoding": ["chunked"],
    "expect": ["100-continue"],
    "upgrade": ["websocket"],
    "connection": ["upgrade"],
    "accept": ["\xe9" * 5000],
    "range": ["bytes=0-0,-1"],
    "x-forwarded-host": ["evil.example"],
    "forwarded": ["host=evil.example"],
    "x-http-method-override": ["DELETE"],
    "x" * 500: ["y"],
}
VALUES: dict[str, list[Any]] = {
    "position": [0, 1, 29, 30, -1, 2**63, 10**30, 0.0, 5.5, "0", None, True],
    "action": ["label", "keep", "skip", "Label", "", ["keep"], None, 0],
    "class": [0, 1, 2, 3, -1, True, "walk", 10**400, 1.0, None],
    "unit": ["stretch", "step", "all", None, ["step"], {}],
    "row": [*range(0, 720, 37), -1, 719, 720, 2**31, 2**63, 2**64, 10**30, 10**4000, 1.0, True, "3", None, []],
    "reviewer": ["Ada", "Ben", " Ada ", "", " ", "\x00", "\ud800", "x" * 200, "x" * 201, "=1+1", "\u200b", 7, None],
    "comment": ["", "late", "\ud800", "\x00", "x" * 10_000, "x" * 10_001, "<b>", 7, [], None, False],
    "request": ["once", "", "\ud800", "x" * 100, "x" * 101, None, 5, {}],
}


def first_requests() -> list[bytes]:
    """Sound requests, from which others are made."""
    decision = {"position": 0, "action": "keep", "unit": "step", "reviewer": "Ada", "request": "first"}
    bodies = [
        ("api/decide", decision),
        ("api/decide", decision | {"action": "label", "class": 1, "unit": "stretch", "comment": "late"}),
        ("api/decide", decision | {"row": 4}),
        ("api/decide", decision | {"row": 4, "comment": "x" * 10_001}),
        ("api/undo", {"reviewer": "Ada"}),
    ]
    gets = ["", "static/review.js", "api/session", "api/item/3?reviewer=Ada&context=60", "api/progress?reviewer=Ada"]
    gets += ["api/item/" + "9" * 5000]
    found = [join(f"GET /{TOKEN}/{path} HTTP/1.1", [("host", HOST)], b"") for path in (*gets, "api/summary")]
    own = [("host", HOST), ("origin", OWN), ("content-type", "application/json")]
    return found + [join(f"POST /{TOKEN}/{path} HTTP/1.1", own, json.dumps(body).encode()) for path, body in bodies]


def join(line: str, headers: list[tuple[str, str]], body: bytes) -> bytes:
    """A request as bytes; its length is said where it is read, so that a changed body stays whole."""
    lines = [line, *(f"{name}: {value}" for name, value in headers)]
    return "\r\n".join(lines).encode("latin-1", "replace") + END + body


def split(content: bytes) -> tuple[str, list[tuple[str, str]], bytes]:
    """The first line, the headers and the body."""
    head, _, body = content.partition(END)
    line, *rest = head.decode("latin-1").split("\r\n")
    pairs = [header.partition(": ") for header in rest]
    return line, [(name, value) for name, _, value in pairs], body


def mutate_request(draw: random.Random, content: bytes, room: object) -> bytes | None:
    """Another method, path, query, header or body; None where bytes are to be mutated."""
    line, headers, body = split(content)
    words = line.split(" ")
    kind = draw.random()
    if kind < 0.08 or len(words) != 3:
        return None
    if kind < 0.12:
        words[0] = draw.choice(METHODS)
    elif kind < 0.22:
        words[1] = _other_path(draw, words[1])
    elif kind < 0.32:
        words[1] = words[1].partition("?")[0] + "?" + "&".join(draw.choices(QUERIES, k=draw.choice([1, 2])))
    elif kind < 0.42:
        headers = _other_headers(draw, headers)
    elif body:
        body = _other_body(draw, body)
    return join(" ".join(words), headers, body)


def _other_path(draw: random.Random, path: str) -> str:
    if draw.random() < 0.4:
        return f"/{TOKEN}/{draw.choice(PATHS)}"
    parts = path.split("/")
    index = draw.randrange(len(parts))
    how = draw.randrange(3)
    parts[index : index + (how > 0)] = [] if how == 2 else [draw.choice(PARTS)]
    return "/".join(parts)


def _other_headers(draw: random.Random, headers: list[tuple[str, str]]) -> list[tuple[str, str]]:
    name = draw.choice(list(HEADER_VALUES))
    value = draw.choice(HEADER_VALUES[name])
    kept = headers if draw.random() < 0.3 else [header for header in headers if header[0] != name]
    return [*kept, (name, value)] if draw.random() < 0.85 else kept


def _other_body(draw: random.Random, body: bytes) -> bytes:
    kind = draw.random()
    if kind < 0.01:
        return draw.choice([b"[", b"9", b" ", b'{"a":', b"\xff", b'"x']) * draw.choice([PIECE // 4, LARGE // 4])
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError):
        return draw.choice([b"", b"null", b"{", b"[]", b"7", b'"a"', b'{"reviewer": "Ada"}'])
    if isinstance(asked, dict) and kind < 0.7:
        for name in draw.sample(list(VALUES), draw.choice([1, 1, 2, 4])):
            asked[name] = draw.choice(VALUES[name])
        if draw.random() < 0.7:
            asked["request"] = str(draw.random())
    else:
        asked = mutate_json(draw, asked)
    text = json.dumps(asked)
    if kind > 0.95:
        text = text.replace("{", '{"position": 1, "reviewer": ' + json.dumps(draw.choice(TEXTS)) + ", ", 1)
    return text.encode("utf-16" if kind > 0.99 else "utf-8")


def read_request(content: bytes) -> tuple[dict[str, Any], Iterator[dict[str, Any]]]:
    """The scope and the messages that uvicorn makes of a request; a ValueError where it answers 400 itself."""
    events = _events(_with_length(content))
    request = next(events)
    if not isinstance(request, h11.Request):
        raise ValueError("The request is not whole.")
    path, _, query = request.target.partition(b"?")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": request.http_version.decode(),
        "server": ("127.0.0.1", 8765),
        "client": ("127.0.0.1", 40000),
        "scheme": "http",
        "method": request.method.decode("ascii"),
        "root_path": "",
        "path": unquote(path.decode("ascii")),
        "raw_path": path,
        "query_string": query,
        "headers": list(request.headers),
    }
    return scope, _messages(events)


def _with_length(content: bytes) -> bytes:
    head, end, body = content.partition(END)
    is_said = any(name in head.lower() for name in (b"\ncontent-length:", b"\ntransfer-encoding:"))
    return content if is_said or not body else head + b"\r\ncontent-length: %d" % len(body) + end + body


def _events(content: bytes) -> Iterator[Any]:
    """What h11 reads; it ends where more would have to come."""
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=PIECE)
    indices = iter(range(0, len(content), PIECE))
    try:
        while True:
            event = connection.next_event()
            if event is h11.NEED_DATA:
                index = next(indices, None)
                if index is None:
                    break
                connection.receive_data(content[index : index + PIECE])
                continue
            yield event
            if isinstance(event, h11.EndOfMessage) or event is h11.PAUSED:
                return
    except h11.RemoteProtocolError as error:
        raise ValueError(f"This is no HTTP: {error}") from None
    yield None


def _messages(events: Iterator[Any]) -> Iterator[dict[str, Any]]:
    for event in events:
        if isinstance(event, h11.Data):
            yield {"type": "http.request", "body": bytes(event.data), "more_body": True}
        elif isinstance(event, h11.EndOfMessage):
            yield {"type": "http.request", "body": b"", "more_body": False}
    while True:
        yield {"type": "http.disconnect"}
