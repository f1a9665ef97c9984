"""The page of the paper, `paper.html`: tables and figures by the paper's numbers, from the folders of its studies."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from labeltide._files import write_atomically
from labeltide_bench.pages.environment import make_environment
from labeltide_bench.pages.paper.agreement import (
    MEASURES,
    Agreement,
    agreement_table,
    as_csv,
    difference_table,
    figure_agreement,
    table_agreements,
)
from labeltide_bench.pages.paper.claims import (
    Claim,
    changes_over_time,
    check_claims,
    claims_table,
    compare_claims,
    count_failed,
    p_text,
)
from labeltide_bench.pages.paper.match import MatchedFigure, match_figure
from labeltide_bench.pages.paper.panel import MARKERS
from labeltide_bench.pages.paper.panels import (
    Drawn,
    DrawnPanel,
    draw_depictions,
    draw_estimates,
    draw_matched,
    draw_noise_functions,
    key_of,
)
from labeltide_bench.pages.paper.pictures import draw_figure_one, draw_people_curves
from labeltide_bench.pages.paper.plain import PlainTable, as_markdown
from labeltide_bench.pages.paper.published_cells import published_studies
from labeltide_bench.pages.paper.studies import Studies, read_studies
from labeltide_bench.pages.paper.tables import printed_cells, printed_table, size_table, stress_table
from labeltide_bench.pages.paper.values import ACCURACY, CORRECTIONS, FIGURES, MAE, PAPER_NAMES, SIX, STATIC_STUDY
from labeltide_bench.pages.result_tables import Table
from labeltide_bench.pages.style import colours

PAPER_PAGE = "paper.html"
TABLES = {"Table 2": "mixed", "Table 3": "periodic"}


@dataclass(frozen=True)
class Key:
    """One method of the page: its names, colour, class and marker."""

    key: str
    ours: str
    in_figures: str
    in_text: str
    colour: str
    marker: str


@dataclass(frozen=True)
class FigureBlock:
    """A figure with the table of differences under it."""

    drawn: Drawn
    in_paper: bool
    differences: PlainTable | None


@dataclass(frozen=True)
class PaperPage:
    """Everything the template lays out."""

    keys: list[Key]
    corrections: list[Key]  # of figure 5
    verdict: list[str]
    bars: list[str]
    estimates: list[DrawnPanel]
    people_curves: list[DrawnPanel]
    noise: list[DrawnPanel]
    depictions: dict[str, str]  # shape → drawing
    blocks: list[FigureBlock]
    agreement: PlainTable
    claims: list[Claim]
    tables: list[Table]
    stress: PlainTable
    sizes: PlainTable
    missing: list[str]


def write_paper(folders: Sequence[Path], out: Path) -> Path:
    """Write `paper.html`, and agreement and claims as CSV and Markdown, from the folders of the paper's studies.

    Which study a folder holds is seen from its records, so the order does not matter.
    """
    studies = read_studies(folders)
    page, agreement = make_page(studies)
    claims, template = claims_table(page.claims, count_failed(studies)), make_environment().get_template("paper.html")
    texts = {
        "agreement.csv": as_csv(agreement),
        "agreement.md": as_markdown(page.agreement),
        "claims.csv": _rows_as_csv(claims),
        "claims.md": as_markdown(claims),
        PAPER_PAGE: template.render(page=page, claims_caption=claims.caption, p_text=p_text),
    }
    for name, text in texts.items():
        write_atomically(Path(out) / name, text.encode())
    return Path(out) / PAPER_PAGE


def make_page(studies: Studies) -> tuple[PaperPage, list[Agreement]]:
    """All numbers and drawings of the page, and the agreement in numbers."""
    matched = [
        match_figure(figure, studies.static if figure.file == STATIC_STUDY else studies.figures) for figure in FIGURES
    ]
    printed = {number: printed_cells(studies.tables, shape) for number, shape in TABLES.items()}
    agreement = [row for number, cells in printed.items() for row in table_agreements(number, cells)]
    agreement += [figure_agreement(each) for each in matched if each.cells]
    change = changes_over_time([*studies.static, *studies.tables, *studies.figures])
    claims = compare_claims(check_claims(studies, change), check_claims(published_studies(), change))
    moving = [cell for cells in printed.values() for cell in cells if cell.name == "moving"]
    page = PaperPage(
        keys=make_keys()[: len(SIX) + 1],
        corrections=make_keys()[len(SIX) + 1 :],
        verdict=[*_agreement_words(agreement), _claims_words(claims)],
        bars=[bar for cell in moving for bar in draw_figure_one(cell)],
        estimates=draw_estimates([cell for cell in moving if cell.true_noise is not None], [*SIX[1:], "tide"]),
        people_curves=draw_people_curves(studies.people),
        noise=draw_noise_functions(studies.static or studies.tables),
        depictions=draw_depictions(studies.static or studies.tables),
        blocks=[_block(each) for each in matched],
        agreement=agreement_table(agreement),
        claims=claims,
        tables=[printed_table(number, cells) for number, cells in printed.items() if cells],
        stress=stress_table(studies.people),
        sizes=size_table([*studies.tables, *studies.figures]),
        missing=studies.missing,
    )
    return page, agreement


def make_keys() -> list[Key]:
    """Every method of the page with the names that the paper gives it; one colour for one method."""
    others = [name for name in CORRECTIONS.values() if name != "no correction"]
    colour = colours([*SIX, "tide", *others])
    names = {**PAPER_NAMES, "tide": ("", "")}
    keys = [Key(key_of(name), name, *both, colour[name], MARKERS[name]) for name, both in names.items()]
    theirs = {ours: name for name, ours in CORRECTIONS.items()}
    return keys + [Key(key_of(name), name, theirs[name], "", colour[name], MARKERS["ignore"]) for name in others]


def _block(matched: MatchedFigure) -> FigureBlock:
    figure = matched.figure
    differences = difference_table(matched) if matched.cells else None
    return FigureBlock(draw_matched(matched, _caption(matched)), figure.in_paper, differences)


def _caption(matched: MatchedFigure) -> str:
    figure, is_accuracy = matched.figure, matched.figure.measure == ACCURACY
    what = "Accuracy on clean test labels (%)" if is_accuracy else "Mean absolute error of an entry of Q (%)"
    sentences = [
        f"{what} on {figure.dataset.split(',')[0]}, {figure.classes} classes, against the share of wrong labels."
    ]
    if figure.file == STATIC_STUDY:
        sentences.append("Training with the true Q(t), with its average over time, or without correction.")
    if not is_accuracy:
        sentences.append("The error of ignore is the noise itself; its curve leaves the panel at the top.")
    if not figure.in_paper:
        sentences.append(f"From the authors' repository ({figure.file}); the paper does not number it.")
    if not matched.cells:
        sentences.append("No records of ours were given.")
    return " ".join(sentences)


def _agreement_words(rows: Sequence[Agreement]) -> list[str]:
    sentences = []
    for measure, what in ((ACCURACY, "Accuracy"), (MAE, "An entry of Q")):
        kept = [row for row in rows if row.measure == MEASURES[measure] and row.points]
        points = sum(row.points for row in kept)
        if points:
            mean = sum(row.mean * row.points for row in kept) / points
            sentences.append(
                f"{what} differs from the paper's by {mean:.1f} points on average over {points:,} means in {len(kept)} "
                f"figures; {sum(row.in_band for row in kept):,} of ours lie in its bands."
            )
    return sentences


def _claims_words(claims: Sequence[Claim]) -> str:
    verdicts = [claim.verdict for claim in claims]
    counts = ", ".join(
        f"{verdicts.count(verdict)} {verdict}" for verdict in sorted(set(verdicts), key=verdicts.count, reverse=True)
    )
    return f"Verdicts on {len(claims)} claims of the paper: {counts}."


def _rows_as_csv(table: PlainTable) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([table.heads, *table.rows])
    return text.getvalue()
