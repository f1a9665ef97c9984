"""A simulated wearable study of any number of rows, made and written person by person in bounded memory."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from labeltide._validation import check_number
from labeltide.auditing.wearable_study import simulate_study

ROWS_EACH = 5000  # of one person
DAYS = 60  # enough for as many rows: about 108 a day, and a person who wears the sensor less has 90
AT_ONCE = 50  # people who are simulated together and make a row group
MOST_ROWS = 10**11
# A seventh feature, from the activity: sounds around the person, in decibels.
_LOUDNESS, _LOUDNESS_SPREAD = {"exercise": 66.0, "rest": 34.0, "sit": 50.0, "walk": 58.0}, 9.0


def write_large_study(path: Path, rows: int, rate: float = 0.2, seed: int = 0) -> int:
    """Write a study of so many rows to a new .parquet file, whole or not at all; give back the number of people.

    Seven features, two annotators, four activities, 5,000 rows for each person. People are simulated in parts of 50,
    each from its own seed, so that memory does not grow with the rows and the same seed gives the same bytes.
    """
    check_number("rows", rows, 1, MOST_ROWS, whole=True)
    check_number("rate", rate, 0, 0.5)
    check_number("seed", seed, 0, whole=True)
    if not path.name.lower().endswith(".parquet"):
        raise ValueError(f"A study of a given number of rows is written to a .parquet file. Got {str(path)!r}.")
    people = -(-int(rows) // ROWS_EACH)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{path.name}-", dir=path.parent) as work:
        draft = Path(work) / path.name
        writer = None
        for part in _parts(people, int(rows), rate, seed):
            writer = writer or parquet.ParquetWriter(draft, part.schema, compression="zstd")
            writer.write_table(part)
        assert writer is not None
        writer.close()
        os.rename(draft, path)
    return people


def _parts(people: int, rows: int, rate: float, seed: int) -> Iterator[pa.Table]:
    digits = len(str(people))
    for first in range(0, people, AT_ONCE):
        count = min(AT_ONCE, people - first)
        table = _simulate_part(first, count, rate, seed, digits)
        yield table.slice(0, rows - first * ROWS_EACH)


def _simulate_part(first: int, count: int, rate: float, seed: int, digits: int) -> pa.Table:
    """The rows of some people, named by their numbers from `first` on."""
    part_seed = int(np.random.SeedSequence([seed, first]).generate_state(1, np.uint64)[0])
    table = simulate_study(people=count, days=DAYS, rate=rate, seed=part_seed)
    person = table["person"].combine_chunks().dictionary_encode().indices.to_numpy()
    starts = np.searchsorted(person, np.arange(count))
    sizes = np.diff(np.append(starts, len(person)))
    if sizes.min() < ROWS_EACH:
        raise ValueError(f"A simulated person wore the sensor too little. Take another seed than {seed}.")
    table = table.take(pa.array((starts[:, None] + np.arange(ROWS_EACH)).reshape(-1)))
    names = np.char.add("p", np.char.zfill((first + 1 + np.arange(count)).astype(str), digits))
    table = table.set_column(0, "person", pa.array(np.repeat(names, ROWS_EACH)))
    return table.add_column(8, "loudness", pa.array(_loudness(table, part_seed)))


def _loudness(table: pa.Table, seed: int) -> np.ndarray:
    """The seventh feature; rows of one moment, which two annotators labelled, have the same value."""
    names = pa.array(list(_LOUDNESS))
    code = pc.index_in(table["true_label"], names).to_numpy()
    minute = table["time"].combine_chunks().cast(pa.int64()).to_numpy()
    same = np.append(False, minute[1:] == minute[:-1])
    step = np.cumsum(~same) - 1
    noise = np.random.default_rng([seed, 7]).normal(0, _LOUDNESS_SPREAD, step[-1] + 1)[step]
    return (np.array(list(_LOUDNESS.values()))[code] + noise).round(2).astype(np.float32)
