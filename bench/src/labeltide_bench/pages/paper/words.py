"""The sentences of the page: its banner and the captions of its figures, all made from the numbers."""

from __future__ import annotations

from collections.abc import Sequence

from labeltide_bench.pages.paper.agreement import MEASURES, ORIGIN, Agreement
from labeltide_bench.pages.paper.claim_kinds import Claim
from labeltide_bench.pages.paper.claim_tests import FAILS, HOLDS, PARTLY, UNTESTED
from labeltide_bench.pages.paper.match import MatchedFigure, draws_text
from labeltide_bench.pages.paper.panels import panels_left
from labeltide_bench.pages.paper.values import ACCURACY, MAE, SHAPES, STATIC_STUDY

SUBSTITUTE = "Substitute data, not the paper's recordings."
VERBS = {  # of one claim and of several
    HOLDS: ("holds", "hold"),
    PARTLY: ("holds partly", "hold partly"),
    FAILS: ("does not hold here", "do not hold here"),
    UNTESTED: ("was not tested", "were not tested"),
}


def caption_of(matched: MatchedFigure) -> str:
    """What a figure shows, of which data, with how many draws, and what is particular to it."""
    figure, is_accuracy = matched.figure, matched.figure.measure == ACCURACY
    what = "Accuracy on clean test labels (%)" if is_accuracy else "Mean absolute error of an entry of Q (%)"
    sentences = [SUBSTITUTE] if matched.is_substitute else []
    sentences.append(
        f"{what} on {figure.dataset.split(',')[0]}, {figure.classes} classes, against the share of wrong labels."
    )
    if figure.file == STATIC_STUDY:
        sentences.append("Training with the true Q(t), with its average over time, or without correction (ignore).")
    if not is_accuracy:
        sentences += _about_q(matched)
    if not figure.in_paper:
        sentences.append(f"From the authors' repository ({figure.file}); the paper does not number it.")
    sentences.append(draws_text(matched.cells, matched.methods) or "No records of ours were given.")
    return " ".join(sentences)


def _about_q(matched: MatchedFigure) -> list[str]:
    left = panels_left(matched)
    panels = "every panel" if len(left) == len(SHAPES) else f"the panels {', '.join(left)}"
    leaves = f"; its curve leaves {panels} at the top" if left else ""
    return [f"The error of ignore is the noise itself{leaves}.", "The paper shows no Q for discontinuous."]


def agreement_words(rows: Sequence[Agreement]) -> list[str]:
    """How far the figures lie from the paper's: a sentence on its own data, then one on substitutes."""
    kinds = (("On the paper's own data", False), ("On substitute data, not the paper's recordings", True))
    groups = [(words, [row for row in rows if (row.origin == ORIGIN[False]) is kind]) for words, kind in kinds]
    return [_on_data(words, group) for words, group in groups if _differences(group)]


def _on_data(words: str, rows: Sequence[Agreement]) -> str:
    names = sorted({row.data.split(",")[0] for row in _figures(rows)})
    return f"{words} ({', '.join(names)}) {', '.join(_differences(rows))}."


def _differences(rows: Sequence[Agreement]) -> list[str]:
    """The mean difference of accuracies and of entries of Q, where there are any."""
    parts = []
    for measure, what in ((ACCURACY, "our accuracies"), (MAE, "our errors of Q")):
        kept = [row for row in _figures(rows) if row.measure == MEASURES[measure]]
        points = sum(row.points for row in kept)
        if points:
            mean = sum(row.mean * row.points for row in kept) / points
            inside = sum(row.in_band for row in kept)
            bands = f"{inside:,} of {points:,} means in its bands"
            parts.append(f"{what} lie {mean:.1f} points from the paper's on average ({bands})")
    return parts


def _figures(rows: Sequence[Agreement]) -> list[Agreement]:
    return [row for row in rows if row.points and row.measure in (MEASURES[ACCURACY], MEASURES[MAE])]


def claims_words(claims: Sequence[Claim]) -> str:
    """How many claims hold: "10 claims hold, 8 hold partly."."""
    counts = [(sum(claim.verdict == verdict for claim in claims), verbs) for verdict, verbs in VERBS.items()]
    parts = [f"{count} {one if count == 1 else several}" for count, (one, several) in counts if count]
    return f"Of {len(claims)} claims of the paper {', '.join(parts)}."
