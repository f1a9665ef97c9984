"""The JSON header of a saved file: writing, reading, validation, and a SHA-256 digest of the whole file."""

from __future__ import annotations

import hashlib
import json
import reprlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from labeltide import __version__, _validation
from labeltide.estimators.registry import METHODS
from labeltide.estimators.storage_params import PLAIN, check_fields, check_params, plain_params
from labeltide.noise.base import NoiseFunction
from labeltide.noise.fixed import FixedNoise
from labeltide.noise.network import NetworkNoise
from labeltide.noise.static import StaticNoise
from labeltide.noise.stepwise import StepwiseNoise
from labeltide.tables.sources import Sources

if TYPE_CHECKING:
    from labeltide.estimators.base import NoisyLabelClassifier

FORMAT = 1
NOISES: dict[str, type[NoiseFunction]] = {
    "fixed": FixedNoise,
    "static": StaticNoise,
    "stepwise": StepwiseNoise,
    "network": NetworkNoise,
}
SHAPE_FIELDS = ("classes", "n_features", "n_points", "noise", "sources")
FIELDS = ("sha256", "format", "labeltide", "method", "params", *SHAPE_FIELDS, "learned")
OLD_FIELDS = {"sources": {"annotators": 1, "groups": None}}  # of files written before annotators had a Q each
MAX_SOURCES = 100_000
DIGEST_MARK = b'\\"sha256\\": \\"'  # the digest follows; JSON within the JSON header, hence the backslashes
NO_DIGEST = "0" * 64  # stands in for the digest while the file is digested
MAX_HEADER = 100_000_000  # bytes, the limit of safetensors itself
MAX_DIGITS = 19  # of a whole number, as 2 ** 63 has
MAX_DEPTH = 16  # of tuples within tuples in a class name


@dataclass(frozen=True)
class Described:
    """The validated content of the header.

    Attributes
    ----------
    method : the class of the estimator
    params : its parameters; `model` is None where it was the user's own
    classes, n_features : what fit saw
    n_points : how many moments the training clock has
    noise : key of `NOISES`
    raw_steps : of the noise network
    annotators : how many have a Q each
    sources : who stands where along that axis
    learned : further fitted attributes, for the method to check
    """

    method: type[NoisyLabelClassifier]
    params: dict[str, Any]
    classes: tuple[Any, ...]
    n_features: int
    n_points: int
    noise: str
    raw_steps: int | None
    annotators: int
    sources: Sources
    learned: Any


class LongNumberError(ValueError):
    """A whole number with more digits than any of ours."""


def describe(estimator: NoisyLabelClassifier) -> str:
    """The JSON for a fitted method, with room for the digest."""
    kinds = {cls: kind for kind, cls in NOISES.items()}
    if METHODS.get(estimator.name) is not type(estimator) or type(estimator.noise_) not in kinds:
        raise ValueError(
            "Only the methods in labeltide.METHODS and their noise functions can be saved. "
            f"Got {type(estimator).__name__} with {type(estimator.noise_).__name__}."
        )
    about = {
        "sha256": NO_DIGEST,  # first, so that its mark is the first in the file
        "format": FORMAT,
        "labeltide": __version__,
        "method": estimator.name,
        "params": plain_params(estimator),
        "classes": [_plain_class(name) for name in estimator.classes_.tolist()],
        "n_features": estimator.n_features_in_,
        "n_points": len(estimator.clock_grid_),
        "noise": {
            "kind": kinds[type(estimator.noise_)],
            "raw_steps": getattr(estimator.noise_, "raw_steps", None),
            "annotators": estimator.noise_.annotators,
        },
        "sources": _plain_sources(Sources.of(estimator.sources_)),
        "learned": estimator._learned(),
    }
    return json.dumps(about)


def seal(raw: bytes) -> bytes:
    """The file with its digest in place."""
    start = _digest_start(raw)
    return raw[:start] + _digest(raw, start).encode() + raw[start + len(NO_DIGEST) :]


def read_description(raw: bytes) -> Described:
    """Read and validate the header of a file that is whole and unaltered."""
    about = _read_about(raw)
    start = _digest_start(raw)
    if about["sha256"] != _digest(raw, start) or raw[start : start + 64] != about["sha256"].encode():
        raise ValueError("it is corrupted: its content has changed since it was saved. Use another copy.")
    return _check_about(about)


def _plain_class(name: Any) -> Any:
    """A class name as JSON can carry it: tuples become lists."""
    name = name.item() if isinstance(name, np.generic) else name
    if type(name) is tuple:
        return [_plain_class(part) for part in name]
    if type(name) not in PLAIN:
        raise ValueError(
            "Names of classes and groups can be saved if they are strings, numbers, booleans or tuples of these. Got "
            f"{name!r} of type {type(name).__name__}: fit with strings instead, such as {str(name)!r}."
        )
    return name


def _plain_sources(sources: Sources) -> dict[str, Any]:
    groups = None if sources.groups is None else [_plain_class(name) for name in sources.groups]
    return {"annotators": sources.annotators, "groups": groups}


