"""Test error with and without standardised features: two public data sets and a simulated study.

    python bench/benchmarks/standardize.py --data DATA

Labels are recorded with 20 and 30 % errors, networks train for 30 epochs on the CPU. Prints a table.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

import labeltide as lt
from labeltide.data.scaler import apply_scaling, find_scaling

NOISE = np.array([[0.8, 0.2], [0.3, 0.7]])
Study = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # features and labels of training and test windows


def windows(features: np.ndarray, labels: np.ndarray, steps: int) -> tuple[np.ndarray, np.ndarray]:
    count = len(features) // steps
    kept = slice(0, count * steps)
    return features[kept].reshape(count, steps, -1), labels[kept].reshape(count, steps)


def eye_state(data: Path) -> Study:
    """EEG in microvolts with offsets of 4,000 and artefacts of 700,000; 30 % of the windows are for testing."""
    table = pq.read_table(data / "eeg_eye_state" / "eeg_eye_state.parquet").to_pandas()
    X, y = windows(table.iloc[:, :-1].to_numpy(float), table.iloc[:, -1].to_numpy(int), 50)
    order = np.random.default_rng(0).permutation(len(X))
    train, test = np.split(order, [int(0.7 * len(X))])
    return X[train], y[train], X[test], y[test]


def activities(data: Path) -> Study:
    """UCI HAR: 265 features in [-1, 1]; three activities against the others, other people for testing."""
    parts: list[np.ndarray] = []
    for name in ("train", "test"):
        table = pq.read_table(data / "uci_har" / f"{name}.parquet").to_pandas()
        table["label"] = (table["label"].astype("category").cat.codes > 2).astype(int)
        people = [
            windows(p.iloc[:, 2:].to_numpy(float), p["label"].to_numpy(), 25) for _, p in table.groupby("subject")
        ]
        parts += [np.concatenate(each) for each in zip(*people, strict=True)]
    return parts[0], parts[1], parts[2], parts[3]


def simulated(data: Path) -> Study:
    made = lt.make_sequences(400, 50, 50, stay=0.9, random_state=0)
    return made.features[:200], made.clean_labels[:200], made.features[200:], made.clean_labels[200:]


def error(method: str, study: Study, seed: int, standardize: bool) -> float:
    X, y, X_test, y_test = study
    estimator = lt.METHODS[method](epochs=30, random_state=seed, device="cpu", standardize=standardize)
    return 1 - estimator.fit(X, lt.corrupt(y, NOISE, random_state=seed)).score(X_test, y_test)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    data = parser.parse_args().data
    for load in (eye_state, activities, simulated):
        study = load(data)
        scaling = find_scaling(study[0].reshape(-1, study[0].shape[-1]))
        unit = (apply_scaling(study[0], scaling), study[1], apply_scaling(study[2], scaling), study[3])
        for method in ("ignore", "continuous", "tide"):
            for seed in range(1 if method == "tide" else 2):
                errors = {
                    "as it is": error(method, study, seed, False),
                    "z-scores": error(method, unit, seed, False),
                    "inside": error(method, study, seed, True),
                }
                print(load.__name__, method, seed, *(f"{how} {value:.4f}" for how, value in errors.items()), flush=True)


if __name__ == "__main__":
    main()
