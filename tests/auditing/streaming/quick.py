"""A fit that takes no time and judges as tide does: the numbers of one small real fit, told of other rows."""

from functools import cache

import numpy as np

from auditing.stub import StubTide
from labeltide._validation import steps_mask
from labeltide.auditing import fitting, reading, survey
from labeltide.auditing.resume import UnfinishedAudit
from labeltide.data.studies import simulate_study
from labeltide.estimators import TideClassifier
from labeltide.estimators.cross_fit import TrainingRows, digest_rows
from labeltide_bench.tables import read_audit_table

WINDOW = 16


@cache
def study():
    """Five people for two days."""
    return simulate_study(people=5, days=2, seed=3)


@cache
def fitted():
    """One real fit to a few windows of the study."""
    read = read_audit_table(study().slice(0, 400), window=WINDOW)
    estimator = TideClassifier(epochs=1, hidden_size=32, random_state=0, device="cpu", standardize=False)
    return estimator.fit(
        read.features, read.fit_labels, clock=read.clock, lengths=read.lengths, gaps=read.gaps, clusters=read.groups
    )


class QuickTide(TideClassifier):
    """`fit` remembers which rows it saw; networks, chain and noise are those of `fitted`."""

    def fit(self, X, y, clock=None, lengths=None, **more):
        vars(self).update({name: value for name, value in vars(fitted()).items() if name.endswith("_")})
        mask = steps_mask(lengths, X.shape[1])
        folds = int(fitted().training_rows_.folds.max()) + 1
        self.training_rows_ = TrainingRows(digest_rows(X, mask), np.arange(len(X)) % folds)
        stub = StubTide().fit(X, y, clock, lengths, clusters=np.zeros(len(X)))
        names = ("noise_estimate", "annotator_estimates", "temporality", "is_noisy_p", "diagnostics")
        self.findings_ = {name: getattr(stub, f"{name}_") for name in names} | {"warned": True}
        return self

    def save_fit(self, path):
        twin = TideClassifier(**self.get_params())
        vars(twin).update({name: value for name, value in vars(self).items() if name.endswith("_")})
        twin.save_fit(path)

    save = save_fit


KEPT = {name: getattr(UnfinishedAudit, name) for name in ("keep_fit", "keep_findings")}


def fit_quickly(monkeypatch, keep=False):
    """No training; `keep` writes the fit to disk five more times, as real audits do, which can then be resumed."""
    monkeypatch.setattr(fitting, "TideClassifier", QuickTide)
    monkeypatch.setattr(fitting, "plant", lambda *_: ())
    for name in ("thin_evidence", "thin_for_tests"):
        monkeypatch.setattr(fitting, name, lambda training, *_: training)
    for name, usual in KEPT.items():
        monkeypatch.setattr(UnfinishedAudit, name, usual if keep else lambda *_: None)


def stream_quickly(monkeypatch, keep=False):
    """No training, small parts, and every file read in parts."""
    fit_quickly(monkeypatch, keep)
    monkeypatch.setattr(reading, "MAX_ROWS", 100)
    monkeypatch.setattr(reading, "_may_be_large", lambda path: True)
    monkeypatch.setattr(survey, "CHUNK_ROWS", 300)
