"""Checkpoints: the state of a running fit, saved so that an interrupted fit resumes and ends with the same numbers."""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from labeltide._files import write_atomically
from labeltide.training.state import TrainingState


@dataclass
class Checkpoint:
    """A file with the latest state of one call of `train`, replaced atomically."""

    path: Path
    fingerprint: str  # a digest of data and settings; a file of another fit is refused
    seconds: float = 10.0  # the shortest time between two writes
    written: float = field(default_factory=time.monotonic, init=False)
    cost: float = field(default=0.0, init=False)  # seconds that the last write took

    def save(self, state: TrainingState, losses: np.ndarray) -> None:
        """Write the state if enough time has passed since the last write; writing takes at most a tenth of the time."""
        started = time.monotonic()
        if started - self.written < max(self.seconds, 10 * self.cost):
            return
        tensors = {name: value.cpu().contiguous() for name, value in state.tensors().items()}
        tensors["losses"] = torch.from_numpy(losses)
        tensors = dict(sorted(tensors.items()))
        digest = fingerprint(*tensors.values())
        header = {"fingerprint": self.fingerprint, "epoch": state.epoch, "digest": digest}
        write_atomically(self.path, save(tensors, metadata={"labeltide": json.dumps(header)}))
        self.written = time.monotonic()
        self.cost = self.written - started if self.seconds else 0.0

    def load(self) -> tuple[dict[str, Tensor], np.ndarray] | None:
        """The saved tensors and the losses of every epoch, (epochs, 4, members); None if there is no file yet."""
        if not self.path.exists():
            return None
        try:
            with safe_open(self.path, framework="pt") as file:
                header = json.loads(file.metadata()["labeltide"])
                tensors = {name: file.get_tensor(name) for name in sorted(file.keys())}
            owner, epoch, digest = header["fingerprint"], header["epoch"], header["digest"]
            if digest != fingerprint(*tensors.values()):
                raise ValueError("its content has changed")
            losses = tensors.pop("losses").numpy()
            if type(epoch) is not int or losses.ndim != 3 or losses.dtype != np.float64 or len(losses) != epoch:
                raise ValueError("it must hold the losses of every epoch")
        except (SafetensorError, OSError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"The checkpoint {self.path} cannot be read ({error}). Delete it to start anew.") from None
        if owner != self.fingerprint:
            raise ValueError(
                f"The checkpoint {self.path} belongs to a fit with other data or settings. Give the same data and "
                "settings to go on with it, or delete it to start anew."
            )
        return tensors, losses


def fingerprint(*parts: object) -> str:
    """SHA-256 of arrays, tensors and, by their `repr`, other objects."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, Tensor):
            part = part.cpu().numpy()
        if isinstance(part, np.ndarray):
            digest.update(repr((part.shape, part.dtype)).encode())
            digest.update(np.ascontiguousarray(part).reshape(-1).view(np.uint8).data)  # without a copy
        else:
            digest.update(repr(part).encode())
    return digest.hexdigest()
