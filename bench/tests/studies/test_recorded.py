"""Labels of real people: one is learned from, the others only measure."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from labeltide.estimators import METHODS
from labeltide.inference.audit import LabelAudit
from labeltide.noise.functions import FixedNoise
from labeltide_bench.studies import read_records, run_fleet, run_study
from labeltide_bench.studies.derive import derive
from labeltide_bench.studies.loading import Split, load_folds
from labeltide_bench.studies.measure import DISAGREEMENT
from labeltide_bench.studies.plan import plan_fleets
from labeltide_bench.studies.recorded import (
    CLOCK_BINS,
    CountedNoise,
    clock_bins,
    compare_noise,
    compare_with_others,
    majority,
    measure_disagreement,
)
from studies.toys import toy_study

DATASET = """
[datasets.nights]
files = ["nights.parquet"]
sequence = "night"
time = "row"
features = ["x"]
annotators = ["ann", "bob", "cem"]
labels = { wake = [0], sleep = [1] }
window = 10
keep_tail = true
clock = { per = 10, step = 0.5, name = "hours" }
split = { by = "night", folds = 3 }
settings = { epochs = 2, batch_size = 8, hidden_size = 4 }
"""
CLEAN_COLUMN = DATASET.replace('annotators = ["ann", "bob", "cem"]', 'label = "ann"\nclean = "truth"')
NOISE = '[[noise]]\nshape = "recorded"\n'
IGNORE = "[methods.ignore]\n"


def write_nights(folder, n_nights=9, n_rows=40, **changes):
    """Nights in which ann errs ever more often, bob and cem seldom; 2 stands for a label of no class."""
    generator = np.random.default_rng(0)
    night, row = np.repeat(np.arange(n_nights), n_rows), np.tile(np.arange(n_rows), n_nights)
    truth = (row // 7 + night) % 2
    rates = {"ann": 0.5 * row / n_rows, "bob": 0.05, "cem": 0.05}
    people = {name: np.where(generator.random(len(row)) < rate, 1 - truth, truth) for name, rate in rates.items()}
    people["ann"][5] = 2
    x = truth + 0.1 * generator.normal(size=len(row))
    columns = {"night": night, "row": row, "x": x, "truth": truth, **people, **changes}
    pq.write_table(pa.table(columns), folder / "nights.parquet")
    return folder


@pytest.fixture
def spec(tmp_path):
    return toy_study(tmp_path, DATASET + NOISE + IGNORE).datasets[0]


def test_each_annotator_and_fold_is_a_run_and_the_folds_are_fleets(tmp_path):
    study = toy_study(tmp_path, "draws = 7\n" + DATASET + NOISE + IGNORE)
    plans = list(plan_fleets(study, 64))
    assert study.n_runs == 9
    assert [[(run.annotator, run.fold) for run in plan.runs] for plan in plans] == [
        [(name, fold) for name in ("ann", "bob", "cem")] for fold in range(3)
    ]


def test_folds_test_every_window_once_and_keep_nights_together(tmp_path, spec):
    splits = load_folds(spec, write_nights(tmp_path))
    assert sorted(name for split in splits for name in split.test.ids) == sorted(np.repeat(np.arange(9), 4))
    for train, test in splits:
        assert not set(train.ids) & set(test.ids)
        assert train.annotators == ("ann", "bob", "cem")


def test_values_of_no_class_are_gaps_and_drop_no_row(tmp_path, spec):
    splits = load_folds(spec, write_nights(tmp_path))
    parts = [part for part in splits[0] if 0 in part.ids]
    first = parts[0].take([parts[0].ids.index(0)])
    np.testing.assert_array_equal(first.labels[0, 5], [-1, *first.labels[0, 5, 1:]])
    assert first.lengths[0] == 10
    np.testing.assert_allclose(first.clock[0], [0.25] * 5 + [0.75] * 5)


def test_the_majority_is_missing_where_votes_tie():
    labels = np.array([[0, 0, 1], [0, 1, -1], [-1, -1, -1], [2, -1, -1], [2, 2, 1]])
    np.testing.assert_array_equal(majority(labels, 3), [0, -1, -1, 2, 2])


def test_agreement_needs_everyone(tmp_path, spec):
    train = load_folds(spec, write_nights(tmp_path))[0].train
    labels = train.labels.copy()
    labels[0, :3] = [[1, 1, 1], [1, 1, 0], [-1, 1, 1]]
    found = compare_with_others("agreement", "ann", replace(train, labels=labels))
    np.testing.assert_array_equal(found.reference[0, :3], [1, -1, -1])
    np.testing.assert_array_equal(found.others[0, :3], [1, -1, 1])
    np.testing.assert_array_equal(
        compare_with_others("majority", "ann", replace(train, labels=labels)).reference, found.others
    )


def test_the_noise_that_was_counted_is_at_no_distance_from_itself(tmp_path, spec):
    """A slow count over steps, given back by an estimator whose Q it is."""
    split = load_folds(spec, write_nights(tmp_path, n_nights=60))[0]
    compared, (edges, _) = compare_with_others("majority", "ann", split.train), clock_bins(split)
    moments = np.unique(split.train.clock)
    matrices = np.zeros((len(moments), 2, 2))
    for recorded, other, moment in np.stack([compared.recorded, compared.others, split.train.clock], -1).reshape(-1, 3):
        if recorded >= 0 and other >= 0:
            matrices[moments == moment, int(other), int(recorded)] += 1
    matrices /= matrices.sum(-1, keepdims=True)

    class Told:
        def noise_at(self, clock):
            return FixedNoise(matrices[None], moments).at(clock)

    counts, observed, estimated = compare_noise(Told(), compared, split.train, edges)
    assert counts.sum() == ((compared.recorded >= 0) & (compared.others >= 0)).sum()
    seen = counts.sum((1, 2)) > 0  # fewer moments than cells here
    assert seen.sum() == len(moments) < CLOCK_BINS
    np.testing.assert_allclose(observed[seen], estimated[seen], atol=1e-6)


class Seer:
    """Predicts of another annotator's label what two others recorded, half a chance each."""

    cross_fits = True

    def __init__(self, others):
        self.another = np.eye(2)[others.clip(0)].mean(-2)  # (n, steps, classes)

    def noise_at(self, clock):
        return np.tile(np.eye(2), (len(clock), 1, 1))

    def audit(self, X, y, clock, lengths):
        labels, mask, rates = y[..., None], y >= 0, np.full((*y.shape, 2), 0.1)
        return LabelAudit(np.arange(2), labels, clock, mask, self.another, self.another, rates, another=self.another)


