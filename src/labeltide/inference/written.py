"""What was found, as JSON carries it, and back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np

from labeltide.inference.bands import Change, NoiseEstimate
from labeltide.inference.diagnostics import Diagnostic
from labeltide.inference.temporality import PartTemporality, Temporality


def write_findings(findings: dict[str, Any]) -> dict[str, Any]:
    """Findings by name in lists and plain numbers."""
    return {name: _plain(value) for name, value in findings.items()}


def read_findings(said: Any, n_classes: int) -> dict[str, Any]:
    """Take back what `write_findings` gave; a ValueError where it is not that."""
    readers: dict[str, Callable[[Any, int], Any]] = {
        "noise_estimate": _read_estimate,
        "annotator_estimates": _read_estimates,
        "clock_estimates": _read_estimates,
        "clock_temporality": lambda parts, _: _read_parts(parts),
        "is_noisy_p": lambda p, _: float(p),
        "temporality": _read_temporality,
        "diagnostics": _read_diagnostics,
    }
    try:
        return {name: readers[name](value, n_classes) for name, value in said.items()}
    except (KeyError, TypeError, ValueError, AttributeError):
        raise ValueError("its bands, its test or its checks are malformed.") from None


def _plain(value: Any) -> Any:
    if isinstance(value, NoiseEstimate | Temporality | Diagnostic):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return value.tolist() if isinstance(value, np.ndarray) else value


def _read_estimate(said: dict[str, Any], n_classes: int) -> NoiseEstimate:
    shapes = {3: (n_classes, n_classes), 2: (n_classes,), 1: ()}
    points = len(said["clock"])
    values: dict[str, Any] = {}
    for field in fields(NoiseEstimate):
        own = said[field.name]
        if field.name == "change":
            values[field.name] = _change(own)
        elif field.name == "class_change":
            values[field.name] = tuple(_change(one) for one in own)
        elif isinstance(own, list):
            array = np.asarray(own, dtype=np.float64)
            if array.shape != (points, *shapes[array.ndim]) or not np.isfinite(array).all():
                raise ValueError
            values[field.name] = array
        else:
            values[field.name] = float(own)
    if len(values["class_change"]) != n_classes or set(said) != set(values):
        raise ValueError
    return NoiseEstimate(**values)


def _read_estimates(said: list[dict[str, Any]], n_classes: int) -> tuple[NoiseEstimate, ...]:
    return tuple(_read_estimate(one, n_classes) for one in said)


def _read_temporality(said: dict[str, Any], n_classes: int) -> Temporality:
    values: dict[str, Any] = {field.name: said[field.name] for field in fields(Temporality)}
    parts = ("per_class", "per_annotator")
    values = {name: _read_parts(value) if name in parts else float(value) for name, value in values.items()}
    if len(values["per_class"]) != n_classes or set(said) != set(values):
        raise ValueError
    return Temporality(**values)


def _read_parts(said: list[Any]) -> tuple[PartTemporality, ...]:
    return tuple(PartTemporality(float(s), float(p), _change(change)) for s, p, change in said)


def _read_diagnostics(said: list[dict[str, Any]], n_classes: int) -> tuple[Diagnostic, ...]:
    found = tuple(Diagnostic(**one) for one in said)
    for one in found:
        words = (one.name, one.sentence, one.advice)
        if not (isinstance(one.is_warning, bool) and all(isinstance(word, str) for word in words)):
            raise ValueError
    return found


def _change(said: list[float]) -> Change:
    values = [float(value) for value in said]
    if not np.isfinite(values).all():
        raise ValueError
    return Change(*values)
