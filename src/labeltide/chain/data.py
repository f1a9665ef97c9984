"""Data and parameters of the hidden Markov model over true labels; tensors have a leading members axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from labeltide._clock import Period, gap_ladder
from labeltide.chain.families import WeightedFamily
from labeltide.kernels.chain import Expected as Expected


@dataclass(frozen=True)
class ChainData:
    """Recorded labels and evidence (out-of-fold log-probabilities) in sets, each of which may serve several members."""

    labels: Tensor  # int8 (sets, rows, steps, annotators), -1 where nothing was recorded
    mask: Tensor  # bool (rows, steps), False on padding, which stands at the end
    points: Tensor | None  # int64 (rows, steps), of each step on the grid; None where step t is point t everywhere
    n_points: int
    n_classes: int
    evidence: Tensor | None = None  # (evidence sets, rows, steps, classes), given the features
    future_evidence: Tensor | None = None  # the same, given the features of the step and of all later ones
    trusted: Tensor | None = None  # int8 (rows, steps), true labels where they are known, -1 elsewhere
    jumps: Tensor | None = None  # int8 (rows, steps), index into `gaps` of the gap before each step; 0 for none
    gaps: tuple[int, ...] = (1,)  # lengths of gaps between two steps, in steps of time; the first is 1
    trained_with: Tensor | None = None  # (evidence sets,), `informedness` of the Q with which networks were trained

    def of_fit(self, fit: int) -> Self:
        """The labels and evidence of one fit, on the CPU."""
        part = self._index(slice(fit, fit + 1), "labels", "evidence", "future_evidence", "trained_with")
        selected = replace(self, **part)
        on_cpu: dict[str, Any] = {k: v.cpu() if isinstance(v, Tensor) else v for k, v in vars(selected).items()}
        return type(self)(**on_cpu)

    def take_rows(self, rows: Tensor) -> Self:
        """Some of the rows, of all sets."""
        of_rows = self._index(rows, "mask", "points", "trusted", "jumps")
        return replace(self, **of_rows, **self._index((slice(None), rows), "labels", "evidence", "future_evidence"))

    def _index(self, index: Any, *names: str) -> dict[str, Any]:
        """Some tensors by name, indexed where they are there."""
        tensors = {name: getattr(self, name) for name in names}
        return {name: None if tensor is None else tensor[index] for name, tensor in tensors.items()}

    def with_evidence(
        self, evidence: Tensor | None, trained_with: Tensor | None = None, future_evidence: Tensor | None = None
    ) -> Self:
        """The same labels with other evidence, and the informedness of the Q that its networks were trained with."""
        return replace(self, evidence=evidence, trained_with=trained_with, future_evidence=future_evidence)

    def with_gaps(self, gaps: np.ndarray | None) -> Self:
        """The same labels with the gap before each step in steps of time, (rows, steps); None changes nothing."""
        if gaps is None:
            return self
        indices, lengths = gap_ladder(gaps)
        return replace(self, jumps=torch.from_numpy(indices).to(self.mask.device), gaps=lengths)

    def transitions(self, transition: Tensor) -> Tensor:
        """The transition matrix to the power of each gap: (members, gaps, classes, classes)."""
        return torch.stack([torch.linalg.matrix_power(transition, gap) for gap in self.gaps], 1)

    def label_shares(self) -> Tensor:
        """The share of each annotator in the labels of each set: (sets, annotators)."""
        counts = ((self.labels >= 0) & self.mask[..., None]).sum((1, 2)).double()
        return counts / counts.sum(-1, keepdim=True).clamp_min(1.0)

    def grid_index(self) -> Tensor:
        """The index of each step's moment on the clock grid: (rows, steps)."""
        if self.points is not None:
            return self.points
        return torch.arange(self.mask.shape[1], device=self.mask.device).expand_as(self.mask)


class Chain(NamedTuple):
    """One fitted hidden Markov model without its Q, as NumPy arrays and numbers; see `ChainParameters`."""

    start: np.ndarray  # (classes,)
    transition: np.ndarray  # (classes, classes)
    power: float
    bursts: float = 0.0


class Members(NamedTuple):
    """The set of labels, the set of evidence and the row weights of each member of a fleet of chains."""

    labels: Tensor  # (members,), into the sets of labels
    evidence: Tensor  # (members,), into the sets of evidence
    weights: Tensor  # (members, rows); a row of weight zero is scored but not learned from

    def take(self, index: Tensor) -> Members:
        """Some of the members."""
        return Members(self.labels[index], self.evidence[index], self.weights[index])


def same_data(weights: Tensor) -> Members:
    """Members that all see the first set of labels and evidence, and differ in the weights of rows, (members, rows)."""
    first = torch.zeros(len(weights), dtype=torch.int64)
    return Members(first, first, weights)


class ChainParameters(NamedTuple):
    r"""One hidden Markov model per member: :math:`p(y_t = j \mid y_{t-1} = i, x) \propto A_{ij} P_{tj}^k`.

    The emission probabilities are Q(t), and P is the evidence: a maximum-entropy Markov model (McCallum, Freitag and
    Pereira 2000) over hidden labels. With k = 0 it is the usual hidden Markov model of labels alone; with equal rows of
    A and k = 1 the network alone predicts. With bursts, the uniform draw that decided a label is kept for the next
    label with some probability; the marginal at every moment is still Q(t).
    """

    start: Tensor  # (members, classes)
    transition: Tensor  # (members, classes, classes)
    power: Tensor  # (members,), the exponent k
    matrices: Tensor  # (members, annotators or 1, points, classes, classes), Q
    bursts: Tensor | None = None  # (members,), probability that a draw is kept from the step before

    def take(self, index: Tensor) -> ChainParameters:
        """Some of the members."""
        return ChainParameters(*(None if tensor is None else tensor[index] for tensor in self))  # type: ignore[arg-type]

    def cpu(self) -> ChainParameters:
        """The same numbers on the CPU."""
        return ChainParameters(*(None if tensor is None else tensor.cpu() for tensor in self))  # type: ignore[arg-type]


