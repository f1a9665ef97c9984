"""Cost of a user's own network (`lt.wrap`) on raw signals, in plain PyTorch training loops of the same network.

    python bench/benchmarks/own_network.py                                # this machine's CPU
    python bench/benchmarks/own_network.py --device cuda
    python bench/benchmarks/own_network.py --epochs 10 --repeats 3 --methods ignore    # a short trial

Convolutions read the 200 raw samples of each step and a GRU reads the steps: 300 sequences of 30 steps, three classes.
The plain loop trains the network once, with the epochs, batch size, learning rate and gradient clipping of `ignore`.
Works alternate, so that a machine that slows down slows all of them, and a ratio is the median over repetitions.
One JSON line per method is added to own_network.jsonl. It names every fleet of networks that was trained: its stage,
seconds, networks, the epochs that each ran, and their optimiser steps. `arithmetic` is the number of plain loops
that these optimiser steps would take in rows, without evaluation, prediction and the hidden Markov model.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import statistics
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor, nn

import labeltide as lt
from labeltide.estimators.fleet import FleetFit
from labeltide.training import History, Schedule

ROWS, STEPS, SAMPLES, CLASSES = 300, 30, 200, 3
PERIODS = (10.0, 14.0, 20.0)  # samples per oscillation of each class


class SignalNetwork(nn.Module):
    """Convolutions within each step, then a GRU over steps."""

    def __init__(self, n_features: int, n_classes: int) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(
            nn.Conv1d(1, 16, 11, stride=2, padding=5),
            nn.ReLU(),
            nn.MaxPool1d(2),
            nn.Conv1d(16, 32, 7, padding=3),
            nn.ReLU(),
            nn.AdaptiveAvgPool1d(1),
        )
        self.gru = nn.GRU(32, 32, batch_first=True)
        self.head = nn.Linear(32, n_classes)

    def forward(self, features: Tensor) -> Tensor:
        """(batch, steps, samples) → logits (batch, steps, classes)."""
        batch, steps, samples = features.shape
        found = self.convolutions(features.reshape(batch * steps, 1, samples))
        return self.head(self.gru(found.reshape(batch, steps, -1))[0])


class Study(NamedTuple):
    """Raw signals and recorded labels, some of which are wrong."""

    features: np.ndarray  # float32 (rows, steps, samples)
    labels: np.ndarray  # int64 (rows, steps)


class TrainingCost(NamedTuple):
    """One fleet of networks that a fit has trained."""

    stage: str
    seconds: float
    epochs: list[int]  # that each network ran
    steps: int  # optimiser steps of all networks
    rows: int  # that all networks saw in training, over all epochs


def make_study() -> Study:
    """Oscillations whose period depends on the class, with random phase and strong noise; a fifth of labels wrong."""
    states = lt.make_sequences(ROWS, STEPS, 1, CLASSES, stay=0.9, random_state=0).labels[..., 0]
    random = np.random.default_rng(0)
    phase = random.uniform(0, 2 * np.pi, (ROWS, STEPS, 1))
    waves = np.sin(2 * np.pi * np.arange(SAMPLES) / np.array(PERIODS)[states][..., None] + phase)
    features = (waves + 3 * random.standard_normal(waves.shape)).astype(np.float32)
    noise = lt.make_noise("growth", n_classes=CLASSES, n_steps=STEPS, rate=0.2)
    return Study(features, lt.corrupt(states, noise, 0).astype(np.int64))


def fit_plain(study: Study, device: str, epochs: int) -> list[TrainingCost]:
    """A plain training loop of one network."""
    schedule = Schedule(epochs=epochs)
    assert schedule.clip is not None
    features, labels = torch.from_numpy(study.features).to(device), torch.from_numpy(study.labels).to(device)
    torch.manual_seed(0)
    network = SignalNetwork(SAMPLES, CLASSES).to(device)
    optimiser = torch.optim.Adam(network.parameters(), lr=schedule.learning_rate)
    for _ in range(epochs):
        for rows in torch.randperm(len(features), device=device).split(schedule.batch_size):
            optimiser.zero_grad()
            logits = network(features[rows])
            nn.functional.cross_entropy(logits.flatten(0, 1), labels[rows].flatten()).backward()
            nn.utils.clip_grad_norm_(network.parameters(), schedule.clip)
            optimiser.step()
    return []


def fit_method(method: str, study: Study, device: str, epochs: int) -> list[TrainingCost]:
    """A fit of labeltide; returns the fleets that it trained, in their order."""
    trained: list[TrainingCost] = []
    train = FleetFit.train

    def timed(self: FleetFit, *args: Any, **options: Any) -> History:
        started = time.perf_counter()
        history = train(self, *args, **options)
        _wait(device)
        seconds = time.perf_counter() - started
        ran = (~np.isnan(history.loss)).sum(0)
        rows = (self.data.weights > 0).sum(1).cpu().numpy()
        batches = -(-rows // (options.get("batch_size") or self.settings.batch_size))
        stage = options.get("stage", "train")
        trained.append(TrainingCost(stage, seconds, ran.tolist(), int(ran @ batches), int(ran @ rows)))
        return history

    with patch.object(FleetFit, "train", timed):
        model = lt.wrap(SignalNetwork)
        lt.METHODS[method](model=model, epochs=epochs, device=device, random_state=0).fit(study.features, study.labels)
    return trained


def measure(methods: list[str], device: str, epochs: int, repeats: int) -> list[dict[str, Any]]:
    """A record for the plain loop and for each method, from alternating repetitions."""
    study = make_study()
    works: dict[str, Callable[[int], list[TrainingCost]]] = {"plain": partial(fit_plain, study, device)}
    works |= {method: partial(fit_method, method, study, device) for method in methods}
    for work in works.values():
        work(2)  # the first calls of everything
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in works}
    fleets: dict[str, list[TrainingCost]] = {}
    for _ in range(repeats):
        for name, work in works.items():
            wall, processor = time.perf_counter(), _processor_seconds()
            fleets[name] = work(epochs)
            _wait(device)
            times[name].append((time.perf_counter() - wall, _processor_seconds() - processor))
    return [_record(name, times, fleets[name], epochs) for name in works]


def _record(
    name: str, times: dict[str, list[tuple[float, float]]], fleets: list[TrainingCost], epochs: int
) -> dict[str, Any]:
    wall, processor = zip(*times[name], strict=True)
    pairs = list(zip(times[name], times["plain"], strict=True))
    ratios = sorted(own[0] / plain[0] for own, plain in pairs)
    record = {
        "name": name,
        "epochs": epochs,
        "repeats": len(ratios),
        "seconds": statistics.median(wall),
        "processor_seconds": statistics.median(processor),
        "ratio": statistics.median(ratios),
        "ratio_range": [ratios[0], ratios[-1]],
        "processor_ratio": statistics.median(own[1] / plain[1] for own, plain in pairs),
    }
    if fleets:
        record |= {
            "networks": sum(len(fleet.epochs) for fleet in fleets),
            "arithmetic": sum(fleet.rows for fleet in fleets) / (epochs * ROWS),
            "trained": [fleet._asdict() for fleet in fleets],
        }
    return record


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def _processor_seconds() -> float:
    """Seconds of the processor, over all threads."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _commit() -> str:
    """The commit of the working tree, with a + where files have changed; unknown without git."""
    try:
        asked = ["git", "describe", "--always", "--dirty=+", "--exclude=*"]
        return subprocess.run(
            asked, capture_output=True, text=True, check=True, cwd=Path(__file__).parent
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def print_table(records: list[dict[str, Any]]) -> None:
    """The methods, and the fleets of networks that each trained."""
    plain = records[0]["seconds"]
    print(f"{'':<42}{'seconds':>9}{'plain loops':>13}{'range':>16}{'processor':>11}{'arithmetic':>12}")
    for record in records:
        low, high = record["ratio_range"]
        numbers = f"{record['seconds']:9.2f}{record['ratio']:13.2f}{f'{low:.2f} to {high:.2f}':>16}"
        print(f"{record['name']:<42}{numbers}{record['processor_ratio']:11.2f}{record.get('arithmetic', 1.0):12.2f}")
        for fleet in record.get("trained", ()) if record["name"] == "tide" else ():
            ran = fleet["epochs"]
            title = f"  {fleet['stage']}: {len(ran)} x {min(ran)} to {max(ran)} epochs"
            share = fleet["rows"] / (record["epochs"] * ROWS)
            print(f"{title:<42}{fleet['seconds']:9.2f}{fleet['seconds'] / plain:13.2f}{'':>27}{share:12.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("bench/results/speed"))
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--epochs", type=int, default=150)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--methods", nargs="*", default=["ignore", "tide"])
    parser.add_argument("--tag", default="", help="a note in the records, such as before or after")
    arguments = parser.parse_args()
    records = measure(arguments.methods, arguments.device, arguments.epochs, arguments.repeats)
    print_table(records)
    cuda = arguments.device == "cuda"
    about = {
        "device": torch.cuda.get_device_name() if cuda else f"{torch.get_num_threads()} cores",
        "date": time.strftime("%Y-%m-%d"),
        "commit": _commit(),
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "labeltide": lt.__version__,
        "tag": arguments.tag,
    }
    arguments.out.mkdir(parents=True, exist_ok=True)
    with open(arguments.out / "own_network.jsonl", "a", encoding="utf-8") as file:
        file.writelines(json.dumps({**about, **record}) + "\n" for record in records)


if __name__ == "__main__":
    main()
