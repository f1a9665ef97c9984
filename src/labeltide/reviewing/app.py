"""The web application of a review: the page, and JSON for it."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

from labeltide import auditing
from labeltide._files import write_json
from labeltide.reviewing.guard import Guard
from labeltide.reviewing.requests import check_reviewer, decide, whole_number
from labeltide.reviewing.session import Session
from labeltide.reviewing.summary import REVIEW, summarise
from labeltide.reviewing.views import CONTEXT, view_item

KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
PAGE = Path(__file__).parent / "page"
STYLES = Path(auditing.__file__).parent / "page" / "templates"  # the page looks like that of an audit
FILES = {path.name: path for path in PAGE.iterdir() if path.suffix in KINDS} | {
    name: STYLES / name for name in ("page.css", "audit.css")
}

SENTENCES = {404: "There is nothing at this address.", 405: "This address does not answer such a request."}


def make_app(session: Session, port: int, token: str | None = None) -> Guard:
    """The application behind its guard; the token is random where none is passed."""
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route

    def file(name: str) -> Response:
        path = FILES.get(name)
        if path is None:
            return JSONResponse({"error": "There is no such file."}, 404)
        return Response(path.read_bytes(), media_type=KINDS[path.suffix])

    async def page(request: Request) -> Response:
        return file("review.html")

    async def static(request: Request) -> Response:
        return file(request.path_params["name"])

    def answer(work: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[..., Any]:
        """A route: numbers and texts of the query or JSON in, JSON out, errors as sentences."""

        async def route(request: Request) -> Response:
            try:
                if request.method == "POST":
                    body = json.loads(await request.body() or b"{}")
                    asked = body if isinstance(body, dict) else {}
                else:
                    asked = {**request.query_params, **request.path_params}
                return JSONResponse(await in_thread(work, asked))
            except (ValueError, RecursionError, OSError) as error:
                return JSONResponse({"error": str(error)}, 400)

        return route

    async def no_route(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 400
        return JSONResponse({"error": SENTENCES.get(status, "The request cannot be answered.")}, status)

    async def in_thread(work: Callable[[dict[str, Any]], dict[str, Any]], asked: dict[str, Any]) -> dict[str, Any]:
        from starlette.concurrency import run_in_threadpool

        return await run_in_threadpool(work, asked)

    answers = Answers(session)
    routes = [
        Route("/", page),
        Route("/static/{name}", static),
        Route("/api/session", answer(answers.session_info)),
        Route("/api/item/{position}", answer(answers.item)),
        Route("/api/progress", answer(answers.progress)),
        Route("/api/summary", answer(answers.summary)),
        Route("/api/decide", answer(answers.decide), methods=["POST"]),
        Route("/api/undo", answer(answers.undo), methods=["POST"]),
    ]
    return Guard(
        Starlette(routes=routes, exception_handlers={HTTPException: no_route}), token or secrets.token_urlsafe(32), port
    )


class Answers:
    """What each route answers, as plain data."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def session_info(self, asked: dict[str, Any]) -> dict[str, Any]:
        return self.session.describe()

    def item(self, asked: dict[str, Any]) -> dict[str, Any]:
        position, context = whole_number(asked["position"]), whole_number(asked.get("context", CONTEXT))
        return view_item(self.session, position, check_reviewer(asked.get("reviewer")), context)

    def progress(self, asked: dict[str, Any]) -> dict[str, Any]:
        return self.session.progress(check_reviewer(asked.get("reviewer")))

    def decide(self, asked: dict[str, Any]) -> dict[str, Any]:
        item = decide(self.session, asked)
        reviewer = check_reviewer(asked.get("reviewer"))
        return {"progress": self.session.progress(reviewer), **self.session.decisions_on(item, reviewer)}

    def undo(self, asked: dict[str, Any]) -> dict[str, Any]:
        reviewer = check_reviewer(asked.get("reviewer"))
        undone = self.session.store.undo(reviewer)
        positions = {item.item_id: item.position for item in self.session.queue}
        return {
            "undone": None if undone is None else {"action": undone.action, "label": undone.label},
            "position": None if undone is None else positions.get(undone.item_id),
            "progress": self.session.progress(reviewer),
        }

    def summary(self, asked: dict[str, Any]) -> dict[str, Any]:
        """What the review has shown, also written into review.json; nothing of it while the review is blind."""
        found = summarise(self.session.audit, self.session.store)
        write_json(self.session.audit.folder / REVIEW, found)
        if not self.session.is_blind:
            return found
        return {"blind": True, **{name: found[name] for name in ("items", "decisions", "disputed")}}