def test_what_two_others_recorded_predicts_the_counts_against_each_of_them(tmp_path, spec):
    split = load_folds(spec, write_nights(tmp_path, n_nights=60))[0]
    compared, (edges, _) = compare_with_others("majority", "ann", split.train), clock_bins(split)
    told = Seer(split.train.labels[..., 1:])
    counts, observed, _ = compare_noise(told, compared, split.train, edges)
    counted = CountedNoise(edges, observed, counts.sum((1, 2)) / counts.sum())
    found = measure_disagreement(told, "majority", "ann", split.train, counted)
    recorded, others = split.train.labels[..., :1], split.train.labels[..., 1:]
    assert set(found) == set(DISAGREEMENT)
    assert found["expert_pairs_frobenius"] == pytest.approx(0, abs=1e-9)
    assert found["expert_frobenius"] > 0.02  # ties of the two are not counted
    assert found["contested"] == pytest.approx(found["contested_observed"])
    assert found["contested_observed"] == pytest.approx((recorded != others)[recorded[..., 0] >= 0].mean())
    assert measure_disagreement(told, "clean", "ann", split.train, counted) == {}
    assert measure_disagreement(METHODS["ignore"](), "majority", "ann", split.train, counted) == {}


@pytest.mark.parametrize(
    ("dataset", "name"),
    [*((DATASET, name) for name in METHODS if name != "known"), (CLEAN_COLUMN, "continuous")],
)
def test_no_fit_changes_with_the_reference(tmp_path, monkeypatch, dataset, name):
    """The other annotators of every part, or clean labels, are turned round: nothing learned or predicted changes."""
    study = toy_study(tmp_path, dataset + NOISE + f"[methods.{name}]\n")
    write_nights(tmp_path)
    plan = next(plan_fleets(study, 1))  # ann alone, so that no other label is anyone's
    split = load_folds(study.datasets[0], tmp_path)[0]

    def turned(part):
        labels = part.labels.copy()
        labels[..., 1:] = 1 - labels[..., 1:]
        return replace(part, labels=labels)

    found = []
    predict = run_fleet.predict_fleet
    for one in (split, Split(*map(turned, split))):
        seen = []
        monkeypatch.setattr(run_fleet, "load_once", lambda *_, one=one: one)
        monkeypatch.setattr(run_fleet, "predict_fleet", lambda *a, seen=seen: seen.append(predict(*a)) or seen[-1])
        records = run_fleet.run_fleet(plan, tmp_path, tmp_path / "unfinished", "cpu")
        found.append(([probabilities.tolist() for probabilities in seen], records[0]))
    assert found[0][0] == found[1][0]
    metrics = [record["metrics"] for _, record in found]
    assert metrics[0]["test_error"] != metrics[1]["test_error"]
    assert metrics[0]["wrong_labels"] != metrics[1]["wrong_labels"]
    assert (set(DISAGREEMENT) <= set(metrics[0])) == (name == "tide")
    if name == "tide":
        assert metrics[0]["contested"] == metrics[1]["contested"]


