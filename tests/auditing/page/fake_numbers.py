"""The made-up content of audit.json."""

from __future__ import annotations

from typing import Any

import numpy as np


def rate_of(kind: str, is_temporal: bool, is_noisy: bool) -> Any:
    """The share of wrong labels over the clock, worst in the evening or at the end."""
    level = 1.0 if is_noisy else 0.03
    if not is_temporal:
        return lambda clock: level * np.full(np.shape(clock), 0.25)
    if kind == "hour_of_day":
        return lambda clock: level * (0.24 + 0.17 * np.cos((np.asarray(clock) - 21.5) / 24 * 2 * np.pi))
    return lambda clock: level * (0.08 + 0.3 * np.asarray(clock) / max(1e-9, float(np.max(clock))))


def _curve(annotator, classes, points, rate, labels, scale) -> dict[str, Any]:
    n = len(classes)
    wrong = np.clip(rate(points) * scale, 0.002, 0.9)
    per_class = np.stack([np.clip(wrong * (0.7 + 0.6 * index / max(1, n - 1)), 0.001, 0.95) for index in range(n)])
    half = 0.015 + 0.06 * np.sqrt(per_class * (1 - per_class))
    mean = np.repeat(per_class.T[..., None] / max(1, n - 1), n, axis=-1)
    if n > 2:
        tilt = 1 + 0.6 * np.cos(np.arange(n))[None, :] * np.ones((n, n))
        tilt /= np.where(~np.eye(n, dtype=bool), tilt, 0).sum(axis=1, keepdims=True) / (n - 1)
        mean = mean * tilt
    mean[:, range(n), range(n)] = 1 - per_class.T
    spread = 0.01 + 0.05 * np.sqrt(np.clip(mean * (1 - mean), 0, None))
    return {
        "annotator": annotator,
        "labels": labels,
        "rate": wrong.tolist(),
        "rate_lower": np.clip(wrong - 0.025, 0, 1).tolist(),
        "rate_upper": np.clip(wrong + 0.025, 0, 1).tolist(),
        "class_rate": per_class.tolist(),
        "class_rate_lower": np.clip(per_class - half, 0, 1).tolist(),
        "class_rate_upper": np.clip(per_class + half, 0, 1).tolist(),
        "class_rate_simultaneous_lower": np.clip(per_class - 1.6 * half, 0, 1).tolist(),
        "class_rate_simultaneous_upper": np.clip(per_class + 1.6 * half, 0, 1).tolist(),
        "mean": mean.tolist(),
        "lower": np.clip(mean - spread, 0, 1).tolist(),
        "upper": np.clip(mean + spread, 0, 1).tolist(),
    }


def _ends(at, rate) -> dict[str, float]:
    worst, best = int(rate.argmax()), int(rate.argmin())
    found = {"worst_at": at[worst], "best_at": at[best], "worst_rate": rate[worst], "best_rate": rate[best]}
    return {name: float(value) for name, value in found.items()}


