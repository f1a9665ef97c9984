"""Active relabelling: error of Q(t) after planned re-annotation, compared with random re-annotation.

    python bench/benchmarks/review_plan.py --out bench/results/flags

Two kinds of simulated studies: a class that is rare and occurs in a fifth of the sequences, and two classes alike. Q(t)
is fitted by the hidden Markov model from labels alone, before and after 10 of 100 sequences, or 150 of 3,000 steps, are
re-annotated. Writes plan.jsonl and plan.md. The numbers are deterministic.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import torch

import labeltide as lt
from labeltide.chain.em import label_chain
from labeltide.chain.passes import ChainData, Members, expect
from labeltide.inference.audit import plan_review

N, STEPS, SEQUENCES, SINGLE = 100, 30, 10, 150
GRID = np.linspace(0, 1, STEPS)
STUDIES = {"rare class": 0.2, "classes alike": 1.0}  # the share of sequences in which the second class lives
WAYS = ("before", "planned sequences", "random sequences", "planned steps", "random steps")
Chosen = tuple[np.ndarray, np.ndarray | None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="bench/results/flags", help="folder for the records")
    parser.add_argument("--studies", type=int, default=120)
    parser.add_argument("--draws", type=int, default=3, help="random choices to average over")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    out = Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    records = [
        {"study": name, "seed": seed, "errors": measure(share, seed, arguments.draws)}
        for name, share in STUDIES.items()
        for seed in range(arguments.studies)
    ]
    (out / "plan.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    (out / "plan.md").write_text(page(records))


def measure(share: float, seed: int, draws: int) -> dict[str, list[float]]:
    """The mean absolute error of each row of Q, after nothing, planned and random answers."""
    rng = np.random.default_rng(seed)
    clean = lt.make_sequences(N, STEPS, 1, stay=0.9, random_state=seed).clean_labels
    assert clean is not None
    clean[rng.random(N) > share] = 0
    noise = lt.make_noise("growth", 2, STEPS, rate=0.3)
    recorded, true = lt.corrupt(clean, noise, random_state=seed), np.asarray(noise)
    first, posterior = learn(recorded, None)

    def error(matrices: np.ndarray) -> np.ndarray:
        return np.abs(matrices - true).mean((0, 2))

    def after(chosen: Chosen) -> np.ndarray:
        trusted = np.full(clean.shape, -1)
        where = chosen[0] if chosen[1] is None else chosen
        trusted[where] = clean[where]
        return error(learn(recorded, trusted)[0])

    def plan(k: int, by: str) -> Chosen:
        review = plan_review(recorded[..., None], np.ones(clean.shape, bool), np.tile(GRID, (N, 1)), posterior, k, by)
        return review.rows, review.steps

    rows = [(rng.permutation(N)[:SEQUENCES], None) for _ in range(draws)]
    steps = [np.unravel_index(rng.permutation(clean.size)[:SINGLE], clean.shape) for _ in range(draws)]
    errors = [
        error(first),
        after(plan(SEQUENCES, "sequence")),
        np.mean([after(choice) for choice in rows], 0),
        after(plan(SINGLE, "step")),
        np.mean([after(choice) for choice in steps], 0),
    ]
    return {way: np.round(value, 5).tolist() for way, value in zip(WAYS, errors, strict=True)}


def learn(recorded: np.ndarray, trusted: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Q(t) and the posterior of the true labels from recorded ones alone."""
    data = ChainData(
        labels=torch.from_numpy(recorded.astype(np.int8))[None, ..., None],
        mask=torch.ones(recorded.shape, dtype=torch.bool),
        points=None,
        n_points=STEPS,
        n_classes=2,
        trusted=None if trusted is None else torch.from_numpy(trusted.astype(np.int8)),
    )
    zero = torch.zeros(1, dtype=torch.int64)
    members = Members(zero, zero, torch.ones(1, len(recorded)))
    chain = label_chain(data, members, GRID)
    posterior = expect(data, members, chain, posterior=True).posterior
    assert posterior is not None
    return chain.matrices[0, 0].double().numpy(), posterior[0].double().numpy()


def page(records: list[dict]) -> str:
    head = ["study", "row of Q", *WAYS, "sequences: planned less random", "steps: planned less random"]
    lines = [head, ["---"] * len(head)]
    for name in STUDIES:
        errors = {way: np.array([r["errors"][way] for r in records if r["study"] == name]) for way in WAYS}
        for row in (0, 1):
            ahead = [
                errors[f"planned {what}"][:, row] - errors[f"random {what}"][:, row] for what in ("sequences", "steps")
            ]
            lines.append(
                [name, str(row)]
                + [f"{errors[way][:, row].mean():.4f}" for way in WAYS]
                + [
                    f"{difference.mean():+.4f} ± {difference.std(ddof=1) / len(difference) ** 0.5:.4f}"
                    for difference in ahead
                ]
            )
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    count = len(records) // len(STUDIES)
    return (
        "# What to re-annotate first\n\n"
        f"`python bench/benchmarks/review_plan.py`: mean absolute error of Q(t) over {count} simulated studies of {N} "
        f"sequences of {STEPS} steps, noise that grows, 30 % of labels wrong; before and after {SEQUENCES} "
        f"sequences or {SINGLE} steps are re-annotated. Row 1 is the class that is rare in the "
        "first study. ± is one standard error.\n\n"
        f"{table}\n"
    )


if __name__ == "__main__":
    main()
