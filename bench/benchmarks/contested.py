"""Consensus against a majority, and how well disagreement with an annotator who was left out is predicted.

    python bench/benchmarks/contested.py --data DATA      # or LABELTIDE_DATA=DATA; --nights 80 for all of Dreem

Every annotator is left out in turn; the labels of that person are used to judge, never to fit. `several`: accuracy and
log-loss of the left-out labels by a majority and by `lt.consensus`; and the probability that another annotator differs
from each recorded label, from the labels of all others. `features`: the latter by `tide` with features. `one`: the same
from the labels of one annotator. Each is compared with simple baselines by log-loss, area under the curve and expected
calibration error (ten bins). Writes contested.jsonl and contested.md.
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
from scipy.stats import rankdata

import labeltide as lt
from annotators_people import GAZE, SLEEP, whole_dataset
from contested_page import write_page
from labeltide.estimators import fit_fleet
from labeltide_bench.dawid_skene import dawid_skene
from labeltide_bench.simulated import SharedDifficulty, simulate_difficulty

BINS = 10
EVERY = 10  # seconds between the steps taken of the neonates' recordings
NEAR = 3  # steps on each side whose labels are compared with a label, as a baseline
SEED = 0
FAR = 100  # seeds of the simulations that judge; others were used to develop
SIMULATIONS = {
    "simulation: three classes on a scale": SharedDifficulty(),
    "simulation: a rare class": SharedDifficulty(borders=(1.1,), habit=0.2),
    "simulation: a rare class, three annotators": SharedDifficulty(borders=(1.1,), habit=0.2, annotators=3),
    "simulation: strong habits": SharedDifficulty(habit=0.6),
    "simulation: many slips": SharedDifficulty(slips=0.2),
}


class Study(NamedTuple):
    """Labels of several annotators, and features where there are any."""

    name: str
    labels: np.ndarray  # (n, steps, annotators), -1 where nothing was recorded
    lengths: np.ndarray
    clock: np.ndarray  # (n, steps)
    ids: tuple[Any, ...]
    n_classes: int
    features: np.ndarray | None = None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.environ.get("LABELTIDE_DATA"), help="folder of the data sets")
    parser.add_argument("--out", default="bench/results/annotators", help="folder for the records")
    parser.add_argument("--nights", type=int, default=20, help="nights of Dreem, of 80")
    parser.add_argument("--recordings", type=int, default=79, help="recordings of neonates, of 79")
    parser.add_argument("--draws", type=int, default=3, help="draws of each simulation")
    parser.add_argument("--epochs", type=int, default=60, help="of the networks")
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=list(PARTS), help="what to run again")
    arguments = parser.parse_args()
    if arguments.data is None:
        parser.error("Say where the data sets are: --data FOLDER, or LABELTIDE_DATA.")
    out = Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    file = out / "contested.jsonl"
    kept = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    for part in arguments.parts:
        kept = [record for record in kept if record["part"] != part]
        for record in PARTS[part](arguments):
            kept.append({"part": part} | record)
            print(kept[-1], flush=True)
            file.write_text("".join(json.dumps(record) + "\n" for record in kept))
    write_page(kept, out / "contested.md")


def gaze(arguments: argparse.Namespace) -> Study:
    return _people(GAZE, Path(arguments.data), None)


def sleep(arguments: argparse.Namespace) -> Study:
    return _people(SLEEP, Path(arguments.data), arguments.nights)


def neonates(arguments: argparse.Namespace) -> Study:
    """One step every ten seconds of whole recordings, by three experts; there are no features."""
    table = pq.read_table(Path(arguments.data) / "neonatal_seizure" / "annotations_1s.parquet")
    columns = {name: table[name].to_numpy() for name in table.column_names}
    experts = np.stack([columns[f"expert_{name}"] for name in "ABC"], 1)
    recordings = _spread(np.unique(columns["record"]), arguments.recordings)
    parts = [experts[columns["record"] == recording][::EVERY] for recording in recordings]
    lengths = np.array([len(part) for part in parts])
    labels = np.full((len(parts), lengths.max(), 3), -1, dtype=np.int64)
    for row, part in zip(labels, parts, strict=True):
        row[: len(part)] = part
    clock = np.minimum(np.arange(labels.shape[1]) / (lengths[:, None] - 1), 1).round(4)
    return Study("neonates (Helsinki)", labels, lengths, clock, tuple(recordings.tolist()), 2)


def simulation(name: str, draw: int) -> Study:
    labels = simulate_difficulty(SIMULATIONS[name], FAR + draw).labels
    n, steps = labels.shape[:2]
    clock = np.tile(np.linspace(0, 1, steps), (n, 1))
    return Study(name, labels, np.full(n, steps), clock, tuple(range(n)), len(SIMULATIONS[name].borders) + 1)


def _people(name: str, data: Path, most: int | None) -> Study:
    _, study, _ = whole_dataset(name, data)
    chosen = set(_spread(np.array(sorted(set(study.ids), key=str)), most).tolist())
    rows = np.array([recording in chosen for recording in study.ids])
    ids = tuple(recording for recording in study.ids if recording in chosen)
    labels = study.labels[rows].astype(np.int64)
    return Study(name, labels, study.lengths[rows], study.clock[rows], ids, len(study.classes), study.features[rows])


def _spread(names: np.ndarray, most: int | None) -> np.ndarray:
    """At most so many names, evenly spread over all."""
    count = len(names) if most is None else min(most, len(names))
    return names[np.unique(np.linspace(0, len(names) - 1, count).round().astype(int))]


def from_labels(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The consensus of all but one annotator: against the majority, and as a prediction of disagreement.

    Of the two coders of gaze only one would be left.
    """
    studies = [simulation(name, draw) for name in SIMULATIONS for draw in range(arguments.draws)]
    for study in (*studies, sleep(arguments), neonates(arguments)):
        for annotator in range(study.labels.shape[2]):
            yield _leave_out(study, annotator)


