"""Exported ONNX models against our own: differences at three lengths and for single steps, and speed.

    python bench/benchmarks/onnx_export.py --out bench/results/speed/onnx.md

Each model is a `tide` fit of ten networks to simulated sequences with noisy labels. Both sides have one thread. Times
are medians over alternating repetitions.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch

import labeltide as lt
from labeltide.exporting.onnx import OnnxExport, export_onnx

LENGTHS, ROWS, STREAM_STEPS = (17, 100, 1000), 8, 300
CASES = (("gru", True), ("gru", False), ("tcn", True), ("tcn", False))
HEAD = ["model", *(f"difference, {n} steps" for n in LENGTHS), "difference, step by step"]
HEAD += [*(f"ms, {n} steps, ours" for n in LENGTHS), *(f"ONNX, {n}" for n in LENGTHS), "ms a step, ours", "ONNX"]


def fit(model: str, causal: bool) -> lt.TideClassifier:
    data = lt.make_sequences(n=60, n_steps=60, n_features=6, n_classes=3, random_state=0)
    noisy = lt.corrupt(data.labels, lt.make_noise("growth", n_classes=3, n_steps=60), random_state=0)
    estimator = lt.TideClassifier(model=model, causal=causal, epochs=30, random_state=0, device="cpu")
    return estimator.fit(data.features, noisy)


def medians(works: list[Callable[[], Any]], turns: int = 7) -> list[float]:
    """Milliseconds of each work: the median over turns that alternate; the first turn does not count."""
    times = []
    for _ in range(turns + 1):
        row = []
        for work in works:
            started = time.perf_counter()
            work()
            row.append(1000 * (time.perf_counter() - started))
        times.append(row)
    return [statistics.median(column) for column in zip(*times[1:], strict=True)]


def session(path: Path) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def measure(model: str, causal: bool, folder: Path) -> list[str]:
    estimator = fit(model, causal)
    exported = export_onnx(estimator, folder / f"{model}-{causal}.onnx")
    whole, random = session(exported.whole), np.random.default_rng(1)
    differences, ours, theirs = [], [], []
    for steps in LENGTHS:
        X = random.normal(size=(ROWS, steps, 6)).astype(np.float32)
        given = {"features": X} | ({} if causal else {"lengths": np.full(ROWS, steps)})
        difference = np.abs(whole.run(None, given)[0] - estimator.predict_proba(X)).max()
        differences.append(f"{difference:.1e}")
        works = [lambda X=X: estimator.predict_proba(X), lambda given=given: whole.run(None, given)]
        mine, other = medians(works)
        ours.append(f"{mine:.1f}")
        theirs.append(f"{other:.1f}")
    step = measure_steps(estimator, exported) if exported.step else ["", "", ""]
    name = f"{model}, {'causal' if causal else 'looks ahead'}"
    return [name, *differences, step[0], *ours, *theirs, *step[1:]]


def measure_steps(estimator: lt.TideClassifier, exported: OnnxExport) -> list[str]:
    """The difference of 300 steps that are given one by one, and milliseconds of one step, ours and ONNX."""
    one = session(exported.step)
    X = np.random.default_rng(2).normal(size=(1, STREAM_STEPS, 6)).astype(np.float32)
    shape = [{"streams": 1}.get(size, size) for size in one.get_inputs()[1].shape]

    def ours() -> np.ndarray:
        stream = estimator.stream()
        return np.stack([stream.push(row) for row in X[0]])

    def theirs() -> np.ndarray:
        state, steps = np.zeros(shape, np.float32), []
        for row in X[0]:
            probabilities, state = one.run(None, {"features": row[None], "state": state})
            steps.append(probabilities[0])
        return np.stack(steps)

    difference = np.abs(theirs() - estimator.predict_proba(X)[0]).max()
    return [f"{difference:.1e}", *(f"{total / STREAM_STEPS:.2f}" for total in medians([ours, theirs], 3))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        rows = [measure(model, causal, Path(folder)) for model, causal in CASES]
    lines = [HEAD, ["---", *["--:"] * (len(HEAD) - 1)], *rows]
    text = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    title = "# Exported models against our own\n\n"
    words = (
        f"Ensembles of ten networks with 32 hidden units, 6 features, 3 classes, {ROWS} sequences at once, one thread. "
        f"Differences are the largest of any probability; those of single steps over {STREAM_STEPS} steps. Times are "
        "medians. `python bench/benchmarks/onnx_export.py --out bench/results/speed/onnx.md`\n\n"
    )
    print(text)
    if arguments.out:
        arguments.out.write_text(title + words + text + "\n")


if __name__ == "__main__":
    main()
