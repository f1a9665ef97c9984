"""Made-up records of the paper's studies at its own levels: its published accuracies with a little noise."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from labeltide.noise.simulate import LEVELS, make_noise
from labeltide_bench.evaluation import average_rate
from labeltide_bench.pages.paper.sources import CORRECTIONS, FIGURES, MAE, SHAPES, SIX, STATIC_STUDY, figure_values

Record = dict[str, Any]
DATASETS = {figure.dataset: figure.classes for figure in FIGURES}
SUBSTITUTES = ("senior", "sleeping", "sleeping, 3 classes")
STEPS = 20
COLLAPSED = ("synthetic, 3 classes", "static", 0, "continuous")  # as happened once


def write_studies(root: Path, draws: int = 2, shift: float = 0.0) -> list[Path]:
    """Four folders of records: figures, tables, static study and annotators; accuracies are off by `shift` points."""
    studies = {
        "figures": _figures(draws, shift),
        "tables": _tables(draws),
        "static": _static(draws, shift),
        "annotators": _annotators(),
    }
    for name, records in studies.items():
        (root / name).mkdir(parents=True)
        (root / name / "records.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return [root / name for name in studies]


def _figures(draws: int, shift: float) -> Iterator[Record]:
    for dataset in DATASETS:
        for shape in SHAPES:
            for percent in LEVELS[shape]:
                for method in (*SIX, "tide"):
                    for draw in range(draws):
                        yield _drawn(dataset, shape, percent / 100, method, draw, shift)


def _tables(draws: int) -> Iterator[Record]:
    for dataset in ("moving", "senior", "blinking", "sleeping", "blinking, by time"):
        for shape, rate in (("mixed", 0.29), ("periodic", 0.3)):
            for method in (*SIX, "tide", "continuous (paper's code)"):
                for draw in range(draws):
                    yield _drawn(dataset, shape, rate, method, draw, 0) | _curves(shape, rate)


def _static(draws: int, shift: float) -> Iterator[Record]:
    for shape in SHAPES:
        for percent in LEVELS[shape]:
            for method in CORRECTIONS.values():
                for draw in range(draws):
                    made = _drawn("synthetic", shape, percent / 100, method, draw, shift, STATIC_STUDY)
                    estimator = "ignore" if method == "no correction" else "known"
                    yield made | {"estimator": estimator} | _curves(shape, percent / 100)


def _annotators() -> Iterator[Record]:
    for annotator in ("A", "B"):
        for method in ("ignore", "volmin", "discontinuous", "continuous", "tide"):
            for draw in range(2):
                made = _drawn("moving", "mixed", 0.29, method, draw, 0)
                level = {"dataset": "gaze", "shape": "recorded", "level": {"annotator": annotator}}
                yield made | level | {"variant": "recorded", "observed_change": 0.1} | _curves("mixed", 0.29)


def _curves(shape: str, rate: float) -> Record:
    true = np.asarray(make_noise(shape, 2, STEPS, rate), dtype=float)
    return {
        "clock": np.linspace(0, 1, STEPS).tolist(),
        "true_noise": true.tolist(),
        "noise": (0.9 * true + 0.05).tolist(),
    }


_RATES: dict[tuple[str, int, float], float] = {}


def _rate(shape: str, classes: int, rate: float) -> float:
    key = (shape, classes, rate)
    if key not in _RATES:
        _RATES[key] = average_rate(make_noise(shape, classes, 100, rate))
    return _RATES[key]


_NEAREST: dict[tuple[str, str, str], list[tuple[float, float]]] = {}


def _published(file: str, shape: str, method: str, percent: float) -> float:
    """The paper's value nearest to a level; NaN where the figure has no such method."""
    key = (file, shape, method)
    if key not in _NEAREST:
        values = [v for v in figure_values()[file] if v.shape == shape and v.method == method]
        _NEAREST[key] = [(v.wrong_percent, v.value) for v in values]
    return min(_NEAREST[key], key=lambda pair: abs(pair[0] - percent))[1] if _NEAREST[key] else np.nan


def _drawn(dataset: str, shape: str, rate: float, method: str, draw: int, shift: float, file: str = "") -> Record:
    base = dataset if dataset in DATASETS else dataset.split(",")[0]
    classes = DATASETS[base]
    actual = _rate(shape, classes, rate)
    accuracy_file = file or next(
        f.file for f in FIGURES if f.dataset == base and f.measure != MAE and f.file != STATIC_STUDY
    )
    error_file = next((f.file for f in FIGURES if f.dataset == base and f.measure == MAE), "")
    plain = method.split(" (")[0]
    accuracy = _published(accuracy_file, shape, plain, 100 * actual)
    if np.isnan(accuracy):
        accuracy = 99.0  # tide, which the paper does not have
    if (base, shape, rate, method) == COLLAPSED:
        accuracy = 33.5
    absolute = _published(error_file, shape, plain, 100 * actual) if not file else 0.0
    absolute = 1.5 if np.isnan(absolute) else absolute
    wobble = np.random.default_rng([draw, len(method), round(1000 * rate), ord(shape[0])]).normal(0, 0.3)
    return {
        "format": 1,
        "dataset": dataset,
        "dataset_info": {
            "faithful": dataset not in SUBSTITUTES,
            "split": "made up",
            "n_train": 137,
            "n_test": 55,
            "n_steps": STEPS,
            "n_features": 9,
            "classes": [f"class {code}" for code in range(classes)],
        },
        "shape": shape,
        "level": {"rate": rate},
        "rate": actual,
        "variant": "uniform",
        "method": method,
        "draw": draw,
        "metrics": {
            "test_error": 1 - min(accuracy + shift + wobble, 100) / 100,
            "train_error": 0.1,
            "frobenius": 2 * absolute / 100,
            "absolute": absolute / 100,
        },
    }
