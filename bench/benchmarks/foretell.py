"""Should annotators be judged by likelihood, or by how well they foretell each other? Simulations with known truth.

    python bench/benchmarks/foretell.py          # writes results/annotators/foretell.jsonl and foretell.md

Five annotators, labels only, chains with and without errors in bursts. Each is judged on sequences left out by both
measures; what the one chosen takes for the truth is held against the truth. Nothing was tuned on these draws, but
scenarios of the same kinds (other draws) led to the choice of foretelling.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from labeltide.chain.annotators import FIRST, ITERATIONS, LAST_ITERATIONS, _fit, _members, _start
from labeltide.chain.data import ChainData
from labeltide.chain.foretell import judge_rows
from labeltide.chain.passes import expect
from labeltide.chain.start import BURSTS_WORTH

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
    found = np.empty((N, STEPS), dtype=bool)
    found[:, 0] = generator.random(N) < share
    for step in range(1, STEPS):
        chance = generator.random(N)
        found[:, step] = np.where(found[:, step - 1], chance >= ends, chance < begins)
    return found


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
    found: dict[str, Any] = {}
    for bursts in (False, True):
        one = FIRST._replace(bursts=bursts)
        members = _members((~left_out).float())
        fitted = _fit(data, members, start, [one] * FOLDS, GRID, None, ITERATIONS)
        foretold = judge_rows(data, members, fitted.parameters, fitted.log_likelihood, left_out)
        every = _members(torch.ones(1, N))
        whole = _fit(data, every, start, [one], GRID, None, LAST_ITERATIONS).parameters
        posterior = expect(data, every, whole, posterior=True).posterior
        assert posterior is not None
        found["bursts" if bursts else "no bursts"] = {
            "likelihood": round(float((fitted.log_likelihood * left_out).sum()), 1),
            "foretelling": round(float((foretold * left_out).sum()), 1),
            "wrong": wrong_share(posterior[0].argmax(-1).numpy(), truth),
        }
    return found


def votes(recorded: np.ndarray) -> np.ndarray:
    return (recorded[..., None] == np.arange(3)).sum(-2).argmax(-1)


def wrong_share(labels: np.ndarray, truth: np.ndarray) -> float:
    return round(float((labels != truth).mean()), 4)


def write_page(found: list[dict[str, Any]]) -> str:
    lines = [
        "# By what annotators are judged",
        "",
        "`python bench/benchmarks/foretell.py`. " + (__doc__ or "").split("\n\n")[2],
    ]
    lines[-1] = lines[-1].replace("\n", " ").strip()
    lines += ["", "| mistakes come | chosen by likelihood | wrong | chosen by foretelling | wrong | majority wrong |"]
    lines.append("|---|---|--:|---|--:|--:|")
    for scenario in SCENARIOS:
        own = [record for record in found if record["scenario"] == scenario]
        cells = []
        for measure in ("likelihood", "foretelling"):
            gains = [record["bursts"][measure] - record["no bursts"][measure] for record in own]
            picks = ["bursts" if gain > BURSTS_WORTH else "no bursts" for gain in gains]
            wrong = np.mean([record[pick]["wrong"] for record, pick in zip(own, picks, strict=True)])
            cells += [f"bursts in {picks.count('bursts')} of {len(own)}", f"{100 * wrong:.1f} %"]
        majority = np.mean([record["majority"] for record in own])
        lines.append(f"| {scenario} | {' | '.join(cells)} | {100 * majority:.1f} % |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    found = list(records())
    (RESULTS / "foretell.jsonl").write_text("".join(json.dumps(record) + "\n" for record in found))
    (RESULTS / "foretell.md").write_text(write_page(found))
    print(write_page(found))
