"""Flags of `lt.audit_predictions` and of cleanlab, with the same probabilities of scikit-learn models.

    pip install cleanlab      # not a dependency
    python bench/benchmarks/predictions.py --data DATA      # or LABELTIDE_DATA=DATA; goes on with what is missing
    python bench/benchmarks/predictions.py --data DATA --rates 0.1 --without-cleanlab --out FOLDER    # another machine
    python bench/benchmarks/predictions.py --data DATA --add FOLDER     # its records, and cleanlab's half
    python bench/benchmarks/predictions.py --data DATA --tables --sets gaze     # the same as tables: prints, no record

Eight sets of whole recordings, cut into windows of 100 steps; six shapes of noise over the window at 10 and 30 %. A
logistic regression, gradient boosting and a small network learn the wrong labels, five folds by recording, and predict
the recording that was left out. cleanlab (find_label_issues and get_label_quality_scores, default settings) gets these
probabilities for all steps together, and for each tenth of the window by itself. The power of each person was developed
on single fits of senior; nothing else was tuned on these draws. Writes predictions.jsonl and predictions.md.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score
from sklearn.model_selection import GroupKFold, cross_val_predict
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import labeltide as lt
from flags import score
from labeltide.auditing import fitting
from shifts import load

WINDOW, MAX_WINDOWS, TENTHS, FDR = 100, 60, 10, 0.1
SETS = (
    "activities, 6 classes",
    "senior",
    "senior, 7 classes",
    "stages, 5 classes",
    "sleeping",
    "gaze",
    "chest accelerometer",
    "blinking",
)
SHAPES = ("static", "linear", "decay", "growth", "periodic", "mixed")
RATES = (0.3, 0.1)
MODELS = {
    "logistic regression": lambda: make_pipeline(StandardScaler(), LogisticRegression(max_iter=300)),
    "gradient boosting": lambda: HistGradientBoostingClassifier(max_iter=25, random_state=0),
    "network": lambda: make_pipeline(StandardScaler(), MLPClassifier((32,), max_iter=40, random_state=0)),
}
OURS, POOLED, BY_TENTH = "labeltide", "cleanlab", "cleanlab, tenths"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.environ.get("LABELTIDE_DATA"), help="folder of the data sets")
    parser.add_argument("--out", default="bench/results/flags", help="folder for the records")
    parser.add_argument("--draws", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=1e9, help="after which no further draw is begun")
    parser.add_argument("--sets", nargs="*", choices=SETS, default=SETS)
    parser.add_argument("--rates", nargs="*", type=float, choices=RATES, default=RATES)
    parser.add_argument("--without-cleanlab", action="store_true", help="measure labeltide alone")
    parser.add_argument("--tables", action="store_true", help="print the scores of `lt.audit` beside these")
    parser.add_argument("--add", type=Path, nargs="*", default=(), help="folders of such records, for cleanlab's half")
    arguments = parser.parse_args()
    if arguments.data is None:
        parser.error("Say where the data sets are: --data FOLDER, or LABELTIDE_DATA.")
    out = Path(arguments.out)
    file = out / "predictions.jsonl"
    records = _read(file)
    done = {tuple(record["key"]) for record in records}
    added = [record for folder in arguments.add for record in _read(folder / "predictions.jsonl")]
    halves = [record for record in added if tuple(record["key"]) not in done]
    done |= {tuple(record["key"]) for record in halves}
    started, every = time.perf_counter(), load(Path(arguments.data))
    for half in halves:
        name, *draw = half["key"]
        records.append(compare(half, *windows(every[name]), *draw))
        _write(file, records)
    for draw, rate, shape, name in product(range(arguments.draws), arguments.rates, SHAPES, arguments.sets):
        late = time.perf_counter() - started > 60 * arguments.minutes
        if ((name, shape, rate, draw) in done and not arguments.tables) or late or arguments.add:
            continue
        study = windows(every[name])
        if arguments.tables:
            for model, *scores in measure_tables(*study, shape, rate, draw):
                print(name, shape, rate, draw, model, *scores, flush=True)
            continue
        for record in measure(*study, shape, rate, draw):
            whole = record if arguments.without_cleanlab else compare(record, *study, shape, rate, draw)
            records.append({"key": [name, shape, rate, draw], **whole})
            print(records[-1]["key"], record["model"], {way: v["f1"] for way, v in record["ways"].items()}, flush=True)
            _write(file, records)
    if not arguments.without_cleanlab and not arguments.tables:
        write_page(records, out / "predictions.md")


def _read(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def _write(file: Path, records: list[dict[str, Any]]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(record) + "\n" for record in records))


def windows(recordings: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """At most `MAX_WINDOWS` whole windows, as many from each recording: features, codes and the recording of each.

    A single recording is cut into ten blocks, which stand for recordings.
    """
    if len(recordings) == 1:
        features, labels = recordings[0]
        size = len(labels) // 10
        recordings = [(features[k * size : (k + 1) * size], labels[k * size : (k + 1) * size]) for k in range(10)]
    classes = np.unique(np.concatenate([labels[labels >= 0] for _, labels in recordings]))
    found: list[tuple[np.ndarray, np.ndarray, int]] = []
    for number, (features, labels) in enumerate(recordings):
        begins = np.arange(0, len(labels) - WINDOW + 1, WINDOW)
        most = max(1, MAX_WINDOWS // len(recordings))
        for begin in begins[np.linspace(0, len(begins) - 1, min(most, len(begins))).astype(int)] if len(begins) else ():
            part = slice(begin, begin + WINDOW)
            codes = np.where(labels[part] >= 0, np.searchsorted(classes, labels[part]), -1)
            found.append((features[part], codes, number))
    X, y, recording = (np.array(values) for values in zip(*found, strict=True))
    kept = np.unique(y[y >= 0])  # classes that the chosen windows hold
    return X, np.where(y >= 0, np.searchsorted(kept, y), -1), recording


def measure(
    X: np.ndarray, clean: np.ndarray, recording: np.ndarray, shape: str, rate: float, draw: int
) -> Iterator[dict[str, Any]]:
    """One record for each model, of labeltide alone."""
    y, wrong = draw_labels(clean, shape, rate, draw)
    there = clean >= 0
    for name in MODELS:
        started = time.perf_counter()
        found = predict(name, X, y, recording, there)
        learning = time.perf_counter() - started
        probabilities = np.full((*y.shape, found.shape[1]), 1 / found.shape[1])
        probabilities[there] = found
        started = time.perf_counter()
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            audit = lt.audit_predictions(probabilities, y, clusters=recording, fdr=FDR)
            flags, quality = audit.is_issue[there], audit.quality[there]
        seconds = {"learning": learning, OURS: time.perf_counter() - started}
        yield {
            "model": name,
            "labels": int(wrong.size),
            "wrong": round(float(wrong.mean()), 4),
            "answer": audit.fit.conclusion_.answer,
            "warned": sorted({str(each.message).split(".")[0] for each in warned if each.category is lt.NoiseWarning}),
            "promised": round(float(audit.expected_false_alarms), 4),
            "share": round(float(audit.share_wrong), 4),
            "ways": {OURS: judge(flags, quality, wrong)},
            "kinds": {  # flags, and how many of them are false alarms
                kind: [int((flags & kinds).sum()), int((flags & kinds & ~wrong).sum())]
                for kind, kinds in ((kind, audit.kind[there] == kind) for kind in ("isolated", "run"))
            },
            "seconds": {way: round(value, 2) for way, value in seconds.items()},
        }


def measure_tables(
    X: np.ndarray, clean: np.ndarray, recording: np.ndarray, shape: str, rate: float, draw: int
) -> Iterator[tuple[str, float, float, float]]:
    """F1 of `audit_predictions`, of `lt.audit` with a factor for each recording, and of it with one power, by model."""
    y, wrong = draw_labels(clean, shape, rate, draw)
    there, classes = (clean >= 0).ravel(), range(int(clean.max()) + 1)
    columns = {"recording": np.repeat(recording, WINDOW), "step": np.arange(y.size)}
    columns["label"] = np.array([f"c{code}" if code >= 0 else None for code in y.ravel()], dtype=object)
    own = fitting.find_powers
    for name in MODELS:
        found = np.full((y.size, len(classes)), 1 / len(classes))
        found[there] = predict(name, X, y, recording, clean >= 0)
        table = pa.table(columns | {f"p_c{code}": found[:, code] for code in classes})
        scores = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            audit = lt.audit_predictions(found.reshape(*y.shape, -1), y, clusters=recording, fdr=FDR)
            scores.append(score(audit.is_issue.ravel()[there], wrong)["f1"])
            for find in (own, lambda *_: fitting.SequencePowers({})):
                fitting.find_powers = find
                options = {"sequence": "recording", "time": "step", "label": "label", "fdr": FDR}
                lines = lt.audit(table, probabilities=[f"p_c{code}" for code in classes], **options).labels
                flags = lines.sort_by("row")["is_issue"].to_numpy()
                scores.append(score(flags[there], wrong)["f1"])
        fitting.find_powers = own
        yield name, *(round(float(each), 4) for each in scores)


def compare(
    record: dict[str, Any],
    X: np.ndarray,
    clean: np.ndarray,
    recording: np.ndarray,
    shape: str,
    rate: float,
    draw: int,
) -> dict[str, Any]:
    """A record with cleanlab's half: the same labels, and the same model fitted again."""
    y, wrong = draw_labels(clean, shape, rate, draw)
    there = clean >= 0
    tenth = np.broadcast_to(np.arange(WINDOW) * TENTHS // WINDOW, y.shape)[there]
    found = predict(record["model"], X, y, recording, there)
    ways, seconds = dict(record["ways"]), dict(record["seconds"])
    for way, groups in ((POOLED, np.zeros_like(tenth)), (BY_TENTH, tenth)):
        started = time.perf_counter()
        flags, quality = cleanlab(y[there], found, groups)
        seconds[way] = round(time.perf_counter() - started, 2)
        ways[way] = judge(flags, quality, wrong)
    return record | {"ways": ways, "seconds": seconds}


def draw_labels(clean: np.ndarray, shape: str, rate: float, draw: int) -> tuple[np.ndarray, np.ndarray]:
    """Recorded labels of clean ones, and which of those that are there are wrong."""
    there = clean >= 0
    noise = lt.make_noise(shape, n_classes=int(clean.max()) + 1, n_steps=WINDOW, rate=rate)
    y = np.where(there, lt.corrupt(clean.clip(0), noise, random_state=draw), -1).reshape(clean.shape).astype(int)
    return y, (y != clean)[there]


def predict(name: str, X: np.ndarray, y: np.ndarray, recording: np.ndarray, there: np.ndarray) -> np.ndarray:
    """Probabilities of a model that learned the recorded labels of other recordings: (labelled steps, classes)."""
    groups = np.broadcast_to(recording[:, None], y.shape)[there]
    folds = GroupKFold(min(5, len(np.unique(recording))))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return cross_val_predict(MODELS[name](), X[there], y[there], groups=groups, cv=folds, method="predict_proba")


def judge(flags: np.ndarray, quality: np.ndarray, wrong: np.ndarray) -> dict[str, float]:
    """Scores of flags, and the area under the precision-recall curve of quality."""
    scores = {**score(flags, wrong), "auprc": average_precision_score(wrong, 1 - quality)}
    return {key: round(float(value), 4) for key, value in scores.items()}


def cleanlab(y: np.ndarray, probabilities: np.ndarray, groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """cleanlab's issues and label quality scores, of each group of steps by itself."""
    from cleanlab.filter import find_label_issues
    from cleanlab.rank import get_label_quality_scores

    flags, quality = np.zeros(len(y), dtype=bool), np.zeros(len(y))
    for group in np.unique(groups):
        part = groups == group
        classes = np.unique(y[part])  # of a tenth may lack some
        codes, some = np.searchsorted(classes, y[part]), probabilities[part][:, classes]
        some = (some + 1e-12) / (some + 1e-12).sum(1, keepdims=True)
        if len(classes) > 1:
            flags[part] = find_label_issues(codes, some, n_jobs=1)
        quality[part] = get_label_quality_scores(codes, some)
    return flags, quality


def write_page(records: list[dict[str, Any]], path: Path) -> None:
    """Means over shapes and draws by set, model and rate, and in how many fits either is ahead."""
    ways, lines = (
        (OURS, POOLED, BY_TENTH),
        [
            "# Flags with the probabilities of your own model: labeltide and cleanlab",
            "",
            "`python bench/benchmarks/predictions.py`. Both get the same out-of-fold probabilities of a model that "
            "learned the wrong labels. F1 and area under the precision-recall curve, and the share of flags that are "
            f"false alarms (at most {FDR:.0%} is asked of labeltide; cleanlab promises none). Means over "
            f"{len(SHAPES)} shapes of noise.",
            "",
        ],
    )
    rates = [rate for rate in RATES if any(record["key"][2] == rate for record in records)]
    for rate in rates:
        lines += [f"## {rate:.0%} of the labels are wrong", "", *_table([r for r in records if r["key"][2] == rate])]
    lines += ["## In how many fits", ""]
    lines += ["| | fits | labeltide ahead by .005 | level | behind by .005 | mean difference |"]
    lines += ["|---|--:|--:|--:|--:|--:|"]
    for measure_name, way in product(("f1", "auprc"), ways[1:]):
        for rate in rates:
            some = [r["ways"] for r in records if r["key"][2] == rate]
            gain = np.array([of[OURS][measure_name] - of[way][measure_name] for of in some])
            counts = (gain > 0.005).sum(), (np.abs(gain) <= 0.005).sum(), (gain < -0.005).sum()
            mean = f"{gain.mean():+.3f} ± {gain.std(ddof=1) / np.sqrt(len(gain)):.3f}" if len(gain) > 1 else ""
            shown = " | ".join(map(str, (len(gain), *counts, mean)))
            lines.append(f"| {measure_name.upper()} against {way}, {rate:.0%} | {shown} |")
    if any("kinds" in record for record in records):
        lines += [
            "",
            "## False alarms among flags, by kind",
            "",
            "| set | fits | isolated: flags | false | run: flags | false |",
        ]
        lines += ["|---|--:|--:|--:|--:|--:|"]
        for name in SETS:
            some = [record["kinds"] for record in records if record["key"][0] == name and "kinds" in record]
            counts = {kind: np.sum([of[kind] for of in some], 0) for kind in ("isolated", "run")} if some else {}
            cells = (f"{flags} | {100 * false / max(flags, 1):.1f} %" for flags, false in counts.values())
            lines += [f"| {name} | {len(some)} | {' | '.join(cells)} |"] if some else []
    lines += ["", "Fits of one set share its recordings; ± is one standard error as if they did not.", ""]
    path.write_text("\n".join(lines))


def _table(records: list[dict[str, Any]]) -> list[str]:
    ways = (OURS, POOLED, BY_TENTH)
    lines = [
        f"| set | model | fits | F1: {' | '.join(ways)} | AUPRC: {' | '.join(ways)} | false alarms: labeltide "
        "(promised) | cleanlab | no answer | seconds: labeltide | cleanlab |",
        "|---|---|--:" + "|--:" * 11 + "|",
    ]
    for name, model in product(SETS, MODELS):
        some = [r for r in records if r["key"][0] == name and r["model"] == model]
        if not some:
            continue

        def mean(values: list[float]) -> float:
            return float(np.mean(values)) if values else float("nan")

        cells = [f"{mean([r['ways'][way][key] for r in some]):.3f}" for key in ("f1", "auprc") for way in ways]
        flagged = [r for r in some if r["ways"][OURS]["flagged"] > 0]
        false = f"{100 * (1 - mean([r['ways'][OURS]['precision'] for r in flagged])):.1f} %"
        promised = f"{100 * mean([r['promised'] for r in flagged]):.1f} %"
        cells.append(f"{false} ({promised})" if flagged else "no flags")
        cells.append(f"{100 * (1 - mean([r['ways'][POOLED]['precision'] for r in some])):.1f} %")
        cells.append(str(sum(r["answer"] != "shown" for r in some)))
        cells += [f"{mean([r['seconds'][way] for r in some]):.1f}" for way in ways[:2]]
        lines.append(f"| {name} | {model} | {len(some)} | " + " | ".join(cells) + " |")
    return [*lines, ""]


if __name__ == "__main__":
    main()
