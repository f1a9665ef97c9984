r"""Blocks of the Fisher information of a multinomial logit, one for each true class.

Labels of one true class are one multinomial draw, so the information of all logits is block diagonal by true class i.
At each point t the block is :math:`W_{ti} = \mathrm{diag}(d) - r r^\top`, and with the functions of the clock
:math:`c_t = (1, b_t)` the information of the coefficients of class i is a sum over points of few products. Design
matrices are never formed: with 18 classes they hold 560 coefficients of 306 logits, and a block 31. Where classes share
coefficients the blocks are added up into one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from labeltide.chain.families import RIDGE, Family


@dataclass(frozen=True)
class ClassBlocks:
    """Coefficients of families of one name and size, ordered by true class, and products with their design.

    Every class has the coefficients of its level, then those of its change over the clock. `size` is the number of
    coefficients of a block, of which there are `n_blocks`: one for each true class, or a single one where classes
    share coefficients; `places` then says which of them each class uses.
    """

    n_classes: int
    basis: Tensor  # (members or 1, points, functions)
    level_each: bool  # whether each entry has a level of its own, or all entries of a class share one
    movement_each: bool  # the same for the change over the clock
    moves: Tensor  # (classes,), 0 where the entries of a true class do not change, else 1
    places: Tensor | None  # (classes, coefficients of a class); None where no two classes share a coefficient
    n_blocks: int
    size: int
    penalty: Tensor  # (members or 1, blocks, size, size)

    @classmethod
    def of(cls, families: list[Family], device: torch.device | None = None) -> ClassBlocks:
        """The blocks of families that differ in their functions of the clock alone."""
        first = families[0]
        classes, functions = first.n_classes, first.basis.shape[1]
        level_each, movement_each = first.level == "each", first.movement == "each"
        n_level, n_movement = (classes - 1 if each else 1 for each in (level_each, movement_each))
        places = None if _apart(first) else _places(first, n_level, n_movement)
        size = n_level + functions * n_movement if places is None else int(places.max()) + 1
        moves = np.array([float(place != first.held_class) for place in range(classes)])
        penalties = [_penalty(each.smoothing, n_level, n_movement, places, classes, size) for each in families]
        return cls(
            classes,
            torch.from_numpy(np.stack([each.basis for each in families])).to(device),
            level_each,
            movement_each,
            torch.from_numpy(moves).to(device),
            None if places is None else torch.from_numpy(places).to(device),
            1 if places is not None else classes,
            size,
            torch.from_numpy(np.stack(penalties)).to(device),
        )

    @property
    def n_level(self) -> int:
        """Coefficients of the level of one class."""
        return self.n_classes - 1 if self.level_each else 1

    @property
    def n_coefficients(self) -> int:
        """Coefficients of all blocks."""
        return self.n_blocks * self.size

    def moving(self) -> Tensor:
        """Which coefficients make Q change over the clock: bool (coefficients,)."""
        of_class = torch.arange(self._of_class) >= self.n_level
        if self.places is None:
            return of_class.repeat(self.n_classes)
        moving = torch.zeros(self.size, dtype=torch.bool)
        moving[self.places.cpu().flatten()] = of_class.repeat(self.n_classes)
        return moving

    def logits(self, coefficients: Tensor) -> Tensor:
        """(members, annotators, coefficients) → (members, annotators, points, true, others)."""
        of_class = self._take(coefficients)  # (members, annotators, classes, coefficients of a class)
        level, movement = of_class[..., : self.n_level], of_class[..., self.n_level :]
        functions = self.basis.shape[2]
        over_clock = (movement * self.moves[:, None]).unflatten(-1, (functions, -1)) if functions else None
        whole = level.unsqueeze(2).expand(-1, -1, self.basis.shape[1], -1, -1)
        if over_clock is not None:
            by_function = over_clock.movedim(3, 2)  # (members, annotators, functions, classes, others or 1)
            added = self.basis.unsqueeze(1) @ by_function.flatten(3)
            whole = whole + added.unflatten(-1, by_function.shape[3:])
        return whole.expand(*whole.shape[:4], self.n_classes - 1)

    def project(self, values: Tensor) -> Tensor:
        """The transpose: (members, annotators, points, true, others) → (members, annotators, coefficients)."""
        level = values.sum(2)  # (members, annotators, true, others)
        parts = [level if self.level_each else level.sum(-1, keepdim=True)]
        if self.basis.shape[2]:
            shared = values if self.movement_each else values.sum(-1, keepdim=True)
            over_clock = self.basis.mT.unsqueeze(1) @ shared.flatten(3)  # (members, annotators, functions, ...)
            over_clock = over_clock.unflatten(-1, shared.shape[3:]).movedim(2, 3).flatten(3)
            parts.append(over_clock * self.moves[:, None])
        return self._add_up(torch.cat(parts, -1))

    def information(self, diagonal: Tensor, root: Tensor | None = None) -> Tensor:
        """Information from W = diag(diagonal) - root root': (members, annotators, blocks, size, size).

        Parameters
        ----------
        diagonal, root : Tensors of shape (members, annotators, points, true, others)
        """
        blocks = self._diagonal_part(diagonal.transpose(2, 3))
        if root is not None:
            spread = self._weigh(root.transpose(2, 3))  # (members, annotators, true, points, coefficients of a class)
            blocks = blocks - spread.mT @ spread
        if self.places is None:
            return blocks
        index = (self.places[:, :, None] * self.size + self.places[:, None]).flatten()
        joined = blocks.new_zeros(*blocks.shape[:2], self.size**2).index_add_(2, index, blocks.flatten(2))
        return joined.unflatten(2, (1, self.size, self.size))

    @property
    def _of_class(self) -> int:
        """Coefficients that one class uses."""
        return self.size if self.places is None else self.places.shape[1]

    def _take(self, coefficients: Tensor) -> Tensor:
        """The coefficients that each class uses: (members, annotators, classes, coefficients of a class)."""
        if self.places is None:
            return coefficients.unflatten(-1, (self.n_classes, self.size))
        return coefficients[..., self.places]

    def _add_up(self, of_class: Tensor) -> Tensor:
        """The transpose of `_take`."""
        if self.places is None:
            return of_class.flatten(2)
        return of_class.new_zeros(*of_class.shape[:2], self.size).index_add_(
            2, self.places.flatten(), of_class.flatten(2)
        )

    def _weigh(self, root: Tensor) -> Tensor:
        """The design of a class, weighted: (..., points, others) → (..., points, coefficients of a class)."""
        total = root.sum(-1, keepdim=True)
        parts = [root if self.level_each else total]
        if self.basis.shape[2]:
            shared = (root if self.movement_each else total) * self.moves[:, None, None]
            parts.append((self.basis[:, None, None, :, :, None] * shared.unsqueeze(-2)).flatten(-2))
        return torch.cat(parts, -1)

    def _diagonal_part(self, diagonal: Tensor) -> Tensor:
        """The information from diag(diagonal), (members, annotators, true, points, others)."""
        total = diagonal.sum(-1, keepdim=True)
        level = diagonal if self.level_each else total
        first = torch.diag_embed(level.sum(3))  # (members, annotators, true, levels, levels)
        if not self.basis.shape[2]:
            return first
        moves = self.moves[:, None, None]
        basis = self.basis[:, None, None]  # (members or 1, 1, 1, points, functions)
        squares = (basis[..., :, None] * basis[..., None, :]).flatten(-2)  # (..., points, functions ** 2)
        shared = (diagonal if self.movement_each else total) * moves
        last = (squares.mT @ shared).unflatten(3, (basis.shape[-1], -1))  # (..., functions, functions, others or 1)
        last = torch.diag_embed(last).transpose(4, 5).flatten(5).flatten(3, 4)  # (..., movements, movements)
        cross = basis.mT @ (level * moves)  # (..., functions, levels)
        if self.movement_each and self.level_each:
            cross = torch.diag_embed(cross).flatten(3, 4)  # (..., functions * others, levels)
        elif self.movement_each:
            cross = (basis.mT @ (diagonal * moves)).flatten(3).unsqueeze(-1)
        rows = torch.cat([first, cross.mT], -1), torch.cat([cross, last], -1)
        return torch.cat(rows, -2)


def _apart(family: Family) -> bool:
    """Whether no two true classes share a coefficient."""
    return family.level != "alike" and (family.movement != "alike" or not family.basis.shape[1])


def _places(family: Family, n_level: int, n_movement: int) -> np.ndarray:
    """The number of each coefficient of each class, where some are shared: (classes, coefficients of a class)."""
    classes, functions = family.n_classes, family.basis.shape[1]

    def numbers(sharing: str, count: int, start: int) -> np.ndarray:
        each = np.arange(count) + start + count * np.arange(1 if sharing == "alike" else classes)[:, None]
        return np.broadcast_to(each, (classes, count))

    level = numbers(family.level, n_level, 0)
    return np.concatenate([level, numbers(family.movement, functions * n_movement, int(level.max()) + 1)], 1)


def _penalty(
    smoothing: np.ndarray, n_level: int, n_movement: int, places: np.ndarray | None, classes: int, size: int
) -> np.ndarray:
    """The ridge and the roughness penalty of all blocks: (blocks, size, size)."""
    of_class = n_level + len(smoothing) * n_movement
    rough = np.zeros((of_class, of_class))
    rough[n_level:, n_level:] = np.kron(smoothing, np.eye(n_movement))
    if places is None:
        return np.broadcast_to(rough + RIDGE * np.eye(size), (classes, size, size)).copy()
    joined = np.zeros((size, size))
    for of_one in np.unique(places, axis=0):  # a coefficient that classes share is penalised once
        joined[np.ix_(of_one, of_one)] = rough
    return (joined + RIDGE * np.eye(size))[None]
