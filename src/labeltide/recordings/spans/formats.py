"""Which adapter reads and writes which file."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

from labeltide.recordings.spans import delimited, edf, elan, label_studio, mne_annotations, nsrr, textgrid, wfdb_notes
from labeltide.recordings.spans.table import SpanFile

ADAPTERS: dict[str, ModuleType] = {
    "csv": delimited,
    "edf": edf,
    "labelstudio": label_studio,
    "wfdb": wfdb_notes,
    "nsrr": nsrr,
    "elan": elan,
    "textgrid": textgrid,
    "mne": mne_annotations,
}
SIGNALS = (".edf", ".bdf", ".rec", ".hea", *mne_annotations.EXTENSIONS)  # files that may hold signals


def adapter_of(path: Path) -> ModuleType:
    """The adapter that reads a file, by its extension; one beside a header of WFDB is read as its annotations."""
    suffix = path.suffix.lower()
    for adapter in ADAPTERS.values():
        if suffix in adapter.EXTENSIONS:
            return adapter
    if path.with_suffix(".hea").is_file() or suffix.startswith((".issues", ".corrected")):  # its extension is free
        return wfdb_notes
    known = ", ".join(end for adapter in ADAPTERS.values() for end in adapter.EXTENSIONS)
    raise ValueError(f"A file of labels must end in one of {known}. Got {str(path)!r}.")


def read_spans(path: str | Path, **options: Any) -> SpanFile:
    """Read spans, and signals where there are any, from a file of any format that is known by its extension.

    Examples
    --------
    >>> import labeltide as lt
    >>> found = lt.read_spans("night.csv")  # columns onset, duration and label
    >>> found.spans["label"].to_pylist()
    ['W', 'N1']
    """
    return adapter_of(Path(path)).read(Path(path), **options)
