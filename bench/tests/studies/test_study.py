"""Whatever is wrong in a study file is said before anything runs, with its key and the choices."""

from dataclasses import replace
from pathlib import Path

import pytest

from labeltide.noise.simulate import LEVELS
from labeltide_bench.studies import read_study, run_study
from labeltide_bench.studies.plan import plan_fleets
from labeltide_bench.studies.records import read_records
from studies.toys import DATASET, METHODS, NOISE, STUDY, TABLE, our_study, toy_study, write_study

STUDIES = sorted(Path(__file__).parents[2].joinpath("studies").glob("*.toml"))


def refusal(tmp_path, text: str) -> str:
    with pytest.raises(ValueError, match=r"toy\.toml") as caught:
        toy_study(tmp_path, text)
    return str(caught.value)


def test_a_study_has_a_run_for_every_combination(tmp_path):
    study = toy_study(tmp_path)
    assert study.n_runs == 1 * 2 * 3 * 2
    assert study.text == STUDY


def test_settings_of_the_pair_hold_over_those_of_method_and_data_set(tmp_path):
    pair = '[methods.plugin.datasets.toy]\nlearning_rate = 0.5\n[datasets."toy again"]\nlike = "toy"\n'
    study = toy_study(tmp_path, STUDY + pair)
    plugin = study.methods[1]
    assert plugin.settings_for(study.datasets[0])["learning_rate"] == 0.5
    assert plugin.settings_for(study.datasets[1])["learning_rate"] == 0.5, "also for what is like it"
    assert plugin.settings_for(study.datasets[0])["hidden_size"] == 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("draws = 0\n" + DATASET + NOISE + METHODS, "draws must be a whole number at least 1. Got 0."),
        ('draws = "2"\n' + DATASET + NOISE + METHODS, "draws must be a whole number at least 1. Got '2'."),
        ("title = 3\n" + DATASET + NOISE + METHODS, "title must be a text in quotes. Got 3."),
        ("color = 1\n" + STUDY, "Unknown key in the study: color. Choose from: title, description, draws,"),
        (DATASET + METHODS, "The study needs at least one entry under 'noise'."),
        ("datasets = 3\n" + NOISE + METHODS, "[datasets] must be a table of keys and values. Got 3."),
        ("methods = 3\n" + DATASET + NOISE, "[methods] must be a table of keys and values. Got 3."),
        ("noise = 3\n" + DATASET + METHODS, "noise must be a list of tables, each under a line [[noise]]"),
        (STUDY.replace("[[noise]]", "[noise]"), "noise must be a list of tables, each under a line [[noise]]"),
        ("draws = \n" + STUDY, "is not valid TOML"),
        ("clip = None\n" + STUDY, "TOML has no None: write false"),
        ("draws = " + "[" * 5000, "is nested too deeply to be a study"),
    ],
)
def test_a_wrong_study_is_named(tmp_path, text, message):
    assert message in refusal(tmp_path, text)


@pytest.mark.parametrize(
    ("noise", "message"),
    [
        ('shape = "wavy"', "Unknown noise shape 'wavy'. Choose one of: static, linear, decay"),
        ("rates = [0.3]", "Unknown noise shape None. Choose one of: static"),
        ('shape = "mixed"', "it needs either 'rates' or 'constants'"),
        ('shape = "mixed"\nrates = 0.3', "rates must be a list of at least one value, in [ ]. Got 0.3."),
        ('shape = "mixed"\nrates = []', "rates must be a list of at least one value, in [ ]. Got []."),
        ('shape = "mixed"\nrates = ["a"]', "rate must be a number at least 0. Got 'a'."),
        ('shape = "mixed"\nrates = [0.8]', "with [datasets.'toy'] (2 classes, uniform): The rate must be at most 0.49"),
        ('shape = "static"\nconstants = [0.3]', "every level of constants must be a table"),
        ('shape = "static"\nconstants = [{ b = 1 }]', "Unknown constants of static noise: b. Choose from: a."),
        ('shape = "static"\nconstants = [{ a = 1.5 }]', "The rates of leaving a class must lie in [0, 1)."),
        (
            'shape = "static"\nrates = [0.1]\nvariants = ["odd"]',
            "one of: uniform, class-conditional, classes reversed,",
        ),
        ('shape = "static"\nrates = [0.1]\nvariants = "uniform"', "variants must be a list of at least one value"),
        ('shape = "static"\nrates = [0.1]\ndatasets = ["tex"]', "datasets 'tex'. Choose one of: toy."),
        ('shape = "static"\nrates = [0.1, 0.1]', "is there 2 times for [datasets.'toy']."),
        ('shape = "static"\nlevels = [0.1]', "Unknown key in [[noise]]: levels. Choose from: shape, rates,"),
    ],
)
def test_wrong_noise_is_named(tmp_path, noise, message):
    assert message in refusal(tmp_path, DATASET + METHODS + "[[noise]]\n" + noise)


