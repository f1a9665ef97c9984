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


def pair_likelihoods(
    data: ChainData, members: Members, matrices: Tensor, bursts: Tensor, t: int
) -> tuple[Tensor, Tensor]:
    """The probability of the labels of one step, for each true label before and now, and how much of it was kept.

    The draw behind a label is kept from the step before with some probability. An error then goes on as far as the
    rates of both moments allow, so that every moment keeps its own Q. Shapes (members, rows, from, to).
    """
    m, rows, classes = len(matrices), len(data.mask), data.n_classes
    total, kept = matrices.new_ones(m, rows, classes, classes), matrices.new_zeros(m, rows, classes, classes)
    names = torch.arange(classes, device=matrices.device)
    rho, places = bursts[:, None, None, None], data.places()
    for annotator in range(data.labels.shape[-1]):
        own = matrices[:, annotator if matrices.shape[1] > 1 else 0]  # (members, points, true, recorded)
        here, there = own[:, places[:, t]], own[:, places[:, t - 1]]  # (members, rows, true, recorded)
        now, before = (data.labels[members.labels, :, step, annotator].long() for step in (t, t - 1))
        index = now.clamp_min(0)[..., None, None].expand(-1, -1, classes, 1)
        q = here.gather(-1, index)[..., 0][:, :, None]  # (members, rows, 1, to)
        error = 1 - here.diagonal(dim1=-2, dim2=-1)[:, :, None]  # (members, rows, 1, to)
        earlier = 1 - there.diagonal(dim1=-2, dim2=-1)[..., None]  # (members, rows, from, 1)
        was_wrong = (before[..., None] != names)[..., None]  # (members, rows, from, 1)
        is_right = (now[..., None] == names)[:, :, None]  # (members, rows, 1, to)
        again = torch.where(
            was_wrong, error / earlier.clamp_min(1e-6), (error - earlier) / (1 - earlier).clamp_min(1e-6)
        ).clamp(0, 1)
        same = rho * torch.where(is_right, 1 - again, again * q / error.clamp_min(1e-6))
        mixed = (1 - rho) * q + same
        linked = ((now >= 0) & (before >= 0))[..., None, None]
        alone = torch.where((now >= 0)[..., None, None], q, 1.0)
        total = total * torch.where(linked, mixed, alone)
        kept = kept + torch.where(linked, same / mixed.clamp_min(TINY), 0.0)
    if data.trusted is not None:
        known = data.trusted[:, t].long()
        wrong = ((known >= 0)[:, None] & (known[:, None] != names))[:, None]  # (rows, 1, to)
        total = total.masked_fill(wrong, 0.0)
    return total.clamp_min(TINY), kept


def plain_pass(data: ChainData, members: Members, parameters: ChainParameters, *, posterior: bool = False) -> Expected:
    """One forward and one backward run over all sequences of all members; see `expect`."""
    start, transition, power, matrices, bursts = parameters
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
    links: list[tuple[Tensor, Tensor]] = []  # the likelihood of each pair of labels, and the share that was kept
    state = start[:, None] * ratio[:, :, 0]
    state = state / state.sum(-1, keepdim=True).clamp_min(TINY)
    first = state
    for t in range(steps):
        if t:
            move = transition[:, None] * ratio[:, :, t, None]  # (members, rows, from, to)
            move = move / move.sum(-1, keepdim=True).clamp_min(TINY)
            moves.append(move)
            if bursts is None:
                links.append((likelihood[:, :, t, None], torch.zeros_like(power)))
            else:
                links.append(pair_likelihoods(data, members, matrices, bursts, t))
        joint = (filtered[-1][..., None] * moves[-1] * links[-1][0]).sum(-2) if t else state * likelihood[:, :, 0]
        scale = joint.sum(-1, keepdim=True).clamp_min(TINY)
        filtered.append(joint / scale)
        scales.append(scale)
    log_likelihood = (torch.stack(scales, 2)[..., 0].log() * real).sum(-1)
    back = torch.ones_like(state)
    smoothed = [torch.empty(0)] * steps
    weights = members.weights[..., None]  # (members, rows, 1)
    pairs, exposure = torch.zeros_like(transition), torch.zeros_like(transition)
    slope, curvature, kept = (torch.zeros_like(power) for _ in range(3))
    for t in range(steps - 1, -1, -1):
        smoothed[t] = filtered[t] * back * real[:, t, None]
        if not t:
            break
        counted = weights * real[:, t, None]
        ahead = links[t - 1][0] * (back / scales[t])[..., None, :]  # (members, rows, from, to)
        both = filtered[t - 1][..., None] * moves[t - 1] * ahead
        if bursts is not None:
            kept += (both * links[t - 1][1] * counted[..., None]).sum((1, 2, 3))
        before = both.sum(-1) * counted  # (members, rows, from)
        pairs += (both * counted[..., None]).sum(1)
        # One step of this exposure per unit of weight in A: r_tj / Z_t(i) = T_t(i, j) / A_ij.
        exposure += (before[..., None] * moves[t - 1]).sum(1)
        e = evidence[:, :, t]
        average = (moves[t - 1] * e[..., None, :]).sum(-1)  # (members, rows, from)
        spread = (moves[t - 1] * (e[..., None, :] - average[..., None]).square()).sum(-1)
        slope += ((both * counted[..., None]).sum(-2) * e).sum((1, 2)) - (before * average).sum((1, 2))
        curvature += (before * spread).sum((1, 2))
        back = torch.where(real[:, t, None] > 0, (moves[t - 1] * ahead).sum(-1), back)
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
        kept,
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
