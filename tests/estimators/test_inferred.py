from __future__ import annotations

import json
import warnings
from dataclasses import replace

import numpy as np
import pytest

import labeltide as lt
from labeltide.inference.temporality import PartTemporality, read_findings, write_findings

pytestmark = pytest.mark.usefixtures("few_replicates")


@pytest.fixture(scope="module")
def fitted():
    study = lt.make_sequences(40, 20, 3, stay=0.9, random_state=0)
    noisy = lt.corrupt(study, lt.make_noise("growth", 2, 20, 0.25), random_state=1)
    return lt.TideClassifier(epochs=8, random_state=0).fit(noisy.features, noisy.labels)


def test_bands_lie_around_the_fitted_noise(fitted):
    found = fitted.noise_estimate_
    assert isinstance(found, lt.NoiseEstimate)
    np.testing.assert_allclose(found.mean, fitted.noise_matrices_, atol=1e-5)
    assert fitted.noise_estimate_ is found


def test_warnings_come_once(fitted):
    fitted.findings_.pop("diagnostics", None)
    with warnings.catch_warnings(record=True) as first:
        warnings.simplefilter("always")
        found = fitted.diagnostics_
    assert [one.category for one in first] == [lt.NoiseWarning] * sum(check.is_warning for check in found)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert fitted.diagnostics_ is found


def test_what_was_found_is_saved_and_what_was_not_says_so(fitted, tmp_path):
    fitted.findings_.pop("temporality", None)
    estimate = fitted.noise_estimate_
    fitted.save(tmp_path / "one")
    loaded = lt.load(tmp_path / "one")
    np.testing.assert_array_equal(loaded.noise_estimate_.lower, estimate.lower)
    assert loaded.diagnostics_ == fitted.diagnostics_
    with pytest.raises(AttributeError, match="temporality_ was not computed before this TideClassifier was saved"):
        loaded.temporality_  # noqa: B018
    temporality = fitted.temporality_
    fitted.save(tmp_path / "two")
    assert lt.load(tmp_path / "two").temporality_ == temporality


def test_an_unfitted_method_says_so():
    with pytest.raises(AttributeError, match="not fitted"):
        lt.TideClassifier().noise_estimate_  # noqa: B018


def test_fitting_again_forgets_what_was_found(fitted):
    study = lt.make_sequences(20, 10, 3, stay=0.9, random_state=2)
    other = lt.TideClassifier(epochs=2, random_state=0).fit(study.features, study.labels)
    other.findings_["temporality"] = None
    other.fit(study.features, study.labels)
    assert other.findings_ == {}


def test_each_annotator_has_bands_and_a_test_which_are_saved(tmp_path):
    study = lt.make_sequences(24, 12, 3, stay=0.9, random_state=0)
    both = [lt.corrupt(study.clean_labels, lt.make_noise("growth", 2, 12, rate), random_state=1) for rate in (0.1, 0.3)]
    fitted = lt.TideClassifier(epochs=4, random_state=0).fit(study.features, np.stack(both, -1))
    own = fitted.annotator_estimates_
    assert len(own) == len(fitted.temporality_.per_annotator) == 2
    for one, matrices in zip(own, fitted.annotator_matrices_, strict=True):
        np.testing.assert_allclose(one.mean, matrices, atol=1e-5)
    np.testing.assert_allclose(fitted.noise_estimate_.mean, fitted.noise_matrices_, atol=1e-5)
    fitted.save(tmp_path / "several")
    loaded = lt.load(tmp_path / "several")
    assert loaded.temporality_ == fitted.temporality_
    for one, again in zip(own, loaded.annotator_estimates_, strict=True):
        np.testing.assert_array_equal(one.lower, again.lower)


def test_one_annotator_has_the_common_bands(fitted):
    assert fitted.annotator_estimates_ == (fitted.noise_estimate_,)


def test_what_cannot_be_told_is_saved_and_read(fitted):
    told = fitted.temporality_
    change = fitted.noise_estimate_.change
    parts = (PartTemporality(np.nan, np.nan, change, "none", 3),) * 2
    unknown = replace(told, statistic=np.nan, p_value=np.nan, method="none", n_units=3, per_class=parts)
    text = json.dumps(write_findings({"temporality": unknown}), allow_nan=False)
    again = read_findings(json.loads(text), 2)["temporality"]
    assert (again.method, again.n_units) == ("none", 3)
    assert np.isnan([again.statistic, again.p_value, again.per_class[0].p_value]).all()
    assert again.per_class[0].change == change


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("noise_estimate", "lower", [[0.1]]),
        ("noise_estimate", "mean", None),
        ("noise_estimate", "class_change", []),
        ("noise_estimate", "extra", 1),
        ("temporality", "p_value", "high"),
        ("temporality", "per_class", [[1, 2]]),
        ("temporality", "method", "guess"),
        ("temporality", "per_annotator", 3),
        ("nonsense", "p_value", 1),
    ],
)
def test_findings_that_were_altered_are_refused(fitted, name, key, value):
    assert fitted.temporality_
    message = json.loads(json.dumps(write_findings(fitted.findings_)))
    message[name] = {**message.get(name, {}), key: value}
    with pytest.raises(ValueError, match="its bands, its test or its checks are malformed"):
        read_findings(message, 2)
