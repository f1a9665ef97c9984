import numpy as np
import pytest

from labeltide_bench.pages.paper.sources import FIGURES, MAE, SHAPES, figure_values
from labeltide_bench.pages.published import dataset_sizes, printed

REPOSITORY = {
    figure.file: figure.dataset
    for figure in FIGURES
    if not figure.in_paper and figure.measure != MAE and figure.dataset in dataset_sizes()
}


def test_every_value_of_the_papers_figures_is_there():
    values = figure_values()
    assert sum(map(len, values.values())) == 5361
    assert set(values) == {figure.file for figure in FIGURES}
    assert {value.shape for group in values.values() for value in group} == set(SHAPES)


def test_the_figures_agree_with_table_2_and_their_bands_are_intervals_of_the_mean():
    differences, ratios = [], []
    for file, data in REPOSITORY.items():
        for value in figure_values()[file]:
            if (value.shape, value.wrong_percent) == ("mixed", 29):
                mean, spread = printed("mixed")[data]["test_error"][value.method]
                differences.append(abs(100 - value.value - mean))
                ratios.append((value.upper - value.lower) / 2 / (1.96 * spread / 10**0.5))
    assert len(differences) == 24
    assert np.mean(differences) < 0.15
    assert np.median(ratios) == pytest.approx(1, abs=0.02)


def test_the_papers_error_of_q_is_the_mean_absolute_error_of_an_entry():
    """Without correction Q is the identity, and the mean absolute entry of I - Q is twice the rate over the classes."""
    for figure in FIGURES:
        if figure.measure == MAE:
            for value in figure_values()[figure.file]:
                if value.method == "ignore":
                    assert value.value == pytest.approx(2 / figure.classes * value.wrong_percent, abs=0.9)


def test_figures_are_numbered_in_the_order_of_the_paper():
    assert [figure.number for figure in FIGURES if figure.in_paper] == [f"Figure {index}" for index in range(5, 12)]
