"""Chains to begin with: from the labels alone, then with evidence."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from labeltide._clock import Period
from labeltide.chain.data import ChainData, ChainParameters, Members, cat_parameters
from labeltide.chain.em import fit_chains
from labeltide.chain.families import family, pooled, spline_shape
from labeltide.chain.foretell import judge_rows
from labeltide.chain.logit import Families
from labeltide.chain.passes import expect
from labeltide.chain.pooled import families_of

SMOOTHNESS = 10.0
POOLING = 1.0  # of annotators with a Q of their own: logits differ by about one between them
STAY, RIGHT = 0.8, 0.75  # where EM starts: how often true labels stay, and how often recorded ones are right
LABEL_ITERATIONS, ITERATIONS = 60, 40
BURSTS = 0.3  # where EM starts if errors come in bursts
BURSTS_WORTH = 5.0  # what one more parameter must add to the log-likelihood of thousands of labels


class Joined(NamedTuple):
    """Chains that have met the evidence."""

    parameters: ChainParameters
    log_likelihood: Tensor  # (jobs,), of recorded labels, as `judge_rows` has it


def flat_chain(members: int, groups: int, data: ChainData, stay: float | None = None) -> ChainParameters:
    """Chains that know nothing: equal rows of A, or some persistence; the same moderate noise at all times."""
    classes, device = data.n_classes, data.mask.device
    matrices = _mostly(classes, RIGHT, device).expand(members, groups, data.n_points, -1, -1).clone()
    transition = _mostly(classes, 1 / classes if stay is None else stay, device)
    start = torch.full((members, classes), 1 / classes, device=device)
    power = torch.full((members,), 0.0 if data.evidence is None else 1.0, device=device)
    return ChainParameters(start, transition.expand(members, -1, -1).clone(), power, matrices)


def label_chain(
    data: ChainData, jobs: Members, grid: np.ndarray, period: Period = None, groups: int = 1
) -> ChainParameters:
    """Learn persistence and Q(t) from the recorded labels alone, of all annotators or of each (`groups` of them).

    Without features classes could swap their names; they are put so that recorded labels are mostly right.
    """
    labels_only = data.with_evidence(None)
    kinds = _spline(data, len(jobs.labels), 1, grid, period)
    start = flat_chain(len(jobs.labels), 1, labels_only, STAY)
    fitted = fit_chains(labels_only, jobs, kinds, start, iterations=LABEL_ITERATIONS)
    named = _name_states(fitted.parameters, expect(labels_only, jobs, fitted.parameters).counts)
    return named if groups == 1 else tell_apart(labels_only, jobs, named, grid, period)


def tell_apart(
    data: ChainData, jobs: Members, alike: ChainParameters, grid: np.ndarray, period: Period = None
) -> ChainParameters:
    """Give each annotator an own Q: the likelier of two chains, begun with all alike or with the others' votes.

    Both keep an annotator's classes from swapping their names.
    """
    n_jobs, groups = len(jobs.labels), data.labels.shape[-1]
    alike = alike._replace(matrices=alike.matrices.expand(-1, groups, -1, -1, -1))
    both = Members(*(torch.cat([tensor] * 2) for tensor in jobs))
    starts = cat_parameters([alike, _from_votes(data, jobs, alike)])
    kinds, learn = _spline(data, 2 * n_jobs, groups, grid, period), data.evidence is not None
    fitted = fit_chains(data, both, kinds, starts, iterations=ITERATIONS, learn_power=learn)
    reached = (fitted.log_likelihood * both.weights).sum(1).view(2, n_jobs)
    return fitted.parameters.take(reached.argmax(0) * n_jobs + torch.arange(n_jobs, device=reached.device))


def join_evidence(
    data: ChainData, jobs: Members, start: ChainParameters, grid: np.ndarray, period: Period = None
) -> Joined:
    """Learn the nested chain from several starts and keep the one under which labels are likeliest (`judge_rows`).

    The starts are the given chain and one that knows nothing, each without bursts of errors and with them; bursts
    must be worth `BURSTS_WORTH`.
    """
    n_jobs = len(jobs.labels)
    kinds = _spline(data, 4 * n_jobs, start.matrices.shape[1], grid, period)
    given = start._replace(power=torch.ones_like(start.power), bursts=torch.zeros_like(start.power))
    flat = flat_chain(n_jobs, start.matrices.shape[1], data)._replace(bursts=torch.zeros_like(start.power))
    bursty = [one._replace(bursts=torch.full_like(start.power, BURSTS)) for one in (given, flat)]
    four = Members(*(torch.cat([tensor] * 4) for tensor in jobs))
    starts = cat_parameters([given, flat, *bursty])
    fitted = fit_chains(data, four, kinds, starts, iterations=ITERATIONS, learn_power=True)
    judged = judge_rows(data, four, fitted.parameters, fitted.log_likelihood, four.weights > 0)
    reached = (judged * four.weights).sum(1).view(4, n_jobs)
    reached[2:] -= BURSTS_WORTH
    best = reached.argmax(0) * n_jobs + torch.arange(n_jobs, device=reached.device)
    return Joined(fitted.parameters.take(best), judged[best].sum(1))


def _spline(data: ChainData, members: int, groups: int, grid: np.ndarray, period: Period) -> Families:
    kind = family(data.n_classes, spline_shape(grid, SMOOTHNESS, period), "each", "by class")
    return families_of([kind if groups == 1 else pooled(kind, POOLING)] * members, data.mask.device)


def _from_votes(data: ChainData, jobs: Members, other: ChainParameters) -> ChainParameters:
    """Transitions and constant Q as they would be if the most votes, or a trusted label, were the truth."""
    names = torch.arange(data.n_classes, device=data.mask.device)
    labels = data.labels[jobs.labels, ..., None]  # (jobs, rows, steps, annotators, 1)
    seen = (labels == names).float() * data.mask[..., None, None]  # (jobs, rows, steps, annotators, classes)
    votes = seen.sum(3)
    if data.trusted is not None:
        votes = torch.where((data.trusted >= 0)[..., None], (data.trusted[..., None] == names).float(), votes)
    top = ((votes == votes.amax(-1, keepdim=True)) & (votes > 0)).float()
    truth = top / top.sum(-1, keepdim=True).clamp_min(1)  # (jobs, rows, steps, classes), zero without a vote
    counts = torch.einsum("mrti,mrtaj->maij", truth, seen) + 1
    after = truth[:, :, 1:] if data.jumps is None else truth[:, :, 1:] * (data.jumps[:, 1:, None] == 0)
    pairs = torch.einsum("mrti,mrtj->mij", truth[:, :, :-1], after) + 1
    matrices = (counts / counts.sum(-1, keepdim=True))[:, :, None].expand_as(other.matrices)
    return other._replace(transition=pairs / pairs.sum(-1, keepdim=True), matrices=matrices)


def _mostly(classes: int, right: float, device: torch.device) -> Tensor:
    matrix = torch.full((classes, classes), (1 - right) / (classes - 1), device=device)
    return matrix.fill_diagonal_(right)


def _name_states(parameters: ChainParameters, counts: Tensor) -> ChainParameters:
    """Give each hidden state the name of the label that is recorded most for it, one state for each label."""
    start, transition, power, matrices, bursts = parameters
    totals = counts.sum((1, 2)).double().cpu().numpy()  # (members, state, recorded)
    shares = totals / totals.sum(-1, keepdims=True).clip(1e-12)
    order = np.stack([linear_sum_assignment(-own.T)[1] for own in shares])  # the state of each label
    index = torch.from_numpy(order).to(start.device)
    member = torch.arange(len(start), device=start.device)[:, None]
    rows = matrices.permute(0, 3, 1, 2, 4)[member, index].permute(0, 2, 3, 1, 4)
    moved = transition[member, index].mT[member, index].mT
    return ChainParameters(start[member, index], moved, power, rows.contiguous(), bursts)
