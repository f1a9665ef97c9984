"""Saved files: whole, exact, and safe to open whoever wrote them."""

from __future__ import annotations

import copy
import datetime
import json
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from torch import nn

import labeltide as lt
from labeltide.estimators import NoisyLabelClassifier
from labeltide.estimators.storage import NO_DIGEST, seal
from labeltide.noise.functions import FixedNoise, StaticNoise

MATRIX = np.array([[0.9, 0.1], [0.2, 0.8]])
NETWORK = {"raw_steps": True, "scaled_weights": False, "bounded_logits": False, "noise_widths": (8, 32), "clip": None}
OWN_PARAMS = {"known": {"noise": MATRIX}, "continuous": {"objective": "penalised", **NETWORK}}


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def study() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(12, 8, 2)).astype(np.float32)
    return X, (X[..., 0] + 0.5 * rng.normal(size=(12, 8)) > 0).astype(int)


@pytest.fixture(scope="module")
def fitted(study: tuple[np.ndarray, np.ndarray]) -> NoisyLabelClassifier:
    """A small one, so that thousands of altered copies can be tried."""
    return lt.METHODS["discontinuous"](epochs=2, hidden_size=4, random_state=0).fit(*study)


@pytest.fixture(scope="module")
def saved(fitted: NoisyLabelClassifier, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("saved") / "model.labeltide"
    fitted.save(path)
    return path.read_bytes()


@pytest.fixture
def load_bytes(tmp_path: Path) -> Callable[[bytes], NoisyLabelClassifier]:
    def load(raw: bytes) -> NoisyLabelClassifier:
        (tmp_path / "altered").write_bytes(raw)
        return lt.load(tmp_path / "altered")

    return load


class PerStep(nn.Module):
    """A user's own network, with a buffer of -inf and a tensor that torch does not know of."""

    def __init__(self, n_features: int, n_classes: int) -> None:
        super().__init__()
        self.layer = nn.Linear(n_features, n_classes)
        self.register_buffer("mask", torch.full((3,), -torch.inf))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.scale = torch.tensor(3.0)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return self.layer(features) * self.scale


def parts(raw: bytes) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """The JSON and the tensors of a saved file."""
    header = json.loads(raw[8 : 8 + struct.unpack("<Q", raw[:8])[0]])
    return json.loads(header["__metadata__"]["labeltide"]), safetensors.torch.load(raw)


def join(about: Any, tensors: dict[str, torch.Tensor]) -> bytes:
    """A file with a right digest, so that the checks behind it are reached."""
    about = {**about, "sha256": NO_DIGEST} if isinstance(about, dict) else about
    raw = safetensors.torch.save(tensors, metadata={"labeltide": json.dumps(about)})
    return seal(raw) if isinstance(about, dict) else raw


def refused(load: Callable[[bytes], NoisyLabelClassifier], raw: bytes, match: str | None = None) -> None:
    with pytest.raises(ValueError, match=match) as caught:
        load(raw)
    assert type(caught.value) is ValueError
    assert str(caught.value).endswith((".", "?"))
    assert "cannot be loaded: " in str(caught.value)


def assert_same_results(first: NoisyLabelClassifier, second: NoisyLabelClassifier, X: np.ndarray, y: Any) -> None:
    np.testing.assert_array_equal(first.predict_proba(X), second.predict_proba(X))
    np.testing.assert_array_equal(first.predict(X), second.predict(X))
    assert first.predict(X).dtype == second.predict(X).dtype
    assert first.score(X, y) == second.score(X, y)
    moments = np.linspace(-1, 2, 7).reshape(7, 1)
    np.testing.assert_array_equal(first.noise_at(moments), second.noise_at(moments))
    np.testing.assert_array_equal(first.noise_matrices_, second.noise_matrices_)
    np.testing.assert_array_equal(first.clock_grid_, second.clock_grid_)
    for name, values in vars(first.history_).items():
        np.testing.assert_array_equal(values, getattr(second.history_, name))


@pytest.mark.parametrize("name", lt.METHODS)
def test_every_method_comes_back_to_the_last_bit(name, study, tmp_path):
    X, y = study
    method = lt.METHODS[name](epochs=2, random_state=3, **OWN_PARAMS.get(name, {})).fit(X, y)
    method.save(tmp_path / "first")
    loaded = lt.load(str(tmp_path / "first"))
    assert type(loaded) is type(method)
    assert_same_results(method, loaded, X, y)
    assert loaded.n_features_in_ == 2
    left_out = {"noise": None}
    assert loaded.get_params() | left_out == method.get_params() | left_out
    loaded.save(tmp_path / "second")
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()
    again = clone(loaded).fit(X, y)
    np.testing.assert_array_equal(again.predict_proba(X), method.predict_proba(X))


@pytest.mark.parametrize("model", ["gru", "tcn", "transformer", "linear"])
@pytest.mark.parametrize("causal", [True, False])
def test_every_model_comes_back(model, causal, study, tmp_path):
    method = lt.METHODS["volmin"](model=model, hidden_size=8, causal=causal, epochs=1).fit(*study)
    method.save(tmp_path / "file")
    loaded = lt.load(tmp_path / "file")
    assert_same_results(method, loaded, *study)
    assert loaded.model_.is_causal == method.model_.is_causal
    assert not loaded.model_.training


def test_irregular_clocks_and_early_stopping_come_back(study, tmp_path):
    X, y = study
    clock = np.sort(np.random.default_rng(1).uniform(1.7e9, 1.7e9 + 1e6, y.shape), axis=1)
    for name in ("plugin", "discontinuous", "continuous"):
        method = lt.METHODS[name](epochs=2, early_stopping=True, random_state=0).fit(X, y, clock=clock)
        method.save(tmp_path / "file")
        assert_same_results(method, lt.load(tmp_path / "file"), X, y)


def test_a_loaded_known_method_holds_its_noise_as_a_function(study, tmp_path):
    method = lt.METHODS["known"](noise=lt.make_noise("mixed", n_steps=8), epochs=1).fit(*study)
    method.save(tmp_path / "file")
    loaded = lt.load(tmp_path / "file")
    assert isinstance(loaded.noise, lt.FixedNoise)
    np.testing.assert_array_equal(loaded.noise.at(loaded.clock_grid_), method.noise_matrices_)


@pytest.mark.parametrize("own", [PerStep, lt.wrap(PerStep), PerStep(2, 2)], ids=["factory", "wrapped", "module"])
def test_a_model_of_the_users_own_needs_to_be_given_again(own, study, tmp_path):
    method = lt.METHODS["ignore"](model=own, epochs=2, random_state=0).fit(*study)
    method.save(tmp_path / "file")
    with pytest.raises(ValueError, match=r"model of the user's own. Pass .* load\(path, model=...\)"):
        lt.load(tmp_path / "file")
    with pytest.raises(ValueError, match="model of the user's own"):
        lt.load(tmp_path / "file", model="gru")
    loaded = lt.load(tmp_path / "file", model=own)
    assert loaded.model is own
    assert_same_results(method, loaded, *study)
    loaded.save(tmp_path / "again")
    assert (tmp_path / "file").read_bytes() == (tmp_path / "again").read_bytes()
    with pytest.raises(ValueError, match="must have shape"):
        lt.load(tmp_path / "file", model=lambda n_features, n_classes: PerStep(n_features, 5))
    with pytest.raises(ValueError, match="missing or too many"):
        lt.load(tmp_path / "file", model=nn.Linear)
    with pytest.raises(TypeError, match="wrap needs a torch module"):
        lt.load(tmp_path / "file", model=3)


def test_a_factory_that_cannot_do_without_memory_still_loads(study, tmp_path):
    def factory(n_features: int, n_classes: int) -> nn.Module:
        layer = nn.Linear(n_features, n_classes)
        assert layer.weight.abs().max().item() < 10  # a meta tensor has no item
        return layer

    method = lt.METHODS["ignore"](model=factory, epochs=1, random_state=0).fit(*study)
    method.save(tmp_path / "file")
    assert_same_results(method, lt.load(tmp_path / "file", model=factory), *study)


def test_a_model_given_for_a_named_one_is_an_error(fitted, tmp_path):
    fitted.save(tmp_path / "file")
    with pytest.raises(ValueError, match=r"labeltide's own 'gru'. Leave out `model`"):
        lt.load(tmp_path / "file", model=PerStep)


NAMES = {
    "int": [3, 7],
    "negative": [-5, 7],
    "str": ["wach", "schläft \U0001f634"],
    "float": [0.1, float("inf")],
    "bool": [False, True],
    "tuple": [("a", 1), ("b", 2.5)],
    "nested": [(("a", 1), (None, True)), (("b", 2), (0.5, False))],
    "ragged": [("a", (None, (True, 1.0))), ("b", ())],
    "mixed": ["a", 1],
    "numpy": [("a", np.int64(1)), ("b", np.float64(2.5))],
    "digest": ['\\"sha256\\": \\"' + NO_DIGEST, NO_DIGEST],
}


def types_in(value: Any) -> Any:
    return [types_in(part) for part in value] if isinstance(value, tuple) else type(value)


@pytest.mark.parametrize("kind", NAMES)
def test_class_names_survive_with_their_type(kind, study, tmp_path):
    X, codes = study
    names = np.empty(2, dtype=object)
    names[0], names[1] = NAMES[kind]
    method = lt.METHODS["ignore"](epochs=1, hidden_size=2, random_state=0).fit(X, names[codes])
    method.save(tmp_path / "file")
    loaded = lt.load(tmp_path / "file")
    assert loaded.classes_.dtype == method.classes_.dtype
    assert loaded.classes_.tolist() == method.classes_.tolist()
    if kind != "numpy":  # whose parts become Python's own
        assert [types_in(n) for n in loaded.classes_.tolist()] == [types_in(n) for n in method.classes_.tolist()]
    assert_same_results(method, loaded, X, names[codes])
    loaded.save(tmp_path / "again")
    assert (tmp_path / "file").read_bytes() == (tmp_path / "again").read_bytes()


def test_class_names_that_json_cannot_carry_are_an_error_at_save(study, tmp_path):
    X, codes = study
    days = np.array([datetime.date(2020, 1, 1), datetime.date(2020, 1, 2)], dtype=object)
    method = lt.METHODS["ignore"](epochs=1, hidden_size=2).fit(X, days[codes])
    with pytest.raises(ValueError, match=r"of type date: fit with strings instead, such as '2020-01-01'"):
        method.save(tmp_path / "file")
    assert not (tmp_path / "file").exists()


def test_parameters_that_do_not_travel_are_left_out(study, tmp_path):
    given = {"random_state": np.random.RandomState(0), "device": "cpu"}
    method = lt.METHODS["volmin"](epochs=np.int64(1), volume_weight=np.float32(0.5), **given).fit(*study)
    method.set_params(checkpoint=tmp_path / "running")
    method.save(tmp_path / "file")
    loaded = lt.load(tmp_path / "file")
    assert (loaded.random_state, loaded.checkpoint, loaded.device) == (None, None, "cpu")
    assert (loaded.epochs, loaded.volume_weight) == (1, 0.5)
    assert (type(loaded.epochs), type(loaded.volume_weight)) == (int, float)
    method.set_params(device="cuda:3", random_state=np.int64(5)).save(tmp_path / "file")
    loaded = lt.load(tmp_path / "file")
    assert (loaded.device, loaded.random_state) == ("auto", 5)


def test_save_makes_the_folder_and_replaces_the_file(fitted, tmp_path):
    path = tmp_path / "new" / "folder" / "file"
    fitted.save(path)
    fitted.save(path)
    assert lt.load(path).classes_.tolist() == [0, 1]
    assert [found.name for found in path.parent.iterdir()] == ["file"]


def test_what_is_not_fitted_is_not_saved(tmp_path):
    with pytest.raises(NotFittedError):
        lt.METHODS["ignore"]().save(tmp_path / "file")


def test_settings_changed_after_fit_are_noticed_at_save(fitted, tmp_path):
    for change in (
        {"hidden_size": 5},
        {"model": "linear"},
        {"causal": False},
        {"epochs": 0},
        {"model": PerStep},
    ):
        with pytest.raises(ValueError, match=r"cannot be saved: .* Were its settings changed after fit\?"):
            copy.deepcopy(fitted).set_params(**change).save(tmp_path / "file")
    with pytest.raises(ValueError, match="volume_weight must be a number or a string"):
        copy.deepcopy(fitted).set_params(volume_weight=object()).save(tmp_path / "file")
    assert not (tmp_path / "file").exists()


def test_a_class_outside_the_table_is_not_saved(study, tmp_path):
    class Mine(lt.IgnoreClassifier):
        pass

    with pytest.raises(ValueError, match=r"Only the methods in labeltide.METHODS .* Got Mine"):
        Mine(epochs=1).fit(*study).save(tmp_path / "file")


def test_no_file_no_load(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"There is no file .*nowhere"):
        lt.load(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="it is a folder or a device, not a file"):
        lt.load(tmp_path)


def test_files_of_another_kind_are_told_apart(load_bytes):
    refused(load_bytes, b"", "not a labeltide file")
    refused(load_bytes, b"PK\x03\x04 a zip archive, or a torch file", "not a labeltide file")
    refused(load_bytes, b"\xff" * 100, "not a labeltide file")
    refused(load_bytes, struct.pack("<Q", 2**62) + b"{}", "not a labeltide file")
    refused(load_bytes, struct.pack("<Q", 2) + b"{}", "not a labeltide file")
    plain = safetensors.torch.save({"weight": torch.zeros(2)})
    refused(load_bytes, plain, "not a labeltide file")
    refused(load_bytes, safetensors.torch.save({"a": torch.zeros(2)}, {"labeltide": "[1]"}), "no fitted method")
    deep = "[" * 200_000
    refused(load_bytes, safetensors.torch.save({"a": torch.zeros(2)}, {"labeltide": deep}), "not a labeltide file")
    refused(load_bytes, struct.pack("<Q", len(deep) + 1) + b"{" + deep.encode(), "not a labeltide file")


def test_a_newer_version_is_named(saved, load_bytes):
    about, tensors = parts(saved)
    newer = {"format": 2, "labeltide": "9.8.7", "something": "else"}
    refused(load_bytes, join(newer, tensors), r"newer version, labeltide '9.8.7'. .*update")
    refused(load_bytes, join({**about, "format": 0}, tensors), "format must be")


def test_every_truncation_is_noticed(saved, load_bytes):
    lengths = {*range(0, len(saved), 37), *range(len(saved) - 20, len(saved)), *range(20)}
    for length in sorted(lengths):
        refused(load_bytes, saved[:length], "truncated|not a labeltide file")
    refused(load_bytes, saved + b"\0", "corrupted")


def test_every_flipped_bit_is_noticed(saved, load_bytes):
    rng = np.random.default_rng(0)
    header = 8 + struct.unpack("<Q", saved[:8])[0]
    for position in [*range(16), *range(16, header, 3), *rng.integers(header, len(saved), 200)]:
        altered = bytearray(saved)
        altered[position] ^= 1 << int(rng.integers(8))
        refused(load_bytes, bytes(altered))


def test_white_space_in_the_header_counts_too(saved, load_bytes):
    header = 8 + struct.unpack("<Q", saved[:8])[0]
    number = saved.index(b": ", 0, header)
    refused(load_bytes, saved[: number + 1] + b"\n" + saved[number + 2 :], "corrupted|not a labeltide file")


NASTY = [
    None,
    True,
    -1,
    0,
    1,
    10**9,
    10**30,
    0.5,
    1e308,
    float("nan"),
    "",
    "x",
    "gru",
    [],
    [[]],
    {},
    {"a": 1},
]


def every_place(value: Any, path: tuple = ()) -> Iterator[tuple]:
    """The path to every value within nested dicts and lists, its own first."""
    yield path
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inside:
        yield from every_place(part, (*path, key))


def with_change(value: Any, path: tuple, change: Callable[[Any, Any], None]) -> Any:
    altered = copy.deepcopy(value)
    holder = altered
    for key in path[:-1]:
        holder = holder[key]
    change(holder, path[-1])
    return altered


def test_any_value_anywhere_in_the_json_is_refused_or_changes_no_result(saved, fitted, study, load_bytes):
    X, _ = study
    about, tensors = parts(saved)
    probabilities, refusals = fitted.predict_proba(X), 0
    for path in every_place(about):
        if path in ((), ("sha256",)):
            continue
        changes = [lambda holder, key, new=new: holder.__setitem__(key, new) for new in NASTY]
        changes.append(lambda holder, key: holder.__delitem__(key))
        if isinstance(path[-1], str):
            changes.append(lambda holder, key: holder.__setitem__(key + "x", holder.pop(key)))
            changes.append(lambda holder, key: holder.__setitem__(key + "x", 0))
        for change in changes:
            raw = join(with_change(about, path, change), tensors)
            try:
                loaded = load_bytes(raw)
            except ValueError:
                refused(load_bytes, raw)
                refusals += 1
            else:
                np.testing.assert_array_equal(loaded.predict_proba(X), probabilities)
                np.testing.assert_array_equal(loaded.noise_matrices_, fitted.noise_matrices_)
    assert refusals > 300


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"method": "guess"}, "Unknown method 'guess'. Choose one of: ignore"),
        ({"method": ["ignore"]}, "Unknown method"),
        ({"method": "volmin"}, "do not fit|must have shape"),
        ({"n_features": 3}, "model tensor .* must have shape"),
        ({"n_features": 10**9}, "must have shape"),
        ({"n_features": 10**18}, "impossible size"),
        ({"n_points": 10**12}, "must have shape"),
        ({"classes": ["a", "b", "c"]}, "must have shape"),
        ({"classes": ["a", "a"]}, "distinct"),
        ({"classes": [1, True]}, "distinct"),
        ({"classes": ["a", None]}, "distinct"),
        ({"classes": ["a", float("nan")]}, "a class name must be"),
        ({"classes": ["a", {}]}, "a class name must be"),
        ({"classes": ["a", json.loads("[" * 40 + "]" * 40)]}, "a class name must be"),
        ({"classes": list(range(200))}, "2 to 127 classes"),
        ({"noise": {"kind": "os.system", "raw_steps": None, "annotators": 1}}, "Unknown noise"),
        ({"noise": {"kind": "network", "raw_steps": None, "annotators": 1}}, "noise tensors do not fit"),
        ({"noise": {"kind": "fixed", "raw_steps": None, "annotators": 1}}, "noise tensors do not fit"),
        ({"noise": {"kind": "network", "raw_steps": 10**9, "annotators": 1}}, "raw_steps must be"),
        ({"noise": {"kind": "stepwise", "raw_steps": None, "annotators": 2}}, "noise must be for 1 sources"),
        ({"sources": {"annotators": 2}}, "sources must hold the fields"),
        ({"sources": {"annotators": 0, "groups": None}}, "annotators must be"),
        ({"sources": {"annotators": 10**9, "groups": None}}, "annotators must be"),
        ({"sources": {"annotators": 1, "groups": []}}, "groups must be a list"),
        ({"sources": {"annotators": 1, "groups": ["a", "a"]}}, "groups must be distinct"),
        ({"params": {}}, "params must hold the fields"),
        ({"labeltide": 3}, "version must be a string"),
    ],
)
def test_what_is_wrong_in_the_json_is_said(change, match, saved, load_bytes):
    about, tensors = parts(saved)
    if change.get("method") == "volmin":
        params = {
            name: value for name, value in about["params"].items() if name not in ("objective", "diagonal_weight")
        }
        change = {**change, "noise": {"kind": "static", "raw_steps": None, "annotators": 1}, "params": params}
    refused(load_bytes, join({**about, **change}, tensors), match)


