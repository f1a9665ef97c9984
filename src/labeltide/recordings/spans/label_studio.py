"""Label Studio's time series as JSON: its export is read; tasks with predictions are written, to be imported.

Regions count in the unit of the time column of the task; numbers are taken as seconds. Labels are written as
predictions, because an import may only name annotators that the server knows; the person then accepts or edits them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from labeltide._files import to_json, write_atomically
from labeltide.recordings.spans.table import (
    SpanFile,
    by_annotator,
    by_recording,
    check_spans_file,
    check_writable,
    library_errors,
    lines_of,
    spans_of_lines,
)

KIND = "Label Studio tasks"
EXTENSIONS = (".json",)
TYPE = "timeserieslabels"
NAMES = ("recording", "ts", "timeseries", "csv", "file", "url")  # of a task's data, that say which recording it is


Region = tuple[float, float, str, str | None, str]  # onset, duration, label, annotator, recording


def read(path: str | Path) -> SpanFile:
    """Read an export (JSON or JSON-MIN), or tasks; predictions count where a task has no annotation."""
    path = check_spans_file(Path(path))
    with library_errors(path, "a Label Studio export") as messages:
        content = json.loads(path.read_bytes())
        tasks = content if isinstance(content, list) else [content]
        if not all(isinstance(task, dict) for task in tasks):
            raise ValueError("it must be a list of tasks")
        names = [f"{path.stem}-{number + 1}" for number in range(len(tasks))]
        regions = [region for task, name in zip(tasks, names, strict=True) for region in _regions(task, name)]
        spans, left_out = spans_of_lines(regions)
    return SpanFile(spans, messages=(*messages, *left_out))


def write(
    spans: pa.Table,
    path: str | Path,
    *,
    from_name: str = "label",
    to_name: str = "ts",
    annotations: bool = False,
    files: Mapping[str | None, str] | None = None,
) -> None:
    """Write one task for each recording, with predictions by each annotator, or with annotations as an export has them.

    from_name and to_name are the names of TimeSeriesLabels and TimeSeries in the labelling configuration.
    files are the paths of the signals of each recording, which the task opens.
    """
    check_writable(spans, KIND)
    tasks = []
    for number, (recording, part) in enumerate(by_recording(spans).items()):
        named = {"recording": recording, to_name: (files or {}).get(recording, recording)}
        results = [
            _written(own, annotator, from_name, to_name, annotations) for annotator, own in by_annotator(part).items()
        ]
        tasks.append({"id": number + 1, "data": named, "annotations" if annotations else "predictions": results})
    text = json.dumps(to_json(tasks), ensure_ascii=False, allow_nan=False, indent=1)
    write_atomically(Path(path), text.encode())


def _written(spans: pa.Table, annotator: str | None, from_name: str, to_name: str, annotations: bool) -> dict[str, Any]:
    result = [
        {
            "id": f"region-{number + 1}",
            "from_name": from_name,
            "to_name": to_name,
            "type": TYPE,
            "value": {"start": onset, "end": onset + duration, "instant": duration == 0, TYPE: [label]},
        }
        for number, (onset, duration, label) in enumerate(lines_of(spans))
    ]
    return {("completed_by" if annotations else "model_version"): annotator, "result": result}


def _regions(task: dict[str, Any], fallback: str) -> Iterator[Region]:
    data = task["data"] if isinstance(task.get("data"), dict) else task
    recording = next((str(data[name]) for name in NAMES if isinstance(data.get(name), str | int)), fallback)
    if not any(isinstance(task.get(name), list) for name in ("annotations", "completions", "predictions")):
        for value in task.values():  # JSON-MIN: the regions lie in the task itself
            if isinstance(value, list) and value and isinstance(value[0], dict) and TYPE in value[0]:
                yield from _values(value, _name(task.get("annotator")), recording)
        return
    done = [one for one in _list(task, "annotations", "completions") if not one.get("was_cancelled")]
    for result in done or _list(task, "predictions"):
        who = result.get("completed_by", result.get("model_version"))
        values = [one.get("value") for one in result.get("result") or () if isinstance(one, dict)]
        yield from _values(
            [value for value in values if isinstance(value, dict) and TYPE in value], _name(who), recording
        )


def _values(values: list[dict[str, Any]], annotator: str | None, recording: str) -> Iterator[Region]:
    for value in values:
        start, end = (_seconds(value.get(name)) for name in ("start", "end"))
        for label in value[TYPE] or ():
            yield start, end - start, str(label), annotator, recording


def _list(task: dict[str, Any], *names: str) -> list[dict[str, Any]]:
    return [one for name in names for one in (task.get(name) or ()) if isinstance(one, dict)]


def _name(who: Any) -> str | None:
    """The annotator: a number, an address, or a person's record."""
    if isinstance(who, dict):
        who = who.get("email") or who.get("username") or who.get("id")
    return None if who is None else str(who)


def _seconds(moment: Any) -> float:
    try:
        return float(moment)
    except (TypeError, ValueError):
        raise ValueError(
            f"a region begins or ends at {str(moment)[:40]!r}, which is not a number of seconds. Export with a time "
            "column of seconds, not of dates"
        ) from None
