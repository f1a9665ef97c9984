"""The claims of the paper, each with a test over all cells, a verdict and a sentence made from the numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.stats import binomtest, rankdata, ttest_1samp

from labeltide_bench.pages.cells import UNIFORM, Cell
from labeltide_bench.pages.cost import method_in, paired
from labeltide_bench.pages.paper.agreement import MINUS, signed_text
from labeltide_bench.pages.paper.sources import SIX, TABLES, Studies
from labeltide_bench.pages.result_tables import PlainTable

MARGIN = 0.01  # a cost below one point counts as none
SIGN = "sign test over cells"
SIGNIFICANCE = 0.05
HOLDS, PARTLY, FAILS, UNTESTED = "holds", "holds partly", "does not hold here", "not tested"
Grouping = Callable[[Cell], str]
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
    "On the paper's means: the verdict of the same test on the means that the paper published. By its public code: on "
    "the means of the authors' published code in the 60 cells in which we ran it: fewer cells, so that small effects "
    "do not reach significance; a dash where they do not suffice."
)


def by_dataset(cell: Cell) -> str:
    return cell.name


def by_shape(cell: Cell) -> str:
    return cell.shape


def check_claims(studies: Studies, change: Changes) -> list[Claim]:
    """Every claim, in the order of the paper."""
    drawn = [cell for cell in studies.figures if cell.variant == UNIFORM]
    two, many = ([cell for cell in drawn if (cell.n_classes > 2) is kind] for kind in (False, True))
    printed = [cell for shape in TABLES.values() for cell in studies.printed(shape)]
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
        ten_points(printed),
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
        grows("The gain of Continuous over Ignore grows with the noise", shaped, "ignore"),
        grows("The gain of Continuous over VolMinNet grows with the noise", shaped, "volmin"),
        changes("The gain of Continuous over VolMinNet grows with the change of noise over time", drawn, change),
    ]


def _noise(drawn: Sequence[Cell], printed: Sequence[Cell]) -> list[Claim]:
    return [
        hand_in_hand("A lower error of Q goes with a lower test error", drawn),
        lowest("Continuous has the lowest error of Q on all data sets (tables 2 and 3)", printed, "absolute"),
        lowest("Continuous has the lowest error of Q at the levels of the figures", drawn, "absolute"),
    ]


def _corrections(cells: Sequence[Cell]) -> list[Claim]:
    forward, average, backward = "forward, temporal Q", "forward, static Q", "backward, temporal Q"
    texts = {
        average: "With the true Q, forward correction by Q(t) beats its average over time",
        backward: "With the true Q(t), forward correction beats backward correction",
    }
    return [beats(text, cells, [(forward, other)], by_shape) for other, text in texts.items()]


def compare_claims(ours: Sequence[Claim], papers: Sequence[Claim], code: Sequence[Claim]) -> list[Claim]:
    """Our claims with the verdicts that the paper's published means and the means of its public code give."""

    def words(claim: Claim) -> str:
        return "" if claim.verdict == UNTESTED else f"{claim.verdict.removesuffix(' here')}, {claim.support}"

    return [
        replace(claim, in_paper=words(paper), in_code=words(public))
        for claim, paper, public in zip(ours, papers, code, strict=True)
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
            str(index),
            claim.text,
            claim.verdict,
            claim.support or "\N{EN DASH}",
            claim.why,
            claim.in_paper or "\N{EN DASH}",
            claim.in_code or "\N{EN DASH}",
            f"{claim.cells:,}",
            f"{claim.draws:,}",
            p_text(claim.p_value),
            claim.test,
        ]
        for index, claim in enumerate(claims, start=1)
    ]
    heads = [
        "Row",
        "The paper's claim",
        "Verdict on ours",
        "In",
        "Why",
        "On the paper's means",
        "By its public code",
        "Cells",
        "Paired draws",
        "p",
        "Test",
    ]
    lost = f" {failed:,} runs gave no number and are left out." if failed else " No run was NaN."
    return PlainTable("Claims of the paper", CAPTION + lost, heads, rows, words=6)


