"""The README's animated picture, docs/tour.gif: an audit, its page and a review in twenty seconds.

    python docs/tour.py             # runs the demonstration first
    python docs/tour.py FOLDER      # of a demonstration, with what it printed in FOLDER.log

Needs playwright and Debian's chromium (`tests/browser/install.sh`).
"""

from __future__ import annotations

import html
import io
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

OUT = Path(__file__).with_name("tour.gif")
SIZE = {"width": 900, "height": 520}
LINES = 14  # of what the command prints
TERMINAL = "background:#14181d;color:#e6e6e6;font:15px/1.55 monospace;padding:18px;white-space:pre-wrap"


def main(folder: Path | None) -> None:
    with tempfile.TemporaryDirectory() as target:
        copy = Path(target) / "study-audit"
        if folder is None:
            command = ["labeltide", "demo", "--out", str(copy)]
            printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        else:
            shutil.copytree(folder, copy)
            printed = folder.with_name(f"{folder.name}.log").read_text()
        review = ["labeltide", "review", str(copy), "--no-browser"]
        with subprocess.Popen(review, stdout=subprocess.PIPE, text=True) as server, sync_playwright() as browsers:
            address = re.search(r"http\S+", server.stdout.readline())[0]
            browser = browsers.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            frames = _take(browser.new_page(viewport=SIZE), printed[printed.rindex("simulated study") :], copy, address)
            browser.close()
            server.terminate()
    first, *rest = [frame.quantize(64, dither=Image.Dither.NONE) for frame, _ in frames]
    first.save(OUT, save_all=True, append_images=rest, duration=[ms for _, ms in frames], loop=0, optimize=True)
    print(f"{OUT.name} {OUT.stat().st_size / 1000:.0f} kB, {sum(ms for _, ms in frames) / 1000:.0f} s")


def _take(page: Page, printed: str, folder: Path, address: str) -> list[tuple[Image.Image, int]]:
    """Frames, each with its milliseconds."""
    frames: list[tuple[Image.Image, int]] = []

    def shoot(milliseconds: int) -> None:
        page.wait_for_timeout(500)
        frames.append((Image.open(io.BytesIO(page.screenshot())).convert("RGB"), milliseconds))

    def type_in(*texts: str) -> None:
        page.set_content(f'<body style="{TERMINAL}">{html.escape("".join(texts))}</body>')

    audit = f"$ labeltide demo --out {folder.name}\n\n"
    lines = re.sub(r"\S+/report.html", f"{folder.name}/report.html", "\n".join(printed.splitlines()[:LINES]))
    for texts, milliseconds in (((audit,), 1500), ((audit, lines), 5000)):
        type_in(*texts)
        shoot(milliseconds)
    page.goto((folder / "report.html").as_uri())
    shoot(3500)
    page.get_by_text("The error rate over the clock").first.click()
    shoot(3500)
    type_in("$ labeltide review study-audit\n")
    shoot(1500)
    page.goto(address)
    page.wait_for_load_state("networkidle")
    page.get_by_label("Reviewer").fill("Ada")
    shoot(5000)
    return frames


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
