"""Results show themselves: HTML that is small and safe, plots on the axes given, frames of three kinds."""

import sys

import matplotlib as mpl
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import labeltide as lt
from labeltide.inference.audit import LabelAudit
from labeltide.inference.bands import Change, NoiseEstimate
from labeltide.inference.display import plot_reliability
from labeltide.inference.temporality import PartTemporality, Temporality

mpl.use("Agg")
import matplotlib.pyplot as plt

BAD = "<script>alert('$x$')</script>"
KINDS = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.Table}


def noise(points=300, classes=2):
    clock = np.linspace(0, 24, points)
    rate = 0.2 + 0.1 * np.sin(clock / 4)
    matrices = np.empty((points, classes, classes))
    matrices[:] = (rate / (classes - 1))[:, None, None]
    matrices[:, range(classes), range(classes)] = 1 - rate[:, None]
    by_class = np.repeat(rate[:, None], classes, 1)
    change = Change(0.2, 0.1, 0.3, 6.0, 18.0, 0.3, 0.1)
    bands = [matrices] * 5 + [by_class] * 5 + [rate] * 5
    return NoiseEstimate(clock, *bands, 0.2, 0.15, 0.25, by_class, change, (change,) * classes)


def audit(n=6, steps=40, annotators=1, classes=(BAD, "walk", "run")):
    random = np.random.default_rng(0)
    chances = random.dirichlet([0.2] * len(classes), size=(n, steps))
    labels = random.integers(-1, len(classes), (n, steps, annotators)).astype(np.int8)
    mask = np.arange(steps) < np.array([steps] * (n - 1) + [steps // 2])[:, None]
    labels[~mask] = -1
    chances[~mask] = 0
    clock = np.broadcast_to(np.arange(steps) / steps, (n, steps))
    rates = np.full(chances.shape, 0.2)
    return LabelAudit(np.array(classes), labels, clock, mask, chances, chances, rates, has_annotators=annotators > 1)


def temporality(p=0.01, annotators=0):
    change = Change(0.2, 0.1, 0.3, 6.0, 18.0, 0.3, 0.1)
    part = PartTemporality(3.0, p, change)
    return Temporality(4.0, p, *change[:3], *change[3:], (part,) * 3, 0.001, 0.5, (part,) * annotators, "people", 12)


@pytest.fixture(scope="module")
def consensus():
    random = np.random.default_rng(0)
    truth = np.repeat(random.integers(0, 3, (10, 6)), 5, axis=1)
    y = np.where(random.random((10, 30, 3)) < 0.2, random.integers(0, 3, (10, 30, 3)), truth[..., None])
    return lt.consensus(np.array([BAD, "walk", "run"], dtype=object)[y])


def results(consensus):
    return [noise(), noise(2000, 30), audit(), audit(annotators=2), temporality(), temporality(np.nan, 20), consensus]


def test_html_is_small_and_has_no_script_no_drawing_and_no_address(consensus):
    for result in results(consensus):
        html = result._repr_html_()
        assert len(html) < 100_000
        assert "<script" not in html
        assert "http" not in html
        assert "<svg" not in html  # curves are drawn by `plot`


def test_texts_stay_under_a_thousand_letters(consensus):
    for result in [*results(consensus), consensus.agreement]:
        assert len(repr(result)) < 1000


def test_html_says_when_a_test_cannot_tell():
    assert "not available" in temporality(np.nan)._repr_html_()
    assert "was not shown to change" in temporality(0.4)._repr_html_()


def test_an_audit_without_issues_or_labels_still_shows_itself():
    clean = audit()
    clean.labels[:] = -1
    assert "0 of 0 labels to check" in clean._repr_html_()


@pytest.mark.parametrize("kind", KINDS)
def test_frames_are_of_the_kind_asked_for(kind, consensus):
    frames = [noise(5).to_frame(kind), audit().to_frame(kind), temporality().to_frame(kind), consensus.to_frame(kind)]
    assert all(isinstance(frame, KINDS[kind]) for frame in frames)


def test_the_frame_of_q_has_every_entry_at_its_place():
    estimate = noise(3, 2)
    estimate.mean[1, 0, 1] = 0.77
    frame = estimate.to_frame(classes=["a", "b"]).set_index(["clock", "true", "recorded"])
    assert frame.loc[(estimate.clock[1], "a", "b"), "mean"] == 0.77
    assert len(frame) == 12


def test_frames_have_one_line_for_each_test_and_each_step(consensus):
    assert temporality(annotators=2).to_frame()["of"].tolist() == ["all", *["class"] * 3, *["annotator"] * 2]
    frame = consensus.to_frame(ids=[f"p{index}" for index in range(10)])
    assert len(frame) == 300
    assert frame["sequence"].iloc[31] == "p1"
    assert frame["consensus"].iloc[31] == consensus.labels[1, 1]


def test_an_unknown_kind_of_frame_is_named():
    with pytest.raises(ValueError, match=r"Unknown kind of frame .excel.\. Choose one of: pandas, polars, pyarrow"):
        temporality().to_frame("excel")


def test_plots_draw_on_the_axes_given(consensus):
    truth = np.full((6, 40), "walk", dtype=object)
    for draw in (
        lambda ax: noise().plot(ax),
        lambda ax: noise().plot(ax, classes=[BAD, "b"], true=0),
        lambda ax: audit().plot(2, ax),
        lambda ax: audit(annotators=2).plot(ax=ax, times=np.arange(40) * 30.0),
        lambda ax: audit().plot_reliability(truth, ax),
        lambda ax: consensus.plot(ax, annotators=["Ada", "Ben", "$Cy$"]),
    ):
        figure, ax = plt.subplots()
        assert draw(ax) is ax
        figure.canvas.draw()
        assert ax.lines or ax.patches or ax.containers
        plt.close(figure)


def test_a_plot_makes_its_own_axes():
    ax = noise().plot()
    assert ax.get_ylabel() == "share of wrong labels"
    plt.close(ax.figure)


def test_reliability_of_calibrated_probabilities_lies_on_the_diagonal():
    random = np.random.default_rng(0)
    chances = random.random((50, 200))
    ax = plot_reliability(chances, random.random(chances.shape) < chances)
    points = ax.containers[0][0]
    assert np.abs(np.subtract(*points.get_data())).max() < 0.06
    plt.close(ax.figure)


def test_reliability_counts_only_labels_with_a_trusted_one():
    given = audit()
    trusted = np.full((6, 40), None, dtype=object)
    trusted[0, :10] = "walk"
    known = (given.labels[0, :10, 0] >= 0).sum()
    ax = given.plot_reliability(trusted)
    assert ax.get_title().startswith(f"{known} labels")
    plt.close(ax.figure)
    with pytest.raises(ValueError, match="nothing can be compared"):
        given.plot_reliability(np.full((6, 40), None, dtype=object))


def test_without_matplotlib_a_plot_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ValueError, match=r"pip install 'labeltide\[plots\]'"):
        noise().plot()


def test_estimators_show_the_diagram_and_what_they_learned():
    X = np.random.default_rng(0).normal(size=(8, 10, 2))
    y = np.array([BAD, "b"])[(X[..., 0] > 0).astype(int)]
    estimator = lt.IgnoreClassifier(epochs=1, random_state=0, device="cpu")
    before = estimator._repr_html_()
    html = estimator.fit(X, y)._repr_html_()
    assert "IgnoreClassifier" in before
    assert "Learned" not in before
    assert "Learned" in html
    assert "<script" not in html
    assert len(html) < 100_000
    assert set(estimator._repr_mimebundle_()) == {"text/plain", "text/html"}
    ax = estimator.plot_reliability(X, y)
    assert ax.get_title().startswith("80 labels")
    plt.close(ax.figure)
