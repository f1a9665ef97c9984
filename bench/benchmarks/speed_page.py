"""Summary and figure of speed.py, from its measurements."""

from __future__ import annotations

from pathlib import Path
from typing import Any

BASE = {"members": 10, "batch": 64, "steps": 50, "features": 9, "hidden": 32}
FLOOR = "step, one model, arithmetic alone"
GROWTH = {
    "members": (1, 2, 5, 10, 20, 50, 100),
    "steps": (25, 50, 100, 200, 400),
    "batch": (16, 32, 64, 128, 256),
    "hidden": (32, 64, 128),
}


def summarise(records: list[dict[str, Any]]) -> list[str]:
    """The main ratios."""
    ms = {record["name"]: record["ms"] for record in records}
    plain = ms["step, one model, nn.GRU and a plain loop"]
    lines = [
        f"fleet of {m}, per model, against nn.GRU: {plain / (ms[f'step, fleet of {m}'] / m):.1f}x"
        for m in (1, 10, 60, 1000)
        if f"step, fleet of {m}" in ms
    ]
    above = ms["step, fleet of 10"] / 10 / ms[FLOOR]
    lines.append(f"fleet of 10, per model, against the arithmetic alone: {above:.1f}x")
    lines.append(f"a pass of the chain against torch: {ms['chain, one pass in torch'] / ms['chain, one pass']:.0f}x")
    ratios = {name: value for record in records for name, value in record.items() if "ratio" in name}
    lines.append(f"one continuous fit against the plain loop: {ratios['plain_loop_ratio']:.1f}x")
    lines.append(f"ten continuous fits as a fleet cost {ratios['ratio_to_one']:.1f} times one")
    for method in ("continuous", "ignore"):
        apart = ms[f"{method}, ten fits one after another"]
        lines.append(
            f"ten {method} fits as a fleet against one by one: {apart / ms[f'{method}, ten fits as a fleet']:.1f}x"
        )
    lines.append(f"one tide fit costs {ratios['ratio_to_continuous']:.1f} times one continuous fit")
    return lines


def draw(records: list[dict[str, Any]], path: Path) -> None:
    """Growth of the time of a step with each size."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(GROWTH), figsize=(3.4 * len(GROWTH), 3.2))
    for axis, name in zip(axes, GROWTH, strict=True):
        points = [(r["value"], r["ms"]) for r in records if r.get("growth") == name]
        axis.loglog(*zip(*points, strict=True), marker="o", color="#0b6e99")
        first = points[0]
        axis.loglog([v for v, _ in points], [first[1] * v / first[0] for v, _ in points], ":", color="#888888")
        axis.set_xlabel(name)
        axis.set_ylabel("ms a step" if axis is axes[0] else "")
        axis.grid(alpha=0.25)
    figure.suptitle(f"A training step of {BASE}; dotted: in proportion", fontsize=9)
    figure.tight_layout()
    figure.savefig(path, dpi=130)
