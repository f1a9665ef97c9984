"""The data and parameters of hidden Markov models, and the forward-backward passes that read them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from labeltide._clock import Period, gap_ladder
from labeltide.chain.families import WeightedFamily
from labeltide.kernels import choose
from labeltide.kernels.compiled import ChainInputs, compiled_pass
from labeltide.kernels.compiled import ExpectedCounts as ExpectedCounts

TRUSTED_LABELS = 30  # by hand: with as many, Q is known from them


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

    @property
    def is_trusted(self) -> bool:
        """Whether so many labels are known to be right that Q is known from them."""
        return self.trusted is not None and int((self.trusted >= 0).sum()) >= TRUSTED_LABELS

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


# Forward-backward pass of the hidden Markov model (Rabiner 1989): in C, Triton or torch, whichever is there.

NUMBERS_AT_ONCE = 2**29  # kept by a pass: in torch three matrices for every step and member, in Triton one vector


def expect(
    data: ChainData, members: Members, parameters: ChainParameters, *, posterior: bool = False
) -> ExpectedCounts:
    """E-step: the likelihood of the recorded labels and the expected sufficient statistics of every member."""
    backend = choose("chain", data.labels.device)
    if backend == "c":
        return compiled_pass(kernel_inputs(data, members, parameters), posterior=posterior)
    in_triton = False
    if backend == "triton":
        from labeltide.kernels.chain_triton import MAX_TRITON_CLASSES, triton_pass

        in_triton = data.n_classes <= MAX_TRITON_CLASSES
    kept = data.n_classes + 1 if in_triton else 3 * data.n_classes**2
    at_once = max(1, NUMBERS_AT_ONCE // (data.mask.numel() * kept))
    parts = []
    for part in torch.arange(len(parameters.power), device=data.mask.device).split(at_once):
        some = data, members.take(part), parameters.take(part)
        run = triton_pass(kernel_inputs(*some), posterior=posterior) if in_triton else plain_pass(*some, posterior)
        parts.append(run)
    joined = [torch.cat(tensors) for tensors in zip(*(part[:6] for part in parts), strict=True)]
    smoothed = [part.posterior for part in parts if part.posterior is not None]
    return ExpectedCounts(*joined, torch.cat(smoothed) if smoothed else None)  # type: ignore[call-arg]


def posteriors(data: ChainData, members: Members, parameters: ChainParameters) -> Tensor:
    """Posterior of the true labels (forward-backward smoothing): (members, rows, steps, classes)."""
    posterior = expect(data, members, parameters, posterior=True).posterior
    assert posterior is not None
    return posterior


def kernel_inputs(data: ChainData, members: Members, parameters: ChainParameters) -> ChainInputs:
    """The tensors of a pass as its kernels take them."""
    return ChainInputs(
        data.labels,
        data.mask.sum(1),
        data.grid_index(),
        data.evidence,
        data.trusted,
        data.jumps,
        *members,
        parameters.start,
        data.transitions(parameters.transition),
        *parameters[2:],
    )


# Forward-backward pass (Rabiner 1989) in torch: the reference, and what runs where nothing is compiled.

TINY = 1e-30


def label_likelihoods(data: ChainData, members: Members, matrices: Tensor) -> Tensor:
    """Emission probability of all annotators' labels for each true label: (members, rows, steps, classes)."""
    n_annotators = data.labels.shape[-1]
    flat = matrices.transpose(-1, -2).flatten(2, 3)  # (members, annotators or 1, points * recorded, true)
    total = matrices.new_ones(())
    for annotator in range(n_annotators):
        labels = data.labels[members.labels, ..., annotator].long()  # (members, rows, steps)
        index = data.grid_index() * data.n_classes + labels.clamp_min(0)
        table = flat[:, annotator if flat.shape[1] > 1 else 0]
        emission = table[torch.arange(len(table), device=table.device)[:, None, None], index]
        total = total * torch.where((labels >= 0)[..., None], emission, 1.0)
    if data.trusted is not None:
        known = torch.nn.functional.one_hot(data.trusted.long().clamp_min(0), data.n_classes).to(total)
        total = torch.where((data.trusted >= 0)[..., None], total * known, total)
    return total.clamp_min(TINY)


