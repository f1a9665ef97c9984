"""The noise of each annotator over the clock, counted from what is known of the true labels."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from labeltide.auditing.table import AuditTable
from labeltide.inference.audit import LabelAudit

CELLS = 24  # parts of the clock
BLOCKS = 200  # groups of sequences that are drawn together
REPLICATES = 200
WIDTH = 0.06  # of the clock, over which labels are counted together
PRIOR = 1.0  # labels' worth of trust in the noise of all annotators together


class Counted(NamedTuple):
    """Expected labels of one annotator: true i recorded as j, by block of sequences and part of the clock."""

    counts: np.ndarray  # (blocks, cells, classes, classes)
    middle: np.ndarray  # (cells,), moments


def annotator_curves(table: AuditTable, judged: LabelAudit, common: dict[str, Any], clock: np.ndarray) -> list[Any]:
    """A curve for each annotator, in the form of audit.json, and what to say of its change."""
    if not table.annotator_names or len(table.annotator_names) < 2:
        return []
    prior = np.array(common["mean"], dtype=float)  # (points, classes, classes)
    found = []
    for place, name in enumerate(table.annotator_names):
        counted = _count(table, judged, place)
        if counted is not None:
            found.append(_describe(name, counted, prior, clock, table.clock_info.period))
    return found


def _count(table: AuditTable, judged: LabelAudit, annotator: int) -> Counted | None:
    row, step = np.nonzero(judged.labels[..., annotator] >= 0)
    if not len(row):
        return None
    n_classes = judged.probabilities.shape[-1]
    low, high = float(table.clock.min()), float(table.clock.max())
    edges = np.linspace(low, high if high > low else low + 1, CELLS + 1)
    cell = np.clip(np.searchsorted(edges, table.clock[row, step], side="right") - 1, 0, CELLS - 1)
    sequences, block = np.unique(table.groups[row], return_inverse=True)
    block = block % BLOCKS
    n_blocks = min(BLOCKS, len(sequences))
    place = (block * CELLS + cell) * n_classes
    recorded = judged.labels[row, step, annotator].astype(np.int64)
    counts = np.empty((n_blocks, CELLS, n_classes, n_classes))
    for true in range(n_classes):
        weights = judged.probabilities[row, step, true]
        flat = np.bincount(place + recorded, weights, minlength=n_blocks * CELLS * n_classes)
        counts[:, :, true] = flat.reshape(n_blocks, CELLS, n_classes)
    return Counted(counts, (edges[1:] + edges[:-1]) / 2)


def _describe(name: str, counted: Counted, prior: np.ndarray, clock: np.ndarray, period: float | None) -> Any:
    counts, middle = counted
    n_blocks = len(counts)
    draws = np.random.default_rng([n_blocks, 11]).multinomial(n_blocks, np.full(n_blocks, 1 / n_blocks), REPLICATES)
    weights = np.concatenate([np.ones((1, n_blocks)), draws if n_blocks > 1 else np.empty((0, 1))])
    drawn = np.tensordot(weights, counts, 1)  # (1 + replicates, cells, classes, classes)
    smooth = _kernel(clock, middle, period)  # (points, cells)
    near = np.einsum("pc,rcij->rpij", smooth, drawn) + PRIOR * prior * smooth.mean()
    matrices = near / near.sum(-1, keepdims=True).clip(1e-12)
    rates = 1 - np.trace(near, axis1=-2, axis2=-1) / near.sum((-2, -1)).clip(1e-12)  # (1 + replicates, points)
    wrong = 1 - np.diagonal(matrices, axis1=-2, axis2=-1).swapaxes(1, 2)  # (1 + replicates, classes, points)
    curve: dict[str, Any] = {"annotator": name, "labels": round(float(counts.sum()))}
    for key, values in (("rate", rates), ("class_rate", wrong), ("mean", matrices)):
        lower, upper = _band(values)
        ends = ("lower", "upper") if key == "mean" else (f"{key}_lower", f"{key}_upper")
        curve |= {key: values[0], ends[0]: lower, ends[1]: upper}
    change = _change(rates, clock)
    return curve, {"annotator": name, **change}


def _kernel(clock: np.ndarray, middle: np.ndarray, period: float | None) -> np.ndarray:
    apart = np.abs(clock[:, None] - middle)
    if period:
        apart = np.minimum(apart, np.abs(period - apart))
    width = WIDTH * (middle[-1] - middle[0]) * CELLS / (CELLS - 1)
    return np.exp(-0.5 * (apart / width) ** 2)


def _band(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The middle 95 % of the replicates; nothing where there were no sequences to draw from."""
    if len(values) < 2:
        nothing = np.full(values.shape[1:], np.nan)
        return nothing, nothing
    low, high = np.quantile(values[1:], [0.025, 0.975], axis=0)
    return np.minimum(low, values[0]), np.maximum(high, values[0])


def _change(rates: np.ndarray, clock: np.ndarray) -> dict[str, Any]:
    """The range of the error rate, with an interval; no test, because what is known of the truth is held fixed."""
    worst, best = int(rates[0].argmax()), int(rates[0].argmin())
    value = float(rates[0, worst] - rates[0, best])
    found: dict[str, Any] = {"change": value, "change_lower": None, "change_upper": None, "p_value": None}
    found |= {"worst_at": float(clock[worst]), "best_at": float(clock[best])}
    if len(rates) < 2:
        return found
    spread = float((rates[1:, worst] - rates[1:, best]).std(ddof=1))
    found |= {"change_lower": max(0.0, value - 1.96 * spread), "change_upper": min(1.0, value + 1.96 * spread)}
    return found
