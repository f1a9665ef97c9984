r"""Parametric families of Q(t): multinomial logits over the clock, with penalised B-splines among the shapes.

The logit of recording j rather than the truth i, one *entry* for every pair of different classes, is linear in the
coefficients: :math:`\log Q_{ij}(t) / Q_{ii}(t) = x_{ij}(t)^\top \beta`. A family is a shape over the clock times a
sharing of coefficients among entries. Shapes are a constant, P-splines (cubic B-splines with a roughness penalty on
second differences, Eilers and Marx 1996), a wave (harmonic regression) and pieces (constant between change points).
The sharing says whether all entries change together, those of one true class, or each by itself. Families are compared
by held-out likelihood (`em.py`). Confidence bands and tests of change take splines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from scipy.interpolate import BSpline
from scipy.linalg import block_diag
from torch import Tensor

from labeltide._clock import Period, each_period, one_period

# docs/decisions/007-families-of-q.md
N_SPLINE = 14  # by hand: B-splines over one clock
N_SPLINE_OF_SEVERAL = 8  # by hand: over each of several clocks
RIDGE = 1e-2  # by hand: ridge penalty, so that logits of labels that were never recorded stay finite


class Family(NamedTuple):
    """A multinomial logit, by what its design matrix is made of: functions of the clock, and sharings among entries."""

    name: str
    n_classes: int
    shape: Shape
    level: str  # which entries share the constant: "alike", "by class", "each"
    movement: str  # which entries share the change over the clock
    pooling: float | None = None  # the precision of annotators' logits around the common ones; None: all share one Q
    held: int | None = None  # the annotator whose noise does not change over the clock
    held_class: int | None = None  # the true class whose entries do not change over the clock

    @property
    def basis(self) -> np.ndarray:
        """Functions of the clock: (points, functions); none for a constant."""
        return self.shape.basis

    @property
    def of_class(self) -> int:
        """The number of coefficients that the entries of one true class use."""
        n_level, n_moving = (self.n_classes - 1 if sharing == "each" else 1 for sharing in (self.level, self.movement))
        return n_level + self.basis.shape[1] * n_moving

    def moving_shares(self) -> np.ndarray:
        """Which entries change together over the clock, without those of a held class: (entries, shares)."""
        moving = shared(self.n_classes, self.movement)
        if not self.basis.shape[1]:
            return moving[:, :0]
        if self.held_class is None:
            return moving
        of_held = np.repeat(np.arange(self.n_classes) == self.held_class, self.n_classes - 1)
        return moving[:, ~moving[of_held].any(0)]


class Shape(NamedTuple):
    """Functions of the clock and their roughness penalty."""

    name: str
    basis: np.ndarray  # (points, functions); none for a constant
    penalty: np.ndarray  # (functions, functions)
    kind: str  # "static", "spline", "wave" or "pieces"
    smoothness: float | None = None  # factor of the roughness penalty, where it is the same over all clocks


def family(n_classes: int, shape: Shape, level: str, movement: str = "alike") -> Family:
    """A constant with one sharing plus a shape over the clock with another."""
    moves = f"level {level}, movement {movement}" if shape.basis.shape[1] else level
    return Family(f"{shape.name}, {moves}", n_classes, shape, level, movement)


def pooled(unpooled: Family, strength: float) -> Family:
    """The same family for each annotator, with partial pooling of coefficients towards the common ones."""
    return unpooled._replace(name=f"{unpooled.name}, pooling {strength:g}", pooling=strength)


def hold_annotator(free: Family, annotator: int) -> Family:
    """The same family, but the noise of one annotator does not change over the clock."""
    return free._replace(name=f"{free.name}, annotator {annotator} held", held=annotator)


def hold_class(free: Family, held: int) -> Family:
    """The same family, pooled alike, in which the entries of one true class do not change over the clock."""
    return free._replace(name=f"{free.name}, class {held} held", held_class=held)


class WeightedFamily(NamedTuple):
    """A family that was compared, without its design, and its weight in the mixture."""

    name: str
    weight: float
    smoothness: float | None = None  # see `Shape`
    pooling: float | None = None
    kind: str = "spline"  # see `Shape`


def constant_shape(grid: np.ndarray) -> Shape:
    """Noise that does not change over the clock."""
    return Shape("static", np.zeros((len(grid), 0)), np.zeros((0, 0)), "static")


def spline_shape(grid: np.ndarray, smoothness: float, period: Period = None) -> Shape:
    r"""P-spline (Eilers and Marx 1996): cubic B-splines with penalty :math:`\lambda \lVert D_2 \beta \rVert^2`.

    With a period the basis is cyclic. Over several clocks, a grid (points, clocks), there is one spline for each.
    """
    if grid.ndim == 2:
        return sum_shape(grid, [smoothness] * grid.shape[1], period)
    return _spline(grid, smoothness, one_period(period), N_SPLINE)


def sum_shape(grid: np.ndarray, smoothness: Sequence[float | None], period: Period) -> Shape:
    """Additive model: one P-spline for each clock of a grid (points, clocks); None leaves a clock out."""
    parts = []
    for moments, value, length in zip(grid.T, smoothness, each_period(period, len(smoothness)), strict=True):
        axis, index = np.unique(moments, return_inverse=True)
        if value is not None and len(axis) > 1:
            spline = _spline(axis, value, length, N_SPLINE_OF_SEVERAL)
            parts.append(spline._replace(basis=spline.basis[index]))
    if not parts:
        return constant_shape(grid)
    alike = len(set(smoothness)) == 1
    name = f"{smoothness[0]:g}" if alike else " and ".join("-" if v is None else f"{v:g}" for v in smoothness)
    basis, penalty = np.hstack([part.basis for part in parts]), block_diag(*(part.penalty for part in parts))
    return Shape(f"spline {name}", basis, penalty, "spline", smoothness[0] if alike else None)


def _spline(grid: np.ndarray, smoothness: float, period: float | None, max_columns: int) -> Shape:
    columns = max(min(max_columns, len(grid) - 1), 4)
    low = grid[0]
    width = (period or (grid[-1] - low) or 1.0) / (columns if period else columns - 3)
    knots = low + width * np.arange(-3, columns + 4)
    inside = low + (grid - low) % period if period else grid
    basis = BSpline.design_matrix(np.clip(inside, knots[3], knots[-4]), knots, 3).toarray()
    eye = np.eye(columns)
    if period:
        basis = basis[:, :columns] + np.pad(basis[:, columns:], ((0, 0), (0, 2 * columns - basis.shape[1])))
        differences = eye - 2 * np.roll(eye, 1, 1) + np.roll(eye, 2, 1)
    else:
        basis, differences = basis[:, :columns], np.diff(eye, 2, axis=0)
    return Shape(f"spline {smoothness:g}", basis, smoothness * differences.T @ differences, "spline", smoothness)


def wave_shape(grid: np.ndarray, period: float) -> Shape:
    """Harmonic regression with one frequency: a sine of free amplitude and phase."""
    angle = 2 * np.pi * (grid - grid[0]) / period
    basis = np.stack([np.cos(angle), np.sin(angle)], 1)
    return Shape(f"wave {period:.3g}", basis, np.zeros((2, 2)), "wave")


def pieces_shape(pieces: np.ndarray) -> Shape:
    """Piecewise constant between change points; `pieces` numbers the piece of every point, from 0."""
    n_pieces = int(pieces.max()) + 1
    return Shape(f"{n_pieces} pieces", np.eye(n_pieces)[pieces][:, 1:], np.zeros((n_pieces - 1,) * 2), "pieces")


def shared(n_classes: int, sharing: str) -> np.ndarray:
    """Indicator matrix of the coefficient that each entry uses: (entries, coefficients)."""
    entries = n_classes * (n_classes - 1)
    if sharing == "alike":
        return np.ones((entries, 1))
    if sharing == "by class":
        return np.repeat(np.eye(n_classes), n_classes - 1, axis=0)
    return np.eye(entries)


# M-step for Q(t): penalised multinomial logit by Newton's method (Fisher scoring), one damped step an iteration.
#
# The coefficients maximise :math:`\sum_{tij} N_{tij} \log Q_{ij}(t; \beta) - \tfrac{1}{2} \beta^\top S \beta`, where N
# are the expected counts of the E-step and S is the roughness penalty. The logit is the canonical link, so that
# Newton's method and Fisher scoring agree. Double precision: rounding depends on how many members are computed
# together, and a member must end alike in any fleet.

MAX_STEP = 2.0  # the most by which a logit may move in one step
RIGID = 1e8  # the ridge penalty of a coefficient that is held at zero
NUMBERS_AT_ONCE = 2**23  # of the weighted designs that a Newton step holds at once
Coefficients = list[Tensor]  # of each group, (members of the group, annotators, coefficients)


@dataclass(frozen=True)
class Group:
    """Members whose families have the same name and size, so that they can be computed together."""

    members: Tensor  # (members of the group,)
    blocks: ClassBlocks
    held: int | None  # the annotator whose noise does not change over the clock
    pooling: float | None  # see `Family`


@dataclass(frozen=True)
class Families:
    """The family of each member of a fleet of chains, and the M-step for their coefficients.

    Where annotators are pooled, the common coefficients stand before those of each annotator.
    """

    groups: tuple[Group, ...]
    n_points: int
    n_classes: int

    def fit_start(self, matrices: Tensor) -> Coefficients:
        """Least-squares coefficients for the logits of Q, (members, annotators, points, classes, classes)."""
        logs = matrices.double().clamp_min(1e-4).log()
        target = _others(logs) - logs.diagonal(dim1=-2, dim2=-1)[..., None]
        coefficients = []
        for group in self.groups:
            fitted = _least_squares(group, target[group.members])
            if group.held is not None:
                of_held = target[group.members][:, [group.held]]
                fitted[:, group.held] = _least_squares(group, of_held, ~group.blocks.moving())[:, 0]
            if group.pooling is not None:  # the common ones are their posterior mode given those of annotators
                prior = self._prior(group)
                right = prior @ group.blocks.split(fitted.sum(1))[..., None]
                common = torch.linalg.solve(group.blocks.penalty + fitted.shape[1] * prior, right)[..., 0].flatten(1)
                fitted = torch.cat([common.unsqueeze(1), fitted], 1)
            coefficients.append(fitted)
        return coefficients

    def noise(self, coefficients: Coefficients) -> Tensor:
        """Q on the grid: (members, annotators, points, true, recorded)."""
        pairs = zip(self.groups, coefficients, strict=True)
        parts = [self._noise(group, beta if group.pooling is None else beta[:, 1:]) for group, beta in pairs]
        order = torch.cat([group.members for group in self.groups]).argsort()
        return torch.cat(parts)[order].float()

    def step(self, coefficients: Coefficients, counts: Tensor) -> Coefficients:
        """One Newton step for expected counts (members, annotators, points, true, recorded)."""
        pairs = zip(self.groups, coefficients, strict=True)
        return [self._newton(group, of_group, counts[group.members].double()) for group, of_group in pairs]

    def _noise(self, group: Group, coefficients: Tensor) -> Tensor:
        logits = group.blocks.logits(coefficients)  # (members, annotators, points, true, others)
        whole = logits.new_zeros(*logits.shape[:3], self.n_classes, self.n_classes)
        off = ~torch.eye(self.n_classes, dtype=torch.bool, device=logits.device)
        whole[..., off] = logits.flatten(3)
        return whole.softmax(-1)

    def _newton(self, group: Group, coefficients: Tensor, counts: Tensor) -> Tensor:
        if group.pooling is not None:
            return self._joint_newton(group, coefficients, counts)
        score, information = self._slopes(group, coefficients, counts)
        pull = (group.blocks.penalty.unsqueeze(1) @ group.blocks.split(coefficients)[..., None])[..., 0]
        factor = torch.linalg.cholesky_ex(information + group.blocks.penalty.unsqueeze(1)).L
        step = torch.cholesky_solve((group.blocks.split(score) - pull)[..., None], factor)[..., 0].flatten(2)
        largest = group.blocks.logits(step).abs().amax((2, 3, 4))[..., None]  # (members, annotators, 1)
        return coefficients + step * (MAX_STEP / largest.clamp_min(MAX_STEP))

    def _joint_newton(self, group: Group, coefficients: Tensor, counts: Tensor) -> Tensor:
        r"""One Newton step for the common and all annotators' coefficients: partial pooling (Gelman and Hill 2007).

        Coefficients of annotator a have the prior :math:`\beta_a \sim N(\beta_0, (\lambda M + S)^{-1})`. M is the mean
        squared difference of logits over the clock, and S is the roughness penalty of both. The strength
        :math:`\lambda` is the precision of a logit around the common one. Alternating steps would converge slowly under
        strong pooling. With :math:`H_a` the information of annotator a and :math:`G = \lambda M + S`, eliminating the
        annotators' steps (a Schur complement) leaves
        :math:`(S + \sum_a H_a (H_a + G)^{-1} G)\, d_0 = g_0 + \sum_a G (H_a + G)^{-1} g_a`.
        """
        common, annotators = coefficients[:, :1], coefficients[:, 1:]
        prior, penalty = self._prior(group).unsqueeze(1), group.blocks.penalty.unsqueeze(1)
        score, information = self._slopes(group, annotators, counts)
        pull = prior @ group.blocks.split(annotators - common)[..., None]  # (members, annotators, blocks, size, 1)
        gradient = group.blocks.split(score)[..., None] - pull
        factor = torch.linalg.cholesky_ex(information + prior).L
        carried = torch.cholesky_solve(torch.cat([gradient, prior.expand_as(information)], -1), factor)
        of_common = pull.sum(1, keepdim=True) - penalty @ group.blocks.split(common)[..., None]
        right = of_common + (prior @ carried[..., :1]).sum(1, keepdim=True)
        left = penalty + (information @ carried[..., 1:]).sum(1, keepdim=True)
        first = torch.linalg.solve(left, right)  # (members, 1, blocks, size, 1)
        steps = torch.cat([first, carried[..., :1] + carried[..., 1:] @ first], 1)[..., 0].flatten(2)
        largest = group.blocks.logits(steps).abs().amax((1, 2, 3, 4))[:, None, None]
        return coefficients + steps * (MAX_STEP / largest.clamp_min(MAX_STEP))

    def _prior(self, group: Group) -> Tensor:
        """The precision of an annotator's coefficients around the common ones: (members, blocks, size, size)."""
        assert group.pooling is not None
        blocks = group.blocks
        ones = blocks.basis.new_ones(len(blocks.basis), 1, self.n_points, self.n_classes, self.n_classes - 1)
        eye = torch.eye(blocks.size, dtype=ones.dtype, device=ones.device)
        strength = torch.full((len(group.members), 1, 1, 1), group.pooling, dtype=ones.dtype, device=ones.device)
        mean_square = blocks.information(ones)[:, 0] / self.n_points + RIDGE * eye
        return strength * mean_square + group.blocks.penalty

    def _slopes(self, group: Group, coefficients: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
        """Score (members, annotators, coefficients) and information (members, annotators, blocks, size, size)."""
        blocks = group.blocks  # some annotators at a time, to save memory
        numbers = len(counts) * self.n_points * self.n_classes * blocks.size
        at_once = max(1, NUMBERS_AT_ONCE // numbers)
        scores, informations = [], []
        for some, of_some in zip(coefficients.split(at_once, 1), counts.split(at_once, 1), strict=True):
            totals, probs = of_some.sum(-1, keepdim=True), _others(self._noise(group, some))  # (..., true, others)
            expected = totals * probs
            scores.append(blocks.project(_others(of_some) - expected))
            informations.append(blocks.information(expected, totals.sqrt() * probs))
        score, information = torch.cat(scores, 1), torch.cat(informations, 1)
        if group.held is not None:
            ridge = RIGID * blocks.moving().to(score)
            score[:, group.held] -= ridge * coefficients[:, group.held]
            information[:, group.held] += torch.diag_embed(group.blocks.split(ridge))
        return score, information


def families_of(families: Sequence[Family], device: torch.device | None = None) -> Families:
    """From the family of each member; those of one name and size form a group."""
    keys: dict[tuple[str, int], list[int]] = {}
    for member, kind in enumerate(families):
        keys.setdefault((kind.name, kind.basis.shape[1]), []).append(member)
    groups = []
    for members in keys.values():
        in_group = [families[member] for member in members]
        if all(kind is in_group[0] for kind in in_group):
            in_group = in_group[:1]
        blocks = ClassBlocks.of(in_group, device)
        groups.append(Group(torch.tensor(members, device=device), blocks, in_group[0].held, in_group[0].pooling))
    return Families(tuple(groups), len(families[0].basis), families[0].n_classes)


def _others(values: Tensor) -> Tensor:
    """Leave out the diagonal: (..., true, recorded) → (..., true, recorded - 1)."""
    classes = values.shape[-1]
    flat = values.flatten(-2)[..., 1:].unflatten(-1, (classes - 1, classes + 1))[..., :-1]
    return flat.flatten(-2).unflatten(-1, (classes, classes - 1))


def _least_squares(group: Group, target: Tensor, kept: Tensor | None = None) -> Tensor:
    """Coefficients of logits (members, annotators, points, true, others), by the normal equations; zero if not kept."""
    blocks = group.blocks
    ones = target.new_ones(len(blocks.basis), 1, *target.shape[2:])
    gram = blocks.information(ones)  # (members or 1, 1, blocks, size, size)
    right = group.blocks.split(blocks.project(target))
    if kept is not None:
        used = group.blocks.split(kept.to(right))
        gram, right = gram * used[..., None] * used[..., None, :], right * used
    trace = gram.diagonal(dim1=-2, dim2=-1).mean((-2, -1))[..., None, None, None]
    eye = torch.eye(blocks.size, dtype=gram.dtype, device=gram.device)
    factor = torch.linalg.cholesky(gram + 1e-10 * trace * eye)
    return torch.cholesky_solve(right[..., None], factor)[..., 0].flatten(2)


# Blocks of the Fisher information of a multinomial logit, one for each true class.
#
# Labels of one true class are one multinomial draw, so the information of all logits is block diagonal by true class i.
# At each point t the block is :math:`W_{ti} = \mathrm{diag}(d) - r r^\top`. Design matrices are never formed: with 18
# classes they hold 560 coefficients of 306 logits, and a block 31. Where classes share coefficients, blocks are added.


@dataclass(frozen=True)
class ClassBlocks:
    """Coefficients of families of one name and size, and products with their design.

    Every true class has the coefficients of its level, then those of its change over the clock.
    """

    n_classes: int
    basis: Tensor  # (members or 1, points, functions)
    level_each: bool  # whether each entry has a level of its own, or all entries of a class share one
    movement_each: bool  # the same for the change over the clock
    moves: Tensor  # (classes,), 0 where the entries of a true class do not change, else 1
    columns: Tensor | None  # (classes, coefficients of a class); None where no two classes share a coefficient
    n_blocks: int  # one for each true class, or a single one where classes share coefficients
    size: int  # coefficients of a block
    penalty: Tensor  # (members or 1, blocks, size, size)

    @classmethod
    def of(cls, families: list[Family], device: torch.device | None = None) -> ClassBlocks:
        """The blocks of families that differ in their functions of the clock alone."""
        first = families[0]
        classes, functions = first.n_classes, first.basis.shape[1]
        level_each, movement_each = first.level == "each", first.movement == "each"
        n_level, n_movement = (classes - 1 if each else 1 for each in (level_each, movement_each))
        apart = first.level != "alike" and (first.movement != "alike" or not functions)  # no two classes share any
        columns = None if apart else _columns(first, n_level, n_movement)
        size = n_level + functions * n_movement if columns is None else int(columns.max()) + 1
        moves = np.array([float(label != first.held_class) for label in range(classes)])
        penalties = []  # the ridge and the roughness penalty of all blocks: (blocks, size, size)
        for each in families:
            rough = np.zeros((n_level + functions * n_movement,) * 2)
            rough[n_level:, n_level:] = np.kron(each.shape.penalty, np.eye(n_movement))
            if columns is None:
                penalties.append(np.broadcast_to(rough + RIDGE * np.eye(size), (classes, size, size)))
                continue
            joined = np.zeros((size, size))
            for of_one in np.unique(columns, axis=0):  # a coefficient that classes share is penalised once
                joined[np.ix_(of_one, of_one)] = rough
            penalties.append((joined + RIDGE * np.eye(size))[None])
        return cls(
            classes,
            torch.from_numpy(np.stack([each.basis for each in families])).to(device),
            level_each,
            movement_each,
            torch.from_numpy(moves).to(device),
            None if columns is None else torch.from_numpy(columns).to(device),
            1 if columns is not None else classes,
            size,
            torch.from_numpy(np.stack(penalties)).to(device),
        )

    @property
    def n_level(self) -> int:
        """Coefficients of the level of one class."""
        return self.n_classes - 1 if self.level_each else 1

    def split(self, coefficients: Tensor) -> Tensor:
        """Coefficients by block: (..., coefficients) → (..., blocks, size)."""
        return coefficients.unflatten(-1, (self.n_blocks, self.size))

    def moving(self) -> Tensor:
        """Which coefficients make Q change over the clock: bool (coefficients,)."""
        n_of_class = self.size if self.columns is None else self.columns.shape[1]
        of_class = torch.arange(n_of_class) >= self.n_level
        if self.columns is None:
            return of_class.repeat(self.n_classes)
        moving = torch.zeros(self.size, dtype=torch.bool)
        moving[self.columns.cpu().flatten()] = of_class.repeat(self.n_classes)
        return moving

    def logits(self, coefficients: Tensor) -> Tensor:
        """(members, annotators, coefficients) → (members, annotators, points, true, others)."""
        if self.columns is None:  # (members, annotators, classes, coefficients of a class)
            of_class = coefficients.unflatten(-1, (self.n_classes, self.size))
        else:
            of_class = coefficients[..., self.columns]
        level, movement = of_class[..., : self.n_level], of_class[..., self.n_level :]
        whole = level.unsqueeze(2).expand(-1, -1, self.basis.shape[1], -1, -1)
        if functions := self.basis.shape[2]:  # by function: (members, annotators, functions, classes, others or 1)
            by_function = (movement * self.moves[:, None]).unflatten(-1, (functions, -1)).movedim(3, 2)
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
        of_class = torch.cat(parts, -1)
        if self.columns is None:
            return of_class.flatten(2)
        joined = of_class.new_zeros(*of_class.shape[:2], self.size)
        return joined.index_add_(2, self.columns.flatten(), of_class.flatten(2))

    def information(self, diagonal: Tensor, root: Tensor | None = None) -> Tensor:
        """Information from W = diag(diagonal) - root root', of logits: (members, annotators, blocks, size, size)."""
        diagonal = diagonal.transpose(2, 3)  # (members, annotators, true, points, others)
        total = diagonal.sum(-1, keepdim=True)
        level = diagonal if self.level_each else total
        blocks = torch.diag_embed(level.sum(3))  # (members, annotators, true, levels, levels)
        if self.basis.shape[2]:
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
            rows = torch.cat([blocks, cross.mT], -1), torch.cat([cross, last], -1)
            blocks = torch.cat(rows, -2)
        if root is not None:  # the design of a class, weighted: (..., true, points, coefficients of a class)
            by_class = root.transpose(2, 3)
            total = by_class.sum(-1, keepdim=True)
            parts = [by_class if self.level_each else total]
            if self.basis.shape[2]:
                shared = (by_class if self.movement_each else total) * self.moves[:, None, None]
                parts.append((self.basis[:, None, None, :, :, None] * shared.unsqueeze(-2)).flatten(-2))
            spread = torch.cat(parts, -1)
            blocks = blocks - spread.mT @ spread
        if self.columns is None:
            return blocks
        index = (self.columns[:, :, None] * self.size + self.columns[:, None]).flatten()
        joined = blocks.new_zeros(*blocks.shape[:2], self.size**2).index_add_(2, index, blocks.flatten(2))
        return joined.unflatten(2, (1, self.size, self.size))


def _columns(family: Family, n_level: int, n_movement: int) -> np.ndarray:
    """The number of each coefficient of each class, where some are shared: (classes, coefficients of a class)."""
    classes, functions = family.n_classes, family.basis.shape[1]

    def numbers(sharing: str, count: int, start: int) -> np.ndarray:
        each = np.arange(count) + start + count * np.arange(1 if sharing == "alike" else classes)[:, None]
        return np.broadcast_to(each, (classes, count))

    level = numbers(family.level, n_level, 0)
    return np.concatenate([level, numbers(family.movement, functions * n_movement, int(level.max()) + 1)], 1)
