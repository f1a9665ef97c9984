"""The audited table with the labels that reviewers settled and, where wished, corrections by the model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from labeltide import __version__, _validation
from labeltide.auditing.comparing import open_results
from labeltide.auditing.decided import settle
from labeltide.auditing.labels_file import read_labels
from labeltide.auditing.new_file import check_file, draft_of
from labeltide.auditing.spreadsheet import SafeCsvWriter
from labeltide.auditing.typed_verdicts import typed_decisions
from labeltide.decisions import DECISIONS, file_digest
from labeltide.tables.files import open_file
from labeltide.tables.labels import read_table_labels
from labeltide.tables.spellings import join_spellings
from labeltide.tables.wording import quoted

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
        found = read_table_labels(join_spellings(_read(source, columns), columns)[0], columns)
        texts = np.array([*found.names, None], dtype=object)[found.codes].ravel()
        if texts.tolist() != lines["recorded"].to_pylist():
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