def p_text(value: float) -> str:
    if not math.isfinite(value):
        return "\N{EN DASH}"
    return "< 0.0001" if value < 0.0001 else f"{value:.4f}" if value < 0.1 else f"{value:.2f}"


@dataclass(frozen=True)
class Claim:
    """One claim and what came of it."""

    text: str
    test: str
    cells: int
    draws: int  # pairs of runs behind the test
    p_value: float
    verdict: str
    why: str
    support: str = ""  # how many data sets go the claimed way
    in_paper: str = ""  # verdict and support of the same test on the paper's own published means
    in_code: str = ""  # and on the means of its public code


def beats(
    text: str,
    cells: Sequence[Cell],
    pairs: Sequence[tuple[str, str]],
    group: Grouping = by_dataset,
) -> Claim:
    """Each first method against its second: sign test over cells, and the direction on every data set."""
    found = {pair: gains(cells, *pair, group=group) for pair in pairs}
    found = {pair: effects for pair, effects in found.items() if effects}
    if not found:
        return _untested(text)
    p_value = max(sign_test(effect.value for effect in effects) for effects in found.values())
    means = {(pair, name): mean for pair, effects in found.items() for name, mean in means_by_group(effects).items()}
    every = [effect for effects in found.values() for effect in effects]
    won = sum(effect.value > 0 for effect in every)
    why = f"The error is lower in {won} of {len(every)} {_units(found)}, {_by(_mean(every))} on average"
    against = {
        f"{pair[0]} on {name}" if len(found) > 1 else name: mean for (pair, name), mean in means.items() if mean <= 0
    }
    why += (
        f"; not {_listed(against, 'for ' if len(found) > 1 else 'on ')}."
        if against
        else f"; in the mean of {_all(group)}."
    )
    support = count_support(((name, mean > 0) for (_, name), mean in means.items()), _unit(group))
    return _claim(text, SIGN, every, p_value, support, why, n_cells=len(cells))


def lowest(text: str, cells: Sequence[Cell], metric: str) -> Claim:
    """Continuous against each of the other methods, the largest p-value, and its place on every data set."""
    others = [name for name in SIX if name != "continuous" and (metric == "test_error" or name != "ignore")]
    others = [name for name in others if any(cell.over_draws(name, metric).n for cell in cells)]
    kept = [cell for cell in cells if all(cell.over_draws(name, metric).n for name in ("continuous", *others))]
    if not kept or not others:
        return _untested(text)
    found = {other: gains(kept, "continuous", other, metric) for other in others}
    p_value = max(sign_test(effect.value for effect in effects) for effects in found.values())
    firsts = sum(_best(cell, others, metric) == "continuous" for cell in kept)
    ahead = {other: means_by_group(effects) for other, effects in found.items()}
    datasets = list(dict.fromkeys(cell.name for cell in kept))
    behind = {name: min(ahead[other].get(name, math.inf) for other in others) for name in datasets}
    against = {
        f"{name} (there {min(others, key=lambda other: ahead[other].get(name, math.inf))})": mean
        for name, mean in behind.items()
        if mean <= 0
    }
    why = f"It is lowest in {firsts} of {len(kept)} cells"
    why += (
        f"; its mean is not the lowest on {_listed(against, '')}."
        if against
        else "; its mean is the lowest on every data set."
    )
    every = [effect for effects in found.values() for effect in effects]
    support = count_support((name, mean > 0) for name, mean in behind.items())
    return _claim(text, f"{SIGN}, against each other method", every, p_value, support, why, n_cells=len(kept))


def _best(cell: Cell, others: Sequence[str], metric: str) -> str:
    return min(("continuous", *others), key=lambda name: cell.over_draws(name, metric).mean)


