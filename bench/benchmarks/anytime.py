"""Reviews that are stopped at will: how often the interval that may be watched misses the truth, and how wide it is.

    python bench/benchmarks/anytime.py --studies 10000 --out bench/results/review/anytime.md

The studies are those of checked_rate.py: 40 people with 500 labels each, eight kinds of models. Up to 300 labels are
reviewed, and somebody looks after every item. The worst stopping rule ends at the first look whose interval misses the
truth. Intervals of a confidence sequence are nested, so it misses at some look if it misses at the last. The interval
for a size that was fixed beforehand is looked at after every tenth item of every tenth study, for comparison.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import labeltide as lt
from checked_rate import KINDS
from labeltide.inference.review import remaining_rate

ITEMS, SEED, FIRST = 300, 72_000, 30
TARGET = 0.1  # of the bound on what is still wrong, forecast after FIRST items


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=10_000)
    parser.add_argument("--out", default="bench/results/review/anytime.md")
    arguments = parser.parse_args()
    each = arguments.studies // len(KINDS)
    lines, missed = [], 0
    for kind in KINDS:
        rows = np.array([study(kind, number) for number in range(each)])
        missed += int(rows[:, 0].sum())
        covered, width_100, width_300, peeked, fixed_100, fixed_300 = (
            1 - rows[:, 0].mean(),
            *np.nanmean(rows[:, 1:3], 0),
            1 - np.nanmean(rows[:, 3]),
            *np.nanmean(rows[:, 4:6], 0),
        )
        forecast, needed = np.nanmedian(rows[:, 6]), np.nanmedian(rows[:, 7])
        lines.append(
            f"| {kind} | {covered:.1%} | {peeked:.0%} | {100 * width_100:.1f} | {100 * fixed_100:.1f} "
            f"| {100 * width_300:.1f} | {100 * fixed_300:.1f} | {forecast:.0f} | {needed:.0f} |"
        )
        print(lines[-1], flush=True)
    n = each * len(KINDS)
    text = f"""# Reviews that are watched and stopped at will

`python bench/benchmarks/anytime.py --studies {arguments.studies}`: {n:,} simulated studies of 40 people with 500 labels
each, {each:,} of each kind of model (as in [checked_rate.md](checked_rate.md)); up to {ITEMS} labels are reviewed.

**The truth is inside the interval at every look in {1 - missed / n:.1%} of the studies** (`anytime_lower`,
`anytime_upper`; at least 95 % is promised). *fixed, watched*: the same for the interval of a size fixed beforehand,
looked at after every tenth item, in a tenth of the studies. Widths are in points, after 100 and after {ITEMS} items.

*forecast*: further items that `remaining_rate` forecasts after {FIRST} items for a bound of {TARGET:.0%};
*needed*: further items that were needed. Medians over a tenth of the studies; {ITEMS - FIRST} where more were needed.

| model | watched: covers | fixed, watched: covers | width 100 | fixed | width {ITEMS} | fixed | forecast | needed |
|---|--:|--:|--:|--:|--:|--:|--:|--:|
"""
    Path(arguments.out).write_text(text + "\n".join(lines) + "\n")


def study(kind: str, number: int) -> tuple[float, ...]:
    """Whether the watched interval missed, its widths; the same of the fixed one, if it was looked at; forecasts."""
    rng = np.random.default_rng((SEED, list(KINDS).index(kind), number))
    p, wrong = KINDS[kind](rng)
    truth, sample = wrong.mean(), lt.review_sample(p, ITEMS, random_state=rng)
    answers = wrong[sample.index]
    last = lt.checked_rate(p, sample, answers).overall
    missed = not last.anytime_lower <= truth <= last.anytime_upper
    nothing = (np.nan,) * 5
    if number % 10:
        return (missed, np.nan, last.anytime_upper - last.anytime_lower, *nothing)
    looks = {n: lt.checked_rate(p, sample.first(n), answers[:n]).overall for n in range(20, ITEMS + 1, 10)}
    peeked = any(not look.lower <= truth <= look.upper for look in looks.values())
    widths = [look.upper - look.lower for look in (looks[100], last)]
    bounds = {n: remaining_rate(p, sample.first(n), answers[:n]) for n in range(FIRST, ITEMS + 1, 10)}
    forecast = bounds[FIRST].items_needed(TARGET)
    needed = next((n - FIRST for n, each in bounds.items() if each.bound <= TARGET), ITEMS - FIRST)
    watched = [each.anytime_upper - each.anytime_lower for each in (looks[100], last)]
    return (missed, *watched, peeked, *widths, forecast, needed)


if __name__ == "__main__":
    main()
