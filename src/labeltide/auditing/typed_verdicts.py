"""Verdicts that people typed into issues.csv in a spreadsheet program, read back as decisions.

The last column of issues.csv, `verdict`, is empty. A verdict is the name of the right class, `ok`, `keep` or `right`
for a recorded label that is right, or `suggested` for the suggested one. An empty cell, `skip` and `?` settle nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from labeltide.auditing.folder import EDITED, ISSUES_CSV, LABELS
from labeltide.auditing.spreadsheet import VERDICT
from labeltide.decisions import Decision, audit_identity
from labeltide.tables.files import open_file
from labeltide.tables.wording import quoted

REVIEWER = "issues.csv"
KEEP, SUGGESTED, NOTHING = frozenset(("ok", "keep", "right")), "suggested", frozenset(("", "skip", "?"))
NEEDED = ("row", "recorded", VERDICT)
LINES = ["row", "sequence", "annotator", "recorded", "suggested"]


def read_typed(folder: Path, classes: tuple[str, ...] | None = None) -> pa.Table:
    """The verdicts in the folder of an audit, as a table of row, annotator, recorded and label.

    Kept files are read first, issues.csv last; the latest verdict on a label counts. Lines that are not those of the
    audit in the folder, which were typed for another one, are left out.

    Parameters
    ----------
    folder : of an audit
    classes : names that a verdict may have; those of the recorded labels when left out
    """
    typed = [(path, line) for path in _files(folder) for line in _lines(path)]
    found: dict[tuple[int, str | None], tuple[str, str]] = {}
    if typed:
        known = _known_lines(folder, {int(line["row"]) for _, line in typed})
        names = {_key(name): name for name in classes or _classes(folder)}
        for path, line in typed:
            at = (int(line["row"]), line.get("annotator"))
            own = known.get(at)
            if own is None or not _is_same(line, own):
                continue
            label = _label(line[VERDICT], own, names, path)
            if label is not None:
                found[at] = (own["recorded"], label)
    rows = [(*at, *labels) for at, labels in sorted(found.items(), key=lambda each: (each[0][0], each[0][1] or ""))]
    kinds = {"row": pa.int64(), "annotator": pa.string(), "recorded": pa.string(), "label": pa.string()}
    return pa.table(
        {name: pa.array([row[place] for row in rows], kind) for place, (name, kind) in enumerate(kinds.items())}
    )


def typed_decisions(folder: Path, audit: Mapping[str, Any]) -> list[Decision]:
    """The typed verdicts as decisions of a reviewer of their own, `issues.csv`."""
    identity = audit_identity(audit)
    return [
        Decision(
            item_id=f"{REVIEWER}:{line['row']}:{line['annotator'] or ''}",
            audit=identity,
            reviewer=REVIEWER,
            action="keep" if line["label"] == line["recorded"] else "label",
            label=None if line["label"] == line["recorded"] else line["label"],
            first_row=line["row"],
            last_row=line["row"],
            annotator=line["annotator"],
        )
        for line in read_typed(folder, tuple(audit["table"]["classes"])).to_pylist()
    ]


def _files(folder: Path) -> list[Path]:
    """The kept files in the order of their numbers, then issues.csv."""
    kept = [path for path in folder.glob(f"{EDITED}-*.csv") if re.fullmatch(rf"{EDITED}-\d+\.csv", path.name)]
    kept.sort(key=lambda path: int(path.stem.rsplit("-", 1)[1]))
    own = folder / ISSUES_CSV
    return [*kept, *([own] if own.is_file() else [])]


def _lines(path: Path) -> list[dict[str, Any]]:
    """The lines of a file that have a verdict, as texts."""
    table = open_file(path)
    assert isinstance(table, pa.Table)
    if any(name not in table.column_names for name in NEEDED) or pa.types.is_null(table[VERDICT].type):
        return []
    names = [name for name in (*LINES, VERDICT) if name in table.column_names]
    table = pa.table({name: table[name].cast(pa.string()) for name in names})
    lines = [line for line in table.to_pylist() if (line[VERDICT] or "").strip()]
    for line in lines:
        if not re.fullmatch(r"\s*\d+(\.0)?\s*", line["row"] or ""):
            raise ValueError(
                f"Every verdict in {str(path)!r} must stand in a line with its row. Got row {line['row']!r}. Leave the "
                "column row as it was."
            )
        line["row"] = line["row"].split(".")[0]
    return lines


def _known_lines(folder: Path, rows: set[int]) -> dict[tuple[int, str | None], dict[str, Any]]:
    """The audited lines of some rows, by row and annotator."""
    table = parquet.read_table(folder / LABELS, columns=LINES)
    wanted = np.isin(table["row"].to_numpy(), list(rows))
    return {(line["row"], line["annotator"]): line for line in table.filter(pa.array(wanted)).to_pylist()}


def _classes(folder: Path) -> list[str]:
    return parquet.read_table(folder / LABELS, columns=["recorded"])["recorded"].drop_null().unique().to_pylist()


def _is_same(typed: Mapping[str, Any], own: Mapping[str, Any]) -> bool:
    """Whether a typed line is that of the audit; spreadsheet programs may rewrite times and numbers."""
    same_label = _key(typed["recorded"] or "") == _key(own["recorded"] or "")
    return same_label and ("sequence" not in typed or _bare(typed["sequence"]) == _bare(own["sequence"]))


def _bare(text: str | None) -> str:
    """A name as spreadsheet programs leave it: 007 and 7.0 become 7."""
    key = _key(text or "")
    return str(float(key)) if re.fullmatch(r"\d+(\.\d+)?", key) else key


def _label(verdict: str, own: Mapping[str, Any], names: Mapping[str, str], path: Path) -> str | None:
    """The label that a verdict says is right; None where it says nothing."""
    key = _key(verdict)
    if key in names:  # a class may be called right
        return names[key]
    if key in NOTHING:
        return None
    if key in KEEP:
        return str(own["recorded"])
    if key == SUGGESTED:
        return str(own["suggested"])
    raise ValueError(
        f"A verdict must be a class ({quoted(list(names.values()))}), 'ok', 'keep' or 'right' for the recorded label, "
        f"'suggested' for the suggested one, or empty. Got {verdict!r} in row {own['row']} of {str(path)!r}."
    )


def _key(text: str) -> str:
    """A name without capitals, blanks around it and the apostrophe that guards a cell from being run as a formula."""
    bare = " ".join(text.split()).removeprefix("'")
    return bare if len(bare) == 1 else bare.casefold()
