"""The audit of a table: read, fit, audit the labels, infer bands and tests, write the folder of results."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
import pyarrow as pa
from pyarrow import dataset

from labeltide import _validation
from labeltide._display import ShortRepr
from labeltide._files import to_json
from labeltide.auditing import fitting
from labeltide.auditing.alignment import TableShifts, find_table_shifts
from labeltide.auditing.apply import read_decided, trust_decided
from labeltide.auditing.checks import (
    check_circular,
    check_copies,
    check_leaks,
    check_shared_classes,
    clusters_of_copies,
    leave_out_rare_classes,
)
from labeltide.auditing.compare import compare_audits, open_results
from labeltide.auditing.findings import (
    Totals,
    describe_labels,
    describe_noise_found,
    describe_run,
    describe_settings,
    describe_table,
    describe_whole,
    noise_table,
    say_limits,
)
from labeltide.auditing.fitting import check_memory, check_training_memory, expected_seconds
from labeltide.auditing.judging import QUALITY, SUPPORT, JudgeJob, find_flags, judge_all, judge_sample, make_scorer
from labeltide.auditing.options import AuditOptions, say_pace, takes_options
from labeltide.auditing.page import Results, summary_html, summary_text, write_page
from labeltide.auditing.page.verdict import reading_text
from labeltide.auditing.reading import (
    AuditInput,
    audit_window,
    check_features,
    choose_source,
    open_whole,
    read_audit_steps,
)
from labeltide.auditing.results import ISSUES, LABELS, check_folder, new_results, rank_issues, write_findings
from labeltide.auditing.resume import Stages, UnfinishedAudit, say_disk, show_stages, unfinished_work
from labeltide.auditing.sampling import read_large_table
from labeltide.auditing.survey import Layout, MemoryTable, needs_copy, write_joined
from labeltide.auditing.writing import write_lines
from labeltide.estimators import TideClassifier
from labeltide.estimators.planted import PlantedErrors, check_planted
from labeltide.estimators.predictions import check_predictions
from labeltide.inference.audit import flag_bound
from labeltide.inference.conclusion import Diagnostic, conclude, named_pairs
from labeltide.kernels.library import torch_on_one_thread
from labeltide.recordings.recordings import is_recording, lay_out
from labeltide.tables.columns import as_frame, frame_index, join_tables, open_table
from labeltide.tables.files import FileSet, UnreadableFileError, open_files, without_secrets
from labeltide.training.state import fingerprint

TABLES = ("labels", "issues", "noise")


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
        raise ValueError(f"Labels would be corrected to {unknown[0]!r}, which the label column does not hold.")
    known = {text: values[row] for text, row in of_text.items()}
    if values.dtype not in (nw.Categorical, nw.Enum):  # of several spellings, the one that stands for the class
        known = {text: text if isinstance(value, str) else value for text, value in known.items()}
    new = [known[text] for text in corrected[changed]]
    return values.scatter(rows[changed].tolist(), new)


SECONDS = {"read": 2e-6, "judge": 6e-6, "page": 2e-6}  # that a row takes; the machine's own speed corrects it


@dataclass(frozen=True, repr=False)
class TableAudit(ShortRepr):
    """What an audit of a table found; shows itself in a notebook and as text.

    Attributes
    ----------
    summary : dict
        All numbers, as audit.json holds them.
    labels : pyarrow.Table or, of a large table, pyarrow.dataset.Dataset over labels.parquet
        One line for every row and annotator: recorded, probability that it is right, suggested, corrected, and why.
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
    def issues(self) -> Any:
        """The labels to check, most likely errors first; of a large table a Dataset over issues.parquet."""
        if isinstance(self.labels, pa.Table):
            return rank_issues(self.labels)
        assert self.folder is not None
        return dataset.dataset(self.folder / ISSUES)

    @property
    def page(self) -> Path | None:
        return self.folder / "report.html" if self.folder else None

    def to_frame(self, kind: str = "pandas", *, of: str = "labels") -> Any:
        """One line for every row and annotator, or another table of the audit, as "pandas", "polars" or "pyarrow".

        Parameters
        ----------
        kind : {"pandas", "polars", "pyarrow"}
            In pandas, labels and issues have the index of the frame that was audited.
        of : {"labels", "issues", "noise"}
        """
        table = getattr(self, _validation.check_choice("table of an audit", of, TABLES))
        frame = as_frame(table, kind)
        if kind == "pandas" and self.index is not None and of != "noise":
            frame.index = self.index.take(table["row"].to_numpy())
        return frame

    def corrected(self, frame: Any) -> Any:
        """The audited frame with its labels corrected where the model is sure, in its own kind, index and values.

        Parameters
        ----------
        frame : pandas, polars or Arrow
            The table that was audited, in the same order of rows.
        """
        described = self.summary["table"]
        try:
            table = nw.from_native(frame, eager_only=True)
        except TypeError:
            kind = type(frame).__name__
            raise ValueError(f"corrected needs the audited frame, of pandas, polars or Arrow. Got {kind}.") from None
        if len(table) != described["rows"]:
            raise ValueError(f"The frame must be the audited one, with {described['rows']} rows. Got {len(table)}.")
        columns, names = described["columns"], described["annotators"]
        parts = {columns["label"]: self.labels}  # lines of every label column: one, or one for each annotator
        if columns.get("annotator") is None and names:
            annotators = np.asarray(self.labels["annotator"].to_pylist(), dtype=object)
            parts = {name: self.labels.filter(pa.array(annotators == name)) for name in names}
        for column, part in parts.items():
            if column not in table.columns:
                raise ValueError(f"The frame must be the audited one, with the label column {column!r}.")
            table = table.with_columns(_corrected_column(table[column], part))
        return table.to_native()

    def plot(self, ax: Any = None) -> Any:
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

    def _repr_html_(self) -> str:
        return summary_html(self.summary, self.folder if self.folder and self.folder.exists() else None)

    def __str__(self) -> str:
        return summary_text(self.summary)