def numbers_of(table, issues, ids, classes, annotators, kind, clock, points, is_temporal, is_noisy) -> dict[str, Any]:
    ends = {"hour_of_day": (0, 24), "position": (0, 1)}.get(kind, (float(clock.min()), float(clock.max())))
    at = np.linspace(*ends, points)
    rate = rate_of(kind, is_temporal, is_noisy)
    people = annotators or ()
    scales = 1 + 0.35 * np.arange(max(1, len(people)))
    labels = len(table)
    curves = [_curve(None, classes, at, rate, labels, scales.mean())]
    curves += [
        _curve(who, classes, at, rate, labels // len(people), scale) for who, scale in zip(people, scales, strict=False)
    ]
    overall = np.array(curves[0]["rate"])
    p = 0.0004 if is_temporal else 0.41
    change = float(np.ptp(overall))
    test = {"p_value": p, "change": change, "change_lower": max(0, change - 0.06), "change_upper": change + 0.07}
    recorded = table["recorded"].to_pylist()
    flagged = issues["recorded"].to_pylist()
    titles = {"hour_of_day": ("hour of day", "h", 24), "position": ("position", "", None)}
    name, unit, period = titles.get(kind, ("minutes on shift", "min", None))
    return {
        "format": 1,
        "labeltide": "0.1.0",
        "created": "2026-11-15T10:00:00+00:00",
        "command": "labeltide audit wearables.csv --sequence person --time when --label activity --clock hour_of_day",
        "table": {
            "name": "wearables.csv",
            "rows": labels,
            "sequences": len(ids),
            "labels": labels,
            "columns": {"sequence": "person", "time": "when", "label": "activity", "annotator": "who", "trusted": None},
            "classes": list(classes),
            "features": ["acc_x", "acc_y", "acc_z", "heart_rate"],
            "annotators": list(annotators) if annotators else None,
            "messages": ["The sequence is read from 'person'.", "Gaps in 'heart_rate' were filled forward and marked."],
        },
        "clock": {"name": name, "kind": kind, "unit": unit, "period": period},
        "settings": {"model": "gru", "seed": 0, "window": 50, "fdr": 0.1, "device": "cpu"},
        "versions": {"python": "3.11.7", "torch": "2.13.0", "numpy": "2.3.1"},
        "seconds": {"read": 1.0, "fit": 49.3, "inference": 13.1, "page": 0.8},
        "noise": {
            "rate": float(overall.mean()),
            "rate_lower": float(overall.mean()) - 0.018 * is_noisy,
            "rate_upper": float(overall.mean()) + 0.019,
            "clock": at.tolist(),
            "curves": curves,
        },
        "temporality": {
            **test,
            "statistic": 55.1,
            **_ends(at, overall),
            "is_noisy_p": 0.0001 if is_noisy else 0.3,
            "classes_differ_p": 0.01,
            "per_class": [{"class": each, **test} for each in classes],
            "per_annotator": [
                {"annotator": curve["annotator"], **test, **_ends(at, np.array(curve["rate"]))} for curve in curves[1:]
            ],
        },
        "issues": {
            "count": len(issues),
            "fdr": 0.1,
            "expected_false_alarms": 0.08,
            "corrected": int(0.6 * len(issues)),
            "min_confidence": 0.9,
            "by_class": [
                {"recorded": each, "labels": recorded.count(each), "issues": flagged.count(each)} for each in classes
            ],
        },
        "contested": {
            "from_several": len(people) > 1,
            "contested": 0.084,
            "by_class": [{"recorded": each, "labels": recorded.count(each), "contested": 0.08} for each in classes],
            "over_clock": [{"clock": float(moment), "labels": 40, "contested": 0.09} for moment in at[:3]],
        },
        "agreement": _agreement(people, at) if len(people) > 1 else None,
        "plan": [
            {"sequence": each, "first": "2026-03-04 19:00:00", "last": "2026-03-04 23:10:00", "steps": 50, "why": why}
            for each, why in zip(
                ids[:5],
                [
                    "31 of 50 labels are likely wrong, more than in any other stretch.",
                    "Both annotators labelled it and disagree on 24 of 50 steps.",
                    "27 of 50 labels are likely wrong, all in the evening.",
                    "Few labels of 'walk' were recorded at these hours; a second look tells most about Q here.",
                    "22 of 50 labels are likely wrong.",
                ],
                strict=False,
            )
        ],
        "diagnostics": [
            {
                "name": "bursts",
                "is_warning": is_noisy,
                "sentence": "Mistakes come in bursts: a label after a wrong one is wrong 1.8 times as often as usual.",
                "advice": "Check whole stretches instead of single labels, and read the bands as somewhat too narrow.",
            },
            {
                "name": "identifiability",
                "is_warning": False,
                "sentence": "Labels last 12 steps on average, and a third of the steps are clear-cut.",
                "advice": "",
            },
            {
                "name": "drift",
                "is_warning": False,
                "sentence": "The features do not drift with the clock.",
                "advice": "",
            },
            {
                "name": "few_labels",
                "is_warning": False,
                "sentence": "Every class has at least 60 labels in every hour.",
                "advice": "",
            },
            {
                "name": "members_disagree",
                "is_warning": False,
                "sentence": "The fits differ by at most 3 percentage points.",
                "advice": "",
            },
        ],
    }


def _agreement(people, at) -> dict[str, Any]:
    pairs = [(a, b) for index, a in enumerate(people) for b in people[index + 1 :]]
    return {
        "cohen": [{"a": a, "b": b, "kappa": 0.47 + 0.01 * index, "steps": 2880} for index, (a, b) in enumerate(pairs)],
        "fleiss": 0.47,
        "clock": at.tolist(),
        "fleiss_over_clock": (0.5 - 0.25 * np.cos((at - at[-1] * 0.9) / max(1e-9, at[-1]) * 2 * np.pi)).tolist(),
    }