class TrainingEvidence(NamedTuple):
    """Labels, out-of-fold evidence and fitted chain of one fit: the input of bands, tests and checks."""

    data: ChainData  # with out-of-fold evidence
    parameters: ChainParameters  # the chain that was chosen
    folds: Tensor  # (1, rows)
    grid: np.ndarray  # the moment of each point at which Q is estimated; with several clocks (points, clocks)
    clusters: Tensor | None = None  # int64 (rows,), the cluster of each row, such as its person; None: not told
    shares: Tensor | None = None  # (annotators,), weights in the common Q; None: shares of the labels
    period: Period = None  # of the clock, where it has one
    families: tuple[WeightedFamily, ...] = ()  # Q is their weighted average
    bootstrap_rows: Tensor | None = None  # int64, the rows of parametric bootstrap tests, which are slow; None: all

    def take_rows(self, rows: Tensor) -> TrainingEvidence:
        """Some of the rows; parametric bootstrap tests then use all of them."""
        return self._replace(
            data=self.data.take_rows(rows),
            folds=self.folds[:, rows],
            clusters=None if self.clusters is None else self.clusters[rows],
            bootstrap_rows=None,
        )

    def for_bootstrap(self) -> TrainingEvidence:
        """The rows from which labels are simulated many times."""
        return self if self.bootstrap_rows is None else self.take_rows(self.bootstrap_rows)

    def weights(self) -> np.ndarray:
        """The weight of each annotator in the common Q: (annotators,), or (1,) where all share one Q."""
        if self.parameters.matrices.shape[1] == 1:
            return np.ones(1)
        return (self.data.label_shares()[0] if self.shares is None else self.shares).double().numpy()


def informedness(matrices: Tensor) -> Tensor:
    r"""The mean of :math:`J = (\mathrm{tr}\, Q - 1) / (K - 1)`, what recorded labels say about true ones: (members,).

    It is 1 where labels are right and 0 where they are drawn at random (Youden 1950).
    """
    trace = matrices.diagonal(dim1=-2, dim2=-1).sum(-1).mean((1, 2))
    return (trace - 1) / (matrices.shape[-1] - 1)


def cat_parameters(parts: Sequence[ChainParameters]) -> ChainParameters:
    """Several fleets of chains as one."""
    joined = [None if tensors[0] is None else torch.cat(tensors) for tensors in zip(*parts, strict=True)]
    return ChainParameters(*joined)  # type: ignore[arg-type]


# Limits of time of inference from many labels (docs/decisions/018-size-of-an-audit.md).
INFERENCE_STEPS = 10_000  # steps of windows from which bands and checks are computed
TEST_STEPS = 2_500  # and parametric bootstrap tests, which fit hundreds of simulated studies
# Steps times classes times score tests, all of which are one fit each: seconds on two cores.
SCORE_TEST_WORK = 1_200_000
MIN_CLUSTERS = 20  # sequences whose windows bands, checks and tests are computed from, where there are as many


def thin_evidence(training: TrainingEvidence, seed: int, steps: int, fewest: int = MIN_CLUSTERS) -> TrainingEvidence:
    """A random subset of windows with about so many steps: whole clusters, or a share of each of `fewest`."""
    chosen = _choose_rows(training, seed, steps, fewest)
    return training if chosen is None else training.take_rows(chosen)


def thin_for_tests(training: TrainingEvidence, seed: int, steps: int) -> TrainingEvidence:
    """The evidence of tests: of all people for score tests, which are one fit each; `steps` of it for the bootstrap."""
    annotators, classes = training.parameters.matrices.shape[1], training.data.n_classes
    tests = 1 + classes + (annotators if annotators > 1 else 0)
    most = max(steps, SCORE_TEST_WORK // (tests * classes))
    large = thin_evidence(training, seed, most, fewest=len(training.data.mask))
    return large._replace(bootstrap_rows=_choose_rows(large, seed, steps, MIN_CLUSTERS))


def _choose_rows(training: TrainingEvidence, seed: int, steps: int, fewest: int) -> Tensor | None:
    """Rows with about so many steps, in order; None where there are no more."""
    n_rows, n_steps = training.data.mask.shape
    most = max(20, steps // n_steps)
    if n_rows <= most:
        return None
    clusters = np.arange(n_rows) if training.clusters is None else training.clusters.numpy()
    return torch.from_numpy(draw_rows(clusters, most, fewest, np.random.default_rng([seed, 10])))


def draw_rows(clusters: np.ndarray, most: int, fewest: int, generator: np.random.Generator) -> np.ndarray:
    """About `most` rows, in order: whole clusters, or some rows of each of `fewest`."""
    names, cluster_of_row, sizes = np.unique(clusters, return_inverse=True, return_counts=True)
    drawn = generator.permutation(len(names))
    whole = drawn[np.cumsum(sizes[drawn]) <= most]
    kept = drawn[: max(len(whole), fewest)]
    share = min(1.0, most / sizes[kept].sum())
    rows = [generator.permutation(np.flatnonzero(cluster_of_row == cluster)) for cluster in kept]
    return np.sort(np.concatenate([of_one[: max(1, round(share * len(of_one)))] for of_one in rows]))
