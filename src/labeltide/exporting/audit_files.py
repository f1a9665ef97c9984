"""Write the issues and the corrected labels of an audit as files of annotation tools."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from labeltide import _validation
from labeltide.auditing.folder import draft_beside
from labeltide.exporting.audit_spans import AuditSpans, Place, read_audit_spans, several_annotators
from labeltide.spans import delimited, edf, elan, label_studio, mne_annotations, nsrr, textgrid, wfdb_notes
from labeltide.spans.table import by_annotator, by_recording
from labeltide.tables.wording import unique_texts

WHAT = ("issues", "corrected", "both")
EVERYTHING = {"csv": ".csv", "labelstudio": ".json"}  # one file for all recordings
TIERS = {"elan": ".eaf", "textgrid": ".TextGrid"}  # one file for each recording, with a tier for each annotator
SINGLE = {
    "edf": ".edf",
    "bids": "_events.tsv",
    "wfdb": "",
    "nsrr": ".xml",
    "mne": "-annot.fif",
}  # one for each annotator
FORMATS = (*EVERYTHING, *TIERS, *SINGLE)


@dataclass(frozen=True)
class Exported:
    """The files that were written, and sentences about what was moved or left out."""

    folder: Path
    files: tuple[Path, ...]
    said: tuple[str, ...]


def export_audit(folder: str | Path, to: str, out: str | Path | None = None, what: str = "both") -> Exported:
    """Write the issues, the corrected labels or both of an audit in a format that annotation tools open.

    Parameters
    ----------
    folder : of an audit
    to : one of FORMATS
    out : a folder, new or empty; FOLDER-FORMAT by default
    what : "issues", "corrected" or "both"

    Examples
    --------
    >>> import labeltide as lt
    >>> written = lt.export_audit("audit", to="csv", what="corrected")
    >>> [path.name for path in written.files]
    ['corrected.csv']
    """
    _validation.check_choice("to", to, FORMATS)
    _validation.check_choice("what", what, WHAT)
    folder = Path(folder)
    place = folder.with_name(f"{folder.absolute().name}-{to}") if out is None else Path(out)
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise ValueError(f"The export needs a folder that is new or empty. {str(place)!r} is not; name one with --out.")
    found = read_audit_spans(folder, arrow=to != "labelstudio")
    kinds = {kind: getattr(found, kind) for kind in WHAT[:2] if what in (kind, "both")}
    said = list(found.said)
    said += [f"There are no {kind}." for kind, spans in kinds.items() if not spans.num_rows]
    planned = _plan({kind: spans for kind, spans in kinds.items() if spans.num_rows}, to, found)
    if planned:
        with draft_beside(place) as draft:
            for name, spans, recording in planned:
                said += _writer(to, recording, found.places)(spans, draft / name) or ()
            _put_in_place(draft, place.resolve())
    return Exported(place, tuple(place / name for name, *_ in planned), tuple(dict.fromkeys(said)))


def _put_in_place(draft: Path, place: Path) -> None:
    """All files appear at once; a folder that was there is empty."""
    if place.exists():
        place.rmdir()
    os.rename(draft, place)


def _plan(kinds: dict[str, pa.Table], to: str, found: AuditSpans) -> list[tuple[str, pa.Table, str]]:
    """The name of each file, its spans and its recording."""
    if to == "csv":
        return [(f"{kind}.csv", spans, "") for kind, spans in kinds.items()]
    several = several_annotators(found)
    stems = dict(zip(found.places, _file_names(list(found.places)), strict=True))
    if to == "labelstudio" or to in TIERS:
        tables = [_as_tiers(kind, spans, several) for kind, spans in kinds.items()]
        whole = pa.concat_tables(tables) if tables else found.issues.slice(0, 0)
        if to == "labelstudio":
            return [("tasks.json", whole, "")] if tables else []
        return [(stems[name] + TIERS[to], part, name) for name, part in by_recording(whole).items() if name is not None]
    return [
        (_single_name(stems[name], kind, annotator if several else None, to), own, name)
        for kind, spans in kinds.items()
        for name, part in by_recording(spans).items()
        if name is not None
        for annotator, own in by_annotator(part).items()
    ]


def _as_tiers(kind: str, spans: pa.Table, several: bool) -> pa.Table:
    """The kind as the annotator, before the annotator's own name where there are several."""
    names = [f"{kind} {who}" if several and who else kind for who in spans["annotator"].to_pylist()]
    place = spans.column_names.index("annotator")
    return spans.set_column(place, "annotator", pa.array(names, pa.string()))


def _single_name(stem: str, kind: str, annotator: str | None, to: str) -> str:
    if to == "wfdb":  # the extension is the annotator, of letters alone
        record, letters = re.sub(r"[^-\w]", "_", stem), re.sub("[^a-zA-Z]", "", annotator or "")
        return f"{record}.{kind}{letters}"
    joint = "_" if to == "bids" else "-"
    return joint.join([stem, kind, *([_file_names([annotator])[0]] if annotator else [])]) + SINGLE[to]


def _file_names(names: list[str]) -> list[str]:
    """Distinct names of files, of letters, digits, dots, - and _."""
    return unique_texts(re.sub(r"[^\w.-]+", "_", name).strip(".")[:100] or "recording" for name in names)


def _writer(to: str, recording: str, places: dict[str, Place]) -> Callable[[pa.Table, Path], Any]:
    """The function that writes a format, with what it needs to know of the recording."""
    place = places.get(recording)
    if to == "labelstudio":
        files: dict[str | None, str] = {name: one.signals for name, one in places.items() if one.signals}
        return lambda spans, path: label_studio.write(spans, path, files=files)
    if to == "edf":
        return lambda spans, path: edf.write(spans, path, start=place.began if place else None)
    if to == "wfdb":
        return lambda spans, path: wfdb_notes.write(spans, path, rate=place.rate if place else 1000.0)
    if to == "textgrid":
        return lambda spans, path: textgrid.write(spans, path, end=place.end if place else None)
    if to == "bids":
        return lambda spans, path: delimited.write(spans, path, bids=True)
    modules = {"csv": delimited, "elan": elan, "nsrr": nsrr, "mne": mne_annotations}
    return modules[to].write
