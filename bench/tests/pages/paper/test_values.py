import pytest

from labeltide_bench.pages.paper.values import FIGURES, MAE, SHAPES, figure_values


def test_every_value_of_the_papers_figures_is_there():
    values = figure_values()
    assert sum(map(len, values.values())) == 5361
    assert set(values) == {figure.file for figure in FIGURES}
    assert {value.shape for group in values.values() for value in group} == set(SHAPES)


def test_the_figure_agrees_with_the_printed_table():
    (value,) = [
        value
        for value in figure_values()["all_acc_HAR_2none"]
        if (value.shape, value.method, value.wrong_percent) == ("mixed", "continuous", 29)
    ]
    assert value.value == pytest.approx(100 - 4.2, abs=0.05)
    assert value.upper - value.lower == pytest.approx(2 * 1.96 * 2.2 / 10**0.5, rel=0.05)  # an interval of the mean


def test_the_papers_error_of_q_is_the_mean_absolute_error_of_an_entry():
    """Without correction Q is the identity, and the mean absolute entry of I - Q is twice the rate over the classes."""
    for figure in FIGURES:
        if figure.measure == MAE:
            for value in figure_values()[figure.file]:
                if value.method == "ignore":
                    assert value.value == pytest.approx(2 / figure.classes * value.wrong_percent, abs=0.9)


def test_figures_are_numbered_in_the_order_of_the_paper():
    assert [figure.number for figure in FIGURES if figure.in_paper] == [f"Figure {place}" for place in range(5, 12)]
