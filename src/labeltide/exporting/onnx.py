"""Export of a fitted model to ONNX, checked in a fresh process with onnxruntime before any file is kept.

The graph is written node by node by the model itself (`SequenceModel.write_onnx`): a traced export can freeze the
number of steps.
"""

from __future__ import annotations

import copy
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from sklearn.utils.validation import check_is_fitted

from labeltide import __version__
from labeltide._files import import_extra, write_atomically, write_json
from labeltide.auditing.predict import open_model
from labeltide.auditing.results import AUDIT
from labeltide.data.scaler import apply_scaling
from labeltide.estimators.base import NoisyLabelClassifier
from labeltide.estimators.storage import load, read_description
from labeltide.models import MODELS
from labeltide.tables.features import MAX_VALUE, Encoder, encoder_from_json
from labeltide.tables.files import check_new_file

SUFFIXES = {"whole": ".onnx", "step": ".step.onnx", "json": ".json", "card": ".md"}
OPSET, IR_VERSION = 17, 8  # LayerNormalization came with opset 17; onnxruntime reads both since 1.12
CASES = ((3, 50), (1, 1), (4, 7), (2, 333))  # sequences and steps of the runs that are compared
STREAM = (3, 40)
MOMENTS = 5  # of the clock, at which the model card gives error rates
TOLERANCE = 1e-5  # in probabilities
SECONDS = 300  # that the fresh process may take


class ComparedRun(NamedTuple):
    """One run that was compared, and the largest difference of a probability."""

    sequences: int
    steps: int
    difference: float


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
    checks: tuple[ComparedRun, ...]
    step_checks: tuple[ComparedRun, ...]

    @property
    def difference(self) -> float:
        """The largest difference of a probability."""
        return max(case.difference for case in (*self.checks, *self.step_checks))

    def __str__(self) -> str:
        files = [path for path in (self.whole, self.step, self.json, self.card) if path is not None]
        steps = sorted({case.steps for case in (*self.checks, *self.step_checks)})
        checked = f"Checked with onnxruntime in a fresh process at {', '.join(map(str, steps))} steps"
        return "\n".join([*map(str, files), f"{checked}: probabilities differ by at most {self.difference:.1e}."])


def export_onnx(source: str | Path | NoisyLabelClassifier | Any, out: str | Path | None = None) -> OnnxExport:
    """Write a fitted model as ONNX: whole sequences, and for causal GRUs one step with its state.

    The networks of an ensemble are averaged inside the graph. A model takes features in the user's units and scales
    them inside; how columns of text and gaps become features is in the JSON file of an audit's model.

    Parameters
    ----------
    source : a saved model, the folder of an audit, a fitted estimator, or the result of `labeltide.audit`
    out : a new file that ends in .onnx; NAME.onnx here when left out
        NAME.step.onnx, NAME.json and NAME.md are written in the same folder.
    """
    found = find_source(source)
    model = found.estimator.model_
    path = Path(f"{found.name}.onnx") if out is None else Path(out)
    check_new_file(path, SUFFIXES["whole"])
    paths = {kind: path.with_name(path.name[: -len(".onnx")] + suffix) for kind, suffix in SUFFIXES.items()}
    for kind, each in paths.items():
        check_new_file(each, SUFFIXES[kind])
    whole = write_graph(found)
    checks = _compare(whole, found, CASES, state=None)
    has_state = model.is_causal and model.onnx_state is not None
    step = write_graph(found, one_step=True) if has_state else None
    step_checks = _compare(step, found, [STREAM], state=model.onnx_state) if step else ()
    result = OnnxExport(
        paths["whole"], paths["step"] if step else None, paths["json"], paths["card"], checks, step_checks
    )
    described = {
        **found.describe(),
        "scaled_inside": found.scaling is not None,
        "columns": [asdict(encoder) for encoder in found.encoders],
        "noise": {"clock": found.estimator.clock_grid_, "matrices": found.estimator.noise_matrices_},
        "checks": [case._asdict() for case in checks],
        "step_checks": [case._asdict() for case in step_checks],
    }
    write_atomically(result.card, model_card(result, found).encode())
    write_json(result.json, described)
    if step is not None:
        write_atomically(paths["step"], step)
    write_atomically(result.whole, whole)  # last, so that where it is, the others are
    return result


