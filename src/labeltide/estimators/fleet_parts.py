"""Train fleets whole, or in parts by several workers; numbers are the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from labeltide import _validation
from labeltide._fleet import put_members
from labeltide._workers import Workers, current_workers
from labeltide.estimators.fleet import FleetFit
from labeltide.models.base import SequenceModel
from labeltide.noise.fixed import FixedNoise
from labeltide.objectives.objective import Objective
from labeltide.training import FleetData


class Training(NamedTuple):
    """Networks to be trained with the forward loss and a fixed Q, in place."""

    fleet_fit: FleetFit
    model: SequenceModel
    noise: FixedNoise
    stage: str
    how: dict[str, Any]  # for `FleetFit.train`; with "stop_together" so many members stay in one part

    def run(self) -> None:
        """Train all networks here."""
        self.fleet_fit.train(self.model, self.noise, Objective(), stage=self.stage, **self.how)


class Part(NamedTuple):
    """Some members of a training, with their untrained networks."""

    training: int  # its place among the trainings
    members: Tensor
    model: SequenceModel
    noise: FixedNoise
    stage: str


def take_fits(fleet_fit: FleetFit, index: Tensor) -> FleetFit:
    """The same for some of the fits."""
    chosen = index.tolist()
    estimators, seeds = [fleet_fit.estimators[i] for i in chosen], tuple(fleet_fit.seeds[i] for i in chosen)
    return replace(fleet_fit, estimators=estimators, data=fleet_fit.data.members_in(index), seeds=seeds)


def train_all(trainings: Sequence[Training]) -> None:
    """Train independent fleets: one after the other here, or in parts by the workers of the context."""
    engine = current_workers()
    if engine.count == 1:
        for training in trainings:
            training.run()
        return
    shared = [(_copy(training.fleet_fit), training.how) for training in trainings]
    parts = [part for place, training in enumerate(trainings) for part in _parts(place, training, engine)]
    for number, trained in engine.run(_train_part, shared, parts):
        part, whole = parts[number], trainings[parts[number].training]
        device = whole.fleet_fit.data.features.device
        every = torch.arange(len(part.members), device=device)
        put_members(whole.model, part.members.to(device), trained.to(device), every)


def _parts(place: int, training: Training, engine: Workers) -> list[Part]:
    """As many parts as there are workers, each of whole groups that stop together."""
    members = torch.arange(training.fleet_fit.members).unflatten(0, (-1, training.how.get("stop_together", 1)))
    pieces = [piece.flatten() for piece in members.tensor_split(engine.count) if len(piece)]
    return [
        Part(
            place,
            piece,
            training.model.take(piece).cpu(),
            training.noise.take(piece).cpu(),
            f"{training.stage}, part {number} of {len(pieces)}" if len(pieces) > 1 else training.stage,
        )
        for number, piece in enumerate(pieces, 1)
    ]


def _copy(fleet_fit: FleetFit) -> FleetFit:
    """A copy on the CPU: torch moves a tensor that is sent to a process to shared memory, away from arrays on it."""
    parts = vars(fleet_fit.data)
    data: dict[str, Any] = {name: v.cpu().clone() if isinstance(v, Tensor) else v for name, v in parts.items()}
    return replace(fleet_fit, data=FleetData(**data))


def _train_part(shared: list[tuple[FleetFit, dict[str, Any]]], part: Part) -> SequenceModel:
    """Train one part, on the device that its worker has."""
    whole, how = shared[part.training]
    device = _validation.check_device(whole.settings.device)
    whole.settings.verbose = False  # the bars of several workers would mix
    fleet_fit = take_fits(whole, part.members)
    fleet_fit = replace(fleet_fit, data=fleet_fit.data.to(device))
    model = part.model.to(device)
    Training(fleet_fit, model, part.noise.to(device), part.stage, how).run()
    return model.cpu()
