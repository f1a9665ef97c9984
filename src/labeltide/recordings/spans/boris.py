"""What exports of BORIS have of their own: subjects of an observation, and tabular events with starts and stops."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from labeltide._files import bare_text
from labeltide.recordings.spans.table import make_spans

STATUS = ("status", "behavior type")  # older and newer versions
BEHAVIOUR, TIME = "behavior", "time"
OBSERVATION, SUBJECT = "observation id", "subject"
NOBODY = ("", "no focal subject")  # in the column of subjects


def name_recordings(names: Sequence[str], lines: Sequence[Sequence[str]], stem: str) -> list[tuple[str, str]]:
    """The recording and the observation of each line; the recording has the subject behind it where there is one."""
    found = []
    for line in lines:
        cells = {name: _cell(line, names.index(name)) for name in (OBSERVATION, SUBJECT) if name in names}
        observation = cells.get(OBSERVATION) or stem
        subject = "" if cells.get(SUBJECT, "").casefold() in NOBODY else cells[SUBJECT]
        found.append((f"{observation} {subject}".strip(), observation))
    return found


def is_boris_events(names: Sequence[str]) -> bool:
    """Whether a header, in small letters, is that of BORIS's tabular events."""
    return BEHAVIOUR in names and TIME in names and any(name in names for name in STATUS)


def join_events(names: list[str], lines: list[list[str]], stem: str) -> tuple[pa.Table, tuple[str, ...]]:
    """Spans from starts and stops; points have no duration, and a start without a stop is left out and counted."""
    place = {name: names.index(name) for name in (BEHAVIOUR, TIME)}
    status = names.index(next(name for name in STATUS if name in names))
    opened: dict[tuple[str, str], float] = {}
    found: list[tuple[float, float, str, str]] = []
    unpaired = 0
    for line, (recording, _) in zip(lines, name_recordings(names, lines, stem), strict=True):
        cells = {name: line[k].strip() if k < len(line) else "" for name, k in place.items()}
        key, kind = (recording, cells[BEHAVIOUR]), line[status].strip().upper() if status < len(line) else ""
        try:
            time = float(cells[TIME].replace(",", "."))
        except ValueError:
            unpaired += 1
            continue
        if kind.startswith("START"):
            unpaired += key in opened
            opened[key] = time
        elif kind.startswith("STOP") and key in opened:
            begin = opened.pop(key)
            found.append((begin, time - begin, key[1], recording))
        elif kind.startswith("POINT"):
            found.append((time, 0.0, key[1], recording))
        else:
            unpaired += 1
    unpaired += len(opened)
    onset, duration, label, recordings = zip(*found, strict=True) if found else ((), (), (), ())
    spans, messages = make_spans(onset, duration, label, None, recordings)
    if unpaired:
        messages += (
            f"{unpaired} line{'s' if unpaired > 1 else ''} of BORIS without a matching start or stop left out.",
        )
    return spans, messages


def _cell(line: Sequence[str], place: int) -> str:
    text = bare_text(line[place].strip()) if place < len(line) else ""
    return "" if text.casefold() == "n/a" else text