def test_a_noise_function_of_ones_own_cannot_be_saved(study, tmp_path):
    class Own(StaticNoise):
        pass

    method = lt.METHODS["continuous"](epochs=1, hidden_size=4, noise_function=Own).fit(*study)
    with pytest.raises(ValueError, match=r"Only the methods in labeltide\.METHODS and their noise functions"):
        method.save(tmp_path / "fit")


def test_given_noise_of_annotators_comes_back_and_what_does_not_fit_is_refused(study, tmp_path, load_bytes):
    X, y = study
    given = FixedNoise(np.stack([MATRIX, MATRIX[::-1, ::-1]])[None, :, None], common=MATRIX[None, None])
    method = lt.METHODS["known"](noise=given, epochs=1, hidden_size=4, random_state=0).fit(X, np.stack([y, y], -1))
    method.save(tmp_path / "fit")
    loaded = lt.load(tmp_path / "fit")
    np.testing.assert_array_equal(loaded.annotator_matrices_, method.annotator_matrices_)
    np.testing.assert_array_equal(loaded.noise_matrices_, method.noise_matrices_)
    np.testing.assert_allclose(method.noise_at(0.5), MATRIX, atol=1e-6)
    about, tensors = parts((tmp_path / "fit").read_bytes())
    three = {"sources": {"annotators": 3, "groups": None}, "noise": {**about["noise"], "annotators": 3}}
    refused(load_bytes, join({**about, **three}, tensors), "must have shape")
    tensors["noise.common_matrices"] *= 2
    refused(load_bytes, join(about, tensors), "must be a distribution")


