"""What reviewers said of the labels of the probability sample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from labeltide.decisions import Decision, DecisionStore, Item, Settled, settled_labels
from labeltide.inference.review_sample import ReviewSample
from labeltide.reviewing.lines import Lines
from labeltide.reviewing.queue import kept_sample

UNTOLD = -1


@dataclass(frozen=True)
class Outcomes:
    """The reviewed part of the sample: its first items, up to the first that nobody has looked at.

    Items stand in random order, so that the first of them are a probability sample too. Later answers wait until those
    before them are there: a reviewer who picks items would make the sample another one.

    Attributes
    ----------
    sample : the reviewed items; None where there are none
    truth : int array of shape (items,), the class that is right; -1 where reviewers skipped or differ
    n_drawn : all items of the sample
    n_waiting : answers after the first item that nobody has looked at
    settled : labels settled by decisions on suspects
    """

    sample: ReviewSample | None
    truth: np.ndarray
    n_drawn: int
    n_waiting: int
    settled: np.ndarray

    @property
    def untold(self) -> np.ndarray:
        return self.truth == UNTOLD


def sample_outcomes(store: DecisionStore, items: Sequence[Item], lines: Lines) -> Outcomes:
    """Join the sample with the standing decisions."""
    standing = store.standing()
    table = line_table(lines)
    truth = _settled_codes(settled_labels(standing, table), lines)  # -2: nothing said
    kinds = {item.item_id: item.kind for item in items}
    on_suspects = [decision for decision in standing if kinds.get(decision.item_id) != "sample"]
    settled = _settled_codes(settled_labels(on_suspects, table), lines) >= 0
    sample = kept_sample(store, items, lines)
    if sample is None:
        return Outcomes(None, np.zeros(0, np.int64), 0, 0, settled)
    ids = _sample_ids(items)
    seen = np.array([name in _looked_at(standing) for name in ids]) | (truth[sample.items] >= 0)
    reviewed = len(seen) if seen.all() else int(np.argmin(seen))
    said = np.maximum(truth[sample.items[:reviewed]], UNTOLD)
    first = sample.first(reviewed) if reviewed else None
    return Outcomes(first, said, len(sample), int(seen[reviewed:].sum()), settled)


def line_table(lines: Lines) -> pa.Table:
    """The columns of labels.parquet by which decisions find their labels."""

    def texts(codes: np.ndarray, names: list[str]) -> pa.Array:
        return pa.DictionaryArray.from_arrays(
            pa.array(codes, pa.int32(), mask=codes < 0), pa.array(names, pa.string())
        ).cast(pa.string())

    return pa.table(
        {
            "row": lines.row,
            "sequence": texts(lines.sequence, lines.sequence_names),
            "annotator": texts(lines.annotator, lines.annotator_names),
            "recorded": texts(lines.recorded, lines.classes),
        }
    )


def _settled_codes(settled: Settled, lines: Lines) -> np.ndarray:
    """The class that is right for each line, -2 where none is settled."""
    codes = {name: code for code, name in enumerate(lines.classes)}
    truth = np.full(len(lines), -2, np.int64)
    truth[settled.line] = [codes.get(label, UNTOLD) for label in settled.label]
    return truth


def _sample_ids(items: Sequence[Item]) -> list[str]:
    sample = [item for item in items if item.kind == "sample" and item.position is not None]
    return [item.item_id for item in sorted(sample, key=lambda item: (item.draw, item.position))]


def _looked_at(standing: Sequence[Decision]) -> set[str]:
    return {decision.item_id for decision in standing}
