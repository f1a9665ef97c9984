"""The claims of the paper, each with a test over all cells, a verdict and a sentence made from the numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from labeltide_bench.pages.cells import UNIFORM, Cell
from labeltide_bench.pages.paper import claim_kinds as kinds
from labeltide_bench.pages.paper.claim_kinds import MARGIN, Claim, beats, lowest, no_cost
from labeltide_bench.pages.paper.claim_tests import UNTESTED, by_shape, total_variation
from labeltide_bench.pages.paper.plain import PlainTable
from labeltide_bench.pages.paper.studies import Studies
from labeltide_bench.pages.paper.values import SIX
from labeltide_bench.pages.published import has_published

COUNTERPARTS = (("plugin", "anchor"), ("discontinuous", "volmin"), ("continuous", "volmin"))  # temporal, static
AGAINST_IGNORE = tuple((name, "ignore") for name in SIX if name != "ignore")
Changes = Mapping[tuple[str, str], float]  # shape and level → total variation of the true Q(t)

CAPTION = (
    "Effects are differences of test error paired by draw, averaged over the draws of a cell. Tests are one-sided and "
    "over cells; where several pairs of methods are asked for, p is the largest p-value of the pairs "
    "(intersection-union test, Berger 1982). Holds: p < 0.05 and the claimed direction on every data set (with the "
    "true Q: for every shape). Holds partly: p < 0.05, but not on every data set. Does not hold here: p is 0.05 or "
    "more. A data set counts if all pairs of methods go the claimed way in its mean. "
    f"For claims of no cost the test must reject a mean cost of {100 * MARGIN:g} point, and a data set counts if no "
    "method costs as much there. The claim of ten points has no test: both of its cells must pass. "
    "Cells of one data set are not independent, so p-values are too small; the count of data sets is there for that. "
    "On the paper's means: the verdict of the same test on the means that the paper published."
)


def check_claims(studies: Studies, change: Changes) -> list[Claim]:
    """Every claim, in the order of the paper."""
    drawn = [cell for cell in studies.figures if cell.variant == UNIFORM]
    two, many = ([cell for cell in drawn if (cell.n_classes > 2) is kind] for kind in (False, True))
    printed = [cell for cell in studies.tables if has_published(cell)]
    return [
        *_gains(temporal(two), temporal(many), printed),
        *_costs(drawn),
        *_growth(drawn, change),
        *_noise(temporal(drawn), printed),
        *_corrections(temporal(studies.static)),
        beats(
            "On labels of people, temporal methods have a lower test error than the static one (the paper: stress "
            "detection, whose data are not public; here: our annotators)",
            studies.people,
            [("discontinuous", "volmin"), ("continuous", "volmin")],
        ),
    ]


def _gains(two: Sequence[Cell], many: Sequence[Cell], printed: Sequence[Cell]) -> list[Claim]:
    return [
        beats("Plug-In beats its static counterpart Anchor", two, COUNTERPARTS[:1]),
        beats("Discontinuous beats its static counterpart VolMinNet", two, COUNTERPARTS[1:2]),
        beats("Continuous beats its static counterpart VolMinNet", two, COUNTERPARTS[2:]),
        lowest("Continuous has the lowest test error of the six methods on all data sets", two, "test_error"),
        kinds.ten_points(printed),
        beats("With several classes too, each temporal method beats its static counterpart", many, COUNTERPARTS),
        lowest("With several classes too, Continuous has the lowest test error of the six", many, "test_error"),
    ]


def _costs(drawn: Sequence[Cell]) -> list[Claim]:
    static = [cell for cell in drawn if cell.shape == "static" and cell.rate > 0]
    clean = [cell for cell in drawn if cell.shape == "static" and cell.rate == 0]  # all shapes are one without noise
    return [
        no_cost(
            "No cost where noise is static: temporal methods against their static counterparts", static, COUNTERPARTS
        ),
        no_cost("No cost without noise: every method against Ignore", clean, AGAINST_IGNORE),
    ]


def _growth(drawn: Sequence[Cell], change: Changes) -> list[Claim]:
    shaped = [cell for cell in drawn if cell.shape != "static"]
    return [
        kinds.grows("The gain of Continuous over Ignore grows with the noise", shaped, "ignore"),
        kinds.grows("The gain of Continuous over VolMinNet grows with the noise", shaped, "volmin"),
        kinds.changes("The gain of Continuous over VolMinNet grows with the change of noise over time", drawn, change),
    ]


def _noise(drawn: Sequence[Cell], printed: Sequence[Cell]) -> list[Claim]:
    return [
        kinds.hand_in_hand("A lower error of Q goes with a lower test error", drawn),
        lowest("Continuous has the lowest error of Q on all data sets (tables 2 and 3)", printed, "frobenius"),
        lowest("Continuous has the lowest error of Q at the levels of the figures", drawn, "absolute"),
    ]


def _corrections(cells: Sequence[Cell]) -> list[Claim]:
    forward, average, backward = "forward, temporal Q", "forward, static Q", "backward, temporal Q"
    texts = {
        average: "With the true Q, forward correction by Q(t) beats its average over time",
        backward: "With the true Q(t), forward correction beats backward correction",
    }
    return [beats(text, cells, [(forward, other)], by_shape) for other, text in texts.items()]


def compare_claims(ours: Sequence[Claim], papers: Sequence[Claim]) -> list[Claim]:
    """Our claims with the verdicts that the paper's own published means give."""
    pairs = zip(ours, papers, strict=True)
    return [
        replace(claim, in_paper="" if other.verdict == UNTESTED else f"{other.verdict}, {other.support}")
        for claim, other in pairs
    ]


def temporal(cells: Sequence[Cell]) -> list[Cell]:
    """Cells whose noise is there and changes over time."""
    return [cell for cell in cells if cell.shape != "static" and cell.rate > 0]


def changes_over_time(cells: Sequence[Cell]) -> dict[tuple[str, str], float]:
    """Total variation of the true Q(t) of each shape and level, from the first cell of two classes that keeps it."""
    found: dict[tuple[str, str], float] = {}
    for cell in cells:
        true = cell.true_noise if cell.n_classes == 2 else None
        if true is not None and (cell.shape, cell.level) not in found:
            found[cell.shape, cell.level] = total_variation(true)
    return found


def count_failed(studies: Studies) -> int:
    """Runs of drawn noise that gave no test error."""
    cells = [*studies.figures, *studies.tables, *studies.static]
    return sum(cell.over_draws(method, "test_error").failed for cell in cells for method in cell.runs)


def claims_table(claims: Sequence[Claim], failed: int = 0) -> PlainTable:
    """All claims in one table."""
    rows = [
        [
            str(place),
            claim.text,
            claim.verdict,
            claim.support or "\N{EN DASH}",
            claim.why,
            claim.in_paper or "\N{EN DASH}",
            f"{claim.cells:,}",
            f"{claim.draws:,}",
            p_text(claim.p_value),
            claim.test,
        ]
        for place, claim in enumerate(claims, start=1)
    ]
    heads = [
        "Row",
        "The paper's claim",
        "Verdict",
        "In",
        "Why",
        "On the paper's means",
        "Cells",
        "Paired draws",
        "p",
        "Test",
    ]
    lost = f" {failed:,} runs gave no number and are left out." if failed else " No run was NaN."
    return PlainTable("Claims of the paper", CAPTION + lost, heads, rows, words=5)


def p_text(value: float) -> str:
    if not math.isfinite(value):
        return "\N{EN DASH}"
    return "< 0.0001" if value < 0.0001 else f"{value:.4f}" if value < 0.1 else f"{value:.2f}"
