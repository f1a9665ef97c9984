import json

import pytest

from labeltide_bench.pages.cells import DrawSummary, make_cells
from labeltide_bench.pages.paper.agreement import agreement_of, as_csv, figure_agreement
from labeltide_bench.pages.paper.sources import (
    FIGURES,
    STATIC_STUDY,
    FigureValue,
    Interval,
    Point,
    draws_text,
    interval,
    match_figure,
    match_levels,
    published_studies,
)
from labeltide_bench.pages.results import DatasetInfo, Run

METRICS = {"test_error": 0.1}


def cell(rate, error=0.1, **changes):
    run = Run(
        "moving",
        DatasetInfo(classes=("a", "b")),
        "mixed",
        json.dumps({"rate": rate}),
        rate,
        "uniform",
        "tide",
        0,
        {"test_error": error},
    )
    return make_cells([run])[0]


def value(percent, mean=90.0, half=1.0):
    return FigureValue("x", "moving", 2, "mixed", "tide", "accuracy", percent, mean, mean - half, mean + half)


def test_cells_meet_the_level_of_the_nearest_rate():
    cells = [cell(0.0), cell(0.317), cell(0.41)]
    assert match_levels(cells, [0, 32, 41]) == [(cells[0], 0), (cells[1], 32), (cells[2], 41)]


def test_two_close_levels_are_matched_one_to_one():
    cells = [cell(0.395), cell(0.40)]
    assert match_levels(cells, [40.0]) == [(cells[0], pytest.approx(39.5)), (cells[1], 40.0)]
    assert match_levels(cells, [39.0, 40.0]) == [(cells[0], 39.0), (cells[1], 40.0)]


def test_a_level_that_is_too_far_stays_alone():
    cells = [cell(0.2)]
    assert match_levels(cells, [25.0]) == [(cells[0], 20.0), (None, 25.0)]
    assert match_levels([], [25.0]) == [(None, 25.0)]
    assert match_levels(cells, []) == [(cells[0], 20.0)]


def test_an_interval_is_students_of_the_mean():
    made = interval(DrawSummary(0.1, 0.02, 10, 0), is_accuracy=True)
    assert made.mean == pytest.approx(90)
    assert made.upper - made.mean == pytest.approx(2.262 * 2 / 10**0.5, abs=1e-3)


def test_agreement_counts_differences_bands_and_overlaps():
    points = [
        Point(0, Interval(90.5, 90, 91, 10), value(0)),  # in the band
        Point(10, Interval(92.0, 90.8, 93.2, 10), value(10)),  # only its interval meets it
        Point(20, Interval(80.0, 79, 81, 10), value(20)),
        Point(30, Interval(80.0, 79, 81, 10), None),
    ]
    made = agreement_of("Figure 6", "moving", "", "accuracy", {"tide": points})
    assert (made.printed.points, made.printed.near, made.overlaps) == (3, 1, 2)
    assert made.printed.size == pytest.approx((0.5 + 2 + 10) / 3)
    assert made.printed.signed == pytest.approx((0.5 + 2 - 10) / 3)
    assert made.distances == {"tide": pytest.approx(made.printed.size)}
    assert "Figure 6,moving,,accuracy,4.167,-2.500" in as_csv([made])


def test_agreement_counts_the_public_code_by_standard_errors():
    ours = Interval(90.0, 89, 91, 10, 0.5)
    points = [
        Point(0, ours, value(0), Interval(91.0, 88, 94, 3, 0.4), 90.4),  # 1.0 is within 2 x 0.64
        Point(10, ours, None, Interval(92.0, 88, 94, 3, 0.4), 92.0),
        Point(20, ours, value(20)),
    ]
    made = agreement_of("Figure 6", "moving", "", "accuracy", {"tide": points})
    assert made.code == (2, pytest.approx(1.5), pytest.approx(-1.5), 1)
    assert made.between == (1, pytest.approx(0.4), pytest.approx(0.4), 1)


def test_the_papers_own_numbers_agree_with_themselves():
    studies = published_studies()
    for figure in FIGURES:
        made = figure_agreement(
            match_figure(figure, studies.static if figure.file == STATIC_STUDY else studies.figures)
        )
        assert made.printed.size == pytest.approx(0, abs=1e-6)
        assert made.printed.near == made.printed.points > 200


def test_a_shift_of_all_accuracies_is_the_difference_that_is_found(tmp_path):
    from labeltide_bench.pages.paper.sources import read_studies
    from pages.paper.fake import write_studies

    studies = read_studies(write_studies(tmp_path, draws=1, shift=-3)[2:3])
    made = figure_agreement(match_figure(FIGURES[0], studies.static))
    assert made.printed.signed == pytest.approx(-3, abs=0.15)
    assert made.printed.points == 58 * 5


def test_a_method_of_ours_alone_is_shown_in_panels_of_which_it_has_half_of_the_levels():
    runs = [
        Run("moving", DatasetInfo(classes=("a", "b")), shape, json.dumps(rate), rate, "uniform", name, 0, METRICS)
        for name, shape, levels in (
            ("ignore", "mixed", (0.1, 0.2, 0.3)),
            ("ignore", "static", (0.1, 0.2, 0.3)),
            ("tide", "mixed", (0.1, 0.2)),
            ("tide", "static", (0.1,)),
        )
        for rate in levels
    ]
    figure = next(figure for figure in FIGURES if figure.dataset == "moving")
    matched = match_figure(figure, make_cells(runs))
    assert "tide" in matched.methods
    assert len(matched.points("tide", "mixed")) == 2
    assert not matched.points("tide", "static")


def test_the_papers_own_form_of_the_data_takes_the_place_of_a_substitute():
    runs = [
        Run(
            name,
            DatasetInfo(faithful=own, classes=("a", "b")),
            "mixed",
            '{"rate": 0.1}',
            0.1,
            "uniform",
            "ignore",
            0,
            METRICS,
        )
        for name, own in (("senior", False), ("senior, 1 Hz", True), ("senior, by subject", False))
    ]
    figure = next(figure for figure in FIGURES if figure.dataset == "senior")
    for kept, is_substitute in ((runs, False), (runs[:1], True)):
        matched = match_figure(figure, make_cells(kept))
        assert len(matched.cells) == 1
        assert matched.is_substitute is is_substitute


def test_draws_are_one_number_where_all_methods_have_the_same():
    cells = [cell(0.1), cell(0.2)]
    assert draws_text(cells, ["tide"]) == "1 draws."
    cells[0].runs["ignore"] = cells[0].runs["tide"] * 3
    cells[0].runs["anchor"] = cells[0].runs["tide"] * 3
    assert draws_text(cells, ["tide", "ignore", "anchor"]) == "3 draws (tide: 1)."
    assert draws_text([], ["tide"]) == ""
