"""Tables of the part `dependence` of inference.py: how often noise is called temporal, by people and dependence."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from scipy.stats import binom

ABOUT = """## Windows of one person that depend on each other
5, 10, 20 or 50 people have 32, 16, 8 or 4 windows of 30 steps, one after the other along the clock; 20 % of labels are
wrong. Windows are independent (*nothing*), or the logits of their error rates differ with a standard deviation of 1,
and those of neighbours are correlated or not. *Called* is the share of studies with p at most .05 where nothing changes
over the clock, *found* where the error rate moves by about ten points (from 15 to 25 % for a window of average level),
and *cannot* the share of studies without a change in which the test says that it cannot be told. These count as not
called. Half of the studies have persistent labels, half strong features. The evidence is drawn, and EM starts at the
true chain: of 175 tests 17 called a change in this way, 16 when started from fitted chains. Some studies of 20 people
are also tested as if windows were independent: by swapped moments of rows, and by parametric bootstrap. The library
does neither where it knows people. The test within a window of 5 people is a parametric bootstrap.

Tests by people take the effective score of each person. For one of several annotators it is effective under the
observed information (Louis 1982). Under the complete-data information, as before, causes that annotators share passed
for a change of one of them: 14 % were called with 20 people whose labels persist, 9 % with 50. The correction was
developed on other draws than those shown here.

Rows "rotations" are of a version before 2026-11-18, which tested five people by rotating their windows. This test was
removed ([record 015](../../../docs/decisions/015-tests-of-change.md))."""
NEVER = "never changes"  # in the name of a test whose null is true in all studies
COMPARISON = "for comparison"  # in the name of a test that the library does not use there
MOST, LEVEL = 0.07, 0.05
Cells = dict[tuple[str, int, str, bool], Any]


def write_dependence(records: list[dict[str, Any]]) -> str:
    """A table for each test, and whether it keeps its size in each cell."""
    cells: Cells = {(r["kind"], r["people"], r["dependence"], r["changes"]): r["tests"] for r in records}
    tests = list(dict.fromkeys((r["kind"], name) for r in records for name in r["tests"]))
    lines, sizes = [ABOUT], {}
    for kind, name in tests:
        lines += ["", f"### {kind.capitalize()}: {name}", *_table(cells, kind, name)]
        for (of_kind, people, dependence, changes), found in cells.items():
            null_holds = (not changes or NEVER in name) and COMPARISON not in name
            if of_kind == kind and name in found and null_holds:
                where = f"{kind}, {name}, {people} people, {dependence}{', others change' * changes}"
                sizes[where] = found[name]["p_values"]
    return "\n".join([*lines, "", *_judge(sizes)])


def write_again(records: list[dict[str, Any]]) -> str:
    """Other draws of the cells above 7 %, in a line each."""
    return "\n".join(
        f"- other draws of {r['kind']}, {name}, {r['people']} people, {r['dependence']}: "
        f"{100 * called(test['p_values']):.1f} % of {len(test['p_values'])}"
        for r in records
        for name, test in r["tests"].items()
    )


def _judge(sizes: dict[str, list[float | None]]) -> Iterable[str]:
    """Whether each cell keeps its size, and how many cells would not by chance alone (binomial)."""
    above = {where: p_values for where, p_values in sizes.items() if called(p_values) > MOST}
    by_chance = sum(float(binom.sf(int(MOST * len(p)), len(p), LEVEL)) for p in sizes.values())
    told = [p for p_values in sizes.values() for p in p_values if p is not None]
    named = "; ".join(f"{where} ({100 * called(p):.1f} % of {len(p)})" for where, p in above.items())
    met = f"**missed** in {len(above)}: {named}" if above else "met"
    yield f"- without a change at most 7 % in each of {len(sizes)} cells: {met}"
    yield f"- all cells together: {100 * called(told):.1f} % of {len(told):,} tests that can be told"
    yield f"- if every test called exactly 5 %, {by_chance:.0f} of the cells would lie above 7 % by chance"


def _table(cells: Cells, kind: str, name: str) -> Iterable[str]:
    yield "| windows | people | tested by | studies | called | found | cannot |"
    yield "|---|--:|---|--:|--:|--:|--:|"
    for people, dependence in dict.fromkeys((key[1], key[2]) for key in cells if key[0] == kind):
        still, moving = (cells.get((kind, people, dependence, value), {}).get(name) for value in (False, True))
        shown = still or moving
        if shown is None:
            continue
        used = " or ".join(method for method in shown["methods"] if method != "none") or "none"
        cannot = sum(p is None for p in shown["p_values"]) / len(shown["p_values"])
        null = moving if still is None and NEVER in name else still
        size = "" if null is None else f"{100 * called(null['p_values']):.1f} %"
        power = "" if moving is None or NEVER in name else f"{100 * called(moving['p_values']):.0f} %"
        studies = len(shown["p_values"])
        yield f"| {dependence} | {people} | {used} | {studies} | {size} | {power} | {100 * cannot:.0f} % |"


def called(p_values: list[float | None]) -> float:
    """The share of studies in which noise is called temporal; what cannot be told is not."""
    return sum(p is not None and p <= 0.05 for p in p_values) / len(p_values)
