"""What a chain sees and what it is made of: tensors with a leading members axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from labeltide._clock import Period, gap_ladder


@dataclass(frozen=True)
class ChainData:
    """Recorded labels and evidence, on one device; several members may share one set of either.

    Attributes
    ----------
    labels : int8 Tensor of shape (sets, rows, steps, annotators)
        -1 where nothing was recorded.
    mask : bool Tensor of shape (rows, steps)
        False on padding, which stands at the end.
    points : int64 Tensor of shape (rows, steps), or None
        The place of each step on the clock grid; None where all rows run through the grid step by step.
    n_points, n_classes : sizes of the grid and of the label alphabet
    evidence : Tensor of shape (evidence sets, rows, steps, classes), optional
        Log-probabilities of the true label given the features.
    trusted : int8 Tensor of shape (rows, steps), optional
        True labels where they are known, -1 elsewhere.
    jumps : int8 Tensor of shape (rows, steps), optional
        Which of `gaps` lies before each step; 0 where all steps follow the one before at once.
    gaps : tuple of int
        How many steps of time may lie between two steps, the first of them 1.
    """

    labels: Tensor
    mask: Tensor
    points: Tensor | None
    n_points: int
    n_classes: int
    evidence: Tensor | None = None
    trusted: Tensor | None = None
    jumps: Tensor | None = None
    gaps: tuple[int, ...] = (1,)

    def job(self, index: int) -> Self:
        """The labels and evidence of one job, on the CPU."""
        part = slice(index, index + 1)
        evidence = None if self.evidence is None else self.evidence[part]
        own = replace(self, labels=self.labels[part], evidence=evidence)
        on_cpu: dict[str, Any] = {k: v.cpu() if isinstance(v, Tensor) else v for k, v in vars(own).items()}
        return type(self)(**on_cpu)

    def take_rows(self, rows: Tensor) -> Self:
        """Some of the rows, of all sets."""
        by_row = {name: getattr(self, name) for name in ("mask", "points", "trusted", "jumps")}
        own: dict[str, Any] = {name: None if part is None else part[rows] for name, part in by_row.items()}
        evidence = None if self.evidence is None else self.evidence[:, rows]
        return replace(self, labels=self.labels[:, rows], evidence=evidence, **own)

    def with_evidence(self, evidence: Tensor | None) -> Self:
        """The same labels with other evidence."""
        return replace(self, evidence=evidence)

    def with_gaps(self, gaps: np.ndarray | None) -> Self:
        """The same labels with so many steps of time before each step, (rows, steps); None leaves all as it is."""
        if gaps is None:
            return self
        places, lengths = gap_ladder(gaps)
        return replace(self, jumps=torch.from_numpy(places).to(self.mask.device), gaps=lengths)

    def transitions(self, transition: Tensor) -> Tensor:
        """The transitions over each of the gaps, (members, gaps, classes, classes): a long one forgets the past."""
        return torch.stack([torch.linalg.matrix_power(transition, gap) for gap in self.gaps], 1)

    def label_shares(self) -> Tensor:
        """How much of the labels of each set each annotator gave: (sets, annotators)."""
        given = ((self.labels >= 0) & self.mask[..., None]).sum((1, 2)).double()
        return given / given.sum(-1, keepdim=True).clamp_min(1.0)

    def places(self) -> Tensor:
        """The place of each step on the clock grid: (rows, steps)."""
        if self.points is not None:
            return self.points
        return torch.arange(self.mask.shape[1], device=self.mask.device).expand_as(self.mask)


class Chain(NamedTuple):
    """One chain after fitting, in plain numbers; see `ChainParameters`."""

    start: np.ndarray  # (classes,)
    transition: np.ndarray  # (classes, classes)
    power: float
    bursts: float = 0.0


class Members(NamedTuple):
    """Which labels and evidence each member of a fleet of chains sees, and which rows it learns from."""

    labels: Tensor  # (members,), into the sets of labels
    evidence: Tensor  # (members,), into the sets of evidence
    weights: Tensor  # (members, rows); a row of weight zero is judged but not learned from

    def take(self, index: Tensor) -> Members:
        """Some of the members."""
        return Members(self.labels[index], self.evidence[index], self.weights[index])


class ChainParameters(NamedTuple):
    r"""One directed chain per member: :math:`p(y_t = j \mid y_{t-1} = i, x) \propto A_{ij} P_{tj}^k`.

    P is the evidence. With k = 0 labels alone speak; with equal rows of A the network alone. Errors may come in
    bursts: the random draw that decided a label is then kept for the next one with some probability, in a way that
    leaves every moment its own Q.
    """

    start: Tensor  # (members, classes)
    transition: Tensor  # (members, classes, classes)
    power: Tensor  # (members,), the exponent k
    matrices: Tensor  # (members, annotators or 1, points, classes, classes), Q
    bursts: Tensor | None = None  # (members,), how often the draw behind a label is that of the step before

    def take(self, index: Tensor) -> ChainParameters:
        """Some of the members."""
        return ChainParameters(*(None if tensor is None else tensor[index] for tensor in self))  # type: ignore[arg-type]

    def cpu(self) -> ChainParameters:
        """The same numbers on the CPU."""
        return ChainParameters(*(None if tensor is None else tensor.cpu() for tensor in self))  # type: ignore[arg-type]


class TrainingEvidence(NamedTuple):
    """What a fit learned Q(t) from: everything that bands, tests and checks of it need. One job."""

    data: ChainData  # with the evidence of networks that did not see the rows they judge
    parameters: ChainParameters  # the chain that was chosen
    folds: Tensor  # (1, rows)
    grid: np.ndarray  # the moments at which Q is estimated; with several clocks (points, clocks)
    clusters: Tensor | None = None  # (rows,), rows that belong together, such as those of one person; None: none do
    shares: Tensor | None = None  # (annotators,), the weight of each in the common Q; None: by their labels
    period: Period = None  # the length after which the clock begins anew

    def weights(self) -> np.ndarray:
        """The weight of each annotator in the common Q: (annotators with a Q of their own,)."""
        if self.parameters.matrices.shape[1] == 1:
            return np.ones(1)
        return (self.data.label_shares()[0] if self.shares is None else self.shares).double().numpy()


class Expected(NamedTuple):
    """What one pass over the sequences gives: the likelihood, and what the next parameters are computed from."""

    log_likelihood: Tensor  # (members, rows)
    counts: Tensor  # (members, annotators, points, classes, classes): true i recorded as j
    starts: Tensor  # (members, 2, classes): expected first labels, and what would be expected at weight one
    pairs: Tensor  # (members, 2, classes, classes): the same for transitions
    power: Tensor  # (members, 2): slope and curvature of the likelihood in the power
    kept: Tensor  # (members,): expected labels whose draw was kept from the step before
    posterior: Tensor | None  # (members, rows, steps, classes)


def cat_parameters(parts: Sequence[ChainParameters]) -> ChainParameters:
    """Several fleets of chains as one."""
    joined = [None if own[0] is None else torch.cat(own) for own in zip(*parts, strict=True)]
    return ChainParameters(*joined)  # type: ignore[arg-type]
