"""The section about recorded labels of real annotators: tables, acceptance criteria and limitations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from labeltide_bench.pages.cells import Cell, DrawSummary, methods_of, summarise_draws
from labeltide_bench.pages.cost import SLACK, TIDE, Goal, paired
from labeltide_bench.pages.method_order import base_name
from labeltide_bench.pages.result_tables import Entry, PlainTable, as_markdown, percent
from labeltide_bench.pages.verdict import count

PEOPLE_HEADS = {"frobenius": "Distance of Q", "train_error": "Train error", "test_error": "Test error"}
EXPERT_HEADS = {
    "expert_frobenius": "D against the majority",
    "expert_pairs_frobenius": "D against single others",
    "contested": "Contradicted, predicted",
    "contested_observed": "Contradicted, observed",
}
CLEAN = "clean"  # the reference of a data set with a column of clean labels
ASKED = {"test_error": "test error", "frobenius": "noise estimation error"}
WORDS = {
    "ignore": "takes every label as right",
    "anchor": "one Q for all times, from the surest steps",
    "volmin": "one Q for all times",
    "plugin": "a Q for each moment, from the surest steps",
    "discontinuous": "a Q for each moment, free of its neighbours",
    "continuous": "Q(t) from a network of time",
    TIDE: "Q(t) from labels that persist and networks, weighed by likelihood",
}
MEASURED = {
    "agreement": "the label on which all agree; steps without one do not count",
    "majority": "the label of most of the others; ties do not count",
    CLEAN: "the clean labels, which no fit sees",
}
LIMITS = (
    "Agreement is not truth. Mistakes that people share are invisible here: a method that finds them is counted as "
    "wrong, and one that repeats them as right.",
    "The counted noise is how often one person departs from the others. It holds the others' mistakes too, and so is "
    "no estimate of that person's own Q(t); a method that found the latter would still lie at a distance.",
    "A habit that a person keeps, such as another border between two classes, is noise to the others, but features and "
    "persistence cannot tell it from the truth when that person's labels are the only ones.",
    "Where the reference is agreement, only the easier steps are tested on, and all recorded labels there are right "
    "by construction.",
    "Folds of one data set share most of their training rows, so ± is not an error of the mean.",
)
EXPERT_CAPTION = (
    "Disagreement: D is the confusion matrix with another expert that an audit of the one person's labels predicts, at "
    "the same distance from the counts against the majority and from those against each single other, whom it "
    "predicts. Contradicted: the share of labels for which another person recorded another one."
)
CLEAN_LIMITS = (
    "The clean labels are taken for the truth. Where they are another measurement, its errors are counted as errors of "
    "the recorded labels.",
    LIMITS[-1],
)


class Line(NamedTuple):
    """One method of a table."""

    method: str
    words: str
    entries: list[Entry]


class PersonBlock(NamedTuple):
    """One person as the only label, or all of them on average."""

    name: str
    details: list[str]
    lines: list[Line]


class PeopleTable(NamedTuple):
    """One data set, as the paper's third table is laid out."""

    title: str
    caption: str
    blocks: list[PersonBlock]


@dataclass(frozen=True)
class People:
    """The section of the page about labels of real people."""

    title: str
    verdict: list[str]
    goals: list[Goal]
    limits: tuple[str, ...]
    heads: list[str]
    expert_heads: list[str]  # of predicted disagreement; empty where no record has it
    tables: list[PeopleTable]
    cells: list[Cell]


def make_people(cells: Sequence[Cell]) -> People | None:
    """The section, from the cells whose labels real people recorded; None where there are none."""
    if not cells:
        return None
    groups = [[cell for cell in cells if cell.name == name] for name in dict.fromkeys(cell.name for cell in cells)]
    goals = [goal for group in groups for metric in ASKED for goal in _goal(group, metric)]
    verdict = [f"{goal.title}: {goal.answer.lower()}. {goal.words}" for goal in goals]
    return People(
        "Labels of real people",
        verdict or ["Labels of real people, measured against those of others."],
        goals,
        CLEAN_LIMITS if all(cell.info.reference == CLEAN for cell in cells) else LIMITS,
        list(PEOPLE_HEADS.values()),
        list(_expert_heads(cells).values()),
        [_table(group, _expert_heads(cells)) for group in groups],
        list(cells),
    )


def _expert_heads(cells: Sequence[Cell]) -> dict[str, str]:
    """The heads of predicted disagreement that some record has; older records have none."""
    measured = {metric for cell in cells for runs in cell.runs.values() for run in runs for metric in run.metrics}
    return {metric: text for metric, text in EXPERT_HEADS.items() if metric in measured}


def _table(cells: Sequence[Cell], expert_heads: dict[str, str]) -> PeopleTable:
    first, methods = cells[0], methods_of(cells)
    blocks = [_block(cell.annotator, _details(cell), [cell], methods, expert_heads) for cell in cells]
    if len(cells) > 1:
        blocks.insert(0, _block("all, on average", [], cells, methods, expert_heads))
    caption = (
        f"Percent, mean ± standard deviation over {first.info.split}{_unfinished(cells)}. The person named is the only "
        f"label that methods see. Errors are measured against {MEASURED.get(first.info.reference, 'the reference')}. "
        "Distance of Q: mean Frobenius norm (x 100) between the estimated Q(t) and the matrices counted against "
        f"{_counted_against(first)} in ten cells of the clock, weighed by their steps."
    )
    caption += f" {EXPERT_CAPTION}" if expert_heads else ""
    return PeopleTable(first.name, caption, blocks)


