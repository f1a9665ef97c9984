"""Do rules of least durations and gaps make predictions better? Sleep-EDF and HAR70+, other people for testing.

    python bench/benchmarks/rules.py fit --data DATA --out FOLDER --processes 12
    python bench/benchmarks/rules.py decode FOLDER

`fit` trains `tide` on half of the people (clean labels, or 30 % errors of mixed shape, independent of the features) and
keeps its probabilities on whole recordings of the others. `decode` prints the test error and the number of bouts against
the truth, without rules, by the fitted chain alone, and by rules that were written down before anything was decoded.
"""

from __future__ import annotations

import argparse
import os
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow.parquet as pq

import labeltide as lt

DRAWS, NOISE = 4, (0.0, 0.3)
WAKE_KEPT = 120  # epochs before sleep and after it
STAGES = ("W", "N1", "N2", "N3", "REM")
ACTIVITIES = ("walking", "shuffling", "stairs up", "stairs down", "standing", "sitting", "lying")


class Recording(NamedTuple):
    person: int
    features: np.ndarray  # (steps, features), z-scores of the recording
    labels: np.ndarray  # (steps,)


def sleep(data: Path) -> tuple[list[Recording], tuple[str, ...], int]:
    table = pq.read_table(data / "sleep_edf" / "sleep_edf_sc_20nights_30s.parquet").to_pandas()
    names = [name for name in table if name.startswith(("fpzcz", "pzoz"))]
    recordings = []
    for _, night in table.groupby("night"):
        asleep = np.flatnonzero(night["stage"] > 0)
        night = night.iloc[max(0, asleep[0] - WAKE_KEPT) : asleep[-1] + WAKE_KEPT + 1]
        recordings.append(_recording(night["subject"].iloc[0], night[names].to_numpy(), night["stage"].to_numpy()))
    return recordings, STAGES, 100


def activities(data: Path) -> tuple[list[Recording], tuple[str, ...], int]:
    table = pq.read_table(data / "har70plus" / "means_5s.parquet").to_pandas()
    names = [name for name in table if name.endswith("_mean")]
    codes = np.searchsorted([1, 3, 4, 5, 6, 7, 8], table["label_mode"])
    people = table.groupby("subject").indices.items()
    recordings = [_recording(person, table[names].to_numpy()[rows], codes[rows]) for person, rows in people]
    return recordings, ACTIVITIES, 50


SETS = {"sleep": sleep, "activities": activities}


def _recording(person: int, features: np.ndarray, labels: np.ndarray) -> Recording:
    return Recording(int(person), (features - features.mean(0)) / features.std(0).clip(1e-9), labels.astype(int))


def windows(recordings: list[Recording], steps: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    cut = [(r, start) for r in recordings for start in range(0, len(r.labels) - steps + 1, steps)]
    X = np.stack([r.features[start : start + steps] for r, start in cut])
    y = np.stack([r.labels[start : start + steps] for r, start in cut])
    return X, y, np.array([r.person for r, _ in cut])


def fit(task: tuple[str, float, int, Path, Path]) -> str:
    name, rate, draw, data, out = task
    recordings, classes, steps = SETS[name](data)
    people = np.random.default_rng(draw).permutation(sorted({r.person for r in recordings}))
    trained = set(people[: len(people) // 2].tolist())
    X, y, clusters = windows([r for r in recordings if r.person in trained], steps)
    if rate:
        noise = lt.make_noise("mixed", n_classes=len(classes), n_steps=steps, rate=rate)
        y = lt.corrupt(y, noise, random_state=draw)
    clf = lt.TideClassifier(random_state=draw, device="cpu").fit(X, y, clusters=clusters)
    tested = [r for r in recordings if r.person not in trained]
    lengths = np.array([len(r.labels) for r in tested])
    features = np.zeros((len(tested), lengths.max(), X.shape[2]))
    truth = np.full(features.shape[:2], -1, np.int8)
    for row, r in enumerate(tested):
        features[row, : len(r.labels)], truth[row, : len(r.labels)] = r.features, r.labels
    kept = np.zeros((*truth.shape, len(classes)))
    kept[..., clf.classes_] = clf.predict_proba(features, lengths)
    start, transition, power, _ = clf.chain_
    full_start, full = np.full(len(classes), 1e-9), np.eye(len(classes)) * (1 - 1e-6) + 1e-6 / len(classes)
    full_start[clf.classes_], full[np.ix_(clf.classes_, clf.classes_)] = start, transition
    np.savez_compressed(
        out / f"{name}-{rate}-{draw}.npz",
        probabilities=kept.astype(np.float16),
        truth=truth,
        start=full_start,
        transition=full,
        power=power,
        corrected=clf.audit(X, y).suggested if rate else y,
    )
    return f"{name} {rate} {draw}: error {(kept.argmax(-1) != truth)[truth >= 0].mean():.4f}, k = {power:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", choices=["fit", "decode"])
    parser.add_argument("folder", nargs="?", type=Path, help="of decode")
    parser.add_argument("--data", type=Path, default=os.environ.get("LABELTIDE_DATA"))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--processes", type=int, default=1)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    tasks = [(*task, Path(arguments.data), arguments.out) for task in product(SETS, NOISE, range(DRAWS))]
    with ProcessPoolExecutor(arguments.processes) as pool:
        for line in pool.map(fit, tasks):
            print(line, flush=True)


if __name__ == "__main__":
    main()
