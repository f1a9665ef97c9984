"""Made-up records, so that the page can be tested without training anything."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

Record = dict[str, Any]


def _rates(shape: str, points: int) -> np.ndarray:
    """The share of wrong labels of two classes, of shape (points, 2)."""
    clock = np.linspace(0, 1, points)
    up = 0.1 + 0.4 * clock
    return np.stack([up[::-1], up] if shape == "mixed" else [up, up], axis=1)


def _matrices(rates: np.ndarray, n_classes: int) -> np.ndarray:
    rates = np.resize(rates.T, (n_classes, len(rates))).T  # (points, classes)
    matrices = np.repeat(rates[..., None] / (n_classes - 1), n_classes, axis=-1)
    matrices[:, range(n_classes), range(n_classes)] = 1 - rates
    return matrices


@pytest.fixture(scope="session")
def record() -> Callable[..., Record]:
    """A function that makes one record; names given to it replace the record's own."""

    def make(n_classes: int = 2, error: float = 0.1, points: int = 8, **changes: Any) -> Record:
        shape = changes.get("shape", "mixed")
        true = _matrices(_rates(shape, points), n_classes)
        made = {
            "format": 1,
            "dataset": "moving",
            "dataset_info": {
                "faithful": True,
                "note": "UCI HAR",
                "split": "official subjects",
                "n_train": 137,
                "n_test": 55,
                "n_steps": points,
                "n_features": 9,
                "classes": ["walking", "still", "sitting", "lying"][:n_classes],
            },
            "shape": shape,
            "level": {"rate": 0.3},
            "rate": 0.3,
            "variant": "uniform",
            "method": "continuous",
            "draw": 0,
            "seed": 0,
            "settings": {"epochs": 3},
            "versions": {"labeltide": "0.1.0"},
            "commit": "0123456789abcdef",
            "device": "cpu",
            "fleet": 10,
            "seconds": 2.5,
            "metrics": {
                "test_error": error,
                "train_error": error,
                "balanced_test_error": error,
                "frobenius": error / 2,
                "absolute": error / 4,
                "wrong_labels": 0.3,
            },
            "over_time": {name: [error] * points for name in ("test_error", "frobenius", "absolute")},
            "clock": np.linspace(0, 1, points).tolist(),
            "true_noise": true.tolist(),
            "noise": (0.9 * true + 0.1 / n_classes).tolist(),
            "a key from the future": [1, 2],
        }
        return made | changes

    return make


@pytest.fixture(scope="session")
def study(record) -> Callable[..., list[Record]]:
    """A function that makes the records of a small study with errors drawn at random."""

    def make(methods: Iterable[str], draws: int = 3, **changes: Any) -> list[Record]:
        random = np.random.default_rng(len(str(changes)))
        return [
            record(method=method, draw=draw, error=round(random.uniform(0.02, 0.4), 4), **changes)
            for method in methods
            for draw in range(draws)
        ]

    return make


@pytest.fixture
def write(tmp_path) -> Callable[..., Path]:
    """A function that writes records to a results folder."""

    def make(records: Iterable[Record], tail: str = "") -> Path:
        lines = "".join(json.dumps(made) + "\n" for made in records)
        (tmp_path / "records.jsonl").write_text(lines + tail, encoding="utf-8")
        return tmp_path

    return make