def kept_error_rate(was_wrong: Tensor, error: Tensor, earlier: Tensor) -> Tensor:
    r"""Probability of an error where the uniform draw is kept from the step before (a burst).

    The error is the lowest part of the draw. With error rates :math:`e` before and :math:`e'` now, a kept error errs
    again with probability :math:`\min(1, e'/e)`, and a kept correct label errs with :math:`\max(0, e' - e) / (1 - e)`.
    """
    return torch.where(
        was_wrong, error / earlier.clamp_min(1e-6), (error - earlier) / (1 - earlier).clamp_min(1e-6)
    ).clamp(0, 1)


def pair_likelihoods(
    data: ChainData, members: Members, matrices: Tensor, bursts: Tensor, t: int
) -> tuple[Tensor, Tensor]:
    """Emission probability of the labels of step t given the true labels at t - 1 and t, and the share from kept draws.

    With bursts, the uniform draw behind a label is kept from the step before with probability rho (`bursts`), so that
    the error rate at every moment is that of Q(t) (`kept_error_rate`). An error that goes on is recorded as the same
    label, unless that has become the true one. Shapes (members, rows, from, to).
    """
    m, rows, classes = len(matrices), len(data.mask), data.n_classes
    total, kept = matrices.new_ones(m, rows, classes, classes), matrices.new_zeros(m, rows, classes, classes)
    names = torch.arange(classes, device=matrices.device)
    rho, point = bursts[:, None, None, None], data.grid_index()
    for annotator in range(data.labels.shape[-1]):
        noise = matrices[:, annotator if matrices.shape[1] > 1 else 0]  # (members, points, true, recorded)
        here, there = noise[:, point[:, t]], noise[:, point[:, t - 1]]  # (members, rows, true, recorded)
        now, before = (data.labels[members.labels, :, step, annotator].long() for step in (t, t - 1))
        index = now.clamp_min(0)[..., None, None].expand(-1, -1, classes, 1)
        q = here.gather(-1, index)[..., 0][:, :, None]  # (members, rows, 1, to)
        error = 1 - here.diagonal(dim1=-2, dim2=-1)[:, :, None]  # (members, rows, 1, to)
        earlier = 1 - there.diagonal(dim1=-2, dim2=-1)[..., None]  # (members, rows, from, 1)
        was_wrong = (before[..., None] != names)[..., None]  # (members, rows, from, 1)
        is_right = (now[..., None] == names)[:, :, None]  # (members, rows, 1, to)
        again = kept_error_rate(was_wrong, error, earlier)
        goes_on = was_wrong & (before[..., None] != names)[:, :, None]  # (members, rows, from, to)
        repeated = (now == before)[..., None, None].to(q)
        named = torch.where(goes_on, repeated, q / error.clamp_min(1e-6))  # the chance of this label, given an error
        same = rho * torch.where(is_right, 1 - again, again * named)
        mixed = (1 - rho) * q + same
        linked = ((now >= 0) & (before >= 0) & (_follows(data, t) > 0))[..., None, None]
        alone = torch.where((now >= 0)[..., None, None], q, 1.0)
        total = total * torch.where(linked, mixed, alone)
        kept = kept + torch.where(linked, same / mixed.clamp_min(TINY), 0.0)
    if data.trusted is not None:
        known = data.trusted[:, t].long()
        wrong = ((known >= 0)[:, None] & (known[:, None] != names))[:, None]  # (rows, 1, to)
        total = total.masked_fill(wrong, 0.0)
    return total.clamp_min(TINY), kept


