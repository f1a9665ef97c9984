"""Contested labels in the form of audit.json: shares of all labels, by class and over the first clock."""

from __future__ import annotations

from typing import Any

import numpy as np

from labeltide.inference.audit import LabelAudit

PARTS = 12  # of the clock
FEWEST = 20  # labels in a part, for a share of its own


def describe_contested(judged: LabelAudit) -> dict[str, Any]:
    """The part `contested`: mean probabilities that another expert would record another label."""
    recorded = judged.labels >= 0
    codes = judged.labels[recorded]
    contested = judged.contested.reshape(recorded.shape)[recorded]
    clock = np.broadcast_to(judged.clock[..., None], judged.labels.shape)[recorded]
    place, middles = _parts(clock)
    return {
        "from_several": bool((recorded.sum(-1) > 1).any()),
        "contested": _mean(contested),
        "by_class": [
            {"recorded": str(name), "labels": int((codes == code).sum()), "contested": _mean(contested[codes == code])}
            for code, name in enumerate(judged.classes)
        ],
        "over_clock": [
            {"clock": middle, "labels": int((place == part).sum()), "contested": _mean(contested[place == part])}
            for part, middle in enumerate(middles)
            if (place == part).sum() >= FEWEST
        ],
    }


def _parts(clock: np.ndarray) -> tuple[np.ndarray, list[float]]:
    """The part of the clock in which each label lies, and the middles of all parts."""
    low, high = (float(clock.min()), float(clock.max())) if clock.size else (0.0, 1.0)
    edges = np.linspace(low, high, PARTS + 1)
    place = np.clip(np.searchsorted(edges, clock, side="right") - 1, 0, PARTS - 1)
    return place, ((edges[1:] + edges[:-1]) / 2).tolist()


def _mean(values: np.ndarray) -> float | None:
    """The mean; None without labels."""
    return float(values.mean()) if values.size else None
