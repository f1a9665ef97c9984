"""Predictions for another table by the model of an audit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from labeltide._validation import check_device
from labeltide.auditing.audit_input import AuditInput, decode
from labeltide.auditing.audit_json import load_audit_json
from labeltide.auditing.folder import AUDIT, MODEL, MODEL_FILE
from labeltide.auditing.new_file import check_file, draft_of
from labeltide.auditing.reading import read_new_table
from labeltide.auditing.recordings import read_unlabelled
from labeltide.auditing.source import choose_source, read_all
from labeltide.auditing.spreadsheet import write_safe_csv
from labeltide.estimators.storage import load
from labeltide.tables.features import encoder_from_json
from labeltide.tables.file_set import FileSet
from labeltide.tables.frames import like_table
from labeltide.tables.intake import open_table
from labeltide.tables.roles import Request

__all__ = ["check_file", "find_folder", "predict_table", "write_predictions"]

NEEDED = ("encoders", "table.columns", "table.classes", "settings.window")  # of audit.json
AT_ONCE = 200_000  # steps of windows that are predicted together


def predict_table(
    model: str | Path, table: Any, *, sequence: str | None = None, time: str | None = None, device: str = "auto"
) -> Any:
    """The likeliest true label of every row, from its features and those of the rows before it.

    An Arrow table; a frame of pandas, with its index, or of polars where one was given.

    Parameters
    ----------
    model : the folder of an audit, or the model file in it
    table : as `labeltide.audit` takes it; needs the columns of the features, not those of the labels; after an
        audit of recordings also another recording
    sequence, time : columns, those of the audit when left out

    Examples
    --------
    >>> import labeltide as lt
    >>> lt.predict_table("audit", "walks.csv").column_names[:5]
    ['row', 'sequence', 'time', 'predicted', 'probability']
    """
    folder = find_folder(Path(model))
    audit = load_audit_json(folder / AUDIT, NEEDED)
    estimator = load(folder / MODEL / MODEL_FILE)
    _check_fits(audit, estimator, folder)
    estimator.device = device
    source = read_unlabelled(table, audit["recordings"]) if audit.get("recordings") else choose_source(table)
    opened = open_table(read_all(source) if isinstance(source, FileSet) else source)
    columns = _columns(audit, opened.names, sequence, time)
    read = read_new_table(
        opened,
        encoders=[encoder_from_json(fields) for fields in audit["encoders"]],
        class_names=audit["table"]["classes"],
        window=audit["settings"]["window"],
        sequence=columns.sequence,
        time=columns.time,
    )
    return like_table(_lines(read, estimator), table)


def predict_to_file(
    model: str | Path,
    table: Any,
    out: Path,
    *,
    sequence: str | None = None,
    time: str | None = None,
    device: str = "auto",
    on_rows: Callable[[int, int], None] = lambda done, total: None,
) -> int:
    """Write what `predict_table` gives to a new file, a large table in bounded memory; give back the number of rows.

    Parameters
    ----------
    out : .parquet or, for tables that fit in memory, .csv
    on_rows : called with the rows done and all rows, of a large table
    """
    check_file(out)
    folder = find_folder(Path(model))
    audit = load_audit_json(folder / AUDIT, NEEDED)
    source = table if audit.get("recordings") else choose_source(table)
    if not isinstance(source, FileSet):
        predictions = predict_table(model, source, sequence=sequence, time=time, device=device)
        write_predictions(predictions, out)
        return len(predictions)
    from labeltide.auditing.streaming.predicting import Predictor, predict_files

    estimator = load(folder / MODEL / MODEL_FILE)
    _check_fits(audit, estimator, folder)
    device = check_device(device)
    predictor = Predictor(
        model=estimator.model_.eval().to(device),
        classes=tuple(str(name) for name in estimator.classes_),
        encoders=tuple(encoder_from_json(fields) for fields in audit["encoders"]),
        window=audit["settings"]["window"],
        device=device,
    )
    return predict_files(predictor, source, out, _columns(audit, source.schema.names, sequence, time), on_rows)


def _columns(audit: dict[str, Any], there: list[str], sequence: str | None, time: str | None) -> Request:
    """The columns of sequences and times: as named, else those of the audit where the table has them."""
    trained = audit["table"]["columns"]
    parts = (trained.get("sequence") or "").split(",")
    known = trained["sequence"] if trained.get("sequence") and all(part in there for part in parts) else None
    return Request(sequence or known, time or (trained["time"] if trained.get("time") in there else None))


def find_folder(model: Path) -> Path:
    """The folder of the audit to which a model belongs."""
    for folder in (model, model.parent, model.parent.parent):
        if (folder / AUDIT).is_file() and (folder / MODEL / MODEL_FILE).is_file():
            return folder
    raise ValueError(
        f"The model must be the folder of an audit, with {AUDIT} and {MODEL}/{MODEL_FILE} in it. Got {str(model)!r}."
    )


def write_predictions(predictions: pa.Table, path: Path) -> Path:
    """Write predictions to a new .parquet or .csv file, whole or not at all."""
    with draft_of(path) as draft:
        if path.name.lower().endswith(".parquet"):
            parquet.write_table(predictions, draft, compression="zstd")
        else:
            write_safe_csv(predictions, draft)
    return path


def _lines(read: AuditInput, estimator: Any) -> pa.Table:
    rows = max(1, AT_ONCE // read.index.shape[1])
    parts = [
        estimator.predict_proba(read.features[start : start + rows], read.lengths[start : start + rows])
        for start in range(0, len(read.index), rows)
    ]
    chances = read.rows_from_steps(np.concatenate(parts), by_annotator=False)  # (lines, classes)
    names = tuple(str(name) for name in estimator.classes_)
    row = pa.array(read.line_row)
    columns = {"row": row, "sequence": read.ids.take(row), "time": read.times.take(row)}
    columns |= {"predicted": decode(chances.argmax(1), names), "probability": pa.array(chances.max(1))}
    return pa.table(columns | {f"probability of {name}": chances[:, place] for place, name in enumerate(names)})


def _check_fits(audit: dict[str, Any], estimator: Any, folder: Path) -> None:
    """The model must be the one of the audit."""
    features = sum(len(encoder["names"]) for encoder in audit["encoders"]) or 1
    names = [str(name) for name in estimator.classes_]
    if estimator.n_features_in_ != features or sorted(names) != sorted(audit["table"]["classes"]):
        raise ValueError(
            f"{MODEL}/{MODEL_FILE} in {str(folder)!r} is not the model of its {AUDIT}: they differ in features or "
            "classes. Audit again."
        )
