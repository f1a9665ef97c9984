"""labeltide, crowd-kit and cleanlab on labels of several annotators.

    pip install crowd-kit cleanlab      # neither is a dependency; crowd-kit's aggregation needs no torch
    python bench/benchmarks/compare.py --data DATA      # or LABELTIDE_DATA=DATA

crowd-kit: majority vote, Dawid and Skene (1979), the same with one rate for each annotator, GLAD (Whitehill and others
2009) and MACE (Hovy and others 2013), all with their default settings. cleanlab: CROWDLAB (Goh and others 2022).
Simulations: the share of steps at which each is wrong. CoNLL: names in news, labelled by 47 workers and by experts
(Rodrigues and others 2014; `test`, which chose nothing in the library). SALAMI: of a random half of the songs that two
people have divided into sections, one of the two is left out and predicted; GLAD and MACE are too slow for these two.
Dreem and Helsinki: every annotator is left out in turn, and the consensus of the others is compared with that person's
labels. With features: CROWDLAB and `lt.consensus` get the same out-of-fold probabilities, of a logistic regression on
the majority's labels of other nights; then `tide` is fitted, and CROWDLAB gets the out-of-fold probabilities of its
networks. Writes comparison.jsonl and comparison.md; `--parts` runs some parts again and keeps the others.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import contested
import labeltide as lt
from annotators import STEPS, Drawn, distance, draw_annotators
from compare_page import write_page
from labeltide.inference.annotators import count_votes

FEW_METHODS = ("majority (crowd-kit)", "Dawid-Skene (crowd-kit)", "one coin (crowd-kit)")  # of large data
SLOW = ("GLAD (crowd-kit)", "MACE (crowd-kit)")
PACKAGES = ("labeltide", "crowd-kit", "cleanlab", "numpy", "pandas")
STEADY = np.tile(np.array([0.1, 0.2, 0.15, 0.3, 0.25])[:, None], (1, STEPS))
OURS, DAWID_SKENE, CROWDLAB = "labeltide", "Dawid-Skene (crowd-kit)", "CROWDLAB (cleanlab)"
FOLDS = 5
EPOCHS = 25  # of the networks of tide
Judge = Callable[["contested.Study", np.ndarray, np.ndarray], "JudgedLabels"]


class Setting(NamedTuple):
    """One kind of simulated study."""

    classes: int
    gaps: bool = False
    stay: float | None = 0.9
    wrong_rates: np.ndarray | None = None  # None: two of five annotators drift
    habit: str = ""  # what annotators have in common


SETTINGS = {
    "drift, 2 classes": Setting(2),
    "drift, 2 classes, gaps": Setting(2, gaps=True),
    "drift, 3 classes": Setting(3),
    "no drift, no persistence, 3 classes": Setting(3, stay=None, wrong_rates=STEADY),
    "events that most omit, 2 classes": Setting(2, wrong_rates=STEADY / 3, habit="omissions"),
    "an adversary, 2 classes": Setting(2, wrong_rates=np.tile([[0.1], [0.2], [0.25], [0.3], [0.9]], (1, STEPS))),
    "two camps, 3 classes": Setting(3, wrong_rates=STEADY / 2, habit="camps"),
    "200 workers with few labels, 3 classes": Setting(3, habit="workers"),
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
    parser.add_argument("--few", action="store_true", help="keep what records have of GLAD and MACE, which are slow")
    arguments = parser.parse_args()
    if arguments.data is None:
        parser.error("Say where the data sets are: --data FOLDER, or LABELTIDE_DATA.")
    out = Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    file = out / "comparison.jsonl"
    kept = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    about = {"date": date.today().isoformat(), "versions": {name: version(name) for name in PACKAGES}}
    for part in arguments.parts:
        earlier = [record for record in kept if record["part"] == part]
        kept = [record for record in kept if record["part"] != part]
        for number, record in enumerate(PARTS[part](arguments)):
            for key in ("wrong", "right", "seconds") if arguments.few and number < len(earlier) else ():
                slow = {way: value for way, value in earlier[number].get(key, {}).items() if way in SLOW}
                record |= {key: record[key] | slow} if slow else {}
            kept.append({"part": part, **record, **about})
            print(kept[-1], flush=True)
            file.write_text("".join(json.dumps(record) + "\n" for record in kept))
    write_page(sorted(kept, key=lambda record: list(PARTS).index(record["part"])), out / "comparison.md")


def crowd_kit(labels: np.ndarray, n_classes: int, methods: Sequence[str] = ()) -> dict[str, Answer]:
    """Some or all methods of crowd-kit on codes of shape (items, annotators), -1 where nothing was recorded."""
    from crowdkit.aggregation import GLAD, MACE, DawidSkene, MajorityVote, OneCoinDawidSkene

    items, annotators = np.nonzero(labels >= 0)
    table = pd.DataFrame({"task": items, "worker": annotators, "label": labels[items, annotators]})
    every = {"majority (crowd-kit)": MajorityVote(), DAWID_SKENE: DawidSkene()}
    every |= {"one coin (crowd-kit)": OneCoinDawidSkene(), "GLAD (crowd-kit)": GLAD(), "MACE (crowd-kit)": MACE()}
    return {name: _aggregate(every[name], table, labels.shape, n_classes) for name in methods or every}


def _aggregate(method: Any, table: pd.DataFrame, shape: tuple[int, ...], n_classes: int) -> Answer:
    started = time.perf_counter()
    found = method.fit_predict_proba(table)
    seconds = time.perf_counter() - started
    chances = found.reindex(columns=range(n_classes)).fillna(0.0)
    chances = chances.reindex(index=range(shape[0])).fillna(chances.mean()).to_numpy(dtype=float)  # without labels
    errors = getattr(method, "errors_", None)  # of Dawid and Skene: lines (worker, recorded), columns true
    if errors is None or getattr(errors, "ndim", 0) != 2:
        return Answer(chances, seconds)
    lines = pd.MultiIndex.from_product([range(shape[1]), range(n_classes)])
    by_line = errors.reindex(index=lines, columns=range(n_classes)).fillna(0.0).to_numpy()
    return Answer(chances, seconds, by_line.reshape(shape[1], n_classes, n_classes).swapaxes(1, 2))


def simulate(name: str, arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Share of steps with a label at which each method is wrong, and the error of Q where there is one."""
    setting = SETTINGS[name]
    for draw in range(arguments.draws):
        truth, labels, matrices = draw_crowd(setting, draw)
        labelled = (labels >= 0).any(-1)
        started = time.perf_counter()
        ours = lt.consensus(labels, classes=list(range(setting.classes)))
        seconds = {OURS: time.perf_counter() - started}
        answers = crowd_kit(labels[labelled], setting.classes, FEW_METHODS if arguments.few else ())
        seconds |= {way: answer.seconds for way, answer in answers.items()}
        wrong = {OURS: ours.labels[labelled] != truth[labelled]}
        wrong |= {way: answer.probabilities.argmax(1) != truth[labelled] for way, answer in answers.items()}
        record = {
            "draw": draw,
            "steps": int(labelled.sum()),
            "wrong": {way: round(float(value.mean()), 4) for way, value in wrong.items()},
            "seconds": _rounded(seconds),
        }
        if not setting.habit:
            simple = answers[DAWID_SKENE].matrices
            assert simple is not None
            errors = {OURS: distance(ours.noise, matrices), DAWID_SKENE: distance(simple[:, None], matrices)}
            record["error"] = {way: round(float(np.mean(value)), 4) for way, value in errors.items()}
        yield record


