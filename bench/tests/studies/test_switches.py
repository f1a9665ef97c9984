"""Switches of a study: published settings, one draw of noise, mixed noise of the text, own shapes and methods."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone

import labeltide as lt
from labeltide_bench.pages.report import write_report
from labeltide_bench.studies import read_records, run_study
from labeltide_bench.studies.plan import plan_fleets
from labeltide_bench.studies.run_fleet import load_once, record_labels
from labeltide_bench.studies.study import part_of
from studies.toys import DATASET, METHODS, NOISE, STUDY, timeless, toy_study

names = itertools.count()


def runs_of(study):
    return [run for plan in plan_fleets(study, 100) for run in plan.runs]


def own_module(folder: Path, code: str) -> str:
    """A module beside the study, under a name that no other test has imported."""
    name = f"own_module_{next(names)}"
    (folder / f"{name}.py").write_text(code)
    return name


@pytest.mark.parametrize("source", ["text", "code"])
def test_a_method_with_published_settings_has_those_of_its_data_set(tmp_path, source):
    dataset = DATASET.replace("datasets.toy", "datasets.blinking") + '\n[datasets.short]\nlike = "blinking"\n'
    method = f'[methods.published]\nmethod = "continuous"\nsettings = "{source}"\nlinear = 2\n'
    study = toy_study(tmp_path, "draws = 1\n" + dataset + NOISE + method)
    for spec in study.datasets:
        expected = lt.published_settings("continuous", source, "blinking") | {"linear": 2} | dict(spec.settings)
        assert study.methods[0].settings_for(spec) == expected


@pytest.mark.parametrize("source", ["text", "code"])
def test_a_fit_of_the_code_that_is_not_finite_has_no_q_and_predicts_the_first_class(tmp_path, source):
    method = f'[methods.continuous]\nsettings = "{source}"\nlearning_rate = 1e30\n'
    study = toy_study(tmp_path, "draws = 1\n" + DATASET + NOISE + method)
    records = list(read_records(run_study(study, tmp_path, tmp_path / "out")))
    split = load_once(study.datasets[0], tmp_path)
    for record in records:
        metrics, constant = record["metrics"], float((split.test.labels != 0).mean())
        assert (metrics["absolute"] is None) == (source == "code")
        assert (metrics["test_error"] == pytest.approx(constant)) == (source == "code")


def test_settings_that_nobody_published_are_refused(tmp_path):
    for method, message in (
        ('[methods.tide]\nsettings = "code"', "method of the paper"),
        ('[methods.ignore]\nsettings = "x"', "source"),
    ):
        with pytest.raises(ValueError, match=rf"settings: Unknown {message}"):
            toy_study(tmp_path, "draws = 1\n" + DATASET + NOISE + method)


def test_false_in_a_study_file_is_none_for_parameters_that_are_not_flags(tmp_path):
    method = "[methods.ignore]\nclip = false\nearly_stopping = false\n"
    study = toy_study(tmp_path, "draws = 1\n" + DATASET + NOISE + method)
    settings = study.methods[0].settings_for(study.datasets[0])
    assert settings["clip"] is None
    assert settings["early_stopping"] is False


def test_with_the_same_noise_draws_differ_in_the_initialisation_alone(tmp_path):
    study = toy_study(tmp_path, "same_noise = true\n" + STUDY)
    runs = runs_of(study)
    assert len({run.key for run in runs}) == len(runs) == study.n_runs
    train = load_once(study.datasets[0], tmp_path).train
    first, second = (record_labels(run, train).recorded for run in runs[:2])
    assert (runs[0].draw, runs[1].draw) == (0, 1)
    np.testing.assert_array_equal(first, second)
    records = list(read_records(run_study(study, tmp_path, tmp_path / "out", device="cpu")))
    by_draw = [record["noise"] for record in records if record["method"] == "plugin" and record["level"]["rate"] == 0.2]
    assert len(by_draw) == 2
    assert by_draw[0] != by_draw[1]


def test_mixed_noise_with_classes_reversed_is_that_of_the_papers_text(tmp_path):
    noise = '[[noise]]\nshape = "mixed"\nrates = [0.29]\nvariants = ["uniform", "classes reversed"]\n'
    code, text = (spec.make(2, 100) for spec in toy_study(tmp_path, "draws = 1\n" + DATASET + noise + METHODS).noise)
    rate = np.diff(1 - np.diagonal(np.asarray(code), axis1=1, axis2=2), axis=0).mean(0)
    assert rate[0] < 0 < rate[1]  # the code: class 0 falls, class 1 grows
    np.testing.assert_array_equal(np.asarray(text)[:, 0, 0], np.asarray(code)[:, 1, 1])
    np.testing.assert_array_equal(np.asarray(text)[:, 1, 0], np.asarray(code)[:, 0, 1])


def test_the_rounded_error_is_that_of_the_papers_code(tmp_path):
    """Its arg max of rounded probabilities takes class 0 where no class has more than one half."""
    dataset = "[datasets.toy]\nsimulate = { n = 20, n_steps = 6, n_features = 2, n_classes = 3, variance = 9.0 }\n"
    text = "draws = 1\n" + dataset + NOISE + "[methods.ignore]\nepochs = 1\n"
    study = toy_study(tmp_path, text)
    for record in read_records(run_study(study, tmp_path, tmp_path / "out", device="cpu")):
        run = next(run for run in runs_of(study) if run.key == record["key"])
        split = load_once(study.datasets[0], tmp_path)
        clf = lt.IgnoreClassifier(epochs=1, standardize=False, device="cpu", random_state=0)
        clf.fit(split.train.features, record_labels(run, split.train).recorded)
        wrong = 0
        for row, labels in zip(clf.predict_proba(split.test.features), split.test.labels[..., 0], strict=True):
            for probabilities, label in zip(row, labels, strict=True):
                over_half = [code for code in range(3) if probabilities[code] > 0.5]
                wrong += (over_half[0] if over_half else 0) != label
        assert record["metrics"]["test_error_rounded"] == pytest.approx(wrong / split.test.labels.size)
        assert record["metrics"]["test_error_rounded"] != record["metrics"]["test_error"]


SAWTOOTH = """
import numpy as np