@pytest.mark.parametrize("shares", [[0.5, 0.6], [-0.5, 1.5]])
def test_shares_of_annotators_that_are_no_parts_of_one_are_refused(shares, study, tmp_path, load_bytes):
    X, y = study
    method = lt.METHODS["discontinuous"](epochs=1, hidden_size=4, random_state=0).fit(X, np.stack([y, y], -1))
    method.save(tmp_path / "fit")
    about, tensors = parts((tmp_path / "fit").read_bytes())
    tensors["noise.shares"] = torch.tensor([shares])
    refused(load_bytes, join(about, tensors), "parts of one whole")


@pytest.mark.parametrize(
    ("name", "value", "match"),
    [
        ("hidden_size", 10**9, "impossible size|must have shape"),
        ("hidden_size", 10**40, "41 digits"),
        ("hidden_size", 4.0, "hidden_size must be a whole number"),
        ("hidden_size", -1, "hidden_size must be a whole number"),
        ("model", "torch.load", "Unknown model"),
        ("model", None, "model of the user's own"),
        ("model", "transformer", "do not fit"),
        ("causal", False, "do not fit"),
        ("causal", "yes", "causal must be of type bool"),
        ("learning_rate", float("inf"), "learning_rate must be"),
        ("learning_rate", 10**400, "401 digits"),
        ("checkpoint", "/etc", "checkpoint must be empty"),
        ("device", "cuda:0", "Unknown device"),
        ("random_state", -1, "random_state must be"),
        ("random_state", 2**40, "random_state must be"),
    ],
)
def test_what_is_wrong_in_the_parameters_is_said(name, value, match, saved, load_bytes):
    about, tensors = parts(saved)
    refused(load_bytes, join({**about, "params": {**about["params"], name: value}}, tensors), match)