def draw_crowd(setting: Setting, draw: int) -> Drawn:
    """Labels of five annotators, or of many; with habits they err together."""
    if setting.habit == "workers":
        drawn = [draw_annotators(setting.classes, False, draw, wrong_rates=STEADY + 0.05 * k) for k in range(3)]
        every, rng = np.concatenate([each.labels for each in drawn], 2), np.random.default_rng([draw, 9])
        labels = np.full((*every.shape[:2], 200), -1)
        for worker in range(200):  # each labels three sequences, about as well as one of fifteen people
            rows = rng.choice(len(labels), 3, replace=False)
            labels[rows, :, worker] = every[rows, :, worker % every.shape[2]]
        return Drawn(drawn[0].truth, labels, drawn[0].matrices)
    truth, labels, matrices = draw_annotators(setting.classes, setting.gaps, draw, *setting[2:4])
    rng = np.random.default_rng([draw, 8])
    event = np.cumsum(np.diff(truth, axis=1, prepend=truth[:, :1]) != 0, axis=1) + 1000 * np.arange(len(truth))[:, None]
    if setting.habit == "omissions":  # each event is overlooked by each person, or not, by its difficulty
        difficulty = rng.beta(0.5, 0.8, event.max() + 1)[event]
        overlooked = rng.random((event.max() + 1, 5))[event] < difficulty[..., None]
        labels = np.where(overlooked & (truth == 1)[..., None], 0, labels)
    elif setting.habit == "camps":  # two of five take half of the events of class 2 for class 1
        other = (rng.random(event.max() + 1) < 0.5)[event] & (truth == 2)
        labels[..., 3:] = np.where(other[..., None], 1, labels[..., 3:])
    return Drawn(truth, labels, matrices)


