"""Contested labels in audit.json: shares of all labels, by class and over the clock."""

import numpy as np
import pytest

from labeltide.auditing.findings import describe_contested
from labeltide.inference.audit import LabelAudit


def audit(labels, another):
    mask = np.ones(labels.shape[:2], dtype=bool)
    clock = np.tile(np.linspace(0, 1, labels.shape[1]), (len(labels), 1))
    rates = np.full((*mask.shape, 2), 0.1)
    return LabelAudit(
        np.array(["a", "b"]), labels, clock, mask, another, another, rates, has_annotators=True, another=another
    )


def test_shares_are_means_over_labels_and_classes():
    labels = np.random.default_rng(0).integers(0, 2, (40, 30, 1)).astype(np.int8)
    labels[:10, :, 0] = -1
    another = np.broadcast_to([0.7, 0.3], (40, 30, 2))
    found = describe_contested(audit(labels, another))
    first, second = found["by_class"]
    assert not found["from_several"]
    assert first["contested"] == pytest.approx(0.3)
    assert second["contested"] == pytest.approx(0.7)
    assert first["labels"] + second["labels"] == sum(part["labels"] for part in found["over_clock"]) == 900
    mean = (first["labels"] * 0.3 + second["labels"] * 0.7) / 900
    assert found["contested"] == pytest.approx(mean)


def test_a_class_without_labels_has_no_share():
    found = describe_contested(audit(np.zeros((2, 30, 2), dtype=np.int8), np.full((2, 30, 2), 0.5)))
    assert found["from_several"]
    assert found["by_class"][1] == {"recorded": "b", "labels": 0, "contested": None}


def test_without_any_label_nothing_is_said():
    found = describe_contested(audit(np.full((2, 30, 1), -1, dtype=np.int8), np.full((2, 30, 2), 0.5)))
    assert found["contested"] is None
    assert found["over_clock"] == []
