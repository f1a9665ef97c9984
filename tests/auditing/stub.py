"""A fit that takes no time, in place of tide: it believes the neighbours of a label, and errs a tenth of the time."""

from types import SimpleNamespace

import numpy as np
import pytest

from labeltide.auditing import fitting, run
from labeltide.auditing.judging import Scores
from labeltide.auditing.resume import UnfinishedAudit
from labeltide.chain.passes import TrainingEvidence
from labeltide.estimators.tide import InferenceResults
from labeltide.inference.bands import Change, NoiseEstimate
from labeltide.inference.conclusion import Diagnostic
from labeltide.inference.temporality import PartTemporality, Temporality


def use_stub(patch: pytest.MonkeyPatch) -> None:
    """Put the stub in place of the fit of every audit."""
    patch.setattr(fitting, "TideClassifier", StubTide)
    patch.setattr(fitting, "plant", lambda *_: ())
    patch.setattr(run, "make_scorer", StubScorer)
    patch.setattr(StubTide, "training_", TrainingEvidence(*[None] * 4), raising=False)
    for name in ("thin_evidence", "thin_for_tests"):
        patch.setattr(fitting, name, lambda training, *_: training)
    for name in ("keep_fit", "keep_findings"):  # a stub has no evidence to keep while an audit runs
        patch.setattr(UnfinishedAudit, name, lambda *_: None)


class StubTide:
    """What an audit of a table asks of an estimator."""

    def __init__(self, **settings):
        vars(self).update(settings)

    def fit(self, features, labels, clock=None, lengths=None, trusted=None, gaps=None, clusters=None):
        assert np.isfinite(features).all()
        assert clusters.shape == (len(features),)
        found = np.unique(labels if trusted is None else np.append(labels.ravel(), trusted.ravel()))
        self.classes_ = found[found >= 0]
        self.clock_ = clock
        self.findings_ = {}
        clocks = np.moveaxis(clock, -1, 0) if clock.ndim == 3 else [clock]
        self.clock_estimates_ = tuple(self._estimate(np.unique(one)[:150]) for one in clocks)
        self.noise_estimate_ = self.clock_estimates_[0]
        self.annotator_estimates_ = (self.noise_estimate_,) * labels.shape[2]
        return self

    _twin, _take_findings = InferenceResults._twin, InferenceResults._take_findings

    def save(self, path):
        path.write_bytes(b"stub")

    def _estimate(self, grid):
        n = len(self.classes_)
        matrices = np.tile(np.eye(n) * 0.9 + 0.1 / n, (len(grid), 1, 1))
        by_class, rate = np.full((len(grid), n), 0.1), np.full(len(grid), 0.1)
        change = Change(0.0, 0.0, 0.1, grid[0], grid[0], 0.1, 0.1)
        bands = [matrices] * 5 + [by_class] * 5 + [rate] * 5
        return NoiseEstimate(grid, *bands, 0.1, 0.0, 0.2, by_class, change, (change,) * n)

    @property
    def temporality_(self):
        change = self.noise_estimate_.change
        each = tuple(PartTemporality(1.0, 0.5, change) for _ in self.classes_)
        own = tuple(PartTemporality(1.0, 0.5, change) for _ in self.annotator_estimates_)
        rates = (0.0, 0.0, 0.1, change.worst_at, change.best_at, 0.1, 0.1)
        return Temporality(1.0, 0.5, *rates, each, 0.01, 0.5, own if len(own) > 1 else ())

    @property
    def clock_temporality_(self):
        return tuple(PartTemporality(1.0, 0.5, one.change) for one in self.clock_estimates_)

    is_noisy_p_ = 0.01

    @property
    def diagnostics_(self):
        return (Diagnostic("drift", True, f"Made up, about {self.classes_[0]}.", "Nothing to do."),)


class StubScorer:
    """Judges by the votes at a step and at the one before it."""

    def __init__(self, estimator, sample, device, powers=None):
        rates = np.full((1, 1, len(estimator.classes_)), 0.1)
        self.judge = SimpleNamespace(error_rates=rates, several=bool(((sample.labels >= 0).sum(-1) > 1).any()))

    def score_windows(self, table, mask):
        votes = (table.labels[..., None] == np.arange(len(table.class_names))).sum(2) + 0.1  # (n, steps, classes)
        votes[:, 1:] += votes[:, :-1]
        chances = (votes / votes.sum(-1, keepdims=True) * mask[..., None]).astype(np.float32)
        return chances, chances

    def score(self, table):
        mask = np.arange(table.labels.shape[1]) < table.lengths[:, None]
        chances = table.from_steps(self.score_windows(table, mask)[0])
        return Scores(chances, chances, chances, np.zeros(len(chances), dtype=np.int64))
