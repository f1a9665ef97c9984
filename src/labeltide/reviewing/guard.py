"""Who may speak to the server: only a page of its own, on this machine, that knows the token."""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING
from urllib.parse import unquote

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_BODY = 1 << 16  # bytes of a request
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


class Guard:
    """Middleware that refuses every request but those of the page itself.

    The Host must be this server (else a name that is made to point here, DNS rebinding, could read the page). The
    Origin, where there is one, must be this server too, and a POST must have one. Sec-Fetch-Site must not be another
    site. The first part of the path must be the token, compared in constant time.

    Parameters
    ----------
    app : what answers the requests that pass, with the token as root of their path
    token : random text
    port : the port of the server
    """

    def __init__(self, app: ASGIApp, token: str, port: int) -> None:
        self.app = app
        self.token = token
        self.hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # a web socket, which no page of ours opens: refused with 403
            await send({"type": "websocket.close", "code": 1008})
            return
        refusal = self.refuse(scope)
        if refusal is not None:
            await _answer(send, *refusal)
            return
        body = await _read_body(receive) if scope["method"] == "POST" else b""
        if body is None:
            await _answer(send, 413, f"A request must have at most {MOST_BODY} bytes. Shorten the comment.")
            return
        await self.app(_below(scope, self.token), _replay(body), _with_headers(send))

    def refuse(self, scope: Scope) -> tuple[int, str] | None:
        """The status and sentence with which a request is refused; None where it may pass."""
        headers = [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in scope["headers"]]
        hosts = [value for name, value in headers if name == "host"]
        origins = [value for name, value in headers if name == "origin"]
        sites = [value for name, value in headers if name == "sec-fetch-site"]
        if len(hosts) != 1 or hosts[0].lower() not in self.hosts:
            return 403, "Refused: the request names another host."
        if any(origin.lower() != f"http://{hosts[0].lower()}" for origin in origins) or len(origins) > 1:
            return 403, "Refused: the request comes from another site."
        if any(site not in ("same-origin", "none") for site in sites):
            return 403, "Refused: the request comes from another site."
        given = unquote(scope["path"]).split("/")[1:2]
        if not given or not secrets.compare_digest(given[0].encode("utf-8", "replace"), self.token.encode()):
            return 403, "Refused: the address lacks the token. Open the address that labeltide review printed."
        if scope["method"] not in ("GET", "POST"):
            return 405, "Only GET and POST are answered."
        if scope["method"] == "POST":
            kinds = [value for name, value in headers if name == "content-type"]
            if not origins or [kind.split(";")[0].strip().lower() for kind in kinds] != ["application/json"]:
                return 403, "Refused: a change must come from the page itself, as JSON."
        return None


def _below(scope: Scope, token: str) -> Scope:
    """The request as the app sees it: with the token as the root of its path."""
    return {**scope, "root_path": f"/{token}"}


async def _read_body(receive: Receive) -> bytes | None:
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return b""
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > MOST_BODY:
            return None
        if not message.get("more_body"):
            return b"".join(parts)


def _replay(body: bytes) -> Receive:
    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    return receive


def _with_headers(send: Send) -> Send:
    async def add(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", []), *_encoded(HEADERS)]
        await send(message)

    return add


async def _answer(send: Send, status: int, sentence: str) -> None:
    body = json.dumps({"error": sentence}).encode()
    headers = _encoded({**HEADERS, "content-type": "application/json", "content-length": str(len(body))})
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _encoded(headers: dict[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode()) for name, value in headers.items()]
