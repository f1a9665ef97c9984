"""Checked error rates: coverage and width of their intervals, with models that are right and models that are wrong.

    python bench/benchmarks/checked_rate.py --out bench/results/review

Simulated studies of 40 people with 500 labels each. A study has the model's probability that each label is wrong, and
whether it is. Labels are drawn and reviewed without mistakes. Nothing is fitted. Writes checked_rate.csv and
checked_rate.md. The numbers are deterministic.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import checked_rate_page
import labeltide as lt
from labeltide.inference.review import remaining_rate

PEOPLE, STEPS, SIZES, SEED = 40, 500, (50, 200, 500), 71_000
CLUSTERS, BINS = np.arange(PEOPLE), np.broadcast_to(np.arange(STEPS) // 50, (PEOPLE, STEPS))
Study = tuple[np.ndarray, np.ndarray]  # model's probabilities, wrong labels: (people, steps) each


def suspicion(rng: np.random.Generator, level: float = 1.0) -> np.ndarray:
    """Probabilities of a model: most labels look right, some are suspicious, more of them in some people."""
    person = np.exp(rng.normal(0, 0.5, (PEOPLE, 1)))
    suspicious = rng.random((PEOPLE, STEPS)) < np.clip(0.12 * level * person, 0, 0.5)
    looks_right = rng.uniform(0.002, 0.03 * level, suspicious.shape)
    return np.where(suspicious, rng.uniform(0.15, 0.98, suspicious.shape), looks_right)


def drawn(rng: np.random.Generator, p: np.ndarray) -> np.ndarray:
    return rng.random(p.shape) < p


def right(rng: np.random.Generator) -> Study:
    p = suspicion(rng)
    return p, drawn(rng, p)


def rare(rng: np.random.Generator) -> Study:
    p = suspicion(rng, 0.15)
    return p, drawn(rng, p)


def shared_habits(rng: np.random.Generator) -> Study:
    p, wrong = right(rng)
    habit = 0.05 * np.exp(rng.normal(0, 0.5, (PEOPLE, 1)))
    return p, wrong | (rng.random(p.shape) < habit)


def near_boundaries(rng: np.random.Generator) -> Study:
    p, wrong = right(rng)
    boundary = rng.random(p.shape) < 1 / 25
    boundary[:, 1:] |= boundary[:, :-1]
    return p, wrong | (boundary & (rng.random(p.shape) < 0.6))


def bursts(rng: np.random.Generator) -> Study:
    p, wrong = right(rng)
    starts = rng.random(p.shape) < 0.003
    for lag in range(20):
        wrong[:, lag:] |= starts[:, : STEPS - lag]
    return np.where(starts, 0.9, p), wrong


def no_information(rng: np.random.Generator) -> Study:
    p, wrong = right(rng)
    return np.full(p.shape, 0.1), wrong


def overconfident(rng: np.random.Generator) -> Study:
    p, wrong = right(rng)
    return np.where(p > 0.12, np.where(rng.random(p.shape) < 0.8, 0.98, p), 0.0005), wrong


def adversarial(rng: np.random.Generator) -> Study:
    p = suspicion(rng)
    return p, (rng.random(p.shape) < 0.1) & (p < 0.1)


KINDS: dict[str, Callable[[np.random.Generator], Study]] = {
    "right": right,
    "right, rare errors": rare,
    "overconfident": overconfident,
    "shared habits": shared_habits,
    "near boundaries": near_boundaries,
    "bursts": bursts,
    "no information": no_information,
    "adversarial": adversarial,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="bench/results/review", help="folder for the records")
    parser.add_argument("--studies", type=int, default=500)
    arguments = parser.parse_args()
    out = Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    records = list(overall(arguments.studies))
    records += again(records, 4 * arguments.studies)
    records += [*groups(arguments.studies // 5), *small_counts(4 * arguments.studies)]
    with (out / "checked_rate.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(dict.fromkeys(key for record in records for key in record)))
        writer.writeheader()
        writer.writerows(records)
    (out / "checked_rate.md").write_text(checked_rate_page.page(records, arguments.studies))


def overall(n_studies: int) -> Iterator[dict[str, Any]]:
    """Every kind of model with every size of sample."""
    for kind in KINDS:
        for n in SIZES:
            yield from cell("overall", kind, n, n_studies, SEED)


def again(records: list[dict[str, Any]], n_studies: int) -> Iterator[dict[str, Any]]:
    """More studies, with other seeds, of every kind and size with a coverage below the goal."""
    low = {(record["kind"], record["n"]): None for record in records if record["coverage"] < checked_rate_page.LOW}
    for kind, n in low:
        yield from cell("again", kind, n, n_studies, SEED + 3)


def cell(table: str, kind: str, n: int, n_studies: int, seed: int) -> Iterator[dict[str, Any]]:
    """Coverage of the overall rate and width relative to a simple random sample of the same size, without a model."""
    rng = np.random.default_rng(SEED)
    all_people = np.mean([KINDS[kind](rng)[1].mean() for _ in range(1000)])  # the rate that clusters speak about
    rows: dict[tuple[str, bool], list[tuple[float, ...]]] = {}
    for number in range(n_studies):
        rng = np.random.default_rng((seed, number, n))
        p, wrong = KINDS[kind](rng)
        for way, values, sample in ways(p, n, rng):
            for clustered, truth in ((False, wrong.mean()), (True, all_people)):
                people = CLUSTERS if clustered else None
                result = lt.checked_rate(values, sample, wrong[sample.index], clusters=people).overall
                row = (result.lower <= truth <= result.upper, result.upper - result.lower, result.model_weight)
                rows.setdefault((way, clustered), []).append(row)
    for clustered in (False, True):
        yield from _summary(rows, clustered, {"table": table, "kind": kind, "n": n, "clusters": clustered})


def ways(p: np.ndarray, n: int, rng: np.random.Generator) -> Iterator[tuple[str, np.ndarray, Any]]:
    """Samples of the same size: simple random without a model, planned in one draw, planned in two draws."""
    nothing = np.full(p.shape, 0.1)
    yield "simple", nothing, lt.review_sample(nothing, n, random_state=rng)
    yield "planned", p, lt.review_sample(p, n, random_state=rng)
    first = lt.review_sample(p, n // 2, random_state=rng)
    yield "two draws", p, lt.review_sample(p, n - n // 2, earlier=first, random_state=rng)


def _summary(rows: dict[tuple[str, bool], list], clustered: bool, head: dict[str, Any]) -> Iterator[dict[str, Any]]:
    plain = np.mean([row[1] for row in rows["simple", clustered]])
    for way in ("simple", "planned", "two draws"):
        covered, width, weight = np.mean(rows[way, clustered], axis=0)
        yield head | {
            "way": way,
            "coverage": round(float(covered), 4),
            "width": round(float(width), 5),
            "relative_width": round(float(width / plain), 4),
            "model_weight": round(float(weight), 3),
        }


def groups(n_studies: int) -> Iterator[dict[str, Any]]:
    """Coverage of the rates in ten bins of the clock, over all bins and studies."""
    for kind, simulate in KINDS.items():
        for n in SIZES[1:]:
            covered, widths = [], []
            for number in range(n_studies):
                rng = np.random.default_rng((SEED + 1, number, n))
                p, wrong = simulate(rng)
                sample = lt.review_sample(p, n, random_state=rng)
                result = lt.checked_rate(p, sample, wrong[sample.index], by={"clock": BINS})
                for group in result.groups["clock"]:
                    covered.append(group.lower <= wrong[group.group == BINS].mean() <= group.upper)
                    widths.append(group.upper - group.lower)
            measured = {"coverage": round(float(np.mean(covered)), 4), "width": round(float(np.mean(widths)), 5)}
            yield {"table": "clock", "kind": kind, "n": n, **measured}


def small_counts(n_studies: int, n_labels: int = 5000, n: int = 50) -> Iterator[dict[str, Any]]:
    """Coverage of interval and bound where a review finds no, one or two wrong labels."""
    for kind in ("right", "no information", "adversarial"):
        for rate in (0.002, 0.01, 0.02, 0.04, 0.08):
            rows = []
            for number in range(n_studies):
                rng = np.random.default_rng((SEED + 2, number))
                p = rng.beta(0.25, 0.25 / rate - 0.25, n_labels).clip(1e-4, 1 - 1e-4)
                wrong = drawn(rng, p)
                p = {"right": p, "no information": np.full(n_labels, rate), "adversarial": p.max() - p}[kind]
                sample = lt.review_sample(p, n, random_state=rng)
                found = wrong[sample.index]
                interval = lt.checked_rate(p, sample, found).overall
                left = (wrong.sum() - found.sum()) / n_labels
                bound = remaining_rate(p, sample, found).bound
                rows.append((interval.lower <= wrong.mean() <= interval.upper, left <= bound, bound, found.sum()))
            covered, held, bound, _ = np.mean(rows, axis=0)
            counts = np.bincount([int(row[3]) for row in rows], minlength=3)[:3] / n_studies
            measured = {"coverage": covered, "bound_held": held, "mean_bound": bound}
            measured |= dict(zip(("found_0", "found_1", "found_2"), counts, strict=True))
            yield {"table": "small counts", "kind": kind, "n": n, "rate": rate} | {
                key: round(float(value), 4) for key, value in measured.items()
            }


if __name__ == "__main__":
    main()
