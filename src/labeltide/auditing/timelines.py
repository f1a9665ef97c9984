"""The sequences with the most issues and the stretches of the plan, step by step, for the page to draw."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from labeltide.auditing.audit_input import AuditInput
from labeltide.inference.audit import LabelAudit

SEQUENCES, STEPS, SIGNALS = 20, 2000, 4
SAMPLE = 20_000  # steps from which the telling signals are found
DIGITS = 5


def describe_timelines(
    table: AuditInput, judged: LabelAudit, plan: Sequence[Mapping[str, Any]] = ()
) -> list[dict[str, Any]]:
    """The part `timelines`: for each sequence its stretch with the most issues, then every stretch of the plan.

    A stretch of the plan that lies within an earlier timeline is not drawn again. Others have their place in the plan.
    """
    issues = table.from_steps(np.asarray(judged.is_issue.any(-1)))  # (steps,)
    starts, ends = sequence_bounds(table)
    summed = np.append(0, np.cumsum(issues))
    totals = summed[ends] - summed[starts]
    worst = [place for place in np.argsort(-totals, kind="stable")[:SEQUENCES] if totals[place]]
    signals = {table.feature_names[place]: table.signal(place) for place in telling_features(table, judged)}
    first = table.first_lines()

    def describe(sequence: int, stretch: np.ndarray) -> dict[str, Any]:
        return {
            "sequence": table.sequence_names[sequence],
            "times": table.times.take(table.line_row[first[stretch]]).to_pylist(),
            "signals": {name: rounded(values[stretch]) for name, values in signals.items()},
            "rows": first[stretch].tolist(),
        }

    shown = [(place, worst_stretch(summed, int(starts[place]), int(ends[place]))) for place in worst]
    timelines = [describe(place, stretch) for place, stretch in shown]
    for order, entry in enumerate(plan, 1):
        place = table.sequence_names.index(entry["sequence"])
        bounds = (int(starts[place]), int(ends[place]))
        planned = _planned_stretch(table, first, bounds, (entry["first"], entry["last"]))
        if planned is None or any(each == place and np.isin(planned, steps).all() for each, steps in shown):
            continue
        shown.append((place, _with_context(planned, *bounds)))
        timelines.append({**describe(*shown[-1]), "planned": order})
    return timelines


def _planned_stretch(
    table: AuditInput, first: np.ndarray, bounds: tuple[int, int], ends: tuple[str, str]
) -> np.ndarray | None:
    """The steps of a sequence between two of its times; None where these are not found."""
    times = table.times.take(table.line_row[first[slice(*bounds)]]).to_pylist()
    try:
        places = [times.index(end) for end in ends]
    except ValueError:
        return None
    return bounds[0] + np.arange(min(places), max(places) + 1)[:STEPS]


def _with_context(stretch: np.ndarray, start: int, end: int) -> np.ndarray:
    """The stretch with a quarter of its length on either side, within its sequence and a timeline's length."""
    more = min(max(10, len(stretch) // 4), max(0, (STEPS - len(stretch)) // 2))
    return np.arange(max(start, int(stretch[0]) - more), min(end, int(stretch[-1]) + 1 + more))


def sequence_bounds(table: AuditInput) -> tuple[np.ndarray, np.ndarray]:
    """The first step of every sequence, and the one after its last."""
    last = np.zeros(len(table.sequence_names), dtype=np.int64)
    np.maximum.at(last, table.groups, table.index.max(1) + 1)
    return np.append(0, last[:-1]), last


def telling_features(table: AuditInput, judged: LabelAudit) -> list[int]:
    """The features that best separate the suggested classes within sequences, the best first.

    They are ranked by the correlation ratio: the variance between classes over the total variance.
    """
    suggested = table.from_steps(judged.probabilities.argmax(-1))
    some = np.unique(np.linspace(0, len(suggested) - 1, min(SAMPLE, len(suggested))).astype(np.int64))
    window, step = np.divmod(table.place[some], table.index.shape[1])
    values, codes = table.features[window, step].astype(np.float64), suggested[some]
    total = ((values - values.mean(0)) ** 2).sum(0)
    values -= _averages(values, table.groups[window])  # what never changes within a sequence is a flat line there
    between = (_averages(values, codes) ** 2).sum(0)
    ratio = between / np.maximum(total, 1e-12)
    return [int(place) for place in np.argsort(-ratio, kind="stable")[:SIGNALS]]


def _averages(values: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """The average of each row's own group: of the shape of values, (rows, features)."""
    names, group = np.unique(groups, return_inverse=True)
    sums = np.zeros((len(names), values.shape[1]))
    np.add.at(sums, group, values)
    return (sums / np.bincount(group)[:, None])[group]


def worst_stretch(summed: np.ndarray, start: int, end: int) -> np.ndarray:
    """The steps from start to end or, where they are many, those `STEPS` in a row that hold the most issues."""
    if end - start > STEPS:
        within = summed[start + STEPS : end + 1] - summed[start : end + 1 - STEPS]
        start += int(within.argmax())
    return np.arange(start, min(start + STEPS, end))


def rounded(values: np.ndarray) -> list[float | None]:
    """Values as a drawing needs them: to a small part of their range, not each to its own digits."""
    finite = np.isfinite(values)
    span = float(np.ptp(values[finite])) if finite.any() else 0.0
    largest = span or float(np.abs(values[finite]).max(initial=0)) or 1.0
    places = DIGITS - math.ceil(math.log10(largest))
    return [round(value, places) + 0.0 if good else None for value, good in zip(values.tolist(), finite, strict=True)]
