"""A scorer as the reviewer of another scorer's labels: the error of the estimated rate before and after 200 items.

    python bench/benchmarks/reviewer_study.py --data DATA      # or LABELTIDE_DATA=DATA; --nights 80 for all of Dreem

The labels of one scorer are audited with features (`tide`). Another scorer, whose labels no fit has seen, plays the
reviewer: a drawn label is wrong if the two differ. 200 items are drawn by `lt.review_sample` and evaluated by
`lt.checked_rate`, again and again with other random numbers. What counts as the truth is the share of all labels at
which the two scorers differ, overall and in five parts of the clock with equally many labels. Writes
reviewer_study.csv and reviewer_study.md.
"""

from __future__ import annotations

import argparse
import csv
import os
import time
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np

import labeltide as lt
from contested import Study, gaze, sleep
from labeltide.estimators import fit_fleet
from reviewer_study_page import write_page

ITEMS, PARTS, SEED = 200, 5, 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.environ.get("LABELTIDE_DATA"), help="folder of the data sets")
    parser.add_argument("--out", default="bench/results/review", help="folder for the records")
    parser.add_argument("--nights", type=int, default=16, help="nights of Dreem, of 80")
    parser.add_argument("--epochs", type=int, default=40, help="of the networks")
    parser.add_argument("--draws", type=int, default=100, help="reviews of each pair")
    arguments = parser.parse_args()
    if arguments.data is None:
        parser.error("Say where the data sets are: --data FOLDER, or LABELTIDE_DATA.")
    records = []
    for study in (gaze(arguments), sleep(arguments)):
        for record in _review_study(study, arguments.epochs, arguments.draws):
            records.append(record)
            print(record, flush=True)
        write_records(records, Path(arguments.out), vars(arguments))


def write_records(records: list[dict[str, Any]], out: Path, settings: dict[str, Any]) -> None:
    """Write what there is so far."""
    out.mkdir(parents=True, exist_ok=True)
    with (out / "reviewer_study.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(records[0]))
        writer.writeheader()
        writer.writerows(records)
    write_page(records, out / "reviewer_study.md", settings)


def _review_study(study: Study, epochs: int, draws: int) -> Iterator[dict[str, Any]]:
    assert study.features is not None
    labels = list(np.moveaxis(study.labels, 2, 0))
    started = time.perf_counter()
    fits = [lt.TideClassifier(random_state=SEED, ensemble=False, epochs=epochs) for _ in labels]
    more = {"clock": study.clock, "lengths": study.lengths, "clusters": np.unique(study.ids, return_inverse=True)[1]}
    fit_fleet(fits, study.features, labels, **more)
    seconds = time.perf_counter() - started
    audits = [
        fit.audit(study.features, own, clock=study.clock, lengths=study.lengths)
        for fit, own in zip(fits, labels, strict=True)
    ]
    for audited, reviewer in permutations(range(len(labels)), 2):
        audit = audits[audited]
        helpers = {"wrong": 1 - audit.quality, "contested": audit.contested}
        for helper, chances in helpers.items():
            about = {"study": study.name, "audited": audited + 1, "reviewer": reviewer + 1, "model": helper}
            yield about | _review_pair(study, chances, audited, reviewer, draws) | {"fit_seconds": round(seconds)}


def _review_pair(study: Study, chances: np.ndarray, audited: int, reviewer: int, draws: int) -> dict[str, Any]:
    """Errors and coverage over many reviews of one pair of scorers."""
    own, other = study.labels[..., audited], study.labels[..., reviewer]
    both = (own >= 0) & (other >= 0) & np.isfinite(chances)
    chances, differs = np.where(both, chances, np.nan), own != other
    edges = np.quantile(study.clock[both], np.linspace(0, 1, PARTS + 1)[1:-1])
    part = np.digitize(study.clock, edges)
    counted = np.array([differs[both].mean(), *(differs[both & (part == each)].mean() for each in range(PARTS))])
    model = np.array([np.nanmean(chances), *(chances[both & (part == each)].mean() for each in range(PARTS))])
    rates = np.array([_one_review(chances, differs, part, draw) for draw in range(draws)])  # (draws, 1 + parts, 3)
    errors = np.abs(rates[..., 0] - counted)
    covers = (rates[..., 1] <= counted) & (counted <= rates[..., 2])
    before = np.abs(model - counted)
    return {
        "labels": int(both.sum()),
        "counted": round(float(counted[0]), 4),
        "model_rate": round(float(model[0]), 4),
        "error_before": round(float(before[0]), 4),
        "error_after": round(float(errors[:, 0].mean()), 4),
        "coverage": round(float(covers[:, 0].mean()), 4),
        "half_width": round(float((rates[:, 0, 2] - rates[:, 0, 1]).mean() / 2), 4),
        "clock_error_before": round(float(before[1:].mean()), 4),
        "clock_error_after": round(float(errors[:, 1:].mean()), 4),
        "clock_coverage": round(float(covers[:, 1:].mean()), 4),
    }


def _one_review(chances: np.ndarray, differs: np.ndarray, part: np.ndarray, draw: int) -> list[list[float]]:
    """Rate, lower and upper end of all labels and of each part of the clock."""
    sample = lt.review_sample(chances, ITEMS, random_state=draw)
    found = lt.checked_rate(chances, sample, differs[sample.index], by={"part": part})
    return [[each.rate, each.lower, each.upper] for each in (found.overall, *found.groups["part"])]


if __name__ == "__main__":
    main()
