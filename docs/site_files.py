"""What a hosted site needs beside its pages, and a check of the built site.

    python docs/site_files.py docs/_build/html      # budgets, titles, languages and headings of all pages

`conf.py` calls `write` after a build: sitemap.xml, robots.txt, llms.txt, a social card, and pages that lead from old
addresses to new ones. Read the Docs hosts the versions side by side (.readthedocs.yaml).
"""

from __future__ import annotations

import gzip
import re
import shutil
import sys
from html import escape
from pathlib import Path

DOCS = Path(__file__).parent
ADDRESS = "https://labeltide.readthedocs.io/en/latest/"
BUDGET = 300_000  # bytes of a page with its styles and scripts as a server sends them (gzip), without pictures
REDIRECTS = {
    "install.html": "reference/configuration.html",
    "api.html": "reference/names.html",
    "cli.html": "reference/commands.html",
}
NO_PAGES = {"genindex.html", "search.html", *REDIRECTS}
SUMMARY = "Finds wrong labels in time series and estimates how the share of wrong labels changes over time."


def pages(site: Path) -> list[Path]:
    """The pages that people read; the report of the demonstration is an example, not a page."""
    found = (path.relative_to(site) for path in site.rglob("*.html") if "_static" not in path.parts)
    return sorted(path for path in found if path.as_posix() not in NO_PAGES and path.parts[0] != "audit")


def title(path: Path) -> str:
    """The title of a page without the name of the site."""
    found = re.search(r"<title>(.*?)</title>", path.read_text(encoding="utf-8"), re.DOTALL)
    return re.sub(r"\s+", " ", found[1]).partition(" &#8212; ")[0].partition(" — ")[0].strip() if found else ""


def card(context: dict) -> str:
    """The tags by which other sites show a link to a page."""
    tags = {"og:type": "website", "og:site_name": "labeltide", "og:title": context.get("title") or "labeltide"}
    tags |= {"og:description": SUMMARY, "og:image": f"{ADDRESS}_static/card.png", "twitter:card": "summary_large_image"}
    return "".join(
        f'<meta property="{name}" content="{escape(re.sub("<.*?>", "", text))}">\n' for name, text in tags.items()
    )


def write(site: Path) -> None:
    """Write the files into a built site, leave out 1.6 MB of icons, and mend what axe-core finds."""
    for path in site.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        text = re.sub(r"<(?:script|link)\b[^>]*fontawesome[^>]*>(?:</script>)?\n?", "", text)
        text = text.replace(
            '<summary><span class="toctree', '<summary aria-label="Show the pages below"><span class="toctree'
        )
        text = re.sub(
            r'<div class="(math|labeltide)"(?! tabindex)', r'<div class="\1" tabindex="0"', text
        )  # they may scroll
        text = re.sub(r'<th(?: class="[^"]*")?>(?:<p></p>)?</th>', "<td></td>", text)  # headings without text
        path.write_text(text, encoding="utf-8")
    (site / "_static/scripts/fontawesome.js").unlink(missing_ok=True)
    names = [path.as_posix() for path in pages(site)]
    urls = "".join(f"<url><loc>{ADDRESS}{name}</loc></url>\n" for name in names)
    head = '<?xml version="1.0" encoding="UTF-8"?>\n<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n'
    (site / "sitemap.xml").write_text(f"{head}{urls}</urlset>\n")
    (site / "robots.txt").write_text(f"User-agent: *\nAllow: /\nSitemap: {ADDRESS}sitemap.xml\n")
    links = "".join(f"- [{title(site / name)}]({ADDRESS}{name})\n" for name in names)
    (site / "llms.txt").write_text(f"# labeltide\n\n> {SUMMARY}\n\n## Pages\n\n{links}")
    shutil.copyfile(DOCS / "noise.png", site / "_static/card.png")
    for old, new in REDIRECTS.items():
        text = f'<!DOCTYPE html><html lang="en"><title>Moved</title><meta http-equiv="refresh" content="0; url={new}">'
        (site / old).write_text(
            f'{text}<link rel="canonical" href="{ADDRESS}{new}"><p><a href="{new}">Moved here.</a></p></html>\n'
        )


def complaints(site: Path) -> list[str]:
    """What is wrong with the pages of a site."""
    found = [
        f"{name} is missing"
        for name in ("sitemap.xml", "llms.txt", "searchindex.js", "_static/card.png")
        if not (site / name).exists()
    ]
    found += [f"{old} leads to {new}, which is missing" for old, new in REDIRECTS.items() if not (site / new).exists()]
    for name in pages(site):
        text = (site / name).read_text(encoding="utf-8")
        parts = {
            (site / name).parent / link.partition("?")[0]
            for link in re.findall(r'(?:src|href)="([^":]+\.(?:js|css)[^"]*)"', text)
        }
        size = sum(len(gzip.compress(path.read_bytes())) for path in {site / name, *parts} if path.exists())
        found += [f"{name} weighs {size / 1e3:.0f} kB, more than {BUDGET / 1e3:.0f}"] if size > BUDGET else []
        found += [f"{name} has no language"] if '<html lang="' not in text else []
        found += [f"{name} has {text.count('<h1')} main headings"] if text.count("<h1") != 1 else []
    return found


if __name__ == "__main__":
    wrong = complaints(Path(sys.argv[1]))
    print("\n".join(wrong) or f"{len(pages(Path(sys.argv[1])))} pages are within their budgets.")
    sys.exit(bool(wrong))
