"""Pictures of the audit's page in docs/screenshots: `make screenshots`, or `make screenshots AUDIT=folder`.

Needs playwright, Debian's chromium and pdftoppm; `tests/browser/install.sh` installs the last two.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from labeltide.auditing.page import write_page

ROOT = Path(__file__).parents[1]
OUT = ROOT / "docs" / "screenshots"
LOOKS = {  # width, height, colours
    "desktop": (1180, 4700, "light"),
    "dark": (1180, 2200, "dark"),
    "phone": (390, 3400, "light"),
}
PRINTED = 4  # pages side by side


def main(folder: Path | None) -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as target:
        page_file = write_page(folder or _made_up(Path(target)))
        with sync_playwright() as browsers:
            browser = browsers.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            for name, (width, height, scheme) in LOOKS.items():
                page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
                _open(page, page_file)
                _save(Image.open(io.BytesIO(page.screenshot())), name)
            page = browser.new_page()
            _open(page, page_file)
            page.pdf(path=f"{target}/page.pdf", prefer_css_page_size=True)
            browser.close()
        _save(_sheets(Path(target)), "print")


def _made_up(folder: Path) -> Path:
    """Simulated results of the tests; the folder of a real audit can be passed instead."""
    sys.path.insert(0, str(ROOT / "tests"))
    from auditing.page.fake import write_audit

    return write_audit(folder / "audit", sequences=24, steps=400)


def _open(page: Page, file: Path) -> None:
    page.goto(file.resolve().as_uri())
    if page.locator("#timeline").count():
        page.click("[data-do=next]")
    page.evaluate("scrollTo(0, 0)")
    page.wait_for_timeout(300)


def _sheets(folder: Path) -> Image.Image:
    subprocess.run(
        ["pdftoppm", "-r", "60", "-l", str(PRINTED), "-png", folder / "page.pdf", folder / "sheet"], check=True
    )
    sheets = [Image.open(path).convert("RGB") for path in sorted(folder.glob("sheet*.png"))]
    width, height = sheets[0].size
    joined = Image.new("RGB", ((width + 12) * len(sheets) - 12, height), "#888")
    for number, sheet in enumerate(sheets):
        joined.paste(sheet, (number * (width + 12), 0))
    return joined


def _save(image: Image.Image, name: str) -> None:
    image.convert("RGB").quantize(256, kmeans=1, dither=Image.Dither.NONE).save(OUT / f"{name}.png", optimize=True)
    print(f"{name}.png {(OUT / f'{name}.png').stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
