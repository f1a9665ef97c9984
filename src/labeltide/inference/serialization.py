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

    def read_value(value: Any) -> np.ndarray | float:
        if not isinstance(value, list):
            return float(value)
        array = np.asarray(value, dtype=np.float64)
        if array.shape != (points, *shapes[array.ndim]) or not np.isfinite(array).all():
            raise ValueError
        return array

    readers: dict[str, Callable[[Any], Any]] = {
        "change": _read_change,
        "class_change": lambda each: tuple(_read_change(change) for change in each),
        "total_p": _read_number,
        "false_alarms": _read_false_alarms,
    }
    missing = {"total_p": None, "false_alarms": None}  # in files of version 0.1
    written = missing | written
    values = {field.name: readers.get(field.name, read_value)(written[field.name]) for field in fields(NoiseEstimate)}
    if len(values["class_change"]) != n_classes or set(written) != set(values):
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
    values = {field.name: readers.get(field.name, float)(written[field.name]) for field in fields(Temporality)}
    if len(values["per_class"]) != n_classes or set(written) != set(values):
        raise ValueError
    return Temporality(**values)


def _read_parts(written: list[Any]) -> tuple[PartTemporality, ...]:
    readers: tuple[Callable[[Any], Any], ...] = (_read_number, _read_probability, _read_change, _read_method, int)
    each = [[read(value) for read, value in zip(readers, part, strict=True)] for part in written]
    return tuple(PartTemporality(*values) for values in each)


def _read_false_alarms(written: list[float] | None) -> np.ndarray | None:
    if written is None:
        return None
    curve = np.asarray(written, dtype=np.float64)
    if curve.shape != QUALITY_GRID.shape or not ((curve >= 0) & (curve <= 1)).all():
        raise ValueError
    return curve


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
