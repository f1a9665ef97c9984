"""Exported models give our probabilities, in a fresh process, at lengths that the export has not seen."""

import json
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

import labeltide as lt
from labeltide._fleet import stack
from labeltide.exporting import onnx as onnx_check
from labeltide.exporting.onnx import TOLERANCE, OnnxSource, export_onnx, find_source
from labeltide.tables.features import Encoder

MODELS = ("gru", "tcn", "linear")
FEATURES = 3


def fitted(model="gru", causal=True, networks=3, sharpness=3.0, standardize=True):
    """An ensemble whose weights are far from their small initial values, so that errors of the graph show."""
    random = np.random.default_rng(0)
    X = random.normal(size=(12, 20, FEATURES)).astype(np.float32)
    y = np.array(["rest", "walk", "run"])[(X[..., 0] > 0).astype(int) + (X[..., 1] > 0.5)]
    options = {"model": model, "causal": causal, "epochs": 1, "hidden_size": 8, "device": "cpu"}
    options["standardize"] = standardize
    estimators = [lt.IgnoreClassifier(**options, random_state=seed).fit(X, y) for seed in range(networks)]
    estimators[0].model_ = stack([estimator.model_ for estimator in estimators])
    with torch.no_grad():
        for parameter in estimators[0].model_.parameters():
            parameter.mul_(sharpness)
    return estimators[0]


def session(path):
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("model", MODELS)
def test_every_model_of_ours_gives_the_same_probabilities(model, causal, tmp_path):
    estimator = fitted(model, causal)
    result = export_onnx(estimator, tmp_path / "model.onnx")
    assert result.difference < TOLERANCE
    assert (result.step is not None) == (model == "gru" and causal)
    X = np.random.default_rng(1).normal(size=(2, 123, FEATURES))
    lengths = np.array([123, 31])
    given = {"features": X} | ({} if estimator.model_.is_causal else {"lengths": lengths})
    (theirs,) = session(result.whole).run(None, given)
    ours = estimator.predict_proba(X, lengths)
    assert ours.std() > 0.1  # not all alike
    real = np.arange(123) < lengths[:, None]
    assert np.abs(theirs - ours)[real].max() < TOLERANCE
    if not estimator.model_.is_causal:
        assert not theirs[~real].any()


def test_steps_of_a_gru_with_their_state_give_what_whole_sequences_do(tmp_path):
    estimator = fitted()
    result = export_onnx(estimator, tmp_path / "model.onnx")
    X = np.random.default_rng(2).normal(size=(2, 150, FEATURES))
    one = session(result.step)
    shape = [{"streams": 2}.get(size, size) for size in one.get_inputs()[1].shape]
    state, steps = np.zeros(shape, np.float32), []
    for step in range(X.shape[1]):
        probabilities, state = one.run(None, {"features": X[:, step], "state": state})
        steps.append(probabilities)
    assert np.abs(np.stack(steps, 1) - estimator.predict_proba(X)).max() < TOLERANCE


@pytest.mark.parametrize(("model", "causal"), [("gru", False), ("linear", True)])
def test_what_looks_ahead_or_has_no_state_gets_no_step(model, causal, tmp_path):
    assert export_onnx(fitted(model, causal, 1), tmp_path / "model.onnx").step is None
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".json", ".md", ".onnx"]


def test_metadata_names_the_classes_and_the_card_says_how_it_was_checked(tmp_path):
    result = export_onnx(fitted(), tmp_path / "model.onnx")
    properties = {entry.key: entry.value for entry in onnx.load(result.whole).metadata_props}
    assert json.loads(properties["classes"]) == ["rest", "run", "walk"]
    assert properties["networks"] == "3"
    described = json.loads(result.json.read_text())
    assert described["classes"] == ["rest", "run", "walk"]
    assert np.shape(described["noise"]["matrices"])[1:] == (3, 3)
    card = result.card.read_text()
    assert "fresh process" in card
    assert "rest, run, walk" in card
    assert str(result.whole) in str(result)


