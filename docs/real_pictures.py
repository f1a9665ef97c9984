"""The pictures of the sections on real data, drawn from the variables that the code of the pages leaves."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from PIL import Image

FIELDS = Path(__file__).parent / "fields"
WIDTH, DPI = 5.4, 155  # letters that can be read on a phone
RED, BLUE = "#c0392b", "#2f6f9f"
COLOURS = ("#b8d4e3", "#c0392b", "#e59866", "#5b8c5a", "#34495e", "#d5d8dc")  # of events


def draw(page: str, results: dict[str, Any]) -> None:
    """Draw what the last block of a page found; a page that has more blocks calls again after each."""
    for (of_page, name), picture in PICTURES.items():
        if of_page == page and name in results:
            figure = picture(results)
            save(figure, FIELDS / f"{picture.__name__}.png")
            results[f"drawn {name}"] = results.pop(name)


def save(figure: Figure, path: Path) -> None:
    """A PNG of at most 64 colours."""
    for axis in figure.axes:
        axis.spines[["top", "right"]].set_visible(False)
    content = io.BytesIO()
    figure.savefig(content, dpi=DPI)
    plt.close(figure)
    Image.open(content).convert("RGB").quantize(64, dither=Image.Dither.NONE).save(path, optimize=True)


def sleep_edf(results: dict[str, Any]) -> Figure:
    """The night with the most contested epochs, its stages and the chance of another opinion."""
    labels = results["audit"].to_frame()
    night = labels.groupby("sequence")["probability_contested"].mean().idxmax()
    shown = labels[labels["sequence"] == night]
    stages = ["N3", "N2", "N1", "REM", "W"]
    figure, (top, bottom) = _two_panels((3, 1.4))
    top.step(shown["clock"], shown["recorded"].map(stages.index), where="post", color="black", linewidth=0.9)
    top.set_yticks(range(5), stages)
    top.set_title(f"night {night}, as scored", loc="left", fontsize=10)
    bottom.fill_between(shown["clock"], 100 * shown["probability_contested"], color=RED, step="post", linewidth=0)
    bottom.set(xlabel="hours since sleep began", ylabel="% contested", ylim=(0, 100))
    return figure


def dreem(results: dict[str, Any]) -> Figure:
    """Contested labels of each scorer within half hours."""
    contested, lengths = results["found"].contested, results["lengths"]
    hours = np.arange(contested.shape[1]) / 120
    edges = np.arange(0, np.median(lengths) / 120, 0.5)
    figure, axis = plt.subplots(figsize=(WIDTH, 2.7), layout="constrained")
    for index, name in enumerate(results["scorers"]):
        halves = [np.nanmean(contested[:, (hours >= edge) & (hours < edge + 0.5), index]) for edge in edges]
        axis.plot(edges + 0.25, 100 * np.array(halves), label=name.replace("_", " "), linewidth=1.5)
    axis.set(xlabel="hours of the recording", ylabel="% contested", ylim=(0, None))
    axis.legend(frameon=False, ncols=3, fontsize=8)
    return figure


def eye_state(results: dict[str, Any]) -> Figure:
    labels = results["audit"].to_frame()
    seconds = labels["time"].astype(float)
    figure, (top, bottom) = _two_panels((1, 1.6))
    top.fill_between(seconds, labels["recorded"] == "closed", step="post", color=BLUE, linewidth=0)
    top.set_yticks([])
    top.set_title("eyes closed, as recorded", loc="left", fontsize=10)
    bottom.plot(seconds, 100 * labels["probability_right"], color=RED, linewidth=0.8)
    bottom.set(xlabel="seconds", ylabel="% sure that\nit is right", ylim=(0, 103))
    return figure


def neonates(results: dict[str, Any]) -> Figure:
    """The neonate on whom the experts differ most."""
    found, y = results["found"], results["y"]
    baby = int(np.nanmean(found.contested, axis=(1, 2)).argmax())
    here = y[baby, :, 0] >= 0
    minutes = np.arange(here.sum()) / 6
    figure, (top, bottom) = _two_panels((1.8, 1.2))
    rows = {"consensus": found.labels[baby, here]}
    rows |= {f"expert {'ABC'[index]}": y[baby, here, index] for index in (2, 1, 0)}  # from below
    for height, row in enumerate(rows.values()):
        _bars(top, minutes[row == 1], 1 / 6, height, BLUE if height else "black")
    _name_rows(top, list(rows))
    top.set_title("seizure marks of one neonate", loc="left", fontsize=10)
    another = 1 - found.another[baby, here].max(-1)
    bottom.fill_between(minutes, 100 * another, color=RED, step="post", linewidth=0)
    bottom.set(xlabel="minutes of the recording", ylabel="% contested", ylim=(0, 60))
    return figure


def har70plus(results: dict[str, Any]) -> Figure:
    figure, axis = plt.subplots(figsize=(WIDTH, 2.7), layout="constrained")
    for name, colour, words in (("clean", BLUE, "labels as published"), ("noisy", RED, "after noise was drawn")):
        noise = results[name].summary["noise"]
        curve = {part: 100 * np.array(noise["curves"][0][part], float) for part in ("rate", "rate_lower", "rate_upper")}
        axis.plot(noise["clock"], curve["rate"], color=colour, label=f"audit: {words}")
        axis.fill_between(
            noise["clock"], curve["rate_lower"], curve["rate_upper"], color=colour, alpha=0.2, linewidth=0
        )
    moments = np.linspace(0, 1, 100)
    drawn = 1 - np.diagonal(results["noise"].common_at(moments), axis1=1, axis2=2).mean(-1)
    axis.plot(moments, 100 * drawn, color="black", linestyle="--", label="drawn")
    axis.set(xlabel="place in the recording, from start to end", ylabel="% wrong", ylim=(0, None))
    axis.legend(frameon=False, fontsize=8)
    return figure


def chest_accel(results: dict[str, Any]) -> Figure:
    """The fit of labels within two minutes of the best shift."""
    shifts = results["shifts"]
    near = np.abs(shifts.shifts) <= 60
    figure, axis = plt.subplots(figsize=(WIDTH, 2.4), layout="constrained")
    axis.plot(2 * shifts.shifts[near], 100 * shifts.fit[near], color=BLUE)
    axis.axvspan(*(2 * end for end in shifts.interval), color=RED, alpha=0.2, linewidth=0, label="95 % interval")
    axis.axvline(2 * shifts.lag, color=RED, label=f"best: {2 * shifts.lag} s")
    axis.axvline(0, color="0.6", linewidth=0.8)
    axis.set(xlabel="shift of the labels in seconds; negative: early", ylabel="% of variance explained")
    axis.legend(frameon=False, fontsize=8)
    return figure


def lund2013(results: dict[str, Any]) -> Figure:
    """The trial on which the coders differ most."""
    steps, labels, events = results["steps"], results["labels"], list(results["events"].values())
    differ = (steps["MN"] != steps["RA"]).groupby(steps["trial"]).mean()
    shown = steps[steps["trial"] == differ.idxmax()]
    chances = labels[labels["sequence"] == differ.idxmax()].groupby("row")[["probability_contested"]].mean()
    seconds = shown["sample"].to_numpy() / 500
    figure, axes = plt.subplots(3, sharex=True, figsize=(WIDTH, 3.3), height_ratios=(1.2, 1.2, 1), layout="constrained")
    axes[0].plot(seconds, shown["speed"], color="black", linewidth=0.8)
    axes[0].set(ylabel="log speed")
    axes[0].set_title(f"trial {differ.idxmax()}", loc="left", fontsize=10)
    _strips(axes[1], seconds, {"RA": shown["RA"], "MN": shown["MN"]}, events)
    axes[2].fill_between(
        seconds, 100 * chances["probability_contested"].to_numpy(), color=RED, step="post", linewidth=0
    )
    axes[2].set(xlabel="seconds of the trial", ylabel="% contested", ylim=(0, 100))
    return figure


def boris(results: dict[str, Any]) -> Figure:
    """The video of which the largest share is to be checked."""
    labels = results["audit"].to_frame()
    video = labels.groupby("sequence")["is_issue"].mean().idxmax()
    shown = labels[labels["sequence"] == video]
    coders = {name: part for name, part in shown.groupby("annotator")}
    figure, (top, bottom) = _two_panels((1.4, 1))
    seconds = {name: part["time"].to_numpy(dtype=float) for name, part in coders.items()}
    recorded = {name: part["recorded"] for name, part in coders.items()}
    _strips(top, seconds["MN"], recorded, list(results["events"].values()))
    for height, (name, part) in enumerate(coders.items()):
        _bars(bottom, seconds[name][part["is_issue"]], 0.02, height, RED)
    _name_rows(bottom, list(coders))
    bottom.set(xlabel=f"seconds of {video}")
    bottom.set_title("labels to check", loc="left", fontsize=9)
    return figure


def _two_panels(heights: tuple[float, float]) -> tuple[Figure, Any]:
    return plt.subplots(2, sharex=True, figsize=(WIDTH, 2.9), height_ratios=heights, layout="constrained")


def _strips(axis: Any, seconds: np.ndarray, rows: dict[str, pd.Series], events: list[str]) -> None:
    """One coloured strip for each coder, and a legend of the events that occur."""
    step = float(np.median(np.diff(seconds)))
    for height, labels in enumerate(rows.values()):
        for event, colour in zip(events, COLOURS, strict=True):
            _bars(axis, seconds[(labels == event).to_numpy()], step, height, colour)
    _name_rows(axis, list(rows))
    occurring = [event for event in events if any((labels == event).any() for labels in rows.values())]
    handles = [plt.Rectangle((0, 0), 1, 1, color=COLOURS[events.index(event)]) for event in occurring]
    axis.legend(handles, occurring, ncols=6, fontsize=7, frameon=False, loc="lower left", bbox_to_anchor=(0, 1))


def _bars(axis: Any, moments: np.ndarray, step: float, height: int, colour: str) -> None:
    """A bar for each of these steps, in the row at this height."""
    axis.broken_barh([(moment, step) for moment in moments], (height + 0.1, 0.8), color=colour, linewidth=0)


def _name_rows(axis: Any, names: list[str]) -> None:
    axis.set_yticks(np.arange(len(names)) + 0.5, names)
    axis.set_ylim(0, len(names))
    axis.tick_params(axis="y", length=0)


PICTURES = {  # page and the variable that its block makes last → picture
    ("sleep", "audit"): sleep_edf,
    ("sleep", "found"): dreem,
    ("ecg_eeg", "audit"): eye_state,
    ("ecg_eeg", "found"): neonates,
    ("wearables", "noisy"): har70plus,
    ("wearables", "shifts"): chest_accel,
    ("gaze", "audit"): lund2013,
    ("behaviour", "audit"): boris,
}
