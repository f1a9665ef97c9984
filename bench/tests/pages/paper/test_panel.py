import re

import pytest

from labeltide_bench.pages.paper.drawing import BOTTOM, HEIGHT, TOP, Curve, Panel, nice_ticks


def test_a_value_below_the_axis_is_marked_at_the_edge_and_named():
    panel = Panel("static", [Curve("tide", "tide", [0, 10], [99, 33.5], marker="tide")])
    drawing = panel.svg()
    assert panel.beyond == ["tide 33.5 at 10"]
    heads = re.findall(r"M[\d.-]+ ([\d.]+)h8l-4 7z", drawing)
    assert [float(height) for height in heads] == [HEIGHT - BOTTOM - 7]


def test_nothing_is_drawn_outside_the_panel():
    curve = Curve("tide", "tide", [0, 10, 20], [150, -50, 80], [140, -60, 70], [160, -40, 90], marker="tide")
    drawing = Panel("static", [curve]).svg()
    starts = [float(height) for height in re.findall(r"M[\d.-]+ (-?[\d.]+)", drawing)]
    assert all(TOP - 1e-6 <= height <= HEIGHT - BOTTOM + 10 for height in starts)


def test_a_curve_that_may_leave_is_cut_where_it_crosses_the_edge():
    panel = Panel("static", [], y_range=(0, 10), y_ticks=(0, 10))
    assert panel._inside([(0, 0), (10, 20), (20, 40)]) == [(0, 0), (5, 10)]


def test_a_gap_in_a_curve_stays_a_gap():
    drawing = Panel("static", [Curve("tide", "tide", [0, 10, 20, 30], [70, float("nan"), 80, 90])]).svg()
    line = re.search(r'class="l" d="([^"]+)"', drawing)[1]
    assert line.count("M") == 2


def test_names_are_escaped():
    drawing = Panel("<script>", [Curve("x", "<b>", [0], [70])], alt='"<i>').svg()
    assert "<script>" not in drawing
    assert '"<i>' not in drawing


@pytest.mark.parametrize("top", [0.3, 7.2, 16.1, 40, 99])
def test_ticks_reach_the_largest_value_and_are_few(top):
    ticks = nice_ticks(top)
    assert ticks[0] == 0
    assert ticks[-1] >= top > ticks[-2] - 1e-9
    assert len(ticks) <= 6
