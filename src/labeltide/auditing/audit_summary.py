"""The parts of audit.json that say what was audited, how, and what was found about its labels."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from labeltide import __version__
from labeltide.auditing import findings, fitting
from labeltide.auditing.annotator_findings import describe_agreement
from labeltide.auditing.audit_input import AuditInput
from labeltide.auditing.contested_findings import describe_contested
from labeltide.auditing.folder import FORMAT, MODEL, MODEL_FILE
from labeltide.auditing.options import AuditOptions
from labeltide.auditing.timelines import describe_timelines
from labeltide.auditing.train_on import written
from labeltide.decisions import file_digest
from labeltide.estimators import TideClassifier
from labeltide.inference.audit import LabelAudit
from labeltide.tables.addresses import address_path
from labeltide.tables.file_set import is_address


def say_limits(n_windows: int, of_windows: int, options: AuditOptions, estimator: TideClassifier) -> list[str]:
    """Sentences about what was limited to save time, or because the user asked for it."""
    said = []
    if n_windows < of_windows:
        why = "The table is large" if options.train_on is None else "As asked by train_on (--train-on)"
        said.append(
            f"{why}: the networks learned from {n_windows} of {of_windows} windows, drawn by chance; "
            "labels in the others are judged by the average of all networks."
        )
    if estimator.epochs < fitting.EPOCHS:
        said.append(f"The networks were trained for {estimator.epochs} epochs, not {fitting.EPOCHS}, to save time.")
    return said


def describe_run(command: str | None, spent: Mapping[str, float]) -> dict[str, Any]:
    """When and with what the audit was run."""
    return {
        "format": FORMAT,
        "labeltide": __version__,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": None if command is None else as_utf8(command),
        "versions": {"python": platform.python_version(), **{name: version(name) for name in ("torch", "numpy")}},
        "seconds": {"read": spent["read"], "fit": spent["fit"], "inference": spent["judge"] + spent["bands"]},
    }


def describe_table(table: Any, read: AuditInput, said: list[str]) -> dict[str, Any]:
    """The table, and everything that was decided about it."""
    return {
        **describe_source(table),
        "rows": read.n_rows,
        "sequences": len(read.sequence_names),
        "labels": read.n_labels,
        "columns": read.columns,
        "classes": read.class_names,
        "features": read.feature_names,
        "annotators": read.annotator_names,
        "said": [*read.said, *say_files(table, read), *said],
        "overview": [asdict(column) for column in read.overview],
    }


def say_files(table: Any, read: AuditInput) -> list[str]:
    """What to do where several files without a column of sequences were meant to be one sequence each."""
    if read.columns.get("sequence") or not is_address(table):
        return []
    return [
        "Without a column of sequences, several files are one sequence, file after file. If each is a recording "
        "of its own, write its name into a column of its rows, and give that column as sequence."
    ]


def describe_source(table: Any) -> dict[str, Any]:
    """Where a review finds the table again, and how it sees that the table has changed."""
    if not isinstance(table, str | Path):
        return {"name": "table"}
    path = Path(table)
    if not path.is_file():  # a folder, a glob or an address
        return {"name": as_utf8(Path(address_path(table)).name)}
    return {"name": as_utf8(path.name), "path": as_utf8(str(path.absolute())), "digest": file_digest(path)}


def describe_labels(read: AuditInput, judged: LabelAudit) -> dict[str, Any]:
    """What was found about single labels."""
    plan = findings.describe_plan(read, judged)
    return {
        "issues": findings.describe_issues(read, judged),
        "contested": describe_contested(judged),
        "agreement": describe_agreement(read),
        "plan": plan,
        "timelines": describe_timelines(read, judged, plan),
        "encoders": [asdict(encoder) for encoder in read.encoders],
    }


def describe_settings(
    read: AuditInput, options: AuditOptions, estimator: TideClassifier, n_windows: int
) -> dict[str, Any]:
    """The settings of the fit."""
    return {
        "model": options.model,
        "seed": options.seed,
        "window": read.window,
        "fdr": options.fdr,
        "spend_fdr": options.spend_fdr,
        "device": options.device,
        "fast": options.fast,
        "epochs": estimator.epochs,
        "hidden_size": estimator.hidden_size,
        "train_on": written(options.train_on),
        "windows learned from": n_windows,
        "model file": f"{MODEL}/{MODEL_FILE}",
    }


def as_utf8(text: str) -> str:
    """The text as a file can hold it."""
    return text.encode("utf-8", "replace").decode()
