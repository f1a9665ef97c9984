"""Excel workbooks (.xlsx) by openpyxl: the first sheet, whose first row names the columns."""

from __future__ import annotations

import warnings
from datetime import date, datetime, time
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

import pyarrow as pa

from labeltide._extras import import_extra
from labeltide.tables.wording import quoted

MOST_BYTES = 2**30  # of a workbook, unpacked
MOST_CELLS = 50_000_000


def read_excel(path: Path) -> pa.Table:
    """The first sheet of a workbook as a table, or a sentence that says why it is none."""
    openpyxl = import_extra("openpyxl", "excel", "Reading Excel workbooks", "save the sheet as CSV")
    try:
        _check_size(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about styles and extensions, which hold no data
            book = openpyxl.load_workbook(path, read_only=False, data_only=True)
            sheet = book.worksheets[0] if book.worksheets else None
            return _table(path, sheet)
    except (ValueError, MemoryError) as error:
        raise ValueError(_sentence(path, error)) from None
    except OSError:
        raise
    except Exception as error:  # openpyxl raises what its parser does
        raise ValueError(_sentence(path, error)) from None


def _check_size(path: Path) -> None:
    """Refuse a workbook that unpacks to more than memory should hold."""
    try:
        with ZipFile(path) as parts:
            size = sum(part.file_size for part in parts.infolist())
    except BadZipFile:
        raise ValueError("it is no workbook") from None
    if size > MOST_BYTES:
        raise ValueError(f"it unpacks to more than {MOST_BYTES >> 30} GB. Save the sheet as CSV or Parquet")


def _table(path: Path, sheet: Any) -> pa.Table:
    if sheet is None:
        raise ValueError("it has no sheet")
    merged = [str(cells) for cells in sheet.merged_cells.ranges]
    if merged:
        raise ValueError(
            f"cells of the sheet {sheet.title!r} are merged: {quoted(merged, 3)}. Unmerge them, or save as CSV"
        )
    if sheet.max_row * sheet.max_column > MOST_CELLS:
        raise ValueError("the sheet is too large. Save it as CSV or Parquet")
    rows = [row for row in sheet.iter_rows(values_only=True) if any(cell is not None for cell in row)]
    if not rows:
        raise ValueError(f"the sheet {sheet.title!r} is empty. The table must lie in the first sheet")
    header = rows[0]
    used = [k for k in range(len(header)) if any(row[k] is not None for row in rows)]
    unnamed = [k for k in used if header[k] is None or not str(header[k]).strip()]
    if unnamed:
        letter = sheet.cell(1, unnamed[0] + 1).column_letter
        raise ValueError(
            f"column {letter} of the sheet {sheet.title!r} has no name in the first row. Name every column"
        )
    names = [str(header[k]).strip() for k in used]
    return pa.Table.from_arrays([_array([row[k] for row in rows[1:]]) for k in used], names=names)


def _array(cells: list[Any]) -> pa.Array:
    """Cells as Arrow's own type where they share one; whole numbers stay whole; else texts."""
    kinds = {type(cell) for cell in cells if cell is not None}
    if kinds <= {int, float} or kinds <= {date, datetime} or len(kinds) < 2:
        if kinds == {int, float}:
            return pa.array([None if cell is None else float(cell) for cell in cells], pa.float64())
        if kinds == {date, datetime}:
            cells = [datetime.combine(c, time()) if type(c) is date else c for c in cells]
        return pa.array(cells)
    return pa.array([None if cell is None else str(cell) for cell in cells], pa.string())


def _sentence(path: Path, error: BaseException) -> str:
    cause = " ".join(str(error).split())[:300].rstrip(".") or type(error).__name__
    return f"The file {str(path)!r} cannot be read as xlsx: {cause}."
