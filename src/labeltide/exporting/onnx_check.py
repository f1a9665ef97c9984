"""Check of an ONNX model: the same probabilities as ours, from onnxruntime in a fresh process, at several lengths."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from labeltide._extras import import_extra

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
