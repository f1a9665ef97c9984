"""The pictures of the pages by field: `make field-pictures` runs the code of each page and draws what it found.

Sections "On real data" need the public data sets below LABELTIDE_DATA. What their code prints must be what stands on
the page; `python docs/pictures.py --write` puts it there.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
import tempfile
import time
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import real_pictures

FIELDS = Path(__file__).parent / "fields"
CLOCKS = {
    "sleep": "hours since lights off",
    "ecg_eeg": "minutes of the recording",
    "behaviour": "sessions coded before",
    "wearables": "hour of day",
    "gaze": "seconds of the trial",
    "machines": "days since service",
}
REAL = re.compile(r"^## On real data.*?(?=^## )", re.DOTALL | re.MULTILINE)
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
PRINTED = re.compile(r"(```python\n(.*?)```\n\n```text\n)(.*?)(```)", re.DOTALL)


def main(arguments: list[str]) -> int:
    """Draw the pictures of the named pages, or of all; 1 where a page shows other numbers than its code prints."""
    names, write = [each for each in arguments if each != "--write"], "--write" in arguments
    differs = False
    for name in names or CLOCKS:
        page = FIELDS / f"{name}.md"
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):  # some pages write files
            differs |= show_real_data(page, write)
            run_simulated(page)
    return int(differs)


def run_simulated(page: Path) -> None:
    began = time.process_time()
    results: dict = {}
    exec("\n".join(BLOCK.findall(REAL.sub("", page.read_text()))), results)
    print(f"{page.stem}: simulated study, {time.process_time() - began:.1f} s of processor time")
    draw(page.stem, results)


def show_real_data(page: Path, write: bool) -> bool:
    """Run the section on real data, draw its pictures, and say whether the page shows other numbers."""
    text = page.read_text()
    section = REAL.search(text)
    if section is None or "LABELTIDE_DATA" not in os.environ:
        return False
    results: dict = {}

    def rerun(match: re.Match[str]) -> str:
        began, shown = time.process_time(), io.StringIO()
        with contextlib.redirect_stdout(shown):
            exec(match[2], results)
        print(f"{page.stem}: real data, {time.process_time() - began:.1f} s of processor time")
        real_pictures.draw(page.stem, results)
        return match[1] + "\n".join(line.rstrip() for line in shown.getvalue().splitlines()) + "\n" + match[4]

    now = text.replace(section[0], PRINTED.sub(rerun, section[0]))
    if write:
        page.write_text(now)
    elif now != text:
        print(f"{page.name} shows other numbers than its code prints; --write puts these there:\n{now}")
    return now != text and not write


def draw(name: str, results: dict) -> None:
    """The share of wrong labels over the clock, true and estimated."""
    figure, axis = plt.subplots(figsize=(real_pictures.WIDTH, 2.4), layout="constrained")
    axis.plot(results["clock"], 100 * results["true_rate"], color="black", label="truth")
    axis.plot(results["clock"], 100 * results["found_rate"], color="#c0392b", label="estimated from the labels")
    axis.set(xlabel=CLOCKS[name], ylabel="% wrong", ylim=(0, 50))
    axis.legend(frameon=False)
    real_pictures.save(figure, FIELDS / f"{name}.png")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
