"""No text of a CSV starts a formula, whatever a spreadsheet program takes for the start of a cell."""

import csv
import re

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labeltide._files import safe_texts
from labeltide.tables.columns import load_table, open_table, write_safe_csv


def safe(text):
    return safe_texts(pa.array([text], pa.string()))[0].as_py()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("=1+1", "'=1+1"),
        ("  @x", "'  @x"),
        ("+x", "'+x"),
        ("-x", "'-x"),
        ("\tx", "'\tx"),
        ("\rx", "'\rx"),
        ("\u202e=x", "'\u202e=x"),
        ("\ufeff=x", "'\ufeff=x"),
        ("\uff1dx", "'\uff1dx"),
        ("a;=x", "a;'=x"),
        ("a\n=x", "a\n'=x"),
        ('a"=x', "a\"'=x"),
        ("a,-2+cmd|' /C calc'!A0", "a,'-2+cmd|' /C calc'!A0"),
        ("a, +f(1)", "a, '+f(1)"),
    ],
)
def test_what_would_be_run_gets_an_apostrophe(text, expected):
    assert safe(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "rest",
        "",
        None,
        "p-1",
        "a, b",
        "-5",
        "+1.5e-3",
        "1-2",
        "2026-03-02 10:00:00",
        "it's",
        "ümläut",
        "a=b",
        "a, -b",
        "left; +right",
    ],
)
def test_what_is_harmless_stays_as_it_is(text):
    assert safe(text) == text


pieces = st.sampled_from(
    ["=", "+", "-", "@", "\t", "\r", "\n", '"', "'", " ", ",", ";", "|", "a", "1", "\u00a0", "\u202e"]
)


@settings(max_examples=300, deadline=None)
@given(text=st.lists(pieces, max_size=8).map("".join))
def test_no_cell_starts_a_formula_for_any_separator(tmp_path_factory, text):
    path = tmp_path_factory.mktemp("csv") / "t.csv"
    write_safe_csv(pa.table({"text": [text, "next"], "number": [-1.5, 2.0]}), path)
    with open(path, newline="", encoding="utf-8-sig") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["text", "number"]
    assert rows[1][1] == "-1.5"
    assert len(rows) == 3
    starts = r"[=+\-@]" if "|" in text else "[=@]"
    for first, cell in enumerate([rows[1][0], *re.split(r"[,;\t\r\n|]", rows[1][0])]):
        bare = re.sub(r"^[\s\u00a0\u202e\"]+", "", cell)
        start = starts if first else r"[=+\-@]"
        assert not re.match(start, bare) or re.fullmatch(r"[+-]?\d+", cell), (text, cell)


def test_a_mark_tells_spreadsheets_that_it_is_utf8_and_our_own_reader_skips_it(tmp_path):
    write_safe_csv(pa.table({"wärme": ["ümläut"], "zahl": [1]}), tmp_path / "t.csv")
    assert (tmp_path / "t.csv").read_bytes().startswith("\ufeff".encode())
    assert load_table(open_table(tmp_path / "t.csv")).to_pydict() == {"wärme": ["ümläut"], "zahl": [1]}
