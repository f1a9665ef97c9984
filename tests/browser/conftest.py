"""Debian's chromium, driven by playwright, and pages made from made-up audits."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from auditing.page.fake import HOSTILE, write_audit
from labeltide.auditing.page import write_page

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@dataclass
class Visit:
    """An open page, and everything that it should not have done."""

    page: Any
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="The browser tests need playwright: pip install 'labeltide[dev]'."
    )
    if CHROMIUM is None:
        pytest.skip("The browser tests need chromium: run tests/browser/install.sh.")
    with playwright.sync_playwright() as browsers:
        opened = browsers.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A usual page, one of hostile names, and one with nothing to say."""
    root = tmp_path_factory.mktemp("pages")
    long_names = {"classes": tuple(HOSTILE), "annotators": tuple(HOSTILE[:3]), "names": HOSTILE}
    folders = {
        "plain": write_audit(root / "plain", sequences=10, steps=300),
        "hostile": write_audit(root / "hostile", sequences=9, steps=60, **long_names),
        "quiet": write_audit(root / "quiet", annotators=None, is_noisy=False, is_temporal=False, kind="position"),
    }
    return {name: write_page(folder) for name, folder in folders.items()}


@pytest.fixture
def visit(browser: Any, pages: dict[str, Path]) -> Iterator[Callable[..., Visit]]:
    """A function that opens a page by name; afterwards no complaint and no request may have been made."""
    visits: list[tuple[Visit, Any]] = []

    def open_page(name: str = "plain", width: int = 1200, height: int = 900, **context: Any) -> Visit:
        around = browser.new_context(viewport={"width": width, "height": height}, accept_downloads=True, **context)
        around.set_default_timeout(30_000)
        page = around.new_page()
        made = Visit(page)
        page.on("console", lambda message: made.complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: made.complaints.append(str(error)))
        page.on("request", lambda request: made.requests.append(request.url))
        page.on("dialog", lambda dialog: (made.complaints.append("a dialog"), dialog.dismiss()))
        page.goto(pages[name].as_uri())
        visits.append((made, around))
        return made

    yield open_page
    for made, around in visits:
        assert made.complaints == []
        assert [url for url in made.requests if not url.startswith(("file:", "blob:"))] == []
        assert len([url for url in made.requests if url.startswith("file:")]) == 1
        around.close()