def test_a_study_of_recorded_labels_runs_and_resumes(tmp_path):
    study = toy_study(tmp_path, DATASET + NOISE + IGNORE)
    write_nights(tmp_path)
    for _ in range(2):
        run_study(study, tmp_path, tmp_path / "out", device="cpu")
    records = list(read_records(tmp_path / "out"))
    assert len(records) == 9
    for record in records:
        assert record["shape"] == record["variant"] == "recorded"
        assert record["dataset_info"]["reference"] == "agreement"
        assert record["dataset_info"]["clock"] == "hours"
        assert record["metrics"]["frobenius"] >= 0
        assert len(record["clock"]) == len(record["true_noise"]) == len(record["noise"]) == CLOCK_BINS
    drifting = [record["rate"] for record in records if record["level"] == {"annotator": "ann"}]
    steady = [record["rate"] for record in records if record["level"] == {"annotator": "bob"}]
    assert min(drifting) > max(steady)


def test_with_a_clean_column_only_the_noisy_one_is_learned_from_and_the_clean_one_measures(tmp_path):
    study = toy_study(tmp_path, CLEAN_COLUMN + NOISE + IGNORE)
    write_nights(tmp_path)
    assert [run.annotator for plan in plan_fleets(study, 64) for run in plan.runs] == ["ann"] * 3
    run_study(study, tmp_path, tmp_path / "out", device="cpu")
    records = list(read_records(tmp_path / "out"))
    assert study.n_runs == len(records) == 3
    for record, split in zip(records, load_folds(study.datasets[0], tmp_path), strict=True):
        recorded, truth = np.moveaxis(split.train.labels, -1, 0)
        assert split.train.annotators == ("ann", "truth")
        assert record["dataset_info"]["reference"] == "clean"
        assert record["metrics"]["wrong_labels"] == pytest.approx((recorded != truth)[recorded >= 0].mean())


