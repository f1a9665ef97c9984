"""Every CSV file guards every text that a spreadsheet program would run, by one function."""

from __future__ import annotations

import ast
import csv
import io
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import csv as arrow_csv

from labeltide._files import bare_text, csv_text, safe_texts
from labeltide.auditing.results import write_new_table
from labeltide.data.studies import write_study
from labeltide.recordings.spans import delimited
from labeltide.recordings.spans.formats import read_spans
from labeltide.recordings.spans.table import make_spans
from labeltide.tables.columns import SafeCsvWriter, guarded, write_safe_csv

ROOT = Path(__file__).parents[1]
SOURCES = [*(ROOT / "src").rglob("*.py"), *(ROOT / "bench" / "src").rglob("*.py")]
WRITERS = {"write_csv", "CSVWriter", "writer", "DictWriter", "to_csv"}
GUARDED = {
    ("_files.py", "csv.writer"),
    ("columns.py", "csv.CSVWriter"),
    ("studies.py", "csv.write_csv"),
}
TEXTS = [
    *("=1+1", "+x", "-x", "@SUM(A1)", "\t=1", "=cmd|' /C calc'!A0", " =1+1", "a\n=1+1", "a;=1", "\uff1dx", "\u202e=x"),
    *("rest", "-5", "a, -b", "it's", "2026-03-02"),
]


def calls_of_writers(path: Path) -> Iterator[str]:
    """Calls of anything that writes CSV."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in WRITERS:
            yield ast.unparse(node.func)


def test_nothing_else_writes_csv():
    found = {(path.name, name) for path in SOURCES for name in calls_of_writers(path)}
    assert found == GUARDED, "Use _files.csv_text or tables.columns."


def tables(text: str) -> dict[str, pa.Table]:
    """A text in every kind of column that CSV can hold."""
    kinds = {"string": pa.string(), "large": pa.large_string(), "bytes": pa.binary(), "large bytes": pa.large_binary()}
    found = {name: pa.array([text.encode() if "bytes" in name else text], kind) for name, kind in kinds.items()}
    found["dictionary"] = pa.array([text]).dictionary_encode()
    found["dictionary of bytes"] = pa.array([text.encode()]).dictionary_encode()
    return {name: pa.table({"title": column, "number": [-1.5]}) for name, column in found.items()}


def write_parts(table: pa.Table, path: Path) -> None:
    writer = SafeCsvWriter(path, table.schema)
    writer.write_table(table)
    writer.close()


WHOLE: dict[str, Callable[[pa.Table, Path], object]] = {
    "results": write_safe_csv,
    "corrected table": write_parts,
    "simulated table": write_study,
    "predictions": write_new_table,
}


def cells(path: Path, separator: str = ",") -> list[list[str]]:
    text = path.read_bytes().decode("utf-8-sig")
    return list(csv.reader(io.StringIO(text, newline=""), delimiter=separator))


def safe(text: str) -> str:
    return safe_texts(pa.array([text]))[0].as_py()


@pytest.mark.parametrize("kind", ["string", "large", "bytes", "large bytes", "dictionary", "dictionary of bytes"])
@pytest.mark.parametrize("writer", WHOLE)
def test_a_table_has_safe_texts_and_numbers(writer, kind, tmp_path):
    for index, text in enumerate(TEXTS):
        WHOLE[writer](tables(text)[kind], tmp_path / f"{index}.csv")
        assert cells(tmp_path / f"{index}.csv")[1] == [safe(text), "-1.5"]


@pytest.mark.parametrize("name", ["spans.csv", "spans.tsv", "bids.tsv"])
@pytest.mark.parametrize("text", [text for text in TEXTS if text == text.strip() and "\n" not in text])
def test_spans_have_safe_texts_and_are_read_as_they_were(name, text, tmp_path):
    spans, _ = make_spans([-2.5, 0.0], [1.0, 1.0], [text, "rest"], [text, text], [text, text])
    delimited.write(spans, tmp_path / name, bids=name.startswith("bids"))
    rows = cells(tmp_path / name, "\t" if name.endswith("tsv") else ",")
    assert rows[1][2:] == [safe(text)] * 3
    assert rows[1][0] == "-2.5"
    if bare_text(safe(text)) == text:  # marks within a text are kept
        assert read_spans(tmp_path / name).spans["label"].to_pylist() == [text, "rest"]


@pytest.mark.parametrize("text", TEXTS)
def test_rows_of_reports_have_safe_texts(text):
    rows = list(csv.reader(io.StringIO(csv_text([[text, -1.5, None], ["title", 2, text]]), newline="")))
    assert rows == [[safe(text), "-1.5", ""], ["title", "2", safe(text)]]


def test_a_guarded_table_is_one_that_arrow_can_write():
    for text in TEXTS:
        for table in tables(text).values():
            arrow_csv.write_csv(guarded(table), io.BytesIO())


def test_no_rows_are_no_text():
    assert csv_text([]) == ""