def test_a_digest_that_is_not_one_is_noticed(saved, load_bytes):
    about, tensors = parts(saved)
    for digest in ("", "x", 3, None, "ä" * 64, "0" * 64):
        raw = safetensors.torch.save(tensors, {"labeltide": json.dumps({**about, "sha256": digest})})
        refused(load_bytes, raw, "corrupted|digest")


def test_tensors_that_do_not_fit_are_refused(saved, load_bytes):
    about, tensors = parts(saved)
    for name, tensor in tensors.items():
        refused(load_bytes, join(about, {k: v for k, v in tensors.items() if k != name}), "missing or too many")
        for other in (
            tensor[None],
            tensor.flatten()[:0],
            tensor.to(torch.float16),
            torch.zeros(1, dtype=torch.bool),
        ):
            refused(load_bytes, join(about, {**tensors, name: other}), "must have shape")
        if not name.startswith("history."):
            bad = tensor.clone()
            bad.view(-1)[-1] = torch.nan
            refused(load_bytes, join(about, {**tensors, name: bad}), "finite")
    refused(load_bytes, join(about, {**tensors, "model.extra": torch.zeros(3)}), "missing or too many")
    refused(load_bytes, join(about, {**tensors, "extra": torch.zeros(3)}), "missing or too many")
    falling = {**tensors, "noise.clock": tensors["noise.clock"].flip(1)}
    refused(load_bytes, join(about, falling), "finite and rising")


