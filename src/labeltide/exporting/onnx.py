"""Export of a fitted model to ONNX, checked in a fresh process with onnxruntime before any file is kept."""

from __future__ import annotations

import copy
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted

from labeltide import __version__
from labeltide._files import import_extra, write_atomically
from labeltide.auditing.results import AUDIT, MODEL, MODEL_FILE
from labeltide.estimators.base import NoisyLabelClassifier
from labeltide.estimators.storage import load, read_description
from labeltide.exporting.model_card import beside_json, model_card
from labeltide.models import MODELS, GRUModel, LinearModel, SequenceModel, TCNModel, TransformerModel
from labeltide.models.tcn import KERNEL_SIZE
from labeltide.models.transformer import HEADS, MemberNorm
from labeltide.tables.features import MAX_VALUE, Encoder, encoder_from_json

SUFFIXES = {"whole": ".onnx", "step": ".step.onnx", "json": ".json", "card": ".md"}


@dataclass(frozen=True)
class OnnxExport:
    """The files of an export, and the largest differences between their probabilities and ours.

    Attributes
    ----------
    whole : Path
        Whole sequences: features (batch, steps, features) to probabilities (batch, steps, classes).
    step : Path or None
        One step with its state; None where the model looks ahead or has no state.
    json, card : Path
        Classes, features, scaling and Q(t); the same in words.
    checks, step_checks : sequences, steps and difference of each run
    """

    whole: Path
    step: Path | None
    json: Path
    card: Path
    checks: tuple[Case, ...]
    step_checks: tuple[Case, ...]

    @property
    def difference(self) -> float:
        """The largest difference of a probability."""
        return max(case.difference for case in (*self.checks, *self.step_checks))

    def __str__(self) -> str:
        files = [path for path in (self.whole, self.step, self.json, self.card) if path is not None]
        steps = sorted({case.steps for case in (*self.checks, *self.step_checks)})
        said = f"Checked with onnxruntime in a fresh process at {', '.join(map(str, steps))} steps"
        return "\n".join([*map(str, files), f"{said}: probabilities differ by at most {self.difference:.1e}."])


def export_onnx(source: str | Path | NoisyLabelClassifier | Any, out: str | Path | None = None) -> OnnxExport:
    """Write a fitted model as ONNX: whole sequences, and for causal models one step with its state.

    The networks of an ensemble are averaged inside the graph. The model of an audit takes features in the user's own
    units and scales them inside; how columns of text and gaps become features is in the JSON file beside it.

    Parameters
    ----------
    source : a saved model, the folder of an audit, a fitted estimator, or the result of `labeltide.audit`
    out : a new file that ends in .onnx; NAME.onnx here when left out
        NAME.step.onnx, NAME.json and NAME.md are written beside it.
    """
    found = find_source(source)
    model = found.estimator.model_
    check_exportable(model)
    paths = _new_paths(found, out)
    whole, step = _whole_bytes(found), None
    predict, draw = found.estimator.predict_proba, _drawer(found)
    checks = check_sequences(whole, draw, predict, lengths=not model.is_causal)
    step_checks: list[Case] = []
    one = step_graph(model)
    if one is not None:
        step = _step_bytes(found, one)
        step_checks = check_steps(step, draw, predict, one.shape)
    result = OnnxExport(
        paths["whole"], paths["step"] if step else None, paths["json"], paths["card"], tuple(checks), tuple(step_checks)
    )
    _write(result, found, whole, step)
    return result


def _new_paths(found: OnnxSource, out: str | Path | None) -> dict[str, Path]:
    path = Path(f"{found.name}.onnx") if out is None else Path(out)
    if path.suffix.lower() != ".onnx":
        raise ValueError(f"The file must end in .onnx. Got {str(path)!r}.")
    paths = {kind: path.with_name(path.name[: -len(".onnx")] + suffix) for kind, suffix in SUFFIXES.items()}
    there = [str(each) for each in paths.values() if each.exists()]
    if there:
        raise ValueError(f"The files must be new. {there[0]!r} is there already; remove it or name another with --out.")
    return paths


