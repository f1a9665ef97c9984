"""Do least durations and gaps between classes make predictions better? Three public data sets, unseen people.

    python bench/benchmarks/rules.py fit --data DATA --folder FOLDER --processes 12
    python bench/benchmarks/rules.py decode --folder FOLDER

`fit` trains `tide` on half of the people (clean labels, or 30 % errors of mixed shape, independent of the features) and
keeps its probabilities on whole recordings of the others. `decode` prints the test error, the number of bouts against
the truth, and the F1 of bouts, with and without rules, which were written down before anything was decoded. Decoders:

- predictions: the labels with the most expected right steps, by the probabilities of `predict_proba` at each step
  (posterior decoding; Kall, Krogh and Sonnhammer 2005);
- chain: the likeliest labels (Viterbi 1967) by the transition matrix A and power k that `tide` fitted, with the
  probabilities of `predict_proba` as evidence;
- chain, folds: the same with the evidence of the networks of cross-fitting, for which k was fitted.

All search among the labels that obey the rules, by dynamic programming on an automaton. The majority of the seven
predictions around each step stands for what takes one line without rules.
"""

from __future__ import annotations

import argparse
import os
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq
from scipy.ndimage import uniform_filter1d

import labeltide as lt

DRAWS, NOISE = 4, (0.0, 0.3)
WAKE_KEPT = 120  # epochs before sleep and after it
STAGES = ("W", "N1", "N2", "N3", "REM")
ACTIVITIES = ("walking", "shuffling", "stairs up", "stairs down", "standing", "sitting", "lying")
SCRIPTED = ("walking", "upstairs", "downstairs", "sitting", "standing", "laying")
W, N3, REM = 0, 3, 4
WALKING, LYING = 0, 6
Rules = tuple[list[int], list[tuple[int, int, int]]]  # least durations, and (class, other, least gap between them)
RULES: dict[str, dict[str, Rules]] = {
    "sleep": {
        "no rule": ([1] * 5, []),
        "2 epochs": ([2] * 5, []),
        "4 epochs": ([4] * 5, []),
        "W 2, N1 1, N2 3, N3 3, REM 4 epochs": ([2, 1, 3, 3, 4], []),
        "no N3 within 5 minutes after W": ([1] * 5, [(W, N3, 10)]),
        "not W to N3, W to REM, N3 to REM": ([1] * 5, [(W, N3, 1), (W, REM, 1), (N3, REM, 1)]),
    },
    "activities": {
        "no rule": ([1] * 7, []),
        "10 s": ([2] * 7, []),
        "20 s": ([4] * 7, []),
        "sitting 30 s, lying 60 s": ([1] * 5 + [6, 12], []),
        "not lying to walking or back": ([1] * 7, [(LYING, WALKING, 1), (WALKING, LYING, 1)]),
    },
    "scripted": {"no rule": ([1] * 6, []), "2.6 s": ([2] * 6, []), "5.1 s": ([4] * 6, []), "10.2 s": ([8] * 6, [])},
}


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


def scripted(data: Path) -> tuple[list[Recording], tuple[str, ...], int]:
    """UCI HAR: people followed a script, so that every bout lasts half a minute or longer; a step is 1.28 s."""
    tables = [pq.read_table(data / "uci_har" / f"{part}.parquet").to_pandas() for part in ("train", "test")]
    people = [person for table in tables for _, person in table.groupby("subject")]
    names = [name for name in tables[0] if name.startswith("f")]
    codes = [person["label"].to_numpy() - 1 for person in people]
    recordings = [
        _recording(person["subject"].iloc[0], person[names].to_numpy(), code)
        for person, code in zip(people, codes, strict=True)
    ]
    return recordings, SCRIPTED, 50


