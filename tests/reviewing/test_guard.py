from __future__ import annotations

import pytest

from labeltide.reviewing.app import MAX_BODY, Guard
from reviewing.fake_review import HOST, PORT, TOKEN

OWN = f"http://{HOST}"


def scope(path: str = f"/{TOKEN}/", method: str = "GET", **headers: str) -> dict:
    message = {"host": HOST, **{name.replace("_", "-"): value for name, value in headers.items()}}
    pairs = [(name.encode(), value.encode("latin-1")) for name, value in message.items()]
    return {"type": "http", "path": path, "method": method, "headers": pairs}


@pytest.fixture
def guard() -> Guard:
    return Guard(None, TOKEN, PORT)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "request_",
    [
        scope(),
        scope(sec_fetch_site="none"),
        scope(host=f"localhost:{PORT}", origin=f"http://localhost:{PORT}"),
        scope(origin=OWN, sec_fetch_site="same-origin", method="POST", content_type="application/json"),
    ],
)
def test_the_page_itself_may_pass(guard, request_):
    assert guard.refuse(request_) is None


@pytest.mark.parametrize(
    "request_",
    [
        scope("/"),
        scope(""),
        scope("/wrong/"),
        scope(f"/{TOKEN}x/"),
        scope(f"/x/{TOKEN}/"),
        scope("/\u00e9\ud800/"),
        scope(host="evil.example"),
        scope(host=f"evil.example:{PORT}"),
        scope(host=f"127.0.0.1:{PORT}.evil.example"),
        scope(host="127.0.0.1"),
        scope(host=""),
        scope(origin="http://evil.example"),
        scope(origin="null"),
        scope(origin=f"https://{HOST}"),
        scope(origin=f"http://localhost:{PORT}"),
        scope(sec_fetch_site="cross-site"),
        scope(sec_fetch_site="same-site"),
        scope(method="POST", content_type="application/json"),
        scope(method="POST", origin=OWN, content_type="text/plain"),
        scope(method="POST", origin=OWN),
        scope(method="DELETE", origin=OWN),
    ],
)
def test_all_others_are_refused(guard, request_):
    status, sentence = guard.refuse(request_)
    assert status in (403, 405)
    assert TOKEN not in sentence


def test_two_hosts_or_two_origins_are_refused(guard):
    for name, value in ((b"host", HOST.encode()), (b"origin", OWN.encode())):
        twice = scope(origin=OWN)
        twice["headers"].append((name, value))
        assert guard.refuse(twice) is not None


def test_ten_thousand_forged_requests_are_all_refused(opened):
    session, page = opened()
    forged = [
        {"headers": {"host": "evil.example"}},
        {"headers": {"origin": "http://evil.example"}},
        {"headers": {"sec-fetch-site": "cross-site"}},
        {"token": "wrong"},
    ]
    guard = page.client.app
    for number in range(10_000):
        how = forged[number % len(forged)]
        headers = {name.replace("-", "_"): value for name, value in how.get("headers", {}).items()}
        refused = guard.refuse(scope(f"/{how.get('token', TOKEN)}/api/decide", "POST", **{"origin": OWN} | headers))
        assert refused is not None
    for how in forged:  # and through the whole server
        answer = page.client.post(
            f"/{how.get('token', TOKEN)}/api/undo", json={"reviewer": "Ada"}, headers=how.get("headers")
        )
        assert answer.status_code == 403
    assert session.store.all() == []


def test_answers_forbid_everything_from_elsewhere(opened):
    _, page = opened()
    for path in (f"/{TOKEN}/", f"/{TOKEN}/api/session", f"/{TOKEN}/static/review.js", "/wrong/"):
        headers = page.client.get(path).headers
        assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self';")
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store"
        assert "access-control-allow-origin" not in headers


def test_web_sockets_are_closed(opened):
    from starlette.websockets import WebSocketDisconnect

    _, page = opened()
    with pytest.raises(WebSocketDisconnect), page.client.websocket_connect(f"/{TOKEN}/"):
        pass


def test_a_request_that_is_too_large_is_refused(opened):
    session, page = opened()
    answer = page.decide(0, comment="x" * MAX_BODY)
    assert answer["status"] == 413
    assert "Shorten the comment" in answer["error"]
    assert session.store.all() == []
