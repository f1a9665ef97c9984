"""Audits that take no time, for tests of what follows an audit."""

import pytest

from auditing.stub import StubTide
from labeltide.auditing import fitting
from labeltide.chain.data import TrainingEvidence


@pytest.fixture
def quick_fit(monkeypatch):
    """A stub in place of the fit."""
    monkeypatch.setattr(fitting, "TideClassifier", StubTide)
    monkeypatch.setattr(StubTide, "training_", TrainingEvidence(*[None] * 4), raising=False)
    for name in ("thin_evidence", "thin_for_tests"):
        monkeypatch.setattr(fitting, name, lambda training, *_: training)
