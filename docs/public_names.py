"""The reference of public names in Markdown, written from signatures and docstrings."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterator
from typing import Any

import labeltide
from labeltide.estimators import NoisyLabelClassifier

INTRODUCTION = """# Python: every public name

After `import labeltide as lt`, every name on this page is available as `lt.NAME`. The examples run as tests; those that
open a file use `walks.csv`, a table with one row per minute of eight people, or `audit`, the folder of its audit.

This page is written by `python docs/build_pages.py` from the docstrings.
"""
SHARED = "Parameters and methods of every classifier"
REST = "More"
GROUPS = {
    "Audit a table": (
        "audit",
        "TableAudit",
        "predict_table",
        "compare_audits",
        "apply_decisions",
        "export_audit",
        "write_spans",
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
    "Late labels": ("find_shifts", "Shifts"),
    "Several annotators": (
        "compare_annotators",
        "AnnotatorReport",
        "consensus",
        "Consensus",
        "drift_alarm",
        "agreement",
        "Agreement",
        "event_agreement",
    ),
    "Reviews": ("review_sample", "checked_rate"),
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
    "Experiments and the machine": ("read_study", "run_study", "published_settings", "workers", "show_versions"),
}
SECTION = re.compile(r"^(\w[\w ]*)\n-{3,}$", re.MULTILINE)
# What scikit-learn adds to every estimator.
FOREIGN = re.compile(r"set_\w+_request|get_metadata_routing|set_output")
WIDTH = 110


def names_page() -> str:
    """Every public name by group: a table of contents, then signature, meaning, parameters and an example of each."""
    found = groups()
    lines = [INTRODUCTION]
    for title, names in found.items():
        lines += [
            f"**{title}.** " + ", ".join(f"[`{name}`](#{_heading(name).lower().replace(' ', '-')})" for name in names),
            "",
        ]
    for title, names in found.items():
        lines += [f"## {title}", ""]
        for name in names:
            lines += [f"### {_heading(name)}", "", *_describe(name), ""]
        if title == "Classifiers":
            shared = [*_markdown(inspect.getdoc(NoisyLabelClassifier) or ""), *_methods(NoisyLabelClassifier)]
            lines += [f"### {SHARED}", "", *shared, ""]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"


def groups() -> dict[str, list[str]]:
    """Every public name under the heading of its group; names without a group come last."""
    found = {title: [name for name in names if name in labeltide.__all__] for title, names in GROUPS.items()}
    rest = sorted(set(labeltide.__all__) - {name for names in found.values() for name in names})
    return {**found, REST: rest} if rest else found


def _heading(name: str) -> str:
    return f"class {name}" if inspect.isclass(getattr(labeltide, name)) else name


def _describe(name: str) -> Iterator[str]:
    thing = getattr(labeltide, name)
    if name == "METHODS":
        yield "The classifiers by the names of their methods: "
        yield ", ".join(f"`{method}`: `{found.__name__}`" for method, found in thing.items()) + "."
        return
    yield from _signature(f"lt.{name}", thing)
    yield from _markdown(inspect.getdoc(thing) or "")
    if inspect.isclass(thing):
        yield from _methods(thing)
        if issubclass(thing, NoisyLabelClassifier):
            yield f"See also [{SHARED.lower()}](#{SHARED.lower().replace(' ', '-')})."


def _methods(home: type) -> Iterator[str]:
    """The public methods that a class of labeltide defines, itself or in its bases of labeltide."""
    shared = set() if home is NoisyLabelClassifier else set(NoisyLabelClassifier.__mro__)
    bases = [base for base in home.__mro__ if base.__module__.startswith("labeltide.") and base not in shared]
    defined = {name: value for base in reversed(bases) for name, value in vars(base).items()}
    for name, value in defined.items():
        function = inspect.unwrap(getattr(value, "__func__", value))
        if name.startswith("_") or FOREIGN.fullmatch(name) or not inspect.isfunction(function):
            continue
        yield ""
        yield from _signature(
            f".{name}", getattr(home, name), is_method=not isinstance(value, staticmethod | classmethod)
        )
        yield from _markdown(inspect.getdoc(getattr(home, name)) or "")


def _signature(name: str, thing: Any, is_method: bool = False) -> list[str]:
    try:
        signature = inspect.signature(thing)
    except ValueError:
        return []
    values = list(signature.parameters.values())[1 if is_method else 0 :]
    plain = [value.replace(annotation=inspect.Parameter.empty) for value in values]
    shown = str(signature.replace(parameters=plain, return_annotation=inspect.Signature.empty))
    return [
        "```text",
        *textwrap.wrap(f"{name}{shown}", WIDTH, subsequent_indent="    ", break_long_words=False),
        "```",
        "",
    ]


def _markdown(text: str) -> Iterator[str]:
    """A docstring in the style of numpydoc, as Markdown."""
    first, *rest = SECTION.split(text)
    yield from _prose(first)
    for title, body in zip(rest[::2], rest[1::2], strict=True):
        if title in ("Parameters", "Attributes", "Returns", "Raises", "Yields"):
            yield from (f"**{title}**", "", *_items(body), "")
        elif title == "Examples":
            yield from ("```pycon", *body.strip("\n").splitlines(), "```", "")
        else:
            yield from (f"**{title}**", "", *_prose(body))


def _items(body: str) -> Iterator[str]:
    """Entries such as `name : type` with an indented description, as a list."""
    for entry in re.split(r"\n(?=\S)", re.sub(r",\n(?=\S)", ", ", body.strip("\n"))):
        head, _, description = entry.partition("\n")
        name, colon, kind = head.partition(" : ")
        about = " ".join(description.split())
        joint = ". " if about[:1].isupper() else " "  # a description that goes on from the line before
        text = joint.join(part for part in (kind, about) if part)
        named = f"**{name}**" if colon else _inline(name.rstrip(":"))
        yield f"- {named}: {_inline(text)}" if text else f"- {named}"


def _prose(text: str) -> list[str]:
    blocks = re.sub(r"\.\. math::\n\n((?: +.*\n?)+)", lambda match: f"$$\n{match[1].strip()}\n$$\n", text.strip("\n"))
    return [*_inline(blocks).splitlines(), ""]


def _inline(text: str) -> str:
    text = re.sub(r":math:`([^`]*)`", r"$\1$", text)
    text = re.sub(r":doc:`([^<`]*?) ?<([^>]*)>`", r"[\1](..\2.md)", text)
    text = re.sub(r":\w+:`~?([^`]*)`", r"`\1`", text)
    return text.replace("``", "`")
