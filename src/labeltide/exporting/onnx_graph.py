"""ONNX graphs written node by node: nothing is traced, so no axis takes the size of an example."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from labeltide._extras import import_extra

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
