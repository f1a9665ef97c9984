"""Write the audited table with the labels that people settled and, if asked, corrections by the model."""

from __future__ import annotations

import csv
import io
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from labeltide import __version__, _validation
from labeltide._files import safe_texts
from labeltide.auditing.compare import open_results
from labeltide.auditing.decisions import (
    DECISIONS,
    Decision,
    DecisionStore,
    audit_identity,
    file_digest,
    find_table,
    settled_labels,
)
from labeltide.auditing.page.payload import read_times
from labeltide.auditing.reading import decode
from labeltide.auditing.results import EDITED, ISSUES_CSV, LABELS, TABLE_FILES, draft_of, read_labels, write_new_table
from labeltide.recordings.recordings import open_again
from labeltide.tables.columns import VERDICT, SafeCsvWriter, code_values
from labeltide.tables.files import check_new_file, open_file
from labeltide.tables.rows import TableRows
from labeltide.tables.words import quoted, unique_texts

BATCH_ROWS = 1 << 16  # rows that are read and written together
COLUMNS = ["row", "sequence", "annotator", "recorded", "suggested", "suggested_probability", "reason"]
NEW = ("original", "reason", "author")  # endings of the columns that are added for every column of labels
MIN_ABOVE = 0.5  # of the probability above which the model may correct a label


@dataclass(frozen=True)
class AppliedDecisions:
    """What was written; shows itself as text."""

    path: Path
    rows: int
    columns: tuple[str, ...]
    changed_by_model: int
    changed_by_reviewers: int = 0
    kept_by_reviewers: int = 0
    disputed: int = 0
    emptied: int = 0  # steps that no label reaches where labels are moved

    def __str__(self) -> str:
        lines = [
            f"{self.rows:,} rows: {self.path}",
            f"Changed    {self.changed_by_reviewers:,} labels by reviewers, {self.changed_by_model:,} by the model",
            f"Kept       {self.kept_by_reviewers:,} labels that reviewers found right",
            f"Disputed   {self.disputed:,} labels on which reviewers disagree, left as recorded" * bool(self.disputed),
            f"Emptied    {self.emptied:,} steps that no moved label reaches" * bool(self.emptied),
            f"Columns    {', '.join(self.columns)} are new",
        ]
        return "\n".join(line for line in lines if line)


def apply_decisions(
    folder: str | Path,
    out: str | Path,
    *,
    table: str | Path | None = None,
    above: float | None = None,
    align: bool = False,
) -> AppliedDecisions:
    """Write the audited table with settled labels in place of the recorded ones; nothing is overwritten.

    For every column of labels, the original labels, the reason for each change and its author are appended as columns.
    A table that has changed since the audit is refused. Rows are read and written in batches.

    Parameters
    ----------
    folder : of the audit, with the decisions of `labeltide review`
    out : a new .parquet or .csv file
    table : the audited file, if it was moved
    above : float, optional
        Labels without a decision become the suggested one where its probability is at least this.
    align : bool
        Move labels that the audit found late or early to the steps they belong to, in place of all else. Steps that no
        label reaches have none. Of an audit of recordings, the labelled spans are written with their onsets moved.

    Examples
    --------
    >>> import labeltide as lt
    >>> done = lt.apply_decisions("audit", "corrected.csv", above=0.9)
    >>> done.rows, done.columns
    (120, ('label_original', 'label_reason', 'label_author'))
    """
    folder, out = Path(folder), Path(out)
    check_new_file(out, *TABLE_FILES)
    if above is not None:
        _validation.check_number("above", above, MIN_ABOVE, 1)
    audit = open_results(folder).audit
    if audit.get("recordings") and align:
        return _align_spans(folder, out, audit["recordings"])
    if audit.get("recordings"):
        raise ValueError(
            f"Decisions are applied to tables, but the audit in {str(folder)!r} was of recordings. Export the "
            f"corrected labels as spans with: labeltide export {str(folder)!r} --to FORMAT (edf, csv, elan and others)."
        )
    is_csv = out.name.lower().endswith(".csv")
    source = _open_table(audit, folder, table, is_csv)
    lines = read_labels(folder, COLUMNS)
    roles, annotators = audit["table"]["columns"], audit["table"].get("annotators")
    several = annotators and len(annotators) > 1 and roles.get("annotator") is None
    if not several and not roles.get("label"):
        raise ValueError("The audit does not say which column of its table holds the labels. Audit again.")
    columns = list(annotators) if several else [roles["label"]]
    if align:
        corrections, counts = _moved(folder, columns)
    else:
        corrections, counts = _corrections(folder, audit, lines, columns, above)
    rewriter = _Rewriter(source, columns, lines, corrections, audit)
    try:
        with draft_of(out) as draft:
            n_rows = rewriter.write(draft, is_csv=is_csv)
    except pa.ArrowException as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise ValueError(f"The table cannot be written to {str(out)!r}: {reason}. Try a .parquet file.") from None
    return AppliedDecisions(out, n_rows, columns=tuple(sum(rewriter.titles.values(), ())), **counts)


