"""Contested labels in audit.json: shares of all labels, by class and over the clock."""

import numpy as np
import pyarrow as pa
import pytest

from labeltide.auditing.findings import Totals


def describe(labels, another):
    """The part `contested` for labels of shape (n, steps, annotators), all with the same chances of another label."""
    n, steps, people = labels.shape
    codes = labels.reshape(-1)
    clock = np.tile(np.repeat(np.linspace(0, 1, steps), people), n)
    contested = np.where(codes >= 0, 1 - np.asarray(another)[codes], np.nan)
    names = pa.array(["a", "b"])
    label = pa.DictionaryArray.from_arrays(pa.array(codes, mask=codes < 0), names)
    nobody = pa.DictionaryArray.from_arrays(pa.nulls(len(codes), pa.int8()), names)
    part = pa.table(
        {
            "recorded": label,
            "corrected": label,
            "suggested": label,
            "kind": nobody,
            "step": pa.array(np.arange(len(codes))),
            "sequence": pa.array(["s"] * len(codes)).dictionary_encode(),
            "annotator": nobody,
            "clock": clock,
            "probability_right": pa.array(np.where(codes >= 0, 1.0, np.nan), from_pandas=True),
            "probability_contested": pa.array(contested, from_pandas=True),
        }
    )
    totals = Totals(
        edges=np.linspace(0, 1, 13),
        codes=np.array([0, 1, -1], dtype=np.int8),
        by_class=np.zeros((3, 2)),
        by_sequence=np.zeros((2, 1), dtype=np.int64),
        by_annotator=np.zeros(0, dtype=np.int64),
        doubtful=np.zeros(3, dtype=bool),
        several=people > 1,
    )
    for some in (part.slice(0, 100), part.slice(100)):  # in whatever parts
        totals.add(totals.count(some, np.zeros(len(some), dtype=bool)), 0)
    return totals.describe_contested(("a", "b"))


def test_shares_are_means_over_labels_and_classes():
    labels = np.random.default_rng(0).integers(0, 2, (40, 30, 1)).astype(np.int8)
    labels[:10, :, 0] = -1
    found = describe(labels, [0.7, 0.3])
    first, second = found["by_class"]
    assert not found["from_several"]
    assert first["contested"] == pytest.approx(0.3)
    assert second["contested"] == pytest.approx(0.7)
    assert first["labels"] + second["labels"] == sum(part["labels"] for part in found["over_clock"]) == 900
    mean = (first["labels"] * 0.3 + second["labels"] * 0.7) / 900
    assert found["contested"] == pytest.approx(mean)


def test_a_class_without_labels_has_no_share():
    found = describe(np.zeros((2, 30, 2), dtype=np.int8), [0.5, 0.5])
    assert found["from_several"]
    assert found["by_class"][1] == {"recorded": "b", "labels": 0, "contested": None}


def test_without_any_label_nothing_is_said():
    found = describe(np.full((2, 30, 1), -1, dtype=np.int8), [0.5, 0.5])
    assert found["contested"] is None
    assert found["over_clock"] == []