@takes_options(AuditOptions)
def audit(table: Any, options: AuditOptions) -> TableAudit:
    """Say which labels of a table are likely wrong, when, and how sure that is.

    Columns that are not named are found by their names and types, or an error asks for them. Options that take several
    names take a list as well. More than two million rows are read in parts, in memory that does not grow with them, and
    the results need `out`. By default an audit learns from a number of labels that grows with the square root of the
    table's size, up to 240,000 steps (:doc:`scale </scale>` says what more brings).

    Parameters
    ----------
    table : data frame or path
        Anything narwhals takes; a file, a folder or a glob of Parquet or CSV files, or an address such as
        s3://bucket/folder. Or a recording, a folder or a manifest of recordings (:doc:`file formats </formats>`);
        features may then be a function of an epoch: {channel: samples}, {channel: rate} to {name: number}.
    (options)

    Examples
    --------
    >>> import labeltide as lt
    >>> result = lt.audit("walks.csv", sequence="person", time="minute", label="label", fast=True, out="audit")
    >>> result.page.name, result.labels.num_rows
    ('report.html', 120)
    """
    options = replace(options, device=_validation.check_device(options.device))
    if options.folder is not None:
        check_folder(options.folder)
    elif options.resume:
        raise ValueError("resume continues an audit that writes to a folder. Name that folder with out.")
    with (
        unfinished_work(options.checkpoint, options.folder, options.resume) as kept,
        show_stages(options.verbose) as stages,
    ):
        # Read, fit, judge chunk by chunk, conclude, write; a table in memory is one chunk.
        baseline = None if options.baseline is None else open_results(Path(options.baseline), in_memory=True)
        source = table if is_recording(table, options.recordings.labels) else choose_source(table)
        try:
            return _audit(table, _read(table, source, options, kept, stages), kept, stages, baseline)
        except UnreadableFileError as error:
            raise ValueError(
                f"{error} Finished work is kept: the same audit with resume (--resume) continues."
            ) from None


class Study(NamedTuple):
    """What an audit judges and learns from."""

    options: AuditOptions
    table: Layout | MemoryTable  # all labels, chunk by chunk
    sample: AuditInput  # windows with every decision; all of a table in memory
    learned: AuditInput  # the arrays that a fit takes, with labels at the time they belong to
    windows: np.ndarray  # which of their windows
    n_windows: int  # of the whole table
    about: dict[str, Any]  # the part `table` of audit.json
    clusters: np.ndarray  # the recording of each sequence, which copies share
    checks: tuple[Diagnostic, ...]
    shifts: TableShifts
    powers: fitting.SequencePowers  # of given probabilities
    recordings: dict[str, Any] | None  # the part `recordings`


