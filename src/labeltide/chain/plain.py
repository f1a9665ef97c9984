"""The forward-backward pass in torch: for GPUs, as the reference, and where nothing was compiled."""

from __future__ import annotations

import torch
from torch import Tensor

from labeltide.chain.data import ChainData, ChainParameters, Expected, Members

TINY = 1e-30


def label_likelihoods(data: ChainData, members: Members, matrices: Tensor) -> Tensor:
    """The probability of what all annotators recorded, for each true label: (members, rows, steps, classes)."""
    n_annotators = data.labels.shape[-1]
    flat = matrices.transpose(-1, -2).flatten(2, 3)  # (members, annotators or 1, points * recorded, true)
    total: Tensor | None = None
    for annotator in range(n_annotators):
        labels = data.labels[members.labels, ..., annotator].long()  # (members, rows, steps)
        index = data.places() * data.n_classes + labels.clamp_min(0)
        own = flat[:, annotator if flat.shape[1] > 1 else 0]
        seen = own[torch.arange(len(own), device=own.device)[:, None, None], index]
        seen = torch.where((labels >= 0)[..., None], seen, 1.0)
        total = seen if total is None else total * seen
    assert total is not None
    if data.trusted is not None:
        known = torch.nn.functional.one_hot(data.trusted.long().clamp_min(0), data.n_classes).to(total)
        total = torch.where((data.trusted >= 0)[..., None], total * known, total)
    return total.clamp_min(TINY)


def plain_pass(data: ChainData, members: Members, parameters: ChainParameters, *, posterior: bool = False) -> Expected:
    """One forward and one backward run over all sequences of all members; see `expect`."""
    start, transition, power, matrices = parameters
    likelihood = label_likelihoods(data, members, matrices)
    m, rows, steps, classes = likelihood.shape
    if data.evidence is None:
        evidence = likelihood.new_zeros(1, rows, steps, classes).expand(m, -1, -1, -1)
    else:
        evidence = data.evidence[members.evidence]
    scaled = power[:, None, None, None] * evidence
    ratio = (scaled - scaled.amax(-1, keepdim=True)).exp()  # (members, rows, steps, classes)
    real = data.mask.to(likelihood)  # (rows, steps)
    filtered: list[Tensor] = []
    moves: list[Tensor] = []
    scales: list[Tensor] = []
    state = start[:, None] * ratio[:, :, 0]
    state = state / state.sum(-1, keepdim=True).clamp_min(TINY)
    first = state
    for t in range(steps):
        if t:
            move = transition[:, None] * ratio[:, :, t, None]  # (members, rows, from, to)
            move = move / move.sum(-1, keepdim=True).clamp_min(TINY)
            moves.append(move)
            state = (filtered[-1][..., None] * move).sum(-2)
        joint = state * likelihood[:, :, t]
        scale = joint.sum(-1, keepdim=True).clamp_min(TINY)
        filtered.append(joint / scale)
        scales.append(scale)
    log_likelihood = (torch.stack(scales, 2)[..., 0].log() * real).sum(-1)
    back = torch.ones_like(state)
    smoothed = [torch.empty(0)] * steps
    weights = members.weights[..., None]  # (members, rows, 1)
    pairs, exposure = torch.zeros_like(transition), torch.zeros_like(transition)
    slope, curvature = torch.zeros_like(power), torch.zeros_like(power)
    for t in range(steps - 1, -1, -1):
        smoothed[t] = filtered[t] * back * real[:, t, None]
        if not t:
            break
        counted = weights * real[:, t, None]
        ahead = likelihood[:, :, t] * back / scales[t]  # (members, rows, to)
        both = filtered[t - 1][..., None] * moves[t - 1] * ahead[..., None, :]  # (members, rows, from, to)
        before = both.sum(-1) * counted  # (members, rows, from)
        pairs += (both * counted[..., None]).sum(1)
        # One step of this exposure per unit of weight in A: r_tj / Z_t(i) = T_t(i, j) / A_ij.
        exposure += (before[..., None] * moves[t - 1]).sum(1)
        e = evidence[:, :, t]
        average = (moves[t - 1] * e[..., None, :]).sum(-1)  # (members, rows, from)
        spread = (moves[t - 1] * (e[..., None, :] - average[..., None]).square()).sum(-1)
        slope += ((both * counted[..., None]).sum(-2) * e).sum((1, 2)) - (before * average).sum((1, 2))
        curvature += (before * spread).sum((1, 2))
        back = torch.where(real[:, t, None] > 0, (moves[t - 1] * ahead[..., None, :]).sum(-1), back)
    gamma = torch.stack(smoothed, 2)  # (members, rows, steps, classes)
    first_counts = (gamma[:, :, 0] * weights).sum(1)
    started = data.mask[:, 0].to(weights) * members.weights
    first_exposure = (first * started[..., None]).sum(1) / start.clamp_min(TINY)
    e = evidence[:, :, 0]
    average = (first * e).sum(-1)
    slope += (((gamma[:, :, 0] - first) * e).sum(-1) * started).sum(1)
    curvature += ((first * (e - average[..., None]).square()).sum(-1) * started).sum(1)
    return Expected(
        log_likelihood,
        _counts(data, members, gamma * weights[..., None], matrices.shape[1]),
        torch.stack([first_counts, first_exposure], 1),
        torch.stack([pairs, exposure / transition.clamp_min(TINY)], 1),
        torch.stack([slope, curvature], 1),
        gamma if posterior else None,
    )


def _counts(data: ChainData, members: Members, weighted: Tensor, groups: int) -> Tensor:
    """How often each true label was recorded as each, at every moment: (members, groups, points, true, recorded)."""
    m, _, _, classes = weighted.shape
    n_annotators = data.labels.shape[-1]
    if data.points is None:
        recorded = torch.arange(classes, device=weighted.device)
        seen = (data.labels[members.labels].unsqueeze(-1) == recorded).to(weighted)  # (..., annotators, classes)
        by_annotator = torch.einsum("mnti,mntaj->matij", weighted, seen)
        return by_annotator if groups > 1 else by_annotator.sum(1, keepdim=True)
    out = weighted.new_zeros(m, groups, data.n_points * (classes + 1), classes)
    index = torch.arange(m, device=weighted.device)[:, None, None]
    for annotator in range(n_annotators):
        labels = data.labels[members.labels, ..., annotator].long()
        place = data.points * (classes + 1) + torch.where(labels < 0, classes, labels)  # (members, rows, steps)
        out[:, annotator if groups > 1 else 0].index_put_((index.expand_as(place), place), weighted, accumulate=True)
    return out.unflatten(2, (data.n_points, classes + 1))[..., :classes, :].transpose(-1, -2)
