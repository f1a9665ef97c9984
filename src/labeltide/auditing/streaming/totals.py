"""Sums over all labels of a large table, part by part, for the page and audit.json."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from labeltide.auditing.contested_findings import FEWEST, PARTS
from labeltide.auditing.findings import SEQUENCES
from labeltide.auditing.streaming.flags import QUALITY
from labeltide.inference.audit import LabelAudit
from labeltide.inference.averaged_quality import averaged_share


class PartTotals(NamedTuple):
    """Sums over the labels of a part, of the shapes of `Totals`; sequences are those of the part."""

    by_class: list[np.ndarray]
    by_clock: list[np.ndarray]
    by_sequence: list[np.ndarray]
    by_annotator: np.ndarray
    corrected: int
    false_alarms: float
    wrong: float
    lines: int


@dataclass
class Totals:
    """Sums over all labels.

    Attributes
    ----------
    edges : borders of the parts of the first clock
    codes : of each class of the table among those that are judged, -1 for others: (classes + 1,)
    by_class : labels, issues and expected contested labels of each class: (3, classes)
    by_clock : labels and expected contested labels in each part of the clock: (2, parts)
    by_sequence : labels and issues of each sequence: (2, sequences)
    by_annotator : labels of each annotator
    wrong : the expected number of wrong labels
    position : lines before each chunk
    """

    edges: np.ndarray
    codes: np.ndarray
    by_class: np.ndarray
    by_sequence: np.ndarray
    by_annotator: np.ndarray
    by_clock: np.ndarray = field(default_factory=lambda: np.zeros((2, PARTS)))
    corrected: int = 0
    false_alarms: float = 0.0
    wrong: float = 0.0
    several: bool = False
    positions: list[int] = field(default_factory=lambda: [0])

    def count(self, part: pa.Table, flagged: np.ndarray) -> PartTotals:
        """Count the lines of a part; several threads may do so at a time."""
        codes = self.codes[_codes(part, "recorded")]
        there: np.ndarray | slice = codes >= 0
        if codes.min(initial=0) >= 0:
            there = slice(None)  # without copies
        quality, contested = (
            part[name].to_numpy()[there].astype(np.float64) for name in (QUALITY, "probability_contested")
        )
        classes, flags = codes[there], flagged[there]
        at = np.searchsorted(self.edges, part["clock"].to_numpy()[there], side="right") - 1
        at = np.clip(at, 0, PARTS - 1)
        sequence, people = _codes(part, "sequence")[there], _codes(part, "annotator")[there]
        n_classes, n_sequences = self.by_class.shape[1], len(_whole(part, "sequence").dictionary)
        return PartTotals(
            by_class=[np.bincount(classes, weights, n_classes) for weights in (None, flags, contested)],
            by_clock=[np.bincount(at, weights, PARTS) for weights in (None, contested)],
            by_sequence=[np.bincount(chosen, minlength=n_sequences) for chosen in (sequence, sequence[flags])],
            by_annotator=np.bincount(people[people >= 0], minlength=len(self.by_annotator)),
            corrected=int((self.codes[_codes(part, "corrected")][there] != classes).sum()),
            false_alarms=float(quality[flags].sum()),
            wrong=float((1 - quality).sum()),
            lines=len(part),
        )

    def add(self, part: PartTotals, first_sequence: int) -> None:
        """Add the next part; sums of fractions depend on the order, which is that of the chunks."""
        self.by_class += part.by_class
        self.by_clock += part.by_clock
        self.by_sequence[:, first_sequence : first_sequence + len(part.by_sequence[0])] += part.by_sequence
        self.by_annotator += part.by_annotator
        self.corrected += part.corrected
        self.false_alarms += part.false_alarms
        self.wrong += part.wrong
        self.positions.append(self.positions[-1] + part.lines)

    @property
    def share_wrong(self) -> float:
        """The expected share of wrong labels."""
        labels = float(self.by_class[0].sum())
        return self.wrong / labels if labels else float("nan")

    def describe_issues(self, names: pa.Array, classes: tuple[str, ...], judged: LabelAudit) -> dict[str, Any]:
        """The part `issues` of audit.json."""
        labels, issues = self.by_sequence
        worst = self.worst_sequences(SEQUENCES)
        count = int(self.by_class[1].sum())
        return {
            "count": count,
            "fdr": judged.fdr,
            "spend_fdr": judged.spend_fdr,
            "expected_false_alarms": averaged_share(judged.false_alarms, self.false_alarms / count) if count else 0.0,
            "corrected": self.corrected,
            "by_class": [
                {"recorded": name, "labels": int(self.by_class[0, code]), "issues": int(self.by_class[1, code])}
                for code, name in enumerate(classes)
            ],
            "by_sequence": [
                {"sequence": names[int(place)].as_py(), "labels": int(labels[place]), "issues": int(issues[place])}
                for place in worst
            ],
        }

    def worst_sequences(self, most: int) -> list[int]:
        """The sequences with the most issues."""
        issues = self.by_sequence[1]
        return [int(place) for place in np.argsort(-issues, kind="stable")[:most] if issues[place]]

    def describe_contested(self, classes: tuple[str, ...]) -> dict[str, Any]:
        """The part `contested` of audit.json."""
        labels, _, contested = self.by_class
        middles = (self.edges[1:] + self.edges[:-1]) / 2
        return {
            "from_several": self.several,
            "contested": _share(contested.sum(), labels.sum()),
            "by_class": [
                {"recorded": name, "labels": int(labels[code]), "contested": _share(contested[code], labels[code])}
                for code, name in enumerate(classes)
            ],
            "over_clock": [
                {"clock": float(middle), "labels": int(count), "contested": _share(differ, count)}
                for middle, (count, differ) in zip(middles, self.by_clock.T, strict=True)
                if count >= FEWEST
            ],
        }


def _codes(part: pa.Table, name: str) -> np.ndarray:
    """Codes of a dictionary-encoded column, -1 for null."""
    return _whole(part, name).indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)


def _whole(part: pa.Table, name: str) -> pa.DictionaryArray:
    return part[name].chunk(0) if part[name].num_chunks == 1 else part[name].combine_chunks()


def _share(amount: float, labels: float) -> float | None:
    return float(amount / labels) if labels else None
