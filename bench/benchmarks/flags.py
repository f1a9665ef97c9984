"""Label error detection: precision and recall of flags, calibration of label quality, and effect of corrections.

    python bench/benchmarks/flags.py --data DATA --out bench/results/flags      # or LABELTIDE_DATA=DATA

Data sets and noise are those of studies/tide.toml. Compared are: flags of LabelAudit at a false discovery rate of 10 %;
the same with labels for which no other is likelier, until the 10 % are spent; all labels with another suggestion;
confident learning (cleanlab; Northcutt and others 2021) with the same out-of-fold probabilities, on all steps together
and within ten parts of the clock; and the Bayes rule with the true Q(t) and out-of-fold probabilities of networks
trained on clean labels. Writes records.jsonl, flags.md and reliability.png. The numbers are deterministic on the CPU.
Nothing in the library was chosen by them.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import labeltide as lt
from flags_page import draw_reliability, write_page
from labeltide.data.sequences import Sequences
from labeltide.estimators import predict_fleet
from labeltide_bench.studies.loading import load_dataset
from labeltide_bench.studies.plan import PlannedRun
from labeltide_bench.studies.run_fleet import record_labels

STUDY = Path(__file__).parents[1] / "studies" / "tide.toml"
DATASETS, SHAPES, RATE = ("moving", "blinking", "sleeping"), ("mixed", "growth", "periodic"), 0.3
NEAR = 0.011  # the paper's level of 30 % has 29 % for some shapes
FDR, FOLDS, TIMES, BINS = 0.1, 5, 10, 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.environ.get("LABELTIDE_DATA"), help="folder of the data sets")
    parser.add_argument("--out", default="bench/results/flags", help="folder for the records")
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--datasets", nargs="*", default=DATASETS)
    arguments = parser.parse_args()
    if arguments.data is None:
        parser.error("Say where the data sets are: --data FOLDER, or LABELTIDE_DATA.")
    out = Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    records: list[dict[str, Any]] = []
    for record in measure_all(Path(arguments.data), arguments.datasets, arguments.draws):
        records.append(record)
        print(record["dataset"], record["shape"], record["draw"], f"F1 {record['ways']['ours']['f1']:.3f}", flush=True)
    (out / "records.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    write_page(records, out / "flags.md")
    draw_reliability(records, out / "reliability.png")


def measure_all(data: Path, datasets: list[str], draws: int) -> Iterator[dict[str, Any]]:
    """One record for each data set, shape of noise and draw."""
    study = lt.read_study(STUDY)
    (method,) = (labels for labels in study.methods if labels.label == "tide")
    for spec in study.datasets:
        if spec.name not in datasets:
            continue
        train = load_dataset(spec, data).train
        settings = {**method.settings_for(spec), "device": "cpu"}
        clean_probs = cross_fit_clean(train, settings)
        for noise in study.noise_for(spec):
            if noise.shape not in SHAPES or abs(noise.level.get("rate", 0) - RATE) > NEAR:
                continue
            drawn = [record_labels(PlannedRun(spec, noise, method, number), train) for number in range(draws)]
            fleet = [lt.TideClassifier(**settings, random_state=number) for number in range(draws)]
            lt.fit_fleet(fleet, train.features, [labels.recorded for labels in drawn], clock=train.clock)
            for number, (labels, estimator) in enumerate(zip(drawn, fleet, strict=True)):
                true = labels.noise.at(train.clock)  # (n, steps, classes, classes)
                yield {
                    "dataset": spec.name,
                    "shape": noise.shape,
                    "draw": number,
                    **measure(estimator, train, labels.recorded, true, clean_probs),
                }


def measure(
    estimator: lt.TideClassifier, train: Sequences, recorded: np.ndarray, true: np.ndarray, clean_probs: np.ndarray
) -> dict[str, Any]:
    """Everything about one fit."""
    clean = train.labels[..., 0]
    audit = estimator.audit(train.features, recorded, train.clock, fdr=FDR)
    wrong = recorded != clean
    suggested = audit.probabilities.argmax(-1)
    times = np.arange(wrong.shape[1]) * TIMES // wrong.shape[1]
    ways = {
        "ours": audit.is_issue,
        "ours, allowance spent": estimator.audit(
            train.features, recorded, train.clock, fdr=FDR, spend_fdr=True
        ).is_issue,
        "ours, all suggestions": suggested != recorded,
        "cleanlab": cleanlab_flags(recorded, audit.signal, np.zeros_like(times)),
        "cleanlab, ten times": cleanlab_flags(recorded, audit.signal, times),
        "Bayes rule": bayes_flags(recorded, true, clean_probs),
    }
    corrected = {f"{share:g}": audit.corrected(share) for share in (0.5, 0.9)}
    return {
        "labels": int(wrong.size),
        "wrong": round(float(wrong.mean()), 5),
        "ways": {name: score(flags, wrong) for name, flags in ways.items()},
        "expected_false_alarms": round(audit.expected_false_alarms, 5),
        "observed_false_alarms": round(float((~wrong)[audit.is_issue].mean()), 5) if audit.is_issue.any() else 0.0,
        **reliability(audit.quality, ~wrong),
        "wrong_after": {name: round(float((codes != clean).mean()), 5) for name, codes in corrected.items()},
        "said_rate": round(float(audit.noise_rate.mean()), 5),
    }


def score(flags: np.ndarray, wrong: np.ndarray) -> dict[str, float]:
    hits = int((flags & wrong).sum())
    precision, recall = hits / max(int(flags.sum()), 1), hits / int(wrong.sum())
    f1 = 2 * precision * recall / (precision + recall) if hits else 0.0
    scores = {"precision": precision, "recall": recall, "f1": f1, "flagged": float(flags.mean())}
    return {name: round(value, 5) for name, value in scores.items()}


def reliability(quality: np.ndarray, right: np.ndarray) -> dict[str, Any]:
    """The expected calibration error over ten equal bins, and what it is made of."""
    bins = np.minimum((quality * BINS).astype(int), BINS - 1)
    counts = [int((bins == k).sum()) for k in range(BINS)]
    stated = [float(quality[bins == k].sum()) for k in range(BINS)]
    held = [int(right[bins == k].sum()) for k in range(BINS)]
    error = sum(abs(a - b) for a, b in zip(stated, held, strict=True)) / quality.size
    stated = [round(value, 3) for value in stated]
    return {"calibration_error": round(error, 5), "reliability": {"labels": counts, "stated": stated, "right": held}}


def cleanlab_flags(recorded: np.ndarray, probs: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """The issues that cleanlab finds by default, within each group of steps by itself."""
    from cleanlab.filter import find_label_issues

    flags = np.zeros(recorded.shape, dtype=bool)
    for group in np.unique(groups):
        part = groups == group
        labels, part_probs = recorded[:, part].ravel().astype(int), probs[:, part].reshape(-1, probs.shape[-1])
        issues = find_label_issues(labels, part_probs / part_probs.sum(1, keepdims=True), n_jobs=1)
        flags[:, part] = issues.reshape(flags[:, part].shape)
    return flags


def bayes_flags(recorded: np.ndarray, true: np.ndarray, probs: np.ndarray) -> np.ndarray:
    """Labels that are not the likeliest under the true Q and probabilities learned from clean labels."""
    likelihood = np.take_along_axis(true, recorded[..., None, None].astype(int), -1)[..., 0]  # (n, steps, classes)
    return (probs * likelihood).argmax(-1) != recorded


def cross_fit_clean(train: Sequences, settings: dict[str, Any]) -> np.ndarray:
    """Probabilities (n, steps, classes) from networks that were trained on the clean labels of other sequences."""
    clean = train.labels[..., 0]
    folds = np.random.default_rng(0).permutation(len(clean)) % FOLDS
    labels = [np.where((folds == fold)[:, None], -1, clean) for fold in range(FOLDS)]
    fleet = [lt.IgnoreClassifier(**settings, early_stopping=True, random_state=fold) for fold in range(FOLDS)]
    lt.fit_fleet(fleet, train.features, labels, clock=train.clock)
    return predict_fleet(fleet, train.features)[folds, np.arange(len(clean))]


if __name__ == "__main__":
    main()
