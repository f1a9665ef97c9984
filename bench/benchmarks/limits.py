"""Where no method can help: more than half wrong, a feature that holds the label, nothing that identifies Q.

    python bench/benchmarks/limits.py      # writes bench/results/limits/limits.jsonl and .md

Simulated studies of 150 training and 100 test sequences of 40 steps with two classes, networks trained for 60 epochs.
Errors are on clean test labels. `ignore` stops early; "clean labels" is the same network trained on the truth. Nothing
was tuned on these draws.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import labeltide as lt

RESULTS = Path(__file__).parents[1] / "results" / "limits"
N, N_TRAIN, STEPS, DRAWS, EPOCHS = 250, 150, 40, 8, 60


class SimulatedStudy(NamedTuple):
    """Features, recorded, true and trusted labels of all sequences."""

    features: np.ndarray  # (n, steps, features)
    recorded: np.ndarray  # (n, steps)
    truth: np.ndarray  # (n, steps)
    trusted: np.ndarray  # (n, steps), -1 where the label was not checked


def persistent(rate: float) -> Callable[[int], SimulatedStudy]:
    """Labels that stay with probability .9, four features."""
    return lambda seed: _record(lt.make_sequences(N, STEPS, 4, stay=0.9, random_state=seed), rate, seed)


def weak(rate: float) -> Callable[[int], SimulatedStudy]:
    """Labels drawn anew at every step, two features that hardly tell the classes apart."""
    return lambda seed: _record(lt.make_sequences(N, STEPS, 2, random_state=seed, variance=8.0), rate, seed)


def leaking(seed: int) -> SimulatedStudy:
    """The recorded label is also one of the features."""
    study = persistent(0.3)(seed)
    return study._replace(features=np.concatenate([study.features, study.recorded[..., None]], -1).astype(np.float32))


def checked(seed: int) -> SimulatedStudy:
    """60 % wrong, and a tenth of the labels is known to be right; `tide` alone is told which."""
    study = persistent(0.6)(seed)
    chosen = np.random.default_rng(seed).random(study.truth.shape) < 0.1
    return study._replace(trusted=np.where(chosen, study.truth, -1))


def _record(study: lt.Sequences, rate: float, seed: int) -> SimulatedStudy:
    assert study.clean_labels is not None
    noise = lt.FixedNoise([[1 - rate, rate], [rate, 1 - rate]])
    truth = study.clean_labels
    return SimulatedStudy(study.features, lt.corrupt(truth, noise, seed), truth, np.full_like(truth, -1))


SCENARIOS: dict[str, Callable[[int], SimulatedStudy]] = {
    "30 % wrong, labels persist": persistent(0.3),
    "60 % wrong, labels persist": persistent(0.6),
    "60 % wrong, labels persist, a tenth trusted": checked,
    "30 % wrong, a feature holds the recorded label": leaking,
    "30 % wrong, labels do not persist, weak features": weak(0.3),
    "none wrong, labels do not persist, weak features": weak(0.0),
}


def records() -> Iterator[dict[str, Any]]:
    for scenario, draw in SCENARIOS.items():
        for seed in range(DRAWS):
            yield {"scenario": scenario, "draw": seed, **measure(draw(seed), seed)}


def measure(study: SimulatedStudy, seed: int) -> dict[str, Any]:
    """Errors of tide, of ignoring the noise and of clean labels; the share of wrong labels that tide estimates."""
    train, test = (
        SimulatedStudy(*(values[part] for values in study)) for part in (slice(N_TRAIN), slice(N_TRAIN, None))
    )
    settings: dict[str, Any] = {"epochs": EPOCHS, "random_state": seed, "device": "cpu"}
    tide = lt.TideClassifier(**settings).fit(train.features, train.recorded, trusted=train.trusted)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", lt.NoiseWarning)
        warned = [diagnostic.name for diagnostic in tide.diagnostics_ if diagnostic.is_warning]
    ignore, clean = (
        lt.IgnoreClassifier(early_stopping=True, **settings).fit(train.features, labels)
        for labels in (train.recorded, train.truth)
    )
    errors = {
        name: round(1 - method.score(test.features, test.truth), 4)
        for name, method in (("tide", tide), ("ignore", ignore), ("clean labels", clean))
    }
    estimated = 1 - np.diagonal(tide.noise_matrices_, axis1=1, axis2=2).mean()
    wrong = (train.recorded != train.truth).mean()
    return {"wrong": round(float(wrong), 4), "estimated": round(float(estimated), 4), **errors, "warned": warned}


def write_page(results: list[dict[str, Any]]) -> str:
    words = " ".join((__doc__ or "").split("\n\n")[2].split())
    heads = ("wrong", "estimated", "tide", "ignore", "clean labels")
    lines = ["# Where no method can help", "", f"`python bench/benchmarks/limits.py`, {DRAWS} draws each. {words}", ""]
    lines += [f"| study | {' | '.join(heads)} | checks of `diagnostics_` that warn |", "|---|--:|--:|--:|--:|--:|---|"]
    for scenario in SCENARIOS:
        draws = [record for record in results if record["scenario"] == scenario]
        cells = [f"{100 * np.mean([record[head] for record in draws]):.1f} %" for head in heads]
        names = sorted({name for record in draws for name in record["warned"]})
        warned = [f"{name} in {sum(name in record['warned'] for record in draws)}" for name in names]
        lines.append(f"| {scenario} | {' | '.join(cells)} | {', '.join(warned) or 'none'} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    every = list(records())
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "limits.jsonl").write_text("".join(json.dumps(record) + "\n" for record in every))
    (RESULTS / "limits.md").write_text(write_page(every))
    print(write_page(every))
