"""Spans on a grid of steps, and back: the one place with the rules for overlaps, gaps, clipping and offsets.

A step is an epoch from ``start + k * length`` up to the next. These are the rules:

* **Cover.** A step takes the label that covers most of it, if that is at least half of it.
* **Overlaps.** Where spans of different labels overlap, each counts for what it covers. Of two that cover the same,
  the one that begins later wins.
* **Gaps.** A step less than half covered gets no label. Neither does one under a label that says "not scored"
  (`UNSCORED`).
* **Clipping.** What lies before the first step or after the last is cut off.
* **Offsets.** Edges between the edges of steps move to the nearest one, by the rule of cover.
* **Events**, of no duration, have no cover and are left out.

Each is counted, and each count that is not zero is a sentence.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from labeltide.spans.table import make_spans

UNSCORED = frozenset({"?", "sleep stage ?", "unscored", "not scored", "unknown", "n/a"})  # in small letters
MOST_PIECES = 50_000_000  # of spans cut at the edges of steps
TOLERANCE = 1e-6  # of a step


@dataclass(frozen=True)
class Grid:
    """Steps of equal length; `start` and `length` are in seconds."""

    start: float
    length: float
    count: int

    @property
    def onsets(self) -> np.ndarray:
        """The beginning of every step: shape (count,)."""
        return self.start + np.arange(self.count) * self.length


@dataclass(frozen=True)
class GridLabels:
    """Labels on a grid.

    Attributes
    ----------
    labels : list of text or None, one for every step
    counts : how often each rule was applied
    said : a sentence for each rule that was
    """

    labels: list[str | None]
    counts: dict[str, int]
    said: tuple[str, ...]


@dataclass(frozen=True)
class _Pieces:
    """Spans cut at the edges of steps: which step, which span, and how much of the step is covered."""

    step: np.ndarray
    span: np.ndarray
    cover: np.ndarray


def lay_on_grid(spans: pa.Table, grid: Grid) -> GridLabels:
    """The label of every step, from the spans of one annotator and one recording; the module has the rules."""
    onset, duration = spans["onset"].to_numpy(), spans["duration"].to_numpy()
    texts = spans["label"].to_pylist()
    unscored = np.array([text.casefold() in UNSCORED for text in texts], dtype=bool)
    begins = (onset - grid.start) / grid.length
    ends = begins + duration / grid.length
    event, outside = duration == 0, (ends <= TOLERANCE) | (begins >= grid.count - TOLERANCE)
    used = ~event & ~outside & ~unscored
    names, codes = np.unique(np.array(texts, dtype=object).astype(str), return_inverse=True)
    pieces = _cut(begins, ends, used, grid.count)
    chosen, overlapping = _choose(pieces, codes, onset, grid.count)
    counts = {
        "overlaps": overlapping,
        "gaps": int((chosen < 0).sum()),
        "clipped": int((used & ((begins < -TOLERANCE) | (ends > grid.count + TOLERANCE))).sum()),
        "outside": int((outside & ~event).sum()),
        "offsets": int((used & (_off_grid(begins) | _off_grid(ends))).sum()),
        "events": int(event.sum()),
        "unscored": int((unscored & ~event & ~outside).sum()),
    }
    labels = [None if code < 0 else str(names[code]) for code in chosen]
    return GridLabels(labels, counts, say_counts(counts, grid))


def label_times(spans: pa.Table, times: np.ndarray) -> list[str | None]:
    """The label at each of ordered times: that of the span that holds it; of several, the one that begins last."""
    labels: np.ndarray = np.full(len(times), None, dtype=object)
    texts = spans["label"].to_pylist()
    onset, duration = spans["onset"].to_numpy(), spans["duration"].to_numpy()
    first, last = np.searchsorted(times, onset, "left"), np.searchsorted(times, onset + duration, "left")
    for number in np.argsort(onset, kind="stable"):
        labels[first[number] : last[number]] = texts[number]
    return labels.tolist()


def grid_to_spans(
    labels: list[str | None], grid: Grid, annotator: str | None = None, recording: str | None = None
) -> pa.Table:
    """Spans of equal labels in a row; steps without a label belong to none."""
    _, codes = np.unique(
        np.array(["" if text is None else "+" + text for text in labels], dtype=str), return_inverse=True
    )
    first = np.flatnonzero(np.append(True, codes[1:] != codes[:-1])) if len(codes) else np.empty(0, dtype=int)
    last = np.append(first[1:], len(labels))
    kept = [k for k, place in enumerate(first) if labels[place] is not None]
    first, last = first[kept], last[kept]
    onset = grid.start + first * grid.length
    texts = [labels[place] for place in first]
    return make_spans(onset, (last - first) * grid.length, texts, annotator, recording)[0]


def say_counts(counts: dict[str, int], grid: Grid) -> tuple[str, ...]:
    """A sentence for every rule that was applied."""
    sentences = {
        "overlaps": "{} under spans of different labels: the label that covers most of the epoch counts.",
        "gaps": "{} without a label, because none covers half of the epoch.",
        "clipped": "{} cut off where the signals begin or end.",
        "outside": "{} outside the signals left out.",
        "offsets": "{} beginning or ending inside an epoch: each epoch takes the label that covers most of it.",
        "events": "{} without duration left out: an event covers no epoch.",
        "unscored": "{} labelled as not scored left out.",
    }
    of_steps = ("overlaps", "gaps")
    said = []
    for name, sentence in sentences.items():
        count = counts.get(name, 0)
        noun = f"epoch of {grid.length:g} s" if name in of_steps else "span"
        plural = f"epochs of {grid.length:g} s" if name in of_steps else "spans"
        if count:
            said.append(sentence.format(f"{count} {noun if count == 1 else plural}"))
    return tuple(said)


def _off_grid(edges: np.ndarray) -> np.ndarray:
    return np.abs(edges - np.rint(edges)) > np.maximum(TOLERANCE, 1e-9 * np.abs(edges))


def _cut(begins: np.ndarray, ends: np.ndarray, used: np.ndarray, count: int) -> _Pieces:
    numbers = np.flatnonzero(used)
    low, high = begins[used].clip(0, count), ends[used].clip(0, count)
    first = np.floor(low + TOLERANCE).astype(np.int64)
    pieces = np.maximum(np.ceil(high - TOLERANCE).astype(np.int64) - first, 0)
    if pieces.sum() > MOST_PIECES:
        raise ValueError(
            f"The spans cover {int(pieces.sum())} epochs, counted span by span; at most {MOST_PIECES} are laid on "
            "a grid. Choose longer epochs, or drop spans that overlap."
        )
    span = np.repeat(np.arange(len(numbers)), pieces)
    step = np.arange(len(span)) - np.repeat(np.cumsum(pieces) - pieces, pieces) + first[span]
    cover = np.minimum(high[span], step + 1) - np.maximum(low[span], step)
    return _Pieces(step, numbers[span], cover)


def _choose(pieces: _Pieces, codes: np.ndarray, onset: np.ndarray, count: int) -> tuple[np.ndarray, int]:
    """The code of each step's label, -1 for none, and how many steps lie under overlapping spans of several labels."""
    chosen = np.full(count, -1, dtype=np.int64)
    if not len(pieces.step):
        return chosen, 0
    pair = pieces.step * (int(codes.max()) + 1) + codes[pieces.span]
    pairs, first, place = np.unique(pair, return_index=True, return_inverse=True)
    cover = np.bincount(place, pieces.cover)
    latest = np.full(len(pairs), -np.inf)
    np.maximum.at(latest, place, onset[pieces.span])
    step = pieces.step[first]
    order = np.lexsort((latest, np.round(cover, 6), step))  # within a step, the one to choose comes last
    last = order[np.append(step[order][1:] != step[order][:-1], True)]
    enough = last[cover[last] >= 0.5 - TOLERANCE]
    chosen[step[enough]] = codes[pieces.span[first[enough]]]
    labels, total = np.bincount(step, minlength=count), np.bincount(step, cover, count)
    return chosen, int(((labels > 1) & (total > 1 + TOLERANCE)).sum())
