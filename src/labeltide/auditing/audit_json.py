"""audit.json as it is read: every field that anything uses is checked here, because folders come from strangers."""

from __future__ import annotations

import json
import math
import reprlib
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from labeltide.auditing.results import AUDIT, FORMAT

MOST_DIGITS = 19  # of a whole number, as 2 ** 63 has
MOST_ROWS = 2**53
Check = Callable[[str, Any], None]


def load_audit_json(path: Path, needed: Sequence[str] = ()) -> dict[str, Any]:
    """The content of audit.json; a ValueError names the field that is not what an audit writes.

    Parameters
    ----------
    needed : fields that must be there, with dots between levels, such as "table.columns"
    """
    try:
        content = json.loads(path.read_bytes(), parse_int=_whole, parse_constant=_refuse)
        if not isinstance(content, dict):
            raise ValueError(f"it must hold one object. It holds {reprlib.repr(content)}.")
        _check_format(content.get("format"))
        _AUDIT("", content)
        for name in needed:
            _need(content, name)
    except OtherFormatError:
        raise
    except RecursionError:
        raise ValueError(_sentence(path, "it is nested too deeply.")) from None
    except ValueError as error:
        raise ValueError(_sentence(path, str(error))) from None
    return content


class OtherFormatError(ValueError):
    """A version of labeltide that writes audit.json in another form."""


def _check_format(version: Any) -> None:
    if version != FORMAT or type(version) is not int:
        raise OtherFormatError(
            f"{AUDIT} must have format {FORMAT}. Got {reprlib.repr(version)}; audit again with this version of "
            "labeltide."
        )


def _sentence(path: Path, why: str) -> str:
    return f"{str(path)!r} is not what an audit of this version writes: {why.rstrip('.')}. Audit again."


def _whole(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"it holds a whole number of {len(digits)} digits")
    return int(digits)


def _refuse(name: str) -> None:
    raise ValueError(f"it holds {name}, which is no number of JSON")


def _need(content: Any, name: str) -> None:
    for part in name.split("."):
        if not isinstance(content, Mapping) or part not in content:
            raise ValueError(f"{name} is missing")
        content = content[part]
    if content is None:
        raise ValueError(f"{name} is missing")


def _expect(is_right: bool, place: str, rule: str, value: Any) -> None:
    if not is_right:
        raise ValueError(f"{place} must be {rule}. It is {reprlib.repr(value)}")


def _text(place: str, value: Any) -> None:
    _expect(isinstance(value, str), place, "a text", value)


def _flag(place: str, value: Any) -> None:
    _expect(isinstance(value, bool), place, "true or false", value)


def _count(place: str, value: Any) -> None:
    _expect(type(value) is int and 0 <= value <= MOST_ROWS, place, "a whole number from 0", value)


def _number(place: str, value: Any) -> None:
    is_number = type(value) in (int, float) and math.isfinite(value)
    _expect(is_number and abs(value) <= 1e300, place, "a number", value)


def _positive(place: str, value: Any) -> None:
    _number(place, value)
    _expect(value > 0, place, "a number above 0", value)


def _window(place: str, value: Any) -> None:
    _expect(type(value) is int and 1 <= value < 2**31, place, "a whole number from 1", value)


def _moment(place: str, value: Any) -> None:
    _text(place, value)
    try:
        datetime.fromisoformat(value)
    except ValueError:
        _expect(False, place, "a date and time", value)


def _curve(axes: int) -> Check:
    """Numbers or nulls in lists within lists, all of one length."""

    def check(place: str, value: Any) -> None:
        try:
            found = np.array(value if isinstance(value, list) else None, dtype=float)
        except (ValueError, TypeError, OverflowError):
            found = np.array(0.0)
        is_right = isinstance(value, list) and (found.ndim == axes or not found.size)
        _expect(is_right and not np.isinf(found).any(), place, f"numbers in lists, {axes} deep", value)

    return check


def _maybe(check: Check) -> Check:
    return lambda place, value: None if value is None else check(place, value)


def _list(check: Check) -> Check:
    def check_list(place: str, value: Any) -> None:
        _expect(isinstance(value, list), place, "a list", value)
        for number, item in enumerate(value):
            check(f"{place}[{number}]", item)

    return check_list


def _object(known: Mapping[str, Check], needed: Sequence[str] = ()) -> Check:
    """An object whose known fields are checked where they are; others are nobody's business."""

    def check_object(place: str, value: Any) -> None:
        _expect(isinstance(value, dict), place, "an object", value)
        for name in needed:
            _expect(name in value, f"{place}.{name}".lstrip("."), "there", None)
        for name, check in known.items():
            if name in value:
                check(f"{place}.{name}".lstrip("."), value[name])

    return check_object