SETS = {"sleep": sleep, "activities": activities, "scripted": scripted}


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
    mask = truth >= 0
    folds = np.full_like(kept, -30.0)
    folds[..., clf.classes_] = clf._evidence(clf._check_features(features, lengths)[0], mask)[0]
    start, transition, power, _ = clf.chain_
    full_start, full = np.full(len(classes), 1e-9), np.eye(len(classes)) * (1 - 1e-6) + 1e-6 / len(classes)
    full_start[clf.classes_], full[np.ix_(clf.classes_, clf.classes_)] = start, transition
    np.savez_compressed(
        out / f"{name}-{rate}-{draw}.npz",
        probabilities=kept.astype(np.float16),
        evidence=folds.astype(np.float16),
        truth=truth,
        start=full_start,
        transition=full,
        power=power,
    )
    return f"{name} {rate} {draw}: error {(kept.argmax(-1) != truth)[truth >= 0].mean():.4f}, k = {power:.2f}"


def decode(first: np.ndarray, pairs: np.ndarray, lengths: np.ndarray, rules: Rules) -> np.ndarray:
    """The best codes that obey the rules, (rows, steps), by scores of the first step and of pairs of steps.

    The scores have the shapes (rows, classes) and (rows, steps - 1, from, to). A state is a class, the steps spent in
    it up to its least duration, and the steps since the class of each gap.
    """
    durations, gaps = rules
    caps = [gap for *_, gap in gaps]

    def enter(code: int, spent: int, since: list[int]) -> tuple[int, ...]:
        return (code, spent, *(0 if code == gap[0] else passed for gap, passed in zip(gaps, since, strict=True)))

    states = [enter(code, least, caps) for code, least in enumerate(durations)]  # bouts may begin before the recording
    number = {state: index for index, state in enumerate(states)}
    before: list[list[int]] = [[] for _ in states]
    for source, (code, spent, *since) in enumerate(states):  # grows while it is read
        later = [min(passed + 1, cap) for passed, cap in zip(since, caps, strict=True)]
        shut = {gap[1] for gap, passed in zip(gaps, since, strict=True) if passed < gap[2]}
        for target in range(len(durations)) if spent == durations[code] else [code]:
            if target in shut:
                continue
            entered = enter(target, min(spent + 1, durations[code]) if target == code else 1, later)
            if entered not in number:
                number[entered] = len(states)
                states.append(entered)
                before.append([])
            before[number[entered]].append(source)
    count, codes = len(states), np.array([code for code, *_ in states])
    earlier = np.full((count, max(map(len, before))), count)  # count: none
    for index, sources in enumerate(before):
        earlier[index, : len(sources)] = sources
    score = np.full((len(first), count + 1), -np.inf)
    score[:, : len(durations)] = first
    pointers = []
    for t in range(pairs.shape[1]):
        options = score[:, earlier] + pairs[:, t, np.append(codes, 0)[earlier], codes[:, None]]
        best = options.argmax(2)
        real = (t + 1 < lengths)[:, None]
        pointers.append(np.where(real, earlier[np.arange(count), best], np.arange(count)))
        score[:, :count] = np.where(real, np.take_along_axis(options, best[..., None], 2)[..., 0], score[:, :count])
    path = [score[:, :count].argmax(1)]
    for pointer in reversed(pointers):
        path.append(np.take_along_axis(pointer, path[-1][:, None], 1)[:, 0])
    return codes[np.stack(path[::-1], 1)]


def chain_scores(log_probs: np.ndarray, fitted: Any) -> tuple[np.ndarray, np.ndarray]:
    """Log-probabilities of the first label, and of each label given the one before, by the fitted chain."""
    evidence = float(fitted["power"]) * log_probs.clip(np.log(1e-6))
    pairs = np.log(fitted["transition"].clip(1e-12)) + evidence[:, 1:, None]
    pairs -= np.logaddexp.reduce(pairs, axis=-1, keepdims=True)
    return np.log(fitted["start"].clip(1e-12)) + evidence[:, 0], pairs


