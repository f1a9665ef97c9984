"""Random spans for the tests of file formats."""

import numpy as np

from labeltide.recordings.spans.table import make_spans

LABELS = ["W", "N1", "Sleep stage 2", 'quo"ted', "a,b;c", "größe", "x(y) |2", "'single'", "<tag> & more", "=1+1"]
ASCII = [label for label in LABELS if label.isascii()]


def random_spans(seed, *, count=40, labels=LABELS, annotators=(None,), digits=3, gaps=True, recording="night"):
    """Spans that do not overlap, with onsets of a few digits, for each annotator."""
    random = np.random.default_rng(seed)
    columns = [[], [], [], []]
    for annotator in annotators:
        lengths = np.round(random.exponential(20, count) + 10.0**-digits, digits)
        pauses = np.round(random.exponential(5, count) * (random.random(count) < 0.5) * gaps, digits)
        ends = np.cumsum(lengths + pauses)
        columns[0] += np.round(ends - lengths, digits).tolist()
        columns[1] += lengths.tolist()
        columns[2] += random.choice(labels, count).tolist()
        columns[3] += [annotator] * count
    return make_spans(*columns, recording)[0]


def differences(first, second, *, annotators=True, tolerance=1e-9):
    """How many spans of two tables differ in onset, duration, label or annotator; all, where the counts differ."""
    if len(first) != len(second):
        return max(len(first), len(second))
    wrong = np.zeros(len(first), dtype=bool)
    for name in ("onset", "duration"):
        wrong |= np.abs(first[name].to_numpy() - second[name].to_numpy()) > tolerance
    for name in ("label", "annotator")[: 1 + annotators]:
        wrong |= np.array([a != b for a, b in zip(first[name].to_pylist(), second[name].to_pylist(), strict=True)])
    return int(wrong.sum())
