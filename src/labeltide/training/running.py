"""The members of a fleet that have not stopped early, compacted into a smaller fleet where that is faster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from labeltide.objectives.objective import Objective
from labeltide.training.state import TrainingState, flatten_parameters
from labeltide.training.step import TrainingStep

MIN_MEMBERS = 128  # the smallest fleet for which compaction saves time


@dataclass
class Running:
    """A fleet, or its members that have not stopped, with the step, seeds and validation rows of its epochs.

    On a GPU every member is computed in every step, also those that have stopped. Once half of a large fleet have
    stopped, the others continue as a smaller fleet. (The compiled step on the CPU skips members that have stopped.)
    Members of users' modules mostly run one after the other, so the others continue as soon as one has stopped.
    """

    whole: TrainingState  # of all members; a smaller fleet writes its state back after every epoch
    index: Tensor | None  # which members these are; None for all
    step: TrainingStep
    seeds: Sequence[int]
    held_out: Tensor | None  # (batches, members, batch), validation rows

    @classmethod
    def all_members(cls, step: TrainingStep, seeds: Sequence[int]) -> Self:
        """The whole fleet."""
        held_out = _held_out(step) if bool(step.data.held_out.any()) else None
        return cls(step.state, None, step, seeds, held_out)

    def narrowed(self) -> Self:
        """The active members as a smaller fleet, where that saves time."""
        step, active = self.step, self.step.state.active
        in_turn = not step.fleet.model.is_recordable
        if not (in_turn or _is_large(step)) or not _is_shared(step.objective):
            return self
        most = len(active) - 1 if in_turn else len(active) // 2
        return self if int(active.sum()) > most else self._only(active.nonzero().flatten())

    def _only(self, chosen: Tensor) -> Self:
        step = self.step
        step.reset()  # frees memory of graphs, which are not replayed again
        fleet = step.fleet.take(chosen).train()
        flat = flatten_parameters(fleet, len(chosen))
        state = step.state.take(chosen, flat, dict(fleet.model.named_buffers()))
        smaller = TrainingStep(fleet, step.data.members_in(chosen), step.objective, step.schedule, state)
        index = chosen if self.index is None else self.index[chosen]
        seeds = [self.seeds[number] for number in chosen.tolist()]
        # A table without batches where only other members have validation rows.
        held_out = None if self.held_out is None else _held_out(smaller)
        return replace(self, index=index, step=smaller, seeds=seeds, held_out=held_out)

    def write_back(self) -> None:
        """Copy the state of these members into that of the whole fleet."""
        if self.index is not None:
            self.whole.put(self.index, self.step.state)

    def stopping_scores(self, scores: Tensor) -> Tensor:
        """The held-out losses (members,) by which members stop: the mean of those that stop together, NaN for none."""
        together = self.step.schedule.stop_together
        if together == 1:
            return scores
        number = torch.arange(len(scores), device=scores.device) if self.index is None else self.index
        team, scored = number // together, ~scores.isnan() & self.step.state.active
        sums = scores.new_zeros(2, len(self.whole.active) // together)  # of losses, and their number
        sums.index_add_(1, team, torch.stack([torch.where(scored, scores, 0.0), scored.to(scores)]))
        return (sums[0] / sums[1])[team]

    def numbers(self, chosen: Tensor) -> list[int]:
        """The numbers, within the whole fleet, of the chosen members."""
        positions = chosen.nonzero().flatten()
        return (positions if self.index is None else self.index[positions]).tolist()

    def among_all(self, values: Tensor) -> Tensor:
        """Scatter one number per member of this fleet to the whole fleet, NaN for the others."""
        if self.index is None:
            return values
        return torch.full_like(self.whole.best_score, torch.nan).index_copy(0, self.index, values)


def _is_large(step: TrainingStep) -> bool:
    return step.is_recorded and step.data.members >= MIN_MEMBERS


def _is_shared(objective: Objective) -> bool:
    """Whether no penalty has a weight per member, which would not match a smaller fleet."""
    return not any(isinstance(penalty.weight, Tensor) for penalty in objective.penalties)


def _held_out(step: TrainingStep) -> Tensor:
    return step.data.held_out_rows(4 * step.schedule.batch_size)
