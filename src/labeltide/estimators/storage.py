"""Serialisation of a fitted method to one safetensors file with a JSON header, safe to open whoever wrote it.

Nothing in the file is ever run or imported: it names a method, a network and a kind of noise, which are
looked up in tables here, and holds numbers, whose shapes must be those that the named parts have.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import safetensors.torch
import torch
from sklearn.utils.validation import check_is_fitted
from torch import nn

from labeltide._clock import Cells, cells_of, one_period
from labeltide._files import write_atomically
from labeltide.estimators.fleet import as_array, grid_matrices
from labeltide.estimators.rows import DIGEST_SIZE, TrainingRows
from labeltide.estimators.storage_header import Described, describe, read_description, seal
from labeltide.estimators.stored_tensors import (
    Shapes,
    Tensors,
    check_rising,
    check_tensors,
    read_tensors,
    take_part,
    wanted_shapes,
)
from labeltide.models import SequenceModel, make_model
from labeltide.noise.base import NoiseFunction
from labeltide.noise.fixed import FixedNoise
from labeltide.noise.network import NetworkNoise
from labeltide.noise.static import StaticNoise
from labeltide.noise.stepwise import StepwiseNoise
from labeltide.training import History

if TYPE_CHECKING:
    from labeltide.estimators.base import NoisyLabelClassifier

CROSS_FIT_PARTS = ("judges", "rows")  # of a file: the networks of folds and the training rows
LARGEST_WEIGHT = 1e15  # beyond which products of weights and features leave single precision
Model = nn.Module | Callable[..., Any]
Module = TypeVar("Module", bound=nn.Module)


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
    tensors = {f"model.{name}": tensor for name, tensor in estimator.model_.state_dict().items()}
    tensors |= {f"noise.{name}": tensor for name, tensor in estimator.noise_.state_dict().items()}
    tensors |= {f"history.{name}": torch.tensor(values) for name, values in vars(estimator.history_).items()}
    tensors |= _fold_networks(estimator)
    tensors["clock_grid"] = torch.tensor(estimator.clock_grid_)
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    return seal(safetensors.torch.save(tensors, metadata={"labeltide": describe(estimator)}))


def _from_bytes(raw: bytes, model: Model | None) -> NoisyLabelClassifier:
    description = read_description(raw)
    if description.params["model"] is not None and model is not None:
        raise ValueError(f"it was fitted with labeltide's own {description.params['model']!r}. Leave out `model`.")
    if description.params["model"] is None and (model is None or isinstance(model, str)):
        raise ValueError(
            "it was fitted with a model of the user's own. Pass the same one in Python to load(path, model=...)."
        )
    estimator = _restore(description, read_tensors(raw), model)
    if description.params["model"] is not None:
        _try_out(estimator)
    return estimator


def _try_out(estimator: NoisyLabelClassifier) -> None:
    """Refuse networks whose weights are finite, but so large that they answer with NaN."""
    features = torch.ones((1, 2, estimator.n_features_in_))
    features[:, 1] = -1.0
    networks = [estimator.model_, getattr(estimator, "fold_model_", None)]
    for network in (network for network in networks if network is not None):
        if any(
            tensor.numel() and float(tensor.detach().abs().max()) > LARGEST_WEIGHT for tensor in network.parameters()
        ):
            raise ValueError("its networks do not give finite numbers.")
        shape = (network.members, 1, 2)
        with torch.no_grad():
            answers = network(features.expand(*shape, -1), torch.ones(shape, dtype=torch.bool))
        if not bool(answers.isfinite().all()):
            raise ValueError("its networks do not give finite numbers.")


def _restore(description: Described, tensors: Tensors, model: Model | None) -> NoisyLabelClassifier:
    params = description.params if model is None else {**description.params, "model": model}
    names = ("model", "noise", "history", *(CROSS_FIT_PARTS if description.method.cross_fits else ()))
    parts = {part: take_part(tensors, f"{part}.") for part in names}
    estimator = description.method(**params)
    estimator.cells_ = _restore_cells(description, tensors)
    estimator.model_ = _restore_model(description, params, parts["model"])
    estimator.noise_ = _restore_noise(description, parts["noise"], estimator.cells_ is not None)
    estimator.history_ = _restore_history(parts["history"])
    estimator.classes_ = as_array(description.classes)
    estimator.n_features_in_ = description.n_features
    estimator.clock_grid_ = tensors["clock_grid"].numpy()
    estimator.noise_matrices_, estimator.annotator_matrices_ = grid_matrices(estimator)
    estimator.sources_ = description.sources.names
    estimator._take_learned(description.learned)
    if description.method.cross_fits:
        _restore_fold_networks(estimator, description, params, parts)
    if "noise" in params:
        estimator.set_params(noise=estimator.noise_)
    return estimator


def _restore_cells(description: Described, tensors: Tensors) -> Cells | None:
    """The cells of several clocks, whose grid has one column for each; None where there is one."""
    clocks = tensors["clock_grid"].shape[1:] if "clock_grid" in tensors and description.method.several_clocks else ()
    check_tensors("clock", tensors, {"clock_grid": ((description.n_points, *clocks), torch.float64)})
    grid, period = tensors["clock_grid"], description.params.get("period")
    if not clocks:
        one_period(period)
        check_rising(grid)
        return None
    cells = cells_of(grid.numpy(), period)
    if not bool(grid.isfinite().all()) or not np.array_equal(cells.grid, grid.numpy()):
        raise ValueError("the moments of its clocks must be finite and their cells in order.")
    return cells


def _restore_model(description: Described, params: dict[str, Any], tensors: Tensors) -> SequenceModel:
    options = {"hidden_size": params["hidden_size"], "causal": params["causal"]}
    members = max((len(tensor) for tensor in tensors.values() if tensor.ndim), default=1)  # more in an ensemble

    def build() -> SequenceModel:
        return make_model(params["model"], members, description.n_features, len(description.classes), **options)

    if description.params["model"] is not None:
        return _fill("model", _without_memory(build), tensors).eval()
    try:
        skeleton = _without_memory(build)
    except Exception:  # a user's own code need not bear the meta device
        skeleton = build()
    check_tensors("model", tensors, wanted_shapes(skeleton))
    # Built anew, because tensors that are neither parameters nor buffers need their values too.
    return _fill("model", build(), tensors, may_be_infinite=True).eval()  # as masks of attention are


def _fold_networks(estimator: NoisyLabelClassifier) -> Tensors:
    """The cross-fitted networks and the digests and folds of the training rows."""
    if not estimator.cross_fits:
        return {}
    networks = {} if estimator.fold_model_ is None else estimator.fold_model_.state_dict()
    rows = {name: torch.tensor(values) for name, values in estimator.training_rows_._asdict().items()}
    return {f"judges.{k}": v for k, v in networks.items()} | {f"rows.{k}": v for k, v in rows.items()}


def _restore_fold_networks(
    estimator: NoisyLabelClassifier, description: Described, params: dict[str, Any], parts: dict[str, Tensors]
) -> None:
    rows, networks = parts["rows"], parts["judges"]
    count = len(rows["folds"]) if "folds" in rows and rows["folds"].ndim else 0
    wanted: Shapes = {"digests": ((count, DIGEST_SIZE), torch.uint8), "folds": ((count,), torch.int64)}
    check_tensors("rows", rows, wanted)
    model = _restore_model(description, params, networks) if networks else None
    n_networks = model.members // (2 if model.is_causal else 1) if model is not None else 0
    if count == 0 or int(rows["folds"].min()) < 0 or n_networks % (int(rows["folds"].max()) + 1):
        raise ValueError(f"its {n_networks} networks must be shared out evenly among the folds of its rows.")
    estimator.fold_model_ = model
    estimator.training_rows_ = TrainingRows(rows["digests"].numpy(), rows["folds"].numpy())


def _restore_noise(description: Described, tensors: Tensors, several: bool) -> NoiseFunction:
    n_classes, n_points = len(description.classes), description.n_points
    annotators = description.annotators
    if description.noise == "fixed":
        n_points = tensors["matrices"].numel() // (annotators * n_classes**2) if "matrices" in tensors else 1
        leading = (1,) if annotators == 1 else (1, annotators)
        wanted: Shapes = {"matrices": ((*leading, n_points, n_classes, n_classes), torch.float32)}
        wanted["clock"] = ((1, n_points), torch.float64)
        if annotators > 1:
            wanted["common_matrices"] = ((1, n_points, n_classes, n_classes), torch.float32)
        check_tensors("noise", tensors, wanted)
        common = tensors["common_matrices"].numpy() if annotators > 1 else None
        period = None if several else description.params.get("period")
        return FixedNoise(tensors["matrices"].numpy(), tensors["clock"][0].numpy(), common, period).eval()
    builders: dict[str, Callable[[], NoiseFunction]] = {
        "static": lambda: StaticNoise(1, n_classes),
        "stepwise": lambda: StepwiseNoise(1, n_classes, torch.empty(n_points), annotators),
        "network": lambda: NetworkNoise(
            1,
            n_classes,
            raw_steps=description.raw_steps,
            annotators=annotators,
            **_network_settings(description.params),
        ),
    }
    noise = _fill("noise", _without_memory(builders[description.noise]), tensors).eval()
    if "shares" in tensors and not (bool((tensors["shares"] >= 0).all()) and abs(tensors["shares"].sum() - 1) < 1e-3):
        raise ValueError("the shares of its annotators must be parts of one whole.")
    moments = tensors.get("clock", tensors.get("bounds"))
    if moments is not None:
        check_rising(moments[0])
    return noise


def _network_settings(params: dict[str, Any]) -> dict[str, Any]:
    """The settings of Q's network among the parameters of a method."""
    names = {"noise_widths": "widths", "scaled_weights": "scaled_weights", "bounded_logits": "bounded_logits"}
    return {setting: params[name] for name, setting in names.items() if name in params}


