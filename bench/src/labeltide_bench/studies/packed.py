"""Records of a finished study as one compressed Parquet file, small enough for a repository."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

ARRAYS = ("over_time", "clock", "true_noise", "noise")  # the largest columns
AS_TEXT = ("level", "settings", "noise_seed")  # stored as JSON, because their keys differ between records


def write_packed(records: Sequence[dict[str, Any]], path: Path, *, arrays: bool = True) -> None:
    """Write records to one file; without ``arrays``, curves over time and noise matrices are left out."""
    table = _table(records, () if arrays else ARRAYS)
    parquet.write_table(table, path, compression="zstd", compression_level=19)


def read_packed(path: Path) -> Iterator[dict[str, Any]]:
    """The records of a packed file, one by one, as they were but for numbers in arrays, which are float32."""
    for batch in parquet.ParquetFile(path).iter_batches(batch_size=512):
        for record in batch.to_pylist():
            record |= {name: json.loads(record[name]) for name in AS_TEXT if record.get(name) is not None}
            yield {name: _without_nulls(value) for name, value in record.items() if value is not None}


def _table(records: Sequence[dict[str, Any]], without: Sequence[str]) -> pa.Table:
    names = [name for name in dict.fromkeys(name for record in records for name in record) if name not in without]
    columns = {}
    for name in names:
        values = [record.get(name) for record in records]
        if name in AS_TEXT:
            values = [None if value is None else json.dumps(value) for value in values]
        array = pa.array(values)
        columns[name] = array.cast(_single(array.type)) if name in ARRAYS else array
    return pa.table(columns)


def _single(kind: pa.DataType) -> pa.DataType:
    """The same type with single-precision numbers."""
    if pa.types.is_list(kind):
        return pa.list_(_single(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _single(field.type)) for field in kind])
    return pa.float32() if pa.types.is_floating(kind) or pa.types.is_integer(kind) else kind


def _without_nulls(value: Any) -> Any:
    """Keys that only other records had are left out again."""
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return value
