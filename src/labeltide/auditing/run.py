"""From a table to what is known of its labels, and to a folder of results that people act on."""

from __future__ import annotations

import platform
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa

from labeltide import __version__, _validation
from labeltide._files import to_json
from labeltide.auditing import findings, fitting
from labeltide.auditing.agreement import describe_agreement
from labeltide.auditing.columns import Names
from labeltide.auditing.files import FORMAT, MODEL, MODEL_FILE, check_folder, rank_issues, write_results
from labeltide.auditing.page import summary_html, summary_text, write_page
from labeltide.auditing.progress import Stages, show_stages
from labeltide.auditing.read import read_audit_table
from labeltide.auditing.table import AuditTable
from labeltide.auditing.timelines import describe_timelines
from labeltide.estimators import TideClassifier
from labeltide.inference.audit import FDR, LabelAudit

MODELS = ("gru", "tcn", "transformer")
FEW_WINDOWS = 10  # under which whole sequences are cut, so that one part can be judged by others
SMALLEST_WINDOW = 8
UNFINISHED = "started"  # beside the checkpoints of a fit, which are gone once it ends


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
        return summary_html(self.folder if self.folder and self.folder.exists() else self.summary)

    def __str__(self) -> str:
        return summary_text(self.summary)


@dataclass(frozen=True)
class _Options:
    columns: dict[str, Any]
    window: int | None
    model: str
    out: Path | None
    seed: int
    device: str
    fdr: float
    resume: bool

    @property
    def checkpoint(self) -> Path | None:
        """Beside the folder, which holds nothing until the audit is whole."""
        return None if self.out is None else self.out.absolute().with_name(f".{self.out.absolute().name}-unfinished")


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
        As `labeltide.auditing.read_audit_table` takes them; columns are found where that is plain.
    model : {"gru", "tcn", "transformer"}
    out : folder for the results and the page, new, empty or that of an earlier audit; nothing is written without it
    seed : the same seed gives the same numbers
    device : "auto" takes a GPU where there is one
    fdr : the expected share of false alarms among the labels to check
    verbose : draw a progress bar on a terminal
    resume : go on with an audit into the same folder whose fit was interrupted
    command : how the audit was asked for, to be shown on the page
    """
    _validation.check_choice("model", model, MODELS)
    _validation.check_number("seed", seed, 0, 2**32 - 1, whole=True)
    _validation.check_number("fdr", fdr, 0, 1)
    device = _validation.check_device(device)
    columns = {"sequence": sequence, "time": time, "label": label, "features": features, "annotator": annotator}
    columns |= {"clock": clock, "trusted": trusted}
    options = _Options(columns, window, model, None if out is None else Path(out), seed, device, fdr, resume)
    if options.out is not None:
        check_folder(options.out)
    elif resume:
        raise ValueError("resume goes on with an audit into a folder. Name that folder with out.")
    _prepare_checkpoint(options)
    with show_stages(verbose) as stages:
        return _run(table, options, stages, command)


def _run(table: Any, options: _Options, stages: Stages, command: str | None) -> TableAudit:
    with stages.stage("read"):
        read = read_audit_table(table, **options.columns, window=options.window)
        if options.window is None:
            read = _cut_shorter(table, read, options)
        windows = fitting.choose_windows(read, options.seed)
    with stages.stage("fit"):
        _mark_unfinished(options)
        how: dict[str, Any] = {"model": options.model, "seed": options.seed, "device": options.device}
        estimator = fitting.fit(read, windows, checkpoint=options.checkpoint, **how)
    with stages.stage("judge"):
        judged = fitting.judge(estimator, read, options.fdr, stages.done)
        fitting.name_classes(estimator, read)
        labels = findings.label_table(read, judged)
    with stages.stage("bands"):
        said = _say_limits(read, len(windows), estimator)
        said += fitting.infer(estimator, read, options.seed, stages.done)
    summary = {
        **_describe_run(command, stages.seconds),
        "table": _describe_table(table, read, said),
        "settings": _describe_settings(read, options, estimator, len(windows)),
        **_describe_findings(read, judged, estimator),
    }
    noise = findings.noise_table(read, estimator)
    with stages.stage("page"):
        if options.out is not None:
            write_results(options.out, summary, labels, noise, estimator.save, write_page)
    if options.checkpoint is not None:
        shutil.rmtree(options.checkpoint, ignore_errors=True)
    return TableAudit(to_json(summary), labels, noise, estimator, options.out)


def _prepare_checkpoint(options: _Options) -> None:
    """Start anew, or make sure that there is something to go on with."""
    folder = options.checkpoint
    if folder is None:
        return
    if options.resume and not folder.exists():
        raise ValueError(
            f"There is no interrupted audit to go on with beside {str(options.out)!r}. Leave --resume out to start one."
        )
    if not options.resume and folder.exists():
        shutil.rmtree(folder)


def _mark_unfinished(options: _Options) -> None:
    """Leave a trace until all is written, so that an audit stopped at any later moment can be gone on with."""
    if options.checkpoint is not None:
        options.checkpoint.mkdir(parents=True, exist_ok=True)
        (options.checkpoint / UNFINISHED).touch()


def _cut_shorter(table: Any, read: AuditTable, options: _Options) -> AuditTable:
    """Cut whole sequences where there are too few of them to judge one by the others."""
    window = max(SMALLEST_WINDOW, int(read.lengths.sum()) // FEW_WINDOWS)
    if len(read.index) >= FEW_WINDOWS or window >= read.lengths.max():
        return read
    return read_audit_table(table, **options.columns, window=window)


def _say_limits(read: AuditTable, n_windows: int, estimator: TideClassifier) -> list[str]:
    said = []
    if n_windows < len(read.index):
        said.append(
            f"The table is large: the networks learned from {n_windows} of {len(read.index)} windows, drawn by chance; "
            "labels in the others are judged by the average of all networks."
        )
    if estimator.epochs < fitting.EPOCHS:
        said.append(f"The networks were trained for {estimator.epochs} epochs, not {fitting.EPOCHS}, to save time.")
    return said


def _describe_run(command: str | None, spent: Mapping[str, float]) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "labeltide": __version__,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command,
        "versions": {"python": platform.python_version(), **{name: version(name) for name in ("torch", "numpy")}},
        "seconds": {"read": spent["read"], "fit": spent["fit"], "inference": spent["judge"] + spent["bands"]},
    }


def _describe_table(table: Any, read: AuditTable, said: list[str]) -> dict[str, Any]:
    return {
        "name": Path(table).name if isinstance(table, str | Path) else "table",
        "rows": read.n_rows,
        "sequences": len(read.sequence_names),
        "labels": read.n_labels,
        "columns": read.columns,
        "classes": read.class_names,
        "features": read.feature_names,
        "annotators": read.annotator_names,
        "said": [*read.said, *said],
    }


def _describe_findings(read: AuditTable, judged: LabelAudit, estimator: TideClassifier) -> dict[str, Any]:
    first, *others = findings.describe_clocks(read, estimator)
    return {
        **first,
        "other_clocks": others,
        "issues": findings.describe_issues(read, judged),
        "agreement": describe_agreement(read),
        "plan": findings.describe_plan(read, judged),
        "diagnostics": findings.describe_checks(estimator),
        "timelines": describe_timelines(read, judged),
        "encoders": [asdict(one) for one in read.encoders],
    }


def _describe_settings(read: AuditTable, options: _Options, estimator: TideClassifier, windows: int) -> dict[str, Any]:
    return {
        "model": options.model,
        "seed": options.seed,
        "window": read.window,
        "fdr": options.fdr,
        "device": options.device,
        "epochs": estimator.epochs,
        "hidden_size": estimator.hidden_size,
        "windows learned from": windows,
        "model file": f"{MODEL}/{MODEL_FILE}",
    }
