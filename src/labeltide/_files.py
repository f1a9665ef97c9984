"""Atomic writes of files, and strict JSON."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def write_atomically(path: Path, content: bytes | Callable[[Path], None]) -> None:
    """Write a file atomically: to a temporary file in the same folder, synced and then renamed.

    A function is called with the temporary file, for content that should not be in memory twice.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".partial")
    try:
        with os.fdopen(handle, "wb") as file:
            if callable(content):
                content(Path(draft))
            else:
                file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(draft, 0o644)  # mkstemp creates files that only their owner may read
        os.replace(draft, path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise


def write_json(path: Path, content: Any) -> None:
    """Write strict JSON atomically: numbers that are not finite become null."""
    text = json.dumps(to_json(content), ensure_ascii=False, allow_nan=False, indent=1)
    write_atomically(path, text.encode("utf-8", "replace"))


def to_json(value: Any) -> Any:
    """The value in the types of JSON; numbers that are not finite become None."""
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return to_json(value.tolist())
    if isinstance(value, list | tuple | set | frozenset):
        return [to_json(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def os_error_text(error: OSError) -> str:
    """An error of the system as a sentence with the file's name; a sentence of our own stays as it is."""
    if error.errno is None:
        return str(error)
    quoted = re.search("'(.+?)'", str(error.strerror))  # Arrow names the file within its text alone
    name = str(error.filename) if error.filename else quoted[1] if quoted else None
    return f"{'A file' if name is None else repr(name)} cannot be read or written: {os.strerror(error.errno)}."


# Libraries that only some functions need: imported when used, with a sentence where one is not installed or fails.


def import_extra(module: str, extra: str, purpose: str, instead: str = "") -> Any:
    """The module, or a ValueError that says what it is for, how to install it and what can be done instead."""
    try:
        return import_module(module)
    except ImportError:
        name = module.split(".")[0]
        raise ValueError(
            f"{purpose} needs {name}, which is not installed. Install it with: pip install 'labeltide[{extra}]'"
            f"{f'; or {instead}' if instead else ''}."
        ) from None


@contextmanager
def library_errors(path: Path, kind: str) -> Iterator[list[str]]:
    """Turn whatever a library raises on a bad file into a sentence; its warnings become the list of sentences."""
    messages: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            yield messages
        except OSError:
            raise
        except Exception as error:  # each library has its own kinds of errors
            cause = " ".join(str(error).split())[:300].rstrip(".") or type(error).__name__
            cause = "it asks for too much memory" if isinstance(error, MemoryError) else cause
            raise ValueError(f"The file {str(path)!r} cannot be read as {kind}: {cause}.") from None
    own = [warning for warning in caught if not issubclass(warning.category, DeprecationWarning | FutureWarning)]
    messages += dict.fromkeys(f"{kind}: {' '.join(str(warning.message).split()).rstrip('.')}." for warning in own)


# Texts that no spreadsheet program runs as a formula; every CSV file of ours is written with them.

# What starts a formula, also in the wide forms of East Asian keyboards; blanks, marks of direction and quotes before
# it do not help. A plain number such as -5 is none.
_WIDE = "\uff1d\uff0b\uff0d\uff20"
_QUOTES = "\"'`\u201c\u201d\u2018\u2019"
RISKY = rf"^[\s\p{{Z}}\p{{C}}{_QUOTES}]*[=+\-@{_WIDE}]|^[ ]*[\t\r\n]"
NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
# After one of these, a program that takes them for the end of a cell starts a new one. A sign alone, as in "a, -b",
# starts a formula that does nothing: for harm it needs a call, a pipe or the name of a sheet.
_ENDS = r"([,;\t\r\n|\"'][\s\p{Z}\p{C}\"']*)"
INSIDE = rf"{_ENDS}([=@{_WIDE[0]}{_WIDE[3]}])"
INSIDE_WITH_SIGNS = rf"{_ENDS}([=+\-@{_WIDE}])"
HARMFUL = "[(|!\uff08\uff5c\uff01]"


def safe_texts(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """The texts, with an apostrophe before whatever a spreadsheet program would run."""
    risky = pc.match_substring_regex(column, RISKY)
    number = pc.match_substring_regex(column, NUMBER)
    inside = pc.if_else(
        pc.match_substring_regex(column, HARMFUL),
        pc.replace_substring_regex(column, INSIDE_WITH_SIGNS, r"\1'\2"),
        pc.replace_substring_regex(column, INSIDE, r"\1'\2"),
    )
    guarded = pc.binary_join_element_wise(pa.scalar("'", column.type), inside, pa.scalar("", column.type))
    return pc.if_else(pc.and_not(risky, number), guarded, pc.if_else(number, column, inside))


def bare_text(text: str) -> str:
    """A text without the apostrophe that `safe_texts` put before it."""
    if not text.startswith("'"):
        return text
    return text[1:] if safe_texts(pa.array([text[1:]]))[0].as_py() == text else text


def csv_text(rows: Iterable[Iterable[Any]], separator: str = ",") -> str:
    """Rows as CSV with safe texts; other values, and None as nothing, as `csv.writer` writes them."""
    cells = [list(row) for row in rows]
    texts = list(dict.fromkeys(cell for row in cells for cell in row if isinstance(cell, str)))
    safe = dict(zip(texts, safe_texts(pa.array(texts, pa.string())).to_pylist(), strict=True))
    sink = io.StringIO()
    writer = csv.writer(sink, delimiter=separator, lineterminator="\n")
    writer.writerows([safe[cell] if isinstance(cell, str) else cell for cell in row] for row in cells)
    return sink.getvalue()
