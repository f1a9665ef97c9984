import xml.etree.ElementTree as ET

import numpy as np
import pytest
from matplotlib.figure import Figure

from labeltide_bench.pages import draw_noise, style
from labeltide_bench.pages.cells import make_cells
from labeltide_bench.pages.charts import draw_levels
from labeltide_bench.pages.figures import thinned
from labeltide_bench.pages.results import read_results
from labeltide_bench.pages.style import INK, inline_svg, shorten


def test_draw_noise_writes_a_picture(tmp_path):
    true = np.tile(np.array([[0.7, 0.3], [0.2, 0.8]]), (10, 1, 1))
    path = tmp_path / "new" / "noise.png"
    draw_noise(path, np.linspace(0, 1, 10), true, {"ignore": true, "_odd $name$": true}, ["a", "b"])
    assert path.read_bytes().startswith(b"\x89PNG")


def test_the_legend_covers_no_panel(tmp_path, monkeypatch):
    kept = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *args, **kwargs: kept.append(figure))
    true = np.tile(np.eye(2), (5, 1, 1))
    draw_noise(tmp_path / "noise.png", np.arange(5), true, {f"method {i}": true for i in range(9)}, ["a", "b"])
    (figure,) = kept
    figure.canvas.draw()
    box = figure.legends[0].get_window_extent()
    labels = [axis.xaxis.label.get_window_extent() for axis in figure.axes]
    assert not any(box.overlaps(other) for other in [*labels, *(axis.get_window_extent() for axis in figure.axes)])


def test_no_line_leaves_its_panel(write, record, monkeypatch):
    records = [
        record(level={"rate": rate}, rate=rate, shape=shape, error=error)
        for shape, scale in (("mixed", 1), ("periodic", 3))  # the second needs more room than the first
        for rate, error in ((0.1, 0.1 * scale), (0.3, 0.2 * scale))
    ]
    drawn = []
    cells = make_cells(read_results(write(records)).runs)
    original = style.grid

    def grid(*args, **kwargs):
        drawn.append(original(*args, **kwargs))
        return drawn[-1]

    monkeypatch.setattr("labeltide_bench.pages.charts.grid", grid)
    draw_levels("levels", cells)
    for axis in (axis for row in drawn[0][1] for axis in row):
        low, high = axis.get_ylim()
        values = np.concatenate([line.get_ydata() for line in axis.lines])
        assert low == 0
        assert np.nanmax(values) <= high


def test_a_shortened_drawing_is_still_valid_and_keeps_its_text():
    svg = (
        '<svg viewBox="0 0 9 9" xmlns="x"><metadata>m</metadata><g id="a"><g style="s">'
        '<path d="M 1.23456 2 \nL 3 4 \nz"/></g><text>version 1.23456</text></g></svg>'
    )
    short = shorten(svg)
    ET.fromstring(short)
    assert 'd="M1.2 2L3 4z"' in short
    assert "version 1.23456" in short
    assert "<g>" not in short
    assert "metadata" not in short


def test_markers_in_a_row_share_their_style():
    uses = "".join(f'<use href="#m" x="{x}" y="1" style="fill: red"/>\n' for x in range(3))
    short = shorten(f"<svg>{uses}</svg>")
    ET.fromstring(short)
    assert short.count("fill: red") == 1
    assert short.count("<use") == 3


def test_an_inline_drawing_takes_the_ink_of_the_page():
    inline = inline_svg(f'<?xml?>\n<svg viewBox="0 0 1 1" xmlns="u"><path style="stroke: {INK}"/></svg>', 'a "b" <c>')
    assert inline.startswith('<svg role="img" aria-label="a &quot;b&quot; &lt;c&gt;" viewBox="0 0 1 1">')
    assert "currentColor" in inline
    assert INK not in inline


def test_methods_keep_their_colours_and_no_two_share_one():
    few, many = style.colours(["tide"]), style.colours(["ignore", "tide", "continuous", "continuous (long)", "new"])
    assert few["tide"] == many["tide"]
    assert len(set(many.values())) == 5


def test_a_name_is_cut_to_fit_and_loses_control_characters():
    assert style.shown("a\x00b\nc") == "a b c"
    assert len(style.shown("x" * 500, 18, 2)) <= 40
    assert style.shown(" ") == "unnamed"


def test_a_thinned_curve_keeps_its_ends():
    assert thinned(1000)[[0, -1]].tolist() == [0, 999]
    assert thinned(7).tolist() == list(range(7))
    assert thinned(1).tolist() == [0]


def test_a_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "page.html"
    style.write_atomically(path, b"old")
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        style.write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert [item.name for item in tmp_path.iterdir()] == ["page.html"]
