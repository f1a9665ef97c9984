"""Is a model as good as one more expert? Each expert is replaced by the model, and non-inferiority is tested.

    python bench/benchmarks/model_as_expert.py --data DATA      # or LABELTIDE_DATA=DATA

The agreement of an expert with the others is compared with the agreement of the model with the same others, and the
differences are averaged over experts. Recordings and experts are resampled (2,000 times), because both are samples: a
model is as good as one more expert where the lower end of the one-sided 95 % interval is above minus the margin, here
two points of agreement. Dreem: six automatic stagers and five scorers; the stagers learned from the scorers' consensus
on other nights, which favours them. Helsinki: three experts and no model; each expert stands for one, against the two
others, to show what the test says of people. A check of size comes first: simulated models that are worse than the
experts by just the margin. Writes bench/results/annotators/model_as_expert.md.
"""

from __future__ import annotations

import argparse
import os
from datetime import date
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow.parquet as pq

MARGIN, DRAWS = 0.02, 2_000
EVERY = 10  # seconds between the steps taken of the neonates' recordings
RESULT = Path(__file__).parents[1] / "results" / "annotators" / "model_as_expert.md"


class AgreementGain(NamedTuple):
    """Mean difference of the agreement, model less expert, and the lower end of its one-sided 95 % interval."""

    difference: float
    lower: float

    def is_as_good(self, margin: float = MARGIN) -> bool:
        return self.lower > -margin


def replace_experts(model: np.ndarray, experts: np.ndarray, recording: np.ndarray, seed: int = 0) -> AgreementGain:
    """Replace each expert by the model: codes (steps,) and (steps, experts), -1 for none; recordings (steps,)."""
    units, unit = np.unique(recording, return_inverse=True)
    n_units, n_experts = len(units), experts.shape[1]
    same, both = np.zeros((2, n_units, n_experts)), np.zeros((n_units, n_experts))
    for expert in range(n_experts):
        for other in set(range(n_experts)) - {expert}:
            there = (model >= 0) & (experts[:, expert] >= 0) & (experts[:, other] >= 0)
            both[:, expert] += np.bincount(unit, there, n_units)
            for row, labels in enumerate((model, experts[:, expert])):
                same[row, :, expert] += np.bincount(unit, there & (labels == experts[:, other]), n_units)
    gain = same[0] - same[1]  # (recordings, experts)
    rng = np.random.default_rng(seed)
    counts = rng.multinomial(n_units, np.full(n_units, 1 / n_units), DRAWS)
    of_experts = (counts @ gain) / (counts @ both)  # (draws, experts)
    chosen = rng.integers(0, n_experts, (DRAWS, n_experts))
    drawn = np.take_along_axis(of_experts, chosen, 1).mean(1)
    whole = (gain.sum(0) / both.sum(0)).mean()
    spread = drawn.std(ddof=1) * np.sqrt(n_experts / (n_experts - 1) if n_experts > 1 else 1)
    return AgreementGain(float(whole), float(whole - 1.645 * spread))


def simulate(worse: float, studies: int) -> float:
    """How often a model whose agreement is lower than an expert's by `worse`, on average, passes."""
    passed = 0
    for number in range(studies):
        rng = np.random.default_rng([number, int(1000 * (worse + 1))])
        truth, recording = rng.integers(0, 3, 8_000), np.repeat(np.arange(40), 200)
        # Experts differ in skill, and recordings in difficulty. Agreement of two falls with the errors of each.
        skill, hard = rng.normal(0.15, 0.02, 5).clip(0.02), rng.normal(0, 0.04, 40)[recording]
        rates = (skill + hard[:, None]).clip(0.01, 0.6)

        def record(rate: np.ndarray, rng: np.random.Generator = rng, truth: np.ndarray = truth) -> np.ndarray:
            wrong = rng.random(rate.shape) < rate
            shown = truth[:, None] if rate.ndim == 2 else truth
            return np.where(wrong, (shown + rng.integers(1, 3, rate.shape)) % 3, shown)

        slope = 1 - 0.15 - 0.15 / 2  # of the agreement with another expert, by the rate of errors
        model = record((0.15 + worse / slope + hard).clip(0.01, 0.6))
        passed += replace_experts(model, record(rates), recording, number).is_as_good()
    return passed / studies


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.environ.get("LABELTIDE_DATA"), help="folder of the data sets")
    parser.add_argument("--studies", type=int, default=300)
    arguments = parser.parse_args()
    if arguments.data is None:
        parser.error("Say where the data sets are: --data FOLDER, or LABELTIDE_DATA.")
    lines = ["# Is the model as good as one more expert?", ""]
    lines += [f"`python bench/benchmarks/model_as_expert.py`, {date.today().isoformat()}. Margin: {MARGIN:.0%}.", ""]
    lines += [
        f"Simulations ({arguments.studies} each, five experts, 40 recordings): how often a model passes.",
        "",
    ]
    lines += ["| agreement of the model, against an expert's | found to be as good |", "|---|--:|"]
    for worse in (MARGIN, 0.01, 0.0, -0.02):
        lines.append(f"| {-100 * worse:+.0f} points | {100 * simulate(worse, arguments.studies):.1f} % |")
    table = pq.read_table(Path(arguments.data) / "dod_scorers" / "dod_hypnograms.parquet")
    columns = {name: table[name].to_numpy() for name in table.column_names}
    inside = columns["in_scored_window"].astype(bool)
    lines += [
        "",
        "Agreement of each automatic stager in the place of a scorer, less that of the scorer, in points:",
        "",
    ]
    lines += ["| nights | stager | difference | lower end | as good as one more scorer |", "|---|---|--:|--:|---|"]
    for part in ("dodh", "dodo"):
        rows = inside & (columns["dataset"] == part)
        experts = np.stack([columns[f"scorer_{k}"][rows] for k in range(1, 6)], 1)
        for name in (name for name in columns if name.startswith("auto_")):
            found = replace_experts(columns[name][rows], experts, columns["record"][rows])
            answer = "yes" if found.is_as_good() else "not shown"
            cells = f"{100 * found.difference:+.1f} | {100 * found.lower:+.1f} | {answer}"
            lines.append(f"| {part.upper()} | {name.removeprefix('auto_')} | {cells} |")
    lines += [
        "",
        "Neonatal seizures (Helsinki, 79 recordings, one step every ten seconds): each expert in place of a model",
    ]
    lines += ["against the two others, in points of agreement:", ""]
    lines += ["| expert | difference | lower end | as good as one more expert |", "|---|--:|--:|---|"]
    table = pq.read_table(Path(arguments.data) / "neonatal_seizure" / "annotations_1s.parquet")
    columns = {name: table[name].to_numpy() for name in table.column_names}
    recording = columns["record"]
    steps = np.concatenate([np.flatnonzero(recording == name)[::EVERY] for name in np.unique(recording)])
    experts = np.stack([columns[f"expert_{name}"][steps] for name in "ABC"], 1)
    for index, name in enumerate("ABC"):
        found = replace_experts(experts[:, index], np.delete(experts, index, 1), recording[steps])
        answer = "yes" if found.is_as_good() else "not shown"
        lines.append(f"| {name} | {100 * found.difference:+.1f} | {100 * found.lower:+.1f} | {answer} |")
    RESULT.write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
