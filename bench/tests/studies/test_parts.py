"""Every part of `tide` that a study can switch off exists in the library, changes a fit, and comes back."""

from functools import reduce

import numpy as np
import pytest

import labeltide
from labeltide import TideClassifier, corrupt, make_noise, make_sequences
from labeltide_bench.studies import run_fleet
from labeltide_bench.studies.parts import PARTS, without
from labeltide_bench.studies.plan import plan_fleets
from studies.toys import DATASET, NOISE, toy_study

Q_OF_THE_SAME_NETWORKS = {"long training", "early stopping"}  # parts of the last ensemble, which Q does not depend on


def current(part):
    """What the library has where a part is switched off."""
    return reduce(getattr, PARTS[part][0].split("."), labeltide)


def fit(recorded):
    classifier = TideClassifier(epochs=6, batch_size=30, hidden_size=6, device="cpu", random_state=0)
    classifier.fit(recorded.features, recorded.labels)
    return classifier.noise_matrices_, classifier.predict_proba(recorded.features)


@pytest.fixture(scope="module")
def recorded():
    """Errors in long bursts: labels look clean by themselves, so that wary training and bursts have work to do."""
    clean = make_sequences(n=80, n_steps=20, n_features=4, stay=0.9, random_state=0)
    return corrupt(clean, make_noise("static", 2, 20, 0.25), bursts=0.9, random_state=0)


@pytest.fixture(scope="module")
def whole(recorded):
    return fit(recorded)


@pytest.mark.parametrize("part", PARTS)
def test_a_part_is_switched_off_inside_the_block_only(part):
    before, off = current(part), PARTS[part][1]
    assert before != off
    with without([part]):
        assert current(part) is off
    assert current(part) is before


def test_parts_come_back_after_an_error_too():
    before = [current(part) for part in PARTS]
    with pytest.raises(RuntimeError), without(list(PARTS)):
        raise RuntimeError
    assert all(current(part) is value for part, value in zip(PARTS, before, strict=True))


@pytest.mark.parametrize("part", PARTS)
def test_a_fit_without_a_part_is_another_one(recorded, whole, part):
    with without([part]):
        matrices, probabilities = fit(recorded)
    assert np.abs(probabilities - whole[1]).max() > 1e-4
    assert np.array_equal(matrices, whole[0]) == (part in Q_OF_THE_SAME_NETWORKS)


def test_all_parts_can_be_off_together(recorded):
    with without([part for part in PARTS if part != "early stopping"]):  # with both kinds off no network is left
        matrices, probabilities = fit(recorded)
    np.testing.assert_allclose(matrices.sum(-1), 1, atol=1e-5)
    np.testing.assert_allclose(probabilities.sum(-1), 1, atol=1e-5)


def test_a_run_is_fitted_without_the_parts_that_its_method_names(tmp_path, monkeypatch):
    methods = '[methods.tide]\nepochs = 1\n[methods.less]\nmethod = "tide"\nepochs = 1\nwithout = ["bursts"]\n'
    seen, really_fit = [], run_fleet._fit

    def spy(*args, **more):
        seen.append(current("bursts"))
        really_fit(*args, **more)

    monkeypatch.setattr(run_fleet, "_fit", spy)
    study = toy_study(tmp_path, "draws = 1\n" + DATASET + NOISE + methods)
    for plan in plan_fleets(study, 10):
        run_fleet.run_fleet(plan, tmp_path, tmp_path / "unfinished", "cpu")
    assert seen == [current("bursts"), np.inf]