def test_scaling_of_an_audit_is_inside_the_graph_and_levels_are_left_alone(tmp_path):
    encoders = (
        Encoder(
            "unix time", ("unix time",), (), 1.7e9, 3600.0, 1.7e9 - 1e4, 1.7e9 + 1e4
        ),  # float32 has steps of 128 here
        Encoder("<b>|hand", ("<b>|hand=left",), ("right", "left")),
        Encoder("pulse", ("pulse",), (), 70.0, 12.0, 30.0, 200.0),
    )
    audit = {
        "table": {"name": "a\n# b", "rows": 5, "sequences": 1, "labels": 5},
        "noise": {"rate": 0.1, "rate_lower": 0.05, "rate_upper": 0.2},
    }
    estimator = fitted(networks=1, standardize=False)
    source = OnnxSource("study", estimator, encoders, audit)
    from labeltide.exporting import onnx as module

    original = module.find_source
    module.find_source = lambda _: source
    try:
        result = export_onnx("study", tmp_path / "study.onnx")
    finally:
        module.find_source = original
    assert result.difference < TOLERANCE
    raw = np.array([[[1.7e9 + 123.4, 1.0, 300.0]]])
    encoded = np.array([[[123.4 / 3600, 1.0, (200 - 70) / 12]]])
    assert np.abs(session(result.whole).run(None, {"features": raw})[0] - estimator.predict_proba(encoded)).max() < 1e-5
    card = result.card.read_text()
    assert "10.0% (95 % interval 5.0% to 20.0%)" in card
    assert "&lt;b&gt;\\|hand" in card
    assert "a \\# b" in card


def test_a_model_that_differs_is_not_kept(tmp_path, monkeypatch):
    estimator = fitted(networks=1)
    monkeypatch.setattr(onnx_check, "TOLERANCE", 1e-12)
    with pytest.raises(ValueError, match=r"differ from ours by .* No file was kept"):
        export_onnx(estimator, tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_what_onnxruntime_cannot_run_is_a_sentence():
    with pytest.raises(ValueError, match="onnxruntime could not run"):
        onnx_check.run_fresh(b"nonsense", {"features.0": np.zeros((1, 1, 1), np.float32)})


def test_wrong_requests_are_refused_with_a_sentence(tmp_path):
    estimator = fitted("linear", networks=1)
    with pytest.raises(ValueError, match=r"must end in .onnx"):
        export_onnx(estimator, tmp_path / "model.pt")
    (tmp_path / "model.md").write_text("mine")
    with pytest.raises(ValueError, match="must be new"):
        export_onnx(estimator, tmp_path / "model.onnx")
    with pytest.raises(ValueError, match="needs a saved model"):
        export_onnx(3)
    with pytest.raises(ValueError, match="must be the folder of an audit"):
        export_onnx(tmp_path)
    own = lt.IgnoreClassifier(model=lambda f, c: torch.nn.Linear(f, c), epochs=1, device="cpu")
    X = np.random.default_rng(0).normal(size=(4, 5, 2))
    own.fit(X, (X[..., 0] > 0).astype(int))
    with pytest.raises(ValueError, match="a module of the user's own"):
        export_onnx(own, tmp_path / "own.onnx")
    own.save(tmp_path / "own.safetensors")
    with pytest.raises(
        ValueError, match=r"own.safetensors has another one, .* user's own, which runs in Python alone: "
    ):
        export_onnx(tmp_path / "own.safetensors")


def test_a_file_that_is_no_model_is_named(tmp_path):
    (tmp_path / "table.csv").write_text("a,b")
    with pytest.raises(ValueError, match=r"table.csv' is not a model that labeltide saved"):
        export_onnx(tmp_path / "table.csv")


def test_a_saved_model_is_found_by_its_file_and_computes_on_the_cpu(tmp_path):
    estimator = fitted("linear", networks=1)
    estimator.save(tmp_path / "kept.safetensors")
    found = find_source(tmp_path / "kept.safetensors")
    assert (found.name, found.estimator.device) == ("kept", "cpu")
    np.testing.assert_array_equal(found.scaling, estimator.scaling_)


def test_the_fresh_process_loads_no_torch():
    code = "import sys, labeltide.exporting.onnx_runner; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
