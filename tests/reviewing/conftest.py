from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from labeltide.reviewing.session import Session
from reviewing.fake_review import Page, open_page, write_review


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_review(tmp_path / "audit")


@pytest.fixture
def opened(folder: Path) -> Iterator[Callable[..., tuple[Session, Page]]]:
    """A function that opens the review of the folder; all are closed afterwards."""
    sessions: list[Session] = []

    def open_review(**how: Any) -> tuple[Session, Page]:
        session, page = open_page(folder, **how)
        sessions.append(session)
        return session, page

    yield open_review
    for session in sessions:
        session.store.close()