def test_the_rates_of_the_paper_are_all_its_levels_with_its_constants(tmp_path):
    paper = NOISE.replace("[0.2, 0.3]", '"paper"')
    noise = toy_study(tmp_path, DATASET + METHODS + paper).noise
    assert [spec.level["rate"] for spec in noise] == [percent / 100 for percent in LEVELS[noise[0].shape]]


def test_a_data_set_without_noise_is_named(tmp_path):
    other = '[datasets.other]\nlike = "toy"\n'
    assert "[datasets.'other'] has no [[noise]]." in refusal(
        tmp_path, DATASET + other + METHODS + NOISE + 'datasets = ["toy"]'
    )


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("[methods.magic]", "Unknown method in [methods.'magic'] 'magic'. Choose one of: ignore, anchor"),
        ("[methods]\nignore = 3", "[methods.'ignore'] must be a table of keys and values. Got 3."),
        ("[methods.ignore]\ndepth = 3", "Unknown setting in [methods.'ignore']: depth. Choose from:"),
        ("[methods.ignore]\ndevice = 'cpu'", "Unknown setting in [methods.'ignore']: device."),
        ("[methods.ignore]\nrandom_state = 1", "Unknown setting in [methods.'ignore']: random_state."),
        ("[methods.ignore]\nbatch_size = 'a'", "[methods.'ignore'] on [datasets.'toy']: these settings cannot be"),
        ("[methods.ignore]\nepochs = 0", "epochs must be a whole number at least 1. Got 0."),
        ("[methods.ignore]\ncausal = 'no'", "[methods.'ignore'].causal must be true or false. Got 'no'."),
        ("[methods.ignore]\nmodel = 'lstm'", "Unknown model 'lstm'. Choose one of: gru"),
        ("[methods.continuous]\nobjective = 'x'", "Unknown objective 'x'. Choose one of: lagrangian, penalised."),
        ("[methods.known]\nnoise = 'x'", "Unknown noise in [methods.'known'] 'x'. Choose one of: temporal, static."),
        ("[methods.known.datasets.toy]\nnoise = 1", "Unknown noise in [methods.'known'].datasets.'toy' 1."),
        ("[methods.ignore.datasets.tex]\nepochs = 1", "Unknown data set in [methods.'ignore'].datasets 'tex'."),
        ("[methods.ignore]\ndatasets = 3", "[methods.'ignore'].datasets must be a table"),
    ],
)
def test_a_wrong_method_is_named(tmp_path, method, message):
    assert message in refusal(tmp_path, DATASET + NOISE + method)


