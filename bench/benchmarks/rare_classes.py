"""What becomes of rare classes: `tide` with and without the constraint that each class is mostly recorded as itself.

    python bench/benchmarks/rare_classes.py --data DATA --draws 2      # writes bench/results/tide/rare_classes.md

Labels are replaced at random, alike for all other classes ("uniform"), by the next class ("pair") or by mixed noise
over windows of 100 steps. A quarter of the recordings tests the classifier. Without the constraint Q is what EM gives.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import warnings
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

import labeltide as lt
from labeltide.chain import em

sys.path.insert(0, str(Path(__file__).parent))
from shifts import Recordings, load  # the same nine data sets

RESULT = Path(__file__).parents[1] / "results" / "tide" / "rare_classes.md"
STEPS = 100
SETS = ("senior, 7 classes", "activities, 6 classes", "stages, 5 classes", "gaze", "chest accelerometer", "senior")
KINDS = (("none", 0.0), ("uniform", 0.3), ("pair", 0.3), ("mixed", 0.3), ("pair", 0.4))
CONSTRAINED = em.keep_dominant


def cut(recordings: Recordings, classes: np.ndarray, which: np.ndarray) -> tuple[np.ndarray, ...]:
    """Windows of some recordings: features, codes of labels, lengths and recordings."""
    windows = [(r, start) for r in which for start in range(0, len(recordings[r][1]), STEPS)]
    X = np.zeros((len(windows), STEPS, recordings[0][0].shape[1]), np.float32)
    y = np.full((len(windows), STEPS), -1)
    for row, (r, start) in enumerate(windows):
        features, labels = (part[start : start + STEPS] for part in recordings[r])
        X[row, : len(labels)] = features
        y[row, : len(labels)] = np.where(labels >= 0, np.searchsorted(classes, labels), -1)
    lengths = np.array([min(STEPS, len(recordings[r][1]) - start) for r, start in windows])
    return X, y, lengths, np.array([r for r, _ in windows])


def replace_labels(y: np.ndarray, n_classes: int, kind: str, rate: float, seed: int) -> np.ndarray:
    """Labels of which a share is wrong."""
    generator = np.random.default_rng([seed, 7])
    if kind == "mixed":
        noise = lt.make_noise("mixed", n_classes=n_classes, n_steps=STEPS, rate=rate)
        return np.where(y >= 0, lt.corrupt(np.maximum(y, 0), noise, random_state=seed), -1)
    moved = generator.integers(1, n_classes, y.shape) if kind == "uniform" else 1
    wrong = (generator.random(y.shape) < rate) & (y >= 0)
    return np.where(wrong, (y + moved) % n_classes, y)


def measure(recordings: Recordings, kind: str, rate: float, seed: int, constrained: bool) -> dict[str, Any]:
    """Test error and errors of the posterior, in per cent."""
    classes = np.unique(np.concatenate([labels[labels >= 0] for _, labels in recordings]))
    order = np.random.default_rng(seed).permutation(len(recordings))
    n_test = max(1, len(order) // 4)
    X, clean, lengths, people = cut(recordings, classes, np.sort(order[n_test:]))
    X_test, y_test, lengths_test, _ = cut(recordings, classes, np.sort(order[:n_test]))
    recorded = replace_labels(clean, len(classes), kind, rate, seed)
    em.keep_dominant = CONSTRAINED if constrained else lambda matrices: matrices
    start = time.process_time()
    clf = lt.TideClassifier(random_state=seed, align=False).fit(X, recorded, lengths=lengths, clusters=people)
    seconds = time.process_time() - start
    labelled, tested = clean >= 0, y_test >= 0
    wrong = (clf.predict(X_test, lengths=lengths_test) != y_test)[tested]
    suggested = clf.audit(X, recorded, lengths=lengths, may_name=True).suggested
    left = (suggested != clean)[labelled]
    right = np.diagonal(clf.noise_matrices_.mean(0))
    return {
        "test": 100 * float(wrong.mean()),
        "left": 100 * float(left.mean()),
        "least right": float(right.min()),
        "rarest": 100 * float(np.bincount(clean[labelled]).min() / labelled.sum()),
        "seconds": seconds,
    }


def page(fits: list[dict[str, Any]]) -> str:
    """The record: means over draws, without and with the constraint."""
    cells = dict.fromkeys((fit["set"], fit["kind"], fit["rate"]) for fit in fits)
    lines = [
        "# Rare classes\n",
        f"`python bench/benchmarks/rare_classes.py`, commit {fits[-1]['commit']}, {fits[-1]['date']}, shared cores.\n",
        "Per cent, mean over draws and, in brackets, the worst. *Left*: wrong labels if the likeliest label of every",
        "step is taken. *Least right*: the smallest estimated probability that a class is recorded as itself (in truth",
        "one less the share of replaced labels).\n",
        "| data set | rarest class | labels | draws | test error without | with | left without | with "
        "| least right without | with |",
        "|---|--:|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for name, kind, rate in cells:
        of_cell = [fit for fit in fits if (fit["set"], fit["kind"], fit["rate"]) == (name, kind, rate)]
        without, kept = ([fit for fit in of_cell if fit["constrained"] is way] for way in (False, True))
        if not (without and kept):
            continue
        row = [name, f"{np.mean([fit['rarest'] for fit in kept]):.1f}", f"{kind} {rate:.0%}", str(len(kept))]
        for measure_name in ("test", "left"):
            for part in (without, kept):
                values = [fit[measure_name] for fit in part]
                row.append(f"{np.mean(values):.1f} ({max(values):.1f})")
        row += [f"{min(fit['least right'] for fit in part):.2f}" for part in (without, kept)]
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--sets", nargs="+", default=SETS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    every = load(options.data)
    journal = RESULT.with_suffix(".jsonl")
    fits = [json.loads(line) for line in journal.read_text().splitlines()] if journal.exists() else []
    done = {(fit["set"], fit["kind"], fit["rate"], fit["draw"], fit["constrained"]) for fit in fits}
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    for draw in range(options.draws):
        for name in options.sets:
            for kind, rate in KINDS:
                for constrained in (False, True):
                    if (name, kind, rate, draw, constrained) in done:
                        continue
                    found = measure(every[name], kind, rate, draw, constrained)
                    found = {key: round(value, 3) for key, value in found.items()}
                    what = {"set": name, "kind": kind, "rate": rate, "draw": draw, "constrained": constrained}
                    fits.append({**what, **found, "commit": commit, "date": f"{datetime.now(UTC):%Y-%m-%d}"})
                    print(json.dumps(fits[-1]), flush=True)
                    with journal.open("a") as file:
                        file.write(json.dumps(fits[-1]) + "\n")
        RESULT.write_text(page(fits))


if __name__ == "__main__":
    main()
