"""Runs an ONNX model in a process of its own: ``python -m labeltide.exporting.onnx_runner MODEL INPUTS OUTPUTS``.

Loads neither torch nor the exporting code. INPUTS and OUTPUTS are .npz files. Inputs named ``features.N`` are
independent runs; with ``state.N`` beside them, the steps of ``features.N`` (streams, steps, features) are given one by
one.
"""

from __future__ import annotations

import sys

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
        if "state" not in own:
            results[f"probabilities.{number}"] = session.run(None, own)[0]
            continue
        state, steps = own["state"], []
        for step in range(own["features"].shape[1]):  # each with the state that the last one left
            probabilities, state = session.run(None, {"features": own["features"][:, step], "state": state})
            steps.append(probabilities)
        results[f"probabilities.{number}"] = np.stack(steps, 1)  # (streams, steps, classes)
    np.savez(outputs, **results)


if __name__ == "__main__":
    run_file(*sys.argv[1:4])