def plain_pass(
    data: ChainData, members: Members, parameters: ChainParameters, posterior: bool = False
) -> ExpectedCounts:
    """One forward and one backward recursion over all rows of all members; see `expect`."""
    start, transition, exponent, matrices, bursts = parameters
    likelihood = label_likelihoods(data, members, matrices)
    evidence = torch.zeros_like(likelihood) if data.evidence is None else data.evidence[members.evidence]
    scaled = exponent[:, None, None, None] * evidence
    ratio = (scaled - scaled.amax(-1, keepdim=True)).exp()  # (members, rows, steps, classes)
    powers = data.transitions(transition)  # (members, gaps, classes, classes)
    first = normalise(start[:, None] * ratio[:, :, 0])  # (members, rows, classes), prior of the first label
    joint = first * likelihood[:, :, 0]
    scales = [joint.sum(-1, keepdim=True).clamp_min(TINY)]
    filtered, moves = [joint / scales[0]], []
    links: list[tuple[Tensor, Tensor | None]] = []  # emission of each pair, and the share from kept draws
    m, _, steps, classes = likelihood.shape
    for t in range(1, steps):
        base = powers[:, :1] if data.jumps is None else powers[:, data.jumps[:, t].long()]
        moves.append(normalise(base * ratio[:, :, t, None]))  # (members, rows, from, to)
        if bursts is None:
            links.append((likelihood[:, :, t, None], None))
        else:
            links.append(pair_likelihoods(data, members, matrices, bursts, t))
        joint = (filtered[-1][..., None] * moves[-1] * links[-1][0]).sum(-2)
        scales.append(joint.sum(-1, keepdim=True).clamp_min(TINY))
        filtered.append(joint / scales[-1])

    real = data.mask.to(first)  # (rows, steps)
    back = torch.ones_like(first)
    gamma = torch.empty_like(likelihood)  # the posterior
    # Expected transitions and exposure, gradient and information of the power, and kept draws.
    pairs, power, kept = (first.new_zeros(m, *shape) for shape in ((2, classes, classes), (2,), ()))
    for t in range(steps - 1, 0, -1):
        gamma[:, :, t] = filtered[t] * back * real[:, t, None]
        counted = (members.weights * real[:, t])[..., None, None]  # (members, rows, 1, 1)
        move, (link, share) = moves[t - 1], links[t - 1]
        ahead = move * link * (back / scales[t])[..., None, :]  # (members, rows, from, to)
        both = filtered[t - 1][..., None] * ahead * counted
        if share is not None:
            kept += (both * share).sum((1, 2, 3))
        before = both.sum(-1)  # (members, rows, from)
        follows = _follows(data, t)[:, None, None]
        pairs[:, 0] += (both * follows).sum(1)
        pairs[:, 1] += (before[..., None] * move * follows).sum(1)
        e = evidence[:, :, t, None]  # (members, rows, 1, to)
        apart = e - (move * e).sum(-1, keepdim=True)
        power[:, 0] += (both * apart).sum((1, 2, 3))
        power[:, 1] += (before * (move * apart.square()).sum(-1)).sum((1, 2))
        back = torch.where(real[:, t, None] > 0, ahead.sum(-1), back)
    gamma[:, :, 0] = filtered[0] * back * real[:, 0, None]

    weights = members.weights * data.mask[:, 0]  # (members, rows)
    e = evidence[:, :, 0]
    apart = e - (first * e).sum(-1, keepdim=True)
    power[:, 0] += (((gamma[:, :, 0] - first) * e).sum(-1) * weights).sum(1)
    power[:, 1] += ((first * apart.square()).sum(-1) * weights).sum(1)
    exposure = (first * weights[..., None]).sum(1) / start.clamp_min(TINY)
    # Exposure per unit of A_ij: P_tj^k / Z_t(i) = T_t(i, j) / A_ij, with T the transition and Z its normaliser.
    pairs[:, 1] /= transition.clamp_min(TINY)
    return ExpectedCounts(
        (torch.stack(scales, 2)[..., 0].log() * data.mask).sum(-1),
        count_labels(data, members, gamma * members.weights[..., None, None], matrices.shape[1]),
        torch.stack([(gamma[:, :, 0] * weights[..., None]).sum(1), exposure], 1),
        pairs,
        power,
        kept,
        gamma if posterior else None,
    )


def _follows(data: ChainData, t: int) -> Tensor:
    """1 for rows whose step t follows at once, 0 after a gap: (rows,)."""
    jumps = torch.zeros_like(data.mask[:, t]) if data.jumps is None else data.jumps[:, t]
    return (jumps == 0).float()


def normalise(values: Tensor) -> Tensor:
    """Probabilities that sum to one over the last axis."""
    return values / values.sum(-1, keepdim=True).clamp_min(TINY)