def _one_name_each(place: str, value: Any) -> None:
    _list(_text)(place, value)
    _expect(len(set(value)) == len(value), place, "a list of different names", value)


def _classes(place: str, value: Any) -> None:
    _one_name_each(place, value)
    _expect(1 <= len(value) <= 100_000, place, "a list of names", value)


_ENCODER_NUMBERS = dict.fromkeys(("centre", "low", "high", "fill"), _number)
_ENCODER_FIELDS = {
    "column": _text,
    "names": _one_name_each,
    "levels": _one_name_each,
    **_ENCODER_NUMBERS,
    "scale": _positive,
    "has_mask": _flag,
}


def _encoder(place: str, value: Any) -> None:
    """How a column becomes features; its features must be as many as it makes."""
    _object(_ENCODER_FIELDS, tuple(_ENCODER_FIELDS))(place, value)
    unknown = sorted(set(value) - set(_ENCODER_FIELDS))
    _expect(not unknown, place, "without other fields", unknown)
    names, levels = len(value["names"]), len(value["levels"])
    right = (levels - 1, levels) if levels else (1 + value["has_mask"],)
    _expect(names in right and names > 0, f"{place}.names", "as many as its column makes features", value["names"])
    _expect(value["low"] <= value["high"], f"{place}.low", "at most high", value["low"])


_MAYBE_TEXT, _MAYBE_NUMBER, _MAYBE_COUNT = _maybe(_text), _maybe(_number), _maybe(_count)
_ENDS = ("", "_lower", "_upper")
_CLOCK = _object({"name": _MAYBE_TEXT, "kind": _MAYBE_TEXT, "unit": _MAYBE_TEXT, "period": _maybe(_positive)})
_NOISE = _object(
    {
        **{f"rate{end}": _MAYBE_NUMBER for end in _ENDS},
        "clock": _maybe(_curve(1)),
        "curves": _maybe(
            _list(
                _object(
                    {
                        "annotator": _MAYBE_TEXT,
                        "labels": _MAYBE_COUNT,
                        **{f"rate{end}": _maybe(_curve(1)) for end in _ENDS},
                        **{f"class_rate{end}": _maybe(_curve(2)) for end in _ENDS},
                        **{f"class_rate_simultaneous{end}": _maybe(_curve(2)) for end in _ENDS[1:]},
                        **{name: _maybe(_curve(3)) for name in ("mean", "lower", "upper")},
                    }
                )
            )
        ),
    }
)
_TABLE = _object(
    {
        "name": _MAYBE_TEXT,
        "path": _MAYBE_TEXT,
        "digest": _MAYBE_TEXT,
        **dict.fromkeys(("rows", "sequences", "labels"), _MAYBE_COUNT),
        "columns": _object(dict.fromkeys(("sequence", "label", "time", "annotator", "trusted"), _MAYBE_TEXT)),
        "classes": _classes,
        "features": _maybe(_list(_text)),
        "annotators": _maybe(_one_name_each),
        "said": _maybe(_list(_text)),
    }
)
_SETTINGS = _object(
    {
        "model": _MAYBE_TEXT,
        "device": _MAYBE_TEXT,
        "seed": _MAYBE_COUNT,
        "window": _window,
        "fdr": _MAYBE_NUMBER,
    }
)
_FILE_OF_RECORDING = {
    "recording": _text,
    "first_row": _count,
    "start": _number,
    "rows": _count,
    "began": _maybe(_moment),
    "rate": _positive,
    "signals": _MAYBE_TEXT,
}


def _files(place: str, value: Any) -> None:
    known = {**_FILE_OF_RECORDING, "labels": _maybe(_list(_text))}
    _list(_object(known, tuple(_FILE_OF_RECORDING)))(place, value)
    first = [file["first_row"] for file in value]
    _expect(first[:1] == [0] and first == sorted(first), place, "in the order of rows, from 0", first)


_RECORDINGS = _object(
    {
        "epoch": _positive,
        "field": _MAYBE_TEXT,
        "annotators": _maybe(_list(_MAYBE_TEXT)),
        "files": _files,
    },
    ("epoch", "field", "files"),
)
_AUDIT = _object(
    {
        "format": _count,
        "labeltide": _text,
        "created": _MAYBE_TEXT,
        "command": _MAYBE_TEXT,
        "table": _TABLE,
        "settings": _SETTINGS,
        "clock": _CLOCK,
        "noise": _NOISE,
        "issues": _object({"count": _MAYBE_COUNT}),
        "plan": _maybe(_list(_object(dict.fromkeys(("sequence", "first", "last"), _MAYBE_TEXT)))),
        "encoders": _maybe(_list(_encoder)),
        "recordings": _maybe(_RECORDINGS),
    }
)
