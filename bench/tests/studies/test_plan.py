"""Every run of a study stands in exactly one fleet, whatever the fleets' size."""

import pytest

from labeltide_bench.studies.loading import load_dataset
from labeltide_bench.studies.plan import plan_fleets
from labeltide_bench.studies.run_fleet import record_labels
from studies.toys import STUDY, toy_study


@pytest.fixture
def study(tmp_path):
    again = '[datasets."toy again"]\nlike = "toy"\n'
    return toy_study(tmp_path, STUDY.replace("draws = 2", "draws = 3") + again)


@pytest.mark.parametrize("size", [1, 2, 4, 100])
def test_every_run_stands_in_exactly_one_fleet(study, size):
    fleets = list(plan_fleets(study, size))
    keys = [run.key for plan in fleets for run in plan.runs]
    assert len(keys) == len(set(keys)) == study.n_runs
    assert max(len(plan.runs) for plan in fleets) == min(size, 6)


def test_runs_of_a_fleet_share_data_and_method(study):
    for plan in plan_fleets(study, 4):
        assert len({(run.dataset.name, run.method.label) for run in plan.runs}) == 1


def test_fleets_are_told_apart_by_their_digest(study):
    digests = [plan.digest for plan in plan_fleets(study, 2)]
    assert len(set(digests)) == len(digests)
    assert digests == [plan.digest for plan in plan_fleets(study, 2)], "and it is the same in every process"


def test_every_method_of_a_draw_gets_the_same_recorded_labels(study, tmp_path):
    train = load_dataset(study.datasets[0], tmp_path).train
    recorded: dict[str, set[bytes]] = {}
    for plan in plan_fleets(study, 100):
        for run in plan.runs:
            recorded.setdefault(run.noise_key, set()).add(record_labels(run, train).recorded.tobytes())
    assert all(len(labels) == 1 for labels in recorded.values())
    different = {next(iter(labels)) for labels in recorded.values()}
    assert len(different) == len(recorded) == 2 * 2 * 3, "and every draw, level and data set has its own"


def test_labels_that_a_class_is_missing_from_are_named(study, tmp_path):
    train = load_dataset(study.datasets[0], tmp_path).train
    train.labels[:] = 0
    run = next(plan_fleets(study, 1)).runs[0]
    harmless = type(run)(run.dataset, type(run.noise)("static", {"rate": 0.0}), run.method, 0)
    with pytest.raises(ValueError, match="no label of class number 1 was recorded"):
        record_labels(harmless, train)