def _whole_bytes(found: OnnxSource) -> bytes:
    graph, model = Graph(), found.estimator.model_
    shape = ("batch", "steps", found.estimator.n_features_in_)
    features = _scaled(graph, found, shape)
    lengths = None if model.is_causal else graph.take_input("lengths", np.int64, ("batch",))
    probabilities = add_model(graph, model, features, lengths)
    if lengths is not None:  # zero on padding, as predict_proba gives it
        real = graph.add("Unsqueeze", real_steps(graph, features, lengths), graph.whole(2))
        probabilities = graph.add("Mul", probabilities, graph.add("Cast", real, to=graph.onnx.TensorProto.FLOAT))
    graph.give_output("probabilities", probabilities, ("batch", "steps", len(found.estimator.classes_)))
    return graph.to_bytes("whole_sequences", _metadata(found, "whole sequences"), __version__)


def _step_bytes(found: OnnxSource, one: StepGraph) -> bytes:
    graph = Graph()
    features = _scaled(graph, found, ("streams", found.estimator.n_features_in_))
    state = graph.take_input("state", np.float32, one.shape)
    probabilities, next_state = one.write(graph, features, state)
    graph.give_output("probabilities", probabilities, ("streams", len(found.estimator.classes_)))
    graph.give_output("next_state", next_state, one.next_shape)
    return graph.to_bytes("one_step", _metadata(found, "one step"), __version__)


def _scaled(graph: Graph, found: OnnxSource, shape: tuple[int | str, ...]) -> str:
    """The features as the network takes them, scaled inside from the user's units, in double precision."""
    if found.scaling is None:
        return graph.take_input("features", np.float32, shape)
    values = graph.take_input("features", np.float64, shape)
    low, high, centre, scale = (graph.constant(row, np.float64) for row in found.scaling)
    values = graph.add("Min", graph.add("Max", values, low), high)
    values = graph.add("Div", graph.add("Sub", values, centre), scale)
    return graph.add("Cast", values, to=graph.onnx.TensorProto.FLOAT)


def _drawer(found: OnnxSource) -> Any:
    """Random features of a given shape; of an audit, from a little beyond the range that is pulled in."""
    random = np.random.default_rng(0)

    def draw(sequences: int, steps: int) -> Given:
        shape = (sequences, steps, found.estimator.n_features_in_)
        if found.scaling is None:
            values = random.normal(size=shape).astype(np.float32)
            return Given(values, values)
        low, high, centre, scale = found.scaling
        raw = centre + scale * random.normal(size=shape) * 1.5
        encoded = ((np.clip(raw, low, high) - centre) / scale).astype(np.float32)
        return Given(raw, encoded if found.encoders else raw)  # without a table, the estimator scales

    return draw


def _metadata(found: OnnxSource, kind: str) -> dict[str, str]:
    estimator = found.estimator
    return {
        "labeltide": __version__,
        "kind": kind,
        "method": estimator.name,
        "model": estimator.model_.name,
        "causal": str(bool(estimator.model_.is_causal)).lower(),
        "networks": str(estimator.model_.members),
        "classes": json.dumps([str(name) for name in estimator.classes_], ensure_ascii=False),
        "features": json.dumps(found.feature_names, ensure_ascii=False),
    }


def _write(result: OnnxExport, found: OnnxSource, whole: bytes, step: bytes | None) -> None:
    """Write all files; the model comes last, so that where it is, the others are."""
    described = beside_json(result, found)
    write_atomically(result.card, model_card(result, found, described).encode())
    write_atomically(result.json, (json.dumps(described, ensure_ascii=False, indent=1) + "\n").encode())
    if step is not None and result.step is not None:
        write_atomically(result.step, step)
    write_atomically(result.whole, whole)


# ----------------------------------------------------------------------------------------------------
# Check of an ONNX model: the same probabilities as ours, from onnxruntime in a fresh process, at several lengths.
# ----------------------------------------------------------------------------------------------------


CASES = ((3, 50), (1, 1), (4, 7), (2, 333))  # sequences and steps of the runs
STREAM = (3, 40)
TOLERANCE = 1e-5  # in probabilities
SECONDS = 300  # that the fresh process may take

Predict = Callable[[np.ndarray, np.ndarray], np.ndarray]  # encoded features and lengths to our probabilities


class Case(NamedTuple):
    """Input of one run, what is given to our own model in its place, and the largest difference met."""

    sequences: int
    steps: int
    difference: float


class Given(NamedTuple):
    """Random features as the graph takes them, and as our model does."""

    raw: np.ndarray
    encoded: np.ndarray


