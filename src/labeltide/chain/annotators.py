"""Consensus of annotators: true labels and each annotator's Q(t) from sparse labels, by EM.

True labels follow a Markov chain. What an annotator records depends on the true label and on the annotator's own last
label, as in the BSC-seq model of Simpson and Gurevych (2019); without the chain and the last label it is the model of
Dawid and Skene (1979). Annotators are partially pooled by Dirichlet priors. EM starts from the shares of votes. The
form of the model, the change over the clock and the weight of evidence are chosen by leave-one-annotator-out
prediction (docs/decisions/028-likeliest-true-label.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from scipy import sparse
from scipy.special import softmax
from torch import Tensor

from labeltide.chain.passes import ChainData, ChainParameters, expect, same_data

# docs/decisions/028-likeliest-true-label.md
FIRST_ITERATIONS, MORE_ITERATIONS = 10, 5  # of EM from the votes, and from another form of the model
COMMON_LABELS, OWN_LABELS = 1.0, 5.0  # by hand: pseudo-labels of the common Q, and of it in an annotator's Q
LAST_LABELS = 20.0  # of an annotator's Q in the one that depends on the last label; chosen on `val` of conll_mturk
BANDWIDTHS = (0.25, 0.1)  # by hand: of the clock, in shares of its range
POWERS = (0.25, 0.5, 0.75, 1.0)  # by hand: of evidence
MAX_NUMBERS = 2**21  # of emissions that are held in memory together


class Candidate(NamedTuple):
    """One form of the model."""

    sequential: bool = True  # whether labels depend on the annotator's last label, and true labels on the last one
    bandwidth: float | None = None  # of Q(t), in shares of the clock's range; None: Q does not change
    power: float = 0.0  # exponent of the evidence


@dataclass(frozen=True)
class Crowd:
    """Labels of annotators as a list of those that were recorded, ordered by row and step."""

    mask: np.ndarray  # bool (rows, steps)
    row: np.ndarray  # of each label
    step: np.ndarray
    annotator: np.ndarray
    label: np.ndarray
    last: np.ndarray  # the annotator's label at the step before; n_classes where there is none
    point: np.ndarray  # on the grid of the annotator's clock
    n_annotators: int
    n_classes: int
    grid: np.ndarray  # moments of the points
    period: float | None = None  # of the clock
    gaps: np.ndarray | None = None  # (rows, steps)
    evidence: np.ndarray | None = None  # log-probabilities (rows, steps, classes)
    trusted: np.ndarray | None = None  # codes (rows, steps), -1 where the true label is not known

    def flat_step(self) -> np.ndarray:
        """The number of each label's step among all steps of all rows."""
        return self.row * self.mask.shape[1] + self.step

    def shared(self) -> np.ndarray:
        """Whether the step of each label has labels of other annotators, too."""
        at = self.flat_step()
        return np.bincount(at, minlength=self.mask.size)[at] > 1

    def votes(self) -> np.ndarray:
        """How many annotators gave each label: (rows * steps, classes)."""
        cells = np.ones(len(self.label), np.float32), (self.flat_step(), self.label)
        return sparse.csr_matrix(cells, (self.mask.size, self.n_classes)).toarray()


def list_labels(
    codes: np.ndarray,
    mask: np.ndarray,
    points: np.ndarray,
    n_classes: int,
    grid: np.ndarray,
    gaps: np.ndarray | None = None,
) -> Crowd:
    """The labels in codes (rows, steps, annotators), -1 for none; `points` broadcasts to their shape."""
    row, step, annotator = np.nonzero((codes >= 0) & mask[..., None])
    before = np.where(step > 0, codes[row, step - 1, annotator], -1).astype(np.int64)
    if gaps is not None:
        before[gaps[row, step] > 1] = -1
    last = np.where(before < 0, n_classes, before)
    point = np.broadcast_to(points, codes.shape)[row, step, annotator]
    label = codes[row, step, annotator].astype(np.int64)
    return Crowd(mask, row, step, annotator, label, last, point, codes.shape[2], n_classes, grid, gaps=gaps)