def names_in_news(arguments: argparse.Namespace, split: str = "test") -> Iterator[dict[str, Any]]:
    """CoNLL: F1 of spans (as conlleval counts them), wrong tokens, and log-loss of the true label."""
    crowd, gold = (
        pd.read_parquet(Path(arguments.data) / "conll_mturk" / f"{name}.parquet") for name in ("crowd", "gold")
    )
    crowd, gold = (part[part["split"] == split] for part in (crowd, gold))
    classes = sorted(set(gold["gold"]) | set(crowd["label"]))
    code = {name: number for number, name in enumerate(classes)}
    workers = {worker: number for number, worker in enumerate(sorted(set(crowd["worker"])))}
    shape = (int(gold["sentence"].max()) + 1, int(gold["token"].max()) + 1)
    truth, labels = np.full(shape, -1), np.full((*shape, len(workers)), -1)
    truth[gold["sentence"], gold["token"]] = gold["gold"].map(code)
    labels[crowd["sentence"], crowd["token"], crowd["worker"].map(workers)] = crowd["label"].map(code)
    sentences = (truth >= 0).any(1)
    truth, labels = truth[sentences], labels[sentences]
    real, lengths = truth >= 0, (truth >= 0).sum(1)
    started = time.perf_counter()
    ours = lt.consensus(labels, lengths=lengths, classes=list(range(len(classes))))
    answers = {OURS: Answer(ours.probabilities[real], time.perf_counter() - started)}
    answers |= crowd_kit(labels[real], len(classes), FEW_METHODS)
    found, spans, true = {}, {}, spans_of(truth, classes)
    for way, answer in answers.items():
        found[way] = np.where(real, -1, truth)
        found[way][real] = answer.probabilities.argmax(1)
        spans[way] = spans_of(found[way], classes)
    yield {
        "steps": int(real.sum()),
        "labels": int((labels >= 0).sum()),
        "F1": {way: round(2 * len(some & true) / (len(some) + len(true)), 4) for way, some in spans.items()},
        "wrong": {way: round(float((codes != truth)[real].mean()), 4) for way, codes in found.items()},
        "truth loss": {way: contested._log_loss(answer.probabilities, truth[real]) for way, answer in answers.items()},
        "seconds": _rounded({way: answer.seconds for way, answer in answers.items()}),
    }


def spans_of(codes: np.ndarray, classes: list[str]) -> set[tuple[int, int, int, str]]:
    """Row, first and last token, and kind of every named entity; I- after another kind begins one, as in conlleval."""
    found = set()
    for row, sentence in enumerate(codes):
        begin, kind = 0, ""
        texts = [classes[code] for code in sentence[sentence >= 0]]
        for index, text in enumerate([*texts, "O"]):
            goes_on = text.startswith("I-") and text[2:] == kind
            if kind and not goes_on:
                found.add((row, begin, index - 1, kind))
                kind = ""
            if text != "O" and not goes_on:
                begin, kind = index, text[2:]
    return found


