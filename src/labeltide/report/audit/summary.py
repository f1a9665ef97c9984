"""The audit in a few lines: for a terminal, and for a notebook."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from markupsafe import Markup

from labeltide.report.audit.curves import Drawer
from labeltide.report.audit.names import name_markup, plain, shown
from labeltide.report.audit.read import read_audit
from labeltide.report.audit.words import size, write_verdict

WIDTH, HEAD = 96, 12
HEADS = ("Wrong", "When", "Over time", "Next")  # the verdict's four questions, in a word


def summary_text(audit: Mapping[str, Any]) -> str:
    """What a person can read in ten seconds; names cannot reach the terminal's controls."""
    verdict = write_verdict(audit)
    lines = [f"{shown(audit['table']['name'], 60)}: {size(audit)}.", plain(verdict.headline), ""]
    parts = [(head, f"{card.answer}. {card.detail}") for head, card in zip(HEADS, verdict.cards, strict=True)]
    parts += [("Careful", verdict.caution)] if verdict.caution else []
    for head, text in parts:
        lines += textwrap.wrap(plain(text), WIDTH, initial_indent=f"{head:<{HEAD}}", subsequent_indent=" " * HEAD)
    return "\n".join(lines)


def summary_html(source: Path | str | Mapping[str, Any]) -> str:
    """A small piece of HTML for notebooks, from the folder of an audit or from what its audit.json holds."""
    style = (files("labeltide.report") / "templates" / "audit_summary.css").read_text(encoding="utf-8")
    folder = None if isinstance(source, Mapping) else Path(source)
    audit = source if isinstance(source, Mapping) else read_audit(Path(source))
    verdict, drawer = write_verdict(audit), Drawer(audit)
    row = Markup("<dt>{}</dt><dd><strong>{}.</strong> {}</dd>")
    rows = [row.format(card.question, card.answer, card.detail) for card in verdict.cards]
    parts = [
        Markup("<style>{}</style>").format(Markup(style)),
        Markup("<p><strong>{}</strong>: {}</p>").format(name_markup(audit["table"]["name"], 80), size(audit)),
        Markup("<p><strong>{}</strong></p>").format(verdict.headline),
        drawer.overall()[0].drawing if drawer.can_draw else Markup(""),
        Markup("<dl>{}</dl>").format(Markup("").join(rows)),
        Markup("<p><strong>Careful.</strong> {}</p>").format(verdict.caution) if verdict.caution else Markup(""),
        Markup("<p>The whole page: {}</p>").format(shown(folder / "report.html", 200)) if folder else Markup(""),
    ]
    return str(Markup('<div class="labeltide-audit">{}</div>').format(Markup("").join(parts)))
