"""Annotators compared, from a table or files of spans without signals: a folder with a page, and consensus spans."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from labeltide._display import ShortRepr
from labeltide._files import to_json, write_json
from labeltide._validation import check_choice
from labeltide.auditing.findings import describe_agreement
from labeltide.auditing.options import AuditOptions
from labeltide.auditing.page.page import write_consensus
from labeltide.auditing.page.verdict import consensus_text
from labeltide.auditing.reading import AuditSteps, decode, read_audit_steps
from labeltide.auditing.results import draft_beside, put_in_place
from labeltide.exporting.spans import spans_of_steps, write_spans
from labeltide.inference.annotators import Consensus, consensus
from labeltide.inference.review import holm
from labeltide.recordings.recordings import SECONDS, SEQUENCE, read_annotators
from labeltide.recordings.spans.delimited import is_spans
from labeltide.tables.columns import write_safe_csv
from labeltide.tables.files import format_of
from labeltide.tables.roles import Names
from labeltide.tables.windows import cut_consecutive

PIECE = 256  # steps of a sequence that are fitted together; whole sequences of unequal length would be padded
STRETCHES = 20  # contested stretches on the page
READING = ("sequence", "time", "label", "annotator", "clock", "missing", "classes", "timezone", "epoch")
OURS = frozenset(("consensus.json", "consensus.csv", "annotators.csv", "report.html", "spans"))


@dataclass(frozen=True, repr=False)
class AnnotatorReport(ShortRepr):
    """What a comparison of annotators found.

    Attributes
    ----------
    summary : all numbers, as consensus.json holds them
    steps : what each annotator recorded, the consensus, and how likely one more annotator would differ, line by line
    annotators : who differs how: annotator, true label, recorded label, rate and its 95 % interval
    spans : the consensus as spans, which `labeltide.write_spans` takes
    consensus : `labeltide.Consensus`; its rows are pieces of sequences, of at most 256 steps
    folder : of the results, or None

    Examples
    --------
    >>> import labeltide as lt
    >>> import pyarrow as pa
    >>> frame = {"night": [1] * 4, "epoch": [0, 1, 2, 3], "ann": ["W", "W", "N2", "N2"], "ben": ["W", "N2", "N2", "N2"]}
    >>> report = lt.compare_annotators(pa.table(frame), annotators="ann,ben", sequence="night", time="epoch")
    >>> report.annotators.column_names
    ['annotator', 'true', 'recorded', 'rate', 'lower', 'upper']
    """

    summary: dict[str, Any]
    steps: pa.Table = field(repr=False)
    annotators: pa.Table = field(repr=False)
    spans: pa.Table = field(repr=False)
    consensus: Consensus = field(repr=False)
    folder: Path | None = None

    def __str__(self) -> str:
        return consensus_text(self.summary)


def compare_annotators(
    table: Any,
    *,
    annotators: Names = None,
    to: str | None = None,
    out: str | Path | None = None,
    verbose: bool = False,
    command: str | None = None,
    **reading: Any,
) -> AnnotatorReport:
    """Compare annotators without signals: agreement, who differs how and when, contested steps, and a consensus.

    Parameters
    ----------
    table : data frame, path of a table, or files of spans
        Files of spans (CSV, BORIS, ELAN, TextGrid, Label Studio and others) are one file, a folder, or several with
        commas between; one file for each annotator, or one that names them.
    annotators : the columns of labels, one for each annotator; of spans, the annotators to compare (default: all)
    to : a format of `labeltide.write_spans`, in which the consensus is also written, into the folder `spans`
    out : the folder for the results
    verbose : whether to say what is done, and how long it will take
    reading : sequence, time, label, annotator, clock, missing, classes, timezone, epoch, as for `labeltide.audit`
        In a table with a row for each label, `label` and `annotator` are its columns, and `clock` may differ between
        annotators: the hours that each has worked. An epoch is a step on which spans are laid, or which times count.

    Examples
    --------
    >>> import labeltide as lt
    >>> frame = {"night": [1] * 4, "epoch": [0, 1, 2, 3], "ann": ["W", "W", "N2", "N2"], "ben": ["W", "N2", "N2", "N2"]}
    >>> import pyarrow as pa
    >>> report = lt.compare_annotators(pa.table(frame), annotators="ann,ben", sequence="night", time="epoch")
    >>> report.steps["consensus"].to_pylist()[0], report.spans.num_rows
    ('W', 2)
    """
    folder = None if out is None else Path(out)
    if folder is not None:
        names = {each.name for each in folder.iterdir()} if folder.is_dir() else set()
        if folder.is_file() or names - OURS or (names and not (folder / "consensus.json").is_file()):
            raise ValueError(
                f"The folder {str(folder)!r} must be new, empty or hold the results of a comparison alone. Name "
                "another with --out."
            )
    check_choice("option", next((name for name in reading if name not in READING), "sequence"), READING)
    options = AuditOptions(**reading)
    path, epoch, messages = table if isinstance(table, str | Path) else None, options.epoch, list[str]()
    request = replace(options.columns, label=annotators or options.label)
    if path is not None and _holds_spans(str(path)):
        chosen = annotators.split(",") if isinstance(annotators, str) else annotators or ()
        laid = read_annotators(path, [name.strip() for name in chosen], epoch)
        table, messages, epoch = laid.table, laid.described["messages"], None  # its times are seconds
        request = replace(request, label=laid.labels, sequence=SEQUENCE, time=SECONDS)
    steps = read_audit_steps(table, request, options.reading, labels_only=True)
    if len(steps.clocks) > 1:
        raise ValueError(f"Annotators are compared over one clock. Got {len(steps.clocks)}. Name one.")
    if steps.labels.shape[1] < 2:
        raise ValueError(
            "A comparison needs the labels of at least two annotators. Name a column for each (--annotators A,B), or "
            "the columns of the label and of who recorded it (--label COLUMN --annotator COLUMN)."
        )
    fitted, lines = _fit(steps, verbose)
    people = list(steps.rows.annotators or ())
    who = fitted.annotator_frame("pyarrow", annotators=people)
    for number, name in enumerate(("true", "recorded"), 1):
        who = who.set_column(number, name, decode(who[name].to_numpy(), steps.class_names))
    is_common = steps.clock.ndim == 1  # else annotators have clocks of their own
    clock = steps.clock if is_common else steps.rows.steps.positions
    spans, span_messages = spans_of_steps(lines, steps.rows.columns.time, epoch)
    summary = to_json(
        {
            "name": Path(str(path).split(",")[0]).name if path is not None else "a data frame",
            "command": command,
            "classes": steps.class_names,
            "sequences": len(steps.rows.steps.ids),
            "steps": len(lines),
            "labels": int((steps.labels >= 0).sum()),
            "clock": vars(steps.clocks[0]),
            "agreement_clock": vars(steps.clocks[0]) if is_common else {"kind": "position"},
            "agreement": describe_agreement(steps.labels, clock, people, steps.class_names),
            "annotators": _describe_annotators(fitted, steps, people),
            "parts": fitted.parts,
            "sequential": fitted.chosen.sequential,
            "departures": who.to_pylist(),
            "contested": _describe_contested(lines, people),
            "messages": [*messages, *steps.messages, *span_messages],
        }
    )
    if folder is not None:
        with draft_beside(folder) as draft:
            write_json(draft / "consensus.json", summary)
            write_safe_csv(lines, draft / "consensus.csv")
            write_safe_csv(who, draft / "annotators.csv")
            write_consensus(draft / "report.html", summary)
            if to is not None:
                write_spans(spans, draft / "spans", to)
            put_in_place(draft, folder)
    return AnnotatorReport(summary, lines, who, spans, fitted, folder)


def _fit(steps: AuditSteps, verbose: bool) -> tuple[Consensus, pa.Table]:
    """The consensus of pieces of sequences, and one line for every step."""
    counts = steps.rows.steps.counts
    pieces = cut_consecutive(counts, min(PIECE, int(counts.max())), 0, True)
    index, clock = pieces.filled_index(), steps.clock
    real = pieces.index >= 0
    order = np.argsort(pieces.index[real])  # of the steps in the pieces
    info, people = steps.clocks[0], list(steps.rows.annotators or ())
    fitted = consensus(
        np.where(real[..., None], steps.labels[index], -1),
        clock=clock[index],
        lengths=pieces.lengths,
        classes=range(len(steps.class_names)),
        ids=pieces.groups.tolist(),
        period=info.period,
        gaps=None if steps.gaps is None else np.where(real, steps.gaps[index], 1),
        verbose=verbose,
    )
    rows, unknown = steps.rows, (steps.labels < 0).all(1)
    sequence = pa.array([str(rows.steps.ids[code]) for code in rows.steps.sequence.tolist()], pa.string())
    columns = {"sequence": sequence, "time": rows.times.take(pa.array(rows.steps.rows)).cast(pa.string())}
    for name, codes in zip(people, steps.labels.T, strict=True):
        columns[f"{name} (annotator)" if name in LINES else name] = decode(codes, steps.class_names)
    another = 1 - np.take_along_axis(fitted.another, fitted.labels.clip(0)[..., None], -1)[..., 0]
    columns["consensus"] = decode(np.where(unknown, -1, fitted.labels[real][order]), steps.class_names)
    columns["probability"] = pa.array(fitted.probabilities.max(-1)[real][order], mask=unknown)
    columns["another_differs"] = pa.array(another[real][order], mask=unknown)
    return fitted, pa.table(columns)


LINES = ("sequence", "time", "consensus", "probability", "another_differs")


def _describe_annotators(fitted: Consensus, steps: AuditSteps, people: list[str]) -> list[dict[str, Any]]:
    """Each annotator: labels, departures from the others with intervals and tests, and the change over the clock."""
    ends, labels = ("", "_lower", "_upper"), (steps.labels >= 0).sum(0)
    found = []
    for number, name in enumerate(people):
        entry: dict[str, Any] = {"annotator": name, "labels": int(labels[number])}
        for key, values in (("differs", fitted.differs), ("against", fitted.against_others), ("change", fitted.drift)):
            entry |= {f"{key}{end}": value for end, value in zip((*ends, "_p"), values[number], strict=False)}
        entry["over_clock"] = fitted.differs_over_clock[:, number].T
        found.append(entry)
    for key in ("against_p", "change_p"):  # as many tests as annotators
        for entry, corrected in zip(found, holm([entry[key] for entry in found]).tolist(), strict=True):
            entry[key] = corrected
    return found


def _describe_contested(lines: pa.Table, people: list[str]) -> dict[str, Any]:
    """The mean, and the stretches of disagreement in which one more annotator is likeliest to differ."""
    columns = [name for name in lines.column_names if name not in LINES]
    texts = np.stack([lines[name].to_numpy() for name in columns], 1)
    another = lines["another_differs"].to_numpy()
    disputed = np.array([len({text for text in row if text is not None}) > 1 for row in texts], dtype=bool)
    sequence = lines["sequence"].to_numpy()
    same = disputed[1:] & disputed[:-1] & (sequence[1:] == sequence[:-1]) & (texts[1:] == texts[:-1]).all(1)
    first = np.flatnonzero(disputed & np.append(True, ~same))
    last = np.flatnonzero(disputed & np.append(~same, True))
    mean = np.array([another[a : b + 1].mean() for a, b in zip(first, last, strict=True)])
    shown = np.argsort(-mean * np.sqrt(last - first + 1), kind="stable")[:STRETCHES]
    times = lines["time"].to_pylist()
    stretches = [
        {
            "sequence": sequence[first[number]],
            "from": times[first[number]],
            "to": times[last[number]],
            "steps": int(last[number] - first[number] + 1),
            "labels": dict(zip(people, texts[first[number]].tolist(), strict=True)),
            "consensus": lines["consensus"][int(first[number])].as_py(),
            "differs": mean[number],
        }
        for number in shown.tolist()
    ]
    return {"differs": float(np.nanmean(another)), "disputed": int(disputed.sum()), "stretches": stretches}


def _holds_spans(source: str) -> bool:
    """Whether a source is files of labelled spans, not a table with a row for each step."""
    paths = [Path(part.strip()) for part in ([source] if Path(source).exists() else source.split(","))]
    if len(paths) > 1 or paths[0].is_dir() or format_of(paths[0].name) is None:
        return not any(path.suffix.lower() == ".parquet" for path in paths)
    return paths[0].suffix.lower() in (".csv", ".tsv", ".txt") and is_spans(paths[0])
