"""Tables of every kind of file, and files of spans."""

from __future__ import annotations

import io
import random
import zipfile
from collections.abc import Callable
from functools import partial

import openpyxl
import pyarrow as pa
from pyarrow import feather, parquet

from auditing.tables import make_table
from fuzz.engine import Room, Target
from fuzz.mutations import NUMBERS, TEXTS, mutate_bytes
from fuzz.targets.audits import mutate_parquet
from labeltide.recordings.spans.formats import read_spans
from labeltide_bench.tables import read_audit_table
from spans.some_spans import random_spans
from spans.test_round_trips import FORMATS

HEADER = ["person", "time", "label", "signal", "site"]
CELLS = [
    *TEXTS,
    "1,5",
    "1.5",
    "-3",
    "2024-03-31 02:30:00",
    "2024-03-31T02:30:00+02:00",
    "31.03.2024 02:30",
    "03/31/2024",
    "12:30",
    "NA",
    "#N/A",
    "true",
    "1e400",
    "inf",
]


def _read(content: bytes, room: Room, *, end: str) -> None:
    read_audit_table(room.put(f"study.{end}", content), label="label")


def _csv_seeds(room: Room) -> list[bytes]:
    lines = [",".join(HEADER)]
    lines += [f"p{row // 6},{row % 6},{'walk' if row % 4 else 'rest'},{row / 7:.3f},a" for row in range(36)]
    text = "\n".join(lines) + "\n"
    dated = text.replace(",0,", ",2024-01-01 10:00,").replace(",1,", ",2024-01-01 10:01,")
    german = text.replace(",", ";").replace(".", ",").replace("walk", "größe")
    marked = b"\xef\xbb\xbf" + text.encode()
    return [text.encode(), dated.encode(), german.encode("latin-1"), german.encode("utf-16"), marked]


def mutate_csv(draw: random.Random, content: bytes, room: Room) -> bytes | None:
    """Cells, lines and the order of lines changed; another encoding, separator or line end."""
    if draw.random() < 0.3:
        return None
    separator = max(b",;\t|", key=lambda code: content.count(bytes([code])))
    lines = [line.split(bytes([separator])) for line in content.split(b"\n")]
    for _ in range(draw.choice([1, 2, 8])):
        line = draw.choice(lines)
        line[draw.randrange(len(line))] = draw.choice(CELLS).encode("utf-8", "replace")
    kind = draw.randrange(6)
    if kind == 0:
        draw.shuffle(lines)
    elif kind == 1:
        lines += [draw.choice(lines) for _ in range(3)]
    elif kind == 2:
        separator = draw.choice(b",;\t|\x00")
    ends = draw.choice([b"\n", b"\n", b"\n", b"\r\n", b"\r"])
    text = ends.join(bytes([separator]).join(line) for line in lines)
    if draw.random() < 0.1:
        text = text.decode("utf-8", "replace").encode(draw.choice(["utf-16", "utf-32", "cp1252", "utf-7"]), "replace")
    return text


def _table_bytes(write: Callable[[pa.Table, io.BytesIO], object]) -> list[bytes]:
    sink = io.BytesIO()
    write(make_table(people=4, steps=8), sink)
    return [sink.getvalue()]


def _workbook(cells: list[list[object]]) -> bytes:
    book, sink = openpyxl.Workbook(), io.BytesIO()
    for row in cells:
        book.active.append(row)
    book.save(sink)
    return sink.getvalue()


def _xlsx_seeds(room: Room) -> list[bytes]:
    rows = [[f"p{row // 4}", row % 4, "walk" if row % 3 else "rest", row / 7, "a"] for row in range(16)]
    return [_workbook([HEADER, *rows])]


def mutate_xlsx(draw: random.Random, content: bytes, room: Room) -> bytes | None:
    """The XML of a part changed, so that the archive is still whole; or other cells."""
    kind = draw.random()
    if kind < 0.3:
        return None
    if kind < 0.5:
        rows: list[list[object]] = [[f"p{row // 4}", row % 4, "ab"[row % 2], row, "a"] for row in range(12)]
        rows.insert(0, list(HEADER))
        for _ in range(4):
            row = draw.choice(rows)
            row[draw.randrange(5)] = draw.choice([None, True, "=1+1", 1e300, "x", "1,5", 5, -1])
        return _workbook(rows)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            files = {info.filename: archive.read(info) for info in archive.infolist()}
    except Exception:
        return None
    if not files:
        return None
    name = draw.choice(sorted(files))
    files[name] = mutate_bytes(draw, files[name], list(files.values()))
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        for each, data in files.items():
            archive.writestr(each, data)
    return sink.getvalue()


def _span_seeds(room: Room, *, name: str) -> list[bytes]:
    adapter, file, options, kind, _ = FORMATS[name]
    adapter.write(random_spans(1, count=6, **kind), room.folder / file, **options)
    return [(room.folder / file).read_bytes()]


def _read_spans(content: bytes, room: Room, *, name: str) -> None:
    read_spans(room.put(FORMATS[name][1], content))


def mutate_text(draw: random.Random, content: bytes, room: Room) -> bytes | None:
    """A number in the text replaced by another."""
    if draw.random() < 0.6:
        return None
    indices = [index for index, code in enumerate(content) if 48 <= code < 58]
    if not indices:
        return None
    index = draw.choice(indices)
    number = str(draw.choice([*NUMBERS, "nan", "inf", "-inf", ""])).encode()
    return content[:index] + number + content[index + 1 :]


FILES = (
    Target("csv", _csv_seeds, partial(_read, end="csv"), mutate_csv),
    Target("parquet", lambda _: _table_bytes(parquet.write_table), partial(_read, end="parquet"), mutate_parquet),
    Target("arrow", lambda _: _table_bytes(feather.write_feather), partial(_read, end="feather")),
    Target("xlsx", _xlsx_seeds, partial(_read, end="xlsx"), mutate_xlsx),
    *(
        Target(f"spans, {name}", partial(_span_seeds, name=name), partial(_read_spans, name=name), mutate_text)
        for name in FORMATS
    ),
)
