"""The tabular events of BORIS: one line for the start of a behaviour and one for its stop."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from labeltide.spans.table import make_spans

STATUS = ("status", "behavior type")  # older and newer versions
BEHAVIOUR, TIME = "behavior", "time"


def is_boris_events(names: Sequence[str]) -> bool:
    """Whether a header, in small letters, is that of BORIS's tabular events."""
    return BEHAVIOUR in names and TIME in names and any(name in names for name in STATUS)


def join_events(names: list[str], lines: list[list[str]], stem: str) -> tuple[pa.Table, tuple[str, ...]]:
    """Spans from starts and stops; points have no duration, and a start without a stop is left out and counted.

    The recording is the observation, with the subject behind it where there is one.
    """
    place = {name: names.index(name) for name in (BEHAVIOUR, TIME, "observation id", "subject") if name in names}
    status = names.index(next(name for name in STATUS if name in names))
    opened: dict[tuple[str, str], float] = {}
    found: list[tuple[float, float, str, str]] = []
    unpaired = 0
    for line in lines:
        cells = {name: line[k].strip() if k < len(line) else "" for name, k in place.items()}
        recording = " ".join(filter(None, [cells.get("observation id") or stem, _subject(cells.get("subject", ""))]))
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
    spans, said = make_spans(onset, duration, label, None, recordings)
    if unpaired:
        said += (f"{unpaired} line{'s' if unpaired > 1 else ''} of BORIS without a matching start or stop left out.",)
    return spans, said


def _subject(name: str) -> str:
    return "" if name.casefold() in ("", "no focal subject") else name
