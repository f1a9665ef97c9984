"""Several annotators: error of each annotator's Q(t) in simulations, and consensus labels of real annotators.

    python bench/benchmarks/annotators.py --data DATA --out bench/results/annotators      # or LABELTIDE_DATA=DATA

Simulation: five annotators of whom two drift; error of each Q_a(t) against the truth, compared with Dawid and Skene
(1979). Helsinki neonates: three experts, labels only. Dreem: five scorers, the consensus of four compared with the
fifth. Gaze: the Q of each coder, fitted with the labels of both. Gaze and Dreem: whose noise changes over the clock, by
`tide` on the labels of one person. Writes people.jsonl, annotators.md and annotators.png. The numbers are deterministic
on the CPU, except seconds. `--parts` runs some parts again and keeps the others. Methods are compared on the labels of
one person by bench/studies/annotators.toml. The order of candidates and the start of EM were looked at on the Dreem
nights used here; nothing else in the library was chosen by these data.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq

import labeltide as lt
from annotators_page import draw_picture, write_page
from annotators_people import alone, coders
from labeltide.chain.annotators import Candidate
from labeltide_bench.dawid_skene import dawid_skene

STEPS, SEQUENCES, FEW = 50, 150, 6
EVERY = 10  # seconds between the steps taken of the neonates' recordings
NIGHTS, STAGES = 12, 5
STATIC = Candidate()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.environ.get("LABELTIDE_DATA"), help="folder of the data sets")
    parser.add_argument("--out", default="bench/results/annotators", help="folder for the records")
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument(
        "--parts", nargs="*", choices=PARTS, default=list(PARTS), help="what to run again; none: the page alone"
    )
    arguments = parser.parse_args()
    if arguments.data is None:
        parser.error("Say where the data sets are: --data FOLDER, or LABELTIDE_DATA.")
    data, out = Path(arguments.data), Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    file = out / "people.jsonl"  # records*.jsonl are those of the study beside it
    kept = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    for name in arguments.parts:
        kept = [record for record in kept if record["study"] not in PARTS[name]]
        for record in PART[name](data, arguments.draws):
            kept.append(record)
            print(record["study"], {key: value for key, value in record.items() if np.isscalar(value)}, flush=True)
            file.write_text("".join(json.dumps(record) + "\n" for record in kept))
    records = [record for study in ORDER for record in kept if record["study"] == study]
    write_page(records, out / "annotators.md")
    draw_picture(records, 1 - rates(), out / "annotators.png")


PARTS = {
    "simulation": ("simulation",),
    "neonates": ("neonates",),
    "sleepers": ("sleepers", "left out"),
    "coders": ("coders",),
    "alone": ("alone",),
}
ORDER = [study for studies in PARTS.values() for study in studies]
PART: dict[str, Callable[[Path, int], Iterator[dict[str, Any]]]] = {
    "simulation": lambda data, draws: simulations(draws),
    "neonates": lambda data, draws: neonates(data),
    "sleepers": lambda data, draws: sleepers(data),
    "coders": lambda data, draws: coders(data),
    "alone": lambda data, draws: alone(data),
}


def rates() -> np.ndarray:
    """How often each simulated annotator errs: three alike at all times, one who tires, one who learns."""
    tires, learns = np.linspace(0.05, 0.45, STEPS), np.linspace(0.4, 0.1, STEPS)
    return np.stack([np.full(STEPS, 0.1), np.full(STEPS, 0.2), np.full(STEPS, 0.15), tires, learns])


def simulations(draws: int) -> Iterator[dict[str, Any]]:
    """One record for each setting and draw."""
    for classes, gaps in ((2, False), (2, True), (3, False)):
        for draw in range(draws):
            yield simulate(classes, gaps, draw)


class Drawn(NamedTuple):
    """Simulated annotators."""

    truth: np.ndarray  # (n, steps)
    labels: np.ndarray  # (n, steps, annotators), -1 where nothing was recorded
    matrices: np.ndarray  # (annotators, steps, classes, classes)


def draw_annotators(
    classes: int, gaps: bool, draw: int, stay: float | None = 0.9, wrong_rates: np.ndarray | None = None
) -> Drawn:
    """Labels of five annotators; wrong labels fall on all other classes alike."""
    wrong_rates = rates() if wrong_rates is None else wrong_rates
    made = lt.make_sequences(n=SEQUENCES, n_steps=STEPS, n_features=2, n_classes=classes, stay=stay, random_state=draw)
    truth = made.labels[..., 0].astype(int)
    rng = np.random.default_rng([draw, classes])
    wrong = rng.random((*truth.shape, 5)) < wrong_rates.T
    y = np.where(wrong, (truth[..., None] + rng.integers(1, classes, wrong.shape)) % classes, truth[..., None])
    if gaps:  # everyone labels a random half of the sequences, the third annotator but a few
        y[np.broadcast_to(rng.random((SEQUENCES, 1, 5)) < 0.5, y.shape)] = -1
        y[FEW:, :, 2] = -1
    eye = np.eye(classes)
    return Drawn(truth, y, eye + wrong_rates[..., None, None] * ((1 - eye) / (classes - 1) - eye))


def simulate(classes: int, gaps: bool, draw: int) -> dict[str, Any]:
    """Errors of each annotator's Q(t), and of the consensus."""
    truth, y, matrices = draw_annotators(classes, gaps, draw)
    started = time.perf_counter()
    ours = lt.consensus(y)
    seconds = time.perf_counter() - started
    static = lt.consensus(y, candidates=[STATIC])
    simple = dawid_skene(y.reshape(-1, 5), classes)
    ways = {
        "own Q(t)": (ours.noise, ours.labels),
        "own Q, static": (static.noise, static.labels),
        "Dawid-Skene": (simple.matrices[:, None], simple.probabilities.argmax(1).reshape(truth.shape)),
    }
    return {
        "study": "simulation",
        "setting": f"{classes} classes{', gaps' if gaps else ''}",
        "draw": draw,
        "chosen": ours.chosen._asdict(),
        "seconds": round(seconds, 1),
        "error": {name: distance(noise, matrices) for name, (noise, _) in ways.items()},
        "wrong": {name: round(float((labels != truth).mean()), 4) for name, (_, labels) in ways.items()},
        "found": ours.noise.diagonal(axis1=2, axis2=3).mean(2).round(4).tolist() if draw == 0 else None,
    }