def sawtooth(n_classes, n_steps, rate=0.3, teeth=2):
    rates = 2 * rate * (np.arange(n_steps) * teeth / n_steps % 1)
    rates, identity = rates[:, None, None], np.eye(n_classes)
    return (1 - rates) * identity + rates / (n_classes - 1) * (1 - identity)
"""


def test_a_study_draws_from_a_noise_shape_of_the_users_own(tmp_path):
    module = own_module(tmp_path, SAWTOOTH)
    noise = f'[[noise]]\nshape = "{module}:sawtooth"\nrates = [0.2]\n'
    noise += f'[[noise]]\nshape = "{module}:sawtooth"\nconstants = [{{ rate = 0.1, teeth = 3 }}]\n'
    study = toy_study(tmp_path, "draws = 1\n" + DATASET + noise + "[methods.ignore]\n")
    records = list(read_records(run_study(study, tmp_path, tmp_path / "out", device="cpu")))
    assert [record["shape"] for record in records] == [f"{module}:sawtooth"] * 2
    assert records[0]["true_noise"][3][0][1] == 0.0
    assert records[0]["true_noise"][1][0][1] == pytest.approx(0.4 / 3, abs=1e-3)
    assert write_report(tmp_path / "out").exists()


OWN_METHOD = """
from labeltide.estimators import NoisyLabelClassifier
from labeltide.estimators.fleet import FittedFleet
from labeltide.noise.functions import identity_noise
from labeltide.training.objective import Objective

