"""The results of an audit that its page shows: in memory, or read from the folder that the audit wrote."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from labeltide.auditing.audit_json import load_audit_json
from labeltide.auditing.folder import AUDIT, ISSUES, LABELS
from labeltide.auditing.page.names import sound

PART = 2000  # rows of the ranked issues read at once
COLUMNS = ["row", "sequence", "time", "annotator", "recorded", "probability_right", "suggested", "is_issue"]


@dataclass(frozen=True)
class Results:
    """The results of an audit, tables in memory or in files of which parts are read when asked for.

    Attributes
    ----------
    audit : the content of audit.json
    labels : one row for every label, as in labels.parquet
    issues : the ranked issues, as in issues.parquet
    """

    audit: Mapping[str, Any]
    labels: pa.Table | Path
    issues: pa.Table | Path

    @classmethod
    def in_folder(cls, folder: Path, needed: Sequence[str] = ()) -> Results:
        """The results that an audit wrote into a folder; `needed` as of `load_audit_json`."""
        return cls(read_audit(folder, needed), Path(folder) / LABELS, Path(folder) / ISSUES)

    def first_issues(self, most: int) -> tuple[Iterator[pa.RecordBatch], int]:
        """The first ranked issues, a part at a time (their texts may be long), and how many there are in all."""
        parts, total = _batches(self.issues, min(most, PART))
        return islice(parts, -(-most // PART)), total

    def labels_of(self, sequences: list[str]) -> pa.Table:
        """The labels of some sequences, with their `position` among all labels."""
        parts, _ = _batches(self.labels, 1 << 17, COLUMNS)
        kept, start = [], 0
        wanted = pa.array([sound(name) for name in sequences], pa.string())
        for batch in parts:
            table = pa.Table.from_batches([batch])
            places = pa.array(range(start, start + len(table)), pa.int64())
            start += len(table)
            table = table.append_column("position", places)
            kept.append(table.filter(pc.is_in(table["sequence"].cast(pa.string()), wanted)))
        if not kept:
            empty = self.labels if isinstance(self.labels, pa.Table) else pq.read_table(self.labels)
            return empty.select(COLUMNS).append_column("position", pa.array([], pa.int64()))
        return pa.concat_tables(kept, promote_options="permissive")


def read_audit(folder: Path, needed: Sequence[str] = ()) -> dict[str, Any]:
    """The numbers of an audit; `needed` as of `load_audit_json`."""
    path = Path(folder) / AUDIT
    if not path.exists():
        raise FileNotFoundError(f"{path.parent} holds no {AUDIT}. Name a folder that `labeltide audit` wrote.")
    return load_audit_json(path, needed)


def _batches(
    source: pa.Table | Path, size: int, columns: list[str] | None = None
) -> tuple[Iterator[pa.RecordBatch], int]:
    """Batches of at most so many rows, and the number of all rows."""
    if isinstance(source, pa.Table):
        table = source if columns is None else source.select(columns)
        return iter(table.combine_chunks().to_batches(max_chunksize=size)), len(source)
    if not source.exists():
        raise FileNotFoundError(f"{source.parent} must hold {source.name} beside {AUDIT}. Audit again to write it.")
    file = pq.ParquetFile(source)
    return file.iter_batches(batch_size=size, columns=columns), file.metadata.num_rows
