"""The audit of a table: read, fit, audit the labels, infer bands and tests, write the folder of results."""

from __future__ import annotations

import platform
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa

from labeltide import __version__, _validation
from labeltide._files import to_json
from labeltide.auditing import findings, fitting
from labeltide.auditing.annotator_findings import describe_agreement
from labeltide.auditing.audit_input import AuditInput
from labeltide.auditing.contested_findings import describe_contested
from labeltide.auditing.folder import FORMAT, MODEL, MODEL_FILE, check_folder, rank_issues, write_results
from labeltide.auditing.options import AuditOptions, mark_unfinished, prepare_checkpoint
from labeltide.auditing.page import Results, summary_html, summary_text, write_page
from labeltide.auditing.reading import read_audit_steps
from labeltide.auditing.source import choose_source
from labeltide.auditing.stages import Stages, show_stages
from labeltide.auditing.timelines import describe_timelines
from labeltide.estimators import TideClassifier
from labeltide.inference.audit import FDR, LabelAudit
from labeltide.tables.file_set import FileSet
from labeltide.tables.roles import Names, Request

FEW_WINDOWS = 10  # under which whole sequences are cut, so that one part can be judged by others
SMALLEST_WINDOW = 8


@dataclass(frozen=True)
class TableAudit:
    """What an audit of a table found; shows itself in a notebook and as text.

    Attributes
    ----------
    summary : dict
        All numbers, as audit.json holds them.
    labels : pyarrow.Table
        One line for every label: recorded, probability that it is right, suggested, corrected, and why.
    noise : pyarrow.Table
        Q over the clock with bands.
    estimator : labeltide.TideClassifier
    folder : Path of the results, or None
    """

    summary: dict[str, Any]
    labels: pa.Table = field(repr=False)
    noise: pa.Table = field(repr=False)
    estimator: TideClassifier = field(repr=False)
    folder: Path | None = None

    @property
    def issues(self) -> pa.Table:
        """The labels to check, the surest first."""
        return rank_issues(self.labels)

    @property
    def page(self) -> Path | None:
        return self.folder / "report.html" if self.folder else None

    def _repr_html_(self) -> str:
        return summary_html(self.summary, self.folder if self.folder and self.folder.exists() else None)

    def __str__(self) -> str:
        return summary_text(self.summary)


def audit(
    table: Any,
    *,
    sequence: Names = None,
    time: str | None = None,
    label: Names = None,
    features: Names = None,
    annotator: str | None = None,
    clock: Names = None,
    trusted: str | None = None,
    window: int | None = None,
    model: str = "gru",
    out: str | Path | None = None,
    seed: int = 0,
    device: str = "auto",
    fdr: float = FDR,
    verbose: bool = False,
    resume: bool = False,
    command: str | None = None,
) -> TableAudit:
    """Say which labels of a table are likely wrong, when, and how sure that is.

    Parameters
    ----------
    table, sequence, time, label, features, annotator, clock, trusted, window
        As `labeltide.auditing.read_audit_table` takes them; columns are found where that is plain. The table may also
        be a folder or a glob of parquet or CSV files, or an address such as s3://bucket/folder. More than two million
        rows are read in parts, in memory that does not grow with them; results then need `out`.
    model : {"gru", "tcn", "transformer"}
    out : folder for the results and the page, new, empty or that of an earlier audit; nothing is written without it
    seed : the same seed gives the same numbers
    device : "auto" takes a GPU where there is one
    fdr : the expected share of false alarms among the labels to check
    verbose : draw a progress bar on a terminal
    resume : go on with an audit into the same folder whose fit was interrupted
    command : how the audit was asked for, to be shown on the page
    """
    options = AuditOptions(
        columns=Request(sequence, time, label, features, annotator, clock, trusted),
        window=window,
        model=model,
        out=None if out is None else Path(out),
        seed=seed,
        device=device,
        fdr=fdr,
        resume=resume,
        command=command,
    )
    options = replace(options, device=_validation.check_device(device))
    if options.out is not None:
        check_folder(options.out)
    elif resume:
        raise ValueError("resume goes on with an audit into a folder. Name that folder with out.")
    prepare_checkpoint(options)
    with show_stages(verbose) as stages:
        return _run(table, options, stages)