def _read(table: Any, source: Any, options: AuditOptions, kept: UnfinishedAudit, stages: Stages) -> Study:
    """Read the table in memory or in parts, find labels that are late, and check what is there to learn from."""
    in_parts, work, recordings, messages = isinstance(source, FileSet), options.checkpoint, None, list[str]()
    file = options.second_file
    whole: Layout | MemoryTable
    if in_parts:
        if work is None:
            raise ValueError(
                f"A table of {source.n_rows:,} rows is read in parts, so its results must be written to a folder. Name "
                "one with out."
            )
        stages.expect({name: source.n_rows * seconds for name, seconds in SECONDS.items()})
        beside = None if file is None else open_files(file)
        sizes_of_files = (*source.sizes, *(beside.sizes if beside else ()))
        kept.begin(options.settings(fingerprint(*source.paths, *sizes_of_files)), options.resume)
    with stages.stage("read"):
        if in_parts and work is not None:
            if beside is not None:
                given = [name for name in beside.schema.names if name not in source.schema.names]
                source, options = (
                    write_joined(source, beside, work / "joined.parquet"),
                    replace(options, probabilities=given),
                )
            stages.say(say_disk(source, needs_copy(source), work))
            whole, sample, n_windows = read_large_table(table, source, options, stages)
            windows, n_rows = np.arange(len(sample.lengths)), source.n_rows
        else:
            laid, columns, found = lay_out(source, options.recordings, options.columns)
            if file is not None:
                own = open_table(laid)
                laid = join_tables(own, open_whole(file), file)
                options = replace(options, probabilities=laid.names[len(own.names) :])
            if options.probabilities is None:
                options = replace(options, **{**vars(columns), "probabilities": None})
            recorded = _read_input(laid, options)
            sample, messages, recordings = leave_out_rare_classes(recorded), found.messages, found.described
            whole = MemoryTable(recorded, ~np.isin(recorded.class_names, sample.class_names))
            n_windows, n_rows = len(sample.index), whole.n_rows
        sizes = {"rows": n_rows, "sequences": len(whole.sequence_names), "labels": whole.n_labels}
        if file is not None:
            messages = [f"The probabilities are in a file of their own, {without_secrets(file)!r}.", *messages]
        about = {**describe_table(table, sample, messages), **sizes}
        stages.say(reading_text(about))
        check_memory(sample)
        if not in_parts:
            windows = fitting.choose_windows(sample, options.seed, options.pace, options.n_train)
            if options.train_on is not None:
                labels = int((sample.fit_labels[windows] >= 0).sum())
                numbers = sample.features.shape[2], len(sample.class_names), sample.labels.shape[2]
                check_training_memory((len(windows), sample.index.shape[1]), labels, *numbers)
        shifts = find_table_shifts(sample)
        about["shifts"] = shifts.described
        sample = learned = shifts.apply(sample)
        if sample.moved is not None:
            learned = replace(sample, fit_labels=np.where(sample.belongs[..., None], sample.moved, np.int8(-1)))
        check_shared_classes(sample)
        powers = fitting.find_powers(learned, windows, options)
        learned = powers.apply(learned)
        clusters = clusters_of_copies(sample)
        checks = (*check_copies(sample, clusters), *check_leaks(sample, options.seed), *check_circular(sample))
    if not in_parts:  # by these an audit that goes on knows that the table has not changed
        names = ("features", "labels", "clock", "lengths", "trusted", "gaps", "groups")
        arrays = (getattr(sample, name) for name in names)
        kept.begin(options.settings(fingerprint(*arrays)), options.resume)
    return Study(
        options, whole, sample, learned, windows, n_windows, about, clusters, checks, shifts, powers, recordings
    )


def _read_input(table: Any, options: AuditOptions) -> AuditInput:
    """Read the table once; whole sequences are cut where there are too few of them to judge one by the others."""
    decided = None if options.decisions is None else read_decided(Path(options.decisions))
    steps = read_audit_steps(table, options.columns, options.reading)
    if not steps.features.names:
        check_features(steps.rows.n_annotators, steps.rows.columns.left_out)
    if decided is not None:
        trusted, found = trust_decided(steps.rows, steps.class_names, steps.trusted, decided, table)
        steps = replace(steps, trusted=trusted, messages=(*steps.messages, found["sentence"]), decisions=found)
    return steps.cut(audit_window(steps.rows.steps.counts) if options.window is None else options.window)


