"""ONNX graphs of whole sequences: features (batch, steps, features) to probabilities (batch, steps, classes).

All networks of an ensemble are in the graph and their probabilities are averaged there.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from labeltide.exporting.onnx_graph import Graph, average, linear, positions, real_steps, sizes
from labeltide.models import MODELS, GRUModel, LinearModel, SequenceModel, TCNModel, TransformerModel
from labeltide.models.transformer import HEADS, MemberNorm


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
