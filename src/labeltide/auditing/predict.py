"""Predictions for another table by the model of an audit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from labeltide import _validation
from labeltide.auditing.audit_json import load_audit_json
from labeltide.auditing.findings import as_texts
from labeltide.auditing.judging import work_ahead
from labeltide.auditing.reading import AuditInput, choose_source, open_all, read_new_table
from labeltide.auditing.results import AUDIT, MODEL, MODEL_FILE, TABLE_FILES, draft_of, write_new_table
from labeltide.auditing.survey import Layout, count_columns, find_roles, open_layout, prepare_rows
from labeltide.auditing.writing import table_writer
from labeltide.estimators.base import NoisyLabelClassifier
from labeltide.estimators.storage import load
from labeltide.estimators.tide import STEPS_AT_ONCE
from labeltide.inference.audit import small_softmax
from labeltide.kernels.library import torch_on_one_thread
from labeltide.recordings.recordings import read_unlabelled
from labeltide.tables.columns import is_text, like_table, open_table
from labeltide.tables.features import Encoder, encoder_from_json
from labeltide.tables.files import FileSet, check_new_file
from labeltide.tables.roles import Reading, Request
from labeltide.tables.tidy import TableCounts, choose_tidying, name_files
from labeltide.tables.windows import ClockInfo
from labeltide.tables.words import quoted

NEEDED = ("encoders", "table.columns", "table.classes", "settings.window")  # of audit.json


def predict_table(
    model: str | Path,
    table: Any,
    *,
    sequence: str | None = None,
    time: str | None = None,
    timezone: str | None = None,
    device: str = "auto",
) -> Any:
    """The likeliest true label of every row, from its features and those of the rows before it.

    An Arrow table; a frame of pandas, with its index, or of polars where one was given.

    Parameters
    ----------
    model : the folder of an audit, or the model file in it
    table : as `labeltide.audit` takes it; needs the columns of the features, not those of the labels; after an
        audit of recordings also another recording
    sequence, time : columns, those of the audit when left out
    timezone : name of a time zone, such as "Europe/Berlin", to whose wall clock times are converted

    Examples
    --------
    >>> import labeltide as lt
    >>> lt.predict_table("audit", "walks.csv").column_names[:5]
    ['row', 'sequence', 'time', 'predicted', 'probability']
    """
    predictor, audit = _open(model, device)
    return like_table(as_texts(_predict_in_memory(predictor, audit, table, sequence, time, timezone)), table)


def predict_to_file(
    model: str | Path,
    table: Any,
    out: Path,
    *,
    sequence: str | None = None,
    time: str | None = None,
    timezone: str | None = None,
    device: str = "auto",
    on_rows: Callable[[int, int], None] = lambda done, total: None,
) -> int:
    """Write what `predict_table` gives to a new file, a large table in bounded memory; give back the number of rows.

    Parameters
    ----------
    out : .parquet or, for tables that fit in memory, .csv
    on_rows : called with the rows done and all rows, of a large table
    """
    check_new_file(out, *TABLE_FILES)
    predictor, audit = _open(model, device)
    source = table if audit.get("recordings") else choose_source(table)
    if not isinstance(source, FileSet):
        predictions = as_texts(_predict_in_memory(predictor, audit, source, sequence, time, timezone))
        write_new_table(predictions, out)
        return len(predictions)
    if not out.name.lower().endswith(".parquet"):
        raise ValueError(
            f"Predictions for {source.n_rows:,} rows must be written to a .parquet file. Got {str(out)!r}."
        )
    request = _columns(audit, source.schema.names, sequence, time)
    writer, done = None, 0
    with draft_of(out) as draft:
        layout = _lay_out(predictor, source, request, Reading(timezone=timezone), draft.parent)
        for lines in work_ahead(lambda chunk: _predict_lines(predictor, *layout.read(chunk)), layout.chunks):
            writer = writer or table_writer(draft, lines.schema)
            writer.write_table(lines)
            done += len(lines)
            on_rows(done, layout.n_rows)
        assert writer is not None
        writer.close()
    return done


def _predict_in_memory(
    predictor: Predictor, audit: dict[str, Any], table: Any, sequence: str | None, time: str | None, zone: str | None
) -> pa.Table:
    source = read_unlabelled(table, audit["recordings"]) if audit.get("recordings") else choose_source(table)
    opened = open_table(open_all(source) if isinstance(source, FileSet) else source)
    request = _columns(audit, opened.names, sequence, time)
    classes = audit["table"]["classes"]
    read = read_new_table(opened, predictor.encoders, classes, predictor.window, request, zone)
    return _predict_lines(predictor, read, np.arange(read.n_rows), in_threads=True)


def open_model(
    model: str | Path, needed: Sequence[str] = NEEDED
) -> tuple[Path, NoisyLabelClassifier, tuple[Encoder, ...], dict[str, Any]]:
    """The folder of an audit to which a path leads, its model, how columns become features, and its numbers.

    `needed` as of `load_audit_json`.
    """
    near = (Path(model), *Path(model).parents[:2])
    folder = next((each for each in near if (each / AUDIT).is_file() and (each / MODEL / MODEL_FILE).is_file()), None)
    if folder is None:
        raise ValueError(
            f"The model must be the folder of an audit, with {AUDIT} and {MODEL}/{MODEL_FILE} in it. "
            f"Got {str(model)!r}."
        )
    audit = load_audit_json(folder, needed)
    estimator = load(folder / MODEL / MODEL_FILE)
    encoders = tuple(encoder_from_json(fields) for fields in audit["encoders"])
    n_features = sum(len(encoder.names) for encoder in encoders) or 1
    classes = sorted(str(name) for name in estimator.classes_)
    if estimator.n_features_in_ != n_features or classes != sorted(audit["table"]["classes"]):
        raise ValueError(
            f"{MODEL}/{MODEL_FILE} in {str(folder)!r} is not the model of its {AUDIT}: they differ in features or "
            "classes. Audit again."
        )
    return folder, estimator, encoders, audit


def _open(model: str | Path, device: str) -> tuple[Predictor, dict[str, Any]]:
    """The model of an audit, and its numbers."""
    _, estimator, encoders, audit = open_model(model)
    device = _validation.check_device(device)
    classes = tuple(str(name) for name in estimator.classes_)
    fleet = estimator.model_.eval().to(device)
    return Predictor(fleet, classes, encoders, audit["settings"]["window"], device), audit


def _columns(audit: dict[str, Any], there: list[str], sequence: str | None, time: str | None) -> Request:
    """The columns of sequences and times: as named, else those of the audit where the table has them."""
    trained = audit["table"]["columns"]
    parts = (trained.get("sequence") or "").split(",")
    known = trained["sequence"] if trained.get("sequence") and all(part in there for part in parts) else None
    return Request(sequence or known, time or (trained["time"] if trained.get("time") in there else None))


class Predictor(NamedTuple):
    """A fitted ensemble, and how the tables that it knows are read."""

    model: Any  # a fleet of networks whose probabilities are averaged
    classes: tuple[str, ...]
    encoders: tuple[Encoder, ...]
    window: int
    device: str

    def predict(self, features: np.ndarray, mask: np.ndarray, in_threads: bool = False) -> np.ndarray:
        """The probability of each true label: float32 of shape (n, steps, classes)."""
        size = max(8, STEPS_AT_ONCE // features.shape[1] // 8 * 8)

        @torch.no_grad()
        def predict(start: int) -> Tensor:
            some, members = slice(start, start + size), self.model.members
            inputs, real = (torch.from_numpy(values[some]).to(self.device) for values in (features, mask))
            with torch_on_one_thread():
                logits = self.model(inputs.expand(members, -1, -1, -1), real.expand(members, -1, -1))
                return small_softmax(logits.cpu()).mean(0)

        starts = range(0, len(features), size)
        return torch.cat(list(work_ahead(predict, starts) if in_threads else map(predict, starts))).numpy()


def _lay_out(predictor: Predictor, files: FileSet, columns: Request, reading: Reading, work: Path) -> Layout:
    """The chunks of a large table, read as the model knows them."""
    roles = find_roles(files, columns, labelled=False)
    files = name_files(files, roles)
    roles.features = [encoder.column for encoder in predictor.encoders]
    absent = [name for name in roles.features if name not in files.schema.names]
    if absent:
        raise ValueError(
            f"The table must have the columns on which the model was trained. It lacks {quoted(absent)}. It has: "
            f"{quoted(files.schema.names)}."
        )
    numbers = [encoder.column for encoder in predictor.encoders if not encoder.levels]
    numbers += [roles.time] if roles.time else []
    texts = {name for name in numbers if is_text(files.schema.field(name).type)}  # perhaps with decimal commas
    counts = count_columns(files, roles, texts, lambda rows: None) if texts else TableCounts()
    tidy, _ = choose_tidying(counts, roles)
    prepared = prepare_rows(files, roles, tidy, reading, work, lambda rows: None)
    layout, _ = open_layout(prepared, predictor.window, work, lambda rows: None, tidy)
    clocks = (ClockInfo("position in the sequence", "position"),)
    return replace(layout, encoders=predictor.encoders, clocks=clocks)


def _predict_lines(predictor: Predictor, table: AuditInput, numbers: np.ndarray, in_threads: bool = False) -> pa.Table:
    """The predictions for the rows of a chunk; `numbers` are those of its rows in the user's table."""
    mask = _validation.steps_mask(table.lengths, table.index.shape[1])
    with torch_on_one_thread():
        chances = table.from_steps(predictor.predict(table.features, mask, in_threads))[table.line_step]
    rows, codes = pa.array(table.line_row), chances.argmax(1).astype(np.int32)
    columns = {
        "row": pa.array(numbers[table.line_row]),
        "sequence": table.ids.take(rows),
        "time": table.times.take(rows),
        "predicted": pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(predictor.classes)),
        "probability": chances.max(1),
    }
    each = {f"probability of {name}": chances[:, number] for number, name in enumerate(predictor.classes)}
    return pa.table(columns | each)
