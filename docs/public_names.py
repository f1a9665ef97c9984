"""The public names of labeltide: a page for each, and the tables that lead to them."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import labeltide

PAGES = Path(__file__).parent / "reference" / "generated"
PLACE = "<!-- the public names -->"  # stands in reference/names.md
REST = "More"
GROUPS = {
    "Audit a table": (
        "audit",
        "TableAudit",
        "predict_table",
        "compare_audits",
        "apply_decisions",
        "export_audit",
        "read_spans",
        "UnanswerableError",
    ),
    "Classifiers": (
        "TideClassifier",
        "ContinuousClassifier",
        "DiscontinuousClassifier",
        "PlugInClassifier",
        "VolMinClassifier",
        "AnchorClassifier",
        "IgnoreClassifier",
        "KnownNoiseClassifier",
        "METHODS",
        "fit_fleet",
        "load",
        "step_scorer",
    ),
    "Several annotators": ("consensus", "Consensus", "agreement", "Agreement"),
    "What a review shows": ("review_sample", "checked_rate"),
    "Data and simulation": ("Sequences", "SequenceScaler", "make_sequences", "make_noise", "corrupt"),
    "Noise, networks and losses": (
        "NoiseEstimate",
        "NoiseWarning",
        "NoiseFunction",
        "FixedNoise",
        "SequenceModel",
        "wrap",
        "forward_loss",
        "backward_loss",
    ),
    "Experiments and the machine": ("read_study", "run_study", "workers", "show_versions"),
}
# Classes of scikit-learn, torch and Python whose members are not described here.
INHERITED = "BaseEstimator, ClassifierMixin, TransformerMixin, Module, BaseException"
FOREIGN = re.compile(r"set_\w+_request|get_metadata_routing|set_output|training|dump_patches|call_super_init")


def groups() -> dict[str, list[str]]:
    """Every public name under the heading of its group; what has none is under the last one."""
    found = {title: [name for name in named if name in labeltide.__all__] for title, named in GROUPS.items()}
    rest = sorted(set(labeltide.__all__) - {name for named in found.values() for name in named})
    return {**found, REST: rest} if rest else found


def name_tables() -> str:
    """Public names by group, each with its first sentence, as Markdown."""
    lines = []
    for title, named in groups().items():
        lines += [f"## {title}", "", "| name | what it is |", "|---|---|"]
        lines += [f"| [`{name}`](generated/{_file(name)}) | {_summary(name)} |" for name in named]
        lines.append("")
    return "\n".join(lines)


def write_pages() -> None:
    """One page for each public name."""
    PAGES.mkdir(parents=True, exist_ok=True)
    wanted = {_file(name): _page(name) for name in labeltide.__all__}
    for path in PAGES.glob("*.rst"):
        if path.name not in wanted:
            path.unlink()
    for file, text in wanted.items():
        if not (PAGES / file).exists() or (PAGES / file).read_text() != text:
            (PAGES / file).write_text(text)


def is_foreign(name: str) -> bool:
    """Whether scikit-learn or torch puts a member of this name into every class of theirs."""
    return FOREIGN.fullmatch(name) is not None


def _file(name: str) -> str:
    """`agreement` and `Agreement` would be one file on some systems."""
    return f"{_kind(name)}-{name}.rst"


def _kind(name: str) -> str:
    thing = getattr(labeltide, name)
    return "class" if inspect.isclass(thing) else "function" if callable(thing) else "data"


def _summary(name: str) -> str:
    if _kind(name) == "data":
        return "The classifiers by the names of their methods."
    first = (inspect.getdoc(getattr(labeltide, name)) or "").split("\n\n")[0].replace("\n", " ")
    return first.replace(":math:", "").replace("|", "\\|")


def _page(name: str) -> str:
    kind, title = _kind(name), f"labeltide.{name}"
    head = [title, "=" * len(title), "", ".. currentmodule:: labeltide", ""]
    if kind == "data":
        methods = [f"- ``{method}``: ``{found.__name__}``" for method, found in labeltide.METHODS.items()]
        return "\n".join([*head, f".. py:data:: {name}", "", f"   {_summary(name)}", "", *methods, ""])
    body = [f".. auto{'class' if kind == 'class' else 'function'}:: {name}"]
    if kind == "class":
        body += ["   :members:", f"   :inherited-members: {INHERITED}"]
    return "\n".join([*head, *body, ""])
