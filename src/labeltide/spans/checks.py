"""Checks that the file formats share: extras, files that cannot be read, texts that cannot be written, safe XML."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

import numpy as np
import pyarrow as pa

from labeltide._extras import import_extra as import_extra
from labeltide.spans.table import by_annotator, by_recording

MOST_BYTES = 512 * 2**20  # of a file of spans that is read as one text
DEEPEST = 100  # elements of XML within each other


def check_file(path: Path, most: int | None = MOST_BYTES) -> Path:
    """An existing file, no larger than a text of spans can be."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {str(path)!r}. The path is read from {str(Path.cwd())!r}.")
    if most is not None and path.stat().st_size > most:
        raise ValueError(f"A file of spans must be smaller than {most >> 20} MB. {str(path)!r} is larger. Split it.")
    return path


@contextmanager
def reading(path: Path, kind: str) -> Iterator[list[str]]:
    """Turn whatever a library raises on a bad file into a sentence; its warnings become the list of sentences."""
    said: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            yield said
        except OSError:
            raise
        except MemoryError:
            raise ValueError(f"The file {str(path)!r} cannot be read as {kind}: it asks for too much memory.") from None
        except Exception as error:  # each library has its own kinds of errors
            cause = " ".join(str(error).split())[:300].rstrip(".") or type(error).__name__
            raise ValueError(f"The file {str(path)!r} cannot be read as {kind}: {cause}.") from None
    own = [warning for warning in caught if not issubclass(warning.category, DeprecationWarning | FutureWarning)]
    said += dict.fromkeys(f"{kind}: {' '.join(str(warning.message).split()).rstrip('.')}." for warning in own)


def guarded(load: Callable[[int, int], np.ndarray], path: Path, kind: str) -> Callable[[int, int], np.ndarray]:
    """A function that loads samples later; what its library raises then is a sentence, too."""

    def load_samples(first: int, last: int) -> np.ndarray:
        with reading(path, kind):
            return np.asarray(load(first, last), dtype=np.float64)

    return load_samples


def parse_xml(path: Path) -> Element:
    """The root of an XML file; document type declarations, and with them entities, are refused."""
    builder, parser, depth = TreeBuilder(), expat.ParserCreate(), 0

    def refuse(*_: Any) -> None:
        raise ValueError("document type declarations and entities are not allowed")

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > DEEPEST:
            raise ValueError(f"elements lie more than {DEEPEST} deep within each other")
        builder.start(name, attributes)

    def end(name: str) -> None:
        nonlocal depth
        depth -= 1
        builder.end(name)

    parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = refuse
    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler = builder.data
    parser.Parse(check_file(path).read_bytes(), True)
    return builder.close()


def check_writable(spans: pa.Table, kind: str) -> pa.Table:
    """Spans that a file can hold: at least one, and no text with a control character."""
    if not spans.num_rows:
        raise ValueError(f"A file of {kind} must hold at least one span. Got none.")
    for name in ("label", "annotator", "recording"):
        for text in spans[name].unique().to_pylist():
            if text is not None and not text.isprintable() and any(ord(c) < 32 or 127 <= ord(c) < 160 for c in text):
                raise ValueError(
                    f"No {name} in a file of {kind} may hold line breaks, tabs or other control characters. "
                    f"Got {text!r}. Rename it."
                )
    return spans


def check_single(spans: pa.Table, kind: str) -> pa.Table:
    """Spans of one recording and one annotator, where the format has no place for more."""
    for name, parts in (("recording", by_recording(spans)), ("annotator", by_annotator(spans))):
        if len(parts) > 1:
            raise ValueError(
                f"A file of {kind} holds the spans of one {name}. Got {len(parts)}. Write one file for each."
            )
    return spans
