"""Training rows are judged by the network that did not see them, also after a file has travelled."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest
import safetensors.torch
import torch

import labeltide as lt
from labeltide.chain.passes import Members, expect
from labeltide.estimators.cross_fit import TrainingRows, digest_rows
from labeltide.estimators.storage import NO_DIGEST, seal

NAMES = np.array(["sit", "walking"])


@pytest.fixture(scope="module")
def study() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    made = lt.make_sequences(24, 12, 2, stay=0.9, variance=0.5, random_state=0)
    return made.features, NAMES[lt.corrupt(made.clean_labels, np.array([[0.8, 0.2], [0.2, 0.8]]))], made.clean_labels


@pytest.fixture(scope="module")
def fitted(study) -> lt.TideClassifier:
    X, y, _ = study
    lengths = np.full(24, 12)
    lengths[:5] = 9
    return lt.TideClassifier(epochs=4, hidden_size=4, random_state=0, device="cpu").fit(X, y, lengths=lengths)


def test_training_rows_are_found_in_any_order_and_with_any_padding(study, fitted):
    X, _, _ = study
    order = np.random.default_rng(0).permutation(24)
    mask = np.ones((24, 12), bool)
    mask[:5, 9:] = False
    folds = fitted.training_rows_.folds
    X = fitted._check_features(X, mask.sum(1))[0]
    np.testing.assert_array_equal(fitted.training_rows_.find_folds(X[order], mask[order]), folds[order])
    longer = np.pad(X, ((0, 0), (0, 3), (0, 0)), constant_values=7.0)
    np.testing.assert_array_equal(fitted.training_rows_.find_folds(longer, np.pad(mask, ((0, 0), (0, 3)))), folds)
    assert (fitted.training_rows_.find_folds(X + 1e-3, mask) == -1).all()


def test_rows_with_the_same_features_are_told_apart_by_their_order():
    X, mask = np.zeros((4, 3, 1), np.float32), np.ones((4, 3), bool)
    rows = TrainingRows(digest_rows(X[:3], mask[:3]), np.array([2, 0, 1]))
    assert rows.find_folds(X, mask).tolist() == [2, 0, 1, 2]


def test_the_evidence_for_training_rows_is_what_fit_used(study, fitted):
    X, y, _ = study
    mask = np.ones((24, 12), bool)
    mask[:5, 9:] = False
    found, out_of_fold = fitted._evidence(fitted._check_features(X, mask.sum(1))[0], mask)
    assert out_of_fold.all()
    used = fitted.training_.data.evidence[0].numpy()
    np.testing.assert_allclose(found[mask], used[mask], atol=1e-5)
    trained = fitted.training_
    members = Members(*(torch.zeros(1, dtype=torch.int64),) * 2, torch.ones(1, 24))
    expected = expect(trained.data, members, trained.parameters, posterior=True).posterior[0].numpy()
    posterior = fitted.audit(X, y, lengths=mask.sum(1)).probabilities
    np.testing.assert_allclose(posterior[mask], expected[mask], atol=1e-4)


def test_other_rows_get_the_average_of_all_fold_networks(study, fitted):
    X = study[0] + 0.5
    real = torch.ones(10, 24, 12, dtype=torch.bool)  # a network for each fold that reads onwards, one from the end
    onwards, backwards = (
        fitted.fold_model_(torch.from_numpy(rows.copy()).expand(10, -1, -1, -1), real).log_softmax(-1)
        for rows in (X, X[:, ::-1])
    )
    both = ((onwards[:5] + backwards[5:].flip(2)) / 2).log_softmax(-1)
    expected = both.softmax(-1).mean(0).detach().numpy()
    np.testing.assert_allclose(np.exp(fitted._evidence(X, np.ones((24, 12), bool))[0]), expected, atol=1e-5)


def test_audits_are_the_same_after_save_and_load(study, fitted, tmp_path):
    X, y, _ = study
    fitted.save(tmp_path / "file")
    loaded = lt.load(tmp_path / "file")
    for rows in (X, X + 0.5):
        first, second = (each.audit(rows, y, may_name=True) for each in (fitted, loaded))
        np.testing.assert_array_equal(first.probabilities, second.probabilities)
        assert first.false_alarms is not None
        np.testing.assert_array_equal(first.false_alarms, second.false_alarms)
        np.testing.assert_array_equal(first.is_issue, second.is_issue)
        np.testing.assert_array_equal(first.reason, second.reason)
    np.testing.assert_array_equal(fitted.corrected_labels(X, y), loaded.corrected_labels(X, y))


def test_stored_rows_and_networks_that_do_not_fit_are_refused(fitted, tmp_path):
    fitted.save(tmp_path / "file")
    raw = (tmp_path / "file").read_bytes()
    about = json.loads(json.loads(raw[8 : 8 + struct.unpack("<Q", raw[:8])[0]])["__metadata__"]["labeltide"])
    about["sha256"] = NO_DIGEST
    tensors = safetensors.torch.load(raw)

    def refused(changed: dict[str, torch.Tensor], match: str) -> None:
        (tmp_path / "altered").write_bytes(seal(safetensors.torch.save(changed, {"labeltide": json.dumps(about)})))
        with pytest.raises(ValueError, match=match):
            lt.load(tmp_path / "altered")

    ours = [name for name in tensors if name.startswith(("judges.", "rows."))]
    assert {"rows.digests", "rows.folds"} < set(ours)
    for name in ours:
        tensor = tensors[name]
        refused({k: v for k, v in tensors.items() if k != name}, "missing or too many")
        for other in (tensor[None], tensor.flatten()[:0], tensor.to(torch.float16)):
            refused({**tensors, name: other}, "must have shape")
        if tensor.is_floating_point():
            refused({**tensors, name: tensor * torch.nan}, "finite")
    for folds in (tensors["rows.folds"] - 1, tensors["rows.folds"] + 1):
        refused({**tensors, "rows.folds": folds}, "networks must be shared out evenly among the folds")
    refused({**tensors, "judges.extra": torch.zeros(5)}, "missing or too many")
    refused({**tensors, "rows.extra": torch.zeros(5)}, "missing or too many")


def test_methods_without_judges_carry_none(study, tmp_path):
    X, y, _ = study
    lt.METHODS["ignore"](epochs=1, hidden_size=2).fit(X, y).save(tmp_path / "file")
    names = safetensors.torch.load((tmp_path / "file").read_bytes())
    assert not [name for name in names if name.startswith(("judges.", "rows."))]


@pytest.mark.parametrize("name", lt.METHODS)
def test_every_method_audits_and_corrects_in_the_users_own_labels(name, study):
    X, y, _ = study
    own = {"noise": np.array([[0.8, 0.2], [0.2, 0.8]])} if name == "known" else {}
    method = lt.METHODS[name](epochs=2, hidden_size=4, random_state=0, device="cpu", **own).fit(X, y)
    found = method.audit(X, y)
    assert found.quality.shape == y.shape
    assert ((found.quality >= 0) & (found.quality <= 1)).all()
    assert found.expected_false_alarms <= 0.1
    corrected = method.corrected_labels(X, y)
    assert corrected.dtype == y.dtype
    np.testing.assert_array_equal(corrected, np.where(found.is_issue, found.suggested, y))
    sure = method.audit(X, y, may_name=True).corrected(min_confidence=0.5)
    np.testing.assert_array_equal(method.classes_[sure], found.suggested)
    np.testing.assert_array_equal(method.corrected_labels(X, y, min_confidence=1.0), y)


def test_where_every_label_is_trusted_the_last_network_judges(study, tmp_path):
    X, y, clean = study
    method = lt.TideClassifier(epochs=2, hidden_size=4, random_state=0, device="cpu").fit(X, y, trusted=NAMES[clean])
    assert method.fold_model_ is None
    method.save(tmp_path / "file")
    first, second = method.audit(X, y), lt.load(tmp_path / "file").audit(X, y)
    np.testing.assert_array_equal(first.quality, second.quality)


def test_short_words_are_not_cut_when_corrected(study, fitted):
    X, y, _ = study
    short = np.full(y.shape, "sit")
    assert set(np.unique(fitted.corrected_labels(X, short, min_confidence=0.5))) <= set(NAMES.tolist())


def test_labels_of_several_annotators_keep_their_shape_and_gaps(study, fitted):
    X, y, _ = study
    both = np.stack([y, np.where(np.arange(12) % 2, y, None)], -1)
    corrected = fitted.corrected_labels(X, both, min_confidence=0.5)
    assert corrected.shape == both.shape
    assert all(value is None for value in corrected[:, ::2, 1].flat)


def test_trusted_labels_are_believed_in_an_audit(study, fitted):
    X, y, clean = study
    trusted = np.where(np.arange(12) < 6, NAMES[clean], None)
    found = fitted.audit(X, y, trusted=trusted)
    np.testing.assert_array_equal(found.suggested[:, :6], NAMES[clean][:, :6])


def test_an_audit_checks_what_it_is_given(study, fitted):
    X, y, _ = study
    with pytest.raises(ValueError, match="y must have shape"):
        fitted.audit(X, y[:, :-1])
    with pytest.raises(ValueError, match="not among the known ones"):
        fitted.audit(X, np.full(y.shape, "run"))
    with pytest.raises(ValueError, match="fdr must be"):
        fitted.audit(X, y, fdr=2)
