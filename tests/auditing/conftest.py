"""Audits that take no time, for tests of what follows an audit."""

import pytest

from auditing.stub import use_stub


@pytest.fixture
def quick_fit(monkeypatch):
    """A stub in place of the fit."""
    use_stub(monkeypatch)