def distance(noise: np.ndarray, matrices: np.ndarray) -> list[float]:
    """The mean Frobenius distance over the clock, of each annotator; noise may have fewer points than steps."""
    steps = matrices.shape[1]
    noise = noise[:, np.rint(np.linspace(0, noise.shape[1] - 1, steps)).astype(int)]
    return np.sqrt(np.square(noise - matrices).sum((2, 3))).mean(1).round(4).tolist()


def neonates(data: Path) -> Iterator[dict[str, Any]]:
    """Who misses seizures and who sees more, over the recording; whole recordings, one step every ten seconds."""
    table = pq.read_table(data / "neonatal_seizure" / "annotations_1s.parquet")
    columns = {name: table[name].to_numpy() for name in table.column_names}
    experts = np.stack([columns[f"expert_{name}"] for name in "ABC"], 1)
    parts = [experts[columns["record"] == recording][::EVERY] for recording in np.unique(columns["record"])]
    y, lengths = _pad(parts)
    clock = np.arange(y.shape[1]) / (lengths[:, None] - 1)
    clock = np.round(np.minimum(clock, 1), 4)
    started = time.perf_counter()
    consensus = lt.consensus(y, clock=clock, lengths=lengths)
    yield {
        "study": "neonates",
        "recordings": len(parts),
        "steps": int(lengths.sum()),
        "seconds": round(time.perf_counter() - started, 1),
        **_learned(consensus),
        "clock": consensus.clock.tolist(),
        "missed": consensus.noise[:, :, 1, 0].round(4).tolist(),
        "invented": consensus.noise[:, :, 0, 1].round(4).tolist(),
        "common": consensus.common[:, [1, 0], [0, 1]].round(4).tolist(),
        "share": round(float(consensus.probabilities[..., 1].sum() / lengths.sum()), 4),
        "share_of_votes": round(float((y.sum(-1) >= 2).sum() / lengths.sum()), 4),
    }


