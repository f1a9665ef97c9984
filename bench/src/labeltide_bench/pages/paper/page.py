"""The page of the paper, `paper.html`: tables and figures by the paper's numbers, from the folders of its studies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from labeltide._files import csv_text, write_atomically
from labeltide_bench.pages.cells import Cell
from labeltide_bench.pages.environment import make_environment
from labeltide_bench.pages.paper.agreement import (
    EXACTLY,
    Agreement,
    CodeDifferences,
    agreement_table,
    agreement_words,
    as_csv,
    code_dataset_table,
    code_differences,
    code_table,
    code_words,
    difference_table,
    exact_agreements,
    exact_words,
    figure_agreement,
    mean_text,
    method_table,
    print_and_code,
    table_agreements,
    table_point,
)
from labeltide_bench.pages.paper.claims import (
    FAILS,
    HOLDS,
    PARTLY,
    UNTESTED,
    Claim,
    changes_over_time,
    check_claims,
    claims_table,
    compare_claims,
    count_failed,
    p_text,
)
from labeltide_bench.pages.paper.drawing import (
    IN_STRESS,
    MARKERS,
    DrawnFigure,
    DrawnPanel,
    draw_depictions,
    draw_dots,
    draw_estimates,
    draw_matched,
    draw_noise_functions,
    draw_people_curves,
    draw_strips,
    key_of,
    panels_left,
)
from labeltide_bench.pages.paper.sources import (
    ACCURACY,
    CODE,
    CORRECTIONS,
    FIGURES,
    PAPER_NAMES,
    SHAPES,
    SIX,
    STATIC_STUDY,
    TABLES,
    TEXT,
    MatchedFigure,
    Studies,
    draws_text,
    match_figure,
    public_code_studies,
    published_studies,
    read_studies,
)
from labeltide_bench.pages.paper.tables import printed_table, size_table, stress_table
from labeltide_bench.pages.result_tables import PlainTable, as_markdown
from labeltide_bench.pages.style import colours

PAPER_PAGE = "paper.html"
MORE = ", ours exactly as published"  # in the title of a table
REACH = {"test_error": 8, "absolute": 4}  # points to each side of the strips of differences
# Far from the colours of the six methods and of each other: at least 47 in CIELAB, contrast of 3 on black and on white.
CORRECTION_COLOURS = {
    "forward, temporal Q": "#c50691",
    "forward, static Q": "#fd1303",
    "backward, temporal Q": "#1aab0c",
    "backward, static Q": "#e219fc",
}


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

    drawn: DrawnFigure
    in_paper: bool
    keys: list[Key]
    differences: PlainTable | None


@dataclass(frozen=True)
class PaperPage:
    """Everything the template lays out."""

    keys: list[Key]
    corrections: list[Key]  # of figure 5
    verdict: list[str]
    strips: list[DrawnPanel]  # ours less the public code
    exact: list[DrawnPanel]  # the same, of ours trained exactly as in the code
    dots: dict[str, list[str]]  # tables 2 and 3: the paper's own data, then substitutes
    estimates: list[DrawnPanel]
    people_curves: list[DrawnPanel]
    noise: list[DrawnPanel]
    depictions: dict[str, str]  # shape → drawing
    blocks: list[FigureBlock]
    agreement: list[PlainTable]
    agreement_words: list[str]
    code: list[PlainTable]  # ours less the public code
    claims: list[Claim]
    tables: list[PlainTable]  # 2 and 3
    stress: PlainTable
    sizes: PlainTable
    missing: list[str]
    draws: dict[str, str]  # figures 1 to 3: draws behind a mean


def write_paper(folders: Sequence[Path], out: Path) -> Path:
    """Write `paper.html`, and its tables as CSV and Markdown, from the folders of the paper's studies.

    Which study a folder holds is seen from its records, so the order does not matter.
    """
    studies = read_studies(folders)
    page, agreement = make_page(studies)
    claims, template = claims_table(page.claims, count_failed(studies)), make_environment().get_template("paper.html")
    texts = {
        "agreement.csv": as_csv(agreement),
        "agreement.md": _markdown(page.agreement),
        "public_code.md": _markdown(page.code),
        "tables.md": _markdown(page.tables),
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
    printed = {number: studies.printed(shape) for number, shape in TABLES.items()}
    agreement = [row for number, cells in printed.items() for row in table_agreements(number, cells)]
    agreement += [figure_agreement(each) for each in matched if each.cells]
    agreement += [row for each in ((CODE, studies.code), (TEXT, studies.text)) for row in exact_agreements(*each)]
    by_default = [row for row in agreement if EXACTLY not in row.name]
    exactly = [row for row in agreement if EXACTLY in row.name]
    change = changes_over_time([*studies.static, *studies.tables, *studies.figures])
    claims = compare_claims(
        check_claims(studies, change),
        check_claims(published_studies(), change),
        check_claims(public_code_studies(), {}),
    )
    differences = [row for row in code_differences(studies.figures) if row.method in SIX]
    with_code = list(differences)
    for study in (studies.published, studies.code, studies.text):  # the first has the cells of the public code
        with_code += [row for row in code_differences(study) if row.method not in {each.method for each in with_code}]
    exact = [row for row in code_differences(studies.published) if row.method.endswith(CODE)]
    all_printed = [cell for cells in printed.values() for cell in cells]
    faithful = [cell for cell in all_printed if cell.info.faithful is not False]
    moving = [cell for cell in studies.tables if cell.name == "moving" and cell.percents in ((29,), (30,))]
    page = PaperPage(
        keys=make_keys()[: len(SIX) + 1],
        corrections=make_keys()[len(SIX) + 1 :],
        verdict=[
            sentence
            for sentence in (
                claims_words(claims),
                exact_words(exact),
                code_words(differences),
                print_and_code(faithful),
            )
            if sentence
        ],
        strips=_strips(differences),
        exact=_strips(exact),
        dots={
            kind: [drawing for cell in kept for drawing in _dots(cell)]
            for kind, kept in (("own", faithful), ("substitutes", [c for c in all_printed if c not in faithful]))
        },
        estimates=draw_estimates([cell for cell in moving if cell.true_noise is not None], [*SIX[1:], "tide"]),
        people_curves=draw_people_curves(studies.people),
        noise=draw_noise_functions(studies.static or studies.tables),
        depictions=draw_depictions(studies.static or studies.tables),
        blocks=[_block(each) for each in matched],
        agreement=[agreement_table(by_default), method_table(by_default)]
        + ([agreement_table(exactly, MORE), method_table(exactly, MORE)] if exactly else []),
        agreement_words=agreement_words(by_default),
        code=[code_table(with_code), code_dataset_table(with_code)] if with_code else [],
        claims=claims,
        tables=[printed_table(number, TABLES[number], cells) for number, cells in printed.items() if cells],
        stress=stress_table(studies.people),
        sizes=size_table([*studies.tables, *studies.figures]),
        missing=studies.missing,
        draws={
            "tables": draws_text(moving, SIX),
            "printed": draws_text(all_printed, [*SIX, "tide"], "runs"),
            "people": draws_text(studies.people, IN_STRESS, "folds"),
        },
    )
    return page, agreement


def _strips(differences: Sequence[CodeDifferences]) -> list[DrawnPanel]:
    """Ours less the public code's: one drawing for test errors, one for errors of Q."""
    if not differences:
        return []
    errors, of_q = (
        [(row.method.split(",")[0], d.values, mean_text(d.values)) for row in differences if (d := pick(row)).values]
        for pick in (lambda row: row.comparable if row.failed[1] else row.errors, lambda row: row.q)
    )
    return [
        draw_strips("Test error: ours less the public code (points)", errors, REACH["test_error"]),
        draw_strips("Error of Q: ours less the public code (points)", of_q, REACH["absolute"]),
    ]


