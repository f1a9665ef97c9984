"""What results put into a notebook is whole in itself: nothing is loaded or run, so that a static export shows it."""

import json
import re
from collections import Counter
from html.parser import HTMLParser

import pytest

import labeltide as lt
from notebook_outputs import make_outputs

LARGEST = 200_000  # letters of one output
LOADING = {"script", "link", "iframe", "object", "embed", "base", "meta", "form", "img", "video", "audio", "source"}
SOURCES = {"src", "srcset", "xlink:href", "poster", "data", "action", "background"}
EMPTY = {"br", "hr", "input", "path", "line", "rect", "circle", "polyline", "polygon", "use", "stop"}
NAMES = ["estimator before fit", "estimator", "NoiseEstimate", "Temporality", "LabelAudit", "Consensus", "TableAudit"]


class Reader(HTMLParser):
    """Tags that stay open, what would be loaded or run, and ids."""

    def __init__(self, html):
        super().__init__()
        self.open, self.refused, self.ids = [], [], Counter()
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        if tag not in EMPTY:
            self.open.append(tag)
        self.refused += [tag] if tag in LOADING else []
        for name, value in attrs:
            loads = name in SOURCES or (name == "href" and tag != "a")  # a link is followed by a click alone
            self.refused += [(tag, name)] if name.startswith("on") or (loads and not value.startswith("#")) else []
            self.ids[value] += name == "id"

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in EMPTY:
            self.open.pop()

    def handle_endtag(self, tag):
        if tag not in EMPTY:
            assert self.open.pop() == tag


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    return make_outputs(tmp_path_factory.mktemp("outputs"))


@pytest.mark.parametrize("name", NAMES)
def test_an_output_is_small_and_loads_nothing(name, outputs):
    html = outputs[name]
    assert 100 < len(html) < LARGEST
    assert Reader(html).refused == []
    assert re.findall(r"@import|url\((?!#|data:)|javascript:", html) == []


@pytest.mark.parametrize("name", NAMES)
def test_an_output_is_closed_so_that_what_follows_it_stays_whole(name, outputs):
    assert Reader(outputs[name]).open == []


@pytest.mark.parametrize("name", NAMES)
def test_an_output_survives_the_file_of_a_notebook(name, outputs):
    assert json.loads(json.dumps({"text/html": outputs[name]}))["text/html"] == outputs[name]


def test_outputs_of_one_page_share_no_id(outputs):
    ids = sum((Reader(html).ids for html in outputs.values()), Counter())
    assert [name for name, count in ids.items() if count > 1] == []


def test_the_names_of_attributes_are_listed_without_computing_any():
    data = lt.make_sequences(n=20, n_steps=10, n_features=2)
    clf = lt.TideClassifier(epochs=2, random_state=0).fit(data.features, data.labels)
    assert {"noise_estimate_", "temporality_", "predict"} <= set(dir(clf))
    assert clf.findings_ == {}