def test_features_are_made_before_rows_are_left_out(tmp_path, spec):
    table = pa.table(
        {
            "night": ["a", "b", "a", "b", "a", "a"],
            "row": [0, 0, 1, 1, 2, 3],
            "x": [0.0, 5.0, 3.0, 5.0, 3.0, 9.0],
            "y": [0.0, 0.0, 4.0, 0.0, 4.0, 4.0],
            "kind": [1, 2, 1, 1, 2, 1],
            "in": [True, True, False, True, True, True],
        }
    )
    made = replace(
        spec,
        features=(),
        moved={"far": {"columns": ("x", "y"), "rows": 2}},
        levels=("kind",),
        keep={"in": True},
        every=2,
        clock={"per": 2, "step": 0.5, "name": "hours"},
    )
    found, names = derive(made, table)
    assert names == ["far", "kind 1", "kind 2"]
    assert found["night"].to_pylist() == ["a", "a", "b"]
    assert found["row"].to_pylist() == [0, 3, 0]
    np.testing.assert_allclose(found["far"].to_numpy(), np.log1p([0, 6, 0]))
    assert found["kind 1"].to_pylist() == [1, 1, 0]
    np.testing.assert_allclose(found["_clock"].to_numpy(), [0.25, 1.75, 0.25])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('["ann", "bob", "cem"]', '["ann"]', "at least two columns"),
        ("folds = 3", "test = 0.2", "needs split = { by = COLUMN, folds = NUMBER }"),
        ("folds = 3", "folds = 1", "split.folds must be"),
        ('annotators = ["ann", "bob", "cem"]', 'label = "ann"', "Name 'annotators'"),
        ('features = ["x"]', 'features = ["bob"]', "must not hold 'bob', the column of labels"),
        ('features = ["x"]', 'features = ["x"]\nlabel = "ann"', "Take out: label."),
        ('features = ["x"]', 'features = ["x"]\nreference = "truth"', "Choose one of: agreement, majority."),
        ('features = ["x"]', "moved.far = { rows = 2 }", "needs the key columns"),
        ("[[noise]]", "[[noise]]\nrates = [0.3]", "Unknown key in [[noise]] of shape 'recorded'"),
        ('shape = "recorded"', 'shape = "static"\nrates = [0.3]', "have [[noise]] of shape 'recorded' and no other"),
        (IGNORE, "[methods.known]\n", "is given the truth, which nobody knows"),
        (IGNORE, '[methods.clean]\nmethod = "tide"\nclean = true\n', "is given the truth, which nobody knows"),
    ],
)
def test_what_makes_no_sense_is_named(tmp_path, old, new, message):
    text = DATASET + NOISE + IGNORE
    assert old in text
    with pytest.raises(ValueError, match=r"toy\.toml") as caught:
        toy_study(tmp_path, text.replace(old, new))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('clean = "truth"', 'clean = "ann"', "clean must be another column than 'label'"),
        ('clean = "truth"', 'clean = "truth"\nannotators = ["ann", "bob"]', "Take out: annotators."),
        ('clean = "truth"', 'clean = "truth"\nreference = "majority"', "Take out: reference."),
        ('clean = "truth"', 'clean = "truth"\ntrim = { value = 0, rows = 1 }', "Take out: trim."),
        ('clean = "truth"', 'clean = "truth"\nlevels = ["truth"]', "must not hold 'truth', the column of labels"),
        ("folds = 3", "test = 0.2", "has 'clean' and needs split = { by = COLUMN, folds = NUMBER }"),
        (IGNORE, "[methods.known]\n", "which [datasets.'nights'] keeps for measuring"),
    ],
)
def test_what_makes_no_sense_beside_a_clean_column_is_named(tmp_path, old, new, message):
    text = CLEAN_COLUMN + NOISE + IGNORE
    assert old in text
    with pytest.raises(ValueError, match=r"toy\.toml") as caught:
        toy_study(tmp_path, text.replace(old, new))
    assert message in str(caught.value)


def test_recorded_noise_needs_annotators(tmp_path):
    simulated = "[datasets.toy]\nsimulate = { n = 14 }\n"
    with pytest.raises(ValueError, match="data sets with 'annotators', and only they"):
        toy_study(tmp_path, simulated + NOISE + IGNORE)


def test_more_folds_than_nights_are_named(tmp_path, spec):
    with pytest.raises(ValueError, match="there is only 2 values of 'night', and a split needs 3: one for each fold"):
        load_folds(spec, write_nights(tmp_path, n_nights=2))