class Graph:
    """Collects the nodes and constants of an ONNX graph, and names their results."""

    def __init__(self) -> None:
        self.onnx = import_extra("onnx", "onnx", "Export to ONNX")
        self.nodes: list[Any] = []
        self.constants: dict[str, np.ndarray] = {}
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []

    def constant(self, values: Any, dtype: Any = np.float32) -> str:
        """A constant tensor."""
        name = f"constant_{len(self.constants)}"
        self.constants[name] = np.ascontiguousarray(values, dtype=dtype).reshape(np.shape(values))
        return name

    def whole(self, *values: int) -> str:
        """A constant vector of whole numbers, such as a shape or axes."""
        return self.constant(values, np.int64)

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """The name of the one result of a new node."""
        return self.add_many(operator, inputs, 1, **attributes)[0]

    def add_many(self, operator: str, inputs: Sequence[str], count: int, **attributes: Any) -> list[str]:
        """The names of `count` results of a new node."""
        names = [f"{operator.lower()}_{len(self.nodes)}_{result}" for result in range(count)]
        self.nodes.append(self.onnx.helper.make_node(operator, list(inputs), names, **attributes))
        return names

    def size(self, tensor: str, axis: int) -> str:
        """The size of one axis as a vector of one whole number."""
        return self.add("Gather", self.add("Shape", tensor), self.whole(axis), axis=0)

    def positions(self, count: str) -> str:
        """0, 1, ... up to a count that is a vector of one whole number."""
        zero, one = (self.constant(np.int64(value), np.int64) for value in (0, 1))
        return self.add("Range", zero, self.add("Squeeze", count, self.whole(0)), one)

    def real_steps(self, features: str, lengths: str) -> str:
        """Which steps are not padding: bool (batch, steps)."""
        return self.add("Less", self.positions(self.size(features, 1)), self.add("Unsqueeze", lengths, self.whole(1)))

    def to_float(self, tensor: str) -> str:
        return self.add("Cast", tensor, to=self.onnx.TensorProto.FLOAT)

    def linear(self, inputs: str, layer: Any) -> str:
        """`MemberLinear`: (members or 1, batch, steps, inputs) to (members, batch, steps, outputs)."""
        weight, bias = (tensor.detach().numpy()[:, None] for tensor in (layer.weight, layer.bias))
        product = self.add("MatMul", inputs, self.constant(weight * np.float32(layer.unit)))
        return self.add("Add", product, self.constant(bias))

    def take_input(self, name: str, dtype: Any, shape: Sequence[int | str]) -> str:
        """An input; a name in its shape stands for a size that is free."""
        self.inputs.append(self._value(name, dtype, shape))
        return name

    def give_output(self, name: str, source: str, shape: Sequence[int | str]) -> None:
        """Give a result of the graph under its public name, in single precision."""
        self.nodes.append(self.onnx.helper.make_node("Identity", [source], [name]))
        self.outputs.append(self._value(name, np.float32, shape))

    def _value(self, name: str, dtype: Any, shape: Sequence[int | str]) -> Any:
        kind = self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        return self.onnx.helper.make_tensor_value_info(name, kind, list(shape))

    def to_bytes(self, name: str, metadata: Mapping[str, str]) -> bytes:
        """The checked model as the content of a file."""
        helper, onnx = self.onnx.helper, self.onnx
        constants = [onnx.numpy_helper.from_array(array, label) for label, array in self.constants.items()]
        graph = helper.make_graph(self.nodes, name, self.inputs, self.outputs, constants)
        opsets = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="labeltide")
        model.producer_version = __version__
        helper.set_model_props(model, dict(metadata))
        onnx.checker.check_model(model, full_check=True)
        return model.SerializeToString()


