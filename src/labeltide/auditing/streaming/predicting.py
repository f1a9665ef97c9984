"""Predictions for a table that does not fit in memory, chunk by chunk, appended to one parquet file."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import torch

from labeltide import _validation
from labeltide.auditing.streaming.ahead import work_ahead
from labeltide.auditing.streaming.chunk_reader import read_chunk
from labeltide.auditing.streaming.chunks import Chunk
from labeltide.auditing.streaming.layout import Layout
from labeltide.auditing.streaming.opening import count_columns, find_roles, open_layout, used_columns
from labeltide.auditing.streaming.result_writer import table_writer
from labeltide.auditing.streaming.scorer import STEPS_AT_ONCE
from labeltide.auditing.streaming.small_softmax import small_softmax
from labeltide.kernels.threads import torch_on_one_thread
from labeltide.tables.clock_columns import ClockInfo
from labeltide.tables.features import Encoder
from labeltide.tables.file_set import FileSet
from labeltide.tables.intake import is_text
from labeltide.tables.role_guesses import RoleColumns
from labeltide.tables.roles import Request
from labeltide.tables.tidying import NOTHING, Tidying, choose_tidying
from labeltide.tables.wording import quoted


class Predictor(NamedTuple):
    """A fitted ensemble, and how the tables that it knows are read."""

    model: Any  # a fleet of networks whose probabilities are averaged
    classes: tuple[str, ...]
    encoders: tuple[Encoder, ...]
    window: int
    device: str

    @torch.no_grad()
    def predict(self, features: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """The probability of each true label: float32 of shape (n, steps, classes)."""
        inputs, real = torch.from_numpy(features).to(self.device), torch.from_numpy(mask).to(self.device)
        size = max(8, STEPS_AT_ONCE // features.shape[1] // 8 * 8)
        parts = []
        for start in range(0, len(inputs), size):
            part, shown = inputs[start : start + size], real[start : start + size]
            logits = self.model(part.expand(self.model.members, -1, -1, -1), shown.expand(self.model.members, -1, -1))
            parts.append(small_softmax(logits.cpu()).mean(0))
        return torch.cat(parts).numpy()


def predict_files(
    predictor: Predictor,
    files: FileSet,
    out: Path,
    columns: Request,
    on_rows: Callable[[int, int], None] = lambda done, total: None,
) -> int:
    """Write the likeliest true label of every row to a new .parquet file, whole or not at all; give back the rows."""
    if not out.name.lower().endswith(".parquet"):
        raise ValueError(
            f"Predictions for {files.n_rows:,} rows are written to a file that ends in .parquet. Got {str(out)!r}."
        )
    work = out.absolute().with_name(f".{out.name}-unfinished")
    work.mkdir(parents=True, exist_ok=True)
    try:
        layout = _layout(predictor, files, columns, work)
        draft = work / "draft.parquet"
        writer, done = None, 0
        for lines in work_ahead(lambda chunk: predict_chunk(predictor, layout, chunk), layout.plan.chunks):
            writer = writer or table_writer(draft, lines.schema)
            writer.write_table(lines)
            done += len(lines)
            on_rows(done, layout.survey.n_rows)
        assert writer is not None
        writer.close()
        os.rename(draft, out)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return done


def _layout(predictor: Predictor, files: FileSet, columns: Request, work: Path) -> Layout:
    roles = find_roles(files, columns, labelled=False)
    features = [encoder.column for encoder in predictor.encoders]
    absent = [name for name in features if name not in files.schema.names]
    if absent:
        raise ValueError(
            f"The table must have the columns on which the model was trained. It has no {quoted(absent)}. It has: "
            f"{quoted(files.schema.names)}."
        )
    roles.features = features
    numbers = {encoder.column for encoder in predictor.encoders if not encoder.levels}
    tidy = _find_commas(files, roles, numbers | ({roles.time} if roles.time else set()))
    layout, _ = open_layout(files, roles, used_columns(files, roles), predictor.window, work, lambda rows: None, tidy)
    clocks = (ClockInfo("position in the sequence", "position"),)
    return Layout(layout.stream, roles, layout.survey, layout.plan, predictor.encoders, clocks, None, layout.row_column)


def _find_commas(files: FileSet, roles: RoleColumns, numbers: set[str]) -> Tidying:
    """Which columns of numbers have decimal commas; needs a pass over the files where some are texts."""
    texts = {name for name in numbers if is_text(files.schema.field(name).type)}
    if not texts:
        return NOTHING
    return choose_tidying(count_columns(files, roles, texts, lambda rows: None), roles)[0]


def predict_chunk(predictor: Predictor, layout: Layout, chunk: Chunk) -> pa.Table:
    """The predictions for the rows of one chunk."""
    with torch_on_one_thread():
        table, numbers = read_chunk(layout, chunk)
        mask = _validation.steps_mask(table.lengths, table.index.shape[1])
        chances = table.from_steps(predictor.predict(table.features, mask))[table.line_step]
    names = pa.array(predictor.classes)
    codes = chances.argmax(1).astype(np.int32)
    rows = pa.array(table.line_row)
    columns = {
        "row": pa.array(numbers[table.line_row]),
        "sequence": table.ids.take(rows),
        "time": table.times.take(rows),
        "predicted": pa.DictionaryArray.from_arrays(pa.array(codes), names),
        "probability": chances.max(1),
    }
    each = {f"probability of {name}": chances[:, place] for place, name in enumerate(predictor.classes)}
    return pa.table(columns | each)
