"""Equations as MathML, which browsers draw by themselves: the site needs no script for them and no network."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml

SYNONYMS = {r"\dots": r"\ldots"}  # commands that docutils does not know
# An accented letter with a subscript, as docutils writes it: the subscript would stand below the letter.
ACCENTED = re.compile(
    r'<munderover>\s*(<mi[^>]*>[^<]*</mi>)\s*(.*?)\s*(<mo stretchy="false">[~^¯]</mo>)\s*</munderover>', re.DOTALL
)


def setup(app: Any) -> dict[str, bool]:
    app.add_html_math_renderer("mathml", (_write_inline, None), (_write_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _write_inline(writer: Any, node: nodes.math) -> None:
    writer.body.append(f'<span class="math">{translate(node.astext())}</span>')
    raise nodes.SkipNode


def _write_block(writer: Any, node: nodes.math_block) -> None:
    block = translate(node.astext()).replace("<math ", '<math display="block" ', 1)
    writer.body.append(f'<div class="math">{block}</div>')
    raise nodes.SkipNode


def translate(text: str) -> str:
    """LaTeX as MathML."""
    for name, known in SYNONYMS.items():
        text = text.replace(name, known)
    return ACCENTED.sub(r"<msub><mover accent='true'>\1\3</mover>\2</msub>", tex2mathml(text))
