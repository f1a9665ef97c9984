"""The members of a fleet that are still in training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from labeltide.objectives.objective import Objective
from labeltide.training.state import TrainingState, flatten_parameters
from labeltide.training.step import TrainingStep

MANY = 128  # members from which it pays to leave those behind that have stopped


@dataclass
class Running:
    """A fleet, or the part of it that has not stopped, with all that its epochs need.

    On a GPU every member takes part in every step, whether it still learns or not. So once half of many have stopped,
    the others go on as a smaller fleet. (The compiled step of the CPU passes over those that stopped.)
    """

    whole: TrainingState  # of all members; a part writes its own back after every epoch
    index: Tensor | None  # which members these are; None for all
    step: TrainingStep
    seeds: Sequence[int]
    held_out: Tensor | None  # (batches, members, batch) rows that are held out

    @classmethod
    def all_members(cls, step: TrainingStep, seeds: Sequence[int]) -> Self:
        """The whole fleet."""
        held_out = _held_out(step) if bool(step.data.held_out.any()) else None
        return cls(step.state, None, step, seeds, held_out)

    def narrowed(self) -> Self:
        """Those that still learn, as a smaller fleet where that pays."""
        active = self.step.state.active
        pays = _may_pay(self.step) and _is_shared(self.step.objective)
        if not pays or 2 * int(active.sum()) > len(active):
            return self
        return self._only(active.nonzero().flatten())

    def _only(self, chosen: Tensor) -> Self:
        step = self.step
        step.graph = None  # it holds memory and is not replayed again
        fleet = step.fleet.take(chosen).train()
        flat = flatten_parameters(fleet, len(chosen))
        state = step.state.take(chosen, flat, dict(fleet.model.named_buffers()))
        smaller = TrainingStep(fleet, step.data.members_in(chosen), step.objective, step.schedule, state)
        index = chosen if self.index is None else self.index[chosen]
        seeds = [self.seeds[number] for number in chosen.tolist()]
        held_out = None if self.held_out is None else _held_out(smaller)  # no batch where only others held rows out
        return replace(self, index=index, step=smaller, seeds=seeds, held_out=held_out)

    def write_back(self) -> None:
        """Put the state of these members into that of all."""
        if self.index is not None:
            self.whole.put(self.index, self.step.state)

    def numbers(self, chosen: Tensor) -> list[int]:
        """The numbers, among all, of the chosen of these members."""
        found = chosen.nonzero().flatten()
        return (found if self.index is None else self.index[found]).tolist()

    def among_all(self, values: Tensor) -> Tensor:
        """One number for each of these members as one for each of all, NaN for those that have stopped."""
        if self.index is None:
            return values
        return torch.full_like(self.whole.best_score, torch.nan).index_copy(0, self.index, values)


def _may_pay(step: TrainingStep) -> bool:
    return step.records and step.data.members >= MANY


def _is_shared(objective: Objective) -> bool:
    """Whether no penalty holds numbers for each member, which a smaller fleet would not fit."""
    return not any(isinstance(penalty.weight, Tensor) for penalty in objective.penalties)


def _held_out(step: TrainingStep) -> Tensor:
    return step.data.held_out_rows(4 * step.schedule.batch_size)