def _open_table(audit: Any, folder: Path, named: str | Path | None, is_csv: bool) -> parquet.ParquetFile | pa.Table:
    """The audited file, unchanged since."""
    path, roles = find_table(audit, folder, named), audit["table"].get("columns", {})
    if path is None:
        raise ValueError(
            f"The audit in {str(folder)!r} was of a data frame or of several files. Name one file with the same table: "
            "--table FILE."
        )
    names = [*str(roles.get("sequence")).split(","), roles.get("annotator"), roles.get("trusted"), roles.get("label")]
    return open_file(path, [*names, *(audit["table"].get("annotators") or ())], as_written=is_csv)


Corrections = dict[tuple[int, int], tuple[str | None, str, str]]  # label, reason and author by row and column of labels


def _corrections(
    folder: Path, audit: Any, lines: pa.Table, columns: list[str], above: float | None
) -> tuple[Corrections, dict[str, int]]:
    """All changes, and labels that a reviewer kept, which get a reason and an author too; and their counts."""
    decisions, n_other = find_decisions(folder, audit)
    if above is None and not decisions and not n_other and not (folder / DECISIONS).is_file():
        raise ValueError(
            f"There is nothing to apply: {str(folder)!r} holds no decisions. Make some with: labeltide review "
            f"{str(folder)!r}. Or let the model correct the labels it is sure of, with --above 0.95."
        )
    column = {name: index for index, name in enumerate(columns)}
    corrections: Corrections = {}
    is_decided, counts = np.zeros(len(lines), bool), dict.fromkeys(("changed_by_reviewers", "kept_by_reviewers"), 0)
    disputed = np.array([], np.int64)
    if decisions or n_other:
        _check_own(folder, decisions, n_other)
        settled = settled_labels(decisions, lines)
        disputed = settled.disputed
        is_decided[settled.line] = is_decided[disputed] = True
        recorded = lines["recorded"].take(pa.array(settled.line)).to_pylist()
        for index, row in enumerate(settled.row.tolist()):
            kept = settled.label[index] == recorded[index]
            counts["kept_by_reviewers" if kept else "changed_by_reviewers"] += 1
            reason = "kept by review" if kept else "changed by review"
            reason += f": {settled.comment[index]}" if settled.comment[index] else ""
            cell = row, column.get(settled.annotator[index] or "", 0)
            corrections[cell] = (settled.label[index], reason, settled.reviewer[index])
    by_model = []
    if above is not None:
        differs = pc.fill_null(pc.not_equal(lines["recorded"], lines["suggested"]), False).to_numpy()
        is_sure = lines["suggested_probability"].to_numpy() >= above
        by_model = lines.filter(pa.array(is_sure & differs & ~is_decided)).to_pylist()
    for line in by_model:
        reason = f"suggested by the model with probability {line['suggested_probability']:.3f}"
        reason += f". {line['reason']}" if line["reason"] else ""
        cell = line["row"], column.get(line["annotator"] or "", 0)
        corrections[cell] = (line["suggested"], reason, f"labeltide {__version__}")
    return corrections, {**counts, "changed_by_model": len(by_model), "disputed": len(disputed)}