class Annotators(NamedTuple):
    """Fitted annotators and what they imply."""

    belief: np.ndarray  # (rows, steps, classes): posterior of the chain, in a linear opinion pool with the votes
    another: np.ndarray  # (rows, steps, classes): label of an annotator who has not labelled the step
    noise: np.ndarray  # (annotators, points, classes, classes)
    common: np.ndarray  # (points, classes, classes)
    left_out: np.ndarray  # (labels, classes): belief about the step of each label without its annotator
    weights: tuple[float, ...]  # of the chain, the votes and the evidence in `another`
    chosen: Candidate
    tried: dict[Candidate, float]  # mean log-probability of a label given those of the other annotators


def fit_annotators(
    crowd: Crowd,
    candidates: Sequence[Candidate] | None = None,
    progress: Callable[[int, int, Candidate], None] = lambda *_: None,
) -> Annotators:
    """Fit each annotator's Q(t), and give the belief in every true label.

    `progress` is told how many forms of the model are fitted, how many there will be, and which is next.
    """
    shared = crowd.shared()
    comparable = bool(shared.any())
    power = 0.0 if crowd.evidence is None else POWERS[1]
    best = candidates[0] if candidates else Candidate(not comparable, power=power)
    n_forms = len(candidates or ()) or 1
    if candidates is None and comparable:
        n_forms = 2 + (crowd.evidence is not None) * (len(POWERS) - 1) + (len(crowd.grid) > 1) * len(BANDWIDTHS)
    scores: dict[Candidate, np.ndarray] = {}
    hits: dict[Candidate, np.ndarray] = {}
    fits: dict[bool, tuple[Candidate, _Fit]] = {}  # the best with and without memory

    def attempt(option: Candidate) -> _Fit:
        progress(len(scores), n_forms, option)
        fit = _fit(crowd, option, fits[option.sequential][1].posterior if option.sequential in fits else None)
        score = np.zeros(len(crowd.label))  # log-probability of each label given those of the other annotators
        for some in _slices(len(score) * comparable, crowd.n_classes):
            emission = fit.noise[crowd.annotator[some], crowd.point[some], :, crowd.label[some]]
            score[some] = np.log((fit.left_out[some] * emission).sum(-1).clip(1e-12))
        scores[option], hits[option] = score[shared], (fit.left_out.argmax(1) == crowd.label)[shared] * 1.0
        return fit

    fits[best.sequential] = best, attempt(best)

    def improve(options: Sequence[Candidate], worth: float, *criteria: dict[Candidate, np.ndarray]) -> None:
        """Replace the best form by one that gains so many standard errors by a criterion, and loses as many by none."""
        nonlocal best
        for option in options:
            fit, gains = attempt(option), []
            for criterion in criteria:
                of_row = np.bincount(crowd.row[shared], criterion[option] - criterion[best], minlength=len(crowd.mask))
                gains.append(of_row.sum() / np.sqrt(np.square(of_row).sum().clip(1e-12)))
            is_better = max(gains) > worth and min(gains) > -worth
            if is_better or option.sequential not in fits:
                fits[option.sequential] = option, fit
            best = option if is_better else best

    if candidates is not None:
        improve(candidates[1:], 0.0, scores)
    elif comparable:
        # The hidden state of a chain may predict annotators without being what they label. The Q of two annotators is
        # identified by persistence alone.
        two = crowd.n_annotators == 2
        improve([best._replace(sequential=True)], 2.0, *([hits] if two else [scores, hits]))
        if crowd.evidence is not None:
            improve([best._replace(power=power) for power in POWERS if power != best.power], 0.0, scores)
        if len(crowd.grid) > 1 and (best.sequential or not two):
            improve([best._replace(bandwidth=width) for width in BANDWIDTHS], 1.0, scores, hits)
    tried = {candidate: float(score.mean()) for candidate, score in scores.items() if comparable}
    chosen = stacked = fits[best.sequential][1]
    if len(fits) > 1:
        form, rival = fits[not best.sequential]
        weight = mixture_weight(np.exp(scores[best]), np.exp(scores[form]))
        stacked = _Fit(*(weight * mine + (1 - weight) * other for mine, other in zip(chosen, rival, strict=True)))
        fits.clear()
        del rival
    return _conclude(crowd, chosen, stacked, shared, best, tried)


