import pytest

from labeltide_bench.pages.cells import make_cells
from labeltide_bench.pages.charts import draw_levels
from labeltide_bench.pages.results import read_results
from labeltide_bench.pages.style import COLOURS, colours, fence


@pytest.mark.parametrize("order", [1, -1])
def test_a_second_form_of_a_method_never_takes_its_colour(order):
    names = ["continuous", "continuous (paper's code)", "ignore", "something else"][::order]
    chosen = colours(names)
    assert list(chosen) == names
    assert chosen["continuous"] == COLOURS["continuous"]
    assert len(set(chosen.values())) == len(names)


def test_one_far_value_does_not_set_the_scale():
    assert fence([1, 2, 3, 4, 100]) == 4
    assert fence([1, 2, 3, 4]) == 4
    assert fence([5, float("nan")]) == 5
    assert fence([]) == 0


def test_a_palette_of_the_page_colours_every_figure_of_it(write, record):
    records = [
        record(method=method, level={"rate": rate}, rate=rate, error=rate)
        for method in ("continuous (paper's code)", "tide")
        for rate in (0.1, 0.2)
    ]
    cells = make_cells(read_results(write(records)).runs)
    palette = {"continuous": "#000001", "continuous (paper's code)": "#000002", "tide": "#000003"}
    drawn = draw_levels("levels", cells, palette)
    assert "#000002" in drawn.svg
    assert "#000003" in drawn.svg
    assert "#000001" not in drawn.svg


def test_a_collapsed_run_is_marked_at_the_top_with_its_number(write, record):
    rates = [0.05 * index for index in range(1, 9)]
    records = [
        record(
            method=method,
            level={"rate": rate},
            rate=rate,
            error=0.9 if (method, rate) == ("tide", 0.05) else 0.02 + rate / 10,
        )
        for method in ("ignore", "tide")
        for rate in rates
    ]
    drawn = draw_levels("levels", make_cells(read_results(write(records)).runs))
    assert ">90<" in drawn.svg
    assert ">80<" not in drawn.svg  # no axis reaches it
