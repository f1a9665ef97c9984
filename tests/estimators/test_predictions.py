"""Audits by the probabilities of any model."""

import warnings

import numpy as np
import pytest

import labeltide as lt

pytestmark = pytest.mark.usefixtures("few_replicates")

N, STEPS = 60, 30


@pytest.fixture(scope="module")
def study():
    data = lt.make_sequences(n=N, n_steps=STEPS, n_features=3, stay=0.9, random_state=1)
    y = lt.corrupt(data.clean_labels, lt.make_noise("growth", n_steps=STEPS, rate=0.25), random_state=2)
    clean = data.clean_labels.reshape(N, STEPS)
    draws = np.random.default_rng(0).normal(2.0 * clean - 1, 1.0)  # a model that sees the truth with noise
    right = 1 / (1 + np.exp(-2 * draws))
    return clean, y.reshape(N, STEPS), np.stack([1 - right, right], -1)


@pytest.fixture(scope="module")
def audit(study):
    _, y, probabilities = study
    return lt.audit_predictions(probabilities, y)


def test_wrong_labels_are_found_with_few_false_alarms(study, audit):
    clean, y, _ = study
    wrong = y != clean
    assert audit.fit.conclusion_.answer == "shown"
    assert wrong[audit.is_issue].mean() > 0.8
    assert audit.is_issue[wrong].mean() > 0.6
    assert abs(audit.share_wrong - wrong.mean()) < 0.05
    assert (audit.suggested == clean).mean() > (y == clean).mean() + 0.1


def test_bands_and_tests_come_with_the_audit(audit):
    assert audit.fit.noise_estimate_.total_lower > 0
    assert audit.fit.temporality_.p_value < 0.05


def test_lists_flat_arrays_and_names_give_the_same_audit(study, audit):
    _, y, probabilities = study
    names = np.array(["rest", "walk"])[y]
    listed = lt.audit_predictions(list(probabilities), list(names))
    flat = lt.audit_predictions(probabilities.reshape(-1, 2), names.ravel(), lengths=[STEPS] * N)
    for other in (listed, flat):
        np.testing.assert_allclose(other.quality, audit.quality, atol=1e-6)
    assert set(listed.classes.tolist()) == {"rest", "walk"}


def test_ragged_sequences_and_one_long_sequence_are_audited(study):
    _, y, probabilities = study
    lengths = np.where(np.arange(N) % 2, STEPS, 12)
    ragged = lt.audit_predictions(
        [p[:k] for p, k in zip(probabilities, lengths, strict=True)],
        [labels[:k] for labels, k in zip(y, lengths, strict=True)],
    )
    assert int((ragged.labels >= 0).sum()) == lengths.sum()
    whole = lt.audit_predictions(probabilities.reshape(-1, 2), y.ravel())
    assert whole.quality.shape == (1, N * STEPS)


def test_probabilities_that_repeat_the_labels_are_reported(study):
    _, y, _ = study
    memorised = np.where(np.arange(2) == y[..., None], 0.95, 0.05)
    with pytest.warns(lt.NoiseWarning, match="neighbours contradict"):
        audit = lt.audit_predictions(memorised, y)
    assert not audit.is_issue.any()
    assert audit.fit.conclusion_.answer == "cannot be told"


def test_constant_probabilities_are_reported(study):
    _, y, _ = study
    with pytest.warns(lt.NoiseWarning, match="same at every step"):
        assert not lt.audit_predictions(np.full((N, STEPS, 2), 0.5), y).is_issue.any()


def test_probabilities_that_are_far_too_careful_are_reported(study):
    _, y, probabilities = study
    careful = 0.5 + (probabilities - 0.5) / 20
    with pytest.warns(lt.NoiseWarning, match="not sure enough"):
        lt.audit_predictions(careful, y)


def test_several_annotators_have_a_noise_each(study):
    clean, y, probabilities = study
    second = lt.corrupt(clean, [[0.9, 0.1], [0.1, 0.9]], random_state=5).reshape(N, STEPS)
    audit = lt.audit_predictions(probabilities, np.stack([y, second], -1))
    assert audit.is_issue.shape == (N, STEPS, 2)
    assert audit.fit.noise_.annotators in (1, 2)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda p, y: (p * 3 - 1, y), "Apply softmax"),
        (lambda p, y: (np.where(p > 0.9, np.nan, p), y), "must be finite"),
        (lambda p, y: (p[:, :, 0], y), "sum to one"),
        (lambda p, y: (p, y[:, :-1]), "shape"),
        (lambda p, y: (p, np.array(["a", "b", "c"])[(y + np.arange(STEPS)) % 3]), "one column for each class"),
    ],
)
def test_wrong_input_gets_one_sentence(study, change, words):
    _, y, probabilities = study
    with pytest.raises(ValueError, match=words):
        lt.audit_predictions(*change(probabilities, y))


def test_cross_predict_leaves_out_whole_clusters(study):
    clean, y, _ = study
    people = np.arange(N) // 3
    X = np.stack([np.random.default_rng(3).normal(2.0 * clean - 1), np.repeat(people[:, None], STEPS, 1)], -1)

    def fit(features, labels):
        seen = set(features[..., 1].ravel())

        def predict(others):
            assert not seen & set(others[..., 1].ravel())
            right = 1 / (1 + np.exp(-2 * others[..., 0]))
            return np.stack([1 - right, right], -1)

        return predict

    audit = lt.cross_predict(fit, X, y, clusters=people)
    assert audit.quality.shape == (N, STEPS)


def test_columns_of_cleanlab_have_a_value_for_every_label(audit, study):
    _, y, _ = study
    columns = audit.to_cleanlab()
    assert list(columns) == ["is_label_issue", "label_quality", "given_label", "predicted_label"]
    np.testing.assert_array_equal(columns["given_label"], y.ravel())
    np.testing.assert_array_equal(columns["is_label_issue"], audit.is_issue.ravel())


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.3])
@pytest.mark.parametrize("learned", ["true", "recorded"])
def test_models_calibrated_for_true_or_for_recorded_labels_give_no_warning(study, rate, learned):
    clean, _, probabilities = study
    noise = lt.make_noise("growth", n_steps=STEPS, rate=rate) if rate else None
    y = lt.corrupt(clean, noise, random_state=4).reshape(N, STEPS) if rate else clean
    if learned == "recorded":
        probabilities = probabilities @ np.array([[1 - rate, rate], [rate, 1 - rate]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lt.audit_predictions(probabilities, y)


def test_probabilities_that_are_far_too_sure_are_reported(study):
    _, y, probabilities = study
    sure = probabilities**8
    with pytest.warns(lt.NoiseWarning, match="too sure"):
        lt.audit_predictions(sure / sure.sum(-1, keepdims=True), y)


def test_a_model_that_fails_for_one_person_costs_the_others_nothing(study):
    clean, y, probabilities = study
    people = np.arange(N) // 6
    failed = np.where((people == 3)[:, None, None], probabilities[..., ::-1], probabilities)
    by_person, together = (lt.audit_predictions(failed, y, clusters=clusters) for clusters in (people, None))
    others, wrong = people != 3, y != clean
    assert by_person.is_issue[others][wrong[others]].mean() > together.is_issue[others][wrong[others]].mean() + 0.1
    assert wrong[others][by_person.is_issue[others]].mean() > 0.8
