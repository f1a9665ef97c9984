"""Windows to learn from as files in the work folder, mapped into memory: one NumPy file for each array.

They are written chunk by chunk, whole or not at all, with features as networks read them. What is read of them counts
as the system's cache of files, which gives way where memory is short.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

from labeltide._files import write_folder_atomically
from labeltide.auditing.rare_classes import leave_out
from labeltide.auditing.streaming.chunk_reader import has_gaps, read_chunk
from labeltide.auditing.streaming.chunks import ChunkPlan
from labeltide.auditing.streaming.layout import Layout
from labeltide.auditing.streaming.work import WINDOWS
from labeltide.auditing.training_windows import TrainingWindows

Shapes = dict[str, tuple[tuple[int, ...], type]]


def window_shapes(layout: Layout, places: np.ndarray, n_features: int) -> Shapes:
    """Shape and type of every array for windows at these places, (windows, 2): sequence and number."""
    longest = min(layout.plan.window, int(layout.plan.counts[places[:, 0]].max()))
    steps = (len(places), longest)
    several = (len(layout.clocks),) if len(layout.clocks) > 1 else ()
    shapes: Shapes = {
        "features": ((*steps, n_features), np.float32),
        "fit_labels": ((*steps, len(layout.annotator_names or " ")), np.int8),
        "lengths": (steps[:1], np.int64),
        "clock": ((*steps, *several), np.float64),
    }
    if layout.columns.trusted is not None:
        shapes["fit_trusted"] = (steps, np.int8)
    if has_gaps(layout):
        shapes["gaps"] = (steps, np.int32)
    return shapes


def shape_bytes(shapes: Shapes) -> int:
    """How much disk arrays of these shapes take."""
    return sum(int(np.prod(shape)) * np.dtype(kind).itemsize for shape, kind in shapes.values())


def map_windows(
    layout: Layout,
    places: np.ndarray,
    n_features: int,
    work: Path,
    on_rows: Callable[[int], None] = lambda rows: None,
) -> TrainingWindows:
    """Write the windows at these places, unless an interrupted audit has, and map them into memory."""
    shapes, folder = window_shapes(layout, places, n_features), work / WINDOWS
    if not folder.exists():
        with write_folder_atomically(folder) as draft:
            _write(layout, places, shapes, draft, on_rows)
    arrays = {name: np.load(folder / f"{name}.npy", mmap_mode="c") for name in shapes}
    if any(arrays[name].shape != shape for name, (shape, _) in shapes.items()):
        raise ValueError(f"The kept work {folder} does not fit the table. Leave --resume out to start anew.")
    is_new = np.append(True, places[1:, 0] != places[:-1, 0])
    names = layout.survey.names.take(pa.array(places[is_new, 0])).to_pylist()
    return TrainingWindows(
        features=arrays["features"],
        fit_labels=arrays["fit_labels"],
        lengths=np.array(arrays["lengths"]),
        clock=arrays["clock"],
        fit_trusted=arrays.get("fit_trusted"),
        gaps=arrays.get("gaps"),
        groups=np.cumsum(is_new) - 1,
        sequence_names=tuple(map(str, names)),
        clocks=layout.clocks,
        n_all_steps=int(layout.plan.counts.sum()),
    )


def _write(layout: Layout, places: np.ndarray, shapes: Shapes, folder: Path, on_rows: Callable[[int], None]) -> None:
    arrays = {
        name: np.lib.format.open_memmap(folder / f"{name}.npy", "w+", kind, shape)
        for name, (shape, kind) in shapes.items()
    }
    row_of_window = _rows(layout.plan, places)
    first_windows = np.cumsum(layout.plan.n_windows) - layout.plan.n_windows
    for chunk in layout.plan.chunks:
        windows, numbers = layout.plan.windows(chunk), layout.plan.numbers(chunk)
        rows = row_of_window[first_windows[chunk.first_sequence + windows.groups] + numbers]
        if (rows >= 0).any():
            read = leave_out(read_chunk(layout, chunk)[0], layout.rare)
            for name, array in arrays.items():
                _put(array, rows, getattr(read, name), name)
        on_rows(chunk.last_row)
    for array in arrays.values():
        array.flush()


def _rows(plan: ChunkPlan, places: np.ndarray) -> np.ndarray:
    """The row of each window of the table, -1 for those that are not learned from: (all windows,)."""
    n_windows = plan.n_windows
    rows = np.full(int(n_windows.sum()), -1, dtype=np.int64)
    rows[(np.cumsum(n_windows) - n_windows)[places[:, 0]] + places[:, 1]] = np.arange(len(places))
    return rows


def _put(array: np.ndarray, rows: np.ndarray, values: np.ndarray, name: str) -> None:
    """Put the windows of a chunk in their rows; windows of a chunk may all be shorter than the longest of the table."""
    wanted = rows >= 0
    if array.ndim == 1:
        array[rows[wanted]] = values[wanted]
        return
    n_steps = values.shape[1]
    array[rows[wanted], :n_steps] = values[wanted]
    if n_steps < array.shape[1]:
        array[rows[wanted], n_steps:] = {"features": 0, "gaps": 1, "clock": 0}.get(name, -1)