def _leave_out(study: Study, annotator: int) -> dict[str, Any]:
    others, left_out = np.delete(study.labels, annotator, 2), study.labels[..., annotator]
    started = time.perf_counter()
    result = _consensus(study, others)
    there = (left_out >= 0) & (others >= 0).any(-1)
    votes = _votes(others, study.n_classes)
    shares = (votes + 0.5) / (votes + 0.5).sum(-1, keepdims=True)
    ways = {"majority": _break_ties(shares, votes), "consensus": result.another}
    differs = {"others who differ": 1 - _at(shares, others), "neighbours": _neighbours(others)}
    differs["consensus"] = result.contested
    simple = np.full(left_out.shape, -1)
    voted = (others >= 0).any(-1)
    simple[voted] = dawid_skene(others[voted], study.n_classes).probabilities.argmax(1)
    labels = {"majority": ways["majority"].argmax(-1), "consensus": result.labels, "Dawid-Skene": simple}
    labels["another"] = result.another.argmax(-1)
    right = {name: (chosen == left_out) & there for name, chosen in labels.items()}
    gain = np.bincount(
        np.unique(np.array(study.ids, dtype=str), return_inverse=True)[1],
        (right["consensus"].astype(int) - right["majority"]).sum(1),
    )
    return {
        "study": study.name,
        "left out": annotator,
        "steps": int(there.sum()),
        "seconds": round(time.perf_counter() - started, 1),
        "weights": [round(weight, 3) for weight in result.weights],
        "right": {name: round(float(hit.sum() / there.sum()), 4) for name, hit in right.items()},
        "gain by recording": gain.astype(int).tolist(),  # labels that the consensus names more than the majority
        "loss": {name: _log_loss(way[there], left_out[there]) for name, way in ways.items()},
        "differs": _judge(differs, others, left_out),
    }


