"""The page of the comparison with crowd-kit and cleanlab: comparison.md from its records."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

Record = dict[str, Any]
INTRODUCTION = """`python bench/benchmarks/compare.py`. Simulations: 150 sequences of 50 steps, five annotators.
"Drift": three are steady, one tires (5 to 45 % wrong) and one learns (40 to 10 %); with gaps everyone labels half of
the sequences and one of them but a few. "No drift, no persistence": steps are independent and annotators are steady,
which is what the methods of crowd-kit assume. "Events that most omit": each event is overlooked by everyone with a
probability of its own. "Two camps": two of five take half of the events of one class for another. People: each
annotator is left out in turn and judges the consensus of the others; ± is one standard error over draws, in the tables
of people over annotators. crowd-kit's methods and cleanlab run with their defaults; GLAD and MACE of records that
others have renewed are from 2026-11-16. Best of a line in bold, also those within one standard error of it by paired
differences. crowd-kit's majority gives ties to the class that comes first: with two annotators of seizures, to "no
seizure", which is right more often; "ties at random" is what a majority that does not know the order gets on
average."""
LOSS = """Log-loss of the left-out annotator's labels. For the majority: shares of votes, half a vote added for each
label. For Dawid and Skene: the posterior times the mean confusion matrix, which is computed here and not by crowd-
kit. GLAD and MACE give the probability of the true label, not of what another person would record; they are not
scored by log-loss."""
NEWS = """The 3,256 sentences of `test` with 210,998 labels of 47 workers; spans are counted as conlleval does.
Published (Simpson and Gurevych 2019): majority 65.4, Dawid-Skene 74.4, BSC-seq without text 76.3."""
FEATURES = """Both get the same out-of-fold probabilities: of a logistic regression, with which labeltide makes a
consensus (`evidence`); or of the networks of `tide`, which labeltide has anyway. AUC: how well each ranks the
recorded labels with which the left-out scorer disagrees (area under the ROC curve): `1 - quality` of CROWDLAB,
`contested` of labeltide. CROWDLAB's score is meant for labels that are wrong, which is near to that, not the same."""
SECONDS = "Wall-clock seconds on two shared CPU cores, mean over draws or annotators. Read them as orders of magnitude."


def write_page(records: Sequence[Record], path: Path) -> None:
    """Write every table for which there are records."""
    simulations = [record for record in records if "wrong" in record and "draw" in record]
    news = [record for record in records if "F1" in record]
    people = [record for record in records if "loss" in record]
    features = [record for record in records if "AUC" in record]
    dates = sorted({record["date"] for record in records})
    versions = "; ".join(sorted({_versions(record) for record in records}))
    lines = ["# Compared with crowd-kit and cleanlab", "", INTRODUCTION, "", f"{versions}. {' and '.join(dates)}."]
    tables = [
        ("Simulations: steps at which the label is wrong, in %", "", simulations, "wrong", 100, False),
        (
            "Simulations: error of Q, mean Frobenius distance, x 100",
            "",
            [record for record in simulations if "error" in record],
            "error",
            100,
            False,
        ),
        ("People: the label is that of the annotator who was left out, in %", "", people, "right", 100, True),
        ("People: log-loss", LOSS, people, "loss", 1, False),
        ("Names in news (CoNLL, test): F1 of spans, in %", NEWS, news, "F1", 100, True),
        ("Names in news: tokens with a wrong label, in %", "", news, "wrong", 100, False),
        ("Names in news: log-loss of the true label", "", news, "truth loss", 1, False),
        (
            "With features: the label is that of the left-out scorer, in %",
            FEATURES,
            features,
            "right",
            100,
            True,
        ),
        ("With features: area under the curve of disagreement", "", features, "AUC", 1, True),
        ("Time", SECONDS, records, "seconds", 1, None),
    ]
    for title, words, own, key, scale, more_is_better in tables:
        if own:
            lines += ["", f"## {title}", "", *([words, ""] if words else []), *_table(own, key, scale, more_is_better)]
    path.write_text("\n".join(lines) + "\n")


def _versions(record: Record) -> str:
    return ", ".join(f"{name} {number}" for name, number in record["versions"].items())


def _table(records: Sequence[Record], key: str, scale: float, more_is_better: bool | None) -> list[str]:
    """One line for each part, one column for each method; `more_is_better` None marks nothing."""
    ways = list(dict.fromkeys(way for record in records for way in record[key]))
    lines = ["| | n | " + " | ".join(ways) + " |", "|---|--:|" + "--:|" * len(ways)]
    for part in dict.fromkeys(record["part"] for record in records):
        own = [record[key] for record in records if record["part"] == part]
        values = {way: scale * np.array([one[way] for one in own]) for way in ways if way in own[0]}
        best = _best(values, more_is_better)
        cells = [_cell(values.get(way), way in best, scale, more_is_better) for way in ways]
        lines.append(f"| {part} | {len(own)} | {' | '.join(cells)} |")
    return lines


def _best(values: dict[str, np.ndarray], more_is_better: bool | None) -> set[str]:
    """The method with the best mean and those whose paired differences from it are within one standard error."""
    if more_is_better is None:
        return set()
    sign = 1 if more_is_better else -1
    top = max(values, key=lambda way: sign * values[way].mean())
    gaps = {way: sign * (values[top] - value) for way, value in values.items()}
    return {way for way, gap in gaps.items() if gap.mean() <= _standard_error(gap)}


def _standard_error(values: np.ndarray) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0


def _cell(values: np.ndarray | None, is_best: bool, scale: float, more_is_better: bool | None) -> str:
    if values is None:
        return ""
    if more_is_better is None:
        return f"{values.mean():.1f}"
    digits = 1 if scale == 100 else 3
    text = f"{values.mean():.{digits}f} ± {_standard_error(values):.{digits}f}"
    return f"**{text}**" if is_best else text