def _check_sources(about: Any) -> Sources:
    check_fields("sources", about, ("annotators", "groups"))
    groups = about["groups"]
    if groups is not None:
        if not isinstance(groups, list) or not groups:
            raise ValueError(f"its groups must be a list of names. Got {reprlib.repr(groups)}.")
        groups = tuple(_check_class(name) for name in groups)
        if len(set(groups)) != len(groups) or None in groups:
            raise ValueError(f"its groups must be distinct names. Got {reprlib.repr(groups)}.")
    most = MAX_SOURCES // len(groups or (None,))
    _validation.check_number("annotators", about["annotators"], 1, most, whole=True)
    return Sources(about["annotators"], groups)


def _digest_start(raw: bytes) -> int:
    return raw.find(DIGEST_MARK) + len(DIGEST_MARK)


def _digest(raw: bytes, start: int) -> str:
    """SHA-256 of the whole file, in which the digest itself, at `start`, reads as zeros."""
    view, end = memoryview(raw), start + len(NO_DIGEST)
    digest = hashlib.sha256(view[:start])
    digest.update(NO_DIGEST.encode())
    digest.update(view[end:])
    return digest.hexdigest()


def _read_about(raw: bytes) -> dict[str, Any]:
    """The JSON of the header, its fields and its version, of a file that is whole."""
    start = 8 + int.from_bytes(raw[:8], "little")  # safetensors: the header's length, the header, the tensors
    if raw[8:9] != b"{" or start > MAX_HEADER:
        raise ValueError("it is not a labeltide file.")
    try:
        header = json.loads(raw[8:start], parse_int=_whole_number)
        about = json.loads(header.pop("__metadata__")["labeltide"], parse_int=_whole_number)
        end = start + max(entry["data_offsets"][1] for entry in header.values())
        truncated = len(raw) < end
    except LongNumberError as error:
        raise ValueError(f"it holds a whole number of {error.args[0]} digits.") from None
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
        cut = "it is truncated." if len(raw) < start else "it is not a labeltide file, or its header is corrupted."
        raise ValueError(cut) from None
    if truncated:
        raise ValueError(f"it is truncated: {len(raw)} of {end} bytes are there.")
    if not isinstance(about, dict) or type(about.get("format")) is not int:
        raise ValueError("it holds no fitted method. Was it written by `save`?")
    if about["format"] > FORMAT:
        raise ValueError(
            f"it is from a newer version, labeltide {reprlib.repr(about.get('labeltide'))}. This is "
            f"{__version__}: update it with `pip install --upgrade labeltide`."
        )
    about = {**OLD_FIELDS, **about}
    check_fields("header", about, FIELDS)
    if type(about["sha256"]) is not str:
        raise ValueError("its digest must be a string.")
    return about


def _whole_number(digits: str) -> int:
    """A whole number of JSON that fits into 64 bits."""
    if len(digits) > MAX_DIGITS:
        raise LongNumberError(len(digits))
    return int(digits)


def _check_about(about: dict[str, Any]) -> Described:
    _validation.check_number("format", about["format"], 1, FORMAT, whole=True)
    if type(about["labeltide"]) is not str:
        raise ValueError("its version must be a string.")
    method = METHODS[_validation.check_choice("method", about["method"], METHODS)]
    params = check_params(method, about["params"])
    _validation.check_number("n_features", about["n_features"], 1, whole=True)
    _validation.check_number("n_points", about["n_points"], 1, whole=True)
    noise = {"annotators": 1, **about["noise"]} if isinstance(about["noise"], dict) else about["noise"]
    check_fields("noise", noise, ("kind", "raw_steps", "annotators"))
    kind, raw_steps = _validation.check_choice("noise", noise["kind"], NOISES), noise["raw_steps"]
    sources = _check_sources(about["sources"])
    if noise["annotators"] != 1 and (kind == "static" or noise["annotators"] != len(sources.names)):
        raise ValueError(
            f"its noise must be for {len(sources.names)} sources. Got {reprlib.repr(noise['annotators'])}."
        )
    if raw_steps is not None:
        _validation.check_number("raw_steps", raw_steps, about["n_points"], about["n_points"], whole=True)
    return Described(
        method=method,
        params=params,
        classes=_check_classes(about["classes"]),
        n_features=about["n_features"],
        n_points=about["n_points"],
        noise=kind,
        raw_steps=raw_steps,
        annotators=int(noise["annotators"]),
        sources=sources,
        learned=about["learned"],
    )


def _check_classes(names: Any) -> tuple[Any, ...]:
    if not isinstance(names, list) or not 2 <= len(names) <= _validation.MAX_CLASSES:
        raise ValueError(f"it must name 2 to {_validation.MAX_CLASSES} classes. Got {reprlib.repr(names)}.")
    classes = tuple(_check_class(name) for name in names)
    if len(set(classes)) != len(classes) or None in classes:
        raise ValueError(f"its classes must be distinct names. Got {reprlib.repr(names)}.")
    return classes


def _check_class(name: Any, depth: int = 0) -> Any:
    """A class name as it was before JSON: lists become tuples again."""
    if isinstance(name, dict) or depth > MAX_DEPTH or name != name:
        raise ValueError(f"a class name must be a string, a number or a tuple. Got {reprlib.repr(name)}.")
    return tuple(_check_class(part, depth + 1) for part in name) if isinstance(name, list) else name
