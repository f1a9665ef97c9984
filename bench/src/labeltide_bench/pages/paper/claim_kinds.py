"""Kinds of claims: each is tested over cells and gives a verdict with a sentence made from the numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from labeltide_bench.pages.cells import Cell
from labeltide_bench.pages.paper import claim_tests as tests
from labeltide_bench.pages.paper.agreement import MINUS, signed_text
from labeltide_bench.pages.paper.claim_tests import Effect, Support, by_shape, count_support, gains
from labeltide_bench.pages.paper.values import SIX

MARGIN = 0.01  # a cost below one point counts as none
SIGN = "sign test over cells"


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


def beats(
    text: str,
    cells: Sequence[Cell],
    pairs: Sequence[tuple[str, str]],
    group: Callable[[Cell], str] = tests.by_dataset,
) -> Claim:
    """Each first method against its second: sign test over cells, and the direction on every data set."""
    found = {pair: gains(cells, *pair, group=group) for pair in pairs}
    found = {pair: effects for pair, effects in found.items() if effects}
    if not found:
        return _untested(text)
    p_value = max(tests.sign_test(effect.value for effect in effects) for effects in found.values())
    means = {
        (pair, name): mean for pair, effects in found.items() for name, mean in tests.means_by_group(effects).items()
    }
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
    p_value = max(tests.sign_test(effect.value for effect in effects) for effects in found.values())
    firsts = sum(_best(cell, others, metric) == "continuous" for cell in kept)
    ahead = {other: tests.means_by_group(effects) for other, effects in found.items()}
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
    verdict = tests.HOLDS if support.is_full else tests.PARTLY if support.in_favour else tests.FAILS
    why = "; ".join(f"{effect.group}: {_by(effect.value)}" for effect in found) + "."
    claim = _claim(text, "none, means over draws", found, math.nan, support, why[0].upper() + why[1:])
    return replace(claim, verdict=verdict)


def no_cost(text: str, cells: Sequence[Cell], pairs: Sequence[tuple[str, str]]) -> Claim:
    """Non-inferiority: for every pair a t-test over cells rejects a mean cost of the margin; then every data set."""
    found = {pair: gains(cells, *pair) for pair in pairs}
    found = {pair: effects for pair, effects in found.items() if effects}
    if not found:
        return _untested(text)
    p_values = {pair: tests.cost_test([-effect.value for effect in effects], MARGIN) for pair, effects in found.items()}
    costs = {
        (pair, name): -mean for pair, effects in found.items() for name, mean in tests.means_by_group(effects).items()
    }
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
        value = tests.slope([rate for rate, _ in effects], [effect.value for _, effect in effects])
        if math.isfinite(value):
            found.append(Effect(name, value, sum(effect.draws for _, effect in effects)))
    if not found:
        return _untested(text)
    p_value, means = tests.sign_test(effect.value for effect in found), tests.means_by_group(found)
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
        found.append(Effect(name, tests.partial_rank_correlation(x, y, rate), sum(draws)))
    found = [effect for effect in found if math.isfinite(effect.value)]
    if not found:
        return _untested(text)
    p_value = tests.sign_test(effect.value for effect in found)
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
        value = tests.rank_correlation([q.mean for q, _ in pairs], [error for _, error in pairs])
        if math.isfinite(value):
            found.append(Effect(cell.name, value, sum(q.n for q, _ in pairs)))
    if not found:
        return _untested(text)
    p_value, means = tests.sign_test(effect.value for effect in found), tests.means_by_group(found)
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
    draws, verdict = sum(effect.draws for effect in effects), tests.judge(p_value, support)
    return Claim(text, test, n_cells or len(effects), draws, p_value, verdict, why, str(support))


def _untested(text: str) -> Claim:
    return Claim(text, "", 0, 0, math.nan, tests.UNTESTED, "No records of these methods and cells were given.")


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


def _unit(group: Callable[[Cell], str]) -> str:
    return "shapes" if group is by_shape else "data sets"


def _all(group: Callable[[Cell], str]) -> str:
    return f"every {_unit(group).removesuffix('s')}"