def test_a_method_is_fitted_to_the_variants_and_rates_that_it_names(tmp_path):
    noise = NOISE + '[[noise]]\nshape = "static"\nrates = [0, 0.3]\nvariants = ["uniform", "late 2"]\n'
    limits = {
        "ignore": "",
        "variants": 'variants = ["late 2"]',
        "rates": "rates = [0.3]",
        "both": 'variants = ["uniform"]\nrates = [0, 0.2]',
    }
    methods = "".join(f'[methods.{label}]\nmethod = "ignore"\n{limit}\n' for label, limit in limits.items())
    study = toy_study(tmp_path, "draws = 2\n" + DATASET + noise + methods)
    planned: dict[str, set[tuple[str, float, str]]] = {label: set() for label in limits}
    for run in (run for plan in plan_fleets(study, 3) for run in plan.runs):
        planned[run.method.label].add((run.noise.shape, run.noise.level["rate"], run.noise.variant))
    assert len(planned["ignore"]) == 6
    assert planned["variants"] == {("static", 0, "late 2"), ("static", 0.3, "late 2")}
    assert planned["rates"] == {noise for noise in planned["ignore"] if noise[1] == 0.3}
    assert planned["both"] == {("mixed", 0.2, "uniform"), ("static", 0, "uniform")}
    assert study.n_runs == 2 * sum(map(len, planned.values()))


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        ('without = ["magic"]', "part in [methods.'tide'].without 'magic'. Choose one of: bursts,"),
        ('without = "bursts"', "[methods.'tide'].without must be a list of at least one value"),
        ('variants = ["odd"]', "variant in [methods.'tide'].variants 'odd'. Choose one of: uniform,"),
        ("rates = 0.3", "[methods.'tide'].rates must be a list of at least one value"),
    ],
)
def test_wrong_parts_and_limits_of_a_method_are_named(tmp_path, limit, message):
    assert message in refusal(tmp_path, DATASET + NOISE + f"[methods.tide]\n{limit}")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('files = ["people.parquet"]', 'files = "people.parquet"', ".files must be a list of at least one value"),
        ('files = ["people.parquet"]', 'files = ["../people.parquet"]', "must name files below the data folder"),
        ('files = ["people.parquet"]', "", "needs exactly one of 'files', 'train' with 'test', or 'simulate'."),
        ('files = ["people.parquet"]', 'train = ["a"]', "needs exactly one of 'files', 'train' with 'test'"),
        ("window = 5", 'window = "a"', "[datasets.'people'].window must be a whole number at least 1. Got 'a'."),
        ("window = 5", "windows = 5", "Unknown key in [datasets.'people']: windows. Choose from: like, files,"),
        ("window = 5", 'keep_tail = "yes"', ".keep_tail must be true or false. Got 'yes'."),
        ("window = 5", "trim = { value = 1 }", ".trim needs the key rows."),
        ("window = 5", "trim = { value = 1, rows = -1 }", ".trim.rows must be a whole number at least 0. Got -1."),
        ("window = 5", "split = { by = 3 }", ".split.by must be a text in quotes. Got 3."),
        ("window = 5", "split = { test = 1 }", ".split.test must be a number above 0 and at most 0.9. Got 1."),
        ("window = 5", "split = { part = 1 }", "Unknown key in [datasets.'people'].split: part."),
        ("window = 5", "drop_outliers = 0", ".drop_outliers must be a number above 0. Got 0."),
        ("window = 5", 'like = "nobody"', "Unknown data set in [datasets.'people'].like 'nobody'."),
        ('features = ["x", "y"]', 'features = "x"', ".features must be a list of at least one value"),
        ('features = ["x", "y"]', 'features = ["x", "x"]', ".features must be a list of different texts"),
        ('features = ["x", "y"]', 'features = ["x", "label"]', ".features must not hold 'label', the column"),
        ('features = ["x", "y"]', "", "needs 'features', the columns to learn from."),
        ("{ still = [0], moving = [1, 2] }", "[0, 1]", ".labels must be a table of keys and values. Got [0, 1]."),
        ("{ still = [0], moving = [1, 2] }", "{ still = 0 }", ".labels.still must be a list of at least one value"),
        ("{ still = [0], moving = [1, 2] }", "{ still = [0] }", ".labels must hold at least two classes."),
        ("moving = [1, 2]", "moving = [0, 1]", "must give every value to one class. Got 0 in still and moving."),
        ("moving = [1, 2]", "moving = [[1]]", ".labels.moving must hold texts or numbers. Got [1]."),
        ('sequence = "person"', "sequence = 3", ".sequence must be a text in quotes. Got 3."),
        ("epochs = 2", "depth = 2", "Unknown setting in [datasets.'people'].settings: depth."),
        ('files = ["people.parquet"]', "simulate = { n = 5 }", "is simulated and has no columns. Take out: features,"),
    ],
)
def test_a_wrong_data_set_is_named(tmp_path, old, new, message):
    assert old in TABLE
    assert message in refusal(tmp_path, TABLE.replace(old, new) + NOISE + METHODS)