def _align_spans(folder: Path, out: Path, described: Mapping[str, Any]) -> AppliedDecisions:
    """Write the labelled spans of recordings, each at its time; parts before the beginning of a recording are cut."""
    lines = _shifted_lines(folder, ["sequence", "annotator", "shift"]).to_pylist()
    shift = {(line["sequence"], line["annotator"]): line["shift"] * float(described["epoch"]) for line in lines}
    spans = []
    for recording in open_again(described):
        for who, own in recording.spans.items():
            late = shift.get((recording.name, who), shift.get((recording.name, None), 0.0))
            onset = own["onset"].to_numpy() - late
            cut = np.minimum(np.maximum(-onset, 0), own["duration"].to_numpy())
            columns = {"recording": [recording.name] * len(own), "annotator": [who] * len(own), "onset": onset + cut}
            columns |= {"duration": own["duration"].to_numpy() - cut, "label": own["label"]}
            columns |= {"onset_original": own["onset"], "duration_original": own["duration"]}
            spans.append(pa.table(columns | {"annotator": pa.array(columns["annotator"], pa.string())}))
    table = pa.concat_tables(spans)
    write_new_table(table, out)
    n_moved = pc.sum(pc.not_equal(table["onset"], table["onset_original"])).as_py()
    return AppliedDecisions(out, len(table), ("onset_original", "duration_original"), n_moved)


def _shifted_lines(folder: Path, columns: list[str]) -> pa.Table:
    lines = read_labels(folder, columns)
    if not lines["shift"].to_numpy().any():
        raise ValueError(f"There is nothing to align: the audit in {str(folder)!r} found no late or early labels.")
    return lines


def _moved(folder: Path, columns: list[str]) -> tuple[Corrections, dict[str, int]]:
    """The label of every row that changes where labels are moved by the shifts of an audit."""
    lines = _shifted_lines(folder, ["row", "sequence", "annotator", "time", "recorded", "shift"])
    shifts = lines["shift"].to_numpy().astype(np.int64)
    order = [code_values(lines[name])[0] for name in ("sequence", "annotator")]
    keys = (lines["row"].to_numpy(), read_times(lines["time"])[0], *order[::-1])
    rank = np.lexsort(keys)
    group = np.cumsum(np.r_[0, np.any([np.diff(each[rank]) != 0 for each in order], axis=0)])
    source = np.arange(len(rank)) + shifts[rank]
    inside = (source >= 0) & (source < len(rank))
    inside[inside] = group[source[inside]] == group[inside]
    recorded, who, row = lines["recorded"].to_pylist(), lines["annotator"].to_pylist(), lines["row"].to_pylist()
    column = {name: index for index, name in enumerate(columns)}
    corrections: Corrections = {}
    for index in np.flatnonzero(shifts[rank]).tolist():
        line = rank[index]
        label = recorded[rank[source[index]]] if inside[index] else None
        if label != recorded[line]:
            steps = int(shifts[line])
            reason = f"labels moved {abs(steps)} steps {'earlier' if steps > 0 else 'later'}"
            corrections[row[line], column.get(who[line] or "", 0)] = (label, reason, f"labeltide {__version__}")
    emptied = sum(label is None for label, *_ in corrections.values())
    return corrections, {"changed_by_model": len(corrections), "emptied": emptied}


class _Rewriter:
    """Writes a table batch by batch with corrected labels, in the types that its columns have."""

    def __init__(
        self, source: Any, columns: list[str], lines: pa.Table, corrections: Corrections, audit: Mapping[str, Any]
    ) -> None:
        is_file = isinstance(source, parquet.ParquetFile)
        names = source.schema_arrow.names if is_file else source.column_names
        n_rows = source.metadata.num_rows if is_file else len(source)
        about = audit["table"]
        if n_rows != about["rows"] or any(name not in names for name in columns):
            raise ValueError(f"The table must be the audited one, with {about['rows']} rows and {columns!r} in it.")
        if len(lines) and pc.max(lines["row"]).as_py() >= n_rows:
            raise ValueError(f"{LABELS} must refer to rows of the table, which has {n_rows}. Audit again.")
        self.source, self.columns = source, columns
        labels = source.read(columns=columns) if is_file else source.select(columns)
        self.values = _values_of_classes(labels, lines, has_digest=bool(about.get("digest")))
        unknown = sorted({label for label, *_ in corrections.values() if label is not None} - self.values.keys())
        if unknown:
            raise ValueError(f"Every settled label must be a class of the table. Got {quoted(unknown)}.")
        self.corrections = sorted(corrections.items())
        self.rows = np.array([row for (row, _), _ in self.corrections], np.int64)
        taken = set(names)
        self.titles: dict[str, tuple[str, ...]] = {}
        for name in columns:
            for end in NEW:
                title = f"{name}_{end}"
                while title in taken:
                    title += "_"
                taken.add(title)
                self.titles[name] = (*self.titles.get(name, ()), title)

    def write(self, path: Path, *, is_csv: bool) -> int:
        """Write all batches, and return the number of rows."""
        writer, start = None, 0
        is_file = isinstance(self.source, parquet.ParquetFile)
        try:
            for batch in self.source.iter_batches(BATCH_ROWS) if is_file else self.source.to_batches(BATCH_ROWS):
                if not len(batch):
                    continue
                corrected = self._correct(pa.Table.from_batches([batch]), start)
                if writer is None:
                    kind = SafeCsvWriter if is_csv else parquet.ParquetWriter
                    writer = kind(path, corrected.schema, **({} if is_csv else {"compression": "zstd"}))
                writer.write_table(corrected)
                start += len(batch)
        finally:
            if writer is not None:
                writer.close()
        return start

    def _correct(self, batch: pa.Table, start: int) -> pa.Table:
        """The rows of a batch whose first row is row `start` of the table."""
        first, last = np.searchsorted(self.rows, [start, start + len(batch)])
        for number, name in enumerate(self.columns):
            original = _decoded(batch[name])  # the dictionary of a batch may lack the label of a correction
            labels, reasons, authors = original.to_pylist(), [None] * len(batch), [None] * len(batch)
            for (row, column), correction in self.corrections[first:last]:
                if column == number:
                    labels[row - start] = None if correction[0] is None else self.values[correction[0]]
                    reasons[row - start], authors[row - start] = correction[1:]  # type: ignore[call-overload]
            batch = batch.set_column(batch.column_names.index(name), name, pa.array(labels, original.type))
            new = (original, pa.array(reasons, pa.string()), pa.array(authors, pa.string()))
            for title, values in zip(self.titles[name], new, strict=True):
                batch = batch.append_column(title, values)
        return batch


