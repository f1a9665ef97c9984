"""Random tables for the fuzz tests: every kind of column, gaps, duplicates, hostile names."""

import datetime

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
from hypothesis import strategies as st

HOSTILE = [
    "<script>alert(1)</script>",
    "=cmd|' /C calc'!A0",
    'quo"te',
    "a,b",
    "",
    " ",
    "\u202eright to left",
    "😀" * 3,
    "x" * 10_000,
    "row",
    "order of rows",
    "whole table",
    "hour_of_day",
    "sequence",
    "id",
    "time",
    "label",
    "annotator",
    "true_label",
    "stage",
    "Unnamed: 0",
    "it's",
    "new\nline",
    "nul\x00",
]
texts = st.text(max_size=8) | st.sampled_from(HOSTILE)
names = st.sampled_from(HOSTILE) | st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
moments = st.datetimes(datetime.datetime(1900, 1, 1), datetime.datetime(2100, 1, 1))
# Each kind of column: what its cells are drawn from.
KINDS = {
    "whole": st.integers(-3, 3),
    "large": st.integers(-(2**63), 2**63 - 1),
    "huge": st.integers(2**62, 2**63 - 1),
    "number": st.floats(),
    "small": st.floats(-10, 10, width=16),
    "flag": st.booleans(),
    "text": st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
    "level": st.sampled_from(["a", "b", "c", ""]),
    "moment": moments,
    "day": st.dates(datetime.date(1, 1, 1), datetime.date(9999, 1, 1)),
    "hour": st.times(),
    "span": st.timedeltas(datetime.timedelta(-1000), datetime.timedelta(1000)),
    "exact": st.decimals(-1000, 1000, allow_nan=False, allow_infinity=False, places=3),
    "bytes": st.binary(max_size=4),
    "list": st.lists(st.integers(0, 3), max_size=2),
    "empty": st.none(),
    "written": moments.map(lambda moment: moment.isoformat(" ", "seconds")),
    "same": st.just(1),
}
ARROW = {"exact": pa.decimal128(12, 3), "empty": pa.null()}


def make_table(people=12, steps=20, rate=0.1, seed=0):
    """Two classes that a signal tells apart, and some labels turned over."""
    random = np.random.default_rng(seed)
    true = (np.cumsum(random.random((people, steps)) < 0.15, axis=1) + random.integers(2, size=(people, 1))) % 2
    wrong = random.random((people, steps)) < rate
    names = np.array(["rest", "walk"])
    columns = {
        "person": np.repeat([f"p{number}" for number in range(people)], steps),
        "minute": np.tile(np.arange(steps), people),
        "signal": (true * 2 + random.normal(0, 0.5, true.shape)).ravel(),
        "label": names[(true ^ wrong).ravel()],
        "truth": names[true.ravel()],
    }
    return pa.table(columns)


@st.composite
def columns(draw, n_rows):
    """The cells of one column and its kind."""
    kind = draw(st.sampled_from(sorted(KINDS)))
    cells = KINDS[kind] if draw(st.booleans()) else st.none() | KINDS[kind]
    return kind, draw(st.lists(cells, min_size=n_rows, max_size=n_rows))


@st.composite
def tables(draw, most_rows=12):
    """A table of random columns in one of three libraries."""
    n_rows = draw(st.integers(0, most_rows))
    chosen = draw(st.lists(names, min_size=0, max_size=6, unique=True))
    found = {name: draw(columns(n_rows)) for name in chosen}
    library = draw(st.sampled_from(["pandas", "polars", "pyarrow", "objects"]))
    arrow = pa.table({name: pa.array(cells, ARROW.get(kind)) for name, (kind, cells) in found.items()})
    if library == "pandas":
        return arrow.to_pandas()
    if library == "polars":
        return pl.from_arrow(arrow) if chosen else pl.DataFrame()
    if library == "objects":
        return pd.DataFrame({name: pd.Series(cells, dtype=object) for name, (_, cells) in found.items()})
    return arrow


@st.composite
def studies(draw, most_sequences=4, most_steps=9):
    """A table that is nearly always sound: sequences of random lengths in random order, with random features."""
    lengths = draw(st.lists(st.integers(1, most_steps), min_size=1, max_size=most_sequences))
    ids = draw(st.lists(st.integers(-(2**63), 2**63 - 1) | texts, min_size=len(lengths), max_size=len(lengths)))
    people = draw(st.lists(texts, min_size=1, max_size=3, unique=True))
    rows = [
        (str(ids[which]), step, person)
        for which, length in enumerate(lengths)
        for step in range(length)
        for person in people[: draw(st.integers(1, len(people)))]
    ]
    rows = draw(st.permutations(list(dict.fromkeys(rows))))
    n_rows = len(rows)
    extra = draw(st.dictionaries(names, columns(n_rows), max_size=3))
    labels = draw(st.lists(st.sampled_from(["walk", "rest", None, "=1+1"]), min_size=n_rows, max_size=n_rows))
    table = {"s": [row[0] for row in rows], "t": [row[1] for row in rows], "who": [row[2] for row in rows], "y": labels}
    table = {name: pa.array([_clean(cell) for cell in cells]) for name, cells in table.items()}
    table |= {"v": pa.array([float(hash((row[0], row[1])) % 7) for row in rows])}
    return pa.table(table | {k: pa.array(v, ARROW.get(kind)) for k, (kind, v) in extra.items() if k not in table})


def _clean(cell):
    return cell.encode("utf-8", "replace").decode() if isinstance(cell, str) else cell
