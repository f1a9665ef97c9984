"""Serialization of noise estimates, tests and diagnostics: to lists and numbers for JSON, and back."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np

from labeltide.inference.audit import QUALITY_GRID
from labeltide.inference.bands import Change, NoiseEstimate
from labeltide.inference.conclusion import Diagnostic
from labeltide.inference.score_tests import METHODS
from labeltide.inference.temporality import PartTemporality, Temporality


def write_findings(findings: dict[str, Any]) -> dict[str, Any]:
    """Results by name, as lists and plain numbers."""
    return {name: _plain(value) for name, value in findings.items()}


def read_findings(written: Any, n_classes: int) -> dict[str, Any]:
    """The inverse of `write_findings`; a ValueError where the input is malformed."""
    readers: dict[str, Callable[[Any], Any]] = {
        "noise_estimate": lambda one: _read_estimate(one, n_classes),
        "annotator_estimates": lambda each: tuple(_read_estimate(one, n_classes) for one in each),
        "clock_estimates": lambda each: tuple(_read_estimate(one, n_classes) for one in each),
        "clock_temporality": _read_parts,
        "is_noisy_p": _read_probability,
        "temporality": lambda tests: _read_temporality(tests, n_classes),
        "diagnostics": lambda each: tuple(_read_diagnostic(one) for one in each),
    }
    try:
        return {name: readers[name](value) for name, value in written.items()}
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        raise ValueError("its bands, its test or its checks are malformed.") from None


def _plain(value: Any) -> Any:
    if isinstance(value, NoiseEstimate | Temporality | Diagnostic):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and math.isnan(value):
        return None  # JSON has no NaN
    return value.tolist() if isinstance(value, np.ndarray) else value


def _read_estimate(written: dict[str, Any], n_classes: int) -> NoiseEstimate:
    shapes = {3: (n_classes, n_classes), 2: (n_classes,), 1: ()}
    points = len(written["clock"])
    values: dict[str, Any] = {}
    for field in fields(NoiseEstimate):
        if field.name == "total_p":  # not in files of version 0.1
            values[field.name] = _read_number(written.get(field.name))
            continue
        if field.name == "false_alarms":  # neither
            curve = written.get(field.name)
            if curve is not None:
                curve = np.asarray(curve, dtype=np.float64)
                if curve.shape != QUALITY_GRID.shape or not ((curve >= 0) & (curve <= 1)).all():
                    raise ValueError
            values[field.name] = curve
            continue
        value = written[field.name]
        if field.name == "change":
            values[field.name] = _read_change(value)
        elif field.name == "class_change":
            values[field.name] = tuple(_read_change(change) for change in value)
        elif isinstance(value, list):
            array = np.asarray(value, dtype=np.float64)
            if array.shape != (points, *shapes[array.ndim]) or not np.isfinite(array).all():
                raise ValueError
            values[field.name] = array
        else:
            values[field.name] = float(value)
    if len(values["class_change"]) != n_classes or not set(written) <= set(values):
        raise ValueError
    return NoiseEstimate(**values)


def _read_temporality(written: dict[str, Any], n_classes: int) -> Temporality:
    readers: dict[str, Callable[[Any], Any]] = {
        "statistic": _read_number,
        "p_value": _read_probability,
        "is_noisy_p": _read_probability,
        "classes_differ_p": _read_probability,
        "per_class": _read_parts,
        "per_annotator": _read_parts,
        "method": _read_method,
        "n_units": int,
    }
    names = [field.name for field in fields(Temporality)]
    values: dict[str, Any] = {name: readers.get(name, float)(written[name]) for name in names}
    if len(values["per_class"]) != n_classes or set(written) != set(values):
        raise ValueError
    return Temporality(**values)


def _read_parts(written: list[Any]) -> tuple[PartTemporality, ...]:
    return tuple(
        PartTemporality(
            _read_number(statistic),
            _read_probability(p_value),
            _read_change(change),
            _read_method(method),
            int(n_units),
        )
        for statistic, p_value, change, method, n_units in written
    )


def _read_number(written: float | None) -> float:
    """A number that may not be known."""
    return math.nan if written is None else float(written)


def _read_probability(written: float | None) -> float:
    """A probability that may not be known."""
    probability = _read_number(written)
    if probability < 0 or probability > 1:
        raise ValueError
    return probability


def _read_method(written: str) -> str:
    if written not in METHODS:
        raise ValueError
    return written


def _read_diagnostic(written: dict[str, Any]) -> Diagnostic:
    diagnostic = Diagnostic(**written)
    texts = (diagnostic.name, diagnostic.sentence, diagnostic.advice)
    flags = (diagnostic.is_warning, diagnostic.denies)
    if not (all(isinstance(flag, bool) for flag in flags) and all(isinstance(text, str) for text in texts)):
        raise ValueError
    return diagnostic


def _read_change(written: list[float]) -> Change:
    values = [float(value) for value in written]
    if not np.isfinite(values).all():
        raise ValueError
    return Change(*values)
