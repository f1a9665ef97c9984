"""labeltide, crowd-kit and cleanlab on labels of several annotators.

    pip install crowd-kit cleanlab      # neither is a dependency; crowd-kit's aggregation needs no torch
    python bench/benchmarks/compare.py --data DATA      # or LABELTIDE_DATA=DATA

crowd-kit: majority vote, Dawid and Skene (1979), GLAD (Whitehill and others 2009) and MACE (Hovy and others 2013), all
with their default settings. cleanlab: CROWDLAB (Goh and others 2022). Simulations: the share of steps at which each is
wrong. Dreem and Helsinki: every annotator is left out in turn, and the consensus of the others is compared with that
person's labels. With features: CROWDLAB and `lt.consensus` get the same out-of-fold probabilities, of a logistic
regression on the majority's labels of other nights; then `tide` is fitted, and CROWDLAB gets the out-of-fold
probabilities of its networks. Nothing was tuned on these data for this comparison. Writes comparison.jsonl and
comparison.md; `--parts` runs some parts again and keeps the others.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections.abc import Callable, Iterator
from datetime import date
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import contested
import labeltide as lt
from annotators import STEPS, distance, draw_annotators
from compare_page import write_page
from labeltide.inference.annotators import count_votes

PACKAGES = ("labeltide", "crowd-kit", "cleanlab", "numpy", "pandas")
STEADY = np.tile(np.array([0.1, 0.2, 0.15, 0.3, 0.25])[:, None], (1, STEPS))
OURS, DAWID_SKENE, CROWDLAB = "labeltide", "Dawid-Skene (crowd-kit)", "CROWDLAB (cleanlab)"
FOLDS = 5
EPOCHS = 25  # of the networks of tide
Judge = Callable[["contested.Study", np.ndarray, np.ndarray], "Judged"]


class Setting(NamedTuple):
    """One kind of simulated study."""

    classes: int
    gaps: bool = False
    stay: float | None = 0.9
    wrong_rates: np.ndarray | None = None  # None: two of five annotators drift


SETTINGS = {
    "drift, 2 classes": Setting(2),
    "drift, 2 classes, gaps": Setting(2, gaps=True),
    "drift, 3 classes": Setting(3),
    "no drift, no persistence, 3 classes": Setting(3, stay=None, wrong_rates=STEADY),
}


class Answer(NamedTuple):
    """What a method says of every item."""

    probabilities: np.ndarray  # (items, classes)
    seconds: float
    matrices: np.ndarray | None = None  # (annotators, classes, classes): P(recorded j | true i)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.environ.get("LABELTIDE_DATA"), help="folder of the data sets")
    parser.add_argument("--out", default="bench/results/comparison", help="folder for the records")
    parser.add_argument("--nights", type=int, default=10, help="nights of Dreem, of 80")
    parser.add_argument("--recordings", type=int, default=16, help="recordings of neonates, of 79")
    parser.add_argument("--draws", type=int, default=3, help="draws of each simulation")
    parser.add_argument(
        "--parts", nargs="*", choices=PARTS, default=list(PARTS), help="what to run again; none: the page"
    )
    arguments = parser.parse_args()
    if arguments.data is None:
        parser.error("Say where the data sets are: --data FOLDER, or LABELTIDE_DATA.")
    out = Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    file = out / "comparison.jsonl"
    kept = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    about = {"date": date.today().isoformat(), "versions": {name: version(name) for name in PACKAGES}}
    for part in arguments.parts:
        kept = [record for record in kept if record["part"] != part]
        for record in PARTS[part](arguments):
            kept.append({"part": part, **record, **about})
            print(kept[-1], flush=True)
            file.write_text("".join(json.dumps(record) + "\n" for record in kept))
    write_page(sorted(kept, key=lambda record: list(PARTS).index(record["part"])), out / "comparison.md")


def crowd_kit(labels: np.ndarray, n_classes: int) -> dict[str, Answer]:
    """Four methods of crowd-kit on codes of shape (items, annotators), -1 where nothing was recorded."""
    from crowdkit.aggregation import GLAD, MACE, DawidSkene, MajorityVote

    items, annotators = np.nonzero(labels >= 0)
    table = pd.DataFrame({"task": items, "worker": annotators, "label": labels[items, annotators]})
    methods = {"majority (crowd-kit)": MajorityVote(), DAWID_SKENE: DawidSkene(), "GLAD (crowd-kit)": GLAD()}
    methods["MACE (crowd-kit)"] = MACE()
    return {name: _aggregate(method, table, labels.shape, n_classes) for name, method in methods.items()}


def _aggregate(method: Any, table: pd.DataFrame, shape: tuple[int, ...], n_classes: int) -> Answer:
    started = time.perf_counter()
    found = method.fit_predict_proba(table)
    seconds = time.perf_counter() - started
    chances = found.reindex(index=range(shape[0]), columns=range(n_classes)).to_numpy(dtype=float)
    errors = getattr(method, "errors_", None)  # of Dawid and Skene: lines (worker, recorded), columns true
    if errors is None:
        return Answer(chances, seconds)
    lines = pd.MultiIndex.from_product([range(shape[1]), range(n_classes)])
    by_line = errors.reindex(index=lines, columns=range(n_classes)).fillna(0.0).to_numpy()
    return Answer(chances, seconds, by_line.reshape(shape[1], n_classes, n_classes).swapaxes(1, 2))


def simulate(name: str, arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Share of steps with a label at which each method is wrong, and the error of Q where there is one."""
    setting = SETTINGS[name]
    for draw in range(arguments.draws):
        truth, labels, matrices = draw_annotators(setting.classes, setting.gaps, draw, *setting[2:])
        labelled = (labels >= 0).any(-1)
        started = time.perf_counter()
        ours = lt.consensus(labels, classes=list(range(setting.classes)))
        seconds = {OURS: time.perf_counter() - started}
        answers = crowd_kit(labels[labelled], setting.classes)
        seconds |= {way: answer.seconds for way, answer in answers.items()}
        wrong = {OURS: ours.labels[labelled] != truth[labelled]}
        wrong |= {way: answer.probabilities.argmax(1) != truth[labelled] for way, answer in answers.items()}
        simple = answers[DAWID_SKENE].matrices
        assert simple is not None
        errors = {OURS: distance(ours.noise, matrices), DAWID_SKENE: distance(simple[:, None], matrices)}
        yield {
            "draw": draw,
            "steps": int(labelled.sum()),
            "wrong": {way: round(float(value.mean()), 4) for way, value in wrong.items()},
            "error": {way: round(float(np.mean(value)), 4) for way, value in errors.items()},
            "seconds": _rounded(seconds),
        }


