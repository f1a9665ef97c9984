"""What people settled in the folder of an audit, put into the labels that are exported."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from labeltide.auditing.decided import find_decisions
from labeltide.decisions import settled_labels


def use_settled(folder: Path, audit: Mapping[str, Any], lines: pa.Table) -> tuple[pa.Table, tuple[str, ...]]:
    """The labels with settled ones as the corrected ones, and sentences about it; a settled label is no issue.

    Decisions are those of a review and the verdicts that were typed into issues.csv. Labels on which reviewers differ
    stay as the audit left them.
    """
    decisions, n_other = find_decisions(folder, audit)
    said = []
    if n_other:
        said.append(f"{n_other} decision{'s' if n_other > 1 else ''} made for another audit left out.")
    if not decisions:
        return lines, tuple(said)
    settled = settled_labels(decisions, lines)
    is_settled = np.zeros(len(lines), bool)
    is_settled[settled.line] = True
    corrected = lines["corrected"].combine_chunks()
    corrected = pc.replace_with_mask(corrected, pa.array(is_settled), pa.array(settled.label, corrected.type))
    is_issue = pc.and_not(lines["is_issue"], pa.array(is_settled))
    for name, column in (("corrected", corrected), ("is_issue", is_issue)):
        lines = lines.set_column(lines.column_names.index(name), name, column)
    if len(settled):
        said.append(
            f"{len(settled):,} label{'s' if len(settled) > 1 else ''} as people settled them, no longer issues."
        )
    if settled.n_disputed:
        said.append(f"{settled.n_disputed:,} on which reviewers differ left as the audit has them.")
    return lines, tuple(said)
