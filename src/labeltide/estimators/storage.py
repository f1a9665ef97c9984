"""Serialisation of a fitted method to one safetensors file with a JSON header, safe to open whoever wrote it.

Nothing in the file is ever run or imported: it names a method, a network and a kind of noise, which are
looked up in tables here, and holds numbers, whose shapes must be those that the named parts have.
"""

from __future__ import annotations

import hashlib
import json
import reprlib
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import safetensors.torch
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from labeltide import __version__, _validation
from labeltide._clock import Cells, cells_of, check_period, one_period
from labeltide._files import write_atomically
from labeltide.data.clusters import Sources
from labeltide.estimators.cross_fit import DIGEST_SIZE, TrainingRows
from labeltide.estimators.fleet import METHODS, as_array, grid_matrices
from labeltide.models import MODELS, SequenceModel, make_model
from labeltide.noise.functions import FixedNoise, NetworkNoise, NoiseFunction, StaticNoise, StepwiseNoise
from labeltide.training import History

if TYPE_CHECKING:
    from labeltide.estimators.base import NoisyLabelClassifier


FORMAT = 1
NOISES: dict[str, type[NoiseFunction]] = {
    "fixed": FixedNoise,
    "static": StaticNoise,
    "stepwise": StepwiseNoise,
    "network": NetworkNoise,
}
FIELDS = ("sha256", "format", "labeltide", "method", "params", "classes", "n_features", "n_points", "noise", "sources")
MAX_SOURCES = 100_000
DIGEST_MARK = b'\\"sha256\\": \\"'  # the digest follows; JSON within the JSON header, hence the backslashes
NO_DIGEST = "0" * 64  # stands in for the digest while the file is digested
MAX_HEADER = 100_000_000  # bytes, the limit of safetensors itself
MAX_DEPTH = 16  # of tuples within tuples in a class name
LARGEST_WEIGHT = 1e15  # beyond which products of weights and features leave single precision
Model = nn.Module | Callable[..., Any]
Module = TypeVar("Module", bound=nn.Module)
Tensors = dict[str, Tensor]
Shapes = dict[str, tuple[tuple[int, ...], torch.dtype]]


def save(estimator: NoisyLabelClassifier, path: Path) -> None:
    """Write a fitted method to one file, whole or not at all, and only what `load` will take."""
    check_is_fitted(estimator, "model_")
    content = _to_bytes(estimator)
    try:
        _from_bytes(content, None if isinstance(estimator.model, str) else estimator.model)
    except ValueError as error:
        raise ValueError(
            f"This {type(estimator).__name__} cannot be saved: {error} Were its settings changed after fit?"
        ) from None
    write_atomically(path, content)


