"""Made-up results of an audit, in the form that the page reads, of any size and with any names."""

from __future__ import annotations

import csv
import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from auditing.page.fake_numbers import numbers_of, rate_of

HOSTILE = [
    "<script>document.title = 'taken'</script>",
    "</script><img src=x onerror=\"document.title='taken'\">",
    "\"quoted\" & 'quoted' `${1}` {{ 7 * 7 }} {% raw %}",
    "مرحبا \u202e evil \u200f",
    "🩺👩‍⚕️ \ud83d",
    '=HYPERLINK("http:' + '//example.org")',
    "x" * 10_000,
    "line\nbreak\ttab\x00nul\x1b[31m",
]


def write_audit(
    folder: Path,
    *,
    sequences: int = 12,
    steps: int = 240,
    classes: tuple[str, ...] = ("rest", "walk", "sleep"),
    annotators: tuple[str, ...] | None = ("Ada", "Ben"),
    kind: str = "hour_of_day",
    is_temporal: bool = True,
    is_noisy: bool = True,
    names: list[str] | None = None,
    points: int = 97,
    timelines: int = 8,
    seed: int = 0,
    **changes: Any,
) -> Path:
    """Write the files of an audit; `names` replaces the first sequence ids, `changes` parts of audit.json."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(seed)
    classes = tuple(map(_whole, classes))
    annotators = tuple(map(_whole, annotators)) if annotators else None
    people = annotators or (None,)
    ids = [*(names or []), *(f"p{number:02d}" for number in range(1, sequences + 1))][:sequences]
    ids = [_whole(name) for name in ids]
    start = datetime(2026, 3, 2, 6)
    minutes = 14 * 24 * 60 / steps
    stamps = [(start + timedelta(minutes=minutes * step)).replace(microsecond=0) for step in range(steps)]
    times = [stamp.isoformat(sep=" ") for stamp in stamps]
    hours = np.array([stamp.hour + stamp.minute / 60 for stamp in stamps])
    clock = {"hour_of_day": hours, "position": np.linspace(0, 1, steps)}.get(kind, np.arange(steps, dtype=float))

    truth = _persistent(random, sequences, steps, len(classes))
    labels = _labels(random, truth, clock, people, len(classes), rate_of(kind, is_temporal, is_noisy))
    table = _label_table(ids, times, clock, people, classes, labels)
    pq.write_table(table, folder / "labels.parquet")
    issues = _issue_table(table)
    pq.write_table(issues, folder / "issues.parquet")
    _write_csv(folder / "issues.csv", issues)
    (folder / "noise.csv").write_text("annotator,clock,true,recorded,probability,lower,upper\n")
    audit = numbers_of(table, issues, ids, classes, annotators, kind, clock, points, is_temporal, is_noisy)
    audit["timelines"] = _timelines(random, ids[:timelines], times, truth, people, steps)
    audit["issues"]["by_sequence"] = _by_sequence(table)
    audit["table"]["overview"] = [
        {"name": name, "type": kind_, "missing": 0, "levels": levels, "role": role, "why": why}
        for name, kind_, levels, role, why in (
            ("person", "text", sequences, "sequence", ""),
            ("time", "date and time", steps, "time", ""),
            ("activity", "text", len(classes), "label", ""),
            ("heart_rate", "number", 812, "feature", ""),
            ("device_id", "text", 3, "left out", "a name or identifier is not a measurement"),
        )
    ]
    for index, each in enumerate(audit["plan"]):
        each |= {"first": times[min(5 * index, steps - 1)], "last": times[min(5 * index + 50, steps - 1)]}
    audit |= changes
    (folder / "audit.json").write_text(json.dumps(audit))
    return folder


def _persistent(random: np.random.Generator, sequences: int, steps: int, classes: int) -> np.ndarray:
    """True classes that last a while, of shape (sequences, steps)."""
    fresh = random.integers(classes, size=(sequences, steps))
    changes = random.random((sequences, steps)) < 0.08
    changes[:, 0] = True
    last = np.maximum.accumulate(np.where(changes, np.arange(steps), 0), axis=1)
    return np.take_along_axis(fresh, last, axis=1)


def _labels(random, truth, clock, people, classes, rate) -> dict[str, np.ndarray]:
    """Arrays of shape (sequences, steps, people)."""
    shape = (*truth.shape, len(people))
    worse = 1 + 0.35 * np.arange(len(people))
    wrong = random.random(shape) < np.clip(rate(clock)[None, :, None] * worse, 0, 0.9)
    recorded = np.where(
        wrong, (truth[..., None] + random.integers(1, max(2, classes), shape)) % classes, truth[..., None]
    )
    wrong = recorded != truth[..., None]
    right = np.where(wrong, random.beta(1.2, 8, shape), random.beta(12, 1.2, shape))
    is_missing = random.random(shape) < 0.02
    return {"recorded": recorded, "right": right, "truth": truth, "is_missing": is_missing}


def _label_table(ids, times, clock, people, classes, labels) -> pa.Table:
    n, steps, who = labels["recorded"].shape
    names = np.array([*classes, None], dtype=object)
    recorded = np.where(labels["is_missing"], -1, labels["recorded"]).ravel()
    right = labels["right"].ravel()
    truth = np.repeat(labels["truth"].ravel(), who)
    is_issue = (right < 0.3) & (recorded >= 0)
    suggested = np.where(is_issue | (recorded < 0), truth, recorded)
    sure = np.where(is_issue, 1 - right, right)
    reason = [
        f"The signals fit {_short(names[better])} {100 * p:.0f} % better." if flag else None
        for better, p, flag in zip(suggested, sure.round(1), is_issue, strict=True)
    ]
    return pa.table(
        {
            "row": np.arange(n * steps * who),
            "sequence": pa.array([name for name in ids for _ in range(steps * who)]),
            "time": pa.array([time for _ in ids for time in times for _ in people]),
            "annotator": pa.array([*people] * (n * steps), pa.string()),
            "clock": np.tile(np.repeat(clock, who), n),
            "recorded": pa.array(names[recorded], pa.string()),
            "probability_right": right,
            "suggested": pa.array(names[suggested], pa.string()),
            "suggested_probability": sure,
            "corrected": pa.array(names[np.where(sure > 0.9, suggested, recorded)], pa.string()),
            "is_issue": is_issue,
            "kind": pa.array(np.where(is_issue, "isolated", None).tolist(), pa.string()),
            "reason": pa.array(reason, pa.string()),
        }
    )


def _whole(text: str) -> str:
    """Parquet holds no half characters."""
    return text.encode("utf-8", "replace").decode()


def _short(text: str) -> str:
    return text if len(text) < 60 else text[:59] + "…"


def _issue_table(table: pa.Table) -> pa.Table:
    issues = table.filter(table["is_issue"]).sort_by("probability_right")
    return issues.append_column("rank", pa.array(range(1, len(issues) + 1), pa.int64()))


def _write_csv(path: Path, issues: pa.Table) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(issues.column_names)
        writer.writerows(
            issues.slice(0, 100).to_pylist() and zip(*issues.slice(0, 100).to_pydict().values(), strict=True)
        )


def _timelines(random, ids, times, truth, people, steps) -> list[dict[str, Any]]:
    shown = min(steps, 2000)
    found = []
    for index, name in enumerate(ids):
        own = truth[index, :shown]
        level = np.cumsum(random.normal(0, 0.1, (shown, 4)), axis=0) * 0.2 + random.normal(0, 0.15, (shown, 4))
        values = level + own[:, None] * np.array([1.0, -0.6, 0.4, 8.0]) + np.array([0, 0, 0, 62.0])
        signals = dict(zip(["acc_x", "acc_y", "acc_z", "heart_rate"], values.T.round(4).tolist(), strict=True))
        signals["heart_rate"][40:52] = [None] * min(12, max(0, shown - 40))
        rows = [index * steps * len(people) + step * len(people) for step in range(shown)]
        found.append({"sequence": name, "times": times[:shown], "signals": signals, "rows": rows})
    return found


def _by_sequence(table: pa.Table) -> list[dict[str, Any]]:
    counted = table.group_by("sequence").aggregate([("is_issue", "sum"), ("is_issue", "count")])
    rows = [
        {"sequence": name, "labels": amount, "issues": issues}
        for name, amount, issues in zip(
            counted["sequence"].to_pylist(),
            counted["is_issue_count"].to_pylist(),
            counted["is_issue_sum"].to_pylist(),
            strict=True,
        )
    ]
    return sorted(rows, key=lambda row: -row["issues"])[:50]