def sections_of_songs(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """SALAMI: of half of the songs one of two annotators is left out; steps of two seconds, ten usual sections."""
    labels, lengths, _, _ = songs(Path(arguments.data))
    rng = np.random.default_rng(0)
    hidden = np.full(labels.shape[:2], -1)
    others = labels.copy()
    for row in rng.permutation(len(labels))[: len(labels) // 2]:
        person = rng.choice(np.flatnonzero((labels[row] >= 0).any(0)))
        hidden[row], others[row, :, person] = labels[row, :, person], -1
    there, n_classes = (hidden >= 0) & (others >= 0).any(-1), int(labels.max()) + 1
    started = time.perf_counter()
    ours = lt.consensus(others, lengths=lengths, classes=list(range(n_classes)))
    seconds, labelled = {OURS: time.perf_counter() - started}, (others >= 0).any(-1)
    answers = crowd_kit(others[labelled], n_classes, FEW_METHODS)
    seconds |= {way: answer.seconds for way, answer in answers.items()}
    votes, simple, inside = count_votes(others[there], n_classes) + 0.5, answers[DAWID_SKENE], there[labelled]
    assert simple.matrices is not None
    chances = {OURS: ours.another[there], "majority (crowd-kit)": votes / votes.sum(1, keepdims=True)}
    chances[DAWID_SKENE] = simple.probabilities[inside] @ simple.matrices.mean(0)
    named = {OURS: ours.labels[there], **{way: x.probabilities[inside].argmax(1) for way, x in answers.items()}}
    yield {
        "steps": int(there.sum()),
        "right": {way: round(float((label == hidden[there]).mean()), 4) for way, label in named.items()},
        "loss": {way: contested._log_loss(chance, hidden[there]) for way, chance in chances.items()},
        "seconds": _rounded(seconds),
    }


def songs(data: Path, every: float = 2.0, usual: int = 10) -> tuple[np.ndarray, np.ndarray, list[str], np.ndarray]:
    """Codes (songs, steps, people) of songs that two have labelled, lengths, people, and days since the first label.

    The last class is all other sections. Days (songs, people) are NaN where no date was kept.
    """
    spans = pd.read_parquet(data / "salami" / "spans.parquet")
    names = list(spans["label"].value_counts().index[:usual])
    people = sorted(set(spans["annotator"]))
    first, rows, dates = spans["submitted"].min(), [], []
    for _, song in spans.groupby("track"):
        if song["annotator"].nunique() != 2:
            continue
        moments = np.arange(0, song["offset"].max(), every) + every / 2
        row, days = np.full((len(moments), len(people)), -1), np.full(len(people), np.nan)
        for annotator, own in song.groupby("annotator"):
            own = own.sort_values("onset")
            which = np.searchsorted(own["onset"].to_numpy(), moments, side="right") - 1
            inside = (which >= 0) & (moments < own["offset"].to_numpy()[which])
            codes = np.array([names.index(label) if label in names else usual for label in own["label"]])
            row[:, people.index(annotator)] = np.where(inside, codes[which], -1)
            days[people.index(annotator)] = (own["submitted"].iloc[0] - first).total_seconds() / 86400
        rows.append(row)
        dates.append(days)
    lengths = np.array([len(row) for row in rows])
    labels = np.full((len(rows), lengths.max(), len(people)), -1)
    for number, row in zip(labels, rows, strict=True):
        number[: len(row)] = row
    return labels, lengths, people, np.array(dates)


def people(study: contested.Study, few: bool) -> Iterator[dict[str, Any]]:
    """How often the label from all annotators but one is that of the one, and log-loss where labels are predicted."""
    for annotator in range(study.labels.shape[2]):
        others, left_out = np.delete(study.labels, annotator, 2), study.labels[..., annotator]
        there = (left_out >= 0) & (others >= 0).any(-1)
        started = time.perf_counter()
        ours = contested._consensus(study, others)
        seconds = {OURS: time.perf_counter() - started}
        answers = crowd_kit(others[there], study.n_classes, FEW_METHODS if few else ())
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
        right = {way: (label == judge).mean() for way, label in labels.items()}
        tied = votes == votes.max(
            1, keepdims=True
        )  # crowd-kit's majority takes the first of these, in order of classes
        right["majority, ties at random"] = (tied[np.arange(len(judge)), judge] / tied.sum(1)).mean()
        yield {
            "left out": annotator,
            "steps": int(there.sum()),
            "right": {way: round(float(share), 4) for way, share in right.items()},
            "loss": {way: contested._log_loss(chance, judge) for way, chance in predicted.items()},
            "seconds": _rounded(seconds),
        }


class JudgedLabels(NamedTuple):
    """What labeltide says of the labels of several annotators, and the classifier's probabilities that it had."""

    labels: np.ndarray  # (n, steps)
    contested: np.ndarray  # (n, steps, annotators)
    chances: np.ndarray  # (used steps, classes)


def with_regression(study: contested.Study, others: np.ndarray, used: np.ndarray) -> JudgedLabels:
    """`lt.consensus` with the out-of-fold probabilities of a logistic regression."""
    chances = out_of_fold(study, others, used)
    evidence = np.full((*used.shape, study.n_classes), 1 / study.n_classes)
    evidence[used] = chances
    more = {"clock": study.clock, "lengths": study.lengths, "ids": study.ids}
    result = lt.consensus(others, classes=list(range(study.n_classes)), evidence=evidence, **more)
    return JudgedLabels(result.labels, result.contested, chances)


def with_networks(study: contested.Study, others: np.ndarray, used: np.ndarray) -> JudgedLabels:
    """`tide`, and the out-of-fold probabilities of its own networks."""
    assert study.features is not None
    more = {"clock": study.clock, "lengths": study.lengths}
    tide = lt.TideClassifier(random_state=0, ensemble=False, epochs=EPOCHS)
    audit = tide.fit(study.features, others, **more).audit(study.features, others, **more)
    assert audit.another is not None
    return JudgedLabels(tide.classes_[audit.another.argmax(-1)], audit.contested, audit.signal[used])


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
    "names in news (CoNLL)": names_in_news,
    "sections of songs (SALAMI)": sections_of_songs,
    "sleep (Dreem)": lambda arguments: people(contested.sleep(arguments), arguments.few),
    "neonates (Helsinki)": lambda arguments: people(contested.neonates(arguments), arguments.few),
    "sleep (Dreem), logistic regression": partial(features, with_regression),
    "sleep (Dreem), networks of tide": partial(features, with_networks),
}

if __name__ == "__main__":
    warnings.filterwarnings("ignore", category=FutureWarning)
    main()
