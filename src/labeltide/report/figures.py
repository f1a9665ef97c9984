"""Pictures of Q(t)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt

TRUE_COLOUR = "#222222"
COLOURS = ("#0b6e99", "#d1495b", "#edae49", "#66a182", "#6a4c93", "#8d99ae", "#2e4057")


def draw_noise(
    path: Path, clock: np.ndarray, true: np.ndarray, estimates: Mapping[str, np.ndarray], class_names: Sequence[str]
) -> None:
    """Draw, for each class, how often its labels were wrong over the clock, true against estimated.

    Parameters
    ----------
    clock : array of shape (points,)
    true : array of shape (points, classes, classes)
    estimates : method name → array of the same shape
    """
    n_classes = true.shape[-1]
    figure, axes = plt.subplots(1, n_classes, figsize=(4.6 * n_classes, 3.6), sharey=True, squeeze=False)
    for code, axis in enumerate(axes[0]):
        axis.plot(clock, 100 * (1 - true[:, code, code]), color=TRUE_COLOUR, linewidth=3, label="true")
        for (name, matrices), colour in zip(estimates.items(), COLOURS, strict=False):
            axis.plot(clock, 100 * (1 - matrices[:, code, code]), color=colour, linewidth=2, label=name)
        axis.set_title(f"when {class_names[code]} is true", fontsize=11)
        axis.set_xlabel("time, from start to end of a sequence")
        axis.set_ylim(-2, 60)
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(axis="y", alpha=0.25)
    axes[0][0].set_ylabel("recorded label is wrong (%)")
    axes[0][-1].legend(frameon=False, loc="upper right")
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)
