"""Gaps in the time column: how many usual steps lie between a step and the one before it."""

from __future__ import annotations

import numpy as np

from labeltide.tables.layout import Steps

UNITS = {"days": 86_400.0, "h": 3600.0, "min": 60.0, "s": 1.0}


def find_gaps(steps: Steps) -> tuple[np.ndarray | None, str]:
    """Gaps of shape (steps,), and a sentence about them; None where no step is missing.

    The usual step is the median over the whole table. A first step has a gap of one, which never counts.
    """
    moments = steps.times.astype("datetime64[us]").astype(np.int64) / 1e6 if _dated(steps) else steps.times
    follows = np.append(False, steps.sequence[1:] == steps.sequence[:-1])
    with np.errstate(invalid="ignore", over="ignore"):  # times may be infinite
        spent = np.append(0.0, np.diff(moments.astype(np.float64)))[follows]  # seconds, or the unit of the column
    usual = float(np.median(spent)) if len(spent) else 0.0
    gaps = np.ones(len(steps.times), dtype=np.int64)
    if usual > 0:
        gaps[follows] = np.minimum(np.maximum(np.rint(spent / usual), 1), np.iinfo(np.int32).max)
    count = int((gaps > 1).sum())
    if not count:
        return None, ""
    places = f"{count} place{'s' if count > 1 else ''}"
    return gaps, (
        f"In {places} more time lies between two steps than the usual {_written(usual, _dated(steps))}: the longer the "
        "gap, the less the labels before it say of those after."
    )


def _dated(steps: Steps) -> bool:
    return bool(np.issubdtype(steps.times.dtype, np.datetime64))


def _written(usual: float, dated: bool) -> str:
    """A length of time in the largest unit of which it is at least one; a plain number where times are numbers."""
    if not dated:
        return f"{usual:g}"
    unit = next((name for name, seconds in UNITS.items() if usual >= seconds), "s")
    return f"{usual / UNITS[unit]:g} {unit}"
