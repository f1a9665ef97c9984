"""The pictures of the pages by field: `make field-pictures` runs the code of each page and draws what it found."""

from __future__ import annotations

import contextlib
import re
import sys
import tempfile
import time
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

FIELDS = Path(__file__).parent / "fields"
CLOCKS = {
    "sleep": "hours since lights off",
    "ecg_eeg": "minutes of the recording",
    "behaviour": "sessions coded before",
    "wearables": "hour of day",
    "gaze": "seconds of the trial",
    "machines": "days since service",
}


def main(names: list[str]) -> None:
    for name in names or CLOCKS:
        blocks = re.findall(r"```python\n(.*?)```", (FIELDS / f"{name}.md").read_text(), re.DOTALL)
        results: dict = {}
        began = time.process_time()
        with tempfile.TemporaryDirectory() as place, contextlib.chdir(place):  # some pages write files
            exec("\n".join(blocks), results)
        print(f"{name}: {time.process_time() - began:.1f} s of processor time")
        draw(name, results)


def draw(name: str, results: dict) -> None:
    """The share of wrong labels over the clock, true and estimated."""
    figure, axis = plt.subplots(figsize=(6.4, 2.6), layout="constrained")
    axis.plot(results["clock"], 100 * results["true_rate"], color="black", label="truth")
    axis.plot(results["clock"], 100 * results["found_rate"], color="#c0392b", label="estimated from the labels")
    axis.set(xlabel=CLOCKS[name], ylabel="% wrong", ylim=(0, 50))
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False)
    figure.savefig(FIELDS / f"{name}.png", dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    main(sys.argv[1:])