def _values_of_classes(labels: pa.Table, lines: pa.Table, *, has_digest: bool) -> dict[str, Any]:
    """The value in the table of every class, as labels.parquet names it.

    Names and values are paired row by row, so the table is never interpreted a second time. Where a class has several
    spellings, the one that equals its name is taken, else the most frequent.
    """
    found: dict[str, Counter[Any]] = {}
    for name in labels.column_names:
        own = lines if labels.num_columns == 1 else lines.filter(pc.equal(lines["annotator"], name))
        values = _decoded(labels[name]).take(own["row"]).combine_chunks().dictionary_encode()
        classes = own["recorded"].combine_chunks().dictionary_encode()
        known = values.is_valid().to_numpy(zero_copy_only=False) & classes.is_valid().to_numpy(zero_copy_only=False)
        codes = [each.indices.fill_null(0).to_numpy(zero_copy_only=False)[known] for each in (classes, values)]
        pairs, counts = np.unique(np.stack(codes), axis=1, return_counts=True)
        for (class_, value), count in zip(pairs.T.tolist(), counts.tolist(), strict=True):
            found.setdefault(classes.dictionary[class_].as_py(), Counter())[values.dictionary[value].as_py()] += count
        # Without a digest: not the audited table where a value has two classes, or no value of a class its name.
        known_values = [value for counts in found.values() for value in counts]
        is_named = all(any(is_same_text(str(value), name) for value in counts) for name, counts in found.items())
        is_whole = known.sum() == len(classes) - classes.null_count
        if not has_digest and not (is_whole and len(set(known_values)) == len(known_values) and is_named):
            raise ValueError("The labels of the table are not those of the audit. Name the audited table with --table.")
    return {
        name: max(counts, key=lambda value: (str(value) == name, is_same_text(str(value), name), counts[value]))
        for name, counts in found.items()
    }


