"""Read audit.json: every field that is used is checked, because folders may come from strangers."""

from __future__ import annotations

import json
import reprlib
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from labeltide._validation import COUNT, FLAG, NUMBER, POSITIVE, TEXT, Maybe, Rule, check_content, read_whole
from labeltide.auditing.results import AUDIT, FORMAT


def load_audit_json(folder: Path, needed: Sequence[str] = ()) -> dict[str, Any]:
    """The content of audit.json in a folder; a ValueError names the field that is not what an audit writes.

    Fields that are `needed` must be present; dots stand between levels, as in "table.columns".
    """
    path = Path(folder) / AUDIT
    if not path.exists():
        raise FileNotFoundError(f"{path.parent} holds no {AUDIT}. Name a folder that `labeltide audit` wrote.")
    try:
        content = json.loads(path.read_bytes(), parse_int=read_whole, parse_constant=_refuse_constant)
        check_content(content, {})
        for part in ("table", "compare", "recordings"):  # where messages had another name before 0.2
            if isinstance(content.get(part), dict) and "said" in content[part]:
                content[part].setdefault("messages", content[part].pop("said"))
        version = content.get("format")
        is_known = version == FORMAT and type(version) is int
        check_content(content, _AUDIT if is_known else {})
        for name in needed if is_known else ():
            value: Any = content
            for part in name.split("."):
                value = value.get(part) if isinstance(value, dict) else None
            if value is None:
                raise ValueError(f"{name} is missing")
    except (ValueError, OverflowError, RecursionError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error).rstrip(".")
        raise ValueError(f"{str(path)!r} is not what an audit of this version writes: {why}. Audit again.") from None
    if not is_known:
        found = reprlib.repr(version)
        raise ValueError(f"{AUDIT} must have format {FORMAT}. Got {found}; audit again with this version of labeltide.")
    return content


def _refuse_constant(name: str) -> None:
    raise ValueError(f"it holds {name}, which JSON does not allow")


def _is_moment(value: Any) -> bool:
    try:
        return bool(datetime.fromisoformat(value))
    except (TypeError, ValueError):
        return False


def _curve(axes: int) -> Maybe:
    """Numbers or nulls in nested lists of equal length, or null."""

    def holds(value: Any) -> bool:
        try:
            found = np.array(value if isinstance(value, list) else None, dtype=float)
        except (ValueError, TypeError, OverflowError):
            return False
        return isinstance(value, list) and (found.ndim == axes or not found.size) and not bool(np.isinf(found).any())

    return Maybe(Rule(f"numbers in lists, {axes} deep", holds))


def _has_features_of_its_column(encoder: Any) -> bool:
    n_names, n_levels = len(encoder["names"]), len(encoder["levels"])
    return n_names > 0 and n_names in ((n_levels - 1, n_levels) if n_levels else (1 + encoder["has_mask"],))


def _is_in_order(files: Any) -> bool:
    first_rows = [file["first_row"] for file in files]
    return first_rows[:1] == [0] and first_rows == sorted(first_rows)


def _has_steps(people: Any) -> bool:
    each = people.values() if isinstance(people, dict) else [None]
    return all(isinstance(found, dict) and NUMBER.holds(found.get("assumed")) for found in each)


def _has_equal_lengths(planted: Any) -> bool:
    return len({len(each[name[:-1]]) for each in planted for name in _PLANTED_COUNTS}) <= 1


