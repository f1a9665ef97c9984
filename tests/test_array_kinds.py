"""Arrays of every kind give the same result as NumPy's, or a sentence that says what to pass."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch

import labeltide as lt
from labeltide import _validation

N, STEPS = 12, 8
DATA = lt.make_sequences(n=N, n_steps=STEPS, n_features=2, n_classes=2, random_state=0)
X, Y = DATA.features, DATA.labels[..., 0].astype(np.int64)
GAPS = np.zeros(Y.shape, dtype=bool)
GAPS[0, :3] = GAPS[5, 2] = True
WITH_GAPS = np.where(GAPS, -1, Y)


def fit(features, labels, **options):
    return lt.IgnoreClassifier(epochs=2, hidden_size=4, random_state=0, device="cpu").fit(features, labels, **options)


@pytest.fixture(scope="module")
def plain():
    return fit(X, Y).predict_proba(X)


@pytest.fixture(scope="module")
def plain_with_gaps():
    return fit(X, WITH_GAPS).predict_proba(X)


def read_only(values):
    values = values.copy()
    values.flags.writeable = False
    return values


LABELLED = pd.MultiIndex.from_product([["a", "b"], range(N // 2)], names=["site", "person"])
KINDS = {
    "lists": (X.tolist(), Y.tolist()),
    "tuples": (tuple(map(tuple, X.tolist())), tuple(map(tuple, Y.tolist()))),
    "read-only": (read_only(X), read_only(Y)),
    "float64 and int8": (X.astype(np.float64), Y.astype(np.int8)),
    "unsigned": (X, Y.astype(np.uint8)),
    "fortran order": (np.asfortranarray(X), np.asfortranarray(Y)),
    "big-endian": (X.astype(">f4"), Y.astype(">i4")),
    "objects": (X.astype(object), Y.astype(object)),
    "booleans": (X, Y.astype(bool)),
    "strided": (np.repeat(X, 2, axis=0)[::2], np.repeat(Y, 2, axis=0)[::2]),
    "tensors": (torch.tensor(X), torch.tensor(Y)),
    "tensors with gradients": (torch.tensor(X, requires_grad=True), torch.tensor(Y)),
    "masked without a mask": (np.ma.array(X), np.ma.array(Y)),
    "pandas": (X, pd.DataFrame(Y)),
    "pandas with a MultiIndex": (X, pd.DataFrame(Y, index=LABELLED)),
    "pandas of nullable integers": (X, pd.DataFrame(Y).astype("Int64")),
    "polars": (X, pl.DataFrame(Y)),
    "one annotator": (X, Y[..., None]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_array_gives_the_same_fit(kind, plain):
    features, labels = KINDS[kind]
    clf = fit(features, labels)
    assert clf.classes_.tolist() == [0, 1]
    np.testing.assert_array_equal(clf.predict_proba(features), plain)
    assert clf.score(features, labels) == pytest.approx(fit(X, Y).score(X, Y))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_tensors_of_every_precision_are_read(dtype):
    features = torch.tensor(X).to(dtype)
    expected = fit(features.float().numpy(), Y).predict_proba(features.float().numpy())
    np.testing.assert_array_equal(fit(features, torch.tensor(Y).to(dtype)).predict_proba(features), expected)


MISSING = {
    "-1": WITH_GAPS,
    "-1 as floats": WITH_GAPS.astype(float),
    "NaN": np.where(GAPS, np.nan, Y),
    "-1.0 and NaN": np.where(GAPS & (np.arange(STEPS) > 1), np.nan, WITH_GAPS),
    "masked integers": np.ma.array(np.where(GAPS, 1, Y), mask=GAPS),
    "masked unsigned integers": np.ma.array(np.where(GAPS, 1, Y).astype(np.uint8), mask=GAPS),
    "masked floats": np.ma.array(np.where(GAPS, 7.0, Y), mask=GAPS),
    "None": np.where(GAPS, None, Y.astype(object)),
    "-1.0 among objects": np.where(GAPS, -1.0, Y.astype(object)),
    "pandas.NA": pd.DataFrame(Y).astype("Int64").mask(pd.DataFrame(GAPS)),
    "polars null": pl.DataFrame(np.where(GAPS, None, Y.astype(object)).tolist(), orient="row"),
    "tensor": torch.tensor(WITH_GAPS),
}


@pytest.mark.parametrize("kind", MISSING)
def test_missing_labels_of_every_kind_are_missing(kind, plain_with_gaps):
    clf = fit(X, MISSING[kind])
    assert [int(value) for value in clf.classes_] == [0, 1]
    np.testing.assert_array_equal(clf.predict_proba(X), plain_with_gaps)
    assert clf.audit(X, MISSING[kind]).quality.shape[:2] == Y.shape


def test_minus_one_is_a_class_among_fractions():
    assert fit(X, np.where(Y == 0, -1.0, 0.5)).classes_.tolist() == [-1.0, 0.5]


def test_masked_texts_are_missing():
    words = np.ma.array(np.array(["rest", "walk"])[Y], mask=GAPS)
    data = lt.Sequences.from_arrays(X, words)
    assert data.classes == ("rest", "walk")
    np.testing.assert_array_equal(data.labels[..., 0] < 0, GAPS)


def test_masked_features_are_refused_with_their_place():
    with pytest.raises(ValueError, match=r"must be finite .* sequence 2, step 3, feature 1"):
        fit(np.ma.masked_where(_at(2, 3, 1), X), Y)


def _at(*index):
    chosen = np.zeros(X.shape, dtype=bool)
    chosen[index] = True
    return chosen


def test_both_unicode_forms_of_a_name_are_one_class():
    composed, decomposed = "caf\u00e9", "cafe\u0301"
    names = np.where(Y == 0, "bar", np.where(np.arange(STEPS) % 2 == 0, composed, decomposed))
    assert fit(X, names).classes_.tolist() == ["bar", composed]
    assert lt.Sequences.from_arrays(X, names.tolist(), classes=["bar", decomposed]).classes == ("bar", composed)
    assert fit(X, names).score(X, np.where(Y == 0, "bar", decomposed)) == fit(X, names).score(X, names)


@pytest.mark.parametrize("dtype", [int, float, bool, np.uint8])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_one_hot_labels_are_refused_with_what_to_pass(n_classes, dtype):
    one_hot = np.eye(n_classes, dtype=dtype)[Y]
    with pytest.raises(ValueError, match=r"looks one-hot encoded.*y\.argmax\(-1\)"):
        fit(X, one_hot)
    with pytest.raises(ValueError, match="looks one-hot encoded"):
        lt.consensus(one_hot)
    one_hot[:, 5:] = 0  # padding
    with pytest.raises(ValueError, match="looks one-hot encoded"):
        fit(X, one_hot, lengths=np.full(N, 5))


@pytest.mark.parametrize("gap", [0.0, np.nan, -1.0, None])
def test_one_hot_labels_with_empty_steps_are_refused_with_what_to_pass(gap):
    one_hot = np.eye(3)[Y].astype(object if gap is None else float)
    one_hot[0, 1], one_hot[1, 2] = gap, gap
    with pytest.raises(ValueError, match=r"looks one-hot encoded.*-1 where a step has none"):
        fit(X, one_hot)


def test_probabilities_of_classes_are_refused_with_what_to_pass():
    with pytest.raises(ValueError, match=r"scores of classes.*y\.argmax\(-1\)"):
        fit(X, 0.8 * np.eye(2)[Y] + 0.1)


@pytest.mark.parametrize(
    "scores",
    [
        (0.8 * np.eye(3)[Y] + 0.2 / 3).round(2),  # rounded, they sum to 1.01
        0.9 * np.eye(2, dtype=np.float32)[Y] + 0.05,
        5 * np.eye(3, dtype=int)[Y] + 1,  # votes
        100.0 * np.eye(3)[Y],
    ],
    ids=["rounded", "single precision", "votes", "percent"],
)
def test_scores_of_classes_are_never_read_as_annotators(scores):
    with pytest.raises(ValueError, match=r"y looks .*y\.argmax\(-1\)"):
        fit(X, scores)


def test_annotators_who_each_recorded_one_class_are_not_taken_for_scores():
    labels = np.stack([np.full_like(Y, 1), np.full_like(Y, 2)], -1)
    assert fit(X, labels).classes_.tolist() == [1, 2]


@pytest.mark.parametrize("names", [(10.5, 11.0), (100, 101), (0.5, 1.0)])
def test_annotators_whose_classes_are_numbers_are_not_taken_for_scores(names):
    labels = np.array(names)[np.stack([Y, np.roll(Y, 1, axis=1)], -1)]
    assert fit(X, labels).classes_.tolist() == list(names)


def test_annotators_who_never_agree_on_a_rare_event_are_not_taken_for_one_hot_labels():
    first = np.zeros_like(Y)
    first[:, 3] = 1
    assert fit(X, np.stack([first, np.roll(first, 1, axis=1)], -1)).classes_.tolist() == [0, 1]


def test_annotators_are_not_taken_for_one_hot_labels():
    other = Y.copy()
    other[:, 0] = 1 - other[:, 0]
    assert fit(X, np.stack([Y, other], -1)).classes_.tolist() == [0, 1]


@pytest.mark.parametrize(
    "table", [pd.DataFrame(X.reshape(-1, 2)), pl.DataFrame(X.reshape(-1, 2)), X.reshape(-1, 2)], ids=type
)
def test_a_table_of_features_is_refused_with_the_way_to_read_it(table):
    with pytest.raises(ValueError, match=r"shape \(n, steps, features\).*Sequences\.from_table"):
        fit(table, Y)


LOG_PROBS = torch.randn(N, STEPS, 2, generator=torch.Generator().manual_seed(0)).log_softmax(-1)
RECORDED = torch.tensor(Y)
Q = torch.tensor([[0.8, 0.2], [0.3, 0.7]])


@pytest.mark.parametrize("loss", [lt.forward_loss, lt.backward_loss])
@pytest.mark.parametrize(
    ("log_probs", "labels", "matrices", "message"),
    [
        (LOG_PROBS.numpy(), RECORDED, Q, r"log_probs must be a tensor. Got ndarray"),
        (LOG_PROBS, Y, Q, r"labels must be a tensor. Got ndarray"),
        (LOG_PROBS, RECORDED, Q.numpy(), r"matrices must be a tensor. Got ndarray"),
        (LOG_PROBS, RECORDED[:, :3], Q, r"labels must have shape \(12, 8\).*Got shape \(12, 3\)"),
        (LOG_PROBS, RECORDED[:5], Q, r"labels must have shape \(12, 8\)"),
        (LOG_PROBS, RECORDED + 5, Q, r"labels must be whole numbers from 0 to 1.*The largest is 6"),
        (LOG_PROBS, RECORDED, torch.eye(2, dtype=torch.long), r"matrices must hold floating-point numbers"),
        (LOG_PROBS, RECORDED, torch.eye(3), r"matrices must have shape \(2, 2\)"),
    ],
)
def test_losses_refuse_wrong_input_in_a_sentence(loss, log_probs, labels, matrices, message):
    with pytest.raises(ValueError, match=message):
        loss(log_probs, labels, matrices)


def test_backward_loss_refuses_a_singular_noise_matrix():
    with pytest.raises(ValueError, match="Every Q must be invertible"):
        lt.backward_loss(LOG_PROBS, RECORDED, torch.full((2, 2), 0.5))


@pytest.mark.parametrize("clock", ["noon", [1j], [[0.1], [0.2, 0.3]]])
def test_noise_at_refuses_a_clock_that_is_not_numbers(clock):
    with pytest.raises(ValueError, match="clock must be numbers"):
        fit(X, Y).noise_at(clock)


def test_noise_at_takes_tensors():
    clf = fit(X, Y)
    np.testing.assert_array_equal(clf.noise_at(torch.tensor([0.5], requires_grad=True)), clf.noise_at([0.5]))


def test_a_network_of_other_inputs_is_refused_in_a_sentence():
    model = lt.wrap(lambda n_features, n_classes: torch.nn.Linear(n_features + 1, n_classes))
    with pytest.raises(ValueError, match=r"The model cannot be run on features of shape \(1, 8, 2\)"):
        lt.IgnoreClassifier(model=model, epochs=2, device="cpu").fit(X, Y)


@pytest.mark.parametrize("kind", ["M8[D]", "m8[s]"])
def test_a_missing_time_is_no_class(kind):
    labels = np.array([[1, 2, 1], [2, 1, 1]]).astype(kind)
    labels[0, 2] = "NaT"
    assert _validation.missing_labels(labels).tolist() == [[False, False, True], [False, False, False]]
