"""Read the folder that an audit wrote."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from labeltide.auditing.page.names import sound

FORMAT = 1  # the newest form of audit.json that is understood here
PART = 2000  # rows of the ranked issues read at once
AUDIT, LABELS, ISSUES = "audit.json", "labels.parquet", "issues.parquet"


def read_audit(folder: Path) -> dict[str, Any]:
    """The numbers of an audit."""
    path = Path(folder) / AUDIT
    if not path.exists():
        raise FileNotFoundError(f"{path.parent} holds no {AUDIT}. Name a folder that `labeltide audit` wrote.")
    audit = json.loads(path.read_text(encoding="utf-8"))
    found = audit.get("format") if isinstance(audit, Mapping) else None
    if found != FORMAT:
        raise ValueError(
            f"{AUDIT} must have format {FORMAT}. Got {found!r}; audit again with this version of labeltide."
        )
    return dict(audit)


def read_issues(folder: Path, most: int) -> tuple[Iterator[pa.RecordBatch], int]:
    """The first ranked issues, a part at a time (their texts may be long), and how many there are in all."""
    file = pq.ParquetFile(_existing(folder, ISSUES))
    parts = file.iter_batches(batch_size=min(most, PART))
    return islice(parts, -(-most // PART)), file.metadata.num_rows


def read_labels(folder: Path, sequences: list[str]) -> pa.Table:
    """The labels of some sequences, with their `position` in the file."""
    path = _existing(folder, LABELS)
    columns = ["row", "sequence", "time", "annotator", "recorded", "probability_right", "suggested", "is_issue"]
    kept, start = [], 0
    wanted = pa.array([sound(name) for name in sequences], pa.string())
    for batch in pq.ParquetFile(path).iter_batches(batch_size=1 << 17, columns=columns):
        table = pa.Table.from_batches([batch])
        places = pa.array(range(start, start + len(table)), pa.int64())
        start += len(table)
        table = table.append_column("position", places)
        kept.append(table.filter(pc.is_in(table["sequence"].cast(pa.string()), wanted)))
    if not kept:
        return pq.read_table(path, columns=columns).append_column("position", pa.array([], pa.int64()))
    return pa.concat_tables(kept, promote_options="permissive")


def _existing(folder: Path, name: str) -> Path:
    path = Path(folder) / name
    if not path.exists():
        raise FileNotFoundError(f"{path.parent} must hold {name} beside {AUDIT}. Audit again to write it.")
    return path
