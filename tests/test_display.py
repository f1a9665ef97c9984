"""Short texts of a few lines, and pieces of HTML without scripts, addresses or unescaped names."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from labeltide._display import ShortRepr, p_value, panel, percent, short, table


class Pair(NamedTuple):
    first: float
    second: int


@dataclass(frozen=True, repr=False)
class Result(ShortRepr):
    values: np.ndarray
    words: str
    many: dict
    pairs: tuple
    pair: Pair


def test_a_dataclass_shows_shapes_and_beginnings():
    pair = Pair(1 / 3, 2)
    text = repr(Result(np.zeros((1000, 30)), "x" * 10_000, dict.fromkeys(range(10_000)), (pair,) * 500, pair))
    assert len(text) < 400
    assert "values=<1000x30 float64>" in text
    assert "many=<dict of 10000>" in text
    assert "pairs=<500 of Pair>" in text
    assert "Pair(0.3333, 2)" in text


def test_short_texts_of_plain_values():
    assert short(0.123456) == "0.1235"
    assert short(None) == "None"
    assert short(("a", "b")) == "('a', 'b')"


def test_html_escapes_every_name_and_loads_nothing():
    bad = '<script>alert("x")</script>'
    html = panel(bad, table([bad], [[bad]]))
    assert "<script" not in html
    assert "http" not in html
    assert html.count("&lt;script&gt;") == 3


def test_numbers_in_words():
    assert (percent(0.1234), percent(np.nan)) == ("12.3 %", "not known")
    assert (p_value(0.0001), p_value(0.04), p_value(np.nan)) == ("< 0.001", "0.040", "not available")
