"""The page of the benchmark of contested labels: contested.md from its records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Record = dict[str, Any]
JUDGED = ("mean", "disagreed", "log-loss", "AUC", "calibration error")
TITLES = {
    "several": "## Several annotators, labels alone",
    "features": "## Several annotators, with features",
    "one": "## One annotator",
}
WORDS = {
    "several": "The labels of all annotators but one, without features: `lt.consensus`. Baselines: the share of votes "
    "against a label, and the share of the annotator's own labels at the three steps on either side that differ.",
    "features": "The same by `tide` with features, on the labels of four of five scorers.",
    "one": "The labels of one annotator are all there is; the others' labels judge. With features by `tide`; the "
    "neonates have no features, and `lt.consensus` of one annotator predicts. A habit that an annotator keeps "
    "everywhere cannot be seen here, and the mean may lie far from the share that disagreed.",
}


def write_page(records: Sequence[Record], path: Path) -> None:
    """Write all tables for which there are records."""
    lines = ["# Contested labels, and the consensus against a majority", "", INTRODUCTION]
    several = [record for record in records if record["part"] == "several"]
    if several:
        lines += ["", "## Consensus against a majority", "", CONSENSUS, "", *_consensus_table(several)]
    for part, title in TITLES.items():
        own = [record for record in records if record["part"] == part]
        if own:
            lines += ["", title, "", WORDS[part], "", *_differs_table(own)]
    path.write_text("\n".join([*lines, "", LIMITS, ""]))


def _consensus_table(records: Sequence[Record]) -> list[str]:
    lines = [
        "| study | steps | annotators left out | majority right | Dawid-Skene | consensus: `labels` | its `another` "
        "| `labels` less majority | by annotator | majority's log-loss | consensus' log-loss |",
        "|---|--:|--:|--:|--:|--:|--:|--:|---|--:|--:|",
    ]
    for study, own in _by_study(records):
        gains = [100 * (record["right"]["consensus"] - record["right"]["majority"]) for record in own]
        by_annotator = ", ".join(f"{gain:+.1f}" for gain in gains) if len(gains) < 6 else _spread(gains)
        means = {key: {way: np.mean([record[key][way] for record in own]) for way in own[0][key]} for key in KEYS}
        right, loss = means["right"], means["loss"]
        lines.append(
            f"| {study} | {own[0]['steps']:,} | {len(own)} "
            f"| {' | '.join(f'{100 * right[way]:.2f} %' for way in WAYS)} | {_paired(own)} "
            f"| {by_annotator} | {loss['majority']:.3f} | {loss['consensus']:.3f} |"
        )
    return lines


def _paired(records: Sequence[Record]) -> str:
    """Points that the consensus is right more often, with one standard error over recordings (draws apart)."""
    total = sum(record["steps"] for record in records)
    draws: dict[int, np.ndarray] = {}
    seen: dict[int, int] = {}
    for record in records:  # the same recordings, an annotator each; draws have recordings of their own
        draw = seen.get(record["left out"], 0)
        seen[record["left out"]] = draw + 1
        draws[draw] = draws.get(draw, 0) + np.array(record["gain by recording"])
    gains = np.concatenate(list(draws.values()))
    error = gains.std(ddof=1) * np.sqrt(len(gains))
    return f"{100 * gains.sum() / total:+.2f} ± {100 * error / total:.2f}"


def _differs_table(records: Sequence[Record]) -> list[str]:
    lines = ["| study | prediction | " + " | ".join(JUDGED) + " |", "|---|---|" + "--:|" * len(JUDGED)]
    for study, own in _by_study(records):
        for way in own[0]["differs"]:
            numbers = np.mean([record["differs"][way] for record in own], 0)
            lines.append(f"| {study} | {way} | " + " | ".join(f"{value:.3f}" for value in numbers) + " |")
    return lines


def _by_study(records: Sequence[Record]) -> Iterable[tuple[str, list[Record]]]:
    for study in dict.fromkeys(record["study"] for record in records):
        yield study, [record for record in records if record["study"] == study]


def _spread(gains: Sequence[float]) -> str:
    better = sum(gain > 0 for gain in gains)
    return f"{min(gains):+.1f} to {max(gains):+.1f}, better for {better} of {len(gains)}"


KEYS, WAYS = ("right", "loss"), ("majority", "Dawid-Skene", "consensus", "another")
INTRODUCTION = """\
`python bench/benchmarks/contested.py` (20 of the 80 nights of Dreem; `--nights 80` takes all). Each annotator is left
out in turn and used to judge only. Gaze (Lund 2013) and simulations (other draws) were used to develop. Dreem and
Helsinki served to choose between forms of the consensus (docs/decisions/028-likeliest-true-label.md), so that they are
not untouched. What `lt.consensus` gives was measured anew on 2026-11-19; what `tide` gives is of 2026-11-16."""
CONSENSUS = """\
How often the label of the majority, of Dawid and Skene's model and of the consensus is that of the annotator who was
left out, and the log-loss of the predictions (for the majority: shares of votes, half a vote added for each label; ties
go to the more frequent class). `labels` are the likeliest true ones; the likeliest class of `another` is meant to be
that of one more annotator. Differences in percentage points, with one standard error over recordings, and by annotator.
Of the two coders of gaze only one would be left."""
LIMITS = """\
## How to read this

Mean: the mean predicted probability that another annotator differs. Disagreed: how often the left-out annotator did.
AUC: area under the ROC curve. Calibration error: expected calibration error in ten bins. Numbers are means over the
annotators who were left out. One annotator's disagreement with others is partly habit, which differs from person to
person: no prediction for "another annotator" is calibrated for each single one."""