def write_graph(found: OnnxSource, one_step: bool = False) -> bytes:
    """The ONNX model of whole sequences, or of one step with its state."""
    graph, model, estimator = Graph(), found.estimator.model_, found.estimator
    leading = ("streams",) if one_step else ("batch", "steps")
    features = graph.take_input("features", found.dtype, (*leading, estimator.n_features_in_))
    if found.scaling is not None:
        low, high, centre, scale = (graph.constant(row, np.float64) for row in found.scaling)
        centred = graph.add("Sub", graph.add("Min", graph.add("Max", features, low), high), centre)
        features = graph.to_float(graph.add("Div", centred, scale))
    lengths = state = None
    if one_step:
        features = graph.add("Unsqueeze", features, graph.whole(1))  # (streams, 1, features)
        state = graph.take_input("state", np.float32, model.onnx_state)
    elif not model.is_causal:
        lengths = graph.take_input("lengths", np.int64, ("batch",))
    logits, next_state = model.write_onnx(graph, features, lengths, state)
    probabilities = graph.add("ReduceMean", graph.add("Softmax", logits, axis=-1), axes=[0], keepdims=0)
    if lengths is not None:  # zero on padding, as predict_proba gives it
        real = graph.add("Unsqueeze", graph.real_steps(features, lengths), graph.whole(2))
        probabilities = graph.add("Mul", probabilities, graph.to_float(real))
    if one_step:
        probabilities = graph.add("Squeeze", probabilities, graph.whole(1))
        graph.give_output("next_state", next_state, model.onnx_state)
    graph.give_output("probabilities", probabilities, (*leading, len(estimator.classes_)))
    graph.outputs.reverse()  # probabilities first
    kind = "one step" if one_step else "whole sequences"
    about = {"kind": kind, **found.describe()}
    texts = {k: v if isinstance(v, str) else json.dumps(v, ensure_ascii=False) for k, v in about.items()}
    return graph.to_bytes(kind.replace(" ", "_"), texts)