def count_labels(data: ChainData, members: Members, weighted: Tensor, groups: int) -> Tensor:
    """Expected counts of true and recorded labels on the grid: (members, groups, points, true, recorded)."""
    m, _, _, classes = weighted.shape
    n_annotators = data.labels.shape[-1]
    if data.points is None:
        recorded = torch.arange(classes, device=weighted.device)
        seen = (data.labels[members.labels].unsqueeze(-1) == recorded).to(weighted)  # (..., annotators, classes)
        by_annotator = torch.einsum("mnti,mntaj->matij", weighted, seen)
        return by_annotator if groups > 1 else by_annotator.sum(1, keepdim=True)
    out = weighted.new_zeros(m, groups, data.n_points * (classes + 1), classes)
    member = torch.arange(m, device=weighted.device)[:, None, None]
    for annotator in range(n_annotators):
        labels = data.labels[members.labels, ..., annotator].long()
        index = data.points * (classes + 1) + torch.where(labels < 0, classes, labels)  # (members, rows, steps)
        out[:, annotator if groups > 1 else 0].index_put_((member.expand_as(index), index), weighted, accumulate=True)
    return out.unflatten(2, (data.n_points, classes + 1))[..., :classes, :].transpose(-1, -2)


# Leave-one-annotator-out predictive log-likelihood, by which models of several annotators are compared.
#
# The labels of annotator a are predicted from the labels of all others:
# :math:`\sum_t \log \sum_i P(y_t = i \mid \text{labels of others})\, Q_a(t)_{i \tilde y_{ta}}`, as in leave-one-out
# cross-validation. Where annotators err together, the likeliest model is the one that explains how each annotator
# continues from step to step; labels of others predict only through the true label
# (docs/decisions/009-several-annotators.md).

POSTERIORS_AT_ONCE = 2**24  # numbers of the posteriors that are held in memory together
MEMBERS_AT_ONCE = 8  # members that a block of rows leaves room for


def predictive_log_likelihood(
    data: ChainData, members: Members, parameters: ChainParameters, log_likelihood: Tensor, scored: Tensor
) -> Tensor:
    """Predictive log-likelihood of scored rows with several annotators, each with a Q; `log_likelihood` elsewhere."""
    several = ((data.labels >= 0) & data.mask[..., None]).any(2).sum(-1) > 1  # (sets, rows)
    predicted = scored & several[members.labels]
    if parameters.matrices.shape[1] == 1 or not bool(predicted.any()):
        return log_likelihood
    result = log_likelihood.clone()
    row_sets, row_set = predicted.unique(dim=0, return_inverse=True)  # members with the same predicted rows
    most = max(1, POSTERIORS_AT_ONCE // (MEMBERS_AT_ONCE * data.mask.shape[1] * data.n_classes))
    for number, in_set in enumerate(row_sets):
        for rows in in_set.nonzero().flatten().split(most) if bool(in_set.any()) else ():
            part = data.take_rows(rows)
            at_once = max(1, POSTERIORS_AT_ONCE // (part.mask.numel() * data.n_classes))
            for index in (row_set == number).nonzero().flatten().split(at_once):
                some = members.take(index)
                some = some._replace(weights=some.weights[:, rows])
                result[index[:, None], rows] = _leave_one_out(part, some, parameters.take(index)).to(result)
    return result


def _leave_one_out(data: ChainData, members: Members, parameters: ChainParameters) -> Tensor:
    """Log-probability of each annotator's labels given those of all others, summed over steps: (members, rows)."""
    total = torch.zeros_like(members.weights)
    for annotator in range(data.labels.shape[-1]):
        left_out = slice(annotator, annotator + 1)
        others = data.labels.clone()
        others[..., left_out] = -1
        posterior = posteriors(replace(data, labels=others), members, parameters)
        alone = replace(data, labels=data.labels[..., left_out], trusted=None)
        emission = label_likelihoods(alone, members, parameters.matrices[:, left_out])
        recorded = (alone.labels[members.labels, ..., 0] >= 0) & data.mask
        total += ((posterior * emission).sum(-1).clamp_min(1e-30).log() * recorded).sum(-1)
    return total
