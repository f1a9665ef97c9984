"""Mutations of bytes and of JSON, drawn from a seeded generator."""

from __future__ import annotations

import copy
import random
from typing import Any

MAX_BYTES = 1 << 20  # of an input that grew by mutations
TOKENS = [
    b"\x00",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b'"',
    b"\n",
    b"\r",
    b",",
    b";",
    b"nan",
    b"inf",
    b"-1",
    b"1e400",
    b"9" * 30,
    b"../",
    b"[" * 200,
    b"{",
    b"=cmd",
    b"<!DOCTYPE x [<!ENTITY a 'b'>]>",
    b"2024-03-31 02:30",
    b"1,5",
    "é".encode("latin-1"),
    "\u202e".encode(),
    b"\xff" * 8,
    b"\x7f" + b"\xff" * 7,
]
NUMBERS = [0, 1, -1, 2, 127, 2**31, 2**63, -(2**63), 10**18, 10**30, 10**400, 0.5, -0.0, 1e308, 1e-308, -5]
NOT_FINITE = [float("nan"), float("inf"), -float("inf")]
TEXTS = ["", " ", "a", "../../x", "=1+1", "<b>", "\x00", "é", "\u202e", "label", "x" * 5000, "None", "1", "nan"]


def mutate_bytes(draw: random.Random, content: bytes, others: list[bytes]) -> bytes:
    """One to four changes: flipped, cut, repeated, moved or foreign bytes."""
    changed = bytearray(content)
    for _ in range(draw.choice([1, 1, 1, 2, 4])):
        changed = _mutate_once(draw, changed, others)
    return bytes(changed[:MAX_BYTES])


def _mutate_once(draw: random.Random, content: bytearray, others: list[bytes]) -> bytearray:
    size = len(content)
    start = draw.randrange(size + 1)
    end = min(size, start + draw.choice([1, 1, 2, 4, 8, 64, 4096]))
    kind = draw.randrange(8)
    if kind == 0 and size:
        content[draw.randrange(size)] ^= 1 << draw.randrange(8)
    elif kind == 1 and size:
        content[draw.randrange(size)] = draw.randrange(256)
    elif kind == 2:
        del content[start:end]
    elif kind == 3:
        del content[start:]
    elif kind == 4:
        content[start:start] = content[start:end] * draw.choice([1, 2, 50])
    elif kind == 5:
        token = draw.choice(TOKENS)
        content[start : start + draw.choice([0, len(token)])] = token
    elif kind == 6:
        other = draw.choice(others)
        begin = draw.randrange(len(other) + 1)
        content[start:end] = other[begin : begin + draw.choice([1, 16, 256])]
    else:
        content[start:end] = bytes(draw.randrange(256) for _ in range(end - start))
    return content


def mutate_json(draw: random.Random, value: Any, *, finite: bool = False) -> Any:
    """One to three changed nodes of a JSON value: another type, another number, missing, doubled, nested."""
    changed = copy.deepcopy(value)
    for _ in range(draw.choice([1, 1, 1, 2, 3])):
        changed = _change_value(draw, changed, finite)
    return changed


def _change_value(draw: random.Random, value: Any, finite: bool) -> Any:
    nodes = list(_nodes(value))
    if not nodes:
        return other_value(draw, value, finite)
    parent, key = draw.choice(nodes)
    kind = draw.randrange(10)
    if kind == 0:
        del parent[key]
    elif kind == 1 and isinstance(parent, list):
        parent.insert(key, copy.deepcopy(parent[key]))
    elif kind == 2 and isinstance(parent, dict):
        parent[draw.choice([*TEXTS, *parent])] = parent.pop(key)
    else:
        parent[key] = other_value(draw, parent[key], finite)
    return value


def _nodes(value: Any) -> Any:
    """Every place of a value, but of long lists only the first and the last."""
    if isinstance(value, dict):
        keys: Any = list(value)
    else:
        keys = sorted({0, 1, len(value) - 1} & set(range(len(value)))) if isinstance(value, list) else []
    for key in keys:
        yield value, key
        yield from _nodes(value[key])


def other_value(draw: random.Random, value: Any, finite: bool = False) -> Any:
    """A value that somebody else may have put there."""
    kind = draw.randrange(8)
    if kind == 0:
        return None
    if kind == 1:
        return draw.choice([True, False])
    if kind == 2:
        return draw.choice(TEXTS)
    if kind == 3:
        return draw.choice([[], {}, [value], {"a": value}, [[value]], [value] * 3])
    if kind == 4 and not finite:
        return draw.choice(NOT_FINITE)
    if kind == 5 and isinstance(value, int | float) and not isinstance(value, bool):
        return draw.choice([-value, value * 10, value + 1, value * 0.3 if abs(value) < 1e300 else 0, repr(value)[:40]])
    if kind == 6:
        return _deep(draw.choice([5, 50, 900]))
    return draw.choice(NUMBERS)


def _deep(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value
