"""Sentences about transitions that are recorded early or late."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from labeltide.auditing.page.names import in_quotes
from labeltide.auditing.page.numbers import is_known, number

MOST = 4  # transitions that are named, those that are furthest off first
FEWEST = 5.0  # transitions, below which an offset is not named


def timing_words(entries: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, str]]:
    """Question, answer and detail of a card; none where no timing errors were found."""
    told = [entry for entry in entries if _is_sound(entry)]
    if not told:
        return []
    told.sort(key=lambda entry: -abs(number(entry["mean"])))
    furthest = told[0]
    clear = [entry for entry in told if number(entry["lower"]) > 0 or number(entry["upper"]) < 0]
    answer = f"By up to {_length(furthest, abs(number(furthest['mean'])))}" if clear else "Early and late alike"
    sentences = [_sentence(entry) for entry in told[:MOST]]
    more = len(told) - len(sentences)
    end = f" {more} more transitions are in audit.json." if more > 0 else ""
    return [("Are changes recorded in time?", answer, " ".join(sentences) + end)]


def _is_sound(entry: Mapping[str, Any]) -> bool:
    numbers = [number(entry.get(name)) for name in ("mean", "lower", "upper", "spread", "transitions")]
    return is_known(*numbers) and numbers[-1] >= FEWEST


def _sentence(entry: Mapping[str, Any]) -> str:
    """“walking” after “still” starts 1.4 s late (95 % interval 0.9 to 2.0); single starts differ by 0.8 s."""
    mean, lower, upper = (number(entry[name]) for name in ("mean", "lower", "upper"))
    who = f" by {in_quotes(entry['annotator'])}" if entry.get("annotator") is not None else ""
    start = f"{in_quotes(entry['to'])} after {in_quotes(entry['from'])}{who}"
    spread = f"single starts differ by {_length(entry, number(entry['spread']))}"
    if lower <= 0 <= upper:
        return f"{start} starts in time on average ({_range(entry, lower, upper)}); {spread}."
    ends = sorted((abs(lower), abs(upper)))
    side = "late" if mean > 0 else "early"
    return f"{start} starts {_length(entry, abs(mean))} {side} ({_range(entry, *ends)}); {spread}."


def _range(entry: Mapping[str, Any], lower: float, upper: float) -> str:
    scale, _ = _scale(entry)
    return f"95 % interval {_figures(lower * scale)} to {_figures(upper * scale)}"


def _length(entry: Mapping[str, Any], steps: float) -> str:
    scale, unit = _scale(entry)
    return f"{_figures(steps * scale)}{unit}"


def _scale(entry: Mapping[str, Any]) -> tuple[float, str]:
    """The length of a step and its unit; a step itself where the table has no time."""
    step = number(entry.get("step"))
    if not is_known(step) or step <= 0:
        return 1.0, " steps"
    return step, f" {entry['unit']}" if entry.get("unit") else " in the unit of time"


def _figures(value: float) -> str:
    return f"{value:.1f}" if abs(value) < 100 else f"{value:.0f}"
