"""The report of a study: one self-contained HTML page and its figures, from a results folder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from labeltide._files import write_atomically
from labeltide_bench.pages.cells import Cell, methods_of
from labeltide_bench.pages.charts import draw_levels, draw_over_time, draw_ranks
from labeltide_bench.pages.cost import COST_FILES, as_csv, as_markdown
from labeltide_bench.pages.environment import make_environment
from labeltide_bench.pages.figures import draw_recovery, draw_shapes
from labeltide_bench.pages.people import PEOPLE_FILE, people_markdown
from labeltide_bench.pages.published import FAR, source
from labeltide_bench.pages.results import Run, read_results
from labeltide_bench.pages.style import Palette, Picture, colours
from labeltide_bench.pages.summary import Section, Summary, slug, summarise

PAGE = "report.html"
MAX_METHODS = 60  # 300 took minutes, most of it for pictures


@dataclass(frozen=True)
class SectionFigures:
    """The pictures of one section."""

    shapes: Picture | None
    levels: list[Picture]
    recovery: list[tuple[str, list[Picture]]]  # by data set
    over_time: list[Picture]

    def __iter__(self) -> Iterator[Picture]:
        yield from [self.shapes] if self.shapes else []
        yield from self.levels
        yield from (picture for _, pictures in self.recovery for picture in pictures)
        yield from self.over_time


def write_report(results: Path, out: Path | None = None) -> Path:
    """Write `report.html` and `figures/` from the records of a results folder, and give back the page's path.

    Where tide ran beside its reference on clean labels, `cost.csv` and `cost.md` hold that section of the page; where
    labels are those of real annotators, `people.md` holds their tables.

    Parameters
    ----------
    results : folder with `records.parquet` or `records.jsonl`, and the copy of the study
    out : folder for the page; the results folder unless named
    """
    results = Path(results)
    out = results if out is None else Path(out)
    found = read_results(results)
    _check_methods(found.runs, results)
    summary = summarise(found)
    people_cells = summary.people.cells if summary.people else []
    palette = colours(methods_of([*(cell for section in summary.sections for cell in section.cells), *people_cells]))
    figures = [draw_section(section, palette) for section in summary.sections]
    people = draw_people(people_cells, palette)
    ranks = draw_ranks("mean-ranks", summary.ranks, palette) if summary.ranks else None
    drawn: list[Iterable[Picture]] = [*figures, *(pictures for _, pictures in people)]
    for picture in [*([ranks] if ranks else []), *(picture for each in drawn for picture in each)]:
        picture.save(out / "figures")
    if summary.cost:
        for name, text in zip(COST_FILES, (as_csv(summary.cost), as_markdown(summary.cost)), strict=True):
            write_atomically(out / name, text.encode())
    if summary.people:
        write_atomically(out / PEOPLE_FILE, people_markdown(summary.people).encode())
    page = out / PAGE
    write_atomically(page, render(summary, figures, ranks, people).encode())
    return page


def _check_methods(runs: Sequence[Run], folder: Path) -> None:
    count = len({run.method for run in runs})
    if count > MAX_METHODS:
        raise ValueError(
            f"A page compares at most {MAX_METHODS} methods, of which nobody reads more. The records in {folder} have "
            f"{count}. Keep the lines of fewer methods in another folder."
        )


def render(
    summary: Summary,
    figures: Sequence[SectionFigures],
    ranks: Picture | None,
    people: Sequence[tuple[str, list[Picture]]] = (),
) -> str:
    """The page's text; every name that came from a record is escaped."""
    parts = list(zip(summary.sections, figures, strict=True))
    template = make_environment().get_template("page.html")
    return template.render(summary=summary, parts=parts, ranks=ranks, people=people, source=source(), far=FAR)


def draw_section(section: Section, palette: Palette) -> SectionFigures:
    """All pictures of a section; names are unique within the study, and a method has one colour in all of it."""
    datasets = list(dict.fromkeys((cell.task, cell.name) for cell in section.cells))
    levels, recovery, over_time = [], [], []
    for index, (task, name) in enumerate(datasets, start=1):
        stem = f"{section.slug}-{index}-{slug(name)}"
        headlines = [cell for cell in section.headlines if cell.task == task]
        levels.append(draw_levels(f"{stem}-levels", [cell for cell in section.cells if cell.task == task], palette))
        over_time.append(draw_over_time(f"{stem}-over-time", headlines, palette))
        recovery.append((name, _recovery(stem, headlines, palette)))
    return SectionFigures(
        draw_shapes(f"{section.slug}-shapes", section.cells, section.headlines),
        [picture for picture in levels if picture],
        [(name, pictures) for name, pictures in recovery if pictures],
        [picture for picture in over_time if picture],
    )


def draw_people(cells: Sequence[Cell], palette: Palette) -> list[tuple[str, list[Picture]]]:
    """For each data set with labels of real people: the noise of each, counted and estimated, then errors."""
    by_dataset = []
    for index, name in enumerate(dict.fromkeys(cell.name for cell in cells), start=1):
        dataset_cells, stem = [cell for cell in cells if cell.name == name], f"recorded-{index}-{slug(name)}"
        pictures = [draw_recovery(f"{stem}-q-{slug(cell.annotator)}", cell, palette) for cell in dataset_cells]
        pictures.append(draw_over_time(f"{stem}-over-time", dataset_cells, palette))
        by_dataset.append((name, [picture for picture in pictures if picture]))
    return by_dataset


def _recovery(stem: str, cells: Sequence[Cell], palette: Palette) -> list[Picture]:
    named = [(f"{stem}-q-{index}-{slug(cell.shape)}", cell) for index, cell in enumerate(cells, start=1)]
    return [picture for name, cell in named if (picture := draw_recovery(name, cell, palette))]
