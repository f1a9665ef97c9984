"""The audited table with the labels that reviewers settled and, where wished, corrections by the model."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from labeltide import __version__, _validation
from labeltide.auditing.compare import open_results
from labeltide.auditing.decisions import (
    DECISIONS,
    Decision,
    DecisionStore,
    Settled,
    audit_identity,
    file_digest,
    settled_labels,
)
from labeltide.auditing.reading import AuditSteps, decode
from labeltide.auditing.results import EDITED, ISSUES_CSV, LABELS, check_file, draft_of, read_labels
from labeltide.tables.files import open_file
from labeltide.tables.frames import VERDICT, SafeCsvWriter
from labeltide.tables.rows import read_table_labels
from labeltide.tables.tidy import tidy_labels
from labeltide.tables.words import quoted, unique_texts

AT_ONCE = 1 << 16  # rows that are read and written together
COLUMNS = ["row", "sequence", "annotator", "recorded", "suggested", "suggested_probability", "reason"]
NEW = ("original", "reason", "author")  # columns beside every column of labels
FEWEST = 0.5  # of the probability above which the model may correct a label


@dataclass(frozen=True)
class Correction:
    """The label of one cell, why and by whom; a label that a reviewer kept is its own correction."""

    label: str
    reason: str
    author: str


@dataclass(frozen=True)
class AppliedDecisions:
    """What was written; shows itself as text."""

    path: Path
    rows: int
    changed_by_reviewers: int
    kept_by_reviewers: int
    changed_by_model: int
    disputed: int
    columns: tuple[str, ...]

    def __str__(self) -> str:
        lines = [
            f"{self.rows:,} rows: {self.path}",
            f"Changed    {self.changed_by_reviewers:,} labels by reviewers, {self.changed_by_model:,} by the model",
            f"Kept       {self.kept_by_reviewers:,} labels that reviewers found right",
            f"Disputed   {self.disputed:,} labels on which reviewers differ, left as recorded",
            f"Columns    {', '.join(self.columns)} are new",
        ]
        return "\n".join(line for line in lines if self.disputed or not line.startswith("Disputed"))


def apply_decisions(
    folder: str | Path, out: str | Path, *, table: str | Path | None = None, above: float | None = None
) -> AppliedDecisions:
    """Write the audited table with settled labels in place of the recorded ones; nothing is overwritten.

    Every column of labels is followed at the end of the table by the original labels, the reason of each change and its
    author. A table that has changed since the audit is refused. Rows are read and written in parts.

    Parameters
    ----------
    folder : of the audit, with the decisions of `labeltide review`
    out : a new .parquet or .csv file
    table : the audited file, where it was moved
    above : float, optional
        Labels without a decision become the suggested one where its probability is at least this.

    Examples
    --------
    >>> import labeltide as lt
    >>> done = lt.apply_decisions("audit", "corrected.csv", above=0.9)
    >>> done.rows, done.columns
    (120, ('label_original', 'label_reason', 'label_author'))
    """
    folder, out = Path(folder), Path(out)
    check_file(out)
    if above is not None:
        _validation.check_number("above", above, FEWEST, 1)
    audit = open_results(folder).audit
    if audit.get("recordings"):
        raise ValueError(
            f"Decisions are applied to tables, and the audit in {str(folder)!r} was of recordings. Write the corrected "
            f"labels back as spans with: labeltide export {str(folder)!r} --to FORMAT (edf, csv, elan and others)."
        )
    source = _open_table(audit, folder, table)
    lines = read_labels(folder, COLUMNS)
    corrections, counts = _corrections(folder, audit, lines, above)
    labels = _label_columns(audit)
    _check_same_labels(source, lines, labels, audit)
    writer = _Rewriter(source, labels, corrections)
    try:
        with draft_of(out) as draft:
            n_rows = writer.write(draft, is_csv=out.name.lower().endswith(".csv"))
    except pa.ArrowException as error:
        said = str(error).splitlines()[0].rstrip(".")
        raise ValueError(f"The table cannot be written to {str(out)!r}: {said}. Try a .parquet file.") from None
    return AppliedDecisions(out, n_rows, columns=writer.new_names, **counts)


def _open_table(audit: Any, folder: Path, named: str | Path | None) -> parquet.ParquetFile | pa.Table:
    """The audited file, unchanged."""
    about = audit["table"]
    if named is None and not about.get("path"):
        raise ValueError(
            f"The audit in {str(folder)!r} was of a data frame. Name a file of that table with --table FILE."
        )
    path = Path(named or about["path"])
    if named is None and not path.is_file():
        raise ValueError(f"The audited table is no more at {str(path)!r}. Name where it is with --table FILE.")
    source = open_file(path)
    if about.get("digest") and file_digest(path) != about["digest"]:
        raise ValueError(
            f"The table {str(path)!r} has changed since the audit in {str(folder)!r}, so its rows may be others. Apply "
            "to the audited table, or audit the new one with: labeltide audit TABLE --decisions FOLDER."
        )
    return source


def _label_columns(audit: Any) -> list[str]:
    columns, annotators = audit["table"]["columns"], audit["table"].get("annotators")
    several = annotators and len(annotators) > 1 and columns.get("annotator") is None
    if not several and not columns.get("label"):
        raise ValueError("The audit does not say which column of its table holds the labels. Audit again.")
    return list(annotators) if several else [columns["label"]]


def _check_same_labels(source: Any, lines: pa.Table, columns: list[str], audit: Any) -> None:
    """The rows of the table, and where no digest is known also its labels, must be those of the audit."""
    names = source.schema_arrow.names if isinstance(source, parquet.ParquetFile) else source.column_names
    missing = [name for name in columns if name not in names]
    n_rows = source.metadata.num_rows if isinstance(source, parquet.ParquetFile) else len(source)
    if missing or n_rows != audit["table"]["rows"]:
        raise ValueError(
            f"The table must be the audited one, with {audit['table']['rows']} rows and {columns!r} in it."
        )
    if not audit["table"].get("digest"):
        found = read_table_labels(tidy_labels(_read(source, columns), columns, missing="none"), columns)
        texts = np.array([*found.names, None], dtype=object)[found.codes].ravel()
        pairs = zip(texts.tolist(), lines["recorded"].to_pylist(), strict=True)
        if any(text != recorded for text, recorded in pairs if recorded is not None):
            raise ValueError("The labels of the table are not those of the audit. Name the audited table with --table.")


def _read(source: Any, columns: list[str]) -> pa.Table:
    return source.read(columns=columns) if isinstance(source, parquet.ParquetFile) else source.select(columns)


def _corrections(
    folder: Path, audit: Any, lines: pa.Table, above: float | None
) -> tuple[dict[tuple[int, int], Correction], dict[str, int]]:
    """By row and column of labels."""
    has_decisions = (folder / DECISIONS).is_file() or bool(typed_decisions(folder, audit))
    if not has_decisions and above is None:
        raise ValueError(
            f"There is nothing to apply: {str(folder)!r} holds no decisions. Make some with: labeltide review "
            f"{str(folder)!r}. Or let the model correct labels of which it is sure, with --above 0.95."
        )
    column = {name: place for place, name in enumerate(_label_columns(audit))}
    found: dict[tuple[int, int], Correction] = {}
    taken, counts = np.zeros(len(lines), bool), dict.fromkeys(("changed_by_reviewers", "kept_by_reviewers"), 0)
    disputed = np.array([], np.int64)
    if has_decisions:
        settled, disputed = settle(folder, audit, lines)
        taken[settled.line] = taken[disputed] = True
        recorded = lines["recorded"].take(pa.array(settled.line)).to_pylist()
        for place, row in enumerate(settled.row.tolist()):
            kept = settled.label[place] == recorded[place]
            counts["kept_by_reviewers" if kept else "changed_by_reviewers"] += 1
            reason = "kept by review" if kept else "changed by review"
            reason += f": {settled.comment[place]}" if settled.comment[place] else ""
            at = row, column.get(settled.annotator[place] or "", 0)
            found[at] = Correction(settled.label[place], reason, settled.reviewer[place])
    by_model = _by_model(lines, taken, above)
    for line in by_model:
        reason = f"suggested by the model with probability {line['suggested_probability']:.3f}"
        reason += f". {line['reason']}" if line["reason"] else ""
        at = line["row"], column.get(line["annotator"] or "", 0)
        found[at] = Correction(line["suggested"], reason, f"labeltide {__version__}")
    return found, {**counts, "changed_by_model": len(by_model), "disputed": len(disputed)}


def _by_model(lines: pa.Table, taken: np.ndarray, above: float | None) -> list[dict[str, Any]]:
    """Lines without a decision whose label the model is sure to be another."""
    if above is None:
        return []
    differs = pc.fill_null(pc.not_equal(lines["recorded"], lines["suggested"]), False).to_numpy()
    sure = lines["suggested_probability"].to_numpy() >= above
    return lines.filter(pa.array(sure & differs & ~taken)).to_pylist()


class _Rewriter:
    """Writes a table part by part with corrected labels."""

    def __init__(self, source: Any, columns: list[str], corrections: dict[tuple[int, int], Correction]) -> None:
        self.source, self.columns = source, columns
        named = read_table_labels(_read(source, columns), columns)
        self.values: dict[str, Any] = dict(zip(named.names, named.classes, strict=True))
        unknown = sorted({each.label for each in corrections.values()} - self.values.keys())
        if unknown:
            raise ValueError(f"Every settled label must be a class of the table. Got {quoted(unknown)}.")
        places = sorted(corrections)
        self.rows = np.array([row for row, _ in places], np.int64)
        self.corrections = [(place, corrections[place]) for place in places]
        taken = set(source.schema_arrow.names if isinstance(source, parquet.ParquetFile) else source.column_names)
        self.titles = {name: tuple(_free(f"{name}_{end}", taken) for end in NEW) for name in columns}

    @property
    def new_names(self) -> tuple[str, ...]:
        return tuple(title for titles in self.titles.values() for title in titles)

    def write(self, path: Path, *, is_csv: bool) -> int:
        """Write all parts, and give back the number of rows."""
        writer, start = None, 0
        try:
            for part in self._parts():
                corrected = self._correct(part, start)
                if writer is None:
                    kind = SafeCsvWriter if is_csv else parquet.ParquetWriter
                    writer = kind(path, corrected.schema, **({} if is_csv else {"compression": "zstd"}))
                writer.write_table(corrected)
                start += len(part)
        finally:
            if writer is not None:
                writer.close()
        return start

    def _parts(self) -> Iterator[pa.Table]:
        is_file = isinstance(self.source, parquet.ParquetFile)
        batches = self.source.iter_batches(AT_ONCE) if is_file else self.source.to_batches(AT_ONCE)
        for batch in batches:
            if len(batch):
                yield _without_dictionaries(pa.Table.from_batches([batch]), self.columns)

    def _correct(self, part: pa.Table, start: int) -> pa.Table:
        """The rows of a part, of which the first is row `start` of the table."""
        first, last = np.searchsorted(self.rows, [start, start + len(part)])
        for number, name in enumerate(self.columns):
            own = [(row - start, each) for (row, column), each in self.corrections[first:last] if column == number]
            original = part[name]
            labels, reasons, authors = original.to_pylist(), [None] * len(part), [None] * len(part)
            for at, correction in own:
                labels[at] = self.values[correction.label]
                reasons[at], authors[at] = correction.reason, correction.author  # type: ignore[call-overload]
            part = part.set_column(part.column_names.index(name), name, pa.array(labels, original.type))
            new = (original, pa.array(reasons, pa.string()), pa.array(authors, pa.string()))
            for title, values in zip(self.titles[name], new, strict=True):
                part = part.append_column(title, values)
        return part


def _without_dictionaries(part: pa.Table, columns: list[str]) -> pa.Table:
    """Columns of labels as plain values: a part of a dictionary may lack the label of a correction."""
    for name in columns:
        kind = part.schema.field(name).type
        if pa.types.is_dictionary(kind):
            part = part.set_column(part.column_names.index(name), name, part[name].cast(kind.value_type))
    return part


def _free(wish: str, taken: set[str]) -> str:
    while wish in taken:
        wish += "_"
    taken.add(wish)
    return wish


# ----------------------------------------------------------------------------------------------------
# Verdicts that people typed into issues.csv in a spreadsheet program, read back as decisions.
#
# The last column of issues.csv, `verdict`, is empty. A verdict is the name of the right class, `ok`, `keep` or `right`
# for a recorded label that is right, or `suggested` for the suggested one. An empty cell, `skip` and `?` settle
# nothing.
# ----------------------------------------------------------------------------------------------------


REVIEWER = "issues.csv"
KEEP, SUGGESTED, NOTHING = frozenset(("ok", "keep", "right")), "suggested", frozenset(("", "skip", "?"))
NEEDED = ("row", "recorded", VERDICT)
VERDICT_COLUMNS = ["row", "sequence", "annotator", "recorded", "suggested"]


def read_typed(folder: Path, classes: tuple[str, ...] | None = None) -> pa.Table:
    """The verdicts in the folder of an audit, as a table of row, annotator, recorded and label.

    Kept files are read first, issues.csv last; the latest verdict on a label counts. Lines that are not those of the
    audit in the folder, which were typed for another one, are left out.

    Parameters
    ----------
    folder : of an audit
    classes : names that a verdict may have; those of the recorded labels when left out
    """
    typed = [(path, line) for path in _files(folder) for line in _lines(path)]
    found: dict[tuple[int, str | None], tuple[str, str]] = {}
    if typed:
        known = _known_lines(folder, {int(line["row"]) for _, line in typed})
        names = {_key(name): name for name in classes or _classes(folder)}
        for path, line in typed:
            at = (int(line["row"]), line.get("annotator"))
            own = known.get(at)
            if own is None or not _is_same(line, own):
                continue
            label = _label(line[VERDICT], own, names, path)
            if label is not None:
                found[at] = (own["recorded"], label)
    rows = [(*at, *labels) for at, labels in sorted(found.items(), key=lambda each: (each[0][0], each[0][1] or ""))]
    kinds = {"row": pa.int64(), "annotator": pa.string(), "recorded": pa.string(), "label": pa.string()}
    return pa.table(
        {name: pa.array([row[place] for row in rows], kind) for place, (name, kind) in enumerate(kinds.items())}
    )


def typed_decisions(folder: Path, audit: Mapping[str, Any]) -> list[Decision]:
    """The typed verdicts as decisions of a reviewer of their own, `issues.csv`."""
    identity = audit_identity(audit)
    return [
        Decision(
            item_id=f"{REVIEWER}:{line['row']}:{line['annotator'] or ''}",
            audit=identity,
            reviewer=REVIEWER,
            action="keep" if line["label"] == line["recorded"] else "label",
            label=None if line["label"] == line["recorded"] else line["label"],
            first_row=line["row"],
            last_row=line["row"],
            annotator=line["annotator"],
        )
        for line in read_typed(folder, tuple(audit["table"]["classes"])).to_pylist()
    ]


def _files(folder: Path) -> list[Path]:
    """The kept files in the order of their numbers, then issues.csv."""
    kept = [path for path in folder.glob(f"{EDITED}-*.csv") if re.fullmatch(rf"{EDITED}-\d+\.csv", path.name)]
    kept.sort(key=lambda path: int(path.stem.rsplit("-", 1)[1]))
    own = folder / ISSUES_CSV
    return [*kept, *([own] if own.is_file() else [])]


def _lines(path: Path) -> list[dict[str, Any]]:
    """The lines of a file that have a verdict, as texts."""
    table = open_file(path)
    assert isinstance(table, pa.Table)
    if any(name not in table.column_names for name in NEEDED) or pa.types.is_null(table[VERDICT].type):
        return []
    names = [name for name in (*VERDICT_COLUMNS, VERDICT) if name in table.column_names]
    table = pa.table({name: table[name].cast(pa.string()) for name in names})
    lines = [line for line in table.to_pylist() if (line[VERDICT] or "").strip()]
    for line in lines:
        if not re.fullmatch(r"\s*\d+(\.0)?\s*", line["row"] or ""):
            raise ValueError(
                f"Every verdict in {str(path)!r} must stand in a line with its row. Got row {line['row']!r}. Leave the "
                "column row as it was."
            )
        line["row"] = line["row"].split(".")[0]
    return lines


def _known_lines(folder: Path, rows: set[int]) -> dict[tuple[int, str | None], dict[str, Any]]:
    """The audited lines of some rows, by row and annotator."""
    table = parquet.read_table(folder / LABELS, columns=VERDICT_COLUMNS)
    wanted = np.isin(table["row"].to_numpy(), list(rows))
    return {(line["row"], line["annotator"]): line for line in table.filter(pa.array(wanted)).to_pylist()}


def _classes(folder: Path) -> list[str]:
    return parquet.read_table(folder / LABELS, columns=["recorded"])["recorded"].drop_null().unique().to_pylist()


def _is_same(typed: Mapping[str, Any], own: Mapping[str, Any]) -> bool:
    """Whether a typed line is that of the audit; spreadsheet programs may rewrite times and numbers."""
    same_label = _key(typed["recorded"] or "") == _key(own["recorded"] or "")
    return same_label and ("sequence" not in typed or _bare(typed["sequence"]) == _bare(own["sequence"]))


def _bare(text: str | None) -> str:
    """A name as spreadsheet programs leave it: 007 and 7.0 become 7."""
    key = _key(text or "")
    return str(float(key)) if re.fullmatch(r"\d+(\.\d+)?", key) else key


def _label(verdict: str, own: Mapping[str, Any], names: Mapping[str, str], path: Path) -> str | None:
    """The label that a verdict says is right; None where it says nothing."""
    key = _key(verdict)
    if key in names:  # a class may be called right
        return names[key]
    if key in NOTHING:
        return None
    if key in KEEP:
        return str(own["recorded"])
    if key == SUGGESTED:
        return str(own["suggested"])
    raise ValueError(
        f"A verdict must be a class ({quoted(list(names.values()))}), 'ok', 'keep' or 'right' for the recorded label, "
        f"'suggested' for the suggested one, or empty. Got {verdict!r} in row {own['row']} of {str(path)!r}."
    )


def _key(text: str) -> str:
    """A name without capitals, blanks around it and the apostrophe that guards a cell from being run as a formula."""
    bare = " ".join(text.split()).removeprefix("'")
    return bare if len(bare) == 1 else bare.casefold()


# ----------------------------------------------------------------------------------------------------
# Decisions of reviewers as trusted labels of another audit.
# ----------------------------------------------------------------------------------------------------


DECIDED_COLUMNS = ["row", "sequence", "time", "annotator", "recorded"]


@dataclass(frozen=True)
class DecidedLabels:
    """The labels that the reviewers of an audit settled.

    Attributes
    ----------
    folder : that of the audit
    lines : pyarrow.Table, one line for each settled label: row, sequence, time and the label that is right
    n_disputed : labels on which reviewers differ
    digest : of the reviewed table, or None where that was no file
    is_timed : whether the reviewed table has a column of times
    n_other : decisions that were made for another audit, which are left out
    """

    folder: Path
    lines: pa.Table
    n_disputed: int
    digest: str | None
    is_timed: bool
    n_other: int = 0


def read_decided(folder: Path) -> DecidedLabels:
    """The settled labels in the folder of an audit; a sentence where there are none."""
    results = open_results(folder)
    lines = read_labels(folder, DECIDED_COLUMNS)
    decisions, n_other = read_decisions(folder, results.audit)
    settled = settled_labels(decisions, lines)
    if not len(settled):
        disputed = f" Reviewers differ on {settled.n_disputed}." if settled.n_disputed else ""
        raise ValueError(f"The decisions in {str(folder)!r} settle no label.{disputed} Go on with the review.")
    chosen = lines.select(["row", "sequence", "time"]).take(pa.array(settled.line))
    chosen = chosen.append_column("label", pa.array(settled.label, pa.string()))
    about = results.audit["table"]
    return DecidedLabels(
        folder, chosen, settled.n_disputed, about.get("digest"), about["columns"].get("time") is not None, n_other
    )


def read_decisions(folder: Path, audit: Any) -> tuple[list[Decision], int]:
    """The standing decisions of an audit, and how many there are of another one, whose rows may be others.

    Verdicts that somebody typed into issues.csv count as those of one more reviewer. A folder without any
    is refused.
    """
    own, n_other = find_decisions(folder, audit)
    if not own and not n_other:
        DecisionStore.open(folder, create=False).close()  # says that there are none
    if n_other and not own:
        raise ValueError(
            f"The decisions in {str(folder)!r} were made for another audit, so it is not known which rows they mean. "
            "Name the folder of the audit that was reviewed."
        )
    return own, n_other


def find_decisions(folder: Path, audit: Any) -> tuple[list[Decision], int]:
    """As `read_decisions`, where there may be none."""
    typed = typed_decisions(folder, audit)
    standing: list[Decision] = []
    if (folder / DECISIONS).is_file():
        with DecisionStore.open(folder, create=False) as store:
            standing = store.standing()
    known = audit_identity(audit)
    own = [decision for decision in standing if decision.audit == known]
    return own + typed, len(standing) - len(own)


def settle(folder: Path, audit: Any, lines: pa.Table) -> tuple[Settled, np.ndarray]:
    """Settled labels, and the lines on which reviewers differ: int64 of shape (disputed,)."""
    decisions, _ = read_decisions(folder, audit)
    settled = settled_labels(decisions, lines)
    reviewers = {decision.reviewer for decision in decisions}
    covered = [settled_labels([d for d in decisions if d.reviewer == name], lines).line for name in sorted(reviewers)]
    everywhere = np.unique(np.concatenate(covered)) if covered else np.array([], np.int64)
    return settled, np.setdiff1d(everywhere, settled.line)


def trust_decided(steps: AuditSteps, decided: DecidedLabels, table: Any) -> AuditSteps:
    """The same steps, at which settled labels are trusted; what was used and what was left out is said.

    Where the table is not the reviewed one, rows are matched by sequence and time.
    """
    places, labels = _match_steps(steps, decided, table)
    codes = np.array([steps.class_names.index(label) if label in steps.class_names else -1 for label in labels])
    trusted = np.full(len(steps.labels), -1, np.int8) if steps.trusted is None else steps.trusted.copy()
    is_free = trusted < 0
    agreed, n_differ = _agreed(places[codes >= 0], codes[codes >= 0])
    used = {place: code for place, code in agreed.items() if is_free[place]}
    trusted[list(used)] = list(used.values())
    left_out = {
        "disputed": decided.n_disputed,
        "of_another_audit": decided.n_other,
        "differ_at_one_step": n_differ,
        "other_class": int((codes < 0).sum()),
        "not_in_the_table": len(decided.lines) - len(labels),
        "trusted_already": len(agreed) - len(used),
    }
    if not used:
        raise ValueError(_nothing_used(decided, left_out))
    found = {"folder": decided.folder.name, "settled": len(decided.lines), "used": len(used), **left_out}
    sentence = _say(found)
    return replace(steps, trusted=trusted, said=(*steps.said, sentence), decisions={**found, "sentence": sentence})


def _match_steps(steps: AuditSteps, decided: DecidedLabels, table: Any) -> tuple[np.ndarray, list[str]]:
    """The step and the label of every settled label that is in the table."""
    rows = steps.rows
    digest = file_digest(Path(table)) if isinstance(table, str | Path) and decided.digest else None
    if digest is not None and digest == decided.digest:
        places = rows.step_of_given(decided.lines["row"].to_numpy())
        kept = decided.lines["label"].filter(pa.array(places >= 0))
        return places[places >= 0], kept.to_pylist()
    if not (decided.is_timed and rows.moments):
        raise ValueError(
            f"The table is not the one that was reviewed in {str(decided.folder)!r}, and without a column of times in "
            "both, rows cannot be matched. Name one with the option time (--time COLUMN), or audit the reviewed table."
        )
    names = tuple(unique_texts(rows.steps.ids))
    sequence = decode(rows.steps.sequence[rows.steps.step_of_row], names)
    there = pa.table({"sequence": sequence, "time": rows.times, "step": rows.steps.step_of_row})
    keys = ["sequence", "time"]
    there = there.group_by(keys).aggregate([("step", "min")])
    matched = _plain(decided.lines).join(_plain(there), keys, join_type="inner")
    if not len(matched):
        raise ValueError(
            f"No settled label of {str(decided.folder)!r} has the sequence and time of a row of the table, so "
            "decisions cannot be matched. Are these the sequences and times that were reviewed?"
        )
    return matched["step_min"].to_numpy(), matched["label"].to_pylist()


def _plain(table: pa.Table) -> pa.Table:
    """The keys as texts of one type."""
    for name in ("sequence", "time"):
        table = table.set_column(table.column_names.index(name), name, table[name].cast(pa.large_string()))
    return table


def _agreed(places: np.ndarray, codes: np.ndarray) -> tuple[dict[int, int], int]:
    """The one label of each step, and at how many steps settled labels of several annotators differ."""
    found: dict[int, set[int]] = {}
    for place, code in zip(places.tolist(), codes.tolist(), strict=True):
        found.setdefault(place, set()).add(code)
    return {place: min(each) for place, each in found.items() if len(each) == 1}, sum(
        len(each) > 1 for each in found.values()
    )


def _say(found: dict[str, Any]) -> str:
    words = {
        "disputed": "on which reviewers differ",
        "of_another_audit": "decisions made for another audit",
        "differ_at_one_step": "steps whose annotators' labels were settled differently",
        "other_class": "of a class that the table does not hold",
        "not_in_the_table": "that no row of the table matches",
        "trusted_already": "that the trusted column has already",
    }
    left = [f"{found[name]} {text}" for name, text in words.items() if found[name]]
    rest = f" Left out: {', '.join(left)}." if left else ""
    labels = f"{found['used']} label{'s' if found['used'] != 1 else ''}"
    return f"I trust {labels} that reviewers settled in {quoted([found['folder']])}.{rest}"


def _nothing_used(decided: DecidedLabels, left_out: dict[str, int]) -> str:
    told = _say({"folder": decided.folder.name, "used": 0, **left_out})
    return f"The decisions must settle a label of the table. {told}"