def _audit(table: Any, study: Study, kept: UnfinishedAudit, stages: Stages, baseline: Results | None) -> TableAudit:
    options, sample, whole, work = study.options, study.sample, study.table, kept.folder
    coded, estimator, planted, messages = _fit(study, kept, stages)
    given = check_predictions(coded.training_) if options.probabilities is not None else ()
    found = describe_noise_found(sample, estimator, (*study.checks, *study.shifts.check(), *given))
    findings = to_json({**found, "planted": [vars(each) for each in planted]})
    noise, false_alarms = noise_table(sample, estimator), estimator.clock_estimates_[0].false_alarms
    conclusion = conclude(findings)
    about, n_windows = study.about, len(study.windows)
    with stages.stage("judge"):
        with torch_on_one_thread():
            scorer = make_scorer(coded, sample, options.device, study.powers)
            judged = judge_sample(scorer, sample, options.fdr, false_alarms)
        may_name = named_pairs(conclusion.noise, estimator.diagnostics_, len(sample.class_names))
        spend_fdr = options.spend_fdr and bool(may_name.all())
        judged = replace(judged, spend_fdr=spend_fdr, may_name=may_name)
        shares = judged.probabilities[judged.mask].mean(0)
        job = JudgeJob(whole, scorer, None if isinstance(whole, MemoryTable) else work, shares, study.shifts, may_name)
        judge_all(job, lambda done: stages.rows(done, whole.n_rows))
    with stages.stage("page"), new_results(options.folder) if options.folder is not None else nullcontext() as draft:
        parts = job.read_parts([QUALITY, SUPPORT]) if may_name.any() or sample.moved is not None else ()
        flags = find_flags(parts, flag_bound(false_alarms, options.fdr), spend_fdr)
        totals = Totals.of(job, sample)
        held = write_lines(job, flags, totals, draft, work, lambda done: stages.rows(done, whole.n_rows, (0.0, 0.9)))
        described, shown = describe_labels(job, flags, totals, sample, judged)
        summary = to_json(
            {
                **describe_run(options.command, {**stages.seconds, "write": stages.spent()}),
                "table": {**about, "messages": [*about["messages"], *messages]},
                "settings": describe_settings(sample, options, estimator, n_windows),
                "conclusion": conclusion.to_json(),
                **describe_whole(findings, whole, totals, planted, sample.moved is not None),
                **described,
                **({"recordings": study.recordings} if study.recordings else {}),
            }
        )
        if sample.decisions is not None:
            summary["decisions"] = to_json(sample.decisions)
        if baseline is not None:
            lines = draft / LABELS if draft is not None else held
            assert lines is not None
            summary["compare"] = compare_audits(baseline, Results(summary, lines, lines)).summary
        if draft is not None:
            write_findings(draft, summary, noise, estimator.save)
            write_page(draft, Results(summary, draft / LABELS, draft / ISSUES, shown))
    labels = held if held is not None or options.folder is None else dataset.dataset(options.folder / LABELS)
    return TableAudit(summary, labels, noise, estimator, options.folder, frame_index(table))


def _fit(
    study: Study, kept: UnfinishedAudit, stages: Stages
) -> tuple[TideClassifier, TideClassifier, tuple[PlantedErrors, ...], list[str]]:
    """Fit and infer, or take what an interrupted audit has kept: the fit with codes for classes, as it judges, and with
    their names; what became of planted errors; and sentences on what was limited."""
    options, sample, windows = study.options, study.sample, study.windows
    epochs = fitting.choose_epochs(study.learned, windows, options.pace)
    expected = expected_seconds(sample, windows, epochs, options.pace)
    names = expected if isinstance(study.table, MemoryTable) else ("fit", "bands")
    stages.expect({name: expected[name] for name in names})
    with stages.stage("fit"):
        coded = kept.fitted(fitting.new_estimator(study.learned, windows, options))
        if coded is None:
            coded = fitting.fit(study.learned, windows, study.clusters[study.learned.groups], options)
            kept.keep_fit(coded)
    with stages.stage("bands"):
        estimator = fitting.with_class_names(coded, sample)
        messages = say_pace(options.pace, options.n_train)
        messages += say_limits(len(windows), study.n_windows, options, estimator)
        kept.take_findings(estimator)
        messages += fitting.infer(estimator, sample, options, stages.done, kept.keep_findings)
        planted = fitting.plant(coded, study.learned, windows, study.clusters[study.learned.groups], options)
        checks = (*estimator.diagnostics_, *check_planted(planted, sample.class_names))
        estimator.findings_["diagnostics"] = checks  # by which its own `audit` names labels, too
    return coded, estimator, planted, messages
