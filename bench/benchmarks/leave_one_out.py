"""Selection of annotator models by likelihood or by leave-one-annotator-out prediction, in simulations.

    python bench/benchmarks/leave_one_out.py      # writes bench/results/annotators/leave_one_out.jsonl and .md

Five annotators, labels only, hidden Markov models with and without errors in bursts. Each model is scored on held-out
sequences by both criteria; the posterior labels of the selected model are compared with the truth. Nothing was tuned on
these draws, but other draws of the same scenarios led to the choice of leave-one-out prediction.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from labeltide.chain.annotators import CANDIDATE_ITERATIONS, FINAL_ITERATIONS, FIRST_CANDIDATE, _fit, _start
from labeltide.chain.data import ChainData, same_data
from labeltide.chain.em import BURSTS_WORTH
from labeltide.chain.passes import expect, predictive_log_likelihood

RESULTS = Path(__file__).parents[1] / "results" / "annotators"
N, STEPS, FOLDS, DRAWS = 120, 40, 3, 5
GRID = np.linspace(0, 1, STEPS)
RATES = (0.1, 0.15, 0.2, 0.1, 0.15)
BORDERS = np.array([-0.7, 0.7])


def wander(generator: np.random.Generator, keep: float) -> np.ndarray:
    """Numbers of unit variance that change slowly over the steps."""
    values = generator.standard_normal((N, STEPS))
    for step in range(1, STEPS):
        values[:, step] = keep * values[:, step - 1] + np.sqrt(1 - keep**2) * values[:, step]
    return values


def runs(generator: np.random.Generator, share: float, length: float) -> np.ndarray:
    """Stretches of a mean length that take a share of all steps."""
    ends, begins = 1 / length, share / (1 - share) / length
    inside = np.empty((N, STEPS), dtype=bool)
    inside[:, 0] = generator.random(N) < share
    for step in range(1, STEPS):
        chance = generator.random(N)
        inside[:, step] = np.where(inside[:, step - 1], chance >= ends, chance < begins)
    return inside


def mistakes(wrong: Callable[[np.random.Generator, np.ndarray, float], np.ndarray]) -> Any:
    """Three classes that persist; what is wrong is mostly taken for the next class."""

    def draw(generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        truth = np.cumsum((generator.random((N, STEPS)) < 0.1) * generator.integers(0, 3, (N, STEPS)), 1) % 3
        hard = runs(generator, 0.2, 5)
        recorded = []
        for rate in RATES:
            other = (truth + np.where(generator.random((N, STEPS)) < 0.8, 1, 2)) % 3
            recorded.append(np.where(wrong(generator, hard, rate), other, truth))
        return truth, np.stack(recorded, -1)

    return draw


def between(own: float, keep: float) -> Any:
    """Three classes along one scale; annotators see it each with a deviation of their own, and part at the borders."""

    def draw(generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        depth = wander(generator, 0.95)
        seen = [depth + own * wander(generator, keep) + 0.3 * generator.standard_normal() for _ in RATES]
        return (depth[..., None] > BORDERS).sum(-1), np.stack([(x[..., None] > BORDERS).sum(-1) for x in seen], -1)

    return draw


SCENARIOS = {
    "one by one": mistakes(lambda g, hard, rate: g.random((N, STEPS)) < rate),
    "in runs, each on their own": mistakes(lambda g, hard, rate: runs(g, rate, 5)),
    "together on hard steps": mistakes(lambda g, hard, rate: g.random((N, STEPS)) < np.where(hard, 0.5, rate / 2)),
    "between classes, slowly": between(0.4, 0.9),
    "between classes, quickly": between(0.6, 0.5),
}


def records() -> Iterator[dict[str, Any]]:
    for number, (scenario, draw) in enumerate(SCENARIOS.items()):
        for seed in range(DRAWS):
            truth, recorded = draw(np.random.default_rng([seed, number, 99]))
            yield {"scenario": scenario, "draw": seed, "majority": wrong_share(votes(recorded), truth)} | compare(
                recorded, truth
            )


def compare(recorded: np.ndarray, truth: np.ndarray) -> dict[str, Any]:
    """How both measures judge chains with bursts and without, and how often each is wrong about the truth."""
    mask = torch.ones(N, STEPS, dtype=torch.bool)
    data = ChainData(torch.tensor(recorded.astype(np.int8))[None], mask, None, STEPS, 3)
    start = _start(data, GRID, None)
    left_out = torch.arange(N) % FOLDS == torch.arange(FOLDS)[:, None]
    result: dict[str, Any] = {}
    for bursts in (False, True):
        candidate = FIRST_CANDIDATE._replace(bursts=bursts)
        members = same_data((~left_out).float())
        fitted = _fit(data, members, start, [candidate] * FOLDS, GRID, None, CANDIDATE_ITERATIONS)
        predictive = predictive_log_likelihood(data, members, fitted.parameters, fitted.log_likelihood, left_out)
        every = same_data(torch.ones(1, N))
        whole = _fit(data, every, start, [candidate], GRID, None, FINAL_ITERATIONS).parameters
        posterior = expect(data, every, whole, posterior=True).posterior
        assert posterior is not None
        result["bursts" if bursts else "no bursts"] = {
            "likelihood": round(float((fitted.log_likelihood * left_out).sum()), 1),
            "leave-one-out": round(float((predictive * left_out).sum()), 1),
            "wrong": wrong_share(posterior[0].argmax(-1).numpy(), truth),
        }
    return result


def votes(recorded: np.ndarray) -> np.ndarray:
    return (recorded[..., None] == np.arange(3)).sum(-2).argmax(-1)


def wrong_share(labels: np.ndarray, truth: np.ndarray) -> float:
    return round(float((labels != truth).mean()), 4)


def write_page(records: list[dict[str, Any]]) -> str:
    lines = [
        "# Selection criteria of annotator models",
        "",
        "`python bench/benchmarks/leave_one_out.py`. " + (__doc__ or "").split("\n\n")[2],
    ]
    lines[-1] = lines[-1].replace("\n", " ").strip()
    lines += [
        "",
        "| errors | chosen by likelihood | wrong | chosen by leave-one-out prediction | wrong | majority wrong |",
    ]
    lines.append("|---|---|--:|---|--:|--:|")
    for scenario in SCENARIOS:
        draws = [record for record in records if record["scenario"] == scenario]
        cells = []
        for measure in ("likelihood", "leave-one-out"):
            gains = [record["bursts"][measure] - record["no bursts"][measure] for record in draws]
            picks = ["bursts" if gain > BURSTS_WORTH else "no bursts" for gain in gains]
            wrong = np.mean([record[pick]["wrong"] for record, pick in zip(draws, picks, strict=True)])
            cells += [f"bursts in {picks.count('bursts')} of {len(draws)}", f"{100 * wrong:.1f} %"]
        majority = np.mean([record["majority"] for record in draws])
        lines.append(f"| {scenario} | {' | '.join(cells)} | {100 * majority:.1f} % |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    results = list(records())
    (RESULTS / "leave_one_out.jsonl").write_text("".join(json.dumps(record) + "\n" for record in results))
    (RESULTS / "leave_one_out.md").write_text(write_page(results))
    print(write_page(results))
