"""Sleep XML of the National Sleep Research Resource: scored events with start and duration in seconds.

Stages are read where there are any; apnoeas, arousals and other events overlap them and are counted, or read with
events="all".
"""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as Tree

import pyarrow as pa

from labeltide import _validation
from labeltide._files import write_atomically
from labeltide.recordings.spans.table import (
    SpanFile,
    check_single,
    check_spans_file,
    check_writable,
    library_errors,
    lines_of,
    parse_xml,
    spans_of_lines,
)

KIND = "NSRR sleep XML"
EXTENSIONS = (".xml",)
STAGES = "Stages"


def read(path: str | Path, *, events: str = "stages") -> SpanFile:
    """Read scored events: "stages", or "all"."""
    _validation.check_choice("events", events, ("stages", "all"))
    path = check_spans_file(Path(path))
    with library_errors(path, KIND) as messages:
        root = parse_xml(path)
        if root.tag not in ("PSGAnnotation", "CMPStudyConfig"):
            raise ValueError(f"its first element is {root.tag[:40]!r}, not PSGAnnotation")
        found = [_event(event) for event in root.iter("ScoredEvent")]
        stages = [event for event in found if event[0].startswith(STAGES)]
        kept = stages if stages and events == "stages" else found
        lines = [(start, duration, _label(concept)) for _, concept, start, duration in kept]
        spans, left_out = spans_of_lines(lines, recording=path.stem)
    if len(kept) < len(found):
        left_out += (f"{len(found) - len(kept)} events other than sleep stages left out.",)
    return SpanFile(spans, messages=(*messages, *left_out))


def write(spans: pa.Table, path: str | Path) -> None:
    """Write scored events of the type Stages."""
    check_single(check_writable(spans, KIND), KIND)
    root = Tree.Element("PSGAnnotation")
    Tree.SubElement(root, "SoftwareVersion").text = "labeltide"
    events = Tree.SubElement(root, "ScoredEvents")
    for onset, duration, label in lines_of(spans):
        event = Tree.SubElement(events, "ScoredEvent")
        for name, text in (
            ("EventType", f"{STAGES}|{STAGES}"),
            ("EventConcept", label if _label(label) == label else f"{label}|0"),
            ("Start", repr(onset)),
            ("Duration", repr(duration)),
        ):
            Tree.SubElement(event, name).text = text
    Tree.indent(root)
    write_atomically(Path(path), Tree.tostring(root, encoding="utf-8", xml_declaration=True))


def _event(event: Tree.Element) -> tuple[str, str, float, float]:
    """Type, concept, start and duration; NaN where a number is missing."""
    concept = event.findtext("EventConcept") or event.findtext("Name") or ""
    start, duration = (float(event.findtext(name) or "nan") for name in ("Start", "Duration"))
    return event.findtext("EventType") or "", concept, start, duration


def _label(concept: str) -> str:
    """The concept without the number behind a bar: "Stage 2 sleep|2" is Stage 2 sleep."""
    label, _, code = concept.rpartition("|")
    return label if label and code.strip().isdigit() else concept
