"""Late and early labels of a table: found before windows are cut, moved to the signals, and described."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from labeltide.auditing.reading import AuditInput
from labeltide.inference.conclusion import Diagnostic
from labeltide.inference.shifts import RECORDING_LEVEL, Shifts, search_shifts

MAX_STEPS = 400_000  # by hand: of the sequences that are searched; the others get the lag of these
MAX_CURVE = 121  # points of the curve that the page draws
MAX_LISTED = 50  # recordings with a shift of their own in audit.json


class TableShifts(NamedTuple):
    """The shifts that an audit assumes, and what audit.json says of them."""

    common: np.ndarray  # int64 (annotators,), of sequences that are not named below
    own: dict[str, np.ndarray]  # of sequences, (annotators,)
    described: dict[str, Any]

    def apply(self, table: AuditInput) -> AuditInput:
        """The table with its labels moved; the same where none is shifted."""
        if not self.own and not self.common.any():
            return table
        return table.move_labels(np.stack([self.own.get(name, self.common) for name in table.sequence_names]))

    def check(self) -> tuple[Diagnostic, ...]:
        """A warning where labels are late or early, but by no common number of steps."""
        if not self.described["varies"]:
            return ()
        sentence = f"{self.described['sentence']} Labels were left where they are."
        return (Diagnostic("delay", True, sentence, "Check how changes of class were recorded."),)


def find_table_shifts(table: AuditInput) -> TableShifts:
    """Search the sequences of a table for labels that are late or early."""
    features, labels = table.from_steps(table.features), table.from_steps(table.labels)
    bounds = np.searchsorted(table.sequence_of_step, np.arange(1, len(table.sequence_names)))
    rows, codes = np.split(features, bounds), np.split(labels, bounds)
    searched = np.random.default_rng(0).permutation(len(rows))
    searched = np.sort(searched[: max(1, int((np.cumsum([len(rows[i]) for i in searched]) <= MAX_STEPS).sum()))])
    found = search_shifts([rows[i] for i in searched], [codes[i] for i in searched], np.arange(len(searched)))
    shift = np.stack([each.assumed for each in found.annotators or (found,)], axis=1)  # (searched, annotators)
    common = np.median(shift, axis=0).astype(np.int64)
    names = [table.sequence_names[i] for i in searched]
    described = _describe(found, names)
    if found.annotators:
        people = table.annotator_names or ()
        described["annotators"] = {
            name: _describe(each, names) for name, each in zip(people, found.annotators, strict=True)
        }
    own = {name: steps for name, steps in zip(names, shift, strict=True) if (steps != common).any()}
    return TableShifts(common, own, described)


def _describe(found: Shifts, names: list[str]) -> dict[str, Any]:
    own = np.flatnonzero(found.own_p_value < RECORDING_LEVEL)
    own = own[np.argsort(found.own_p_value[own], kind="stable")][:MAX_LISTED]
    near = np.abs(found.shifts - (found.lag or 0)) <= MAX_CURVE // 2
    return {
        "lag": found.lag,
        "interval": found.interval,
        "p_value": found.p_value,
        "spread": found.spread,
        "reason": found.reason,
        "is_shifted": found.is_shifted,
        "varies": found.varies,
        "assumed": int(np.median(found.assumed)),
        "sentence": str(found),
        "recordings": [
            {"sequence": names[i], "shift": int(found.own_shift[i]), "p_value": float(found.own_p_value[i])}
            for i in own
        ],
        "curve": {"shift": found.shifts[near].tolist(), "fit": found.fit[near].round(6).tolist()},
    }
