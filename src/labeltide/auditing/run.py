"""The audit of a table: read, fit, audit the labels, infer bands and tests, write the folder of results."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa
from pyarrow import csv, dataset

from labeltide import _validation
from labeltide._display import ShortRepr
from labeltide._files import to_json, write_json
from labeltide._validation import check_choice
from labeltide.auditing import findings, fitting
from labeltide.auditing.apply import read_decided, trust_decided
from labeltide.auditing.checks import (
    check_copies,
    check_leaks,
    check_shared_classes,
    clusters_of_copies,
    kept_codes,
    leave_out_rare_classes,
)
from labeltide.auditing.compare import compare_audits, open_results
from labeltide.auditing.findings import (
    CONTESTED_PARTS,
    describe_agreement,
    describe_labels,
    describe_run,
    describe_settings,
    describe_table,
    say_limits,
    telling_features,
)
from labeltide.auditing.fitting import TrainOn, check_memory, check_training_memory, expected_seconds, read_train_on
from labeltide.auditing.judging import (
    QUALITY,
    SUPPORT,
    Flags,
    JudgeJob,
    Scorer,
    Totals,
    describe_stretches,
    find_flags,
    judge_all,
    make_scorer,
    read_parts,
)
from labeltide.auditing.options import AuditOptions, say_pace
from labeltide.auditing.page import Results, summary_html, summary_text, write_page
from labeltide.auditing.page.verdict import reading_text
from labeltide.auditing.reading import AuditInput, Learned, choose_source, read_audit_steps
from labeltide.auditing.results import (
    AUDIT,
    ISSUES,
    LABELS,
    MODEL,
    MODEL_FILE,
    NOISE,
    check_folder,
    put_in_place,
    rank_issues,
    write_results,
)
from labeltide.auditing.resume import FITTED_IN_PARTS, Unfinished, disk_needed, read_fitted, say_disk, unfinished_work
from labeltide.auditing.sampling import LargeTable, read_large_table, sizes
from labeltide.auditing.stages import Stages, show_stages
from labeltide.auditing.survey import Layout, check_options, needs_copy
from labeltide.auditing.writing import finish
from labeltide.estimators import TideClassifier
from labeltide.estimators.storage import load
from labeltide.inference.audit import FDR, LabelAudit, flag_bound
from labeltide.inference.conclusion import Diagnostic, conclude
from labeltide.kernels.library import torch_on_one_thread
from labeltide.recordings.epoch_features import OwnFeatures
from labeltide.recordings.recordings import RecordingRequest, is_recording, lay_out
from labeltide.tables.files import FileSet, UnreadableFileError
from labeltide.tables.frames import as_frame, frame_index, write_safe_csv
from labeltide.tables.roles import Names, Reading, Request
from labeltide.training.checkpoint import fingerprint

# ----------------------------------------------------------------------------------------------------
# Steps that audits of tables in memory and in parts have in common.
# ----------------------------------------------------------------------------------------------------


def say_reading(about: Mapping[str, Any], read: AuditInput, stages: Stages) -> None:
    """Say what was read and decided, before anything is fitted; too little memory is an error."""
    stages.say(reading_text(about))
    check_memory(read)


def check_table(
    read: AuditInput, seed: int, learned: Learned | None = None
) -> tuple[np.ndarray, tuple[Diagnostic, ...]]:
    """The recording of each sequence, which copies share, and the checks for copies and for leaks of labels.

    `learned` are the windows to learn from where they are more than those read into memory. Annotators who name classes
    differently are refused.
    """
    check_shared_classes(read)
    windows = read if learned is None else learned
    clusters = clusters_of_copies(windows)
    return clusters, (*check_copies(windows, clusters), *check_leaks(read, seed))


def check_training(read: AuditInput, windows: np.ndarray, options: AuditOptions) -> None:
    """Refuse to learn from more than fits into memory, where the user asked for many labels."""
    if options.train_on is not None:
        labels = int((read.fit_labels[windows] >= 0).sum())
        sizes = read.features.shape[2], len(read.class_names), read.labels.shape[2]
        check_training_memory((len(windows), read.index.shape[1]), labels, *sizes)


def learn(
    read: Learned, windows: np.ndarray, clusters: np.ndarray, options: AuditOptions, kept: Unfinished
) -> TideClassifier:
    """Fit to some windows, or take the fit that an interrupted audit has kept."""
    estimator = kept.fitted(fitting.new_estimator(read, windows, options))
    if estimator is None:
        estimator = fitting.fit(read, windows, clusters[read.groups], options)
        kept.keep_fit(estimator)
    return estimator


# ----------------------------------------------------------------------------------------------------
# How the audit of a table is shown, drawn and given back on the user's own rows.
# ----------------------------------------------------------------------------------------------------


TABLES = ("labels", "issues", "noise")


class TableAuditDisplay(ShortRepr):
    """Frames, a plot and corrected labels of a `TableAudit`."""

    def to_frame(self: Any, kind: str = "pandas", *, of: str = "labels") -> Any:
        """One line for every label, or another table of the audit, as "pandas", "polars" or "pyarrow".

        Parameters
        ----------
        kind : {"pandas", "polars", "pyarrow"}
            In pandas, labels and issues have the index of the frame that was audited.
        of : {"labels", "issues", "noise"}
        """
        table = getattr(self, check_choice("table of an audit", of, TABLES))
        frame = as_frame(table, kind)
        if kind == "pandas" and self.index is not None and of != "noise":
            frame.index = self.index.take(table["row"].to_numpy())
        return frame

    def corrected(self: Any, frame: Any) -> Any:
        """The audited frame with its labels corrected where the model is sure, in its own kind, index and values.

        Parameters
        ----------
        frame : pandas, polars or Arrow
            The table that was audited, in the same order of rows.
        """
        return correct_frame(frame, self.labels, self.summary["table"])

    def plot(self: Any, ax: Any = None) -> Any:
        """Draw the share of wrong labels over the first clock, with its 95 % band."""
        from labeltide.inference.display import new_axes

        ax = new_axes(ax)
        noise = self.summary["noise"]
        moments = np.asarray(noise["clock"], dtype=float)
        for curve in noise["curves"]:
            name = "all labels" if curve.get("annotator") is None else str(curve["annotator"]).replace("$", r"\$")
            (line,) = ax.plot(moments, np.asarray(curve["rate"], dtype=float), label=name)
            ends = (np.asarray(curve[f"rate_{end}"], dtype=float) for end in ("lower", "upper"))
            ax.fill_between(moments, *ends, color=line.get_color(), alpha=0.2, linewidth=0)
        clock = str(self.summary["clock"]["name"]).replace("$", r"\$")
        ax.set(xlabel=clock, ylabel="share of wrong labels", ylim=(0, None))
        ax.legend(frameon=False)
        return ax


def correct_frame(frame: Any, lines: pa.Table, described: dict[str, Any]) -> Any:
    """See `TableAuditDisplay.corrected`."""
    try:
        table = nw.from_native(frame, eager_only=True)
    except TypeError:
        kind = type(frame).__name__
        raise ValueError(f"corrected needs the audited frame of pandas, polars or Arrow. Got {kind}.") from None
    if len(table) != described["rows"]:
        raise ValueError(f"The frame must be the audited one, with {described['rows']} rows. Got {len(table)}.")
    for column, part in _by_column(lines, described).items():
        if column not in table.columns:
            raise ValueError(f"The frame must be the audited one, with the label column {column!r}.")
        table = table.with_columns(_corrected_column(table[column], part))
    return table.to_native()


def _by_column(lines: pa.Table, described: dict[str, Any]) -> dict[str, pa.Table]:
    """The audited lines of every label column: one column, or one for each annotator."""
    columns = described["columns"]
    names = described["annotators"]
    if columns.get("annotator") is not None or not names:
        return {columns["label"]: lines}
    annotators = np.asarray(lines["annotator"].to_pylist(), dtype=object)
    return {name: lines.filter(pa.array(annotators == name)) for name in names}


def _corrected_column(values: Any, lines: pa.Table) -> Any:
    """The column with other values where the corrected label differs; values are those that the column has."""
    rows = lines["row"].to_numpy()
    recorded, corrected = (np.asarray(lines[name].to_pylist(), dtype=object) for name in ("recorded", "corrected"))
    changed = np.flatnonzero(recorded != corrected)
    if not len(changed):
        return values
    of_text = dict(zip(recorded.tolist(), rows.tolist(), strict=True))  # a row that has the label
    unknown = sorted({str(text) for text in corrected[changed]} - {str(text) for text in of_text})
    if unknown:
        raise ValueError(f"The label column holds no {unknown[0]!r}, to which labels would be corrected.")
    known = {text: values[row] for text, row in of_text.items()}
    if values.dtype not in (nw.Categorical, nw.Enum):  # of several spellings, the one that stands for the class
        known = {text: text if isinstance(value, str) else value for text, value in known.items()}
    new = [known[text] for text in corrected[changed]]
    return values.scatter(rows[changed].tolist(), new)


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
        return stream_audit(table, source, options, kept, stages)
    with stages.stage("read"):
        laid, columns, recordings = lay_out(source, options.recordings, options.columns)
        options = replace(options, columns=columns, recordings=recordings)
        recorded = _read(laid, options)
        read = leave_out_rare_classes(recorded)
        about = describe_table(table, read, recordings.messages)
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


# ----------------------------------------------------------------------------------------------------
# The audit of a table that does not fit in memory: survey, draw, fit, judge chunk by chunk, write.
# ----------------------------------------------------------------------------------------------------


CODED = "coded.safetensors"  # the fit with codes for classes, as it judges
SECONDS = {"read": 2e-6, "judge": 6e-6, "page": 2e-6}  # that a row takes; the machine's own speed corrects it


@dataclass(frozen=True, repr=False)
class StreamedAudit(TableAudit):
    """What an audit of a large table found; its tables stay on disk.

    Attributes
    ----------
    labels : pyarrow.dataset.Dataset over labels.parquet, in place of a table
    """

    @property
    def issues(self) -> Any:
        """The labels to check, the surest first: a pyarrow.dataset.Dataset over issues.parquet."""
        assert self.folder is not None
        return dataset.dataset(self.folder / ISSUES)


@dataclass(frozen=True)
class FlaggedAudit(LabelAudit):
    """A label audit whose flags follow from a threshold that was found elsewhere."""

    threshold: float = 0.0

    @cached_property
    def _is_issue(self) -> np.ndarray:
        with np.errstate(invalid="ignore"):
            low = self._quality < self.threshold
        return low if self.spend_fdr else low & (self.labels != self._suggested[..., None])


@dataclass(frozen=True)
class StreamedResults(Results):
    """Results of which the lines that timelines show are in memory."""

    lines: pa.Table = field(default_factory=lambda: pa.table({}))

    def labels_of(self, sequences: list[str]) -> pa.Table:
        return self.lines


def stream_audit(table: Any, files: FileSet, options: AuditOptions, kept: Unfinished, stages: Stages) -> StreamedAudit:
    """Audit the files of a large table; see `labeltide.audit`."""
    check_options(files, options)
    if options.out is None or options.checkpoint is None:
        raise ValueError(
            f"A table of {files.n_rows:,} rows is read in parts, and its results are written to a folder. Name it with "
            "out."
        )
    stages.expect({name: files.n_rows * seconds for name, seconds in SECONDS.items()})
    kept.begin(options.settings(fingerprint(*files.paths, *files.sizes)), options.resume)
    try:
        return _run_in_parts(table, files, options, kept, stages)
    except UnreadableFileError as error:
        raise ValueError(f"{error} What was done is kept: the same audit with resume (--resume) goes on.") from None


def _run_in_parts(table: Any, files: FileSet, options: AuditOptions, kept: Unfinished, stages: Stages) -> StreamedAudit:
    work = options.checkpoint
    assert work is not None
    assert options.out is not None
    with stages.stage("read"):
        stages.say(say_disk(disk_needed(files, needs_copy(files), train_on=options.train_on), work))
        read = read_large_table(files, options, stages)
        layout, sample = read.layout, read.sample
        about = {**describe_table(table, sample, []), **sizes(layout)}
        say_reading(about, sample, stages)
    fitted = _fit(read, options, kept, stages)
    del read  # the windows that were learned from are no longer mapped
    may_name = fitted["conclusion"]["names_labels"]
    with stages.stage("judge"):
        with torch_on_one_thread():
            scorer = make_scorer(load(work / CODED), sample, options.device)
            doubt = fitted["false_alarms"]
            judged = _judge_sample(scorer, sample, options.fdr, None if doubt is None else np.asarray(doubt))
        job = JudgeJob(layout, scorer, work, judged.probabilities[judged.mask].mean(0))
        judge_all(job, lambda done: stages.rows(done, layout.survey.n_rows))
    with stages.stage("page"):
        total = layout.survey.n_rows
        parts = read_parts(work, len(layout.plan.chunks), [QUALITY, SUPPORT])
        bound = flag_bound(judged.false_alarms, options.fdr)
        flags = find_flags(parts if may_name else (), bound, options.spend_fdr)
        totals = _new_totals(layout, sample, scorer)
        draft = _new_draft(work)
        finish(job, flags, totals, draft, lambda done: stages.rows(done, total, (0.0, 0.9)))
        judged = FlaggedAudit(**_fields(replace(judged, spend_fdr=flags.spend_fdr)), threshold=flags.threshold)
        described = _describe(layout, sample, judged, (totals, flags, job))
        lines = described.pop("lines")
        summary = to_json(
            {
                **describe_run(options.command, {"read": 0.0, "fit": 0.0, "judge": 0.0, "bands": 0.0}),
                "seconds": {**fitted["seconds"], **stages.seconds, "write": stages.spent()},
                "table": {**about, "said": [*about["said"], *fitted["said"]]},
                "settings": fitted["settings"],
                "conclusion": fitted["conclusion"],
                **_with_counts(fitted["findings"], layout, totals),
                **described,
            }
        )
        _write_in_parts(work, draft, options.out, summary, lines)
    labels, noise = dataset.dataset(options.out / LABELS), csv.read_csv(options.out / NOISE)
    return StreamedAudit(summary, labels, noise, load(options.out / MODEL / MODEL_FILE), options.out)


def _fit(read: LargeTable, options: AuditOptions, kept: Unfinished, stages: Stages) -> dict[str, Any]:
    """Fit and infer, and keep what the rest needs; an audit that goes on takes it from there."""
    work = options.checkpoint
    assert work is not None
    known = read_fitted(work)
    if known is not None:
        return known
    sample, learned = read.sample, read.learned or read.sample
    every = np.arange(len(learned.lengths))
    epochs = fitting.choose_epochs(learned, every, options.pace)
    stages.expect({name: expected_seconds(sample, every, epochs, options.pace)[name] for name in ("fit", "bands")})
    with stages.stage("fit"):
        clusters, checks = check_table(sample, options.seed, learned)
        coded = learn(learned, every, clusters, options, kept)
    with stages.stage("bands"):
        estimator = fitting.with_class_names(coded, sample)
        said = say_pace(options.pace, options.train_on) + say_limits(len(every), read.n_windows, options, estimator)
        kept.take_findings(estimator)
        said += fitting.infer(estimator, sample, options, stages.done, kept.keep_findings)
        noise_found = findings.describe_noise_found(sample, estimator, checks)
        described = {
            **noise_found,
            "encoders": [asdict(encoder) for encoder in sample.encoders],
        }
        write_safe_csv(findings.noise_table(sample, estimator), work / NOISE)
        (work / MODEL).mkdir(exist_ok=True)
        estimator.save(work / MODEL / MODEL_FILE)
        coded.save(work / CODED)
        settings = describe_settings(sample, options, estimator, len(every))
        seconds = {name: stages.seconds.get(name, 0.0) for name in ("read", "fit")}
    seconds["bands"] = stages.seconds["bands"]
    conclusion = conclude(to_json(noise_found)).to_json()
    fitted = {
        "said": said,
        "findings": described,
        "conclusion": conclusion,
        "false_alarms": estimator.clock_estimates_[0].false_alarms,
        "settings": settings,
        "seconds": seconds,
    }
    write_json(work / FITTED_IN_PARTS, fitted)
    return dict(to_json(fitted))


def _judge_sample(scorer: Scorer, sample: AuditInput, fdr: float, false_alarms: np.ndarray | None) -> LabelAudit:
    """The audit of the windows that were learned from."""
    mask = _validation.steps_mask(sample.lengths, sample.index.shape[1])
    posterior, signal = scorer.score_windows(sample, mask)
    clock = sample.each_clock[0]
    classes = np.array(sample.class_names)
    rates = np.zeros((*mask.shape, len(classes)), dtype=np.float32)
    more: dict[str, Any] = {"trusted": sample.fit_trusted, "false_alarms": false_alarms}
    return LabelAudit(classes, sample.fit_labels, clock, mask, posterior, signal, rates, fdr, True, **more)


def _fields(judged: LabelAudit) -> dict[str, Any]:
    return {name: getattr(judged, name) for name in LabelAudit.__dataclass_fields__}


def _new_totals(layout: Layout, sample: AuditInput, scorer: Scorer) -> Totals:
    labelled = (sample.fit_labels >= 0).any(-1)
    clock = sample.each_clock[0][labelled]
    return Totals(
        edges=np.linspace(float(clock.min()), float(clock.max()), CONTESTED_PARTS + 1),
        codes=kept_codes(layout.rare),
        by_class=np.zeros((3, len(layout.class_names))),
        by_sequence=np.zeros((2, len(layout.survey.names)), dtype=np.int64),
        by_annotator=np.zeros(len(layout.annotator_names or ()), dtype=np.int64),
        several=scorer.several,
    )


def _new_draft(work: Path) -> Path:
    """The folder of results, which is moved into place once it is whole; begun anew where it was left."""
    draft = work / "new"
    shutil.rmtree(draft, ignore_errors=True)
    shutil.rmtree(work / "buckets", ignore_errors=True)
    draft.mkdir()
    return draft


def _describe(
    layout: Layout, sample: AuditInput, judged: FlaggedAudit, found: tuple[Totals, Flags, JudgeJob]
) -> dict[str, Any]:
    """The parts of audit.json that follow from the judgements, and the lines of the stretches that the page draws."""
    totals, flags, job = found
    stretches, lines = describe_stretches(job, flags, totals, telling_features(sample, judged))
    return {
        "issues": totals.describe_issues(layout.survey.names, layout.class_names, judged),
        "contested": totals.describe_contested(layout.class_names),
        "agreement": describe_agreement(sample),
        "plan": findings.describe_plan(sample, judged),
        "timelines": stretches,
        "lines": lines,
    }


def _with_counts(described: dict[str, Any], layout: Layout, totals: Totals) -> dict[str, Any]:
    """Curves with the numbers of labels of the whole table, not of the windows that were drawn, and its share."""
    of_annotator = dict(zip(layout.annotator_names or (), totals.by_annotator.tolist(), strict=True))
    for clock in (described, *described["other_clocks"]):
        for curve in clock["noise"]["curves"]:
            who = curve["annotator"]
            curve["labels"] = layout.n_labels if who is None else of_annotator.get(who, 0)
    return findings.state_share(described, totals.share_wrong)


def _write_in_parts(work: Path, draft: Path, folder: Path, summary: dict[str, Any], lines: pa.Table) -> None:
    write_json(draft / AUDIT, summary)
    shutil.copy(work / NOISE, draft / NOISE)
    shutil.copytree(work / MODEL, draft / MODEL)
    write_page(draft, StreamedResults(summary, draft / LABELS, draft / ISSUES, lines))
    check_folder(folder)
    put_in_place(draft, folder)