class Twice(NoisyLabelClassifier):
    name = "twice"
    passes: int = 2
    def _fit_fleet(self, fleet_fit):
        model = fleet_fit.new_model()
        for number in range(self.passes):
            history = fleet_fit.train(model, None, Objective(), stage=f"pass {number}")
        return FittedFleet(model, identity_noise(fleet_fit.members, fleet_fit.n_classes), history)
"""


def test_a_study_fits_a_method_of_the_users_own(tmp_path):
    module = own_module(tmp_path, OWN_METHOD)
    method = f'[methods.mine]\nmethod = "{module}:Twice"\npasses = 3\n'
    study = toy_study(tmp_path, "draws = 1\n" + DATASET + NOISE + method)
    records = list(read_records(run_study(study, tmp_path, tmp_path / "out", device="cpu")))
    assert {(record["method"], record["estimator"]) for record in records} == {("mine", f"{module}:Twice")}
    assert write_report(tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ('[[noise]]\nshape = "sawtooth"\nrates = [0.2]', "Or name your own as 'module:name', with module.py beside"),
        ('[[noise]]\nshape = "missing_module:sawtooth"\nrates = [0.2]', "cannot be imported: No module named"),
        ('[[noise]]\nshape = "math:sawtooth"\nrates = [0.2]', "cannot be imported"),
        ('[[noise]]\nshape = "math:pow"\nrates = [0.2]', "cannot be called with"),
        ('[[noise]]\nshape = "math:comb"\nconstants = [{}]', "must give Q of shape"),
        ('[[noise]]\nshape = "math:comb"\nrates = "paper"', "for the shapes of the paper"),
        ('[methods.own]\nmethod = "mine"', "Or name your own"),
        ('[methods.own]\nmethod = "math:pow"', "must be a subclass of"),
    ],
)
def test_what_cannot_be_used_is_refused_with_the_way_out(tmp_path, part, message):
    rest = METHODS if part.startswith("[[noise") else NOISE
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        toy_study(tmp_path, "draws = 1\n" + DATASET + part + "\n" + rest)


def test_parts_of_a_study_fill_one_folder_with_the_records_of_the_whole(tmp_path):
    study = toy_study(tmp_path)
    for part in (part_of(study, methods=["plugin"]), part_of(study, ["toy"], ["ignore", "told"], 1), study):
        run_study(part, tmp_path, tmp_path / "parts", device="cpu")
    run_study(study, tmp_path, tmp_path / "whole", device="cpu")
    assert timeless(tmp_path / "parts").keys() == timeless(tmp_path / "whole").keys()
    with pytest.raises(ValueError, match="Unknown method 'tide'"):
        part_of(study, methods=["tide"])
    with pytest.raises(ValueError, match="draws must be a whole number"):
        part_of(study, draws=3)


@pytest.mark.parametrize("source", ["text", "code"])
@pytest.mark.parametrize("method", ["ignore", "known", "anchor", "plugin", "volmin", "discontinuous", "continuous"])
def test_published_settings_are_parameters_that_survive_cloning(method, source):
    settings = lt.published_settings(method, source, "synthetic")
    estimator = clone(lt.METHODS[method](**settings))
    assert settings.items() <= estimator.get_params().items()
    assert (estimator.clip, estimator.max_restarts, estimator.batch_size) == (None, 0, 256)


def test_the_weight_of_the_diagonal_is_that_of_the_data_set():
    weights = {"moving": 0.05, "senior": 0.01, "blinking": 0.001, "sleeping": 0.01, "synthetic": 0.05}
    for name, weight in weights.items():
        assert lt.published_settings("continuous", "code", name)["diagonal_weight"] == weight
        assert "diagonal_weight" not in lt.published_settings("continuous", "text", name)


@pytest.mark.parametrize(
    ("given", "message"),
    [(("tide",), "method of the paper"), (("ignore", "print"), "source"), (("ignore", "code", "iris"), "data set")],
)
def test_what_the_paper_does_not_have_is_refused(given, message):
    with pytest.raises(ValueError, match=message):
        lt.published_settings(*given)
