"""From table files to training and test sequences, without leaks and without surprises."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labeltide_bench.studies import splits
from labeltide_bench.studies.loading import load_dataset, missing_files
from studies.toys import METHODS, NOISE, TABLE, our_study, toy_study, write_people

STUDIES = Path(__file__).parents[2] / "studies"


@pytest.fixture
def people(tmp_path):
    return toy_study(tmp_path, TABLE + NOISE + METHODS).datasets[0]


@given(
    st.lists(st.integers(0, 6), min_size=2, max_size=60).filter(lambda groups: len(set(groups)) > 1),
    st.floats(0.01, 0.9),
    st.integers(0, 5),
)
def test_no_group_stands_on_both_sides(groups, share, seed):
    test = splits.by_group(groups, share, seed)
    inside = {group for group, chosen in zip(groups, test, strict=True) if chosen}
    outside = {group for group, chosen in zip(groups, test, strict=True) if not chosen}
    assert inside
    assert outside
    assert not inside & outside


@given(st.integers(2, 60), st.floats(0.01, 0.9), st.integers(0, 5))
def test_a_random_split_has_its_share_and_two_sides(n, share, seed):
    test = splits.at_random(n, share, seed)
    assert 0 < test.sum() < n
    assert abs(test.sum() - share * n) <= 1
    assert np.array_equal(test, splits.at_random(n, share, seed))


@given(st.lists(st.sampled_from("abc"), min_size=2, max_size=40), st.floats(0.01, 0.9))
def test_a_split_by_time_never_trains_on_the_future(ids, share):
    test = splits.by_time(ids, share)
    for name in set(ids):
        own = [bool(chosen) for chosen, one in zip(test, ids, strict=True) if one == name]
        assert own == sorted(own), "first what is trained on, then what is tested on"
        assert not own[0]


def test_windows_are_cut_within_people(people, tmp_path):
    split = load_dataset(people, write_people(tmp_path))
    assert len(split.train) + len(split.test) == 6 * 4
    assert split.train.features.shape[1:] == (5, 2)
    assert set(np.unique(split.train.labels)) == {0, 1}


@pytest.mark.parametrize("by", ["person", "house"])
def test_a_split_by_a_column_keeps_its_values_apart(people, tmp_path, by):
    split = load_dataset(replace(people, split={"by": by, "test": 0.3}), write_people(tmp_path))
    group = (lambda name: name) if by == "person" else (lambda name: name % 2)
    assert not {group(name) for name in split.train.ids} & {group(name) for name in split.test.ids}


def test_a_csv_file_gives_the_same_as_parquet(people, tmp_path):
    expected = load_dataset(people, write_people(tmp_path))
    pyarrow.csv.write_csv(pq.read_table(tmp_path / "people.parquet"), tmp_path / "people.csv")
    found = load_dataset(replace(people, files=("people.csv",)), tmp_path)
    np.testing.assert_allclose(found.train.features, expected.train.features, rtol=1e-5)
    assert np.array_equal(found.test.labels, expected.test.labels)


def test_without_columns_for_it_a_file_is_one_recording(people, tmp_path):
    alone = replace(people, sequence="_recording", time="_row", zscore="_recording")
    split = load_dataset(alone, write_people(tmp_path))
    assert set(split.train.ids) == {0}
    assert len(split.train) + len(split.test) == 6 * 21 // 5


def test_trimming_keeps_a_margin_and_goes_by_time_and_not_by_row(people, tmp_path):
    labels = np.tile([0] * 10 + [1, 0, 1] + [0] * 8, 6)
    expected = load_dataset(replace(people, **TRIM), write_people(tmp_path, label=labels))
    assert expected.train.features.shape[1] == 7
    table = pq.read_table(tmp_path / "people.parquet")
    shuffled = table.take(pa.array(np.random.default_rng(0).permutation(len(table))))
    pq.write_table(shuffled.sort_by("person"), tmp_path / "people.parquet")
    assert load_dataset(replace(people, **TRIM), tmp_path).train.features.shape[1] == 7


TRIM = {"trim": {"value": 0, "rows": 2}, "window": None, "labels": {"still": [0], "moving": [1]}}


def test_outliers_are_dropped_and_constants_are_not(people, tmp_path):
    x = np.random.default_rng(0).normal(size=126)
    x[3] = 100
    write_people(tmp_path, x=x, y=np.full(126, 0.1))
    whole = replace(people, window=None, drop_outliers=5.0)
    split = load_dataset(whole, tmp_path)
    lengths = [*split.train.lengths, *split.test.lengths]
    assert sorted(lengths) == [20, 21, 21, 21, 21, 21]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"features": ("x", "z")}, "has no column 'z'. It has: 'person', 'house'"),
        ({"split": {"by": "town"}}, "has no column 'town'."),
        ({"zscore": "town"}, "has no column 'town'."),
        ({"labels": {"a": [0], "b": [1, 7]}}, "labels has values that no row of column 'label' holds: 7. There are: 0"),
        ({"labels": {"a": ["0"], "b": [1]}}, "labels has values that no row of column 'label' holds: '0'."),
        ({"sequence": "house", "time": "_row", "split": {"by": "person"}}, "must be one value for each sequence."),
        ({"sequence": "_recording", "time": "_row", "split": {"by": "label"}}, "must be one value for each sequence."),
        ({"window": 22}, "No sequence is long enough"),
        ({"features": ("house",), "drop_outliers": 5.0}, "the feature column 'house' must hold numbers."),
        ({"drop_outliers": 0.001}, "no row is left"),
        ({"sequence": "_recording", "time": "_row", "window": None}, "there is only one window, and a split needs two"),
    ],
)
def test_data_that_do_not_fit_the_study_are_named(people, tmp_path, changes, message):
    write_people(tmp_path)
    with pytest.raises(ValueError, match=r"\[datasets\.'people'\]: ") as caught:
        load_dataset(replace(people, **changes), tmp_path)
    assert message in str(caught.value)


def test_one_house_cannot_be_split_by_house(people, tmp_path):
    write_people(tmp_path, house=["north"] * 126)
    with pytest.raises(ValueError, match="there is only one value of 'house'"):
        load_dataset(replace(people, split={"by": "house"}), tmp_path)


def test_gaps_in_the_column_to_split_by_are_named(people, tmp_path):
    write_people(tmp_path, house=pa.array([None] * 21 + ["north"] * 105))
    with pytest.raises(ValueError, match="21 rows lack it"):
        load_dataset(replace(people, split={"by": "house"}), tmp_path)


def test_a_class_that_no_training_window_holds_is_named(people, tmp_path):
    labels = np.zeros(126, dtype=int)
    labels[:21] = 1  # the first person alone moves
    write_people(tmp_path, label=labels)
    spec = replace(people, labels={"still": [0], "moving": [1]}, split={"by": "person", "test": 0.1})
    seeds = [seed for seed in range(20) if splits.by_group(range(6), 0.1, seed)[0]]
    with pytest.raises(ValueError, match="the training part holds no label of the class 'moving'"):
        load_dataset(replace(spec, split={**spec.split, "seed": seeds[0]}), tmp_path)


def test_a_published_test_file_of_one_class_is_named(people, tmp_path):
    write_people(tmp_path)
    (tmp_path / "people.parquet").rename(tmp_path / "train.parquet")
    write_people(tmp_path, label=np.zeros(126, dtype=int))
    with pytest.raises(ValueError, match="all rows are of the class 'still'"):
        load_dataset(replace(people, files=(), train=("train.parquet",), test=("people.parquet",)), tmp_path)


def test_a_folder_in_place_of_a_file_is_missing(people, tmp_path):
    (tmp_path / "people.parquet").mkdir()
    assert missing_files(people, tmp_path) == ["people.parquet"]


def test_the_papers_data_sets_have_their_published_sizes():
    folder = os.environ.get("LABELTIDE_DATA")
    if not folder:
        pytest.skip("Set LABELTIDE_DATA to the folder of public recordings to run this test.")
    specs = [spec for spec in our_study(STUDIES / "paper-tables.toml").datasets if not spec.optional]
    found = {spec.name: load_dataset(spec, Path(folder)) for spec in specs}
    assert (len(found["moving"].train), len(found["moving"].test)) == (137, 55)
    sizes = {"senior": 172, "blinking": 299, "sleeping": 215}
    for name, size in sizes.items():
        assert len(found[name].train) + len(found[name].test) == size
        others = [split for other, split in found.items() if other.startswith(name)]
        assert {len(split.train) + len(split.test) for split in others} == {size}
    subjects = found["senior, by subject"]
    assert not set(subjects.train.ids) & set(subjects.test.ids)
    assert not {name[:5] for name in found["sleeping, by subject"].train.ids} & {
        name[:5] for name in found["sleeping, by subject"].test.ids
    }


def test_the_data_sets_of_the_figures_have_their_classes():
    folder = os.environ.get("LABELTIDE_DATA")
    if not folder:
        pytest.skip("Set LABELTIDE_DATA to the folder of public recordings to run this test.")
    study = our_study(STUDIES / "paper-figures.toml")
    specs = [spec for spec in study.datasets if not spec.optional]
    classes = {spec.name: len(np.unique(load_dataset(spec, Path(folder)).train.labels)) for spec in specs}
    assert {name: n for name, n in classes.items() if n > 2} == {
        "synthetic, 3 classes": 3,
        "sleeping, 3 classes": 3,
        "moving, 4 classes": 4,
    }
