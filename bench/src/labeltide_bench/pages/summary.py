"""Summary of the records of a study: all numbers and sentences of the page as plain data."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from labeltide_bench.pages.cells import UNIFORM, Cell, make_cells, methods_of
from labeltide_bench.pages.cost import Cost, make_cost
from labeltide_bench.pages.people import People, make_people
from labeltide_bench.pages.published import headline
from labeltide_bench.pages.result_tables import MAIN, MORE, Table, make_table, simple_table
from labeltide_bench.pages.results import Results, Run
from labeltide_bench.pages.verdict import Ranks, Wins, count, count_wins, mean_ranks, write_verdict


class Fact(NamedTuple):
    """One line of what was run."""

    name: str
    value: str


class Dataset(NamedTuple):
    """One line of the table of data sets."""

    name: str
    origin: str
    note: str
    split: str
    size: str
    classes: str


@dataclass(frozen=True)
class Section:
    """The cells of one kind: two classes, more classes, or a variant of the noise."""

    title: str
    slug: str
    cells: list[Cell]
    headlines: list[Cell]  # one level for each data set and shape
    tables: list[Table]
    other_levels: list[tuple[str, list[Table]]]  # by shape
    more: list[Table]  # further metrics at the level of the headlines


@dataclass(frozen=True)
class Summary:
    """All numbers and words of the page."""

    title: str
    description: str
    verdict: list[str]
    facts: list[Fact]
    datasets: list[Dataset]
    origins: list[str]
    wins: Wins | None
    ranks: Ranks | None
    cost: Cost | None
    people: People | None
    sections: list[Section]
    seconds: Table | None


def summarise(results: Results) -> Summary:
    """Everything the page says, from the records alone."""
    cells = make_cells(results.runs)
    recorded, drawn = ([cell for cell in cells if bool(cell.annotator) is kind] for kind in (True, False))
    sections, people = make_sections(drawn), make_people(recorded)
    several = len(methods_of(cells)) > 1
    return Summary(
        title=results.title,
        description=results.description,
        verdict=[
            *(write_verdict(drawn, [cell for section in sections for cell in section.headlines]) if drawn else []),
            *(people.verdict if people else []),
        ],
        facts=_facts(results, cells),
        datasets=_datasets(cells),
        origins=_origins(cells),
        wins=count_wins(cells) if several else None,
        ranks=mean_ranks(cells) if several else None,
        cost=make_cost(drawn),
        people=people,
        sections=sections,
        seconds=_seconds(cells),
    )


def make_sections(cells: Sequence[Cell]) -> list[Section]:
    """Two classes first, then more classes, then the other variants of the noise."""
    grouped: dict[tuple[bool, str, bool], list[Cell]] = {}
    for cell in cells:
        grouped.setdefault((cell.variant != UNIFORM, cell.variant, cell.n_classes > 2), []).append(cell)
    return [_section(variant, many, grouped[key]) for key in sorted(grouped) for _, variant, many in [key]]


def _section(variant: str, many: bool, cells: list[Cell]) -> Section:
    kind = "More than two classes" if many else "Two classes"
    title = kind if variant == UNIFORM else f"{kind}, {variant} noise"
    headlines = [headline(group) for group in _grouped(cells, "task", "shape")]
    tables, other_levels, more = [], [], []
    for shape in dict.fromkeys(cell.shape for cell in cells):
        shown = [cell for cell in headlines if cell.shape == shape]
        tables.append(make_table(f"{shape} noise", _levels(shown), shown, MAIN))
        more.append(make_table(f"{shape} noise", _levels(shown), shown, MORE))
        rest = [cell for cell in cells if cell.shape == shape and not any(cell is other for other in shown)]
        if rest:
            groups = sorted(_grouped(rest, "level"), key=lambda group: group[0].rate)
            made = [make_table(f"{shape} noise", _levels(group), group, MAIN) for group in groups]
            other_levels.append((shape, made))
    more = [table for table in more if table.blocks]
    return Section(title, slug(title), cells, headlines, tables, other_levels, more)


def _grouped(cells: Iterable[Cell], *names: str) -> list[list[Cell]]:
    """Cells that agree in the named attributes, in the order in which they come."""
    groups: dict[tuple[object, ...], list[Cell]] = {}
    for cell in cells:
        groups.setdefault(tuple(getattr(cell, name) for name in names), []).append(cell)
    return list(groups.values())


def _levels(cells: Sequence[Cell]) -> str:
    """The level of a table in words; where data sets have different ones, all of them."""
    return "; ".join(dict.fromkeys(cell.level_text for cell in cells))


def slug(text: str) -> str:
    """A name for files and anchors: letters, digits and dashes only."""
    return re.sub(r"[^a-z0-9]+", "-", text.casefold()).strip("-")[:60] or "unnamed"


def _facts(results: Results, cells: Sequence[Cell]) -> list[Fact]:
    runs = results.runs
    draws = sorted({len(group) for cell in cells for group in cell.runs.values()})
    rates = [run.rate for run in runs if np.isfinite(run.rate)]
    facts = [
        Fact("Runs", f"{count(len(runs), 'run')} in {count(len(cells), 'cell')}"),
        Fact("Data sets", _listed(cell.name for cell in cells)),
        Fact("Noise shapes", _listed(cell.shape for cell in cells)),
        Fact("Wrong labels", f"{100 * min(rates):.0f} to {100 * max(rates):.0f} % on average" if rates else ""),
        Fact("Variants", _listed(cell.variant for cell in cells)),
        Fact("Methods", _listed(methods_of(cells))),
        Fact(
            "Draws",
            f"{draws[0]}" if len(draws) == 1 else f"{draws[0]} to {draws[-1]} for each method and cell",
        ),
        Fact("Devices", _listed(run.device for run in runs)),
        Fact("Time of all fits", duration(float(np.nansum([run.seconds for run in runs])))),
        Fact("Finished", _span(runs)),
        Fact("Versions", _listed(f"{name} {version}" for run in runs for name, version in run.versions.items())),
        Fact("Commit", _listed(run.commit[:12] for run in runs)),
        Fact("Lines passed over", _passed_over(results)),
    ]
    return [fact for fact in facts if fact.value]


def _passed_over(results: Results) -> str:
    parts = []
    if results.unreadable:
        parts.append(f"{count(results.unreadable, 'line')} could not be read (a run that was cut off leaves one)")
    if results.repeated:
        parts.append(f"{count(results.repeated, 'line')} replaced by a later line of the same run")
    return "; ".join(parts)


def _listed(values: Iterable[str]) -> str:
    """Values once each; between semicolons where a value has a comma of its own."""
    kept = [value for value in dict.fromkeys(values) if value]
    return ("; " if any("," in value for value in kept) else ", ").join(kept)


def _span(runs: Sequence[Run]) -> str:
    dates = sorted({run.finished[:10] for run in runs if run.finished})
    return dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}" if dates else ""


def duration(seconds: float) -> str:
    """Seconds in the unit a person would use."""
    for size, name in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {name}"
    return f"{seconds:.1f} seconds"


ORIGINS = {True: "the paper's own", False: "a substitute", None: "not in the paper"}


def _datasets(cells: Sequence[Cell]) -> list[Dataset]:
    firsts = [group[0] for group in _grouped(cells, "task")]
    return [
        Dataset(
            cell.name,
            ORIGINS.get(cell.info.faithful, ORIGINS[None]),
            cell.info.note,
            cell.info.split,
            _size(cell),
            ", ".join(cell.class_names),
        )
        for cell in firsts
    ]


def _size(cell: Cell) -> str:
    info = cell.info
    sequences = f"{_known(info.n_train)} + {_known(info.n_test)} sequences"
    return f"{sequences} of {_known(info.n_steps)} steps, {_known(info.n_features)} features"


def _known(value: int | None) -> str:
    return "?" if value is None else str(value)


def _origins(cells: Sequence[Cell]) -> list[str]:
    """Which numbers may be held against the paper's, and which may not."""
    names: dict[bool | None, list[str]] = {True: [], False: [], None: []}
    for group in _grouped(cells, "task"):
        faithful = group[0].info.faithful
        names[faithful if isinstance(faithful, bool) else None].append(group[0].name)
    sentences = []
    if names[True]:
        sentences.append(f"Data that are the paper's own: {_listed(names[True])}.")
    if names[False]:
        sentences.append(
            f"Substitutes for the paper's data: {_listed(names[False])}. Their differences from the "
            "published numbers mix two things, other data and another implementation, so only methods on the "
            "same row compare."
        )
    if names[None]:
        sentences.append(f"Data that the paper does not have: {_listed(names[None])}.")
    return sentences


def _seconds(cells: Sequence[Cell]) -> Table | None:
    """Mean seconds a fit, for each data set and method."""
    times: dict[str, dict[str, list[float]]] = {}
    for cell in cells:
        for method, runs in cell.runs.items():
            kept = [run.seconds for run in runs if np.isfinite(run.seconds)]
            times.setdefault(cell.name, {}).setdefault(method, []).extend(kept)
    rows = {
        name: {method: float(np.mean(kept)) for method, kept in methods.items() if kept}
        for name, methods in times.items()
    }
    if not any(rows.values()):
        return None
    fleets = sorted({run.fleet for cell in cells for runs in cell.runs.values() for run in runs})
    sizes = str(fleets[0]) if len(fleets) == 1 else f"{fleets[0]} to {fleets[-1]}"
    caption = f"Fits trained together share their time equally; {sizes} were trained together here."
    return simple_table(
        "mean over all fits of a data set and method", caption, rows, methods_of(cells), lambda value: f"{value:.3g}"
    )