def people(study: contested.Study) -> Iterator[dict[str, Any]]:
    """How often the label from all annotators but one is that of the one, and log-loss where labels are predicted."""
    for annotator in range(study.labels.shape[2]):
        others, left_out = np.delete(study.labels, annotator, 2), study.labels[..., annotator]
        there = (left_out >= 0) & (others >= 0).any(-1)
        started = time.perf_counter()
        ours = contested._consensus(study, others)
        seconds = {OURS: time.perf_counter() - started}
        answers = crowd_kit(others[there], study.n_classes)
        seconds |= {way: answer.seconds for way, answer in answers.items()}
        labels = {OURS: ours.labels[there]}
        labels |= {way: answer.probabilities.argmax(1) for way, answer in answers.items()}
        votes = count_votes(others[there], study.n_classes) + 0.5
        simple = answers[DAWID_SKENE]
        assert simple.matrices is not None
        predicted = {
            OURS: ours.another[there],
            "majority (crowd-kit)": votes / votes.sum(1, keepdims=True),
            DAWID_SKENE: simple.probabilities @ simple.matrices.mean(0),
        }
        judge = left_out[there]
        yield {
            "left out": annotator,
            "steps": int(there.sum()),
            "right": {way: round(float((label == judge).mean()), 4) for way, label in labels.items()},
            "loss": {way: contested._log_loss(chance, judge) for way, chance in predicted.items()},
            "seconds": _rounded(seconds),
        }


class Judged(NamedTuple):
    """What labeltide says of the labels of several annotators, and the classifier's probabilities that it had."""

    labels: np.ndarray  # (n, steps)
    contested: np.ndarray  # (n, steps, annotators)
    chances: np.ndarray  # (used steps, classes)


