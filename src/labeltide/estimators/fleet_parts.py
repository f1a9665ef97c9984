"""Train the members of a fleet in parts, each by another worker; numbers are those of the whole fleet."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from labeltide import _validation
from labeltide._fleet import put_members
from labeltide._workers import Workers
from labeltide.estimators.fleet import FleetFit
from labeltide.models.base import SequenceModel
from labeltide.noise.fixed import FixedNoise
from labeltide.objectives.objective import Objective
from labeltide.training import FleetData


class Part(NamedTuple):
    """Some members of a fleet, with their untrained networks."""

    members: Tensor
    model: SequenceModel
    noise: FixedNoise
    stage: str


def take_fits(fleet_fit: FleetFit, index: Tensor) -> FleetFit:
    """The same for some of the fits."""
    chosen = index.tolist()
    estimators, seeds = [fleet_fit.estimators[i] for i in chosen], tuple(fleet_fit.seeds[i] for i in chosen)
    return replace(fleet_fit, estimators=estimators, data=fleet_fit.data.members_in(index), seeds=seeds)


def train_parts(
    fleet_fit: FleetFit, model: SequenceModel, noise: FixedNoise, stage: str, engine: Workers, **how: Any
) -> None:
    """Train networks with the forward loss and a fixed Q, in place; `how` goes to `FleetFit.train`."""
    device = fleet_fit.data.features.device
    parts = [
        Part(members, model.take(members).cpu(), noise.take(members).cpu(), f"{stage}, part {number}")
        for number, members in enumerate(torch.arange(fleet_fit.members).tensor_split(engine.count), 1)
        if len(members)
    ]
    # Copies, because torch moves a tensor that is sent to a process into shared memory, away from arrays that show it.
    data: dict[str, Any] = {name: v if v is None else v.cpu().clone() for name, v in vars(fleet_fit.data).items()}
    shared = (replace(fleet_fit, data=FleetData(**data)), how)
    for number, trained in engine.run(_train_part, shared, parts):
        members = parts[number].members
        put_members(model, members.to(device), trained.to(device), torch.arange(len(members), device=device))


def _train_part(shared: tuple[FleetFit, dict[str, Any]], part: Part) -> SequenceModel:
    """Train one part, on the device that its worker has."""
    whole, how = shared
    device = _validation.check_device(whole.settings.device)
    whole.settings.verbose = False  # the bars of several workers would mix
    fleet_fit = take_fits(whole, part.members)
    fleet_fit = replace(fleet_fit, data=fleet_fit.data.to(device))
    model = part.model.to(device)
    fleet_fit.train(model, part.noise.to(device), Objective(), stage=part.stage, **how)
    return model.cpu()