def _run(table: Any, options: AuditOptions, stages: Stages) -> TableAudit:
    name = table_name(table)
    table = choose_source(table)
    if isinstance(table, FileSet):
        from labeltide.auditing.streaming.run import stream_audit

        return stream_audit(name, table, options, stages)
    with stages.stage("read"):
        read = _read(table, options)
        windows = fitting.choose_windows(read, options.seed)
    with stages.stage("fit"):
        mark_unfinished(options)
        how: dict[str, Any] = {"model": options.model, "seed": options.seed, "device": options.device}
        coded = fitting.fit(read, windows, checkpoint=options.checkpoint, **how)
    with stages.stage("judge"):
        judged = fitting.judge(coded, read, options.fdr, stages.done)
        estimator = fitting.with_class_names(coded, read)
        labels = findings.audited_lines(read, judged)
    with stages.stage("bands"):
        said = _say_limits(read, len(windows), estimator)
        said += fitting.infer(estimator, read, options.seed, stages.done)
    summary = to_json(
        {
            **describe_run(options.command, stages.seconds),
            "table": _describe_table(name, read, said),
            "settings": describe_settings(read, options, estimator, len(windows)),
            **_describe_findings(read, judged, estimator),
        }
    )
    noise = findings.noise_table(read, estimator)
    with stages.stage("page"):
        if options.out is not None:
            _write(options.out, summary, labels, noise, estimator)
    if options.checkpoint is not None:
        shutil.rmtree(options.checkpoint, ignore_errors=True)
    return TableAudit(summary, labels, noise, estimator, options.out)


def _write(folder: Path, summary: dict[str, Any], labels: pa.Table, noise: pa.Table, estimator: TideClassifier) -> None:
    """Write the folder; the page is rendered from what is in memory."""

    def add_page(draft: Path) -> None:
        write_page(draft, Results(summary, labels, rank_issues(labels)))

    write_results(folder, summary, labels, noise, estimator.save, add_page)


def _read(table: Any, options: AuditOptions) -> AuditInput:
    """Read the table once; whole sequences are cut where there are too few of them to judge one by the others."""
    steps = read_audit_steps(table, options.columns)
    read = steps.cut(options.window)
    if options.window is not None:
        return read
    window = max(SMALLEST_WINDOW, int(read.lengths.sum()) // FEW_WINDOWS)
    return read if len(read.index) >= FEW_WINDOWS or window >= read.lengths.max() else steps.cut(window)


def _say_limits(read: AuditInput, n_windows: int, estimator: TideClassifier) -> list[str]:
    said = []
    if n_windows < len(read.index):
        said.append(
            f"The table is large: the networks learned from {n_windows} of {len(read.index)} windows, drawn by chance; "
            "labels in the others are judged by the average of all networks."
        )
    if estimator.epochs < fitting.EPOCHS:
        said.append(f"The networks were trained for {estimator.epochs} epochs, not {fitting.EPOCHS}, to save time.")
    return said


def describe_run(command: str | None, spent: Mapping[str, float]) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "labeltide": __version__,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": None if command is None else as_utf8(command),
        "versions": {"python": platform.python_version(), **{name: version(name) for name in ("torch", "numpy")}},
        "seconds": {"read": spent["read"], "fit": spent["fit"], "inference": spent["judge"] + spent["bands"]},
    }


def table_name(table: Any) -> str:
    """What a table is called in results."""
    return as_utf8(Path(table).name) if isinstance(table, str | Path) else "table"


def _describe_table(name: str, read: AuditInput, said: list[str]) -> dict[str, Any]:
    return {
        "name": name,
        "rows": read.n_rows,
        "sequences": len(read.sequence_names),
        "labels": read.n_labels,
        "columns": read.columns,
        "classes": read.class_names,
        "features": read.feature_names,
        "annotators": read.annotator_names,
        "said": [*read.said, *said],
    }


def _describe_findings(read: AuditInput, judged: LabelAudit, estimator: TideClassifier) -> dict[str, Any]:
    first, *others = findings.describe_clocks(read, estimator)
    return {
        **first,
        "other_clocks": others,
        "timing": findings.describe_timing(read, estimator),
        "issues": findings.describe_issues(read, judged),
        "contested": describe_contested(judged),
        "agreement": describe_agreement(read),
        "plan": findings.describe_plan(read, judged),
        "diagnostics": findings.describe_checks(estimator),
        "timelines": describe_timelines(read, judged),
        "encoders": [asdict(encoder) for encoder in read.encoders],
    }


def describe_settings(
    read: AuditInput, options: AuditOptions, estimator: TideClassifier, n_windows: int
) -> dict[str, Any]:
    return {
        "model": options.model,
        "seed": options.seed,
        "window": read.window,
        "fdr": options.fdr,
        "device": options.device,
        "epochs": estimator.epochs,
        "hidden_size": estimator.hidden_size,
        "windows learned from": n_windows,
        "model file": f"{MODEL}/{MODEL_FILE}",
    }


def as_utf8(text: str) -> str:
    """The text as a file can hold it."""
    return text.encode("utf-8", "replace").decode()