def _decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A dictionary-encoded (categorical) column as plain values, and views as texts: Arrow takes no rows of these."""
    column = column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
    return column.cast(pa.large_string()) if column.type == pa.string_view() else column


# Verdicts that people typed into issues.csv in a spreadsheet program, read back as decisions.
#
# The last column of issues.csv, `verdict`, is empty. A verdict is the name of the right class; `ok`, `keep` or `right`
# where the recorded label is right; or `suggested` for the suggested one. An empty cell, `skip` and `?` settle nothing.
# Where a class has the name of such a word, `class:ok` is the class, and `ok` alone is refused.
#
# All cells are read as texts. Spreadsheet programs rewrite what looks like a number or a date (01 becomes 1, 1e5
# becomes 1.00E+05, 2024-01-05T10:00 becomes 05.01.2024 10:00), so texts are compared by what they mean.

REVIEWER = "issues.csv"
KEEP, SUGGESTED, NOTHING, CLASS = ("ok", "keep", "right"), "suggested", ("", "skip", "?"), "class:"
VERDICT_COLUMNS = ["row", "sequence", "annotator", "recorded", "suggested"]
NUMBER = re.compile(r"[+-]?(\d+[.,]?\d*|[.,]\d+)(e[+-]?\d+)?")
DATE = re.compile(
    r"(\d{1,4})([-/.])(\d{1,2})\2(\d{1,4})(?:[t ,]+(\d{1,2}):(\d{2})(?::(?P<second>\d{2}(?:[.,]\d+)?))?"
    r"(?: ?(?P<half>[ap]m))?(?P<zone>z|[+-]\d{2}:?\d{2})?)?"
)

TIME_OF_DAY = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?")
TRUE, FALSE = ("wahr", "vrai", "verdadero", "vero", "waar"), ("falsch", "faux", "falso", "onwaar")
BOOLEANS = dict.fromkeys(TRUE, "true") | dict.fromkeys(FALSE, "false")  # as spreadsheet programs translate them


def read_typed(folder: Path, classes: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """The verdicts in the folder of an audit: row, annotator, recorded label and the label that is right.

    Kept files (issues-edited-N.csv) are read first, issues.csv last; the latest verdict on a label counts. A verdict
    that belongs to no label of the audit is refused, and so is one that names none of `classes`.
    """
    found: dict[tuple[int, str | None], tuple[str | None, str]] = {}
    edited = [path for path in folder.glob(f"{EDITED}-*.csv") if re.fullmatch(rf"{EDITED}-\d+\.csv", path.name)]
    edited.sort(key=lambda path: int(path.stem.rsplit("-", 1)[1]))
    typed = [(path, _typed_lines(path)) for path in (*edited, folder / ISSUES_CSV) if path.is_file()]
    if any(lines for _, lines in typed):
        audited = read_labels(folder, VERDICT_COLUMNS)
        classes = classes or audited["recorded"].drop_null().unique().to_pylist()
        rows = list({line["row"] for _, lines in typed for line in lines})
        by_row: dict[int, list[dict[str, Any]]] = {}
        for line in audited.filter(pa.array(np.isin(audited["row"].to_numpy(), rows))).to_pylist():
            by_row.setdefault(line["row"], []).append(line)
        for path, lines in typed:
            in_file: dict[tuple[int, str | None], str] = {}
            for line in lines:
                own, label = _read_verdict(line, by_row.get(line["row"], []), classes, path)
                if own is not None and label is not None:
                    at = own["row"], own["annotator"]
                    found[at] = (own["recorded"], label)
                    if in_file.setdefault(at, label) != label:
                        raise ValueError(
                            f"Two verdicts on the same label differ: {in_file[at]!r} and {label!r}, the second in line "
                            f"{line['line']} of {str(path)!r}. Keep one of them."
                        )
    return [
        {"row": at[0], "annotator": at[1], "recorded": found[at][0], "label": found[at][1]}
        for at in sorted(found, key=lambda at: (at[0], at[1] or ""))
    ]


@lru_cache(1 << 16)
def is_same_text(typed: str, written: str) -> bool:
    """Whether a cell holds what we wrote, though a spreadsheet program may have rewritten it."""
    if _key(typed) in (_key(written), _key(safe_texts(pa.array([written]))[0].as_py())):
        return True
    number, other = _number(typed), _number(written)
    if number is not None and other is not None:
        # 1.23E+19 stands for all numbers that round to it; of long fractions, few digits are shown and saved.
        digits = len(number.as_tuple().digits)
        is_long = other % 1 != 0 and len(other.as_tuple().digits) > 9
        is_rounded = "e" in typed.casefold() or (is_long and digits > 2)
        return number == other or (is_rounded and f"{number:.{digits - 1}e}" == f"{other:.{digits - 1}e}")
    hours = [TIME_OF_DAY.fullmatch(text.strip()) for text in (typed, written)]
    if hours[0] and hours[1]:
        return [int(part or 0) for part in hours[0].groups()] == [int(part or 0) for part in hours[1].groups()]
    return BOOLEANS.get(_key(typed)) == _key(written) or bool(_moments(typed) & _moments(written))


def _typed_lines(path: Path) -> list[dict[str, Any]]:
    """The lines of a file that have a verdict: texts by column, the row as a number, and the line in the file."""
    content = path.read_bytes()
    for encoding in ("utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig", "cp1252", "latin-1"):
        try:
            text = content.decode(encoding)
            break
        except UnicodeDecodeError:
            continue
    separator = max(",;\t", key=text.partition("\n")[0].count)
    try:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
        names = [name.strip() for name in next(reader, [])]
        if names.count(VERDICT) != 1:
            raise ValueError(
                f"The first line of {str(path)!r} must name the columns, with one column {VERDICT!r}. Got "
                f"{quoted(names[:20])}. Restore that line, and save the file as CSV in UTF-8 with commas."
            )
        lines = [
            {**dict(zip(names, cells, strict=False)), "line": reader.line_num}
            for cells in reader
            if len(cells) > names.index(VERDICT) and cells[names.index(VERDICT)].strip()
        ]
    except csv.Error as error:
        raise ValueError(
            f"{str(path)!r} is not valid CSV: {error}. Look for a stray quotation mark up to line {reader.line_num}."
        ) from None
    for line in lines:
        row = str(line.get("row", "")).strip()
        if not re.fullmatch(r"\d{1,16}([.,]0{0,2})?", row) or "recorded" not in line:
            raise ValueError(
                f"Every verdict in {str(path)!r} must be in a line with its row and recorded label. Got row "
                f"{row!r} in line {line['line']}. Leave the other columns as they were."
            )
        line["row"] = int(re.split("[.,]", row)[0])
    return lines


def _read_verdict(
    line: Mapping[str, Any], audited: Sequence[Mapping[str, Any]], classes: Sequence[str], path: Path
) -> tuple[Mapping[str, Any] | None, str | None]:
    """The audited line that a typed line is about, and the label that its verdict says is right, if any."""
    where = f"line {line['line']} (row {line['row']}) of {str(path)!r}"
    own = [
        each
        for each in audited
        if ("sequence" not in line or is_same_text(line["sequence"], each["sequence"]))
        and ("annotator" not in line or is_same_text(line["annotator"], each["annotator"] or ""))
    ]
    exact = [each for each in own if (each["annotator"] or "") == line.get("annotator")]
    own = exact if len(own) > 1 else own
    same_label = len(own) == 1 and is_same_text(line["recorded"], own[0]["recorded"] or "")
    label = _label_of(line, own[0] if same_label else line, classes, where)
    if label is None:
        return None, None
    if len(own) == 1 and (same_label or (path.name != ISSUES_CSV and label == own[0]["recorded"])):
        return own[0], label  # in a kept file, a verdict may since have been carried out in the table
    raise ValueError(
        f"The verdict {line[VERDICT]!r} in {where} belongs to no label of this audit: row {line['row']} does not have "
        f"the recorded label {line['recorded']!r}, sequence and annotator of that line. Correct the line; or, if the "
        "file was typed for another audit, move it out of the folder."
    )


def _label_of(line: Mapping[str, Any], own: Mapping[str, Any], classes: Sequence[str], where: str) -> str | None:
    """The class that a verdict names; None where it settles nothing. What could mean two things is refused."""
    text, recorded = line[VERDICT].strip(), own["recorded"] or None
    name = text[len(CLASS) :].strip() if text.casefold().startswith(CLASS) else None
    meant = [each for each in classes if is_same_text(text, each) or (name and is_same_text(name, each))]
    exact = [each for each in meant if each in (text, name)]
    # A spreadsheet program turns 01 into 1 but never 1 into 01, so a plain number may stand for either class.
    is_plain = re.fullmatch(r"[+-]?(0|[1-9]\d*)([.,]\d*[1-9])?", text)
    if len(meant) > 1 and len(exact) == 1 and not is_plain:
        meant = exact
    words: dict[str, str | None] = dict.fromkeys(NOTHING)
    if recorded:
        words |= dict.fromkeys(KEEP, str(recorded))
    if own.get("suggested"):  # what the person saw: a later audit may suggest another class
        seen = [each for each in classes if is_same_text(line.get("suggested", ""), each)]
        words[SUGGESTED] = seen[0] if len(seen) == 1 else str(own["suggested"])
    key = _key(text)
    if len(meant) > 1 or (meant and key in words and words[key] != meant[0]):
        word = f" or what the word {key!r} means" if key in words else ""
        raise ValueError(
            f"The verdict {text!r} in {where} could mean the class {' or '.join(map(repr, meant))}{word}. Type "
            f"{CLASS}{meant[0]} for the class; for the recorded label type one of {quoted(KEEP)} that is not a class, "
            "or decide this label with: labeltide review."
        )
    if not meant and key not in words:
        raise ValueError(
            f"A verdict must be a class ({quoted(classes)}), 'ok', 'keep' or 'right' for the recorded label, "
            f"'suggested' for the suggested one, or empty. Got {line[VERDICT]!r} in {where}."
        )
    return meant[0] if meant else words[key]


def _key(text: str) -> str:
    """A text without capitals, repeated blanks and the apostrophe that keeps a cell from being run as a formula."""
    bare = " ".join(unicodedata.normalize("NFC", text).split()).removeprefix("'")
    return bare if len(bare) == 1 else bare.casefold()


def _number(text: str) -> Decimal | None:
    bare = text.strip().casefold()
    if re.fullmatch(r"[+-]?[1-9]\d{0,2}([.,]000)+", bare):  # 1,000 may be a thousand or one
        return None
    return Decimal(bare.replace(",", ".")) if len(bare) < 400 and NUMBER.fullmatch(bare) else None


def _moments(text: str) -> set[tuple[Any, ...]]:
    """The moments that a date can mean: day or month may come first, except where dots or the year tell."""
    found = DATE.fullmatch(text.strip().casefold())
    if not found:
        return set()
    first, second, third, hour, minute = (int(found[part] or 0) for part in (1, 3, 4, 5, 6))
    if found["half"]:
        hour = hour % 12 + 12 * (found["half"] == "pm")
    days = [(third, second, first)] if found[2] == "." else [(third, second, first), (third, first, second)]
    days = [(first, second, third)] if len(found[1]) == 4 else days
    clock = hour, minute, float((found["second"] or "0").replace(",", ".")), (found["zone"] or "z").replace(":", "")
    return {
        (year % 100, month, day, *clock[:3], "z" if clock[3] == "+0000" else clock[3])
        for year, month, day in days
        if month <= 12 and day <= 31
    }


# Decisions of reviewers as trusted labels of another audit.

DECIDED_COLUMNS = ["row", "sequence", "time", "annotator", "recorded"]


@dataclass(frozen=True)
class DecidedLabels:
    """The labels that the reviewers of an audit settled."""

    folder: Path
    lines: pa.Table  # one line for each settled label: row, sequence, time and the label that is right
    n_disputed: int  # labels on which reviewers differ
    digest: str | None  # of the reviewed table; None where that was not a file
    is_timed: bool  # whether the reviewed table has a column of times
    n_other: int = 0  # decisions that were made for another audit, which are left out


def read_decided(folder: Path) -> DecidedLabels:
    """The settled labels in the folder of an audit; a ValueError where there are none."""
    results = open_results(folder)
    lines = read_labels(folder, DECIDED_COLUMNS)
    decisions, n_other = find_decisions(folder, results.audit)
    if not decisions and not n_other:
        DecisionStore.open(folder, create=False).close()  # raises where there are none
    _check_own(folder, decisions, n_other)
    settled = settled_labels(decisions, lines)
    if not len(settled):
        disputed = f" Reviewers disagree on {settled.n_disputed}." if settled.n_disputed else ""
        raise ValueError(f"The decisions in {str(folder)!r} settle no label.{disputed} Continue the review.")
    chosen = lines.select(["row", "sequence", "time"]).take(pa.array(settled.line))
    chosen = chosen.append_column("label", pa.array(settled.label, pa.string()))
    about = results.audit["table"]
    return DecidedLabels(
        folder, chosen, settled.n_disputed, about.get("digest"), about["columns"].get("time") is not None, n_other
    )


def find_decisions(folder: Path, audit: Any) -> tuple[list[Decision], int]:
    """The standing decisions of an audit, and how many there are of another one, whose rows may be different.

    Verdicts that somebody typed into issues.csv count as decisions of a reviewer called `issues.csv`.
    """
    known = audit_identity(audit)
    typed = [
        Decision(
            item_id=f"{REVIEWER}:{line['row']}:{line['annotator'] or ''}",
            audit=known,
            reviewer=REVIEWER,
            action="keep" if line["label"] == line["recorded"] else "label",
            label=None if line["label"] == line["recorded"] else line["label"],
            first_row=line["row"],
            last_row=line["row"],
            annotator=line["annotator"],
        )
        for line in read_typed(folder, audit["table"]["classes"])
    ]
    standing: list[Decision] = []
    if (folder / DECISIONS).is_file():
        with DecisionStore.open(folder, create=False) as store:
            standing = store.standing()
    own = [decision for decision in standing if decision.audit == known]
    return own + typed, len(standing) - len(own)


def _check_own(folder: Path, decisions: list[Decision], n_other: int) -> None:
    if n_other and not decisions:
        raise ValueError(
            f"The decisions in {str(folder)!r} were made for another audit, so their rows are not those of this one. "
            "Name the folder of the audit that was reviewed."
        )


def trust_decided(
    rows: TableRows, class_names: Sequence[str], trusted: np.ndarray | None, decided: DecidedLabels, table: Any
) -> tuple[np.ndarray, dict[str, Any]]:
    """Trusted labels of steps with those that reviewers settled, and what was used and left out, also as a sentence.

    Where the table is not the reviewed one, rows are matched by sequence and time.
    """
    indices, labels = _match_steps(rows, decided, table)
    codes = np.array([class_names.index(label) if label in class_names else -1 for label in labels])
    trusted = np.full(len(rows.steps.rows), -1, np.int8) if trusted is None else trusted.copy()
    is_free = trusted < 0
    by_step: dict[int, set[int]] = {}
    for index, code in zip(indices[codes >= 0].tolist(), codes[codes >= 0].tolist(), strict=True):
        by_step.setdefault(index, set()).add(code)
    agreed = {index: min(found) for index, found in by_step.items() if len(found) == 1}
    used = {index: code for index, code in agreed.items() if is_free[index]}
    trusted[list(used)] = list(used.values())
    left_out = {
        "disputed": (decided.n_disputed, "on which reviewers disagree"),
        "of_another_audit": (decided.n_other, "decisions made for another audit"),
        "differ_at_one_step": (len(by_step) - len(agreed), "steps whose annotators' labels were settled differently"),
        "other_class": (int((codes < 0).sum()), "of a class that is not in the table"),
        "not_in_the_table": (len(decided.lines) - len(labels), "that no row of the table matches"),
        "trusted_already": (len(agreed) - len(used), "that the trusted column already has"),
    }
    left = [f"{amount} {words}" for amount, words in left_out.values() if amount]
    rest = f" Left out: {', '.join(left)}." if left else ""
    n_used = f"{len(used)} label{'s' if len(used) != 1 else ''}"
    sentence = f"Trusted: {n_used} that reviewers settled in {quoted([decided.folder.name])}.{rest}"
    if not used:
        raise ValueError(f"The decisions must settle a label of the table. {sentence}")
    about = {"folder": decided.folder.name, "settled": len(decided.lines), "used": len(used)}
    return trusted, {**about, **{name: amount for name, (amount, _) in left_out.items()}, "sentence": sentence}


def _match_steps(rows: TableRows, decided: DecidedLabels, table: Any) -> tuple[np.ndarray, list[str]]:
    """The step and the label of every settled label that is in the table."""
    digest = file_digest(Path(table)) if isinstance(table, str | Path) and decided.digest else None
    if digest is not None and digest == decided.digest:
        indices = rows.step_of_given(decided.lines["row"].to_numpy())
        kept = decided.lines["label"].filter(pa.array(indices >= 0))
        return indices[indices >= 0], kept.to_pylist()
    if not (decided.is_timed and rows.moments):
        raise ValueError(
            f"The table is not the one that was reviewed in {str(decided.folder)!r}, and without a column of times in "
            "both, rows cannot be matched. Name one with the option time (--time COLUMN), or audit the reviewed table."
        )
    names = tuple(unique_texts(rows.steps.ids))
    sequence = decode(rows.steps.sequence[rows.steps.step_of_row], names)
    there = pa.table({"sequence": sequence, "time": rows.times, "step": rows.steps.step_of_row})
    keys = ["sequence", "time"]
    sides = [decided.lines, there.group_by(keys).aggregate([("step", "min")])]
    for name in keys:  # texts of one type
        sides = [t.set_column(t.column_names.index(name), name, t[name].cast(pa.large_string())) for t in sides]
    matched = sides[0].join(sides[1], keys, join_type="inner")
    if not len(matched):
        raise ValueError(
            f"No settled label of {str(decided.folder)!r} has the sequence and time of a row of the table, so "
            "decisions cannot be matched. Are these the sequences and times that were reviewed?"
        )
    return matched["step_min"].to_numpy(), matched["label"].to_pylist()
