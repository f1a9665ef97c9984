"""Decisions of reviewers as trusted labels of another audit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from labeltide.auditing.audit_input import decode
from labeltide.auditing.comparing import open_results
from labeltide.auditing.labels_file import read_labels
from labeltide.auditing.reading import AuditSteps
from labeltide.auditing.typed_verdicts import typed_decisions
from labeltide.decisions import DECISIONS, Decision, DecisionStore, Settled, audit_identity, file_digest, settled_labels
from labeltide.tables.wording import quoted, unique_texts

LINES = ["row", "sequence", "time", "annotator", "recorded"]


@dataclass(frozen=True)
class DecidedLabels:
    """The labels that the reviewers of an audit settled.

    Attributes
    ----------
    folder : that of the audit
    lines : pyarrow.Table, one line for each settled label: row, sequence, time and the label that is right
    n_disputed : labels on which reviewers differ
    digest : of the reviewed table, or None where that was no file
    is_timed : whether the reviewed table has a column of times
    n_other : decisions that were made for another audit, which are left out
    """

    folder: Path
    lines: pa.Table
    n_disputed: int
    digest: str | None
    is_timed: bool
    n_other: int = 0


def read_decided(folder: Path) -> DecidedLabels:
    """The settled labels in the folder of an audit; a sentence where there are none."""
    results = open_results(folder)
    lines = read_labels(folder, LINES)
    decisions, n_other = read_decisions(folder, results.audit)
    settled = settled_labels(decisions, lines)
    if not len(settled):
        disputed = f" Reviewers differ on {settled.n_disputed}." if settled.n_disputed else ""
        raise ValueError(f"The decisions in {str(folder)!r} settle no label.{disputed} Go on with the review.")
    chosen = lines.select(["row", "sequence", "time"]).take(pa.array(settled.line))
    chosen = chosen.append_column("label", pa.array(settled.label, pa.string()))
    about = results.audit["table"]
    return DecidedLabels(
        folder, chosen, settled.n_disputed, about.get("digest"), about["columns"].get("time") is not None, n_other
    )


def read_decisions(folder: Path, audit: Any) -> tuple[list[Decision], int]:
    """The standing decisions of an audit, and how many there are of another one, whose rows may be others.

    Verdicts that somebody typed into issues.csv count as those of one more reviewer. A folder without any
    is refused.
    """
    own, n_other = find_decisions(folder, audit)
    if not own and not n_other:
        DecisionStore.open(folder, create=False).close()  # says that there are none
    if n_other and not own:
        raise ValueError(
            f"The decisions in {str(folder)!r} were made for another audit, so it is not known which rows they mean. "
            "Name the folder of the audit that was reviewed."
        )
    return own, n_other


def find_decisions(folder: Path, audit: Any) -> tuple[list[Decision], int]:
    """As `read_decisions`, where there may be none."""
    typed = typed_decisions(folder, audit)
    standing: list[Decision] = []
    if (folder / DECISIONS).is_file():
        with DecisionStore.open(folder, create=False) as store:
            standing = store.standing()
    known = audit_identity(audit)
    own = [decision for decision in standing if decision.audit == known]
    return own + typed, len(standing) - len(own)


def settle(folder: Path, audit: Any, lines: pa.Table) -> tuple[Settled, np.ndarray]:
    """Settled labels, and the lines on which reviewers differ: int64 of shape (disputed,)."""
    decisions, _ = read_decisions(folder, audit)
    settled = settled_labels(decisions, lines)
    reviewers = {decision.reviewer for decision in decisions}
    covered = [settled_labels([d for d in decisions if d.reviewer == name], lines).line for name in sorted(reviewers)]
    everywhere = np.unique(np.concatenate(covered)) if covered else np.array([], np.int64)
    return settled, np.setdiff1d(everywhere, settled.line)


def trust_decided(steps: AuditSteps, decided: DecidedLabels, table: Any) -> AuditSteps:
    """The same steps, at which settled labels are trusted; what was used and what was left out is said.

    Where the table is not the reviewed one, rows are matched by sequence and time.
    """
    places, labels = _match_steps(steps, decided, table)
    codes = np.array([steps.class_names.index(label) if label in steps.class_names else -1 for label in labels])
    trusted = np.full(len(steps.labels), -1, np.int8) if steps.trusted is None else steps.trusted.copy()
    is_free = trusted < 0
    agreed, n_differ = _agreed(places[codes >= 0], codes[codes >= 0])
    used = {place: code for place, code in agreed.items() if is_free[place]}
    trusted[list(used)] = list(used.values())
    left_out = {
        "disputed": decided.n_disputed,
        "of_another_audit": decided.n_other,
        "differ_at_one_step": n_differ,
        "other_class": int((codes < 0).sum()),
        "not_in_the_table": len(decided.lines) - len(labels),
        "trusted_already": len(agreed) - len(used),
    }
    if not used:
        raise ValueError(_nothing_used(decided, left_out))
    found = {"folder": decided.folder.name, "settled": len(decided.lines), "used": len(used), **left_out}
    sentence = _say(found)
    return replace(steps, trusted=trusted, said=(*steps.said, sentence), decisions={**found, "sentence": sentence})


def _match_steps(steps: AuditSteps, decided: DecidedLabels, table: Any) -> tuple[np.ndarray, list[str]]:
    """The step and the label of every settled label that is in the table."""
    rows = steps.rows
    digest = file_digest(Path(table)) if isinstance(table, str | Path) and decided.digest else None
    if digest is not None and digest == decided.digest:
        places = rows.step_of_given(decided.lines["row"].to_numpy())
        kept = decided.lines["label"].filter(pa.array(places >= 0))
        return places[places >= 0], kept.to_pylist()
    if not (decided.is_timed and rows.moments):
        raise ValueError(
            f"The table is not the one that was reviewed in {str(decided.folder)!r}, and without a column of times in "
            "both, rows cannot be matched. Name one with the option time (--time COLUMN), or audit the reviewed table."
        )
    names = tuple(unique_texts(rows.steps.ids))
    sequence = decode(rows.steps.sequence[rows.steps.step_of_row], names)
    there = pa.table({"sequence": sequence, "time": rows.times, "step": rows.steps.step_of_row})
    keys = ["sequence", "time"]
    there = there.group_by(keys).aggregate([("step", "min")])
    matched = _plain(decided.lines).join(_plain(there), keys, join_type="inner")
    if not len(matched):
        raise ValueError(
            f"No settled label of {str(decided.folder)!r} has the sequence and time of a row of the table, so "
            "decisions cannot be matched. Are these the sequences and times that were reviewed?"
        )
    return matched["step_min"].to_numpy(), matched["label"].to_pylist()


def _plain(table: pa.Table) -> pa.Table:
    """The keys as texts of one type."""
    for name in ("sequence", "time"):
        table = table.set_column(table.column_names.index(name), name, table[name].cast(pa.large_string()))
    return table


def _agreed(places: np.ndarray, codes: np.ndarray) -> tuple[dict[int, int], int]:
    """The one label of each step, and at how many steps settled labels of several annotators differ."""
    found: dict[int, set[int]] = {}
    for place, code in zip(places.tolist(), codes.tolist(), strict=True):
        found.setdefault(place, set()).add(code)
    return {place: min(each) for place, each in found.items() if len(each) == 1}, sum(
        len(each) > 1 for each in found.values()
    )


def _say(found: dict[str, Any]) -> str:
    words = {
        "disputed": "on which reviewers differ",
        "of_another_audit": "decisions made for another audit",
        "differ_at_one_step": "steps whose annotators' labels were settled differently",
        "other_class": "of a class that the table does not hold",
        "not_in_the_table": "that no row of the table matches",
        "trusted_already": "that the trusted column has already",
    }
    left = [f"{found[name]} {text}" for name, text in words.items() if found[name]]
    rest = f" Left out: {', '.join(left)}." if left else ""
    labels = f"{found['used']} label{'s' if found['used'] != 1 else ''}"
    return f"I trust {labels} that reviewers settled in {quoted([found['folder']])}.{rest}"


def _nothing_used(decided: DecidedLabels, left_out: dict[str, int]) -> str:
    told = _say({"folder": decided.folder.name, "used": 0, **left_out})
    return f"The decisions must settle a label of the table. {told}"
