"""The demonstration behind `labeltide demo`: a simulated study with known mistakes, audited, against the truth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from labeltide.auditing.run import TableAudit, audit
from labeltide.data.studies import simulate_study


def run_demo(out: Path, *, people: int = 60, days: int = 14, seed: int = 0, verbose: bool = False) -> str:
    """Simulate a wearable study, audit it by the hour of day, and describe how it fares against the truth."""
    table = simulate_study(people=people, days=days, seed=seed)
    recorded = table.drop_columns(["true_label"]).replace_schema_metadata({"name": "simulated study"})
    roles: dict[str, Any] = {"sequence": "person", "time": "time", "label": "label", "annotator": "annotator"}
    result = audit(
        recorded, **roles, clock="hour_of_day", out=out, seed=seed, verbose=verbose, command="labeltide demo"
    )
    shares = compare_with_truth(result, table["true_label"])
    return "\n".join(
        [
            str(result),
            "",
            "Against the known truth, which the audit did not see:",
            f"  {shares['wrong']:.1%} of the labels are wrong; {shares['found']:.1%} of these are listed.",
            f"  {shares['false_alarms']:.1%} of the listed labels are right ("
            f"{result.summary['issues']['fdr']:.0%} allowed).",
            f"  After correction, {shares['wrong_after']:.1%} of the labels are wrong.",
            f"  The error rate over the day is off by {100 * shares['rate_error']:.1f} points on average.",
            "",
            f"Page       {result.page}",
        ]
    )


def compare_with_truth(result: TableAudit, truth: pa.ChunkedArray) -> dict[str, float]:
    """Shares of labels by which an audit of a table compares with its true labels, one for each row."""
    true = np.asarray(truth.to_pylist(), dtype=object)[result.labels["row"].to_numpy()]
    wrong = np.asarray(result.labels["recorded"].to_pylist(), dtype=object) != true
    issue = result.labels["is_issue"].to_numpy()
    after = np.asarray(result.labels["corrected"].to_pylist(), dtype=object) != true
    noise = result.summary["noise"]
    clock = np.array(noise["clock"])
    nearest = np.abs(result.labels["clock"].to_numpy()[:, None] - clock).argmin(1)
    counts = np.bincount(nearest, minlength=len(clock))
    rate = np.bincount(nearest, wrong, minlength=len(clock)) / np.maximum(counts, 1)
    error = np.abs(np.array(noise["curves"][0]["rate"], dtype=float) - rate)
    return {
        "wrong": float(wrong.mean()),
        "found": float(issue[wrong].mean()) if wrong.any() else 1.0,
        "false_alarms": float(1 - wrong[issue].mean()) if issue.any() else 0.0,
        "wrong_after": float(after.mean()),
        "rate_error": float(np.average(error, weights=counts)),
    }