def ten_points(cells: Sequence[Cell]) -> Claim:
    """On moving, the best temporal method against the nearest static one, by draw."""
    text = "On moving the temporal method lowers the test error by over ten points against the nearest static one"
    found = []
    for cell in (cell for cell in cells if cell.name == "moving"):
        nearest = min(("anchor", "volmin"), key=lambda name: cell.over_draws(name, "test_error").mean)
        found += gains([cell], "continuous", nearest, group=by_shape)
    if not found:
        return _untested(text)
    support = count_support(((effect.group, effect.value > 0.1) for effect in found), "shapes")
    verdict = HOLDS if support.is_full else PARTLY if support.in_favour else FAILS
    why = "; ".join(f"{effect.group}: {_by(effect.value)}" for effect in found) + "."
    claim = _claim(text, "none, means over draws", found, math.nan, support, why[0].upper() + why[1:])
    return replace(claim, verdict=verdict)


def no_cost(text: str, cells: Sequence[Cell], pairs: Sequence[tuple[str, str]]) -> Claim:
    """Non-inferiority: for every pair a t-test over cells rejects a mean cost of the margin; then every data set."""
    found = {pair: gains(cells, *pair) for pair in pairs}
    found = {pair: effects for pair, effects in found.items() if effects}
    if not found:
        return _untested(text)
    p_values = {pair: cost_test([-effect.value for effect in effects], MARGIN) for pair, effects in found.items()}
    costs = {(pair, name): -mean for pair, effects in found.items() for name, mean in means_by_group(effects).items()}
    high = {f"{pair[0]} on {name}": cost for (pair, name), cost in costs.items() if cost >= MARGIN}
    support = count_support((name, cost < MARGIN) for (_, name), cost in costs.items())
    mean_costs = {pair[0]: -_mean(effects) for pair, effects in found.items()}
    why = "Mean cost in points: " + ", ".join(f"{name} {signed_text(100 * cost)}" for name, cost in mean_costs.items())
    why += f"; one point or more {_listed(high, 'for ')}." if high else "; below one point on every data set."
    every = [effect for effects in found.values() for effect in effects]
    return _claim(
        text, "t-test over cells of a cost of one point", every, max(p_values.values()), support, why, len(cells)
    )


def grows(text: str, cells: Sequence[Cell], other: str) -> Claim:
    """Slope of the gain on the rate, one for each data set and shape."""
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.name, cell.shape), []).append(cell)
    found = []
    for (name, _), members in groups.items():
        effects = [(cell.rate, effect) for cell in members for effect in gains([cell], "continuous", other)]
        value = slope([rate for rate, _ in effects], [effect.value for _, effect in effects])
        if math.isfinite(value):
            found.append(Effect(name, value, sum(effect.draws for _, effect in effects)))
    if not found:
        return _untested(text)
    p_value, means = sign_test(effect.value for effect in found), means_by_group(found)
    against = {name: mean for name, mean in means.items() if mean <= 0}
    rising = sum(effect.value > 0 for effect in found)
    why = (
        f"It rises in {rising} of {len(found)} pairs of data set and shape, "
        f"by {10 * _mean(found):.1f} points for 10 points of noise"
    )
    why += f"; it falls on {', '.join(against)}." if against else "; it rises on every data set."
    support = count_support((name, mean > 0) for name, mean in means.items())
    test = "sign test over slopes, one for each data set and shape"
    return _claim(text, test, found, p_value, support, why, n_cells=len(cells))