def _counted_against(cell: Cell, others: str = "the others' majority") -> str:
    return "the clean labels" if cell.info.reference == CLEAN else others


def _unfinished(cells: Sequence[Cell]) -> str:
    """What is missing of a cross-validation that has not run to its end, as words for the caption."""
    planned = first if (first := cells[0].info.split.split(" ")[0]).isdigit() else "0"
    fewest = min(cell.over_draws(method, "test_error").n for cell in cells for method in methods_of(cells))
    return f", of which only {fewest} have run for every method so far" if fewest < int(planned) else ""


def _block(
    name: str, details: list[str], cells: Sequence[Cell], methods: Sequence[str], expert_heads: dict[str, str]
) -> PersonBlock:
    table = {method: {metric: mean_over_people(cells, method, metric) for metric in PEOPLE_HEADS} for method in methods}
    best = {
        metric: min((n[metric].mean for n in table.values() if n[metric].n), default=math.nan)
        for metric in PEOPLE_HEADS
    }
    lines = [
        Line(
            method,
            WORDS.get(base_name(method), ""),
            [_entry(numbers[metric], best[metric]) for metric in PEOPLE_HEADS]
            + [_entry(mean_over_people(cells, method, metric)) for metric in expert_heads],
        )
        for method, numbers in table.items()
    ]
    return PersonBlock(name, details, lines)


def mean_over_people(cells: Sequence[Cell], method: str, metric: str) -> DrawSummary:
    """Mean and spread over folds; over several people, of each fold's mean over them."""
    folds: dict[int, list[float]] = {}
    for cell in cells:
        for run in cell.runs.get(method, []):
            folds.setdefault(run.draw, []).append(run.metrics.get(metric, math.nan))
    return summarise_draws(sum(values) / len(values) for values in folds.values())


def _entry(summary: DrawSummary, best: float = -math.inf) -> Entry:
    if not summary.n:
        return Entry("")
    spread = percent(summary.spread) if math.isfinite(summary.spread) else ""
    return Entry(percent(summary.mean), spread, is_best=summary.mean <= best + SLACK)


def _details(cell: Cell) -> list[str]:
    details = [f"{percent(cell.rate)} % unlike {_counted_against(cell, 'the others')}"]
    if math.isfinite(cell.any_run.referenced):
        details.append(f"{percent(cell.any_run.referenced)} % of test steps have a reference")
    if math.isfinite(cell.any_run.observed_change):
        details.append(f"counted noise lies {percent(cell.any_run.observed_change)} from its own average over time")
    return details


def _goal(cells: Sequence[Cell], metric: str) -> list[Goal]:
    """Whether tide is at or below every other method, on average over the people of a data set, and for whom."""
    methods = methods_of(cells)
    others = {name: mean_over_people(cells, name, metric).mean for name in methods if name != TIDE}
    tide_mean = mean_over_people(cells, TIDE, metric).mean
    if not others or not math.isfinite(tide_mean):
        return []
    best = min(others, key=lambda name: others[name])
    behind = {cell.annotator: _behind(cell, metric) for cell in cells}
    better = sum(text == "" for text in behind.values())
    words = (
        f"{percent(tide_mean)} for tide, {percent(others[best])} for the best of the others on average ({best}). "
        f"At or below every other method for {better} of {count(len(cells), 'person').replace('persons', 'people')}."
    )
    missed = "; ".join(text for text in behind.values() if text)
    if missed:
        words += f" Not for {missed}."
    return [Goal(f"{cells[0].name}, {ASKED[metric]}", tide_mean <= others[best] + SLACK, words)]


def _behind(cell: Cell, metric: str) -> str:
    """By how much another method is ahead for one person, in points with the standard error over folds."""
    means = {name: cell.over_draws(name, metric).mean for name in cell.runs if name != TIDE}
    best = min(means, key=lambda name: means[name])
    above = paired(cell, TIDE, best, metric)
    if above.mean <= SLACK:
        return ""
    error = f" ± {100 * above.spread / math.sqrt(above.n):.1f}" if above.n > 1 else ""
    return f"{cell.annotator} ({best} is {100 * above.mean:.1f}{error} points lower)"


PEOPLE_FILE = "people.md"
NONE = "\N{EN DASH}"


def people_markdown(people: People) -> str:
    """All tables of the section, one after the other; the lowest error of each column is bold."""
    heads = ["Only label", "Method", *people.heads, *people.expert_heads]
    return "\n".join(as_markdown(_plain(table, heads)) for table in people.tables)


def _plain(table: PeopleTable, heads: list[str]) -> PlainTable:
    rows = [[block.name, line.method, *map(_text, line.entries)] for block in table.blocks for line in block.lines]
    return PlainTable(table.title, table.caption, heads, rows)


def _text(entry: Entry) -> str:
    if not entry.mean:
        return NONE
    text = f"{entry.mean} ± {entry.spread}" if entry.spread else entry.mean
    return f"**{text}**" if entry.is_best else text
