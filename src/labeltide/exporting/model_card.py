"""What goes with an exported model: JSON for programs, and a model card in Markdown (Mitchell and others 2019)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from labeltide import __version__
from labeltide._files import to_json

if TYPE_CHECKING:
    from labeltide.exporting.onnx import OnnxExport, OnnxSource


MOMENTS = 5  # of the clock, at which the card gives error rates


def beside_json(result: OnnxExport, found: OnnxSource) -> dict[str, Any]:
    """What a program needs beside the graph, and Q(t)."""
    estimator = found.estimator
    return to_json(
        {
            "labeltide": __version__,
            "method": estimator.name,
            "model": estimator.model_.name,
            "causal": bool(estimator.model_.is_causal),
            "networks": estimator.model_.members,
            "classes": [str(name) for name in estimator.classes_],
            "features": found.feature_names,
            "scaled_inside": found.scaling is not None,
            "columns": [asdict(encoder) for encoder in found.encoders],
            "noise": {"clock": estimator.clock_grid_, "matrices": estimator.noise_matrices_},
            "checks": [case._asdict() for case in result.checks],
            "step_checks": [case._asdict() for case in result.step_checks],
        }
    )


def model_card(result: OnnxExport, found: OnnxSource) -> str:
    """The card as Markdown."""
    estimator, model, table = found.estimator, found.estimator.model_, (found.audit or {}).get("table")
    kind = f"an average of {model.members} networks" if model.members > 1 else "one network"
    sees = "the step itself and earlier steps" if model.is_causal else "all steps of the sequence"
    data = [f"{estimator.n_features_in_} features. The saved model does not say which data it was fitted to."]
    if table is not None:
        data = [
            f"{_text(table['name'])}: {table['rows']:,} rows, {table['sequences']:,} sequences, {table['labels']:,} "
            "recorded labels. The labels were not corrected beforehand; the model learned with their noise modelled.",
            f"Columns: {', '.join(_text(encoder.column) for encoder in found.encoders)}.",
        ]
    runs = [("whole", case) for case in result.checks] + [("step by step", case) for case in result.step_checks]
    parts = [
        f"# Model card: {_text(found.name)}",
        f"Gives the probability of each true label at every step of a time series: {kind} ({model.name}), fitted by "
        f"labeltide {__version__} with the method `{estimator.name}`. A prediction depends on {sees}.",
        f"Classes, in the order of the output: {', '.join(_text(name) for name in estimator.classes_)}.",
        "## Data",
        *data,
        "## Noise of the labels it learned from",
        *_noise(found),
        "## How to run it",
        *_running(result, found),
        "## How it was checked",
        "The files ran with onnxruntime in a fresh process on random features and were compared with labeltide's own "
        "predictions. They are kept only where no probability differs by 1e-5 or more.",
        _table(
            ["how", "sequences", "steps", "largest difference"],
            [[how, str(case.sequences), str(case.steps), f"{case.difference:.1e}"] for how, case in runs],
        ),
        "## Limits",
        "- It predicts the true label as the annotators would give it without mistakes. A mistake that all of them "
        "always make looks right to it.\n"
        "- Its accuracy on your data is not known from the noisy labels. Measure it on labels that you trust.\n"
        "- It knows the people, devices and ranges of its training data. Outside them its probabilities may be too "
        "sure.",
    ]
    for check in (found.audit or {}).get("diagnostics") or []:
        if check.get("is_warning"):
            parts[-1] += f"\n- The audit warned: {_text(check.get('sentence', ''))}"
    return "\n\n".join(parts) + "\n"


def _noise(found: OnnxSource) -> list[str]:
    grid, matrices = np.asarray(found.estimator.clock_grid_), found.estimator.noise_matrices_
    meaning = "Q(t) is the probability of each recorded label given the true one at a moment of the clock."
    parts = [f"{meaning} It is estimated, not known. The JSON file has all of it."]
    if found.audit is not None:
        noise = found.audit["noise"]
        ends = (noise.get("rate"), noise.get("rate_lower"), noise.get("rate_upper"))
        if all(end is not None for end in ends):
            parts.append("Share of wrong labels: {:.1%} (95 % interval {:.1%} to {:.1%}).".format(*ends))
    if grid.ndim == 1:
        chosen = np.unique(np.linspace(0, len(grid) - 1, MOMENTS).round().astype(int))
        wrong = 1 - np.diagonal(matrices, axis1=1, axis2=2)[chosen]
        names = [_text(name) for name in found.estimator.classes_]
        rows = [
            [f"{moment:.4g}", *(f"{rate:.1%}" for rate in rates)]
            for moment, rates in zip(grid[chosen], wrong, strict=True)
        ]
        parts.append(_table(["clock", *(f"true {name} recorded as another" for name in names)], rows))
    return parts


def _running(result: OnnxExport, found: OnnxSource) -> list[str]:
    model, count = found.estimator.model_, found.estimator.n_features_in_
    kind = "float32" if found.scaling is None else "float64"
    lengths = "" if model.is_causal else ", `lengths` int64 (batch)"
    files = (
        f"- `{result.whole.name}`: input `features` {kind} (batch, steps, {count}){lengths}; output `probabilities`."
    )
    if result.step is not None:
        start = "no past step" if "past" in (model.onnx_state or ()) else "zeros"
        files += (
            f"\n- `{result.step.name}`: one step with its state. Inputs `features` {kind} (streams, {count}) and "
            f"`state`, which begins with {start}; outputs `probabilities` and `next_state`."
        )
    elif model.is_causal:
        files += "\n- Every step is judged by itself: a single step is a sequence of one."
    if found.scaling is None:
        return [files, "Features must be scaled as those that the model was fitted to."]
    inside = "the graph pulls outliers in, centres and scales."
    if not found.encoders:
        return [files, f"Features are in the units of the training data: {inside}"]
    return [
        files,
        f"Features are in the units of the table: {inside} Gaps in numbers are filled beforehand with the last value "
        "before them in the sequence, else with `fill` of the JSON file. A feature `NAME (missing)` is 1 where one was "
        "filled and 0 elsewhere. A feature `NAME=LEVEL` is 1 where the column has this level and 0 elsewhere.",
        f"Order of the features: {', '.join(_text(name) for name in found.feature_names)}.",
    ]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _text(name: Any) -> str:
    """A user's name in Markdown: on one line, without marks that Markdown or HTML would act on."""
    shown = " ".join("".join(letter if letter.isprintable() else " " for letter in str(name)).split())
    for mark in "\\`*_[]<>|#":
        shown = shown.replace(mark, {"<": "&lt;", ">": "&gt;"}.get(mark, f"\\{mark}"))
    return shown