def _slices(length: int, width: int) -> list[slice]:
    """Parts of so many items that hold at most `MAX_NUMBERS` numbers each."""
    size = max(1, MAX_NUMBERS // width)
    return [slice(begin, min(begin + size, length)) for begin in range(0, length, size)]


class _Fit(NamedTuple):
    posterior: np.ndarray  # float32 (rows, steps, classes), zero on padding
    left_out: np.ndarray  # float32 (labels, classes), posterior without the label's annotator in its row
    noise: np.ndarray  # (annotators, points, classes, classes)
    common: np.ndarray  # (points, classes, classes)


def _fit(crowd: Crowd, candidate: Candidate, posterior: np.ndarray | None) -> _Fit:
    """EM from the shares of votes, or from a posterior.

    What has a number for each step and class is in single precision, and computed for some rows after others.
    """
    n_classes, (n_rows, n_steps) = crowd.n_classes, crowd.mask.shape
    last = crowd.last if candidate.sequential else np.full_like(crowd.last, n_classes)
    # A group is an annotator, a last label and a point of the clock; a cell is a group and a recorded label.
    keys = (crowd.annotator * (n_classes + 1) + last) * len(crowd.grid) + crowd.point
    groups, group = np.unique(keys, return_inverse=True)
    cells, cell = np.unique(group * n_classes + crowd.label, return_inverse=True)
    by_step = sparse.csr_matrix((np.ones(len(cell)), (crowd.flat_step(), cell)), (crowd.mask.size, len(cells)))
    owner, before = np.divmod(groups // len(crowd.grid), n_classes + 1)
    moment, cell_group, cell_label = groups % len(crowd.grid), *np.divmod(cells, n_classes)
    other = np.zeros((1, 1, n_classes))
    if crowd.evidence is not None and candidate.power:
        other = candidate.power * (crowd.evidence - np.log(np.exp(crowd.evidence)[crowd.mask].mean(0).clip(1e-6)))
    if crowd.trusted is not None:
        known = crowd.trusted[..., None]
        other = np.where((known >= 0) & (known != np.arange(n_classes)), -50.0, other)
    other = np.broadcast_to(other, (*crowd.mask.shape, n_classes))
    iterations = MORE_ITERATIONS
    if posterior is None:
        iterations, votes = FIRST_ITERATIONS, crowd.votes()
        share = votes.sum(0, dtype=np.float64) / votes.sum(dtype=np.float64)
        start = votes.reshape(other.shape) + 0.01 * share.astype(np.float32)
        start *= np.exp(other) * crowd.mask[..., None]
        posterior = start / start.sum(-1, keepdims=True).clip(1e-30)
    else:
        posterior = posterior.copy()
    parts = [
        (rows, by_step[rows.start * n_steps : rows.stop * n_steps]) for rows in _slices(n_rows, n_steps * n_classes)
    ]
    pairs = np.tensordot(posterior[:, :-1], posterior[:, 1:], ((0, 1), (0, 1))).astype(np.float64)
    starts = posterior[:, 0].sum(0, dtype=np.float64)
    table, noise, common, first, transition = (np.zeros(0) for _ in range(5))

    def expect_rows(rows: slice | np.ndarray, emission: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        emission = emission.reshape(-1, n_steps, n_classes) + other[rows]
        gaps = None if crowd.gaps is None else crowd.gaps[rows]
        return _forward_backward(emission, crowd.mask[rows], first, transition, gaps)

    for _ in range(iterations):
        counts = sum(matrix.T @ posterior[rows].reshape(-1, n_classes) for rows, matrix in parts)  # (cells, true)
        noise, common, table = _tables(crowd, candidate, counts, (owner, before, moment), cell_group, cell_label)
        share = posterior.sum((0, 1), dtype=np.float64)
        first = share = share / share.sum()
        if candidate.sequential:
            transition = (pairs + share) / (pairs.sum(1, keepdims=True) + 1)
            first = (starts + share) / (starts.sum() + 1)
        pairs, starts = np.zeros_like(pairs), np.zeros_like(starts)
        for rows, matrix in parts:
            posterior[rows], of_starts, of_pairs = expect_rows(rows, matrix @ table)
            pairs, starts = pairs + of_pairs, starts + of_starts
    left_out = np.empty((len(cell), n_classes), np.float32)
    if not candidate.sequential:
        at, flat, log_share = crowd.flat_step(), other.reshape(-1, n_classes), np.log(first.clip(1e-30))
        for some in _slices(len(cell), n_classes):
            left_out[some] = softmax(by_step[at[some]] @ table - table[cell[some]] + flat[at[some]] + log_share, -1)
        return _Fit(posterior, left_out, noise, common)
    pair, inverse = np.unique(crowd.row * crowd.n_annotators + crowd.annotator, return_inverse=True)
    order = np.argsort(inverse, kind="stable")
    for part in _slices(len(pair), n_steps * n_classes):
        of_part = order[slice(*np.searchsorted(inverse[order], [part.start, part.stop]))]
        these = pair[part] // crowd.n_annotators
        emission = by_step[(these[:, None] * n_steps + np.arange(n_steps)).ravel()] @ table
        at = (inverse[of_part] - part.start) * n_steps + crowd.step[of_part]
        emission[at] -= table[cell[of_part]]
        left_out[of_part] = expect_rows(these, emission)[0].reshape(-1, n_classes)[at]
    return _Fit(posterior, left_out, noise, common)


def _tables(
    crowd: Crowd,
    candidate: Candidate,
    counts: np.ndarray,
    group: tuple[np.ndarray, np.ndarray, np.ndarray],
    cell_group: np.ndarray,
    cell_label: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """M-step from counts (cells, true): each annotator's Q(t), the common Q(t), and log-probabilities of the cells.

    A row of Q is the mean of its Dirichlet posterior. The common Q is the prior mean of an annotator's, which is that
    of Q given the last label.
    """
    owner, before, moment = group
    n_classes, n_points, n_annotators = crowd.n_classes, len(crowd.grid), crowd.n_annotators
    own = np.zeros((n_annotators, n_points, n_classes, n_classes))  # [annotator, point, recorded, true]
    np.add.at(own, (owner[cell_group], moment[cell_group], cell_label), counts)
    own = own.swapaxes(-1, -2)  # [annotator, point, true, recorded]
    total = own.sum((0, 1))
    marginal = total.sum(0) / total.sum()
    prior = COMMON_LABELS * (np.eye(n_classes) + marginal) / 2
    alike = (total + prior) / (total.sum(1, keepdims=True) + COMMON_LABELS)
    each = own.sum(1)
    each = (each + OWN_LABELS * alike) / (each.sum(-1, keepdims=True) + OWN_LABELS)
    if candidate.bandwidth is None:
        noise, common = each[:, None].repeat(n_points, 1), alike[None].repeat(n_points, 0)
    else:
        apart, whole = np.abs(np.subtract.outer(crowd.grid, crowd.grid)), np.ptp(crowd.grid)
        if crowd.period is not None:
            apart, whole = np.minimum(apart, crowd.period - apart), crowd.period
        apart = apart / whole
        kernel = np.exp(-0.5 * np.square(apart / candidate.bandwidth))
        near = np.einsum("st,atij->asij", kernel, own)
        noise = (near + OWN_LABELS * each[:, None]) / (near.sum(-1, keepdims=True) + OWN_LABELS)
        near = near.sum(0)
        common = (near + OWN_LABELS * alike) / (near.sum(-1, keepdims=True) + OWN_LABELS)
    if not candidate.sequential:
        return noise, common, np.log(noise[owner[cell_group], moment[cell_group], :, cell_label])
    # Q given the last label, (annotator and last label, true, recorded), then scaled by how Q differs at this moment.
    kinds, kind = np.unique(owner * (n_classes + 1) + before, return_inverse=True)
    after = np.zeros((len(kinds), n_classes, n_classes))
    np.add.at(after, (kind[cell_group], cell_label), counts)
    after = after.swapaxes(-1, -2)
    mean = each[kinds // (n_classes + 1)]
    after = (after + LAST_LABELS * mean) / (after.sum(-1, keepdims=True) + LAST_LABELS)
    if candidate.bandwidth is None:
        return noise, common, np.log(after[kind[cell_group], :, cell_label])
    table = np.empty((len(cell_group), n_classes))
    for some in _slices(len(owner), n_classes**2):
        values = after[kind[some]] * noise[owner[some], moment[some]] / each[owner[some]]
        values /= values.sum(-1, keepdims=True)
        inside = slice(*np.searchsorted(cell_group, [some.start, some.stop]))
        table[inside] = np.log(values[cell_group[inside] - some.start, :, cell_label[inside]])
    return noise, common, table


def _forward_backward(
    log_emission: np.ndarray, mask: np.ndarray, start: np.ndarray, transition: np.ndarray, gaps: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Posterior (rows, steps, classes), expected first labels and transitions, for any emission probabilities.

    Without transitions steps are independent.
    """
    rows, steps, n_classes = log_emission.shape
    if not transition.size:
        return softmax(log_emission + np.log(start.clip(1e-30)), -1) * mask[..., None], np.zeros(n_classes), np.zeros(1)
    # Step s is label s mod K at point s // K of the grid, so that the columns of Q are the emissions of the steps.
    number = np.arange(rows * steps)
    n_points = -(-len(number) // n_classes)
    columns = np.ones((n_points * n_classes, n_classes), dtype=np.float32)
    columns[: len(number)] = np.exp(log_emission - log_emission.max(-1, keepdims=True)).reshape(-1, n_classes)
    matrices = np.ascontiguousarray(columns.reshape(n_points, n_classes, n_classes).swapaxes(-1, -2))
    data = ChainData(
        labels=torch.from_numpy((number % n_classes).astype(np.int8).reshape(1, rows, steps, 1)),
        mask=torch.from_numpy(mask),
        points=torch.from_numpy((number // n_classes).reshape(rows, steps)),
        n_points=n_points,
        n_classes=n_classes,
    ).with_gaps(gaps)
    first, moves = (torch.from_numpy(values).float()[None] for values in (start, transition))
    parameters = ChainParameters(first, moves, torch.zeros(1), torch.from_numpy(matrices)[None, None])
    found = expect(data, same_data(torch.ones(1, rows)), parameters, posterior=True)
    assert found.posterior is not None
    return found.posterior[0].numpy(), found.starts[0, 0].double().numpy(), found.pairs[0, 0].double().numpy()


def _conclude(
    crowd: Crowd, fit: _Fit, stacked: _Fit, shared: np.ndarray, chosen: Candidate, tried: dict[Candidate, float]
) -> Annotators:
    """Pool the model with the votes, with the weights that best predict each annotator from the others.

    What another annotator records is predicted by a stack of the best forms with and without memory (Yao and others
    2018). The belief is that of the chosen form alone.
    """
    n_classes, shape, at = crowd.n_classes, fit.posterior.shape, crowd.flat_step()
    point = np.zeros(crowd.mask.size, dtype=np.int64)
    point[at] = crowd.point
    posterior = fit.posterior.reshape(-1, n_classes)
    expected = _expected(stacked.posterior.reshape(-1, n_classes), stacked.common, point)
    vote_share = crowd.votes()
    several, unlabelled = vote_share.sum(1) > 1, vote_share.sum(1) == 0
    vote_share += votes_prior(torch.from_numpy(vote_share[several]).double(), n_classes).numpy().astype(np.float32)
    rest_share = vote_share[at]
    rest_share[np.arange(len(at)), crowd.label] -= 1
    rest_share /= rest_share.sum(1, keepdims=True)
    vote_share /= vote_share.sum(1, keepdims=True)
    weights, chain_weight = torch.tensor(EQUAL, dtype=torch.float64), 1.0
    others = [] if crowd.evidence is None else [np.exp(crowd.evidence).reshape(-1, n_classes)]
    if shared.any():
        numbers = np.flatnonzero(shared)
        steps, label = at[numbers], crowd.label[numbers]
        few = numbers[:: len(numbers) // MAX_LABELS + 1]
        by_others = _expected(stacked.left_out[few], stacked.common, crowd.point[few])
        opinions = map(torch.from_numpy, (by_others, rest_share[few], *(other[at[few]] for other in others)))
        weights = fit_weights(stack_opinions(*opinions), torch.from_numpy(crowd.label[few]))
        totals, by_chain = np.zeros_like(posterior), np.empty(len(numbers))
        for part in _slices(len(numbers), n_classes):
            opinion = _expected(stacked.left_out[numbers[part]], stacked.common, crowd.point[numbers[part]])
            by_chain[part] = opinion[np.arange(len(opinion)), label[part]]
            of_step, first = np.unique(steps[part], return_index=True)  # labels are ordered by step
            totals[of_step] += np.add.reduceat(opinion, first)
        of_step, n_shared = np.unique(steps, return_counts=True)
        expected[of_step] = totals[of_step] / n_shared[:, None].astype(np.float32)
        # Linear opinion pool (Stone 1961): the weight of the chain is that of a mixture which predicts left-out labels.
        chain_weight = mixture_weight(by_chain, rest_share[numbers, label].astype(np.float64))
        chain_weight = min(max(chain_weight, MIN_CHAIN), MAX_CHAIN)
    another = np.empty_like(posterior)
    for some in _slices(len(posterior), n_classes):
        parts = (torch.from_numpy(opinion[some]) for opinion in (expected, vote_share, *others))
        another[some] = pool_opinions(weights, stack_opinions(*parts)).numpy()
    if crowd.trusted is not None:
        unlabelled |= crowd.trusted.ravel() >= 0
    vote_share += chain_weight * (posterior - vote_share)
    vote_share[unlabelled] = posterior[unlabelled]
    rest_share += chain_weight * (fit.left_out - rest_share)
    return Annotators(
        vote_share.reshape(shape),
        another.reshape(shape),
        fit.noise,
        fit.common,
        rest_share,
        tuple(weights.tolist()),
        chosen,
        tried,
    )


def mixture_weight(first: np.ndarray, second: np.ndarray) -> float:
    """The weight of the first of two densities in the mixture of highest likelihood, by EM."""
    weight = 0.5
    for _ in range(100):
        weight = float(np.mean(weight * first / (weight * first + (1 - weight) * second)))
    return weight


def _expected(belief: np.ndarray, common: np.ndarray, point: np.ndarray) -> np.ndarray:
    """Probability of each label of an annotator without labels: beliefs (steps, classes) times Q at each point."""
    result, common = np.empty_like(belief), common.astype(belief.dtype)
    if len(common) == 1 or bool((common == common[0]).all()):
        return belief @ common[0]
    for number in np.unique(point):
        result[point == number] = belief[point == number] @ common[number]
    return result


# Logarithmic opinion pool (Genest and Zidek 1986) of the chain's prediction and the annotators' votes.
#
# Annotators err together on hard steps (item difficulty, Whitehill and others 2009), so the chain's posterior is too
# sure. Weights of the pool :math:`p_j \propto \prod_k p_{kj}^{w_k}` are those that best predict an annotator who was
# left out. The chain's opinion is the mean over the chains that each leave out one annotator, which is what the weights
# were fitted to (docs/decisions/010-opinion-pool.md).

MIN_CHAIN, MAX_CHAIN = 0.5, 0.7  # by hand: weight of the chain in the belief; either alone is too sure
EQUAL = (0.5, 0.5)  # by hand: weights of the chain and of the votes where nothing can be compared
VOTE_PRIOR = 0.5  # votes added to every class (Krichevsky and Trofimov 1981) where annotators cannot be compared
MIN_VOTES = 1e-3  # added to every class in any case
MIN_KAPPA, MAX_KAPPA = 0.02, 0.98
MIN_PROBABILITY = 1e-6  # probabilities are clipped here
PRIOR_LABELS = 10.0  # by hand: labels that the starting weights count for
MAX_LABELS = 2**16  # from which weights are fitted
NEWTON_STEPS = 30
TOLERANCE = 1e-5


def count_votes(labels: Tensor, n_classes: int) -> Tensor:
    """How many annotators gave each label: (..., annotators), -1 for none, to (..., classes)."""
    return (labels[..., None] == torch.arange(n_classes, device=labels.device)).double().sum(-2)


def votes_prior(votes: Tensor, n_classes: int) -> Tensor:
    r"""The parameters :math:`\alpha` of a Dirichlet-multinomial distribution of votes, (steps, classes).

    Fleiss' kappa (1971) estimates its intraclass correlation :math:`1 / (1 + \sum_j \alpha_j)`.
    """
    raters = votes.sum(-1)
    votes, raters = votes[raters > 1], raters[raters > 1]
    if not len(votes):
        return torch.full((n_classes,), VOTE_PRIOR, dtype=torch.float64)
    shares = (votes / raters[:, None]).mean(0)
    agreement = ((votes * (votes - 1)).sum(-1) / (raters * (raters - 1))).mean()
    chance = shares.square().sum().clamp_max(1 - 1e-9)
    kappa = ((agreement - chance) / (1 - chance)).clamp(MIN_KAPPA, MAX_KAPPA)
    return shares * (1 - kappa) / kappa + MIN_VOTES


def vote_shares(labels: Tensor, prior: Tensor) -> Tensor:
    """Shares of the votes of each class, to which a prior (classes,) is added: (..., annotators) to (..., classes)."""
    votes = count_votes(labels, len(prior)) + prior
    return votes / votes.sum(-1, keepdim=True)


def shared_labels(labels: Tensor, mask: Tensor) -> Tensor:
    """Labels at steps that have labels of other annotators, too: bool (rows, steps, annotators)."""
    recorded = (labels >= 0) & mask[..., None]
    return recorded & (recorded.sum(-1, keepdim=True) > 1)


def left_out_opinions(
    labels: Tensor, shared: Tensor, left_out: Tensor, prior: Tensor, others: Sequence[Tensor] = ()
) -> tuple[Tensor, Tensor]:
    """Log-probabilities (labels, opinions, classes) of each label from the other annotators, and the label itself.

    `left_out` has shape (annotators, rows, steps, classes); `others` (rows, steps, classes) depend on no label.
    """
    opinions, wanted = [], []
    for annotator, predicted in enumerate(left_out):
        steps = shared[..., annotator]
        seen = labels[steps].clone()
        wanted.append(seen[:, annotator].long())
        seen[:, annotator] = -1
        parts = (predicted[steps], vote_shares(seen, prior), *(other[steps] for other in others))
        opinions.append(stack_opinions(*parts))
    return torch.cat(opinions), torch.cat(wanted)


def stack_opinions(*opinions: Tensor) -> Tensor:
    """Log-probabilities (..., opinions, classes) of probabilities (..., classes)."""
    return torch.stack([opinion.double().clamp_min(MIN_PROBABILITY).log() for opinion in opinions], -2)


def pool_opinions(weights: Tensor, log_probs: Tensor) -> Tensor:
    """The pooled probabilities (..., classes) of opinions (..., opinions, classes) with weights (opinions,)."""
    return torch.einsum("k,...kj->...j", weights, log_probs).softmax(-1)


def fit_weights(log_probs: Tensor, labels: Tensor, start: Tensor | None = None) -> Tensor:
    """Weights that maximise the log-likelihood of labels: a conditional logit (McFadden 1974), by Newton's method.

    The log-likelihood is concave in the weights. Negative weights are set to zero and the others fitted again.
    `start`, equal by default, is also the mean of a normal prior worth `PRIOR_LABELS`. Of many labels, every k-th is
    used.
    """
    every = slice(None, None, len(labels) // MAX_LABELS + 1)
    log_probs, labels = log_probs[every].double(), labels[every]
    n_opinions = log_probs.shape[1]
    start = torch.full((n_opinions,), 1 / n_opinions, dtype=torch.float64) if start is None else start
    prior = PRIOR_LABELS * torch.eye(n_opinions, dtype=torch.float64)
    chosen = log_probs.gather(-1, labels[:, None, None].expand(-1, n_opinions, 1))[..., 0]  # (labels, opinions)
    kept = torch.ones(n_opinions, dtype=torch.bool)
    weights = start
    while bool(kept.any()):
        weights = start * kept
        for _ in range(NEWTON_STEPS):
            probabilities = pool_opinions(weights, log_probs)
            means = torch.einsum("nj,nkj->nk", probabilities, log_probs)
            centred = log_probs - means[..., None]
            slope = (chosen - means).sum(0) - prior @ (weights - start)
            information = torch.einsum("nkj,nlj->kl", probabilities[:, None] * centred, centred) + prior
            step = torch.linalg.solve(information[kept][:, kept], slope[kept]).clamp(-1.0, 1.0)
            weights[kept] += step
            if float(step.abs().max()) < TOLERANCE:
                break
        if bool((weights >= 0).all()):
            break
        kept &= weights >= 0
    return weights.clamp_min(0.0)
