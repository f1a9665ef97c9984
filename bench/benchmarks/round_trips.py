"""Round trips through every file format: labels on a grid, to spans, to a file, and back.

    python bench/benchmarks/round_trips.py      # writes bench/results/formats/round_trips.md; needs pynwb and sleap-io

Each file holds random labels on a grid of random epochs and length, with gaps, of one or two annotators, and names
with quotes, commas, marks of XML and letters beyond ASCII. A span differs if its onset or duration is off by more
than the resolution of the format, or its label or annotator is another. A label differs if the epoch gets another one
than it had.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from labeltide.recordings.recordings import Grid, lay_on_grid
from labeltide.recordings.spans.formats import ADAPTERS, read_spans
from labeltide.recordings.spans.table import by_annotator, lines_of
from labeltide_bench.tables import grid_to_spans

RESULTS = Path(__file__).parents[1] / "results" / "formats"
FILES = 200
LABELS = [
    "W",
    "N1",
    "Sleep stage 2",
    'quo"ted',
    "a,b;c\\d",
    "größe",
    "眠り",
    "x(y) |2",
    "'s'",
    "<tag> & more",
    "=1+1",
    "-3",
]
LATIN = [label for label in LABELS if max(map(ord, label)) < 256]
ASCII = [label for label in LABELS if label.isascii()]


class Format(NamedTuple):
    """How a format is written, how many annotators a file holds, and how exact its times are."""

    name: str
    file: str
    write: Callable[[pa.Table, Path], Any]
    annotators: tuple[str | None, ...]
    resolution: str
    tolerance: float
    labels: list[str] = LABELS
    lengths: tuple[float, ...] = (0.04, 1 / 3, 1.0, 20.0, 30.0)


def write_sleap(spans: pa.Table, path: Path, rate: float) -> None:
    """Events of a video for each recording at frames of the given rate, as sleap-io writes them."""
    import sleap_io

    videos: dict[str, Any] = {}
    events = []
    for onset, duration, label, annotator, recording, _ in lines_of(spans, *spans.column_names):
        if recording not in videos:
            videos[recording] = sleap_io.Video(filename=f"{recording}.mp4", open_backend=False)
            videos[recording].fps = rate
        first, after = round(onset * rate), round((onset + duration) * rate)
        about = {"type": label, "video": videos[recording], "source": annotator or ""}
        events.append(sleap_io.UserEvent(**about, start_frame=first, end_frame=max(first, after - 1)))
    sleap_io.save_file(sleap_io.Labels(videos=list(videos.values()), events=events), str(path))


FORMATS = [
    Format("spans, CSV", "n.csv", ADAPTERS["csv"].write, ("ann", "bob"), "exact", 0.0),
    Format("spans, TSV", "n.tsv", ADAPTERS["csv"].write, ("ann", "bob"), "exact", 0.0),
    Format(
        "BIDS events", "n_events.tsv", lambda s, p: ADAPTERS["csv"].write(s, p, bids=True), ("ann", "bob"), "exact", 0.0
    ),
    Format("Raven", "n.txt", ADAPTERS["raven"].write, (None,), "1e-9 s", 1e-9),
    Format("Audacity", "n.txt", ADAPTERS["audacity"].write, (None,), "1e-6 s", 1.1e-6),
    Format("BORIS project", "n.boris", ADAPTERS["boris"].write, (None,), "1e-9 s", 1e-9),
    Format("NWB", "n.nwb", ADAPTERS["nwb"].write, ("ann", "bob"), "1e-9 s", 1e-9),
    Format(
        "SLEAP",
        "n.slp",
        lambda s, p: write_sleap(s, p, 300),
        ("ann", "bob"),
        "1 frame at 300 per second",
        3.4e-3,
    ),
    Format("EDF+", "n.edf", ADAPTERS["edf"].write, (None,), "exact", 1e-12),
    Format("Label Studio, tasks", "n.json", ADAPTERS["labelstudio"].write, ("ann", "bob"), "1e-9 s", 1e-9),
    Format(
        "Label Studio, export",
        "n.json",
        lambda s, p: ADAPTERS["labelstudio"].write(s, p, annotations=True),
        ("7", "a@b.c"),
        "1e-9 s",
        1e-9,
    ),
    Format("NSRR XML", "n.xml", ADAPTERS["nsrr"].write, (None,), "exact", 0.0),
    Format("ELAN", "n.eaf", ADAPTERS["elan"].write, (None, "bob"), "1 ms", 1.01e-3),
    Format("TextGrid", "n.TextGrid", ADAPTERS["textgrid"].write, (None, "bob"), "1e-9 s", 1e-9),
    Format(
        "WFDB",
        "n.ann",
        lambda s, p: ADAPTERS["wfdb"].write(s, p, rate=250),
        ("ann",),
        "1 sample at 250 Hz",
        4.1e-3,
        ASCII,
    ),
    Format("MNE, FIF", "n-annot.fif", ADAPTERS["mne"].write, (None,), "single precision", 2e-3, LATIN),
]


def random_labels(random: np.random.Generator, labels: list[str], count: int) -> list[str | None]:
    """Labels in runs, a fifth of which are missing."""
    changes = np.cumsum(random.random(count) < 0.2)
    chosen = random.choice(len(labels), changes[-1] + 1)
    missing = random.random(changes[-1] + 1) < 0.2
    return [None if missing[run] else labels[chosen[run]] for run in changes]


def count_differences(form: Format, seed: int, folder: Path) -> tuple[int, int, int, int]:
    """Spans, spans that differ, epochs, and epochs that differ, of one file."""
    random = np.random.default_rng(seed)
    grid = Grid(0.0, float(random.choice(form.lengths)), int(random.integers(2, 1500)))
    truth = {who: random_labels(random, form.labels, grid.count) for who in form.annotators}
    truth = {who: labels for who, labels in truth.items() if any(labels)} or {
        form.annotators[0]: [form.labels[0]] * grid.count
    }
    written = {who: grid_to_spans(labels, grid, who, "n") for who, labels in truth.items()}
    form.write(pa.concat_tables(written.values()), folder / form.file)
    found = by_annotator(read_spans(folder / form.file).spans)
    spans = wrong_spans = wrong_labels = 0
    for who, labels in truth.items():
        back = found.get(who, written[who].slice(0, 0))
        spans += len(written[who])
        wrong_spans += _differing(written[who], back, form.tolerance)
        laid = lay_on_grid(back, grid).labels
        wrong_labels += sum(first != second for first, second in zip(laid, labels, strict=True))
    extra = sum(len(part) for who, part in found.items() if who not in truth)
    return spans, wrong_spans + extra, grid.count * len(truth), wrong_labels


def _differing(first: pa.Table, second: pa.Table, tolerance: float) -> int:
    if len(first) != len(second):
        return max(len(first), len(second))
    wrong = np.array([a != b for a, b in zip(first["label"].to_pylist(), second["label"].to_pylist(), strict=True)])
    for name in ("onset", "duration"):
        wrong |= np.abs(first[name].to_numpy() - second[name].to_numpy()) > tolerance
    return int(wrong.sum())


def main() -> None:
    lines = [
        "# Round trips through file formats",
        "",
        f"`python bench/benchmarks/round_trips.py`: {FILES} files of random labels for each format, in epochs of 0.04 "
        "to 30 s. WFDB gets labels of ASCII and FIF of Latin-1 alone, because they cannot hold others and refuse them.",
        "",
        "| format | files | spans | spans that differ | labels (epochs) | labels that differ | times are kept to |",
        "|---|--:|--:|--:|--:|--:|---|",
    ]
    total = np.zeros(4, dtype=np.int64)
    with tempfile.TemporaryDirectory() as folder:
        for form in FORMATS:
            counts = np.sum([count_differences(form, seed, Path(folder)) for seed in range(FILES)], axis=0)
            total += counts
            spans, wrong_spans, labels, wrong_labels = counts
            lines.append(
                f"| {form.name} | {FILES} | {spans} | {wrong_spans} | {labels} | {wrong_labels} | {form.resolution} |"
            )
            print(lines[-1])
    lines.append(f"| all | {FILES * len(FORMATS)} | {total[0]} | {total[1]} | {total[2]} | {total[3]} | |")
    (RESULTS / "round_trips.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