_PLANTED_COUNTS = ("planted*", "found*", "named*", "named_again*")  # by class
_ENDS = ("", "_lower", "_upper")
_NAMES = ([TEXT], Rule("a list of distinct names", lambda names: len(set(names)) == len(names)))
_ENCODER = {
    "column*": TEXT,
    "names*": _NAMES,
    "levels*": _NAMES,
    **dict.fromkeys(("centre*", "low*", "high*", "fill*"), NUMBER),
    "scale*": POSITIVE,
    "has_mask*": FLAG,
    "is_log": FLAG,
}
_ENCODER_RULES = (
    Rule("without other fields", lambda encoder: {*encoder} <= {name.rstrip("*") for name in _ENCODER}),
    Rule("an encoder with as many names as its column has features", _has_features_of_its_column),
    Rule("an encoder whose low is at most its high", lambda encoder: encoder["low"] <= encoder["high"]),
)
_NOISE_CURVE = {
    "annotator": Maybe(TEXT),
    "labels": Maybe(COUNT),
    **{f"rate{end}": _curve(1) for end in _ENDS},
    **{f"class_rate{end}": _curve(2) for end in _ENDS},
    **{f"class_rate_simultaneous{end}": _curve(2) for end in _ENDS[1:]},
    **{name: _curve(3) for name in ("mean", "lower", "upper")},
}
_TABLE = {
    "name": Maybe(TEXT),
    "path": Maybe(TEXT),
    "digest": Maybe(TEXT),
    **dict.fromkeys(("rows", "sequences", "labels"), Maybe(COUNT)),
    "columns": dict.fromkeys(("sequence", "label", "time", "annotator", "trusted"), Maybe(TEXT)),
    "classes": (_NAMES, Rule("a list of names", lambda names: 1 <= len(names) <= 100_000)),
    "features": Maybe([TEXT]),
    "annotators": Maybe(_NAMES),
    "messages": Maybe([TEXT]),
    "shifts": Maybe(
        {
            "assumed": NUMBER,
            "sentence": TEXT,
            "step_seconds": Maybe(POSITIVE),
            "curve": {"shift": _curve(1), "fit": _curve(1)},
            "annotators": Maybe(Rule("the steps assumed for each annotator", _has_steps)),
            "recordings": Maybe([{"sequence*": TEXT, "shift*": NUMBER, "p_value*": NUMBER, "interval": [NUMBER]}]),
        }
    ),
}
_FILE = {
    "recording*": TEXT,
    "first_row*": COUNT,
    "start*": NUMBER,
    "rows*": COUNT,
    "began*": Maybe(Rule("a date and time", _is_moment)),
    "rate*": POSITIVE,
    "signals*": Maybe(TEXT),
    "labels": Maybe([TEXT]),
    "annotators": Maybe([Maybe(TEXT)]),
}
_PLANTED = {**{name: [COUNT] for name in _PLANTED_COUNTS}, "kind*": TEXT, "response": Maybe(NUMBER)}
_AUDIT = {
    "format": COUNT,
    "labeltide": TEXT,
    "created": Maybe(TEXT),
    "command": Maybe(TEXT),
    "table": _TABLE,
    "settings": {
        "model": Maybe(TEXT),
        "device": Maybe(TEXT),
        "seed": Maybe(COUNT),
        "window": Rule("a whole number from 1", lambda value: type(value) is int and 1 <= value < 2**31),
        "fdr": Maybe(NUMBER),
    },
    "clock": {"name": Maybe(TEXT), "kind": Maybe(TEXT), "unit": Maybe(TEXT), "period": Maybe(POSITIVE)},
    "noise": {
        **{f"rate{end}": Maybe(NUMBER) for end in (*_ENDS, "_least", "_unclear")},
        "clock": _curve(1),
        "curves": Maybe([_NOISE_CURVE]),
    },
    "issues": {"count": Maybe(COUNT), "by_kind": Maybe({"run": COUNT}), "patterns": Maybe([TEXT])},
    "planted": Maybe(([_PLANTED], Rule("as many numbers for each kind", _has_equal_lengths))),
    "plan": Maybe([dict.fromkeys(("sequence", "first", "last"), Maybe(TEXT))]),
    "timelines": Maybe([{"signals": Maybe({})}]),
    "encoders": Maybe([(_ENCODER, *_ENCODER_RULES)]),
    "recordings": Maybe(
        {
            "epoch*": POSITIVE,
            "field*": Maybe(TEXT),
            "annotators": Maybe([Maybe(TEXT)]),
            "files*": ([_FILE], Rule("in the order of rows, from 0", _is_in_order)),
        }
    ),
}