def _compare(
    content: bytes, found: OnnxSource, cases: Sequence[tuple[int, int]], state: Sequence[int | str] | None
) -> tuple[ComparedRun, ...]:
    """Compare probabilities with ours: of whole sequences of several lengths, or steps given one at a time."""
    random, runs, expected = np.random.default_rng(0), {}, []
    looks_ahead = not found.estimator.model_.is_causal
    for number, (sequences, steps) in enumerate(cases):
        values = random.normal(size=(sequences, steps, found.estimator.n_features_in_)).astype(found.dtype)
        if found.scaling is not None:
            values = found.scaling[2] + found.scaling[3] * 1.5 * values  # a little beyond the range that is pulled in
        runs[f"features.{number}"] = values
        counts = np.full(sequences, steps)
        if looks_ahead:  # all but the first are shorter than the array
            counts = np.maximum(1, steps - np.arange(sequences) * (steps // 3))
            runs[f"lengths.{number}"] = counts
        if state is not None:
            runs[f"state.{number}"] = np.zeros([sequences if size == "streams" else size for size in state], np.float32)
        encoded = apply_scaling(values, found.scaling) if found.encoders and found.scaling is not None else values
        expected.append(found.estimator.predict_proba(encoded, counts))
    results, compared = run_fresh(content, runs), []
    for number, ours in enumerate(expected):
        theirs = results[f"probabilities.{number}"]
        difference = float(np.abs(theirs - ours).max()) if theirs.shape == ours.shape else np.inf
        if not difference < TOLERANCE:
            raise ValueError(
                f"The exported model's probabilities differ from ours by {difference:.1e} with {ours.shape[1]} steps; "
                f"at most {TOLERANCE:g} is allowed. No file was kept."
            )
        compared.append(ComparedRun(ours.shape[0], ours.shape[1], difference))
    return tuple(compared)


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


def model_card(result: OnnxExport, found: OnnxSource) -> str:
    """A model card (Mitchell and others 2019) in Markdown."""
    estimator, audit, rates = found.estimator, found.audit or {}, []
    grid = np.asarray(estimator.clock_grid_)
    if grid.ndim == 1:
        chosen = np.unique(np.linspace(0, len(grid) - 1, MOMENTS).round().astype(int))
        wrong = 1 - np.diagonal(estimator.noise_matrices_, axis1=1, axis2=2)[chosen]
        rates = list(zip(grid[chosen].tolist(), wrong.tolist(), strict=True))
    share = [audit["noise"].get(name) for name in ("rate", "rate_lower", "rate_upper")] if audit else [None]
    loader = PackageLoader("labeltide.exporting")
    environment = Environment(loader=loader, trim_blocks=True, keep_trailing_newline=True, undefined=StrictUndefined)
    environment.filters["plain"] = _plain
    return environment.get_template("model_card.md").render(
        result=result,
        found=found,
        estimator=estimator,
        model=estimator.model_,
        classes=[_plain(name) for name in estimator.classes_],
        version=__version__,
        table=audit.get("table"),
        share=None if None in share else share,
        rates=rates,
        kind=np.dtype(found.dtype).name,
        warnings=[check for check in audit.get("diagnostics") or [] if check.get("is_warning")],
    )


def _plain(name: Any) -> str:
    """A user's name in Markdown: on one line, without marks that Markdown or HTML would act on."""
    shown = " ".join("".join(letter if letter.isprintable() else " " for letter in str(name)).split())
    return re.sub(r"[\\`*_\[\]|#]", r"\\\g<0>", shown).replace("<", "&lt;").replace(">", "&gt;")


class OnnxSource(NamedTuple):
    """A fitted estimator and, from an audit, how its features came from the columns of a table."""

    name: str
    estimator: NoisyLabelClassifier
    encoders: tuple[Encoder, ...] = ()
    audit: Mapping[str, Any] | None = None  # the content of audit.json

    @property
    def feature_names(self) -> list[str]:
        names = [name for encoder in self.encoders for name in encoder.names]
        return names or [f"feature {number}" for number in range(self.estimator.n_features_in_)]

    @property
    def scaling(self) -> np.ndarray | None:
        """Low, high, centre and scale of every feature, (4, features); indicators stay as they are."""
        columns = []
        for encoder in self.encoders:
            for index in range(len(encoder.names)):
                is_number = not encoder.levels and index == 0
                number = (encoder.low, encoder.high, encoder.centre, encoder.scale)
                columns.append(number if is_number else (-MAX_VALUE, MAX_VALUE, 0.0, 1.0))
        return np.array(columns, dtype=np.float64).T if columns else self.estimator.scaling_

    @property
    def dtype(self) -> type[np.floating[Any]]:
        """Of the features: double precision where they are in the user's units."""
        return np.float32 if self.scaling is None else np.float64

    def describe(self) -> dict[str, Any]:
        """What every file of the export says of the model."""
        return {
            "labeltide": __version__,
            "method": self.estimator.name,
            "model": self.estimator.model_.name,
            "causal": bool(self.estimator.model_.is_causal),
            "networks": self.estimator.model_.members,
            "classes": [str(name) for name in self.estimator.classes_],
            "features": self.feature_names,
        }


def find_source(source: Any) -> OnnxSource:
    """The model behind a path, an estimator or the result of an audit; it computes on the CPU."""
    encoders: tuple[Encoder, ...] = ()
    audit: Mapping[str, Any] | None = None
    if isinstance(source, NoisyLabelClassifier):
        check_is_fitted(source, "model_")
        name, estimator = source.name, source
    elif hasattr(source, "estimator") and hasattr(source, "summary"):  # the result of lt.audit
        name = Path(source.folder).name if source.folder else "model"
        estimator, audit = source.estimator, source.summary
        encoders = tuple(encoder_from_json(dict(fields)) for fields in audit["encoders"])
    elif isinstance(source, str | Path):
        path = Path(source)
        if not path.exists():
            raise FileNotFoundError(f"There is no file or folder {str(path)!r}.")
        if path.is_dir() or (path.parent.parent / AUDIT).is_file():
            folder, estimator, encoders, audit = open_model(path, ("encoders", "table.name", "table.classes"))
            name = folder.resolve().name
        else:
            name, estimator = path.stem, _load_own(path)
    else:
        raise ValueError(
            "export needs a saved model, the folder of an audit, a fitted estimator or the result of labeltide.audit. "
            f"Got {type(source).__name__}."
        )
    if not estimator.model_.has_onnx:
        raise ValueError(_refusal("This model"))
    estimator = copy.copy(estimator)
    estimator.device = "cpu"
    return OnnxSource(name, estimator, encoders, audit)


def _refusal(what: str) -> str:
    names = ", ".join(name for name, model in MODELS.items() if model.has_onnx)
    return (
        f"Export to ONNX knows these networks of labeltide: {names}. {what} has another one, such as a module of the "
        "user's own, which runs in Python alone: labeltide.load(path, model=...).predict(X). Or fit one of these."
    )


def _load_own(path: Path) -> NoisyLabelClassifier:
    """A saved model with a network of labeltide."""
    try:
        is_foreign = read_description(path.read_bytes())["params"]["model"] is None
    except ValueError as error:
        raise ValueError(f"{str(path)!r} is not a model that labeltide saved: {error}") from None
    if is_foreign:
        raise ValueError(_refusal(str(path)))
    return load(path)