def load(path: str | Path, model: Model | None = None) -> NoisyLabelClassifier:
    """Read a method that `save` wrote; it predicts to the last bit as it did then.

    Parameters
    ----------
    path : the file
        One from a stranger is safe to open. What is malformed, truncated or altered is a ValueError.
    model : torch module or factory
        The same that the method was fitted with, where that was the user's own: files hold numbers, no code.

    Examples
    --------
    >>> import labeltide as lt
    >>> data = lt.make_sequences(n=20, n_steps=10, n_features=2)
    >>> lt.IgnoreClassifier(epochs=2, random_state=0).fit(data.features, data.labels).save("model.safetensors")
    >>> lt.load("model.safetensors").predict(data.features).shape
    (20, 10)
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"There is no file {path}.")
    if not path.is_file():
        raise ValueError(f"{path} cannot be loaded: it is a folder or a device, not a file.")
    try:
        return _from_bytes(path.read_bytes(), model)
    except ValueError as error:
        raise ValueError(f"{path} cannot be loaded: {error}") from None


def _to_bytes(estimator: NoisyLabelClassifier) -> bytes:
    kinds = {cls: kind for kind, cls in NOISES.items()}
    if METHODS.get(estimator.name) is not type(estimator) or type(estimator.noise_) not in kinds:
        raise ValueError(
            "Only the methods in labeltide.METHODS and their noise functions can be saved. "
            f"Got {type(estimator).__name__} with {type(estimator.noise_).__name__}."
        )
    parts: dict[str, dict[str, Any]] = {
        "model": estimator.model_.state_dict(),
        "noise": estimator.noise_.state_dict(),
        "history": dict(vars(estimator.history_)),
    }
    if estimator.cross_fits:
        parts["judges"] = {} if estimator.fold_model_ is None else estimator.fold_model_.state_dict()
        parts["rows"] = estimator.training_rows_._asdict()
    values = {f"{part}.{name}": value for part, content in parts.items() for name, value in content.items()}
    values["clock_grid"] = estimator.clock_grid_
    if estimator.scaling_ is not None:
        values["scaling"] = estimator.scaling_
    tensors = {name: v if isinstance(v, Tensor) else torch.tensor(v) for name, v in values.items()}
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    sources = Sources.of(estimator.sources_)
    about = {
        "sha256": NO_DIGEST,  # first, so that its mark is the first in the file
        "format": FORMAT,
        "labeltide": __version__,
        "method": estimator.name,
        "params": _plain_params(estimator),
        "classes": [_plain_name(name) for name in estimator.classes_.tolist()],
        "n_features": estimator.n_features_in_,
        "n_points": len(estimator.clock_grid_),
        "noise": {
            "kind": kinds[type(estimator.noise_)],
            "raw_steps": getattr(estimator.noise_, "raw_steps", None),
            "annotators": estimator.noise_.annotators,
        },
        "sources": {
            "annotators": sources.annotators,
            "groups": None if sources.groups is None else [_plain_name(name) for name in sources.groups],
        },
        "learned": estimator._learned(),
    }
    return seal(safetensors.torch.save(tensors, metadata={"labeltide": json.dumps(about)}))


def _from_bytes(raw: bytes, model: Model | None) -> NoisyLabelClassifier:
    about = read_description(raw)
    own = about["params"]["model"]  # the name of our network
    if own is not None and model is not None:
        raise ValueError(f"it was fitted with labeltide's own {own!r}. Leave out `model`.")
    if own is None and (model is None or isinstance(model, str)):
        raise ValueError(
            "it was fitted with a model of the user's own. Pass the same one in Python to load(path, model=...)."
        )
    try:
        # Copies lie where torch puts its own tensors: products can differ in the last bit with the alignment.
        tensors = {name: tensor.clone() for name, tensor in safetensors.torch.load(raw).items()}
    except Exception as error:  # a malformed header is reported by many kinds of error
        raise ValueError(f"its tensors cannot be read ({error}).") from None
    estimator = _restore(about, tensors, own if model is None else model)
    if own is not None:
        _try_out(estimator)
    return estimator


def _try_out(estimator: NoisyLabelClassifier) -> None:
    """Refuse networks whose weights are finite, but so large that they answer with NaN."""
    features = torch.ones((1, 2, estimator.n_features_in_))
    features[:, 1] = -1.0
    networks = [estimator.model_, getattr(estimator, "fold_model_", None)]
    for network in (network for network in networks if network is not None):
        weights = [parameter.detach() for parameter in network.parameters() if parameter.numel()]
        shape = (network.members, 1, 2)
        sound = all(float(weight.abs().max()) <= LARGEST_WEIGHT for weight in weights)
        with torch.no_grad():
            answers = network(features.expand(*shape, -1), torch.ones(shape, dtype=torch.bool)) if sound else None
        if answers is None or not bool(answers.isfinite().all()):
            raise ValueError("its networks do not give finite numbers.")


def _restore(about: dict[str, Any], tensors: Tensors, model: str | Model) -> NoisyLabelClassifier:
    """The estimator of a file from its validated header and its tensors."""
    method, params = about["method"], about["params"] | {"model": model}
    estimator = method(**params)
    parts = {part: _take_part(tensors, f"{part}.") for part in ("model", "noise", "history")}
    if method.cross_fits:
        parts |= {part: _take_part(tensors, f"{part}.") for part in ("judges", "rows")}
    scaling = _take_part(tensors, "scaling")
    estimator.cells_ = _restore_cells(about, tensors)
    estimator.model_ = _restore_model(about, params, parts["model"])
    estimator.noise_ = _restore_noise(about, parts["noise"], estimator.cells_ is not None)
    estimator.history_ = _restore_history(parts["history"])
    estimator.scaling_ = _restore_scaling(about, scaling)
    estimator.classes_ = as_array(about["classes"])
    estimator.n_features_in_ = about["n_features"]
    estimator.clock_grid_ = tensors["clock_grid"].numpy()
    estimator.noise_matrices_, estimator.annotator_matrices_ = grid_matrices(estimator)
    estimator.sources_ = about["sources"].names
    estimator._take_learned(about["learned"])
    if method.cross_fits:
        estimator.fold_model_ = _restore_model(about, params, parts["judges"]) if parts["judges"] else None
        estimator.training_rows_ = _restore_rows(parts["rows"], estimator.fold_model_)
    if "noise" in params:
        estimator.set_params(noise=estimator.noise_)
    return estimator


def _restore_scaling(about: dict[str, Any], tensors: Tensors) -> np.ndarray | None:
    shape = (4, about["n_features"])
    _check_tensors("scaling", tensors, {"": (shape, torch.float64)} if about["params"]["standardize"] else {})
    if not tensors:
        return None
    low, high, centre, scale = scaling = tensors[""]
    largest = (scaling[:2] - centre).abs() / scale  # that the networks may meet
    if not bool(scaling.isfinite().all() & (low <= high).all() & (scale > 0).all() & (largest < LARGEST_WEIGHT).all()):
        raise ValueError("the scaling of its features must hold finite ranges and positive scales.")
    return scaling.numpy()


def _restore_cells(about: dict[str, Any], tensors: Tensors) -> Cells | None:
    """The cells of several clocks, whose grid has one column for each; None where there is one."""
    clocks = tensors["clock_grid"].shape[1:] if "clock_grid" in tensors and about["method"].several_clocks else ()
    _check_tensors("clock", tensors, {"clock_grid": ((about["n_points"], *clocks), torch.float64)})
    grid, period = tensors["clock_grid"], about["params"].get("period")
    if not clocks:
        one_period(period)
        _check_rising(grid)
        return None
    cells = cells_of(grid.numpy(), period)
    if not bool(grid.isfinite().all()) or not np.array_equal(cells.grid, grid.numpy()):
        raise ValueError("the moments of its clocks must be finite and their cells in order.")
    return cells


def _restore_model(about: dict[str, Any], params: dict[str, Any], tensors: Tensors) -> SequenceModel:
    options = {"hidden_size": params["hidden_size"], "causal": params["causal"]}
    members = max((len(tensor) for tensor in tensors.values() if tensor.ndim), default=1)  # more in an ensemble

    def build() -> SequenceModel:
        return make_model(params["model"], members, about["n_features"], len(about["classes"]), **options)

    if about["params"]["model"] is not None:
        return _fill("model", _without_memory(build), tensors)
    try:
        skeleton = _without_memory(build)
    except Exception:  # a user's own code need not bear the meta device
        skeleton = build()
    _check_tensors("model", tensors, _shapes(skeleton))
    # Built anew, because tensors that are neither parameters nor buffers need their values too.
    return _fill("model", build(), tensors, may_be_infinite=True)  # as masks of attention are


def _restore_rows(tensors: Tensors, fold_model: SequenceModel | None) -> TrainingRows:
    count = len(tensors["folds"]) if "folds" in tensors and tensors["folds"].ndim else 0
    wanted: Shapes = {"digests": ((count, DIGEST_SIZE), torch.uint8), "folds": ((count,), torch.int64)}
    _check_tensors("rows", tensors, wanted)
    n_folds = int(tensors["folds"].max()) + 1 if count else 1
    n_networks = 0 if fold_model is None else fold_model.members
    if count == 0 or int(tensors["folds"].min()) < 0 or n_networks % n_folds:
        raise ValueError(f"its {n_networks} networks must be shared out evenly among the folds of its rows.")
    return TrainingRows(tensors["digests"].numpy(), tensors["folds"].numpy())


def _restore_noise(about: dict[str, Any], tensors: Tensors, several: bool) -> NoiseFunction:
    n_classes, n_points, params = len(about["classes"]), about["n_points"], about["params"]
    kind, raw_steps, annotators = (about["noise"][name] for name in ("kind", "raw_steps", "annotators"))
    if kind == "fixed":
        n_points = tensors["matrices"].numel() // (annotators * n_classes**2) if "matrices" in tensors else 1
        leading = (1,) if annotators == 1 else (1, annotators)
        wanted: Shapes = {"matrices": ((*leading, n_points, n_classes, n_classes), torch.float32)}
        wanted["clock"] = ((1, n_points), torch.float64)
        if annotators > 1:
            wanted["common_matrices"] = ((1, n_points, n_classes, n_classes), torch.float32)
        _check_tensors("noise", tensors, wanted)
        common = tensors["common_matrices"].numpy() if annotators > 1 else None
        period = None if several else params.get("period")
        return FixedNoise(tensors["matrices"].numpy(), tensors["clock"][0].numpy(), common, period).eval()
    names = {"noise_widths": "widths", "scaled_weights": "scaled_weights", "bounded_logits": "bounded_logits"}
    settings = {setting: params[name] for name, setting in names.items() if name in params}
    builders: dict[str, Callable[[], NoiseFunction]] = {
        "static": lambda: StaticNoise(1, n_classes),
        "stepwise": lambda: StepwiseNoise(1, n_classes, torch.empty(n_points), annotators),
        "network": lambda: NetworkNoise(1, n_classes, raw_steps=raw_steps, annotators=annotators, **settings),
    }
    noise = _fill("noise", _without_memory(builders[kind]), tensors)
    if "shares" in tensors and not (bool((tensors["shares"] >= 0).all()) and abs(tensors["shares"].sum() - 1) < 1e-3):
        raise ValueError("the shares of its annotators must be parts of one whole.")
    moments = tensors.get("clock", tensors.get("bounds"))
    if moments is not None:
        _check_rising(moments[0])
    return noise


def _restore_history(tensors: Tensors) -> History:
    n_epochs = len(tensors["loss"]) if "loss" in tensors and tensors["loss"].ndim else 0
    per_epoch, per_member = ((n_epochs, 1), torch.float64), ((1,), torch.int64)
    wanted = {"loss": per_epoch, "held_out": per_epoch, "best_epoch": per_member, "restarts": per_member}
    _check_tensors("history", tensors, wanted | dict.fromkeys(("linear", "quadratic"), per_epoch))
    return History(**{name: tensor.numpy() for name, tensor in tensors.items()})


def _without_memory(build: Callable[[], Module]) -> Module:
    """A module whose tensors have shapes but take no memory, whatever sizes a file asks for."""
    try:
        with torch.device("meta"):
            return build()
    except (RuntimeError, TypeError, OverflowError):
        raise ValueError("it asks for a network of impossible size.") from None


def _fill(part: str, module: Module, tensors: Tensors, may_be_infinite: bool = False) -> Module:
    """The module with these tensors, in evaluation mode."""
    _check_tensors(part, tensors, _shapes(module))
    for name, tensor in tensors.items():
        if bool(tensor.isnan().any()) or not (may_be_infinite or bool(tensor.isfinite().all())):
            raise ValueError(f"its {part} tensor {name!r} holds values that are not finite.")
    module.load_state_dict(tensors, assign=True)
    return module.eval()


def _shapes(module: nn.Module) -> Shapes:
    return {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in module.state_dict().items()}


def _check_tensors(part: str, tensors: Tensors, wanted: Shapes) -> None:
    if set(tensors) != set(wanted):
        names = reprlib.repr(sorted(set(tensors) ^ set(wanted)))
        raise ValueError(f"its {part} tensors do not fit its settings: {names} are missing or too many.")
    for name, (shape, dtype) in wanted.items():
        tensor = tensors[name]
        if (tuple(tensor.shape), tensor.dtype) != (shape, dtype):
            raise ValueError(
                f"its {part} tensor {name!r} must have shape {shape} and type {dtype} to fit its settings. "
                f"Got {tuple(tensor.shape)} and {tensor.dtype}."
            )


def _check_rising(moments: Tensor) -> None:
    if not bool(moments.isfinite().all()) or bool((moments.diff() < 0).any()):
        raise ValueError("the moments of its clock must be finite and rising.")


def _take_part(tensors: Tensors, prefix: str) -> Tensors:
    """Remove the tensors of one part, and give them back under their own names."""
    names = [name for name in tensors if name.startswith(prefix)]
    return {name.removeprefix(prefix): tensors.pop(name) for name in names}


# The header, and the digest of the whole file within it.


def seal(raw: bytes) -> bytes:
    """The file with its digest in place."""
    digest, start = _digest(raw)
    return raw[:start] + digest.encode() + raw[start + len(NO_DIGEST) :]


def _digest(raw: bytes) -> tuple[str, int]:
    """SHA-256 of the whole file, in which the digest itself reads as zeros, and where the digest starts."""
    start = raw.find(DIGEST_MARK) + len(DIGEST_MARK)
    view = memoryview(raw)
    digest = hashlib.sha256(view[:start])
    digest.update(NO_DIGEST.encode())
    digest.update(view[start + len(NO_DIGEST) :])
    return digest.hexdigest(), start


def read_description(raw: bytes) -> dict[str, Any]:
    """Read and validate the header of a file that is whole and unaltered.

    Its method is the class of the estimator, its params have None for a `model` of the user's own, its classes are a
    tuple, and its sources say who stands where along the axis of annotators.
    """
    about = _read_about(raw)
    digest, start = _digest(raw)
    if about["sha256"] != digest or raw[start : start + len(NO_DIGEST)] != about["sha256"].encode():
        raise ValueError("it is corrupted: its content has changed since it was saved. Use another copy.")
    _validation.check_number("format", about["format"], 1, FORMAT, whole=True)
    if type(about["labeltide"]) is not str:
        raise ValueError("its version must be a string.")
    method = METHODS[_validation.check_choice("method", about["method"], METHODS)]
    params = _check_params(method, about["params"])
    n_points = about["n_points"]
    _validation.check_number("n_features", about["n_features"], 1, whole=True)
    _validation.check_number("n_points", n_points, 1, whole=True)
    noise = about["noise"]
    _check_fields("noise", noise, ("kind", "raw_steps", "annotators"))
    kind, annotators = _validation.check_choice("noise", noise["kind"], NOISES), noise["annotators"]
    sources = _check_sources(about["sources"])
    if annotators != 1 and (kind == "static" or annotators != len(sources.names)):
        raise ValueError(f"its noise must be for {len(sources.names)} sources. Got {reprlib.repr(annotators)}.")
    if noise["raw_steps"] is not None:
        _validation.check_number("raw_steps", noise["raw_steps"], n_points, n_points, whole=True)
    noise["annotators"] = int(annotators)
    if not isinstance(about["classes"], list) or not 2 <= len(about["classes"]) <= _validation.MAX_CLASSES:
        names = reprlib.repr(about["classes"])
        raise ValueError(f"it must name 2 to {_validation.MAX_CLASSES} classes. Got {names}.")
    classes = _check_names("classes", about["classes"])
    return about | {"method": method, "params": params, "noise": noise, "sources": sources, "classes": classes}


def _read_about(raw: bytes) -> dict[str, Any]:
    """The JSON of the header, its fields and its version, of a file that is whole."""
    start = 8 + int.from_bytes(raw[:8], "little")  # safetensors: the header's length, the header, the tensors
    if raw[8:9] != b"{" or start > MAX_HEADER:
        raise ValueError("it is not a labeltide file.")
    try:
        header = json.loads(raw[8:start], parse_int=_validation.read_whole)
        about = json.loads(header.pop("__metadata__")["labeltide"], parse_int=_validation.read_whole)
        end = start + max(entry["data_offsets"][1] for entry in header.values())
        truncated = len(raw) < end
    except OverflowError as error:
        raise ValueError(str(error)) from None
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
        cut = "it is truncated." if len(raw) < start else "it is not a labeltide file, or its header is corrupted."
        raise ValueError(cut) from None
    if truncated:
        raise ValueError(f"it is truncated: {len(raw)} of {end} bytes are there.")
    if not isinstance(about, dict) or type(about.get("format")) is not int:
        raise ValueError("it holds no fitted method. Was it written by `save`?")
    if about["format"] > FORMAT:
        raise ValueError(
            f"it is from a newer version, labeltide {reprlib.repr(about.get('labeltide'))}. This is "
            f"{__version__}: update it with `pip install --upgrade labeltide`."
        )
    _check_fields("header", about, (*FIELDS, "learned"))
    if type(about["sha256"]) is not str:
        raise ValueError("its digest must be a string.")
    return about


def _check_fields(part: str, fields: Any, wanted: Iterable[str]) -> None:
    """Refuse a part of the header that does not hold exactly the wanted fields."""
    if not isinstance(fields, dict) or set(fields) != set(wanted):
        names = reprlib.repr(sorted(fields) if isinstance(fields, dict) else fields)
        raise ValueError(f"its {part} must hold the fields {', '.join(wanted)}. Got {names}.")


def _check_sources(about: Any) -> Sources:
    _check_fields("sources", about, ("annotators", "groups"))
    groups = about["groups"]
    if groups is not None:
        if not isinstance(groups, list) or not groups:
            raise ValueError(f"its groups must be a list of names. Got {reprlib.repr(groups)}.")
        groups = _check_names("groups", groups)
    most = MAX_SOURCES // len(groups or (None,))
    _validation.check_number("annotators", about["annotators"], 1, most, whole=True)
    return Sources(about["annotators"], groups)


def _plain_name(name: Any) -> Any:
    """The name of a class or group as JSON can carry it: tuples become lists."""
    name = name.item() if isinstance(name, np.generic) else name
    if type(name) is tuple:
        return [_plain_name(part) for part in name]
    if type(name) not in PLAIN:
        raise ValueError(
            "Names of classes and groups can be saved if they are strings, numbers, booleans or tuples of these. Got "
            f"{name!r} of type {type(name).__name__}: fit with strings instead, such as {str(name)!r}."
        )
    return name


def _check_names(part: str, names: list[Any]) -> tuple[Any, ...]:
    """Distinct names of classes or groups as they were before JSON: lists become tuples again."""

    def restore(name: Any, depth: int) -> Any:
        if isinstance(name, dict) or depth > MAX_DEPTH or name != name:
            raise ValueError(f"a class name must be a string, a number or a tuple. Got {reprlib.repr(name)}.")
        return tuple(restore(inner, depth + 1) for inner in name) if isinstance(name, list) else name

    restored = tuple(restore(name, 0) for name in names)
    if len(set(restored)) != len(restored) or None in restored:
        raise ValueError(f"its {part} must be distinct names. Got {reprlib.repr(names)}.")
    return restored


PLAIN = (str, int, float, bool, type(None))  # what JSON carries with its type
NOT_SAVED = ("checkpoint", "noise", "noise_function")  # parameters that are None in the file
MAY_BE_NONE = ("model", "random_state", "rounds", "noise_learning_rate", "clip")
WHOLE_NUMBERS = ("noise_widths", "noise_milestones", "milestones")  # parameters that are lists of them


def _plain_params(estimator: NoisyLabelClassifier) -> dict[str, Any]:
    """The parameters as JSON can carry them."""
    params = estimator.get_params(deep=False)
    params = {name: value.item() if isinstance(value, np.generic) else value for name, value in params.items()}
    params |= {name: None for name in NOT_SAVED if name in params}
    params["model"] = params["model"] if isinstance(params["model"], str) else None
    params["device"] = "cpu" if str(params["device"]) == "cpu" else "auto"  # a GPU of ours may not be there
    params["random_state"] = params["random_state"] if type(params["random_state"]) is int else None
    for name, value in params.items():
        many = name == "period" or name in WHOLE_NUMBERS
        each = value if many and isinstance(value, tuple | list) else (value,)
        if any(type(part) not in PLAIN for part in each):
            raise ValueError(f"The parameter {name} must be a number or a string to be saved. Got {value!r}.")
    return params


def _check_params(method: type[NoisyLabelClassifier], params: Any) -> dict[str, Any]:
    """The validated parameters of a method in a file."""
    defaults = method().get_params(deep=False)
    _check_fields("params", params, defaults)
    for name, default in defaults.items():
        if params[name] is not None or name not in MAY_BE_NONE:
            _check_param(name, params[name], default)
    return {name: tuple(value) if isinstance(value, list) else value for name, value in params.items()}


def _check_param(name: str, value: Any, default: Any) -> None:
    if name in NOT_SAVED:
        if value is not None:
            raise ValueError(f"{name} must be empty in a file. Got {reprlib.repr(value)}.")
    elif name == "model":
        _validation.check_choice("model", value, MODELS)
    elif name == "device":
        _validation.check_choice("device", value, ("auto", "cpu"))
    elif name == "period":
        check_period(value)
    elif name in WHOLE_NUMBERS:
        _validation.check_whole_numbers(name, value, 0, may_be_empty=True)
    elif name == "random_state":
        _validation.check_number(name, value, 0, 2**32 - 1, whole=True)
    elif isinstance(default, str | bool):
        if not isinstance(value, str if isinstance(default, str) else int):
            raise ValueError(f"{name} must be of type {type(default).__name__}. Got {reprlib.repr(value)}.")
    elif isinstance(default, int):
        _validation.check_number(name, value, 0 if name == "max_restarts" else 1, whole=True)
    else:
        _validation.check_number(name, value, -sys.float_info.max, sys.float_info.max)