def _restore_history(tensors: Tensors) -> History:
    n_epochs = len(tensors["loss"]) if "loss" in tensors and tensors["loss"].ndim else 0
    per_epoch, per_member = ((n_epochs, 1), torch.float64), ((1,), torch.int64)
    wanted = {"loss": per_epoch, "held_out": per_epoch, "best_epoch": per_member, "restarts": per_member}
    multipliers = ("linear", "quadratic")
    if not any(name in tensors for name in multipliers):  # a file written before histories kept them
        tensors = tensors | {name: torch.full((n_epochs, 1), torch.nan, dtype=torch.float64) for name in multipliers}
    check_tensors("history", tensors, wanted | dict.fromkeys(multipliers, per_epoch))
    return History(**{name: tensor.numpy() for name, tensor in tensors.items()})


def _without_memory(build: Callable[[], Module]) -> Module:
    """A module whose tensors have shapes but take no memory, whatever sizes a file asks for."""
    try:
        with torch.device("meta"):
            return build()
    except (RuntimeError, TypeError, OverflowError):
        raise ValueError("it asks for a network of impossible size.") from None


def _fill(part: str, module: Module, tensors: Tensors, may_be_infinite: bool = False) -> Module:
    check_tensors(part, tensors, wanted_shapes(module))
    for name, tensor in tensors.items():
        if bool(tensor.isnan().any()) or not (may_be_infinite or bool(tensor.isfinite().all())):
            raise ValueError(f"its {part} tensor {name!r} holds values that are not finite.")
    module.load_state_dict(tensors, assign=True)
    return module
