"""How much more labels to learn from help: error of tide on unseen people and error of Q against their number.

    LABELTIDE_DATA=data python bench/benchmarks/train_on.py --labels 1e4 1e5 1e6 --out bench/results/scale/train_on.json

Simulated: the wearable study of `labeltide simulate`, 300 people, of whom 20 are for the test. Real: an accelerometer
on the chest (UCI 287), 15 people at 52 Hz, of whom 3 are for the test; and sleep (Sleep-EDF), 20 nights of 10 people,
of whom 2 are for the test, with fewer labels than 10^5. Noise is drawn: the rate of wrong labels grows over every
window from a tenth to a half. Windows of 100 steps are drawn by chance from all people for training, as
`labeltide audit --train-on` does, and networks are trained for as many epochs as there. Every fit is a process of its
own. Its features are read from a file that is mapped into memory, as in an audit. Peak memory is that of the fit alone:
anonymous memory, without the pages of mapped files, which the system takes back where memory is short.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

import labeltide as lt
from labeltide.auditing import fitting
from labeltide.data.studies import ACTIVITIES, FEATURES, simulate_study
from labeltide_bench.evaluation.recovery import absolute_errors, frobenius_errors

STEPS = 100  # of a window
SHAPE, RATE = "growth", 0.29
ROWS_OF_A_DAY = 84  # of a simulated person, at least
DAYS = 60
TEST = {"simulated": 20, "chest": 3, "sleep": 2}  # people
TEST_WINDOWS = 2000
PARTS = ("train", "test")
Windows = tuple[np.ndarray, np.ndarray, np.ndarray]  # features, true labels, people


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--labels", nargs="+", type=float, default=[1e4, 1e5, 1e6])
    parser.add_argument("--data", nargs="+", choices=DATA, default=list(DATA))
    parser.add_argument("--draws", nargs="+", type=int, default=[0], help="seeds of windows and noise")
    parser.add_argument("--out", type=Path, default=Path("bench/results/scale/train_on.json"))
    parser.add_argument("--child", nargs=5, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        what, name, labels, draw, folder = arguments.child
        done = CHILDREN[what](name, int(float(labels)), int(draw), Path(folder))
        print(json.dumps(done))
        return
    cases = [(name, size, draw) for size in arguments.labels for name in arguments.data for draw in arguments.draws]
    for case in cases:
        with tempfile.TemporaryDirectory() as folder:
            _run("prepare", *case, folder)
            record = _run("measure", *case, folder)
        print(json.dumps(record), flush=True)
        _add(arguments.out, record)


def _run(what: str, *words: object) -> Any:
    """What a process of its own prints last: the memory of what it made before is not that of the fit."""
    command = [sys.executable, __file__, "--child", what, *map(str, words)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def measure(name: str, n_labels: int, draw: int, folder: Path) -> dict[str, Any]:
    """Fit tide to windows with so many labels, and compare with the truth."""
    train, test = (
        Part(*(np.load(folder / f"{part}-{of}.npy", mmap_mode="c") for of in Part._fields)) for part in PARTS
    )
    noise = make_noise(train.truth)
    epochs = choose_epochs(len(train.features))
    load, started = os.getloadavg()[0], time.monotonic()
    clf = lt.TideClassifier(epochs=epochs, random_state=draw, device="cpu")
    with warnings.catch_warnings(), watch_memory() as memory:
        warnings.simplefilter("ignore")
        clf.fit(train.features, train.recorded, clusters=np.array(train.people))
    seconds = time.monotonic() - started
    error = 100 * float((clf.predict(test.features) != test.truth).mean())
    true_noise = noise.at(clf.clock_grid_)
    return {
        "data": name,
        "labels": train.recorded.size,
        "draw": draw,
        "people": len(np.unique(train.people)),
        "epochs": epochs,
        "wrong labels %": 100 * float((train.recorded != train.truth).mean()),
        "error on unseen people %": error,
        "mean absolute error of Q x100": 100 * float(absolute_errors(true_noise, clf.noise_matrices_).mean()),
        "mean Frobenius error of Q x100": 100 * float(frobenius_errors(true_noise, clf.noise_matrices_).mean()),
        "seconds of the fit": seconds,
        "load before": load,
        "peak gigabytes of the fit": max(memory) / 1e9,
        "gigabytes before the fit": memory[0] / 1e9,
        "gigabytes of features on disk": train.features.nbytes / 1e9,
    }


class Part(NamedTuple):
    """Windows of some people, with labels that are recorded and true ones."""

    features: np.ndarray
    truth: np.ndarray
    recorded: np.ndarray
    people: np.ndarray


def prepare(name: str, n_labels: int, draw: int, folder: Path) -> None:
    """Write the windows of training and test."""
    features, truth, people = DATA[name](n_labels)
    own = people >= TEST[name]
    generator = np.random.default_rng([draw, n_labels])
    chosen = np.sort(generator.permutation(np.flatnonzero(own))[: n_labels // STEPS])  # all where there are fewer
    test = generator.permutation(np.flatnonzero(~own))[:TEST_WINDOWS]
    recorded = lt.corrupt(truth[chosen], make_noise(truth), generator)
    for part, rows, labels in zip(PARTS, (chosen, test), (recorded, truth[test]), strict=True):
        np.save(folder / f"{part}-features.npy", features[rows])
        np.save(folder / f"{part}-truth.npy", truth[rows].astype(np.int8))
        np.save(folder / f"{part}-recorded.npy", labels.astype(np.int8))
        np.save(folder / f"{part}-people.npy", people[rows])


def read_part(folder: Path, part: str) -> Part:
    """Windows in files that are mapped into memory."""
    return Part(*(np.load(folder / f"{part}-{name}.npy", mmap_mode="c") for name in Part._fields))


def make_noise(truth: np.ndarray) -> lt.FixedNoise:
    """The noise that is drawn, for as many classes as there are."""
    return lt.make_noise(SHAPE, int(truth.max()) + 1, STEPS, RATE)


@contextmanager
def watch_memory() -> Iterator[list[float]]:
    """Bytes of anonymous memory, five times a second."""
    seen, done = [anonymous_bytes()], threading.Event()

    def watch() -> None:
        while not done.wait(0.2):
            seen.append(anonymous_bytes())

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    yield seen
    done.set()
    thread.join()


def anonymous_bytes() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024.0 * int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


def choose_epochs(n_windows: int) -> int:
    """As an audit of a table with 1.6 million steps or more does."""
    most = int(fitting.UPDATES * fitting.MAX_PATIENCE)
    return min(fitting.EPOCHS, max(fitting.MIN_EPOCHS, most // (n_windows * STEPS)))


def simulated(n_labels: int) -> Windows:
    """People of the simulated study; the first are for the test."""
    count = TEST["simulated"] + max(280, -(-n_labels // (DAYS * ROWS_OF_A_DAY)))
    parts = [_simulated_people(first, min(50, count - first)) for first in range(0, count, 50)]
    features, truth, people = (np.concatenate(values) for values in zip(*parts, strict=True))
    features -= features.mean((0, 1))
    features /= features.std((0, 1))
    return features, truth, people


def _simulated_people(first: int, count: int) -> Windows:
    table = simulate_study(people=count, days=DAYS, seed=1000 + first)
    person = table["person"].combine_chunks().dictionary_encode().indices.to_numpy()
    moment = table["time"].to_numpy().astype(np.int64)
    once = np.append(True, (person[1:] != person[:-1]) | (moment[1:] != moment[:-1]))  # two annotators, one step
    codes = np.array([ACTIVITIES.index(name) for name in table["true_label"].to_pylist()])
    features = np.nan_to_num(np.stack([table[name].to_numpy() for name in FEATURES], -1).astype(np.float32))
    return _cut(features[once], codes[once], person[once] + first)


def chest(n_labels: int) -> Windows:
    """People with an accelerometer on the chest; rows without an activity are left out."""
    table = _read("chest_accel/chest_accel_52hz.parquet")
    return _real(table.filter(pc.greater(table["label"], 0)), "subject", "subject", list("xyz"), "label")


def sleep(n_labels: int) -> Windows:
    """Nights of spectral features in epochs of 30 s."""
    table = _read("sleep_edf/sleep_edf_sc_20nights_30s.parquet")
    features = [name for name in table.column_names if name.startswith(("fpzcz", "pzoz"))]
    return _real(table, "night", "subject", features, "stage")


def _read(name: str) -> pa.Table:
    return parquet.read_table(Path(os.environ.get("LABELTIDE_DATA", "data")) / name)


def _real(table: pa.Table, sequence: str, person: str, names: list[str], label: str) -> Windows:
    """Windows of recordings whose features are standardised one by one."""
    recording, people, truth = (
        np.unique(table[name].to_numpy(), return_inverse=True)[1] for name in (sequence, person, label)
    )
    features = np.stack([table[name].to_numpy() for name in names], -1).astype(np.float32)
    for each in range(int(recording.max()) + 1):
        own = recording == each
        features[own] = (features[own] - features[own].mean(0)) / features[own].std(0)
    windows, labels, of_window = _cut(features, truth, recording)
    person_of = np.zeros(int(recording.max()) + 1, dtype=np.int64)
    person_of[recording] = people
    return windows, labels, person_of[of_window]


def _cut(features: np.ndarray, truth: np.ndarray, person: np.ndarray) -> Windows:
    """Whole windows of each person, one after the other."""
    parts = []
    for each in np.unique(person):
        rows = np.flatnonzero(person == each)
        parts.append(rows[: len(rows) // STEPS * STEPS].reshape(-1, STEPS))
    index = np.concatenate(parts)
    return features[index], truth[index], person[index[:, 0]]


CHILDREN: dict[str, Callable[..., Any]] = {"prepare": prepare, "measure": measure}
DATA: dict[str, Callable[[int], Windows]] = {"simulated": simulated, "chest": chest, "sleep": sleep}


def _add(path: Path, record: dict[str, Any]) -> None:
    """Put a record in the place of an earlier one of the same case."""
    path.parent.mkdir(parents=True, exist_ok=True)
    records = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    case = ("data", "labels", "draw")
    records = [each for each in records if any(each[key] != record[key] for key in case)]
    text = ",\n".join(json.dumps(each) for each in [*records, record])
    path.write_text(f"[\n{text}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
