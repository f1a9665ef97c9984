"""Reviews that are stopped at will: how often the interval that may be watched misses the truth, and how wide it is.

    python bench/benchmarks/anytime.py --studies 10000 --processes 16 --out bench/results/review/anytime.md

The studies are those of checked_rate.py: 40 people with 500 labels each, eight kinds of models. Up to 300 labels are
reviewed, and somebody looks after every item. The worst stopping rule ends at the first look whose interval misses the
truth. Intervals of a confidence sequence are nested, so it misses at some look if it misses at the last. The interval
for a size that was fixed beforehand is looked at after every tenth item of every sixtieth study, for comparison.

In these studies the review goes on until the bound on what is still wrong is reached, if need be to the last label,
and the forecast that was made after 30 items is compared with that.
"""

from __future__ import annotations

import argparse
from bisect import bisect_left
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch

import labeltide as lt
from checked_rate import KINDS
from labeltide.inference.review import (
    effective_count,
    estimate_rate,
    read_review,
    remaining_rate,
    review_sample,
    upper_limit,
)

ITEMS, SEED, FIRST = 300, 72_000, 30
TARGETS = (0.1, 0.05)  # of the bound on what is still wrong, forecast after FIRST items
EVERY = 60  # studies, one is looked at closely
LOOKS = 60  # sizes of the review from FIRST to all labels, among which the needed one is sought


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=10_000)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--out", default="bench/results/review/anytime.md")
    arguments = parser.parse_args()
    each = arguments.studies // len(KINDS)
    jobs = [(kind, number) for kind in KINDS for number in range(each)]
    if arguments.processes == 1:
        found = [study(*job) for job in jobs]
    else:
        with get_context("spawn").Pool(arguments.processes) as pool:
            found = pool.starmap(study, jobs, chunksize=10)
    rows = np.array(found).reshape(len(KINDS), each, -1)  # (kinds, studies, numbers)
    widths, forecasts = [], []
    for kind, part in zip(KINDS, rows, strict=True):
        covered, peeked = 1 - part[:, 0].mean(), 1 - np.nanmean(part[:, 3])
        width_100, width_300, fixed_100, fixed_300 = 100 * np.nanmean(part[:, [1, 2, 4, 5]], 0)
        widths.append(
            f"| {kind} | {covered:.1%} | {peeked:.0%} | {width_100:.1f} | {fixed_100:.1f} "
            f"| {width_300:.1f} | {fixed_300:.1f} |"
        )
        forecasts += forecast_lines(kind, part[np.isfinite(part[:, 3])])
    n, missed = rows.shape[0] * rows.shape[1], rows[..., 0].sum()
    text = f"""# Reviews that are watched and stopped at will

`python bench/benchmarks/anytime.py --studies {arguments.studies}`: {n:,} simulated studies of 40 people with 500 labels
each, {each:,} of each kind of model (as in [checked_rate.md](checked_rate.md)); up to {ITEMS} labels are reviewed.

**The truth is inside the interval at every look in {1 - missed / n:.1%} of the studies** (`anytime_lower`,
`anytime_upper`; at least 95 % is promised). *fixed, watched*: the same for the interval of a size fixed beforehand,
looked at after every tenth item, in one of {EVERY} studies. Widths are in points, after 100 and after {ITEMS} items.

| model | watched: covers | fixed, watched: covers | width 100 | fixed | width {ITEMS} | fixed |
|---|--:|--:|--:|--:|--:|--:|
{chr(10).join(widths)}

## Forecasts

Further items that `remaining_rate` forecasts after {FIRST} items until the bound on what is still wrong is reached, and
further items that were needed, up to all {40 * 500:,} labels; medians over one of {EVERY} studies, of those in which it
is not reached yet. *Within 2*: forecasts between half and twice what was needed. *In range*: what was needed lies
within the range that is given with the forecast (80 % is meant). An earlier record had cut what was needed at 270
items, so that forecasts seemed far too long.

| model | bound | studies | truly wrong | forecast | needed | within 2 | shorter | longer | in range |
|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|
{chr(10).join(forecasts)}
"""
    Path(arguments.out).write_text(text)


def forecast_lines(kind: str, part: np.ndarray) -> list[str]:
    """How forecasts compare with what was needed."""
    lines = []
    for index, target in enumerate(TARGETS):
        forecast, low, high, needed = part[:, 6 + 4 * index : 10 + 4 * index][part[:, 9 + 4 * index] > 0].T
        ratio = (forecast + FIRST) / (needed + FIRST)
        shares = ((ratio >= 0.5) & (ratio <= 2), ratio < 0.5, ratio > 2, (low <= needed) & (needed <= high))
        told = " | ".join(f"{np.mean(each):.0%}" if len(ratio) else "" for each in shares)
        medians = " | ".join(f"{np.median(each):,.0f}" if len(ratio) else "" for each in (forecast, needed))
        lines.append(f"| {kind} | {target:.0%} | {len(ratio)} | {part[:, -1].mean():.1%} | {medians} | {told} |")
    return lines


def study(kind: str, number: int) -> tuple[float, ...]:
    """Whether the watched interval missed, its widths; the same of the fixed one, if it was looked at; forecasts."""
    torch.set_num_threads(1)
    rng = np.random.default_rng((SEED, list(KINDS).index(kind), number))
    p, wrong = KINDS[kind](rng)
    truth, sample = wrong.mean(), review_sample(p, ITEMS if number % EVERY else p.size, random_state=rng)
    answers, whole = wrong[sample.index], sample
    sample = sample.first(ITEMS)
    last = lt.checked_rate(p, sample, answers[:ITEMS]).overall
    missed = not last.anytime_lower <= truth <= last.anytime_upper
    if number % EVERY:
        return (missed, np.nan, last.anytime_upper - last.anytime_lower, *(np.nan,) * (3 + 4 * len(TARGETS)), truth)
    looks = {n: lt.checked_rate(p, sample.first(n), answers[:n]).overall for n in range(20, ITEMS + 1, 10)}
    peeked = any(not look.lower <= truth <= look.upper for look in looks.values())
    widths = [look.upper - look.lower for look in (looks[100], last)]
    watched = [each.anytime_upper - each.anytime_lower for each in (looks[100], last)]
    first, forecasts = remaining_rate(p, sample.first(FIRST), answers[:FIRST]), []
    sizes = np.unique(np.append(np.arange(FIRST, 100), np.geomspace(100, p.size, LOOKS).astype(int))).tolist()

    def bound(n: int) -> float:
        review = read_review(p, whole.first(n), answers[:n])
        limit = upper_limit(effective_count(estimate_rate(review), review, 0.9), 0.95)
        return limit - float(answers[:n].mean()) * n / p.size if n < p.size else 0.0

    for target in TARGETS:
        position = bisect_left(sizes, True, key=lambda n, target=target: bound(n) <= target)
        forecast = first.forecast(target)
        forecasts += [*(forecast[key] for key in ("items", "low", "high")), sizes[position] - FIRST]
    return (missed, *watched, peeked, *widths, *forecasts, truth)


if __name__ == "__main__":
    main()
