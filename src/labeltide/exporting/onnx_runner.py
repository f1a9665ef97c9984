"""Runs an ONNX model in a process of its own: ``python -m labeltide.exporting.onnx_runner MODEL INPUTS OUTPUTS``.

Loads neither torch nor the exporting code. INPUTS and OUTPUTS are .npz files. Inputs named ``features.N`` are
independent runs; with ``state.N`` beside them, the steps of ``features.N`` (streams, steps, features) are given one by
one.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np


def run_file(model: str, inputs: str, outputs: str) -> None:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    given = np.load(inputs)
    results = {}
    for number in range(sum(name.startswith("features.") for name in given.files)):
        own = {name.split(".")[0]: given[name] for name in given.files if name.endswith(f".{number}")}
        results[f"probabilities.{number}"] = _stream(session, own) if "state" in own else session.run(None, own)[0]
    np.savez(outputs, **results)  # type: ignore[arg-type]


def _stream(session: Any, given: dict[str, np.ndarray]) -> np.ndarray:
    """Probabilities of all steps, (streams, steps, classes), each step given with the state that the last one left."""
    features, state, steps = given["features"], given["state"], []
    for step in range(features.shape[1]):
        probabilities, state = session.run(None, {"features": features[:, step], "state": state})
        steps.append(probabilities)
    return np.stack(steps, 1)


if __name__ == "__main__":
    run_file(*sys.argv[1:4])