def sleepers(data: Path) -> Iterator[dict[str, Any]]:
    """All five scorers, then the consensus of four against the fifth, whom it has not seen."""
    table = pq.read_table(data / "dod_scorers" / "dod_hypnograms.parquet", filters=[("dataset", "=", "dodo")])
    columns = {name: table[name].to_numpy() for name in table.column_names}
    inside = columns["in_scored_window"].astype(bool)
    scores = np.stack([columns[f"scorer_{scorer}"] for scorer in range(1, 6)], 1)
    nights = sorted(set(columns["record"]))[:NIGHTS]
    y, lengths = _pad([scores[(columns["record"] == night) & inside] for night in nights])
    hours = np.arange(y.shape[1]) / 120
    started = time.perf_counter()
    consensus = lt.consensus(y, clock=hours, lengths=lengths)
    yield {
        "study": "sleepers",
        "nights": NIGHTS,
        "steps": int(lengths.sum()),
        "seconds": round(time.perf_counter() - started, 1),
        **_learned(consensus),
        "right": consensus.noise.diagonal(axis1=2, axis2=3).mean(1).round(4).tolist(),
        "like_majority": round(float((consensus.labels == _votes(y).argmax(-1))[y[..., 0] >= 0].mean()), 4),
    }
    for scorer in range(5):
        yield _leave_out(y, lengths, hours, scorer, consensus.chosen)


def _leave_out(y: np.ndarray, lengths: np.ndarray, hours: np.ndarray, scorer: int, chosen: Candidate) -> dict[str, Any]:
    others, left_out = np.delete(y, scorer, 2), y[..., scorer]
    there = (left_out >= 0) & (others >= 0).any(-1)
    votes = _votes(others)[there]
    simple = dawid_skene(others[there], STAGES)
    ways = {"majority": (votes, (votes + 0.5) / (votes + 0.5).sum(1, keepdims=True))}
    common = simple.matrices.mean(0)
    ways["Dawid-Skene"] = (simple.probabilities, simple.probabilities @ common)
    for name, candidate in (("consensus", chosen), ("steps independent", Candidate(sequential=False))):
        consensus = lt.consensus(others, clock=hours, lengths=lengths, candidates=[candidate])
        ways[name] = (np.eye(STAGES)[consensus.labels[there]], consensus.another[there])
    left_out_labels = left_out[there]
    return {
        "study": "left out",
        "scorer": scorer + 1,
        "label_same": {
            name: round(float((belief.argmax(1) == left_out_labels).mean()), 4) for name, (belief, _) in ways.items()
        },
        "vote_same": {
            name: round(float((vote.argmax(1) == left_out_labels).mean()), 4) for name, (_, vote) in ways.items()
        },
        "vote_loss": {
            name: round(float(-np.log(vote[np.arange(len(left_out_labels)), left_out_labels].clip(1e-6)).mean()), 4)
            for name, (_, vote) in ways.items()
        },
    }


def _votes(y: np.ndarray) -> np.ndarray:
    return (y[..., None] == np.arange(STAGES)).sum(-2)


def _learned(consensus: lt.Consensus) -> dict[str, Any]:
    return {
        "chosen": consensus.chosen._asdict(),
        "tried": [{**candidate._asdict(), "held_out": round(value, 5)} for candidate, value in consensus.tried.items()],
        "fleiss": round(consensus.agreement.fleiss, 4),
        "fleiss_over_clock": consensus.agreement.fleiss_over_clock.round(4).tolist(),
        "cohen": consensus.agreement.cohen.round(4).tolist(),
        "drift": consensus.drift.round(4).tolist(),  # change, its 95 % interval, p-value
    }


def _pad(parts: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    lengths = np.array([len(part) for part in parts])
    y = np.full((len(parts), lengths.max(), parts[0].shape[1]), -1, dtype=np.int64)
    for row, part in zip(y, parts, strict=True):
        row[: len(part)] = part
    return y, lengths


if __name__ == "__main__":
    main()
