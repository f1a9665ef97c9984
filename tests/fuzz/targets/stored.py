"""Saved models, checkpoints, and the kept work of an unfinished audit."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import safetensors.torch
import torch

import labeltide as lt
from fuzz.engine import ForbiddenError, Room, Target
from fuzz.mutations import NOT_FINITE, mutate_bytes, mutate_json
from fuzz.targets.samples import reviewed_audit, saved_model
from labeltide.auditing.resume import SETTINGS, UnfinishedAudit, read_evidence, write_evidence
from labeltide.estimators import TideClassifier
from labeltide.estimators.storage import NO_DIGEST, seal
from labeltide.training.loop import _resume
from labeltide.training.state import Checkpoint, TrainingState, fingerprint

Parts = tuple[dict[str, Any], dict[str, torch.Tensor]]


def _parts(content: bytes) -> Parts | None:
    """The JSON of a safetensors file and its tensors; None where it is none."""
    try:
        size = int.from_bytes(content[:8], "little")
        about = json.loads(json.loads(content[8 : 8 + size])["__metadata__"]["labeltide"])
        return about, safetensors.torch.load(content)
    except Exception:
        return None


def _other_tensor(draw: random.Random, tensor: torch.Tensor) -> torch.Tensor:
    kind = draw.randrange(6)
    if kind == 0 and tensor.is_floating_point() and tensor.numel():
        changed = tensor.clone()
        changed.view(-1)[draw.randrange(tensor.numel())] = draw.choice([*NOT_FINITE, 3e38, -3e38, 0.0])
        return changed
    if kind == 1:
        return tensor[:0] if tensor.ndim else tensor.reshape(1)
    if kind == 2:
        return torch.zeros((draw.choice([1, 3, 7]),) * draw.choice([1, 2, 5]))
    if kind == 3:
        return tensor.to(draw.choice([torch.float64, torch.int8, torch.int64, torch.bool]))
    if kind == 4 and not tensor.is_floating_point() and tensor.dtype != torch.bool and tensor.numel():
        changed = tensor.clone()
        changed.view(-1)[draw.randrange(tensor.numel())] = draw.choice([-128, -2, 2, 127])
        return changed
    return tensor.flatten()[None] if tensor.ndim else tensor


def _mutate_parts(draw: random.Random, content: bytes) -> Parts | None:
    """Changed JSON or tensors of a safetensors file; None where bytes are to be mutated."""
    found = _parts(content) if draw.random() < 0.75 else None
    if found is None:
        return None
    about, tensors = found
    if draw.random() < 0.6:
        about = mutate_json(draw, about)
        return (about if isinstance(about, dict) else {}), tensors
    name = draw.choice(sorted(tensors)) if tensors else "a"
    if draw.random() < 0.2:
        tensors.pop(name, None)
    else:
        tensors[name] = _other_tensor(draw, tensors.get(name, torch.zeros(1)))
    return about, tensors


def _write(about: dict[str, Any], tensors: dict[str, torch.Tensor]) -> bytes:
    tensors = {name: tensor.contiguous() for name, tensor in sorted(tensors.items())}
    return safetensors.torch.save(tensors, metadata={"labeltide": json.dumps(about)})


def mutate_model(draw: random.Random, content: bytes, room: Room) -> bytes | None:
    if draw.random() < 0.001:
        names = ["a" * 10_000_000, "b"]
        found = _parts(content)
        return None if found is None else seal(_write({**found[0], "sha256": NO_DIGEST, "classes": names}, found[1]))
    found = _mutate_parts(draw, content)
    if found is None:
        return None
    return seal(_write({**found[0], "sha256": NO_DIGEST}, found[1]))


def mutate_digested(draw: random.Random, content: bytes, room: Room) -> bytes | None:
    found = _mutate_parts(draw, content)
    if found is None:
        return None
    about, tensors = found
    if draw.random() < 0.95:
        about = {**about, "digest": fingerprint(*(tensors[name] for name in sorted(tensors)))}
    return _write(about, tensors)


def _prepare_models(room: Room) -> list[bytes]:
    model = (reviewed_audit() / "model" / "model.safetensors").read_bytes()
    return [*map(saved_model, ("ignore", "continuous", "anchor", "discontinuous")), model]


def run_model(content: bytes, room: Room) -> None:
    estimator = lt.load(room.put("model", content))
    if estimator.n_features_in_ > 100:
        return
    chances = estimator.predict_proba(np.zeros((1, 3, estimator.n_features_in_), np.float32))
    if not np.isfinite(chances).all():
        raise ForbiddenError("a file was accepted whose answers are not finite")


def _state() -> TrainingState:
    return TrainingState.start(torch.zeros(2, 5), 0.01)


def _prepare_checkpoint(room: Room) -> list[bytes]:
    state = _state()
    state.epoch = 3
    Checkpoint(room.folder / "checkpoint", "fit", seconds=0.0).save(state, np.zeros((3, 4, 2)))
    return [(room.folder / "checkpoint").read_bytes()]


def run_checkpoint(content: bytes, room: Room) -> None:
    state = _state()
    losses = _resume(state, Checkpoint(room.put("checkpoint", content), "fit"))
    if not (0 <= state.epoch < 2**62 and len(losses) == state.epoch):
        raise ForbiddenError(f"a checkpoint was accepted with {len(losses)} losses at epoch {state.epoch}")


def _prepare_evidence(room: Room) -> list[bytes]:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(8, 6, 2)), rng.integers(0, 2, (8, 6))
    estimator = TideClassifier(epochs=1, hidden_size=3, random_state=0).fit(X, y, clusters=np.arange(8) // 2)
    write_evidence(room.folder / "evidence", estimator.training_)
    return [(room.folder / "evidence").read_bytes()]


def run_evidence(content: bytes, room: Room) -> None:
    read_evidence(room.put("evidence", content))


SETTINGS_NOW = {"seed": "0", "fdr": "0.1", "model": "gru", "data": "digest", "columns": "Request()"}


def run_settings(content: bytes, room: Room) -> None:
    room.put(SETTINGS, content)
    UnfinishedAudit(room.folder).begin(SETTINGS_NOW, True)


def mutate_text_json(draw: random.Random, content: bytes, room: Room) -> bytes | None:
    """JSON with some places changed, or bytes of it."""
    if draw.random() < 0.25:
        return None
    try:
        return json.dumps(mutate_json(draw, json.loads(content))).encode()
    except (ValueError, RecursionError):
        return mutate_bytes(draw, content, [content])


STORED = (
    Target("models", _prepare_models, run_model, mutate_model),
    Target("checkpoints", _prepare_checkpoint, run_checkpoint, mutate_digested),
    Target("unfinished evidence", _prepare_evidence, run_evidence, mutate_digested),
    Target("unfinished settings", lambda room: [json.dumps(SETTINGS_NOW).encode()], run_settings, mutate_text_json),
)
