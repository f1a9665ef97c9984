"""Which label of one audit is which of another: matched by sequence, time and annotator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from labeltide.auditing.labels_file import read_labels

COLUMNS = ["row", "sequence", "time", "annotator", "recorded", "probability_right", "is_issue"]
KINDS = ("new", "resolved", "persisting")


@dataclass(frozen=True)
class MatchedLabels:
    """The labels of two audits side by side.

    Attributes
    ----------
    both : one line for each label that is in both; columns of the new audit end in _now
    old, new : the labels that are in one audit alone
    by : the columns by which they were matched, in words; "" where they cannot be matched
    said : sentences about it
    """

    both: pa.Table
    old: pa.Table
    new: pa.Table
    by: str
    said: tuple[str, ...] = ()


def read_lines(labels: pa.Table | Path) -> pa.Table:
    """Every recorded label of an audit; texts are of one type, and no annotator is an empty name."""
    table = read_labels(labels, COLUMNS)
    texts = {name: table[name].cast(pa.large_string()) for name in ("sequence", "time", "annotator", "recorded")}
    texts["annotator"] = pc.fill_null(texts["annotator"], "")
    for name, column in texts.items():
        table = table.set_column(table.column_names.index(name), name, column)
    return table.filter(pc.is_valid(table["recorded"]))


def match_labels(
    old: pa.Table, new: pa.Table, old_audit: Mapping[str, Any], new_audit: Mapping[str, Any]
) -> MatchedLabels:
    """Match the lines of two audits, or say why that cannot be done.

    Parameters
    ----------
    old, new : as of `read_lines`
    old_audit, new_audit : what their audit.json hold
    """
    timed = [audit["table"]["columns"].get("time") is not None for audit in (old_audit, new_audit)]
    if timed[0] != timed[1]:
        which = ("old", "new")[timed.index(False)]
        return _unmatched(
            old, new, f"The {which} audit has no column of times and the other has one, so labels cannot be matched."
        )
    people = [audit["table"].get("annotators") or [] for audit in (old_audit, new_audit)]
    one_each = max(map(len, people)) <= 1
    keys = ["sequence", "time"] if one_each else ["sequence", "time", "annotator"]
    right_names = [f"{name}_now" if name not in keys else name for name in COLUMNS]
    both = old.join(new.rename_columns(right_names), keys, join_type="inner")
    if not len(both):
        return _unmatched(old, new, _why_none(people, timed[0]))
    if len(both) > min(len(old), len(new)):
        return _unmatched(old, new, "Several labels share a sequence, time and annotator, so they cannot be matched.")
    by = f"sequence{', ' if not one_each else ' and '}{'time' if timed[0] else 'row number'}"
    by += "" if one_each else " and annotator"
    only_old, only_new = (side.join(both.select(keys), keys, join_type="left anti") for side in (old, new))
    return MatchedLabels(both, only_old, only_new, by, tuple(_cautions(both, (old, new), people, timed[0])))


def label_changes(matched: MatchedLabels) -> pa.Table:
    """One line for each label that is an issue in either audit; `change` is new, resolved or persisting.

    Empty where labels could not be matched.
    """
    both, parts = matched.both, []
    if not matched.by:
        return _columns(both, "new")
    then, now = both["is_issue"], both["is_issue_now"]
    choices = {"new": pc.and_not(now, then), "resolved": pc.and_not(then, now), "persisting": pc.and_(then, now)}
    for kind, chosen in choices.items():
        parts.append(_columns(both.filter(chosen), kind))
    renamed = matched.new.rename_columns([_now(name) for name in COLUMNS])
    parts.append(_columns(matched.old.filter(matched.old["is_issue"]), "resolved"))
    parts.append(_columns(renamed.filter(renamed["is_issue_now"]), "new"))
    return pa.concat_tables(parts)


def _now(name: str) -> str:
    return name if name in ("sequence", "time", "annotator") else f"{name}_now"


def _columns(table: pa.Table, kind: str) -> pa.Table:
    """The columns of `label_changes`, null where an audit lacks the label."""
    types = {"row": pa.int64(), "recorded": pa.large_string(), "probability_right": pa.float64()}
    columns = {"change": pa.array([kind] * len(table), pa.string())}
    columns |= {name: table[name] for name in ("sequence", "time", "annotator")}
    for name in ("row", "row_now", "recorded", "recorded_now", "probability_right", "probability_right_now"):
        there = name in table.column_names
        kind_of = types[name.removesuffix("_now")]
        columns[name] = table[name].cast(kind_of) if there else pa.nulls(len(table), kind_of)
    return pa.table(columns)


def _unmatched(old: pa.Table, new: pa.Table, why: str) -> MatchedLabels:
    return MatchedLabels(old.slice(0, 0), old, new, "", (why,))


def _why_none(people: list[list[str]], timed: bool) -> str:
    if people[0] and people[1] and not set(people[0]) & set(people[1]):
        return "No annotator is in both audits, so labels cannot be matched."
    if bool(people[0]) != bool(people[1]):
        which = "new" if people[0] else "old"
        return f"The {which} audit names no annotators and the other does, so labels cannot be matched."
    key = "sequence and time" if timed else "sequence and row number"
    return f"No label of one audit has the {key} of a label of the other, so labels cannot be matched."


def _cautions(both: pa.Table, sides: tuple[pa.Table, pa.Table], people: list[list[str]], timed: bool) -> list[str]:
    said = []
    if not timed:
        said.append("There is no column of times: labels are matched by row number, which is right if no row moved.")
    if 2 * len(both) < min(map(len, sides)):
        said.append(
            f"Only {len(both):,} of {min(map(len, sides)):,} labels could be matched: read the counts with care."
        )
    for which, mine, other in (("old", people[0], people[1]), ("new", people[1], people[0])):
        alone = sorted(set(mine) - set(other)) if max(map(len, people)) > 1 else []
        if alone:
            said.append(f"{len(alone)} annotator{'s are' if len(alone) > 1 else ' is'} in the {which} audit alone.")
    return said
