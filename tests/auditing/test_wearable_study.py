"""The simulated study holds what it promises: people, rhythm, two annotators, known mistakes."""

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from auditing.lines import lines_of
from labeltide.data.studies import ACTIVITIES, error_rates, simulate_study, write_study
from labeltide_bench.tables import read_audit_table


@pytest.fixture(scope="module")
def study():
    return simulate_study().to_pandas()


def test_sixty_people_wear_it_for_fourteen_days_with_gaps(study):
    steps = study.drop_duplicates(["person", "time"])
    assert study["person"].nunique() == 60
    assert (study["time"].max() - study["time"].min()).days == 13
    assert (study["time"].dt.minute % 15 == 0).all()
    assert 0.85 < len(steps) / (60 * 14 * 96) < 0.95
    assert 0.01 < study["heart_rate"].isna().mean() < 0.05
    assert not study.drop(columns="heart_rate").isna().any().any()


def test_the_share_of_wrong_labels_is_the_rate(study):
    assert (study["label"] != study["true_label"]).mean() == pytest.approx(0.2, abs=0.01)
    for rate in (0, 0.4):
        other = simulate_study(people=20, rate=rate).to_pandas()
        assert (other["label"] != other["true_label"]).mean() == pytest.approx(rate, abs=0.02)


def test_ben_is_worse_at_night_and_drifts(study):
    wrong = study["label"] != study["true_label"]
    hour, day = study["time"].dt.hour, (study["time"] - study["time"].min()).dt.days
    ben = study["annotator"] == "Ben"
    assert wrong[ben & hour.between(1, 5)].mean() > 0.35
    assert wrong[ben & hour.between(12, 17)].mean() < 0.25
    assert wrong[ben & (day > 9)].mean() > wrong[ben & (day < 4)].mean() + 0.05
    assert wrong[~ben & hour.between(1, 5)].mean() < 0.15
    assert wrong[~ben].mean() < wrong[ben].mean()
    # The truth stays the most frequent label of every hour, so that it can be found.
    assert max(wrong[ben & (hour == each)].mean() for each in range(24)) < 0.5


def test_some_days_have_both_annotators_and_each_has_days_of_their_own(study):
    counts = study.groupby(["person", "time"])["annotator"].nunique()
    assert 0.15 < (counts == 2).mean() < 0.35
    assert set(study["annotator"]) == {"Ada", "Ben"}


def test_activities_persist_and_follow_the_day(study):
    steps = study.drop_duplicates(["person", "time"]).sort_values(["person", "time"])
    same = (steps["true_label"] == steps["true_label"].shift()) & (steps["person"] == steps["person"].shift())
    assert same.mean() > 0.8
    night = steps["time"].dt.hour.between(2, 5)
    assert (steps.loc[night, "true_label"] == "rest").mean() > 0.9
    assert set(steps["true_label"]) == set(ACTIVITIES)


def test_the_audit_reads_it_without_options_and_never_sees_the_truth():
    audit = read_audit_table(simulate_study(people=3, days=2), clock="hour_of_day")
    assert audit.columns["sequence"] == "person"
    assert audit.columns["annotator"] == "annotator"
    assert audit.class_names == ACTIVITIES
    assert not any("true" in name for name in audit.feature_names)


def test_the_seed_decides_everything():
    assert simulate_study(2, 1, seed=5).equals(simulate_study(2, 1, seed=5))
    assert not simulate_study(2, 1, seed=5).equals(simulate_study(2, 1, seed=6))


@pytest.mark.parametrize("changes", [{"people": 0}, {"days": 0.5}, {"rate": 0.9}, {"seed": -1}])
def test_impossible_studies_are_refused(changes):
    with pytest.raises(ValueError, match=f"{next(iter(changes))} must be"):
        simulate_study(**changes)


def test_the_smallest_study_has_rows():
    assert len(simulate_study(1, 1)) >= 1


def test_error_rates_are_the_same_every_day_for_ada():
    hours = np.arange(24.0)
    first, last = (error_rates(hours, np.full(24, when), np.zeros(24)) for when in (0, 1))
    np.testing.assert_array_equal(first, last)


@pytest.mark.parametrize("name", ["a.parquet", "a.csv", "a.csv.gz", "deep/b.PARQUET"])
def test_a_study_is_written_and_read_again(tmp_path, name):
    table = simulate_study(2, 1)
    path = write_study(table, tmp_path / name)
    assert sorted(p.name for p in path.parent.iterdir()) == [path.name]
    assert lines_of(read_audit_table(path)).equals(lines_of(read_audit_table(table)))
    with pytest.raises(ValueError, match="is there already"):
        write_study(table, path)
    if name.endswith("T"):
        assert isinstance(parquet.read_table(path), pa.Table)
