"""Which spans of a file belong to which recording, by name; names that no signals have are remembered and said."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from labeltide._validation import UnanswerableError
from labeltide.spans.table import SpanFile, by_recording
from labeltide.tables.wording import quoted

SHOWN = 3  # names in a sentence
Key = tuple[Path | None, str | None]  # a file of labels, and the name of a recording in it


class RecordingNames:
    """Finds the spans of each recording, and counts those that belong to none."""

    def __init__(self) -> None:
        self.signals: list[str] = []
        self._spans: dict[Key, int] = {}
        self._used: set[Key] = set()
        self._by_observation: list[str] = []

    def find(self, labels: SpanFile, path: Path | None, name: str, *, alone: bool) -> pa.Table:
        """The spans of a recording; where it is alone, those of a single other name belong to it too."""
        parts = by_recording(labels.spans)
        self._spans |= {(path, key): part.num_rows for key, part in parts.items()}
        if alone and len(parts) < 2:
            self._used |= {(path, key) for key in parts}
            return labels.spans
        key = self._match(parts, labels.observations, name)
        if key is None:
            return labels.spans.slice(0, 0)
        self._used.add((path, key))
        return parts[key]

    def say(self) -> tuple[str, ...]:
        """What was matched by the observation of BORIS alone, and what was left out."""
        said = []
        if self._by_observation:
            names = list(dict.fromkeys(self._by_observation))
            said.append(f"Observations with one subject go by the observation alone: {quoted(names, SHOWN)}.")
        names, count = self._left_out()
        if count:
            which = f": {quoted(names, SHOWN)}" if names else ", because they name none"
            said.append(f"{count:,} span{'s' if count > 1 else ''} of recordings without signals left out{which}.")
        return tuple(said)

    def refuse(self) -> None:
        """Nothing was found: say which names the labels have and which the signals have."""
        names, count = self._left_out()
        if not count:
            raise UnanswerableError(
                "An audit needs labels, and none were found in the recordings. Name the file of labels with the option "
                "labels (--labels FILE)."
            )
        labels = f"name {quoted(names, SHOWN)}" if names else "name none"
        raise UnanswerableError(
            f"Labels and signals must name the same recordings. The labels {labels}, the signals "
            f"{quoted(self.signals, SHOWN)}. Write the names of one into the column recording of the other (in BORIS "
            "the recording is the observation and its subject), or list the files in a manifest."
        )

    def _match(self, parts: dict[str | None, pa.Table], observations: dict[str, str], name: str) -> str | None:
        """The name in the labels: the same, the same before an ending, or that of an observation with one subject."""
        if name in parts:
            return name
        found = [key for key in parts if key is not None and "." in key and Path(key).stem == name]
        if found:
            return found[-1]
        subjects = [key for key in parts if key is not None and observations.get(key) == name]
        if len(subjects) != 1:
            return None
        self._by_observation.append(name)
        return subjects[0]

    def _left_out(self) -> tuple[list[str], int]:
        left = {key: count for key, count in self._spans.items() if key not in self._used}
        return sorted({name for _, name in left if name is not None}), sum(left.values())