def _dots(cell: Cell) -> list[str]:
    """Test error and error of Q of a cell of table 2 or 3, all three sources; no print beside substitute data."""
    titles = {"test_error": "test error (%)", "absolute": "error of Q / 0.30 (%)"}
    drawings = []
    for metric, title in titles.items():
        methods = [name for name in (*SIX, "tide") if name in cell.runs and (metric != "absolute" or name != "ignore")]
        points = [(name, table_point(cell, name, metric)) for name in methods]
        if cell.info.faithful is False:
            points = [(name, point._replace(paper=None)) for name, point in points]
        drawings.append(draw_dots(f"{cell.name}, {cell.shape}: {title}", points))
    return drawings


def _markdown(tables: Sequence[PlainTable]) -> str:
    return "\n".join(map(as_markdown, tables))


def make_keys() -> list[Key]:
    """Every method of the page with the names that the paper gives it; one colour for one method."""
    colour = colours([*SIX, "tide"]) | CORRECTION_COLOURS
    names = {**PAPER_NAMES, "tide": ("", "")}
    names |= {ours: (theirs, "") for theirs, ours in CORRECTIONS.items() if ours in CORRECTION_COLOURS}
    return [Key(key_of(name), name, *both, colour[name], MARKERS[key_of(name)]) for name, both in names.items()]


def _block(matched: MatchedFigure) -> FigureBlock:
    figure = matched.figure
    differences = difference_table(matched) if matched.cells else None
    shown = {key_of(method) for method in matched.methods}
    keys = [key for key in make_keys() if key.key in shown]
    return FigureBlock(draw_matched(matched, caption_of(matched)), figure.in_paper, keys, differences)


def _rows_as_csv(table: PlainTable) -> str:
    return csv_text([table.heads, *table.rows])


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
    if any(point.code for point in matched.points()):
        sentences.append("Hollow squares: the public code, run by us.")
    if not figure.in_paper:
        sentences.append(f"From the authors' repository ({figure.file}); the paper does not number it.")
    sentences.append(draws_text(matched.cells, matched.methods) or "No records of ours were given.")
    for method in matched.methods:
        n_levels = sum(point.ours is not None for point in matched.points(method))
        if 0 < n_levels < len(matched.cells):
            sentences.append(f"{method.capitalize()} has {n_levels} of {len(matched.cells)} levels.")
    return " ".join(sentences)


def _about_q(matched: MatchedFigure) -> list[str]:
    left = panels_left(matched)
    panels = "every panel" if len(left) == len(SHAPES) else f"the panels {', '.join(left)}"
    leaves = f"; its curve leaves {panels} at the top" if left else ""
    return [f"The error of ignore is the noise itself{leaves}.", "The paper shows no Q for discontinuous."]


def claims_words(claims: Sequence[Claim]) -> str:
    """How many claims hold by each source: "Of 18 claims of the paper 10 hold here, 8 hold partly."."""
    counts = [(sum(claim.verdict == verdict for claim in claims), verbs) for verdict, verbs in VERBS.items()]
    parts = [f"{count} {one if count == 1 else several}" for count, (one, several) in counts if count]
    text = f"Of {len(claims)} claims of the paper {', '.join(parts)}."
    for words, verdicts in (
        ("on the means that the paper published", [claim.in_paper for claim in claims if claim.in_paper]),
        (
            "on the 60 cells of its public code, which have less power",
            [claim.in_code for claim in claims if claim.in_code],
        ),
    ):
        held, partly = (sum(text.startswith(f"{kind},") for text in verdicts) for kind in (HOLDS, PARTLY))
        text += f" The same tests {words}: {held} of {len(verdicts)} hold, {partly} partly." if verdicts else ""
    return text