@pytest.mark.parametrize(
    ("simulate", "message"),
    [
        ("{ n = 5, m = 3 }", "Unknown key in [datasets.'toy'].simulate: m. Choose from: n, n_steps,"),
        ('{ n = "a" }', ".simulate: n must be a whole number at least 2. Got 'a'."),
        ("{ stay = 2 }", ".simulate: stay must be a number at least 0 and at most 1. Got 2."),
        ('{ random_state = "a" }', ".simulate: "),
        ("{ n = 5 }\nsplit = { by = 'person' }", "is simulated and has no columns. Take out: split.by."),
    ],
)
def test_a_wrong_simulation_is_named(tmp_path, simulate, message):
    assert message in refusal(tmp_path, f"[datasets.toy]\nsimulate = {simulate}\n" + NOISE + METHODS)


def test_like_reaches_one_data_set_far(tmp_path):
    chain = '[datasets.a]\nlike = "toy"\n[datasets.b]\nlike = "a"\n'
    assert "[datasets.'b'].like must name a data set without a 'like'" in refusal(tmp_path, STUDY + chain)


def test_a_split_beside_train_and_test_is_named(tmp_path):
    given = TABLE.replace("files", 'test = ["b"]\nsplit = { test = 0.5 }\ntrain')
    assert "has 'train' and 'test', which are its split." in refusal(tmp_path, given + NOISE + METHODS)


def test_a_study_that_is_not_there_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"There is no study file .*none\.toml"):
        read_study(tmp_path / "none.toml")


def test_a_file_that_is_no_text_is_named(tmp_path):
    path = write_study(tmp_path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match="is not valid TOML"):
        read_study(path)


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_our_own_studies_are_right_and_their_noise_is_possible(path):
    study = read_study(path)
    for dataset in study.datasets:
        for noise in study.noise_for(dataset) if not dataset.annotators else ():
            assert noise.make(dataset.n_classes, dataset.n_steps).n_classes == dataset.n_classes


def test_the_numbers_of_runs_in_the_comments_are_right():
    counts = {path.stem: our_study(path).n_runs for path in STUDIES if path.stem != "quick"}
    assert counts == {
        "annotators": (2 * 10 + 5 * 5) * 5,
        "ablation": 7 * 3 * 12 * 10,
        "class-conditional": 5 * 6 * 7 * 10,
        "heavy-noise": 5 * 12 * 3 * 10,
        "departures": 6 * 3 * 17 * 10,
        "blinking": 10 * 5 * 10,
        "three-classes": 2 * 6 * 10,
        "one-draw": 2 * 4 * 6 * 15,
        "paper-code": 10 * 58 * 4 * 5,
        "paper-figures": 10 * 58 * 7 * 10,
        "paper-published": 8 * 10 * 12 * 10,
        "paper-static": 58 * 5 * 10,
        "paper-static-code": 58 * 5 * 10,
        "paper-text": 8 * 58 * 3 * 5,
        "paper-tables": 9 * 4 * 9 * 10,
        "stress": 10 * 5,
        "tide": 6 * 13 * 8 * 10,
        "tide-ablation": 11 * (18 * 9 + 1) * 10,
        "tide-beyond": (4 * 7 + 3) * 4 * 10,
        "tide-splits": 4 * 3 * 5 * 10,
    }
    for path in STUDIES:
        if path.stem in counts:
            assert f"# {counts[path.stem]:,} runs: " in path.read_text().replace("runs:\n", "runs: \n")


def test_data_sets_of_one_name_are_the_same_in_all_our_studies():
    found: dict[str, set[str]] = {}
    for path in STUDIES:
        for spec in our_study(path).datasets:
            found.setdefault(spec.name, set()).add(repr(replace(spec, like=None, optional=False)))
    assert {name for name, forms in found.items() if len(forms) > 1} == set()


def test_a_study_may_keep_some_metrics_only(tmp_path):
    path = tmp_path / "study.toml"
    text = """
draws = 1
metrics = ["test_error", "frobenius"]
[datasets.tiny]
simulate = { n = 12, n_steps = 5, n_features = 2 }
[[noise]]
shape = "static"
rates = [0.2]
[methods.ignore]
epochs = 1
"""
    path.write_text(text)
    (record,) = read_records(run_study(read_study(path), tmp_path, tmp_path / "out"))
    assert set(record["metrics"]) == set(record["over_time"]) == {"test_error", "frobenius"}
    path.write_text(text.replace('"frobenius"', '"accuracy"'))
    with pytest.raises(ValueError, match="Unknown metric 'accuracy'"):
        read_study(path)
