"""The audit of a table that does not fit in memory: survey, draw, fit, judge chunk by chunk, write."""

from __future__ import annotations

import shutil
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import csv, dataset

from labeltide import _validation
from labeltide._files import to_json, write_json
from labeltide.auditing import findings, fitting
from labeltide.auditing.annotator_findings import describe_agreement
from labeltide.auditing.audit_input import AuditInput
from labeltide.auditing.audit_summary import describe_run, describe_settings, describe_table, say_limits
from labeltide.auditing.common_steps import check_table, learn, say_reading
from labeltide.auditing.contested_findings import PARTS
from labeltide.auditing.expected_cost import expected_seconds
from labeltide.auditing.folder import AUDIT, ISSUES, LABELS, MODEL, MODEL_FILE, NOISE, check_folder, put_in_place
from labeltide.auditing.options import AuditOptions
from labeltide.auditing.pace import say_pace
from labeltide.auditing.page import Results, write_page
from labeltide.auditing.rare_classes import kept_codes
from labeltide.auditing.run import TableAudit
from labeltide.auditing.spreadsheet import write_safe_csv
from labeltide.auditing.stages import Stages
from labeltide.auditing.streaming.finishing import finish
from labeltide.auditing.streaming.flags import QUALITY, Flags, find_flags
from labeltide.auditing.streaming.judging import SUPPORT, JudgeJob, judge_all, read_parts
from labeltide.auditing.streaming.layout import Layout
from labeltide.auditing.streaming.opening import check_options, needs_copy
from labeltide.auditing.streaming.reading import LargeTable, read_large_table, sizes
from labeltide.auditing.streaming.scorer import Scorer, make_scorer
from labeltide.auditing.streaming.stretches import describe_stretches
from labeltide.auditing.streaming.totals import Totals
from labeltide.auditing.streaming.work import FITTED, disk_needed, read_fitted, say_disk
from labeltide.auditing.timelines import telling_features
from labeltide.auditing.unfinished import Unfinished
from labeltide.estimators.storage import load
from labeltide.inference.audit import LabelAudit
from labeltide.inference.averaged_quality import flag_bound
from labeltide.inference.conclusion import conclude
from labeltide.kernels.threads import torch_on_one_thread
from labeltide.tables.addresses import UnreadableFileError
from labeltide.tables.file_set import FileSet
from labeltide.training.checkpoint import fingerprint

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
        return _run(table, files, options, kept, stages)
    except UnreadableFileError as error:
        raise ValueError(f"{error} What was done is kept: the same audit with resume (--resume) goes on.") from None


def _run(table: Any, files: FileSet, options: AuditOptions, kept: Unfinished, stages: Stages) -> StreamedAudit:
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
        _write(work, draft, options.out, summary, lines)
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
    write_json(work / FITTED, fitted)
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
        edges=np.linspace(float(clock.min()), float(clock.max()), PARTS + 1),
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


def _write(work: Path, draft: Path, folder: Path, summary: dict[str, Any], lines: pa.Table) -> None:
    write_json(draft / AUDIT, summary)
    shutil.copy(work / NOISE, draft / NOISE)
    shutil.copytree(work / MODEL, draft / MODEL)
    write_page(draft, StreamedResults(summary, draft / LABELS, draft / ISSUES, lines))
    check_folder(folder)
    put_in_place(draft, folder)