def test_noise_that_is_no_noise_is_refused(study, tmp_path, load_bytes):
    lt.METHODS["known"](noise=MATRIX, epochs=1, hidden_size=2).fit(*study).save(tmp_path / "file")
    about, tensors = parts((tmp_path / "file").read_bytes())
    matrices, clock = tensors["noise.matrices"], tensors["noise.clock"]
    for bad in (matrices * 2, -matrices, matrices * torch.nan, matrices[:, :1], matrices[:, :0]):
        refused(
            load_bytes,
            join(about, {**tensors, "noise.matrices": bad}),
            "distribution|must have shape|matrices",
        )
    for bad in (clock.flip(1), clock * 0, clock * torch.inf, clock[:, :1]):
        refused(load_bytes, join(about, {**tensors, "noise.clock": bad}), "rising|must have shape")


def test_malformed_safetensors_headers_are_refused(saved, load_bytes):
    about, _ = parts(saved)
    length = struct.unpack("<Q", saved[:8])[0]
    header, data = json.loads(saved[8 : 8 + length]), saved[8 + length :]
    header["__metadata__"]["labeltide"] = json.dumps({**about, "sha256": NO_DIGEST})
    entries = [
        {"dtype": "F4"},
        {"dtype": 3},
        {"shape": [2**62, 2**62]},
        {"shape": [-1]},
        {"shape": "x"},
        {"data_offsets": [0, 4]},
        {"data_offsets": [4, 0]},
        {"data_offsets": [-8, 8]},
        {"data_offsets": [0, 2**63]},
        {"data_offsets": ["a", "b"]},
        {"data_offsets": []},
    ]
    for entry in entries:
        altered = {**header, "clock_grid": {**header["clock_grid"], **entry}}
        text = json.dumps(altered, separators=(",", ":")).encode()
        refused(load_bytes, seal(struct.pack("<Q", len(text)) + text + data))