def with_regression(study: contested.Study, others: np.ndarray, used: np.ndarray) -> Judged:
    """`lt.consensus` with the out-of-fold probabilities of a logistic regression."""
    chances = out_of_fold(study, others, used)
    evidence = np.full((*used.shape, study.n_classes), 1 / study.n_classes)
    evidence[used] = chances
    more = {"clock": study.clock, "lengths": study.lengths, "ids": study.ids}
    result = lt.consensus(others, classes=list(range(study.n_classes)), evidence=evidence, **more)
    return Judged(result.labels, result.contested, chances)


def with_networks(study: contested.Study, others: np.ndarray, used: np.ndarray) -> Judged:
    """`tide`, and the out-of-fold probabilities of its own networks."""
    assert study.features is not None
    more = {"clock": study.clock, "lengths": study.lengths}
    tide = lt.TideClassifier(random_state=0, ensemble=False, epochs=EPOCHS)
    audit = tide.fit(study.features, others, **more).audit(study.features, others, **more)
    assert audit.another is not None
    return Judged(tide.classes_[audit.another.argmax(-1)], audit.contested, audit.signal[used])


def features(judge_labels: Judge, arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """CROWDLAB and labeltide, both with the same out-of-fold probabilities, against the scorer who was left out."""
    from cleanlab.multiannotator import get_label_quality_multiannotator

    study = contested.sleep(arguments)
    for annotator in range(study.labels.shape[2]):
        others, left_out = np.delete(study.labels, annotator, 2), study.labels[..., annotator]
        used = (others >= 0).any(-1)
        started = time.perf_counter()
        ours = judge_labels(study, others, used)
        seconds, started = {OURS: time.perf_counter() - started}, time.perf_counter()
        votes = np.where(others[used] >= 0, others[used], np.nan)
        found = get_label_quality_multiannotator(votes, ours.chances, verbose=False)
        seconds[CROWDLAB] = time.perf_counter() - started
        labels = {
            OURS: ours.labels[used],
            CROWDLAB: found["label_quality"]["consensus_label"].to_numpy(),
            "the classifier alone": ours.chances.argmax(1),
        }
        differs = {OURS: ours.contested[used], CROWDLAB: 1 - found["detailed_label_quality"].to_numpy(dtype=float)}
        judge, both = left_out[used], (others[used] >= 0) & (left_out[used] >= 0)[:, None]
        unlike = (others[used] != judge[:, None])[both]
        yield {
            "left out": annotator,
            "steps": int((judge >= 0).sum()),
            "right": {way: round(float((x == judge)[judge >= 0].mean()), 4) for way, x in labels.items()},
            "AUC": {way: round(contested.area_under_curve(x[both], unlike), 4) for way, x in differs.items()},
            "seconds": _rounded(seconds),
        }


def out_of_fold(study: contested.Study, labels: np.ndarray, used: np.ndarray) -> np.ndarray:
    """Probabilities by a logistic regression on the majority's labels of other nights: (used steps, classes)."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GroupKFold, cross_val_predict
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    assert study.features is not None
    nights = np.unique(study.ids, return_inverse=True)[1]
    groups = np.broadcast_to(nights[:, None], used.shape)[used]
    majority = count_votes(labels[used], study.n_classes).argmax(1)
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=500))
    folds = GroupKFold(min(FOLDS, len(np.unique(groups))))
    return cross_val_predict(model, study.features[used], majority, groups=groups, cv=folds, method="predict_proba")


def _rounded(seconds: dict[str, float]) -> dict[str, float]:
    return {way: round(value, 2) for way, value in seconds.items()}


PARTS: dict[str, Callable[[argparse.Namespace], Iterator[dict[str, Any]]]] = {
    **{name: partial(simulate, name) for name in SETTINGS},
    "sleep (Dreem)": lambda arguments: people(contested.sleep(arguments)),
    "neonates (Helsinki)": lambda arguments: people(contested.neonates(arguments)),
    "sleep (Dreem), logistic regression": partial(features, with_regression),
    "sleep (Dreem), networks of tide": partial(features, with_networks),
}

if __name__ == "__main__":
    warnings.filterwarnings("ignore", category=FutureWarning)
    main()
