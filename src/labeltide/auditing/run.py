"""The audit of a table: read, fit, audit the labels, infer bands and tests, write the folder of results."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from labeltide import _validation
from labeltide._files import to_json
from labeltide.auditing import findings, fitting
from labeltide.auditing.audit_input import AuditInput
from labeltide.auditing.audit_summary import (
    describe_labels,
    describe_run,
    describe_settings,
    describe_table,
    say_limits,
)
from labeltide.auditing.common_steps import check_table, check_training, learn, say_reading
from labeltide.auditing.comparing import compare_audits, open_results
from labeltide.auditing.decided import read_decided, trust_decided
from labeltide.auditing.epoch_features import OwnFeatures
from labeltide.auditing.expected_cost import expected_seconds
from labeltide.auditing.folder import check_folder, rank_issues, write_results
from labeltide.auditing.options import AuditOptions
from labeltide.auditing.pace import say_pace
from labeltide.auditing.page import Results, summary_html, summary_text, write_page
from labeltide.auditing.rare_classes import leave_out_rare_classes
from labeltide.auditing.reading import read_audit_steps
from labeltide.auditing.recordings import RecordingRequest, is_recording, lay_out
from labeltide.auditing.source import choose_source
from labeltide.auditing.stages import Stages, show_stages
from labeltide.auditing.table_display import TableAuditDisplay
from labeltide.auditing.train_on import TrainOn, read_train_on
from labeltide.auditing.unfinished import Unfinished, unfinished_work
from labeltide.estimators import TideClassifier
from labeltide.inference.audit import FDR
from labeltide.inference.conclusion import conclude
from labeltide.tables.file_set import FileSet
from labeltide.tables.frames import frame_index
from labeltide.tables.roles import Names, Reading, Request
from labeltide.training.checkpoint import fingerprint

FEW_WINDOWS = 10  # under which whole sequences are cut, so that one part can be judged by others
SMALLEST_WINDOW = 8


@dataclass(frozen=True, repr=False)
class TableAudit(TableAuditDisplay):
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
    index : index of the pandas frame that was audited, or None

    Examples
    --------
    >>> import labeltide as lt
    >>> result = lt.audit("walks.csv", sequence="person", time="minute", label="label", fast=True)
    >>> result.labels.num_rows, result.summary["table"]["classes"]
    (120, ['rest', 'walk'])
    >>> result.issues.num_rows < result.labels.num_rows  # the labels to check
    True
    """

    summary: dict[str, Any]
    labels: pa.Table = field(repr=False)
    noise: pa.Table = field(repr=False)
    estimator: TideClassifier = field(repr=False)
    folder: Path | None = None
    index: Any = field(default=None, repr=False)

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
    features: Names | OwnFeatures = None,
    annotator: str | None = None,
    clock: Names = None,
    trusted: str | None = None,
    window: int | None = None,
    drop_bad_rows: bool = False,
    timezone: str | None = None,
    labels: Any = None,
    epoch: float | None = None,
    field: str | None = None,
    model: str = "gru",
    out: str | Path | None = None,
    seed: int = 0,
    device: str = "auto",
    fdr: float = FDR,
    spend_fdr: bool = False,
    verbose: bool = False,
    resume: bool = False,
    decisions: str | Path | None = None,
    baseline: str | Path | None = None,
    command: str | None = None,
    fast: bool = False,
    train_on: TrainOn = None,
) -> TableAudit:
    """Say which labels of a table are likely wrong, when, and how sure that is.

    Parameters
    ----------
    table, sequence, time, label, features, annotator, clock, trusted, window
        As `labeltide.auditing.read_audit_table` takes them; columns are found where that is plain. The table may also
        be a folder or a glob of parquet or CSV files, or an address such as s3://bucket/folder. More than two million
        rows are read in parts, in memory that does not grow with them; results then need `out`.
        table may also be a recording, a folder or a manifest of recordings (:doc:`file formats </formats>`), and
        features then a function of an epoch: {channel: samples}, {channel: rate} to {name: number}.
    drop_bad_rows : leave out rows without a time or a sequence and exact repeats of an earlier row
    timezone : name of a time zone, as "Europe/Berlin", to whose wall clock times are converted; None keeps hours as
        written
    labels : files of spans, or a span table, for a recording; None where the recording holds them itself
    epoch : seconds of one epoch of a recording; None finds them
    field : "eeg", "sleep", "muscle", "ecg", "movement", "gaze" or "plain"; None goes by the names of the channels
    model : {"gru", "tcn", "transformer"}
    out : folder for the results and the page, new, empty or that of an earlier audit; nothing is written without it
    seed : the same seed gives the same numbers
    device : "auto" takes a GPU where there is one
    fdr : the expected share of false alarms among the labels to check, at most
    spend_fdr : name labels until that share is reached, also where no other label is likelier: more of the wrong ones
        are found, and more right ones are named; corrections stay the same
    verbose : draw a progress bar on a terminal, write lines to the log elsewhere
    resume : go on with an audit into the same folder whose fit was interrupted
    decisions : folder of an audit that was reviewed; the labels that reviewers settled are trusted
    baseline : folder of an earlier audit, with which this one is compared
    command : how the audit was asked for, to be shown on the page
    fast : learn from fewer windows for fewer epochs, and compute bands, checks and tests from fewer windows
    train_on : how many labels to learn from, or "all"; by default a number that grows with the root of the table's size
        up to 240,000 steps (:doc:`scale </scale>` says what more brings). All labels are judged in any case.

    Examples
    --------
    >>> import labeltide as lt
    >>> result = lt.audit("walks.csv", sequence="person", time="minute", label="label", fast=True, out="audit")
    >>> result.page.name, result.labels.num_rows
    ('report.html', 120)
    """
    options = AuditOptions(
        columns=Request(sequence, time, label, None if callable(features) else features, annotator, clock, trusted),
        window=window,
        model=model,
        out=None if out is None else Path(out),
        seed=seed,
        device=device,
        fdr=fdr,
        spend_fdr=spend_fdr,
        resume=resume,
        command=command,
        recordings=RecordingRequest(labels, epoch, field, features if callable(features) else None),
        reading=Reading(drop_bad_rows, timezone),
        decisions=None if decisions is None else Path(decisions),
        baseline=None if baseline is None else Path(baseline),
        fast=fast,
        train_on=read_train_on(train_on),
    )
    options = replace(options, device=_validation.check_device(device))
    if options.out is not None:
        check_folder(options.out)
    elif resume:
        raise ValueError("resume goes on with an audit into a folder. Name that folder with out.")
    with unfinished_work(options.checkpoint, options.out, resume) as kept, show_stages(verbose) as stages:
        return _run(table, options, kept, stages)