def one_annotator(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Disagreement of each other annotator with the labels of one: by `tide`, or by labels alone."""
    for study in (gaze(arguments), sleep(arguments)):
        assert study.features is not None
        labels = list(np.moveaxis(study.labels, 2, 0))
        fits = [_tide(arguments) for _ in labels]
        fit_fleet(fits, study.features, labels, clock=study.clock, lengths=study.lengths)
        for annotator, (fit, own) in enumerate(zip(fits, labels, strict=True)):
            audit = fit.audit(study.features, own, clock=study.clock, lengths=study.lengths)
            yield _judge_one(study, annotator, _network_baselines(audit) | {"ours": audit.contested[..., None]})
    study = neonates(arguments)
    for annotator in range(study.labels.shape[2]):
        own = study.labels[..., [annotator]]
        nobody = np.full_like(own, -1)  # a consensus is of two or more, of whom one may have no label
        result = _consensus(study, np.concatenate([own, nobody], 2))
        yield _judge_one(study, annotator, {"ours": result.contested[..., :1]})


def _judge_one(study: Study, annotator: int, ways: dict[str, np.ndarray]) -> dict[str, Any]:
    own = study.labels[..., [annotator]]
    ways = {"neighbours": _neighbours(own), **ways}
    judged = [
        _judge(ways, own, study.labels[..., other]) for other in range(study.labels.shape[2]) if other != annotator
    ]
    return {
        "study": study.name,
        "annotator": annotator,
        "differs": {name: np.mean([one[name] for one in judged], 0).round(4).tolist() for name in judged[0]},
    }


def several_with_features(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Disagreement of a left-out scorer with the labels of the four others, by `tide` with features."""
    study = sleep(arguments)
    assert study.features is not None
    for annotator in range(study.labels.shape[2]):
        others, left_out = np.delete(study.labels, annotator, 2), study.labels[..., annotator]
        more: dict[str, Any] = {"clock": study.clock, "lengths": study.lengths}
        started = time.perf_counter()
        audit = _tide(arguments).fit(study.features, others, **more).audit(study.features, others, **more)
        votes = _votes(others, study.n_classes)
        shares = (votes + 0.5) / (votes + 0.5).sum(-1, keepdims=True)
        ways = {"others who differ": 1 - _at(shares, others), **_network_baselines(audit), "ours": audit.contested}
        yield {
            "study": study.name,
            "left out": annotator,
            "seconds": round(time.perf_counter() - started, 1),
            "differs": _judge(ways, others, left_out),
        }


def _tide(arguments: argparse.Namespace) -> lt.TideClassifier:
    return lt.TideClassifier(random_state=SEED, ensemble=False, epochs=arguments.epochs)


def _consensus(study: Study, labels: np.ndarray) -> lt.Consensus:
    more: dict[str, Any] = {"clock": study.clock, "lengths": study.lengths, "ids": study.ids}
    return lt.consensus(labels, classes=list(range(study.n_classes)), **more)


def _network_baselines(audit: lt.LabelAudit) -> dict[str, np.ndarray]:
    """1 - p of the out-of-fold network, and its entropy as a share of the largest: (n, steps, annotators)."""
    entropy = -(audit.signal * np.log(audit.signal.clip(1e-9))).sum(-1, keepdims=True) / np.log(len(audit.classes))
    return {"network, 1 - p": 1 - _at(audit.signal, audit.labels), "network's entropy": entropy + 0.0 * audit.labels}


def _neighbours(labels: np.ndarray) -> np.ndarray:
    """The share of an annotator's labels at near steps that differ from that at the step; half a vote is added."""
    differ, count = np.zeros((2, *labels.shape))
    for shift in range(1, NEAR + 1):
        both = (labels[:, shift:] >= 0) & (labels[:, :-shift] >= 0)
        unlike = both & (labels[:, shift:] != labels[:, :-shift])
        for part in (slice(shift, None), slice(None, -shift)):
            differ[:, part] += unlike
            count[:, part] += both
    return (differ + 0.5) / (count + 1)


def _votes(labels: np.ndarray, n_classes: int) -> np.ndarray:
    return (labels[..., None] == np.arange(n_classes)).sum(-2)


def _break_ties(shares: np.ndarray, votes: np.ndarray) -> np.ndarray:
    """Shares of votes in which the more frequent class wins ties."""
    return shares + 1e-9 * votes.sum((0, 1)) / votes.sum()


def _at(probabilities: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return np.take_along_axis(probabilities, labels.clip(0).astype(np.intp), -1)


def _log_loss(probabilities: np.ndarray, labels: np.ndarray) -> float:
    chances = probabilities[np.arange(len(labels)), labels]
    return round(float(-np.log(chances.clip(1e-6)).mean()), 4)


def _judge(ways: dict[str, np.ndarray], labels: np.ndarray, left_out: np.ndarray) -> dict[str, list[float]]:
    """For each prediction of disagreement: its mean, the share that disagreed, log-loss, AUC, calibration error."""
    both = (labels >= 0) & (left_out[..., None] >= 0)
    happened = (labels != left_out[..., None])[both]
    result = {}
    for name, way in ways.items():
        chance = way[both].clip(1e-6, 1 - 1e-6)
        loss = -np.where(happened, np.log(chance), np.log(1 - chance)).mean()
        numbers = (chance.mean(), happened.mean(), loss, area_under_curve(chance, happened))
        result[name] = [round(float(value), 4) for value in (*numbers, calibration_error(chance, happened))]
    return result


def area_under_curve(chance: np.ndarray, happened: np.ndarray) -> float:
    """Area under the ROC curve, by ranks."""
    ranks, n = rankdata(chance), int(happened.sum())
    return float((ranks[happened].sum() - n * (n + 1) / 2) / max(1, n * (len(ranks) - n)))


def calibration_error(chance: np.ndarray, happened: np.ndarray) -> float:
    """Expected calibration error in ten bins of equal width."""
    cell = np.minimum((BINS * chance).astype(int), BINS - 1)
    gaps = np.bincount(cell, chance - happened, minlength=BINS)
    return float(np.abs(gaps).sum() / len(chance))


PARTS: dict[str, Callable[[argparse.Namespace], Iterator[dict[str, Any]]]] = {
    "several": from_labels,
    "one": one_annotator,
    "features": several_with_features,
}

if __name__ == "__main__":
    main()