def check_sequences(content: bytes, draw: Callable[[int, int], Given], predict: Predict, lengths: bool) -> list[Case]:
    """Compare whole sequences; where the graph takes lengths, all but the first are shorter than the array."""
    runs, expected = {}, []
    for number, (sequences, steps) in enumerate(CASES):
        given = draw(sequences, steps)
        counts = np.maximum(1, steps - np.arange(sequences) * (steps // 3) if lengths else np.full(sequences, steps))
        runs[f"features.{number}"] = given.raw
        if lengths:
            runs[f"lengths.{number}"] = counts.astype(np.int64)
        expected.append(predict(given.encoded, counts))
    return _compare(content, runs, expected)


def check_steps(
    content: bytes, draw: Callable[[int, int], Given], predict: Predict, state: Sequence[int | str]
) -> list[Case]:
    """Compare steps that are given one at a time with whole sequences."""
    given = draw(*STREAM)
    empty = [{"streams": STREAM[0], "past": 0}.get(size, 0) if isinstance(size, str) else size for size in state]
    runs = {"features.0": given.raw, "state.0": np.zeros(empty, np.float32)}
    return _compare(content, runs, [predict(given.encoded, np.full(STREAM[0], STREAM[1]))])


def _compare(content: bytes, runs: dict[str, np.ndarray], expected: list[np.ndarray]) -> list[Case]:
    results = run_fresh(content, runs)
    cases = []
    for number, ours in enumerate(expected):
        theirs = results[f"probabilities.{number}"]
        if theirs.shape != ours.shape:
            raise ValueError(
                f"The exported model gave shape {theirs.shape} where ours gives {ours.shape}. No file was kept."
            )
        difference = float(np.abs(theirs - ours).max())
        if not difference < TOLERANCE:
            raise ValueError(
                f"The exported model's probabilities differ from ours by {difference:.1e} with {ours.shape[1]} steps; "
                f"at most {TOLERANCE:g} is allowed. No file was kept."
            )
        cases.append(Case(ours.shape[0], ours.shape[1], difference))
    return cases


def run_fresh(content: bytes, runs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What onnxruntime gives in a process that has not built the model."""
    import_extra("onnxruntime", "onnx", "The check of an ONNX model")
    source = str(Path(__file__).parents[2])  # where labeltide was imported from
    paths = os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])
    with tempfile.TemporaryDirectory(prefix="labeltide-onnx-") as work:
        model, inputs, outputs = (str(Path(work) / name) for name in ("model.onnx", "inputs.npz", "outputs.npz"))
        Path(model).write_bytes(content)
        np.savez(inputs, **runs)  # type: ignore[arg-type]
        command = [sys.executable, "-m", "labeltide.exporting.onnx_runner", model, inputs, outputs]
        environment = {**os.environ, "PYTHONPATH": paths}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise ValueError(f"onnxruntime could not run the exported model: {last} No file was kept.")
        with np.load(outputs) as results:
            return {name: results[name] for name in results.files}


# ----------------------------------------------------------------------------------------------------
# ONNX graphs written node by node: nothing is traced, so no axis takes the size of an example.
# ----------------------------------------------------------------------------------------------------


OPSET, IR_VERSION = 17, 8  # LayerNormalization came with opset 17; onnxruntime reads both since 1.12
Shape = Sequence[int | str]  # a name stands for a size that is free


class Graph:
    """Collects nodes and constants, and names what they give."""

    def __init__(self) -> None:
        self.onnx = import_extra("onnx", "onnx", "Export to ONNX")
        self.nodes: list[Any] = []
        self.constants: dict[str, np.ndarray] = {}
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []

    def constant(self, values: Any, dtype: Any = np.float32) -> str:
        """A constant tensor; equal ones are stored once."""
        array = np.ascontiguousarray(values, dtype=dtype).reshape(np.shape(values))
        for name, known in self.constants.items():
            if known.dtype == array.dtype and known.shape == array.shape and np.array_equal(known, array):
                return name
        name = f"constant_{len(self.constants)}"
        self.constants[name] = array
        return name

    def whole(self, *values: int) -> str:
        """A constant vector of whole numbers, such as a shape or axes."""
        return self.constant(values, np.int64)

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """The name of the one result of a new node."""
        return self.add_many(operator, inputs, 1, **attributes)[0]

    def add_many(self, operator: str, inputs: Sequence[str], count: int, **attributes: Any) -> list[str]:
        """The names of `count` results of a new node."""
        place = len(self.nodes)
        names = [f"{operator.lower()}_{place}" + (f"_{result}" if count > 1 else "") for result in range(count)]
        self.nodes.append(self.onnx.helper.make_node(operator, list(inputs), names, **attributes))
        return names

    def take_input(self, name: str, dtype: Any, shape: Shape) -> str:
        self.inputs.append(self._value(name, dtype, shape))
        return name

    def give_output(self, name: str, source: str, shape: Shape) -> None:
        """Give a result of the graph under its public name, in single precision."""
        self.nodes.append(self.onnx.helper.make_node("Identity", [source], [name]))
        self.outputs.append(self._value(name, np.float32, shape))

    def to_bytes(self, name: str, metadata: Mapping[str, str], version: str) -> bytes:
        """The checked model as the content of a file."""
        helper, onnx = self.onnx.helper, self.onnx
        constants = [onnx.numpy_helper.from_array(array, label) for label, array in self.constants.items()]
        graph = helper.make_graph(self.nodes, name, self.inputs, self.outputs, constants)
        opsets = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="labeltide")
        model.producer_version = version
        helper.set_model_props(model, dict(metadata))
        onnx.checker.check_model(model, full_check=True)
        return model.SerializeToString()

    def _value(self, name: str, dtype: Any, shape: Shape) -> Any:
        kind = self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        return self.onnx.helper.make_tensor_value_info(name, kind, list(shape))


def sizes(graph: Graph, tensor: str, axis: int) -> str:
    """The size of one axis as a vector of one whole number."""
    shape = graph.add("Shape", tensor)
    return graph.add("Gather", shape, graph.whole(axis), axis=0)


def positions(graph: Graph, count: str) -> str:
    """0, 1, ... up to a count that is a vector of one whole number."""
    end = graph.add("Squeeze", count, graph.whole(0))
    zero, one = graph.constant(np.int64(0), np.int64), graph.constant(np.int64(1), np.int64)
    return graph.add("Range", zero, end, one)


def real_steps(graph: Graph, features: str, lengths: str) -> str:
    """Which steps lie within their sequence: bool (batch, steps)."""
    places = positions(graph, sizes(graph, features, 1))
    return graph.add("Less", places, graph.add("Unsqueeze", lengths, graph.whole(1)))


def linear(graph: Graph, inputs: str, layer: Any) -> str:
    """`MemberLinear`: (members or 1, batch, steps, inputs) to (members, batch, steps, outputs)."""
    weight, bias = (tensor.detach().numpy()[:, None] for tensor in (layer.weight, layer.bias))
    product = graph.add("MatMul", inputs, graph.constant(weight * np.float32(layer.unit)))
    return graph.add("Add", product, graph.constant(bias))


def average(graph: Graph, logits: str, members: int) -> str:
    """Mean over networks of their probabilities: (members, ...) to (...)."""
    probabilities = graph.add("Softmax", logits, axis=-1)
    if members == 1:
        return graph.add("Squeeze", probabilities, graph.whole(0))
    return graph.add("ReduceMean", probabilities, axes=[0], keepdims=0)


# ----------------------------------------------------------------------------------------------------
# ONNX graphs of whole sequences: features (batch, steps, features) to probabilities (batch, steps, classes).
#
# All networks of an ensemble are in the graph and their probabilities are averaged there.
# ----------------------------------------------------------------------------------------------------


def add_model(graph: Graph, model: SequenceModel, features: str, lengths: str | None) -> str:
    """Probabilities of every step, (batch, steps, classes); `lengths` only where the model looks ahead."""
    return _writer(model)(graph, model, features, lengths)


def check_exportable(model: SequenceModel) -> None:
    """Refuse a model whose graph is not known here."""
    _writer(model)


def refusal(what: str) -> str:
    """Why a network of the user's own is not written, and the way out."""
    return (
        f"Export to ONNX knows labeltide's own networks: {', '.join(MODELS)}. {what} was fitted with a module of the "
        "user's own, which runs in Python alone: labeltide.load(path, model=...).predict(X). Or fit one of ours."
    )


def _writer(model: SequenceModel) -> Callable[[Graph, Any, str, str | None], str]:
    writers: dict[type[SequenceModel], Callable[[Graph, Any, str, str | None], str]] = {
        GRUModel: add_gru,
        TCNModel: add_tcn,
        TransformerModel: add_transformer,
        LinearModel: add_linear,
    }
    if type(model) not in writers:
        raise ValueError(refusal("This model"))
    return writers[type(model)]


def add_linear(graph: Graph, model: LinearModel, features: str, lengths: str | None) -> str:
    inputs = graph.add("Unsqueeze", features, graph.whole(0))
    return average(graph, linear(graph, inputs, model.head), model.members)


def add_gru(graph: Graph, model: GRUModel, features: str, lengths: str | None) -> str:
    by_step = graph.add("Transpose", features, perm=[1, 0, 2])  # (steps, batch, features)
    counts = "" if lengths is None else graph.add("Cast", lengths, to=graph.onnx.TensorProto.INT32)
    logits = []
    for member in range(model.members):
        hidden, _ = gru_node(graph, model, member, by_step, counts)  # (steps, directions, batch, hidden)
        by_row = graph.add("Transpose", hidden, perm=[2, 0, 1, 3])
        joined = graph.add("Reshape", by_row, graph.whole(0, 0, -1))  # (batch, steps, directions * hidden)
        logits.append(graph.add("Unsqueeze", head(graph, model, member, joined), graph.whole(0)))
    return average(graph, graph.add("Concat", *logits, axis=0), model.members)


def gru_node(
    graph: Graph, model: GRUModel, member: int, by_step: str, counts: str = "", state: str = ""
) -> tuple[str, str]:
    """The GRU of one member: the states of all steps, and the last one.

    ONNX orders the gates update, reset, new; here they are reset, update, new. ``linear_before_reset`` applies the
    reset gate after the product with the hidden weights, as `torch.nn.GRU` does.
    """
    layers = [model.forwards] if model.backwards is None else [model.forwards, model.backwards]
    weights = [np.stack([_gates(layer.weight_input, member) for layer in layers])]
    weights += [np.stack([_gates(layer.weight_hidden, member) for layer in layers])]
    biases = [[_gates(bias, member)[:, 0] for bias in (layer.bias_input, layer.bias_hidden)] for layer in layers]
    weights += [np.stack([np.concatenate(pair) for pair in biases])]  # (directions, 6 * hidden)
    direction = "forward" if model.backwards is None else "bidirectional"
    inputs = [by_step, *map(graph.constant, weights), counts, state]
    options = {"hidden_size": model.forwards.hidden_size, "direction": direction, "linear_before_reset": 1}
    every, last = graph.add_many("GRU", inputs, 2, **options)
    return every, last


def _gates(parameter: torch.Tensor, member: int) -> np.ndarray:
    """Weights of one member, (inputs, 3 * hidden), as ONNX has them: (3 * hidden, inputs)."""
    reset, update, new = parameter[member].detach().chunk(3, -1)
    return torch.cat([update, reset, new], -1).T.numpy()


def head(graph: Graph, model: GRUModel, member: int, hidden: str) -> str:
    """Logits of one member from its hidden states."""
    weight, bias = (tensor[member].detach().numpy() for tensor in (model.head.weight, model.head.bias))
    return graph.add("Add", graph.add("MatMul", hidden, graph.constant(weight)), graph.constant(bias[0]))


def add_tcn(graph: Graph, model: TCNModel, features: str, lengths: str | None) -> str:
    mask = None
    if lengths is not None:
        real = graph.add("Unsqueeze", real_steps(graph, features, lengths), graph.whole(1))
        mask = graph.add("Cast", real, to=graph.onnx.TensorProto.FLOAT)  # (batch, 1, steps)

    def convolve(hidden: str, layer: Any) -> str:
        reach = layer.dilation * (layer.weight.shape[-1] - 1)
        sides = [reach, 0] if layer.causal else [reach // 2, reach // 2]
        return convolution(graph, hidden if mask is None else graph.add("Mul", hidden, mask), layer, sides)

    return tcn_body(graph, model, features, convolve)


def tcn_body(graph: Graph, model: TCNModel, features: str, convolve: Callable[[str, Any], str]) -> str:
    """The network around its convolutions: (batch, steps, features) to probabilities (batch, steps, classes)."""
    embedded = linear(graph, graph.add("Unsqueeze", features, graph.whole(0)), model.embed)
    channels = graph.add("Transpose", embedded, perm=[1, 0, 3, 2])  # (batch, members, hidden, steps)
    width = model.embed.weight.shape[-1]
    hidden = graph.add("Reshape", channels, graph.whole(0, model.members * width, -1))
    for block in model.blocks:
        inner = graph.add("Relu", convolve(hidden, block.first))
        inner = graph.add("Relu", convolve(inner, block.second))
        hidden = graph.add("Relu", graph.add("Add", hidden, inner))
    apart = graph.add("Reshape", hidden, graph.whole(0, model.members, width, -1))
    by_member = graph.add("Transpose", apart, perm=[1, 0, 3, 2])  # (members, batch, steps, hidden)
    return average(graph, linear(graph, by_member, model.head), model.members)


def convolution(graph: Graph, hidden: str, layer: Any, sides: list[int]) -> str:
    """`MemberConv`: one grouped convolution for all members, (batch, members * hidden, steps)."""
    weight, bias = (tensor.detach().flatten(0, 1).numpy() for tensor in (layer.weight, layer.bias))
    options = {"dilations": [layer.dilation], "group": layer.members, "pads": sides}
    return graph.add("Conv", hidden, graph.constant(weight), graph.constant(bias), **options)


def add_transformer(graph: Graph, model: TransformerModel, features: str, lengths: str | None) -> str:
    count = sizes(graph, features, 1)
    places = positions(graph, count)
    if lengths is None:  # (queries, keys)
        seen = graph.add("LessOrEqual", places, graph.add("Unsqueeze", places, graph.whole(1)))
    else:  # (batch, 1, 1, keys)
        seen = graph.add("Unsqueeze", real_steps(graph, features, lengths), graph.whole(1, 2))
    hidden = embed_steps(graph, model, features, places)
    for layer in model.layers:
        hidden, _ = transformer_layer(graph, layer, hidden, seen)
    return average(graph, linear(graph, norm(graph, hidden, model.norm), model.head), model.members)


def embed_steps(graph: Graph, model: TransformerModel, features: str, places: str) -> str:
    """Embedding plus sinusoidal positional encoding: (members, batch, steps, hidden)."""
    size = model.embed.weight.shape[-1]
    frequencies = torch.exp(torch.arange(0, size, 2) * (-math.log(10000.0) / size)).numpy()
    moments = graph.add("Cast", graph.add("Unsqueeze", places, graph.whole(1)), to=graph.onnx.TensorProto.FLOAT)
    angles = graph.add("Mul", moments, graph.constant(frequencies))  # (steps, hidden / 2)
    encoding = graph.add("Concat", graph.add("Sin", angles), graph.add("Cos", angles), axis=-1)
    return graph.add("Add", linear(graph, graph.add("Unsqueeze", features, graph.whole(0)), model.embed), encoding)


def transformer_layer(
    graph: Graph, layer: Any, hidden: str, seen: str | None, past: tuple[str, str] | None = None
) -> tuple[str, tuple[str, str]]:
    """The layer's output, and its keys and values (members, batch, steps, hidden), those of the past first."""
    parts = linear(graph, norm(graph, hidden, layer.norm_attention), layer.queries_keys_values)
    query, key, value = graph.add_many("Split", [parts], 3, axis=-1)
    if past is not None:
        key, value = (graph.add("Concat", old, new, axis=2) for old, new in zip(past, (key, value), strict=True))
    gathered = _attend(graph, query, key, value, seen)
    hidden = graph.add("Add", hidden, linear(graph, gathered, layer.attended))
    widened = linear(graph, norm(graph, hidden, layer.norm_feed), layer.widen)
    return graph.add("Add", hidden, linear(graph, _gelu(graph, widened), layer.narrow)), (key, value)


def _attend(graph: Graph, query: str, key: str, value: str, seen: str | None) -> str:
    """Multi-head attention of (members, batch, steps, hidden); `seen` says which keys a query may see."""
    split = graph.whole(0, 0, 0, HEADS, -1)
    query, key, value = (
        graph.add("Transpose", graph.add("Reshape", part, split), perm=[0, 1, 3, order, 6 - order])
        for part, order in ((query, 2), (key, 4), (value, 2))
    )  # (members, batch, heads, steps, width), keys (members, batch, heads, width, steps)
    width = graph.add("Cast", sizes(graph, query, 4), to=graph.onnx.TensorProto.FLOAT)
    scores = graph.add("Div", graph.add("MatMul", query, key), graph.add("Sqrt", width))
    if seen is not None:
        scores = graph.add("Where", seen, scores, graph.constant(np.float32(-np.inf)))
    gathered = graph.add("MatMul", graph.add("Softmax", scores, axis=-1), value)
    return graph.add("Reshape", graph.add("Transpose", gathered, perm=[0, 1, 3, 2, 4]), graph.whole(0, 0, 0, -1))


def norm(graph: Graph, hidden: str, layer: MemberNorm) -> str:
    """`MemberNorm`: layer normalisation with a scale and a shift for each member."""
    ones = graph.constant(np.ones(layer.scale.shape[-1]))
    plain = graph.add("LayerNormalization", hidden, ones, axis=-1, epsilon=1e-5)
    scaled = graph.add("Mul", plain, graph.constant(layer.scale.detach().numpy()))
    return graph.add("Add", scaled, graph.constant(layer.shift.detach().numpy()))


def _gelu(graph: Graph, hidden: str) -> str:
    """Gaussian error linear unit: x (1 + erf(x / sqrt 2)) / 2."""
    erf = graph.add("Erf", graph.add("Mul", hidden, graph.constant(np.float32(0.5**0.5))))
    half = graph.add("Mul", hidden, graph.constant(np.float32(0.5)))
    return graph.add("Mul", half, graph.add("Add", erf, graph.constant(np.float32(1.0))))


# ----------------------------------------------------------------------------------------------------
# What is exported: a fitted estimator and, from an audit, how its features came from the columns of a table.
# ----------------------------------------------------------------------------------------------------


class OnnxSource(NamedTuple):
    """A fitted estimator with what is known about its data."""

    name: str
    estimator: NoisyLabelClassifier
    encoders: tuple[Encoder, ...] = ()
    audit: Mapping[str, Any] | None = None  # what audit.json holds

    @property
    def feature_names(self) -> list[str]:
        names = [name for encoder in self.encoders for name in encoder.names]
        return names or [f"feature {number}" for number in range(self.estimator.n_features_in_)]

    @property
    def scaling(self) -> np.ndarray | None:
        """Low, high, centre and scale of every feature, (4, features); indicators stay as they are."""
        if not self.encoders:
            return self.estimator.scaling_
        columns = []
        for encoder in self.encoders:
            for place in range(len(encoder.names)):
                is_number = not encoder.levels and place == 0
                number = (encoder.low, encoder.high, encoder.centre, encoder.scale)
                columns.append(number if is_number else (-MAX_VALUE, MAX_VALUE, 0.0, 1.0))
        return np.array(columns, dtype=np.float64).T


def find_source(source: Any) -> OnnxSource:
    """The model behind a path, an estimator or the result of an audit; it computes on the CPU."""
    found = _find(source)
    estimator = copy.copy(found.estimator)
    estimator.device = "cpu"
    return found._replace(estimator=estimator)


def _find(source: Any) -> OnnxSource:
    if isinstance(source, NoisyLabelClassifier):
        check_is_fitted(source, "model_")
        return OnnxSource(source.name, source)
    if hasattr(source, "estimator") and hasattr(source, "summary"):  # the result of lt.audit
        name = Path(source.folder).name if source.folder else "model"
        return _of_audit(name, source.estimator, source.summary)
    if not isinstance(source, str | Path):
        raise ValueError(
            "export needs a saved model, the folder of an audit, a fitted estimator or the result of labeltide.audit. "
            f"Got {type(source).__name__}."
        )
    return _read(Path(source))


def _read(path: Path) -> OnnxSource:
    if not path.exists():
        raise FileNotFoundError(f"There is no file or folder {str(path)!r}.")
    folder = path if path.is_dir() else path.parent.parent
    if (folder / AUDIT).is_file() and (folder / MODEL / MODEL_FILE).is_file():
        try:
            audit = json.loads((folder / AUDIT).read_bytes())
            return _of_audit(folder.resolve().name, load(folder / MODEL / MODEL_FILE), audit)
        except (KeyError, TypeError, json.JSONDecodeError):
            raise ValueError(
                f"{str(folder / AUDIT)!r} is not what an audit of this version writes. Audit again."
            ) from None
    if path.is_dir():
        raise ValueError(
            f"The folder must be that of an audit, with {AUDIT} and {MODEL}/{MODEL_FILE} in it. Got {str(path)!r}."
        )
    try:
        return OnnxSource(path.stem, load(path))
    except ValueError:
        if _is_own_module(path):
            raise ValueError(refusal(str(path))) from None
        raise


def _is_own_module(path: Path) -> bool:
    """Whether a saved model has a network of the user's own, whose code is in no file."""
    with suppress(ValueError):
        return path.is_file() and read_description(path.read_bytes()).params["model"] is None
    return False


def _of_audit(name: str, estimator: NoisyLabelClassifier, audit: Mapping[str, Any]) -> OnnxSource:
    encoders = tuple(encoder_from_json(dict(fields)) for fields in _listed(audit["encoders"]))
    count = sum(len(encoder.names) for encoder in encoders)
    if count != estimator.n_features_in_:
        raise ValueError(
            f"The audit names {count} features and its model takes {estimator.n_features_in_}: the files do not belong "
            "together. Audit again."
        )
    return OnnxSource(name, estimator, encoders, audit)


def _listed(encoders: Any) -> Sequence[Mapping[str, Any]]:
    if not isinstance(encoders, list):
        raise TypeError
    return encoders


# ----------------------------------------------------------------------------------------------------
# ONNX graphs of one step of a causal model: its features and the state before it to probabilities and the next state.
#
# Every stream begins with a state of zeros. A GRU keeps its hidden state, a TCN the past inputs of each convolution, a
# transformer the keys and values of all steps so far, so that its state grows by one step at a time, from none.
# ----------------------------------------------------------------------------------------------------


class StepGraph(NamedTuple):
    """The shape of a state, "streams" and "past" standing for sizes that are free, and the writer of the graph."""

    shape: Shape
    next_shape: Shape
    write: Callable[[Graph, str, str], tuple[str, str]]  # features, state -> probabilities, next state


def step_graph(model: SequenceModel) -> StepGraph | None:
    """How one step is computed; None where the model looks ahead or has no state."""
    if not model.is_causal:
        return None
    if isinstance(model, GRUModel):
        return _gru_step(model)
    if isinstance(model, TCNModel):
        return _tcn_step(model)
    return _transformer_step(model) if isinstance(model, TransformerModel) else None


def _gru_step(model: GRUModel) -> StepGraph:
    shape = (model.members, "streams", model.forwards.hidden_size)

    def write(graph: Graph, features: str, state: str) -> tuple[str, str]:
        by_step = graph.add("Unsqueeze", features, graph.whole(0))  # (1, streams, features)
        befores = graph.add_many("Split", [state], model.members, axis=0) if model.members > 1 else [state]
        pairs = [gru_node(graph, model, member, by_step, state=before) for member, before in enumerate(befores)]
        afters = [after for _, after in pairs]  # (1, streams, hidden) each
        logits = [head(graph, model, member, after) for member, after in enumerate(afters)]
        joined, next_state = (graph.add("Concat", *parts, axis=0) for parts in (logits, afters))
        return average(graph, joined, model.members), next_state

    return StepGraph(shape, shape, write)


def _tcn_step(model: TCNModel) -> StepGraph:
    blocks: Any = model.blocks
    layers = [layer for block in blocks for layer in (block.first, block.second)]
    pasts = [layer.dilation * (KERNEL_SIZE - 1) for layer in layers]
    shape = ("streams", model.members * model.embed.weight.shape[-1], sum(pasts))

    def write(graph: Graph, features: str, state: str) -> tuple[str, str]:
        befores = iter(graph.add_many("Split", [state, graph.whole(*pasts)], len(pasts), axis=2))
        afters = []

        def convolve(hidden: str, layer: Any) -> str:
            inputs = graph.add("Concat", next(befores), hidden, axis=2)
            afters.append(graph.add("Slice", inputs, graph.whole(1), graph.whole(2**31), graph.whole(2)))
            return convolution(graph, inputs, layer, [0, 0])

        one = graph.add("Unsqueeze", features, graph.whole(1))  # (streams, 1, features)
        probabilities = graph.add("Squeeze", tcn_body(graph, model, one, convolve), graph.whole(1))
        return probabilities, graph.add("Concat", *afters, axis=2)

    return StepGraph(shape, shape, write)


def _transformer_step(model: TransformerModel) -> StepGraph:
    leading, width = (len(model.layers), 2, model.members, "streams"), model.embed.weight.shape[-1]

    def write(graph: Graph, features: str, state: str) -> tuple[str, str]:
        one = graph.add("Unsqueeze", features, graph.whole(1))  # (streams, 1, features)
        hidden, afters = embed_steps(graph, model, one, sizes(graph, state, 4)), []
        for place, layer in enumerate(model.layers):
            of_layer = graph.add("Squeeze", graph.add("Gather", state, graph.whole(place), axis=0), graph.whole(0))
            key, value = graph.add_many("Split", [of_layer], 2, axis=0)
            past = graph.add("Squeeze", key, graph.whole(0)), graph.add("Squeeze", value, graph.whole(0))
            hidden, now = transformer_layer(graph, layer, hidden, None, past)
            pair = [graph.add("Unsqueeze", part, graph.whole(0, 1)) for part in now]
            afters.append(graph.add("Concat", *pair, axis=1))
        logits = linear(graph, norm(graph, hidden, model.norm), model.head)
        probabilities = graph.add("Squeeze", average(graph, logits, model.members), graph.whole(1))
        return probabilities, graph.add("Concat", *afters, axis=0)

    return StepGraph((*leading, "past", width), (*leading, "steps", width), write)
