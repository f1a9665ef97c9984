"""The demonstration behind `labeltide demo`: a simulated study with known noise, and what two methods make of it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

import labeltide as lt
from labeltide.evaluation import error_rate, frobenius_errors
from labeltide.report.figures import draw_noise

METHODS = ("ignore", "continuous")
CLASS_NAMES = ("resting", "moving")


class DemoRow(NamedTuple):
    """What one method reached."""

    method: str
    error: float  # share of wrong predictions on clean labels of unseen sequences
    noise_error: float  # mean Frobenius distance between the true and the estimated Q


class DemoResult(NamedTuple):
    """The table and the picture of the demonstration."""

    wrong_labels: float
    rows: list[DemoRow]
    picture: Path


def run_demo(out: Path, *, epochs: int = 150, seed: int = 0, verbose: bool = True) -> DemoResult:
    """Simulate, corrupt, fit, compare with the truth and draw Q(t)."""
    study = lt.make_sequences(n=300, n_steps=50, n_features=8, stay=0.9, random_state=seed)
    training, unseen = study.take(np.arange(200)), study.take(np.arange(200, 300))
    noise = lt.make_noise("mixed", n_steps=50, rate=0.3)
    recorded = lt.corrupt(training, noise, random_state=seed)
    true = np.asarray(noise)
    rows, estimates = [], {}
    for name in METHODS:
        method = lt.METHODS[name](epochs=epochs, random_state=seed, verbose=verbose)
        method.fit(recorded.features, recorded.labels)
        error = error_rate(method.predict(unseen.features), unseen.labels[..., 0])
        rows.append(DemoRow(name, error, float(frobenius_errors(true, method.noise_matrices_).mean())))
        estimates[name] = method.noise_matrices_
    picture = out / "noise.png"
    draw_noise(picture, np.linspace(0, 1, len(true)), true, estimates, CLASS_NAMES)
    wrong = float((recorded.labels[..., 0] != training.clean_labels).mean())
    return DemoResult(wrong, rows, picture)
