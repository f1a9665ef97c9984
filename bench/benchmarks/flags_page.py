"""Tables and figure of flags.py, from its records."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from itertools import groupby
from operator import getitem
from pathlib import Path
from typing import Any

import numpy as np

Record = dict[str, Any]
WAYS = ("ours", "ours, allowance spent", "ours, all suggestions", "cleanlab", "cleanlab, ten times", "Bayes rule")
REST = [
    *("data", "noise", "false alarms expected", "observed", "goal", "calibration error", "goal"),
    *("wrong labels before", "after, surer than .9", "after, all suggestions"),
]
MAX_FALSE, MAX_ERROR = 0.13, 0.03  # the goals


def write_page(records: list[Record], path: Path) -> None:
    """All goals, cell by cell, means over draws; what is missed is said."""
    parts = [
        "# Flags, calibration and corrections",
        f"`python bench/benchmarks/flags.py`, means over {len({r['draw'] for r in records})} draws, 30 % of labels "
        "wrong. Ours: flags at a false discovery rate of 10 %. Allowance spent: labels for which no other is likelier "
        "are flagged too, until the expected share of false alarms is 10 %. All suggestions: every label for which "
        "another is likelier. cleanlab 2.9: its default filter with the same out-of-fold probabilities, on all steps "
        "and within ten parts of the time. Bayes rule: the true Q(t) and out-of-fold networks that were trained on "
        "clean labels.",
        "## Flags: F1 (precision, recall)",
        _table(
            ["data", "noise", *WAYS, "ours less better cleanlab", "goal"],
            (_flags_row(cell) for cell in _cells(records)),
        ),
        "Goal: F1 of ours at or above cleanlab both ways, on average; ± is one standard error over draws.",
        "## False alarms, calibration and corrections",
        _table(
            REST,
            (_rest_row(cell) for cell in _cells(records)),
        ),
        f"Goals: observed false alarms at most {MAX_FALSE:.0%}; expected calibration error at most {MAX_ERROR}.",
        "A label is flagged only where another is likelier; where expected false alarms stay under 10 %, that rule and "
        "not the share asked for ended the list, and the cell says little of how well the share is kept. Most labels "
        "lie near 0 or 1, which keeps the calibration error low; the picture shows those between.",
        "![Reliability](reliability.png)",
    ]
    path.write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def draw_reliability(records: list[Record], path: Path) -> None:
    """How often labels of a stated quality were right, pooled over draws, one panel for each data set."""
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(record["dataset"] for record in records))
    figure = Figure(figsize=(4 * len(names), 4), layout="constrained")
    panels = np.atleast_1d(figure.subplots(1, len(names), sharey=True))
    for panel, name in zip(panels, names, strict=True):
        panel.plot([0, 1], [0, 1], color="0.7", linewidth=1)
        for cell in _cells([record for record in records if record["dataset"] == name]):
            labels, stated, right = (
                np.sum([r["reliability"][key] for r in cell], 0) for key in ("labels", "stated", "right")
            )
            enough = labels >= 20
            panel.plot(
                stated[enough] / labels[enough], right[enough] / labels[enough], marker="o", label=cell[0]["shape"]
            )
        panel.set(title=name, xlabel="probability of being right, as stated", xlim=(0, 1), ylim=(0, 1))
        panel.set_aspect("equal")
    panels[0].set_ylabel("share that was right")
    panels[0].legend(frameon=False)
    figure.savefig(path, dpi=110, metadata={"Software": None})


def _cells(records: list[Record]) -> list[list[Record]]:
    """The draws of one data set and shape of noise together."""
    return [list(group) for _, group in groupby(records, key=lambda record: (record["dataset"], record["shape"]))]


def _mean(cell: list[Record], *path: str) -> float:
    """The mean over draws of the number that the keys lead to."""
    return float(np.mean([reduce(getitem, path, record) for record in cell]))


def _flags_row(cell: list[Record]) -> list[str]:
    def means(way: str) -> list[float]:
        return [_mean(cell, "ways", way, key) for key in ("f1", "precision", "recall")]

    shown = [f"**{f1:.3f}** ({precision:.2f}, {recall:.2f})" for f1, precision, recall in map(means, WAYS)]
    best = max((way for way in WAYS if way.startswith("cleanlab")), key=lambda way: means(way)[0])
    ahead = np.array([record["ways"]["ours"]["f1"] - record["ways"][best]["f1"] for record in cell])
    spread = f" ± {ahead.std(ddof=1) / len(ahead) ** 0.5:.4f}" if len(ahead) > 1 else ""
    return [
        *(cell[0]["dataset"], cell[0]["shape"], *shown),
        f"{ahead.mean():+.4f}{spread}",
        _verdict(ahead.mean() >= 0),
    ]


def _rest_row(cell: list[Record]) -> list[str]:
    observed = _mean(cell, "observed_false_alarms")
    error = _mean(cell, "calibration_error")
    wrong = [_mean(cell, "wrong"), *(_mean(cell, "wrong_after", share) for share in ("0.9", "0.5"))]
    return [
        *(cell[0]["dataset"], cell[0]["shape"]),
        f"{_mean(cell, 'expected_false_alarms'):.1%}",
        f"{observed:.1%}",
        _verdict(observed <= MAX_FALSE),
        f"{error:.3f}",
        _verdict(error <= MAX_ERROR),
        *(f"{share:.1%}" for share in wrong),
    ]


def _verdict(met: bool) -> str:
    return "met" if met else "missed"


def _table(head: list[str], rows: Iterable[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
