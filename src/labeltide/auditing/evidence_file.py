"""The evidence of a fit as one file, from which bands and tests of an interrupted audit are computed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open

from labeltide._files import write_atomically
from labeltide.chain.data import ChainData, ChainParameters, TrainingEvidence
from labeltide.chain.families import WeightedFamily
from labeltide.training.checkpoint import fingerprint

DATA = ("labels", "mask", "points", "evidence", "trusted", "jumps")
OTHERS = ("folds", "clusters", "shares")


def write_evidence(path: Path, training: TrainingEvidence) -> None:
    """Write labels, evidence and chain of a fit, whole or not at all."""
    found = {f"data.{name}": getattr(training.data, name) for name in DATA}
    found |= {f"chain.{name}": getattr(training.parameters, name) for name in ChainParameters._fields}
    found |= {name: getattr(training, name) for name in OTHERS} | {"grid": torch.from_numpy(training.grid)}
    tensors = {name: tensor.contiguous().clone() for name, tensor in sorted(found.items()) if tensor is not None}
    about = {
        "digest": fingerprint(*tensors.values()),
        "n_points": training.data.n_points,
        "n_classes": training.data.n_classes,
        "gaps": training.data.gaps,
        "period": training.period,
        "families": training.families,
    }
    write_atomically(path, safetensors.torch.save(tensors, metadata={"labeltide": json.dumps(about)}))


def read_evidence(path: Path) -> TrainingEvidence:
    """Read what `write_evidence` wrote; a damaged file is a ValueError."""
    try:
        with safe_open(path, framework="pt") as file:
            about = json.loads(file.metadata()["labeltide"])
            tensors = {name: file.get_tensor(name) for name in sorted(file.keys())}
        if about["digest"] != fingerprint(*tensors.values()):
            raise ValueError("its content has changed")
        return _restore(about, tensors)
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
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
