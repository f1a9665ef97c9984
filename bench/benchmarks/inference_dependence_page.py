"""Tables of the part `dependence` of inference.py: how often noise is called temporal, by people and dependence."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

ABOUT = """## Windows of one person that depend on each other
5, 10, 20 or 50 people have 32, 16, 8 or 4 windows of 30 steps, one after the other along the clock; 20 % of labels are
wrong. Windows are independent (*nothing*), or the logits of error rates differ with a standard deviation of 1 between
people, between windows, or between windows of which neighbours are correlated. *Called* is the share of studies with p
at most .05 where nothing changes over the clock, *found* where the error rate moves by about ten points (from 15 to
25 % for a window of average level), and *cannot* the share of studies without a change in which the test says that it
cannot be told. These count as not called. Half of the studies have persistent labels, half strong features. Studies of
20 people are also tested as if windows were independent: by swapped moments of rows, and by labels drawn from a chain
without a change (parametric bootstrap). The library does neither where it knows people."""
NEVER = "never changes"  # in the name of a test whose null is true in all studies
COMPARISON = "for comparison"  # in the name of a test that the library does not use there
MOST = 0.07


def write_dependence(records: list[dict[str, Any]]) -> str:
    """A table for each test, and whether it keeps its size in each cell."""
    cells = {(r["kind"], r["people"], r["dependence"], r["changes"]): r["tests"] for r in records}
    tests = list(dict.fromkeys((r["kind"], name) for r in records for name in r["tests"]))
    lines, sizes = [ABOUT], {}
    for kind, name in tests:
        lines += ["", f"### {kind.capitalize()}: {name}", *_table(cells, kind, name)]
        for (of_kind, people, dependence, changes), found in cells.items():
            if of_kind == kind and (not changes or NEVER in name) and COMPARISON not in name:
                where = f"{kind}, {name}, {people} people, {dependence}{', others change' * changes}"
                sizes[where] = called(found[name]["p_values"])
    above = [f"{where} ({100 * size:.1f} %)" for where, size in sizes.items() if size > MOST]
    met = "met" if not above else f"**missed** in {len(above)}: {'; '.join(above)}"
    mean = 100 * sum(sizes.values()) / len(sizes)
    lines += ["", f"- without a change at most 7 % in each of {len(sizes)} cells (mean {mean:.1f} %): {met}"]
    return "\n".join(lines)


def _table(cells: dict[tuple[Any, ...], Any], kind: str, name: str) -> Iterable[str]:
    yield "| windows | people | tested by | studies | called | found | cannot |"
    yield "|---|--:|---|--:|--:|--:|--:|"
    for of_kind, people, dependence, changes in cells:
        if of_kind != kind or changes or name not in cells[kind, people, dependence, changes]:
            continue
        still, moving = (cells[kind, people, dependence, value][name] for value in (False, True))
        p_values = still["p_values"]
        cannot = sum(p is None for p in p_values) / len(p_values)
        shares = [called(p_values), called(moving["p_values"]), cannot]
        used = " or ".join(method for method in still["methods"] if method != "none") or "none"
        numbers = " | ".join(f"{100 * share:.1f} %" for share in shares)
        yield f"| {dependence} | {people} | {used} | {len(p_values)} | {numbers} |"


def called(p_values: list[float | None]) -> float:
    """The share of studies in which noise is called temporal; what cannot be told is not."""
    return sum(p is not None and p <= 0.05 for p in p_values) / len(p_values)