def changes(text: str, cells: Sequence[Cell], change: Mapping[tuple[str, str], float]) -> Claim:
    """Partial rank correlation of the gain with the total variation of Q(t), given the rate, one for each data set."""
    rows: dict[str, list[tuple[float, float, float, int]]] = {}
    for cell in cells:
        if cell.rate > 0 and (cell.shape, cell.level) in change:
            for effect in gains([cell], "continuous", "volmin"):
                rows.setdefault(cell.name, []).append(
                    (change[cell.shape, cell.level], effect.value, cell.rate, effect.draws)
                )
    found = []
    for name, values in rows.items():
        x, y, rate, draws = zip(*values, strict=True)
        found.append(Effect(name, partial_rank_correlation(x, y, rate), sum(draws)))
    found = [effect for effect in found if math.isfinite(effect.value)]
    if not found:
        return _untested(text)
    p_value = sign_test(effect.value for effect in found)
    why = (
        "Rank correlation with the total variation of Q(t): "
        + "; ".join(f"{e.group} {e.value:.2f}".replace("-", MINUS) for e in found)
        + "."
    )
    support = count_support((effect.group, effect.value > 0) for effect in found)
    test = "sign test over data sets of the partial rank correlation, given the rate"
    return _claim(text, test, found, p_value, support, why, n_cells=sum(map(len, rows.values())))


def hand_in_hand(text: str, cells: Sequence[Cell]) -> Claim:
    """Spearman's rank correlation of the error of Q and the test error over the methods of a cell."""
    found = []
    for cell in cells:
        methods = [name for name in SIX if name != "ignore" and cell.over_draws(name, "absolute").n]
        pairs = [(cell.over_draws(name, "absolute"), cell.over_draws(name, "test_error").mean) for name in methods]
        value = rank_correlation([q.mean for q, _ in pairs], [error for _, error in pairs])
        if math.isfinite(value):
            found.append(Effect(cell.name, value, sum(q.n for q, _ in pairs)))
    if not found:
        return _untested(text)
    p_value, means = sign_test(effect.value for effect in found), means_by_group(found)
    against = [name for name, mean in means.items() if mean <= 0]
    positive = sum(effect.value > 0 for effect in found)
    why = (
        f"The rank correlation over the correcting methods is positive in {positive} of {len(found)} cells, "
        f"{_mean(found):.2f} on average"
    )
    why += f"; not on {', '.join(against)}." if against else "; positive in the mean of every data set."
    support = count_support((name, mean > 0) for name, mean in means.items())
    return _claim(text, f"{SIGN} of the rank correlation", found, p_value, support, why)


def _claim(
    text: str, test: str, effects: Sequence[Effect], p_value: float, support: Support, why: str, n_cells: int = 0
) -> Claim:
    draws, verdict = sum(effect.draws for effect in effects), judge(p_value, support)
    return Claim(text, test, n_cells or len(effects), draws, p_value, verdict, why, str(support))


def _untested(text: str) -> Claim:
    return Claim(text, "", 0, 0, math.nan, UNTESTED, "No records of these methods and cells were given.")


def _mean(effects: Sequence[Effect]) -> float:
    return float(np.mean([effect.value for effect in effects]))


def _by(gain: float) -> str:
    return f"{100 * gain:.1f} points lower" if gain >= 0 else f"{-100 * gain:.1f} points higher"


def _listed(means: Mapping[str, float], before: str) -> str:
    """Names with their numbers in points, the largest first."""
    in_order = sorted(means.items(), key=lambda item: -abs(item[1]))
    return before + ", ".join(f"{name}: {signed_text(100 * mean)}" for name, mean in in_order)


def _units(found: Mapping[tuple[str, str], object]) -> str:
    return f"comparisons of {len(found)} pairs of methods" if len(found) > 1 else "cells"


def _unit(group: Grouping) -> str:
    return "shapes" if group is by_shape else "data sets"


def _all(group: Grouping) -> str:
    return f"every {_unit(group).removesuffix('s')}"


class Effect(NamedTuple):
    """The effect in one cell or group of cells; positive where the claim says so."""

    group: str  # the data set, by which directions are counted
    value: float
    draws: int


class Support(NamedTuple):
    """How many data sets, or shapes, go the claimed way."""

    in_favour: int
    groups: int
    unit: str = "data sets"

    @property
    def is_full(self) -> bool:
        return self.in_favour == self.groups

    def __str__(self) -> str:
        return f"{self.in_favour} of {self.groups} {self.unit}"


