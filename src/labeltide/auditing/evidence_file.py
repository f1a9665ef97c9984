"""The evidence of a fit as one file, from which bands and tests of an interrupted audit are computed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open

from labeltide import _validation
from labeltide._files import write_atomically
from labeltide.chain.data import ChainData, ChainParameters, TrainingEvidence
from labeltide.chain.families import WeightedFamily
from labeltide.training.checkpoint import fingerprint

DATA = ("labels", "mask", "points", "evidence", "trusted", "jumps", "trained_with")
OTHERS = ("folds", "clusters", "shares")


def write_evidence(path: Path, training: TrainingEvidence) -> None:
    """Write labels, evidence and chain of a fit, whole or not at all."""
    found = {f"data.{name}": getattr(training.data, name) for name in DATA}
    found |= {f"chain.{name}": getattr(training.parameters, name) for name in ChainParameters._fields}
    found |= {name: getattr(training, name) for name in OTHERS} | {"grid": torch.from_numpy(training.grid)}
    tensors = {name: tensor.contiguous() for name, tensor in sorted(found.items()) if tensor is not None}
    about = {
        "digest": fingerprint(*tensors.values()),
        "n_points": training.data.n_points,
        "n_classes": training.data.n_classes,
        "gaps": training.data.gaps,
        "period": training.period,
        "families": training.families,
    }
    metadata = {"labeltide": json.dumps(about)}
    write_atomically(path, lambda draft: safetensors.torch.save_file(tensors, draft, metadata=metadata))


def read_evidence(path: Path) -> TrainingEvidence:
    """Read what `write_evidence` wrote; a damaged file is a ValueError."""
    try:
        with safe_open(path, framework="pt") as file:
            about = json.loads(file.metadata()["labeltide"])
            tensors = {name: file.get_tensor(name) for name in sorted(file.keys())}
        if about["digest"] != fingerprint(*tensors.values()):
            raise ValueError("its content has changed")
        training = _restore(about, tensors)
        _check(training)
        return training
    except (SafetensorError, OSError, KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ValueError(f"The kept work {path} cannot be read ({error}). Leave --resume out to start anew.") from None


def _restore(about: dict[str, Any], tensors: dict[str, torch.Tensor]) -> TrainingEvidence:
    by_name: dict[str, Any] = {name: tensors.get(f"data.{name}") for name in DATA}
    gaps, sizes = tuple(about["gaps"]), {name: about[name] for name in ("n_points", "n_classes")}
    period = tuple(about["period"]) if isinstance(about["period"], list) else about["period"]
    chain: list[Any] = [tensors.get(f"chain.{name}") for name in ChainParameters._fields]
    return TrainingEvidence(
        ChainData(**by_name, **sizes, gaps=gaps),
        ChainParameters(*chain),
        tensors["folds"],
        tensors["grid"].numpy(),
        clusters=tensors.get("clusters"),
        shares=tensors.get("shares"),
        period=period,
        families=tuple(WeightedFamily(*family) for family in about["families"]),
    )


def _check(training: TrainingEvidence) -> None:
    """Refuse numbers that the kernels must not meet: a digest says that a file is whole, not that it is sound."""
    data, chain, grid = training.data, training.parameters, training.grid
    needed = ((data.labels, 4), (data.mask, 2), (data.evidence, 4), (chain.start, 2), (chain.transition, 3))
    for tensor, axes in (*needed, (chain.power, 1), (chain.matrices, 5)):
        if tensor is None or tensor.ndim != axes:
            raise ValueError("one of its tensors is missing or has another number of axes")
    if grid.ndim not in (1, 2):
        raise ValueError("its grid must have one or two axes")
    _validation.check_number("n_classes", data.n_classes, 2, _validation.MAX_CLASSES, whole=True)
    _validation.check_number("n_points", data.n_points, 1, grid.shape[0], whole=True)
    n, steps = data.mask.shape
    _, _, _, people = data.labels.shape
    classes, points = data.n_classes, data.n_points
    shapes: list[tuple[str, torch.Tensor | None, tuple[int, ...], torch.dtype]] = [
        ("labels", data.labels, (1, n, steps, people), torch.int8),
        ("mask", data.mask, (n, steps), torch.bool),
        ("points", data.points, (n, steps), torch.int64),
        ("trusted", data.trusted, (n, steps), torch.int8),
        ("jumps", data.jumps, (n, steps), torch.int8),
        ("evidence", data.evidence, (1, n, steps, classes), torch.float32),
        ("start", chain.start, (1, classes), torch.float32),
        ("transition", chain.transition, (1, classes, classes), torch.float32),
        ("power", chain.power, (1,), torch.float32),
        ("matrices", chain.matrices, (1, chain.matrices.shape[1], points, classes, classes), torch.float32),
        ("bursts", chain.bursts, (1,), torch.float32),
        ("folds", training.folds, (1, n), torch.int64),
        ("clusters", training.clusters, (n,), torch.int64),
        ("shares", training.shares, (people,), torch.float64),
    ]
    for name, part, shape, dtype in shapes:
        if part is not None and (tuple(part.shape) != shape or part.dtype != dtype):
            raise ValueError(f"its {name} must have shape {shape} and type {dtype}")
    if chain.matrices.shape[1] not in (1, people) or len(grid) != points or data.evidence is None:
        raise ValueError("its parts do not fit each other")
    _check_ranges(training)


def _check_ranges(training: TrainingEvidence) -> None:
    data, chain = training.data, training.parameters
    ranges: list[tuple[str, torch.Tensor | None, int, int]] = [
        ("labels", data.labels, -1, data.n_classes - 1),
        ("trusted", data.trusted, -1, data.n_classes - 1),
        ("points", data.points, 0, data.n_points - 1),
        ("jumps", data.jumps, 0, len(data.gaps) - 1),
        ("folds", training.folds, 0, data.mask.shape[0]),
        ("clusters", training.clusters, -1, 2**53),
    ]
    for name, tensor, low, high in ranges:
        if tensor is not None and tensor.numel() and not low <= int(tensor.min()) <= int(tensor.max()) <= high:
            raise ValueError(f"its {name} must be from {low} to {high}")
    if data.gaps[:1] != (1,) or not all(type(gap) is int and 1 <= gap < 2**31 for gap in data.gaps):
        raise ValueError("its gaps must be whole numbers from 1")
    for tensor in (chain.start, chain.transition, chain.matrices):
        if not (tensor >= 0).all() or not ((tensor.sum(-1) - 1).abs() < 1e-3).all():
            raise ValueError("its chain must be made of probabilities")
    others = [tensor for tensor in (data.evidence, chain.power, chain.bursts, training.shares) if tensor is not None]
    if any(tensor.isnan().any() or (tensor == torch.inf).any() for tensor in others) or np.isnan(training.grid).any():
        raise ValueError("its numbers must be finite")
    if data.points is None and data.mask.shape[1] > data.n_points:
        raise ValueError("its grid must have a point for every step")
