"""Export of a fitted model to ONNX, checked in a fresh process with onnxruntime before any file is kept."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from labeltide import __version__
from labeltide._files import write_atomically
from labeltide.estimators.base import NoisyLabelClassifier
from labeltide.exporting.model_card import beside_json, model_card
from labeltide.exporting.onnx_check import Case, Given, check_sequences, check_steps
from labeltide.exporting.onnx_graph import Graph, real_steps
from labeltide.exporting.onnx_models import add_model, check_exportable
from labeltide.exporting.onnx_source import OnnxSource, find_source
from labeltide.exporting.onnx_steps import StepGraph, step_graph

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
    """The features as the network takes them; those of an audit come in the user's units, in double precision."""
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
        return Given(raw, ((np.clip(raw, low, high) - centre) / scale).astype(np.float32))

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