def gains(
    cells: Iterable[Cell],
    method: str,
    other: str,
    metric: str = "test_error",
    group: Grouping = by_dataset,
) -> list[Effect]:
    """By how much a method's error lies below another's in each cell, the mean over the draws that both have."""
    found = []
    for cell in cells:
        difference = paired(cell, method_in(cell, other), method_in(cell, method), metric)
        if difference.n:
            found.append(Effect(group(cell), difference.mean, difference.n))
    return found


def sign_test(values: Iterable[float]) -> float:
    """One-sided p-value of the sign test that positive values are no more frequent than negative ones."""
    kept = [value for value in values if value != 0 and math.isfinite(value)]
    return float(binomtest(sum(value > 0 for value in kept), len(kept), alternative="greater").pvalue) if kept else 1.0


def cost_test(costs: Sequence[float], margin: float) -> float:
    """One-sided p-value of the t-test that the mean cost over cells is at least the margin (non-inferiority)."""
    values = np.asarray(costs, dtype=float)
    if len(values) < 2:
        return 1.0
    if np.ptp(values) == 0:
        return 0.0 if values[0] < margin else 1.0
    return float(ttest_1samp(values, margin, alternative="less").pvalue)


def means_by_group(effects: Iterable[Effect]) -> dict[str, float]:
    """Mean effect of each data set, in the order in which they come."""
    grouped: dict[str, list[float]] = {}
    for effect in effects:
        grouped.setdefault(effect.group, []).append(effect.value)
    return {group: float(np.mean(values)) for group, values in grouped.items()}


def count_support(directions: Iterable[tuple[str, bool]], unit: str = "data sets") -> Support:
    """In how many groups every comparison goes the claimed way."""
    grouped: dict[str, bool] = {}
    for group, is_claimed in directions:
        grouped[group] = grouped.get(group, True) and is_claimed
    return Support(sum(grouped.values()), len(grouped), unit)


def judge(p_value: float, support: Support) -> str:
    """The verdict: significant and in every data set; significant but not in every one; not significant."""
    if not (support.groups and p_value < SIGNIFICANCE):
        return FAILS
    return HOLDS if support.is_full else PARTLY


def slope(x: Sequence[float], y: Sequence[float]) -> float:
    """Least-squares slope; NaN with fewer than four distinct places."""
    return float(np.polyfit(x, y, 1)[0]) if len(set(x)) > 3 else math.nan


def rank_correlation(x: Sequence[float], y: Sequence[float]) -> float:
    """Spearman's rank correlation; NaN where one of both is constant or fewer than three values are there."""
    return _correlation(rankdata(x), rankdata(y)) if len(x) > 2 else math.nan


def partial_rank_correlation(x: Sequence[float], y: Sequence[float], given: Sequence[float]) -> float:
    """Spearman's rank correlation of x and y after both are regressed on the ranks of a third variable."""
    if len(x) < 4:
        return math.nan
    ranks = [rankdata(values) for values in (x, y, given)]
    design = np.stack([np.ones(len(x)), ranks[2]], axis=1)
    rest = [values - design @ np.linalg.lstsq(design, values, rcond=None)[0] for values in ranks[:2]]
    return _correlation(*rest)


def _correlation(x: np.ndarray, y: np.ndarray) -> float:
    if np.std(x) < 1e-9 or np.std(y) < 1e-9:
        return math.nan
    return float(np.corrcoef(x, y)[0, 1])


def total_variation(true_noise: np.ndarray) -> float:
    """Change of the noise over the clock: the sum of absolute steps of 1 - Q(t)[i, i], mean over classes."""
    wrong = 1 - np.diagonal(true_noise, axis1=-2, axis2=-1)  # (points, classes)
    return float(np.abs(np.diff(wrong, axis=0)).sum(axis=0).mean())