def bouts(codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    ends = np.flatnonzero(codes[1:] != codes[:-1]) + 1
    return np.append(0, ends), np.append(ends, len(codes))


def matched(found: np.ndarray, truth: np.ndarray) -> int:
    """Bouts that share more than half of their union with a true bout of their class; at most one can."""
    starts, ends = bouts(truth)
    hits = 0
    for start, end in zip(*bouts(found), strict=True):
        overlap = np.minimum(end, ends) - np.maximum(start, starts)
        union = np.maximum(end, ends) - np.minimum(start, starts)
        hits += int(((overlap > 0.5 * union) & (truth[starts] == found[start])).any())
    return hits


def measure(path: Path, rules: Rules) -> dict[str, tuple[float, float, float]]:
    """Of each decoder: error in percent, bouts as a share of the true ones, and F1 of bouts."""
    fitted, sums = np.load(path), {}
    probabilities, folds = (fitted[name].astype(float) for name in ("probabilities", "evidence"))
    lengths = (fitted["truth"] >= 0).sum(1)
    alone = np.broadcast_to(probabilities[:, 1:, None], (*folds[:, 1:].shape, folds.shape[-1]))
    scores = {
        "predictions": (probabilities[:, 0], alone),
        "chain": chain_scores(np.log(probabilities.clip(1e-6)), fitted),
        "chain, folds": chain_scores(folds, fitted),
    }
    decoded = {name: decode(first, pairs, lengths, rules) for name, (first, pairs) in scores.items()}
    if max(rules[0]) == 1 and not rules[1]:
        named = np.eye(folds.shape[-1])[decoded["predictions"]] * (fitted["truth"] >= 0)[..., None]
        decoded["predictions, majority of 7 steps"] = uniform_filter1d(named, 7, axis=1, mode="constant").argmax(2)
    for name, results in decoded.items():
        sums[name] = np.zeros(5)
        for length, codes, labels in zip(lengths, results, fitted["truth"], strict=True):
            found, truth = codes[:length], labels[:length].astype(int)
            counts = [(found != truth).sum(), length, len(bouts(found)[0]), len(bouts(truth)[0])]
            sums[name] += [*counts, matched(found, truth)]
    return {
        name: (100 * wrong / steps, made / true, 2 * hits / (made + true))
        for name, (wrong, steps, made, true, hits) in sums.items()
    }


def show(folder: Path) -> None:
    """A table for each data set and share of errors; changes are of pairs of the same fit."""
    for name, rate in product(SETS, NOISE):
        paths = sorted(folder.glob(f"{name}-{rate}-*.npz"))
        if not paths:
            continue
        results = {rule: [measure(path, rules) for path in paths] for rule, rules in RULES[name].items()}
        plain = np.array([each["predictions"] for each in results["no rule"]])
        print(f"\n{name}, {100 * rate:.0f} % errors, {len(paths)} fits: error {plain[:, 0].mean():.1f} %\n")
        print("| rule | decoder | change of the error, points (s.e.) | bouts / true | F1 of bouts |")
        print("|---|---|--:|--:|--:|")
        for rule, fits in results.items():
            for decoder in fits[0]:
                values = np.array([each[decoder] for each in fits])
                change = values[:, 0] - plain[:, 0]
                spread = change.std(ddof=1) / len(change) ** 0.5 if len(change) > 1 else np.nan
                cells = f"{change.mean():+.2f} ({spread:.2f}) | {values[:, 1].mean():.2f} | {values[:, 2].mean():.2f}"
                print(f"| {rule} | {decoder} | {cells} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", choices=["fit", "decode"])
    parser.add_argument("--data", type=Path, default=os.environ.get("LABELTIDE_DATA"), help="folder of the data sets")
    parser.add_argument("--folder", type=Path, required=True, help="where fits are kept, or are")
    parser.add_argument("--processes", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.stage == "decode":
        return show(arguments.folder)
    if arguments.data is None:
        parser.error("Say where the data sets are: --data FOLDER, or LABELTIDE_DATA.")
    arguments.folder.mkdir(parents=True, exist_ok=True)
    tasks = [(*task, Path(arguments.data), arguments.folder) for task in product(SETS, NOISE, range(DRAWS))]
    with ProcessPoolExecutor(arguments.processes) as pool:
        for line in pool.map(fit, tasks):
            print(line, flush=True)


if __name__ == "__main__":
    main()
