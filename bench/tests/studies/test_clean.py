"""Clean labels are seen by the reference that a study marks with `clean = true`, and by nothing else."""

from dataclasses import replace

import numpy as np
import pytest

from labeltide.estimators import METHODS
from labeltide_bench.studies import run_fleet
from labeltide_bench.studies.plan import plan_fleets
from studies.toys import DATASET, toy_study

NOISE = '[[noise]]\nshape = "static"\nrates = [0.3]\n'
EVERY = "".join(f"[methods.{name}]\nepochs = 2\n" for name in METHODS)
REFERENCE = '[methods."clean labels"]\nmethod = "tide"\nclean = true\nepochs = 2\n'


@pytest.fixture(scope="module")
def plans(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    study = toy_study(folder, "draws = 2\n" + DATASET + NOISE + EVERY + REFERENCE)
    return {plan.runs[0].method.label: plan for plan in plan_fleets(study, 10)}


@pytest.fixture
def run(plans, tmp_path, monkeypatch):
    """A function that runs a method with the same recorded labels, whatever the clean training labels are."""
    spec = plans["ignore"].runs[0].dataset
    split = run_fleet.load_once(spec, tmp_path)
    recorded = {one.key: run_fleet.record_labels(one, split.train) for plan in plans.values() for one in plan.runs}
    other = split._replace(train=replace(split.train, labels=1 - split.train.labels))

    def run(label, *, change=False):
        monkeypatch.setattr(run_fleet, "load_once", lambda *_: other if change else split)
        monkeypatch.setattr(run_fleet, "record_labels", lambda one, train: recorded[one.key])
        records = run_fleet.run_fleet(plans[label], tmp_path, tmp_path / "unfinished", "cpu")
        return [(record["metrics"]["test_error"], record["over_time"], record["noise"]) for record in records]

    return run


@pytest.mark.parametrize("label", METHODS)
def test_no_run_changes_with_the_clean_labels(run, label):
    assert str(run(label)) == str(run(label, change=True))


def test_the_reference_learns_from_the_clean_labels(run):
    assert str(run("clean labels")) != str(run("clean labels", change=True))


def test_only_the_reference_is_handed_trusted_labels(plans, tmp_path, monkeypatch):
    handed = {}
    fit_fleet = run_fleet.fit_fleet

    def spy(estimators, X, labels, **more):
        handed[label] = more["trusted"]
        fit_fleet(estimators, X, labels, **more)

    monkeypatch.setattr(run_fleet, "fit_fleet", spy)
    for label in ("ignore", "tide", "clean labels"):
        records = run_fleet.run_fleet(plans[label], tmp_path, tmp_path / "unfinished", "cpu")
        assert {record["clean"] for record in records} == {label == "clean labels"}
    train = run_fleet.load_once(plans["tide"].runs[0].dataset, tmp_path).train
    assert handed["ignore"] is handed["tide"] is None
    np.testing.assert_array_equal(handed["clean labels"], train.labels[..., 0])


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ('[methods."clean labels"]\nmethod = "ignore"\nclean = true', "clean is for method = 'tide'"),
        ('[methods.upper]\nmethod = "tide"\nclean = true', "sees clean labels. Let its name begin with 'clean'"),
        ('[methods.few]\nmethod = "tide"\nsame_information = true', "Let its name begin with 'clean'"),
        (
            '[methods.clean]\nmethod = "tide"\nclean = "yes"',
            "[methods.'clean'].clean must be true or false. Got 'yes'.",
        ),
        (
            '[methods.clean]\nmethod = "tide"\nclean = true\n[methods.clean.datasets.toy]\nclean = true',
            "Unknown setting",
        ),
    ],
)
def test_a_wrong_reference_is_named(tmp_path, method, message):
    with pytest.raises(ValueError, match=r"toy\.toml") as caught:
        toy_study(tmp_path, DATASET + NOISE + method)
    assert message in str(caught.value)


def test_clean_is_no_setting_of_the_estimator(plans):
    method = plans["clean labels"].runs[0].method
    assert method.clean
    assert method.settings == {"epochs": 2}
