"""Which labels stand for a missing one is decided once for a table, stated, and can be asked for."""

import numpy as np
import pyarrow as pa
import pytest

import labeltide as lt
from labeltide_bench.tables import read_audit_table


def table(labels, **columns):
    generator = np.random.default_rng(0)
    rows = {"person": np.repeat(range(6), 40), "time": np.tile(range(40), 6), "v": generator.normal(size=240)}
    return pa.table({**rows, "label": labels, **columns})


def labels_of(values, shares, seed=0):
    return np.random.default_rng(seed).choice(np.array(values), 240, p=shares).tolist()


def overview(read, name="label"):
    return next(each for each in read.overview if each.name == name)


def test_minus_one_among_signed_labels_is_a_class_and_that_is_stated():
    labels = labels_of([-1, 0, 1], [0.39, 0.3, 0.31])
    read = read_audit_table(table(labels))
    assert read.class_names == ("-1", "0", "1")
    assert (overview(read).missing, overview(read).levels) == (0, 3)
    assert any("Read as a class: -1" in sentence and "--missing" in sentence for sentence in read.messages)
    with pytest.warns(UserWarning, match="Read as a class: -1"):
        data = lt.Sequences.from_table(table(labels), sequence="person", time="time", label="label", features="v")
    assert data.classes == (-1, 0, 1)
    assert (data.labels >= 0).all()


@pytest.mark.parametrize("values", [[-1, 0, 1], [-1, 1, 2], [-1, 0, 1, 2, 3], [-2, -1, 0, 3], [-1.0, 0.0, 1.0]])
@pytest.mark.parametrize("share", [0.02, 0.4])
def test_minus_one_is_never_lost_without_a_word(values, share):
    rest = [(1 - share) / (len(values) - 1)] * (len(values) - 1)
    number = values.index(-1)
    labels = labels_of(values, [*rest[:number], share, *rest[number:]])
    read = read_audit_table(table(labels))
    lost = labels.count(-1) if len(read.class_names) < len(values) else 0
    assert overview(read).missing == lost == int((read.fit_labels < 0).sum())
    assert any("missing labels: -1" in sentence for sentence in read.messages) == bool(lost)
    asked = read_audit_table(table(labels), missing="-1")
    assert overview(asked).missing == labels.count(-1) == int((asked.fit_labels < 0).sum())
    kept = read_audit_table(table(labels), missing="none")
    assert len(kept.class_names) == len(values)
    assert overview(kept).missing == 0


def test_a_rare_minus_one_beside_stages_is_missing_and_that_is_stated():
    labels = labels_of([-1, 0, 1, 2, 3, 4], [0.04, 0.2, 0.16, 0.2, 0.2, 0.2])
    read = read_audit_table(table(labels))
    assert read.class_names == ("0", "1", "2", "3", "4")
    assert any(f"Read as missing labels: -1 ({labels.count(-1)})" in sentence for sentence in read.messages)


@pytest.mark.parametrize("word", ["?", "unknown", "Unscored", " nan ", "Sleep stage ?"])
def test_texts_that_say_nothing_are_missing_labels_as_in_spans(word):
    labels = labels_of(["walk", "rest", word], [0.5, 0.45, 0.05])
    read = read_audit_table(table(labels))
    assert read.class_names == ("rest", "walk")
    assert overview(read).missing == labels.count(word) == int((read.fit_labels < 0).sum())
    assert any("Read as missing labels" in sentence for sentence in read.messages)
    assert len(read_audit_table(table(labels), missing="none").class_names) == 3


def test_a_text_stays_a_class_where_fewer_than_two_would_remain():
    read = read_audit_table(table(labels_of(["known", "unknown"], [0.5, 0.5])))
    assert read.class_names == ("known", "unknown")


def test_labels_that_are_asked_for_are_missing_and_a_name_that_no_label_has_is_reported():
    labels = labels_of(["a", "b", "skip", "bad"], [0.4, 0.4, 0.1, 0.1])
    read = read_audit_table(table(labels), missing=["skip", "bad"])
    assert read.class_names == ("a", "b")
    assert read_audit_table(table(labels), missing="skip, bad").class_names == ("a", "b")
    messages = read_audit_table(table(labels), missing="skipped").messages
    assert any("No label is 'skipped'" in sentence for sentence in messages)


def test_trusted_labels_share_the_decision():
    labels = labels_of(["a", "b", "?"], [0.5, 0.4, 0.1])
    trusted = [label if k % 4 == 0 else None for k, label in enumerate(labels)]
    read = read_audit_table(table(labels, trusted=trusted), trusted="trusted")
    assert int((read.fit_trusted >= 0).sum()) == sum(each in ("a", "b") for each in trusted)


def test_both_unicode_forms_of_a_label_are_one_class_and_that_is_stated():
    labels = labels_of(["bar", "caf\u00e9", "cafe\u0301"], [0.4, 0.4, 0.2])
    read = read_audit_table(table(labels))
    assert read.class_names == ("bar", "caf\u00e9")
    assert any("only in their Unicode form" in sentence for sentence in read.messages)
    data = lt.Sequences.from_table(table(labels), sequence="person", time="time", label="label", features="v")
    assert data.classes == ("bar", "caf\u00e9")
