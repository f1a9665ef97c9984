"""Fit and judge a table of any size: what is costly has a limit, and where it was met is said."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

from labeltide._validation import UnanswerableError
from labeltide.auditing.table import AuditTable
from labeltide.estimators import TideClassifier
from labeltide.estimators.fleet import as_array
from labeltide.inference.audit import LabelAudit
from labeltide.inference.diagnostics import NoiseWarning

EPOCHS, HIDDEN_SIZE = 60, 32
USUAL_STEPS = 100_000  # of a table; a larger one may take longer, and the limits below grow with the root of its size
MOST_PATIENCE = 4.0
UPDATES = 800_000  # steps of windows that one network may see in training, over all epochs
LEAST_EPOCHS = 10
TRAINING_STEPS = 60_000  # steps of windows that are learned from; all others are judged by the networks' average
INFERENCE_STEPS = 10_000  # steps of windows from which bands and checks are computed
TEST_STEPS = 2_500  # and tests, which fit hundreds of simulated studies
AT_ONCE = 100_000  # steps of windows that are judged together


def patience(table: AuditTable) -> float:
    """How much larger the limits are for this table than for one of usual size."""
    return float(np.clip(np.sqrt(len(table.place) / USUAL_STEPS), 1, MOST_PATIENCE))


def choose_windows(table: AuditTable, seed: int) -> np.ndarray:
    """The windows to learn from, in their order: all, or some drawn by chance among those with labels."""
    labelled = np.asarray((table.fit_labels >= 0).any((1, 2)))
    if labelled.sum() < 2:
        raise UnanswerableError(
            "An audit judges one stretch of labels by others, so it needs labels in at least two sequences or windows. "
            f"Got them in {int(labelled.sum())}. Name a shorter window (--window STEPS), or give more data."
        )
    most = max(2, int(TRAINING_STEPS * patience(table)) // table.index.shape[1])
    if len(labelled) <= most:
        return np.arange(len(labelled))
    chosen = np.random.default_rng([seed, 9]).permutation(np.flatnonzero(labelled))[:most]
    missing = set(range(len(table.class_names))) - set(np.unique(table.fit_labels[chosen]).tolist())
    rare = [np.flatnonzero((table.fit_labels == code).any((1, 2)))[:2] for code in sorted(missing)]
    return np.unique(np.concatenate([chosen, *rare]))


def choose_epochs(table: AuditTable, windows: np.ndarray) -> int:
    """The usual number of epochs, or fewer where each is long."""
    steps = len(windows) * table.index.shape[1]
    return min(EPOCHS, max(LEAST_EPOCHS, int(UPDATES * patience(table)) // steps))


def fit(
    table: AuditTable, windows: np.ndarray, *, model: str, seed: int, device: str, checkpoint: Path | None
) -> TideClassifier:
    """Learn from the chosen windows; classes are codes until `name_classes`."""
    estimator = TideClassifier(
        model=model,
        hidden_size=HIDDEN_SIZE,
        epochs=choose_epochs(table, windows),
        period=table.clocks[0].period if len(table.clocks) == 1 else tuple(clock.period for clock in table.clocks),
        device=device,
        checkpoint=checkpoint,
        random_state=seed,
    )
    trusted = None if table.fit_trusted is None else table.fit_trusted[windows]
    labels, clock, lengths = table.fit_labels[windows], table.clock[windows], table.lengths[windows]
    gaps = None if table.gaps is None else table.gaps[windows]
    estimator.fit(table.features[windows], labels, clock=clock, lengths=lengths, trusted=trusted, gaps=gaps)
    whose = torch.from_numpy(table.groups[windows])  # windows of one person are alike, so bands redraw people
    estimator.training_ = estimator.training_._replace(clusters=whose)
    return estimator


def judge(estimator: TideClassifier, table: AuditTable, fdr: float, on_share: Any = None) -> LabelAudit:
    """Judge all windows, some at a time; each label counts in the window to which it belongs."""
    rows = max(1, AT_ONCE // table.index.shape[1])
    parts = []
    for start in range(0, len(table.index), rows):
        part = slice(start, start + rows)
        trusted = None if table.trusted is None else table.trusted[part]
        more = {"trusted": trusted, "gaps": None if table.gaps is None else table.gaps[part]}
        found = estimator.audit(
            table.features[part], table.labels[part], table.clock[part], table.lengths[part], fdr, **more
        )
        parts.append(found)
        if on_share:
            on_share(min(1.0, (start + rows) / len(table.index)))
    names = ("mask", "probabilities", "signal", "error_rates", "clock")
    joined = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    classes = as_array([table.class_names[int(code)] for code in estimator.classes_])
    codes = np.append(np.searchsorted(estimator.classes_, np.arange(len(table.class_names))), -1).astype(np.int8)
    labels = codes[table.fit_labels]
    return LabelAudit(classes=classes, labels=labels, fdr=fdr, has_annotators=True, trusted=table.fit_trusted, **joined)


def name_classes(estimator: TideClassifier, table: AuditTable) -> None:
    """Give the estimator the user's own names for classes, which it learned as codes."""
    estimator.classes_ = as_array([table.class_names[int(code)] for code in estimator.classes_])


def thin_evidence(estimator: TideClassifier, seed: int, steps: int) -> int:
    """Keep windows of about so many steps for bands or tests; how many there were before, or 0 where all are kept."""
    training = estimator.training_
    data = training.data
    n_rows, n_steps = data.mask.shape
    most = max(20, steps // n_steps)
    if n_rows <= most:
        return 0
    chosen = torch.from_numpy(np.sort(np.random.default_rng([seed, 10]).permutation(n_rows)[:most]))
    estimator.training_ = training._replace(
        data=data.take_rows(chosen),
        folds=training.folds[:, chosen],
        clusters=None if training.clusters is None else training.clusters[chosen],
    )
    return n_rows


def infer(estimator: TideClassifier, table: AuditTable, seed: int, on_share: Any = None) -> list[str]:
    """Compute bands, checks and tests, and say what was limited; what checks warn of is said on the page."""
    limits = {"clock_estimates_": INFERENCE_STEPS, "diagnostics_": INFERENCE_STEPS}
    limits |= {"clock_temporality_": TEST_STEPS, "is_noisy_p_": TEST_STEPS}
    titles = {"clock_estimates_": "Bands and checks", "clock_temporality_": "Tests"}
    said = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoiseWarning)
        for place, (name, steps) in enumerate(limits.items()):
            before = thin_evidence(estimator, seed, int(steps * patience(table)))
            if before and name in titles:
                kept = len(estimator.training_.data.mask)
                said.append(f"{titles[name]} rest on {kept} of {before} windows, drawn by chance.")
            getattr(estimator, name)
            if on_share:
                on_share((place + 1) / len(limits))
    if len(table.clocks) > 1:
        moments = " by ".join(str(len(found.clock)) for found in estimator.clock_estimates_)
        said.append(f"The clocks are rounded, so that Q is learned at {moments} moments.")
    return said