def _run(table: Any, options: AuditOptions, kept: Unfinished, stages: Stages) -> TableAudit:
    baseline = None if options.baseline is None else open_results(options.baseline, in_memory=True)
    source = table if is_recording(table, options.recordings.labels) else choose_source(table)
    if isinstance(source, FileSet):
        from labeltide.auditing.streaming.run import stream_audit

        return stream_audit(table, source, options, kept, stages)
    with stages.stage("read"):
        laid, columns, recordings = lay_out(source, options.recordings, options.columns)
        options = replace(options, columns=columns, recordings=recordings)
        recorded = _read(laid, options)
        read = leave_out_rare_classes(recorded)
        about = describe_table(table, read, recordings.said)
        say_reading(about, read, stages)
        windows = fitting.choose_windows(read, options.seed, options.pace, options.train_on)
        check_training(read, windows, options)
        clusters, checks = check_table(read, options.seed)
    stages.expect(expected_seconds(read, windows, fitting.choose_epochs(read, windows, options.pace), options.pace))
    with stages.stage("fit"):
        kept.begin(options.settings(_digest(read)), options.resume)
        coded = learn(read, windows, clusters, options, kept)
    with stages.stage("judge"):
        judged = fitting.judge(coded, read, options.fdr, stages.done)
        estimator = fitting.with_class_names(coded, read)
    with stages.stage("bands"):
        said = say_pace(options.pace, options.train_on) + say_limits(len(windows), len(read.index), options, estimator)
        kept.take_findings(estimator)
        said += fitting.infer(estimator, read, options, stages.done, kept.keep_findings)
    noise_found = findings.describe_noise_found(read, estimator, checks)
    noise_found = findings.state_share(noise_found, judged.share_wrong)
    conclusion = conclude(to_json(noise_found))
    doubt = estimator.clock_estimates_[0].false_alarms
    judged = replace(judged, may_name=conclusion.names_labels, false_alarms=doubt, spend_fdr=options.spend_fdr)
    labels = findings.audited_lines(recorded, read, judged)
    summary = to_json(
        {
            **describe_run(options.command, stages.seconds),
            "table": {**about, "said": [*about["said"], *said]},
            "settings": describe_settings(read, options, estimator, len(windows)),
            "conclusion": conclusion.to_json(),
            **noise_found,
            **describe_labels(read, judged),
            **({"recordings": recordings.described} if recordings.described else {}),
        }
    )
    if read.decisions is not None:
        summary["decisions"] = to_json(read.decisions)
    if baseline is not None:
        summary["compare"] = compare_audits(baseline, Results(summary, labels, labels)).summary
    noise = findings.noise_table(read, estimator)
    with stages.stage("page"):
        if options.out is not None:
            _write(options.out, summary, labels, noise, estimator)
    return TableAudit(summary, labels, noise, estimator, options.out, frame_index(table))


def _write(folder: Path, summary: dict[str, Any], labels: pa.Table, noise: pa.Table, estimator: TideClassifier) -> None:
    """Write the folder; the page is rendered from what is in memory."""

    def add_page(draft: Path) -> None:
        write_page(draft, Results(summary, labels, rank_issues(labels)))

    write_results(folder, summary, labels, noise, estimator.save, add_page)


def _read(table: Any, options: AuditOptions) -> AuditInput:
    """Read the table once; whole sequences are cut where there are too few of them to judge one by the others."""
    decided = None if options.decisions is None else read_decided(options.decisions)
    steps = read_audit_steps(table, options.columns, options.reading)
    if decided is not None:
        steps = trust_decided(steps, decided, table)
    read = steps.cut(options.window)
    if options.window is not None:
        return read
    window = max(SMALLEST_WINDOW, int(read.lengths.sum()) // FEW_WINDOWS)
    return read if len(read.index) >= FEW_WINDOWS or window >= read.lengths.max() else steps.cut(window)


def _digest(read: AuditInput) -> str:
    """By which an audit that goes on knows that the table has not changed."""
    return fingerprint(read.features, read.labels, read.clock, read.lengths, read.trusted, read.gaps, read.groups)
