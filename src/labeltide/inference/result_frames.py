"""Results as tables: one line for each entry of Q, each test or each step."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from labeltide.inference.plots import class_names
from labeltide.tables.frames import as_frame

if TYPE_CHECKING:
    from labeltide.inference.consensus import Consensus
    from labeltide.inference.noise_estimate import NoiseEstimate
    from labeltide.inference.temporality import Temporality


def noise_frame(estimate: NoiseEstimate, kind: str, classes: Sequence[Hashable] | None) -> Any:
    """One line for each moment, true and recorded class."""
    names = np.array(class_names(estimate, classes), dtype=object)
    points, count = estimate.mean.shape[:2]
    ends = ("mean", "lower", "upper", "simultaneous_lower", "simultaneous_upper")
    columns: dict[str, Any] = {
        "clock": np.repeat(estimate.clock, count * count),
        "true": np.tile(np.repeat(names, count), points),
        "recorded": np.tile(names, points * count),
    }
    return as_frame(columns | {end: getattr(estimate, end).ravel() for end in ends}, kind)


def temporality_frame(tests: Temporality, kind: str) -> Any:
    """One line for the test of all labels, of each true class and of each annotator."""
    whole = {name: getattr(tests, name) for name in ("statistic", "p_value", "change", "change_lower", "change_upper")}
    whole |= {name: getattr(tests, name) for name in ("worst_at", "best_at", "worst_rate", "best_rate")}
    rows = [{"of": "all", "number": None, **whole, "method": tests.method, "n_units": tests.n_units}]
    for of, parts in (("class", tests.per_class), ("annotator", tests.per_annotator)):
        for number, part in enumerate(parts):
            change = dict(zip(list(whole)[2:], part.change, strict=True))
            test = {"of": of, "number": number, "statistic": part.statistic, "p_value": part.p_value}
            rows.append({**test, **change, "method": part.method, "n_units": part.n_units})
    return as_frame({name: [row[name] for row in rows] for name in rows[0]}, kind)


def consensus_frame(consensus: Consensus, kind: str, ids: Sequence[Hashable] | None) -> Any:
    """One line for each step."""
    row, step = np.nonzero(consensus.probabilities.sum(-1) > 0)
    if ids is not None and len(ids) != len(consensus.labels):
        raise ValueError(f"ids must be {len(consensus.labels)} names, one per sequence. Got {len(ids)}.")
    chances = consensus.probabilities[row, step]
    columns: dict[str, Any] = {
        "sequence": row if ids is None else [ids[place] for place in row.tolist()],
        "step": step,
        "consensus": consensus.labels[row, step].tolist(),
        "probability": chances.max(-1),
    }
    for place, name in enumerate(consensus.classes):
        columns[f"probability of {name}"] = chances[:, place]
    return as_frame(columns, kind)
