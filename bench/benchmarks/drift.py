"""Does an annotator change? Size and power of the test of `lt.consensus`, and alarms of `lt.drift_alarm`.

    python bench/benchmarks/drift.py --data DATA      # or LABELTIDE_DATA=DATA

Test: studies of 60 sequences of 20 steps and four annotators with 5 to 30 % of errors; the clock runs from 0 to 1 over
sequences, in an order of their own for each, as hours worked do. Nobody changes, the error rate of another rises by 20
points, or that of the first annotator by 5, 10 or 20 points. Alarm: projects of 200 sessions of 100 labels with 10 % of
errors, without a change or with one of 5, 10 or 20 points after session 100; the wealth is looked at after every
session. SALAMI: dates of submission are the clock. Writes bench/results/annotators/drift.md.
"""

from __future__ import annotations

import argparse
import os
from datetime import date
from pathlib import Path

import numpy as np

import labeltide as lt

N, STEPS, ERRORS = 60, 20, np.array([0.1, 0.05, 0.2, 0.3])
SESSIONS, LABELS, BASE, ALARM = 200, 100, 0.1, 20
USUAL = 10  # sections of songs
RESULT = Path(__file__).parents[1] / "results" / "annotators" / "drift.md"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.environ.get("LABELTIDE_DATA"), help="folder of the data sets")
    parser.add_argument("--studies", type=int, default=100)
    parser.add_argument("--projects", type=int, default=1000)
    arguments = parser.parse_args()
    if arguments.data is None:
        parser.error("Say where the data sets are: --data FOLDER, or LABELTIDE_DATA.")
    lines = ["# Does an annotator change?", "", f"`python bench/benchmarks/drift.py`, {date.today().isoformat()}."]
    lines += ["", *alarms(arguments.projects), "", *tests(arguments.studies), "", *songs_by_date(Path(arguments.data))]
    RESULT.write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


def alarms(projects: int) -> list[str]:
    """How often and how late the wealth of `drift_alarm` reaches 20."""
    lines = [f"## Alarms while sessions come in, {projects:,} projects", ""]
    lines += [f"{SESSIONS} sessions of {LABELS} labels; the change comes after session {SESSIONS // 2}.", ""]
    lines += ["| change of the error rate | alarms | before the change | median delay, sessions |", "|---|--:|--:|--:|"]
    for change in (0.0, 0.05, 0.1, 0.2):
        rng, firsts = np.random.default_rng(int(1000 * change)), []
        for number in range(projects):
            rates = np.where(np.arange(SESSIONS) < SESSIONS // 2, BASE, BASE + change)
            wealth = lt.drift_alarm(rng.binomial(LABELS, rates) / LABELS, random_state=number)
            reached = np.flatnonzero(wealth >= ALARM)
            firsts.append(reached[0] if len(reached) else np.inf)
        first = np.array(firsts)
        late = first[first >= SESSIONS // 2] - SESSIONS // 2 + 1
        median = np.median(late) if change else np.inf
        delay = "" if not change else f"{median:.0f}" if np.isfinite(median) else "none within the project"
        before = "" if not change else f"{100 * (first < SESSIONS // 2).mean():.1f} %"
        name = f"{100 * change:.0f} points" if change else "none"
        lines.append(f"| {name} | {100 * np.isfinite(first).mean():.1f} % | {before} | {delay} |")
    return lines


def tests(studies: int) -> list[str]:
    """Rejection rates at 5 %, of each annotator."""
    lines = [f"## The test of a change, {studies} studies of each kind", ""]
    lines += ["Share of p-values below 5 %, and how often the 95 % interval of the change holds the true change.", ""]
    lines += ["| who changes | first annotator | the others | interval holds: first | the others |"]
    lines += ["|---|--:|--:|--:|--:|"]
    kinds = {"nobody": np.zeros(4), "the last, by 20 points": np.array([0, 0, 0, 0.2])}
    kinds |= {f"the first, by {c} points": np.array([c / 100, 0, 0, 0]) for c in (5, 10, 20)}
    for name, change in kinds.items():
        found, holds = [], []
        for number in range(studies):
            rng = np.random.default_rng([number, int(100 * change.sum()), int(change[3] > 0)])
            made = lt.make_sequences(n=N, n_steps=STEPS, n_features=1, n_classes=3, stay=0.9, random_state=number)
            truth = made.clean_labels.reshape(N, STEPS)
            worked = np.stack([rng.permutation(N) / (N - 1) for _ in ERRORS], -1)  # (sequences, annotators)
            rate = (ERRORS + change * (worked - 0.5))[:, None]
            wrong = rng.random((N, STEPS, 4)) < rate
            y = np.where(wrong, (truth[..., None] + rng.integers(1, 3, wrong.shape)) % 3, truth[..., None])
            drift = lt.consensus(y, clock=np.broadcast_to(worked[:, None], y.shape)).drift
            found.append(drift[:, 3] < 0.05)
            holds.append((drift[:, 1] <= change) & (change <= drift[:, 2]))
        rates, held = np.mean(found, 0), np.mean(holds, 0)
        steady = [k for k in range(1, 4) if not change[k]]
        cells = [rates[0], rates[steady].mean(), held[0], held[1:].mean()]
        lines.append(f"| {name} | " + " | ".join(f"{100 * cell:.1f} %" for cell in cells) + " |")
    return lines


def songs_by_date(data: Path) -> list[str]:
    """Who of SALAMI's annotators changed over the months."""
    from compare import songs

    labels, lengths, people, days = songs(data, every=4.0, usual=USUAL)
    dated = np.isfinite(days[np.arange(len(labels))]).sum(1) == 2
    labels, lengths, days = labels[dated], lengths[dated], days[dated]
    result = lt.consensus(labels, clock=np.broadcast_to(days[:, None], labels.shape).copy(), lengths=lengths)
    lines = [f"## SALAMI: {len(labels)} songs that two people divided into sections, clock: days", ""]
    lines += [f"Steps of 4 seconds, {USUAL} usual sections and all others. Chosen: {result.chosen._asdict()}.", ""]
    lines += [
        "| annotator | songs | first to last day | error rate: change in points (95 %) | p |",
        "|---|--:|--:|--:|--:|",
    ]
    for number, (person, drift) in enumerate(zip(people, result.drift, strict=True)):
        own = days[np.isfinite(days[:, number]) & (labels[..., number] >= 0).any(1), number]
        if len(own) and np.isfinite(drift).all():
            change, lower, upper = 100 * drift[:3]
            span = f"{own.min():.0f} to {own.max():.0f}"
            lines.append(
                f"| {person} | {len(own)} | {span} | {change:+.1f} ({lower:+.1f} to {upper:+.1f}) | {drift[3]:.3f} |"
            )
    return lines


if __name__ == "__main__":
    main()
