"""ONNX graphs of one step of a causal model: its features and the state before it to probabilities and the next state.

Every stream begins with a state of zeros. A GRU keeps its hidden state, a TCN the past inputs of each convolution, a
transformer the keys and values of all steps so far, so that its state grows by one step at a time, from none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from labeltide.exporting.onnx_graph import Graph, Shape, average, linear, sizes
from labeltide.exporting.onnx_models import (
    convolution,
    embed_steps,
    gru_node,
    head,
    norm,
    tcn_body,
    transformer_layer,
)
from labeltide.models import GRUModel, SequenceModel, TCNModel, TransformerModel
from labeltide.models.tcn import KERNEL_SIZE


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
