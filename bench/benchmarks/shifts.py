"""How well `lt.find_shifts` finds late labels and shifted recordings that were made by hand from real ones.

    python bench/benchmarks/shifts.py --data DATA --draws 20      # writes bench/results/shifts.md
    python bench/benchmarks/shifts.py --data DATA --draws 2 --tide --kinds "late by 4 ± 2;late by 8"
                                                                  # bench/results/shifts_tide.md
    python bench/benchmarks/shifts.py --data DATA --draws 2 --patterns --kinds "as recorded;starts late by 4"
                                                                  # bench/results/shifts_patterns.md
    python bench/benchmarks/shifts.py --orders                    # classes in a fixed order, printed alone

Nine data sets with whole recordings. Labels are taken as they are, made late by a common lag, by a lag that differs
from change to change, at starts or ends of events only, or one recording in ten is moved; without and with 30 % other
wrong labels. Where nothing is drawn at random, one draw is enough. Seconds are of processor time. With --tide, `tide`
learns from such labels in windows of 100 steps, from the same labels in time, and from late labels without `align`
(--unmoved); a quarter of the recordings tests it. Fits are kept in shifts_tide.jsonl beside the record, and those that
are there are not made again. With --patterns, fast audits of such tables count the sentences on one-sided errors.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import tempfile
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import labeltide as lt

RESULT = Path(__file__).parents[1] / "results" / "shifts.md"
SEEN_LEVEL, TOLERANCE = 0.05, 2  # of a test; steps by which the shift of a recording may be missed
KINDS = {
    "as recorded": {},
    "late by 1": {"lag": 1},
    "late by 2 ± 1": {"lag": 2, "spread": 1},
    "late by 4 ± 2": {"lag": 4, "spread": 2},
    "late by 8": {"lag": 8},
    "late by 30": {"lag": 30},
    "starts late by 4": {"lag": 4, "only": "starts"},
    "ends late by 4": {"lag": 4, "only": "ends"},
    "one recording in ten": {"moved": 0.1},
}
Recordings = list[tuple[np.ndarray, np.ndarray]]


def load(data: Path) -> dict[str, Recordings]:
    """Recordings of nine data sets: features (steps, features) and labels (steps,), -1 where there is none."""
    har = [_read(data / "uci_har" / f"{part}.parquet") for part in ("train", "test")]
    har = {name: np.concatenate([part[name] for part in har]) for name in har[0]}
    some = [f"f{n:03d}" for n in (*range(1, 7), *range(41, 47), *range(121, 127))]
    senior = _read(data / "har70plus" / "means_5s.parquet")
    axes = [f"{index}_{axis}_mean" for index in ("back", "thigh") for axis in "xyz"]
    sleep = _read(data / "sleep_edf" / "sleep_edf_sc_20nights_30s.parquet")
    spectra = [name for name in sleep if name.startswith(("fpz", "pzo"))]
    still, asleep = np.isin(senior["label_mode"], (6, 7, 8)), sleep["stage"] > 0
    eeg = _read(data / "eeg_eye_state" / "eeg_eye_state.parquet")
    eyes = eeg.pop("eyeDetection")
    return {
        "activities, 6 classes": _split(har["subject"], _stack(har, some), har["label"]),
        "moving": _split(har["subject"], _stack(har, some[1:]), har["label"] > 3),
        "senior": _split(senior["subject"], _stack(senior, axes), still),
        "senior, 7 classes": _split(senior["subject"], _stack(senior, axes), senior["label_mode"]),
        "stages, 5 classes": _trim(_split(sleep["night"], _stack(sleep, spectra), sleep["stage"])),
        "sleeping": _trim(_split(sleep["night"], _stack(sleep, spectra), asleep)),
        "gaze": list(_gaze(_read(data / "lund2013" / "lund2013_two_coders_500hz.parquet"))),
        "chest accelerometer": list(_chest(_read(data / "chest_accel" / "chest_accel_52hz.parquet"))),
        "blinking": [(np.clip(_stack(eeg, list(eeg)), *np.percentile(_stack(eeg, list(eeg)), (1, 99))), eyes)],
    }


def _read(path: Path) -> dict[str, np.ndarray]:
    return {name: column.to_numpy() for name, column in zip(*_columns(path), strict=True)}


def _columns(path: Path) -> tuple[list[str], list]:
    table = pq.read_table(path)
    return table.column_names, table.columns


def _stack(table: dict[str, np.ndarray], names: list[str]) -> np.ndarray:
    return np.stack([table[name].astype(np.float64) for name in names], axis=1)


def _split(names: np.ndarray, features: np.ndarray, labels: np.ndarray) -> Recordings:
    parts = [np.flatnonzero(names == name) for name in dict.fromkeys(names.tolist())]
    return [(features[rows], labels[rows].astype(int)) for rows in parts]


def _trim(nights: Recordings) -> Recordings:
    """An hour of wake on either side of the night."""
    asleep = [np.flatnonzero(labels > 0) for _, labels in nights]
    cuts = [slice(max(0, steps[0] - 120), steps[-1] + 120) for steps in asleep]
    return [(features[cut], labels[cut]) for (features, labels), cut in zip(nights, cuts, strict=True)]


def _gaze(table: dict[str, np.ndarray]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """How far gaze moved within 10 to 100 ms around a step of 10 ms."""
    for position, labels in _split(table["trial"], _stack(table, ["x_px", "y_px"]), table["label_MN"]):
        ends = [(np.roll(position, n // 2 - n, 0), np.roll(position, n // 2, 0)) for n in (5, 10, 20, 50)]
        moved = [last - first for last, first in ends]
        features = np.stack([np.log1p(np.hypot(*step.T)) for step in moved], axis=1)[::5]
        yield np.nan_to_num(features), np.where(np.isin(labels, (1, 2, 4)), labels, -1)[::5]


def _chest(table: dict[str, np.ndarray]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Mean and spread of the acceleration in two seconds."""
    for signal, labels in _split(table["subject"], _stack(table, ["x", "y", "z"]), table["label"]):
        blocks = signal[: len(signal) // 104 * 104].reshape(-1, 104, 3)
        features = np.concatenate([blocks.mean(1), np.log1p(blocks.std(1))], axis=1)
        middle = labels[52::104][: len(blocks)]
        yield features, np.where(middle == 0, -1, middle)


def make_late(
    labels: np.ndarray, generator: np.random.Generator, lag: int = 0, spread: float = 0.0, only: str = ""
) -> np.ndarray:
    """Every change of label recorded late; `only` starts of the rarer labels, or their ends."""
    changes = np.flatnonzero(np.diff(labels)) + 1
    common = np.bincount(labels[labels >= 0]).argmax()
    after = labels[changes] == common
    concerned = {"": np.ones(len(changes), bool), "starts": ~after, "ends": after}[only]
    moves = np.round(lag + spread * generator.standard_normal(len(changes))).astype(int) * concerned
    edges = np.clip(np.maximum.accumulate(changes + moves), 0, len(labels))
    return np.repeat(labels[np.r_[0, changes]], np.diff(np.r_[0, edges, len(labels)]))


def draw(recordings: Recordings, seed: int, noise: float, moved: float = 0.0, **late: object) -> tuple:
    """Padded features, labels and lengths, and by how much each recording was moved."""
    generator = np.random.default_rng(seed)
    classes = np.unique(np.concatenate([labels[labels >= 0] for _, labels in recordings]))
    lengths = np.array([len(labels) for _, labels in recordings])
    X = np.zeros((len(recordings), lengths.max(), recordings[0][0].shape[1]), np.float32)
    y, own = np.full(X.shape[:2], -1), np.zeros(len(recordings), int)
    for row, (features, recorded) in enumerate(recordings):
        labels = make_late(recorded, generator, **late)
        codes = np.where(labels >= 0, np.searchsorted(classes, labels), -1)
        wrong = (generator.random(len(codes)) < noise) & (codes >= 0)
        codes = np.where(wrong, (codes + generator.integers(1, len(classes), len(codes))) % len(classes), codes)
        if generator.random() < moved:
            size = int(min(np.exp(generator.uniform(np.log(5), np.log(500))), len(codes) // 3))
            own[row] = size * generator.choice([-1, 1])
            codes = np.roll(codes, own[row])
            codes[slice(own[row]) if own[row] > 0 else slice(own[row], None)] = -1
        X[row, : len(codes)], y[row, : len(codes)] = features, codes
    return X, y, lengths, own


def measure(recordings: Recordings, noise: float, draws: int, **kind: object) -> list[object]:
    """One line: tests that reject, error of the lag, recordings found or named wrongly, intervals that hold."""
    lag, rejected, errors, found, moved, false, none, seconds = kind.get("lag", 0), 0, [], 0, 0, 0, 0, 0.0
    held: list[bool] = []
    draws = draws if noise or kind.keys() & {"spread", "moved"} else 1  # nothing else is random
    for seed in range(draws):
        X, y, lengths, own = draw(recordings, seed, noise, **kind)
        start = time.process_time()
        result = lt.find_shifts(X, y, lengths=lengths)
        seconds += time.process_time() - start
        if result.lag is None:
            none += 1
            continue
        named = result.own_p_value < SEEN_LEVEL
        rejected += result.p_value < SEEN_LEVEL
        errors.append(abs(result.lag - lag))
        moved += int((own != 0).sum())
        found += int((named & (own != 0) & (abs(result.own_best - own - lag) <= TOLERANCE)).sum())
        false += int((named & (own == 0)).any())
        tried = ~np.isnan(result.own_p_value)
        lower, upper = result.own_interval[tried].T
        held += ((lower <= (own + lag)[tried]) & ((own + lag)[tried] <= upper)).tolist()
    tested = draws - none
    shown = f"{np.mean(errors):.1f} (at most {max(errors)})" if errors else ""
    own_shown = f"{found} of {moved}" if moved else ""
    intervals = f"{np.mean(held):.0%} of {len(held)}" if held else ""
    return [f"{rejected} of {tested}", none or "", shown, own_shown, false or "", intervals, f"{seconds / draws:.2f}"]


def cut(
    X: np.ndarray, y: np.ndarray, lengths: np.ndarray, steps: int = 100
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Windows of all recordings: features, labels, and the recording of each."""
    starts = [(row, start) for row, length in enumerate(lengths) for start in range(0, length - steps + 1, steps)]
    windows = [np.stack([each[row, start : start + steps] for row, start in starts]) for each in (X, y)]
    return windows[0], windows[1], np.array([row for row, _ in starts])


def fit_tide(task: tuple[str, Path, str, float, int, bool]) -> list[float]:
    """One fit: test error; labels that stay wrong where flags are corrected, and where all suggestions are; the lag."""
    name, data, kind, noise, seed, align = task
    recordings = load(data)[name]
    X, truth, lengths, _ = draw(recordings, seed, 0.0)
    features, clean, owner = cut(X, truth, lengths)
    recorded = cut(X, draw(recordings, seed, noise, **KINDS[kind])[1], lengths)[1]
    test = owner % 4 == 0
    clf = lt.TideClassifier(align=align, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        clf.fit(features[~test], recorded[~test], clusters=owner[~test])
        audit = clf.audit(features[~test], recorded[~test])
    there = (clean[~test] >= 0) & (recorded[~test] >= 0)
    both = audit.corrected(), audit.probabilities.argmax(-1)  # codes
    left = [float((clf.classes_[codes] != clean[~test])[there].mean()) for codes in both]
    error = (clf.predict(features[test]) != clean[test])[clean[test] >= 0].mean()  # of a class that vanished, too
    return [100 * float(error), *(100 * share for share in left), float(clf.lags_[0])]


def measure_tide(path: Path, tasks: list[tuple], pool: ProcessPoolExecutor) -> None:
    """Fits that are not yet in a file of JSON lines, one line each, written as they end."""
    done = {tuple(key) for key, _ in map(json.loads, path.read_text().splitlines())} if path.exists() else set()
    left = {pool.submit(fit_tide, task): task[:1] + task[2:] for task in tasks if task[:1] + task[2:] not in done}
    with path.open("a") as file:
        for fit in as_completed(left):
            print(json.dumps([left[fit], fit.result()], ensure_ascii=False), file=file, flush=True)


def describe_tide(path: Path) -> list[str]:
    """Means over draws: labels moved, the same labels in time, and late labels where they are; and the differences."""
    results = {tuple(key): values for key, values in map(json.loads, path.read_text().splitlines())}
    heads = ["data set", "labels", "other wrong labels", "lags assumed", "test error", "in time", "difference by draw"]
    heads += ["without align", "left", "in time", "without align", "suggested", "in time"]
    lines = ["Per cent, means over draws. Windows of 100 steps.", "", *_head(heads, 3)]
    for name, kind, noise in sorted({key[:3] for key in results if key[4]}):
        keys = [(kind, True), ("as recorded", False), (kind, False)]
        seeds = [seed for seed in range(99) if all((name, k, noise, seed, align) in results for k, align in keys[:2])]
        moved, in_time, plain = (
            np.array([results.get((name, k, noise, seed, align), [np.nan] * 4) for seed in seeds]) for k, align in keys
        )
        if not seeds:
            continue
        cells = [part[:, column].mean() for column in (0, 1) for part in (moved, in_time, plain)]
        cells += [moved[:, 2].mean(), in_time[:, 2].mean()]
        lags = ", ".join(f"{lag:.0f}" for lag in moved[:, 3])
        texts = ["" if np.isnan(value) else f"{value:.1f}" for value in cells]
        texts.insert(2, ", ".join(f"{each:+.1f}" for each in moved[:, 0] - in_time[:, 0]))
        lines.append(_line([name, kind, f"{noise:.0%}", lags, *texts]))
    return lines


def measure_patterns(task: tuple[str, Path, str, float, int]) -> list[object]:
    """One line: fast audits in which a sentence on one-sided errors stands, and the sentences."""
    name, data, kind, noise, draws = task
    found: list[list[str]] = []
    for seed in range(draws if noise or kind == "late by 4 ± 2" else 1):
        X, y, lengths, _ = draw(load(data)[name], seed, noise, **KINDS[kind])
        there = np.arange(X.shape[1]) < lengths[:, None]
        row, step = np.nonzero(there)
        columns = {f"x{n}": values for n, values in enumerate(X[there].T.astype(float))}
        label = [None if code < 0 else f"class {code}" for code in y[there].tolist()]
        table = pa.table({"recording": row, "step": step, **columns, "label": label})
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            lt.audit(
                table,
                sequence="recording",
                time="step",
                label="label",
                features=list(columns),
                fast=True,
                out=Path(folder) / "audit",
            )
            found.append(json.loads((Path(folder) / "audit" / "audit.json").read_text())["issues"]["patterns"])
    several = " ".join(dict.fromkeys(text for texts in found for text in texts))
    return [name, kind, f"{noise:.0%}", f"{sum(map(bool, found))} of {len(found)}", several]


def measure_line(task: tuple[str, Path, str, float, int]) -> list[object]:
    name, data, kind, noise, draws = task
    return [name, kind, f"{noise:.0%}", *measure(load(data)[name], noise, draws, **KINDS[kind])]


def _head(names: list[str], texts: int) -> list[str]:
    return [_line(names), f"|{'---|' * texts}{'--:|' * (len(names) - texts)}"]


def _line(cells: list[object]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def fixed_orders() -> str:
    """Simulated labels in time whose classes follow each other in a fixed order: how many are called shifted."""
    studies = common = called = 0
    for classes, run, alike, wrong, seed in product((2, 3), (1, 3, 10, 20), (True, False), (0.0, 0.2), range(6)):
        random = np.random.default_rng(seed)
        centres = random.normal(size=(classes, 4)) * 1.5
        first = 0 if alike else random.integers(0, run * classes, 30)[:, None]
        true = (np.arange(200) + first) // run % classes + np.zeros((30, 1), int)
        signal = centres[true] + random.normal(size=(*true.shape, 4))
        found = lt.find_shifts(signal, (true + (random.random(true.shape) < wrong)) % classes)
        studies, common = studies + 1, common + found.is_shifted
        called += int((found.own_p_value < SEEN_LEVEL).sum())
    return f"{studies} studies: a common lag is shown in {common}, {called} of {30 * studies} recordings are shifted"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("LABELTIDE_DATA", "data"))
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--tide", action="store_true")
    parser.add_argument("--patterns", action="store_true")
    parser.add_argument("--orders", action="store_true", help="simulated labels in a fixed order alone; printed")
    parser.add_argument("--sets", default="", help="separated by semicolons; with --tide all but blinking by default")
    parser.add_argument("--kinds", default="", help="separated by semicolons; needed with --tide")
    parser.add_argument("--unmoved", action="store_true", help="with --tide; also late labels without align")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=Path, default=RESULT.parent, help="folder of the record")
    options = parser.parse_args()
    if options.orders:
        return print(fixed_orders())
    names, kinds = ([name for name in each.split(";") if name] for each in (options.sets, options.kinds))
    command = f"python bench/benchmarks/shifts.py --data DATA --draws {options.draws}{' --tide' * options.tide}"
    command += " --patterns" * options.patterns
    command += "".join(
        f' --{key} "{value}"' for key, value in (("sets", options.sets), ("kinds", options.kinds)) if value
    )
    title = "tide on late labels" if options.tide else "Late labels and shifted recordings"
    lines = [f"# {title}", "", f"`{command}`, {time.strftime('%Y-%m-%d')}.", ""]
    with ProcessPoolExecutor(options.processes, multiprocessing.get_context("spawn")) as pool:
        if options.tide:
            sets = names or [name for name in load(options.data) if name != "blinking"]
            ways = [(kind, True) for kind in kinds] + [("as recorded", False)]
            ways += [(kind, False) for kind in kinds if options.unmoved]
            order = [(seed, noise, name) for seed in range(options.draws) for noise in (0.0, 0.3) for name in sets]
            tasks = [(name, options.data, kind, noise, seed, way) for seed, noise, name in order for kind, way in ways]
            measure_tide(options.out / "shifts_tide.jsonl", tasks, pool)
            lines += describe_tide(options.out / "shifts_tide.jsonl")
        else:
            heads = ["data set", "labels", "other wrong labels", "shift found", "cannot be estimated"]
            heads += ["error of the lag", "moved recordings found", "draws with a false one"]
            heads += ["intervals of recordings that hold the shift", "seconds"]
            tasks = [
                (name, options.data, kind, noise, options.draws)
                for name in names or load(options.data)
                for kind in kinds or KINDS
                for noise in (0.0, 0.3)
            ]
            if options.patterns:
                heads = ["data set", "labels", "other wrong labels", "audits with a sentence", "sentences"]
            lines += _head(heads, 2)
            for cells in pool.map(measure_patterns if options.patterns else measure_line, tasks):
                lines.append(_line(cells))
                print(lines[-1], flush=True)
    record = "shifts_tide.md" if options.tide else "shifts_patterns.md" if options.patterns else "shifts.md"
    (options.out / record).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
