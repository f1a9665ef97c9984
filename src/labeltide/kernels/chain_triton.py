"""Forward-backward algorithm for hidden Markov models (Rabiner 1989) as Triton kernels, one program for several rows.

A program runs all steps of its rows of one member. The backward pass reads the filtered probabilities and their scales;
everything else is recomputed, so a pass moves little more than the posterior through memory. Sums are taken in a fixed
order. Without a GPU the kernels run in Triton's interpreter (``TRITON_INTERPRET=1``).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from labeltide.kernels.compiled import ChainInputs, ExpectedCounts, as_floats

MAX_TRITON_CLASSES = 16  # the matrices of a row must fit into registers
ENTRIES_PER_THREAD = 64  # of a (rows, from, to) tensor, at most


def triton_pass(inputs: ChainInputs, *, posterior: bool = False) -> ExpectedCounts:
    """Forward-backward over all sequences of all members, on a GPU; arguments and results as of `compiled_pass`."""
    _, rows, steps, annotators = inputs.labels.shape
    m, groups, points, classes = inputs.matrices.shape[:4]
    width = triton.next_power_of_2(classes)
    block = max(1, min(32, ENTRIES_PER_THREAD * 32 // width**2))  # rows that one program processes together
    blocks = triton.cdiv(rows, block)

    def new(*shape: int) -> Tensor:
        return torch.zeros(shape, device=inputs.labels.device)

    gamma, scales, log_likelihood = new(m, rows, steps, classes), new(m, rows, steps), new(m, rows)
    pairs, starts, sums = new(m, blocks, 2, classes, classes), new(m, blocks, 2, classes), new(m, blocks, 3)
    tensors = [log_likelihood if tensor is None else as_floats(tensor).contiguous() for tensor in inputs]
    outputs = (gamma, scales, log_likelihood, pairs, starts, sums)
    _both_ways[(m, blocks)](
        *tensors, *outputs, rows, steps, points, blocks, inputs.transitions.shape[1],
        CLASSES=classes, WIDTH=width, ROWS=block, ANNOTATORS=annotators, GROUPS=groups,
        EVIDENCE=inputs.evidence is not None, TRUSTED=inputs.trusted is not None, JUMPS=inputs.jumps is not None,
        BURSTS=inputs.bursts is not None, num_warps=1,
    )  # fmt: skip
    # Expected counts of recorded label by true label at every point.
    grid_index = inputs.grid_index.flatten()
    order = grid_index.argsort(stable=True)
    ends = torch.searchsorted(grid_index[order], torch.arange(points + 1, device=grid_index.device))
    counts = new(m, groups, points, classes, classes)
    _count[(m, points)](
        inputs.labels.contiguous(), order, ends, inputs.label_set, inputs.weights.float().contiguous(), gamma, counts,
        rows, steps, points, CLASSES=classes, WIDTH=width, ENTRIES=block,
        ANNOTATORS=annotators, GROUPS=groups, num_warps=1,
    )  # fmt: skip
    slope, curvature, kept = sums.sum(1).unbind(1)
    start, transition = inputs.start.clamp_min(1e-30), inputs.transitions[:, 0].clamp_min(1e-30)
    return ExpectedCounts(
        log_likelihood,
        counts,
        starts.sum(1) / torch.stack([torch.ones_like(start), start], 1),
        pairs.sum(1) / torch.stack([torch.ones_like(transition), transition], 1),
        torch.stack([slope, curvature], 1),
        kept,
        gamma if posterior else None,
    )


@triton.jit
def _both_ways(  # type: ignore[no-untyped-def]
    labels, lengths, grid_index, evidence, trusted, jumps, label_of, evidence_of, weights, start, transition, power,
    matrices, bursts, gamma, scales, log_likelihood, pairs, starts, sums, rows, steps, points, blocks, gaps,
    CLASSES: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr, ANNOTATORS: tl.constexpr, GROUPS: tl.constexpr,
    EVIDENCE: tl.constexpr, TRUSTED: tl.constexpr, JUMPS: tl.constexpr, BURSTS: tl.constexpr,
):  # fmt: skip
    member, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    row = block * ROWS + tl.arange(0, ROWS)
    i, j = tl.arange(0, WIDTH), tl.arange(0, WIDTH)
    present = row < rows
    length = tl.load(lengths + row, mask=present, other=0).to(tl.int32)
    weight = tl.load(weights + member * rows + row, mask=present, other=0.0)
    first = row.to(tl.int64) * steps  # of each row, in tables of (rows, steps)
    member_labels = labels + tl.load(label_of + member) * rows * steps * ANNOTATORS
    member_evidence = evidence
    if EVIDENCE:
        member_evidence = evidence + tl.load(evidence_of + member) * rows * steps * CLASSES
    q = matrices + member * GROUPS * points * CLASSES * CLASSES
    member_moves = transition + member * gaps * CLASSES * CLASSES
    k = tl.load(power + member)
    rho = 0.0
    if BURSTS:
        rho = tl.load(bursts + member)
    member_gamma, member_scales = gamma + member * rows * steps * CLASSES, scales + member * rows * steps

    real = length > 0
    values, ratio = evidence_at(member_evidence, first, real, j, k, CLASSES, EVIDENCE)
    begin = tl.load(start + member * CLASSES + j, mask=j < CLASSES, other=0.0)[None, :] * ratio
    begin = begin / tl.maximum(tl.sum(begin, 1), 1e-30)[:, None]
    point = tl.load(grid_index + first, mask=real, other=0)
    seen = likelihood_of(q, member_labels, first, point, trusted, real, j, points, CLASSES, ANNOTATORS, GROUPS, TRUSTED)
    joint = begin * seen
    scale = tl.maximum(tl.sum(joint, 1), 1e-30)
    state = joint / scale[:, None]
    total = tl.where(real, tl.log(scale), 0.0)
    tl.store(member_gamma + first[:, None] * CLASSES + j[None, :], state, mask=real[:, None] & (j < CLASSES)[None, :])
    tl.store(member_scales + first, scale, mask=real)
    longest = tl.max(length, 0)
    for t in range(1, longest):
        real, at = t < length, first + t
        earlier_point, point = point, tl.load(grid_index + at, mask=real, other=0)
        values, ratio = evidence_at(member_evidence, at, real, j, k, CLASSES, EVIDENCE)
        move, next_step = move_of(member_moves, jumps, at, real, i, j, ratio, CLASSES, JUMPS)
        if BURSTS:
            link, kept = links_of(
                q, member_labels, at, point, earlier_point, trusted, real, next_step, i, j, rho, points, CLASSES,
                ANNOTATORS, GROUPS, TRUSTED,
            )  # fmt: skip
        else:
            link = likelihood_of(
                q, member_labels, at, point, trusted, real, j, points, CLASSES, ANNOTATORS, GROUPS, TRUSTED
            )[:, None, :]
        joint = tl.sum(state[:, :, None] * move * link, 1)
        scale = tl.maximum(tl.sum(joint, 1), 1e-30)
        state = joint / scale[:, None]
        total += tl.where(real, tl.log(scale), 0.0)
        tl.store(member_gamma + at[:, None] * CLASSES + j[None, :], state, mask=real[:, None] & (j < CLASSES)[None, :])
        tl.store(member_scales + at, scale, mask=real)
    tl.store(log_likelihood + member * rows + row, total, mask=present)

    tl.debug_barrier()  # values stored by one thread are loaded by another
    back = tl.full((ROWS, WIDTH), 1.0, tl.float32)
    moved, exposed = tl.zeros((ROWS, WIDTH, WIDTH), tl.float32), tl.zeros((ROWS, WIDTH, WIDTH), tl.float32)
    slope, curvature, held = tl.zeros((ROWS,), tl.float32), tl.zeros((ROWS,), tl.float32), tl.zeros((ROWS,), tl.float32)
    for turn in range(1, longest):
        t = longest - turn
        real, at = t < length, first + t
        inside = real[:, None] & (j < CLASSES)[None, :]
        counted = tl.where(real, weight, 0.0)
        state = tl.load(member_gamma + at[:, None] * CLASSES + j[None, :], mask=inside, other=0.0)
        tl.store(member_gamma + at[:, None] * CLASSES + j[None, :], state * back, mask=inside)
        scale = tl.load(member_scales + at, mask=real, other=1.0)
        before_at = (at - 1)[:, None] * CLASSES + i[None, :]
        before = tl.load(member_gamma + before_at, mask=real[:, None] & (i < CLASSES)[None, :], other=0.0)
        point = tl.load(grid_index + at, mask=real, other=0)
        values, ratio = evidence_at(member_evidence, at, real, j, k, CLASSES, EVIDENCE)
        move, next_step = move_of(member_moves, jumps, at, real, i, j, ratio, CLASSES, JUMPS)
        if BURSTS:
            earlier_point = tl.load(grid_index + at - 1, mask=real, other=0)
            link, kept = links_of(
                q, member_labels, at, point, earlier_point, trusted, real, next_step, i, j, rho, points, CLASSES,
                ANNOTATORS, GROUPS, TRUSTED,
            )  # fmt: skip
            ahead = move * link * (back / scale[:, None])[:, None, :]
            both = before[:, :, None] * ahead * counted[:, None, None]
            held += tl.sum(tl.sum(both * kept, 2), 1)
        else:
            link = likelihood_of(
                q, member_labels, at, point, trusted, real, j, points, CLASSES, ANNOTATORS, GROUPS, TRUSTED
            )
            ahead = move * (link * back / scale[:, None])[:, None, :]
            both = before[:, :, None] * ahead * counted[:, None, None]
        left = tl.sum(both, 2)  # (rows, from)
        moved += both * next_step[:, None, None]
        exposed += left[:, :, None] * move * next_step[:, None, None]
        average = tl.sum(move * values[:, None, :], 2)  # (rows, from)
        apart = values[:, None, :] - average[:, :, None]
        slope += tl.sum(tl.sum(both * apart, 2), 1)
        curvature += tl.sum(left * tl.sum(move * apart * apart, 2), 1)
        back = tl.where(real[:, None], tl.sum(ahead, 2), back)

    real = length > 0
    inside = real[:, None] & (j < CLASSES)[None, :]
    counted = tl.where(real, weight, 0.0)
    state = tl.load(member_gamma + first[:, None] * CLASSES + j[None, :], mask=inside, other=0.0) * back
    tl.store(member_gamma + first[:, None] * CLASSES + j[None, :], state, mask=inside)
    values, ratio = evidence_at(member_evidence, first, real, j, k, CLASSES, EVIDENCE)
    apart = values - tl.sum(begin * values, 1)[:, None]
    slope += tl.sum((state - begin) * values, 1) * counted
    curvature += tl.sum(begin * apart * apart, 1) * counted
    slot = member * blocks + block
    tl.store(starts + slot * 2 * CLASSES + j, tl.sum(state * counted[:, None], 0), mask=j < CLASSES)
    tl.store(starts + (slot * 2 + 1) * CLASSES + j, tl.sum(begin * counted[:, None], 0), mask=j < CLASSES)
    cell, square = i[:, None] * CLASSES + j[None, :], (i < CLASSES)[:, None] & (j < CLASSES)[None, :]
    tl.store(pairs + slot * 2 * CLASSES * CLASSES + cell, tl.sum(moved, 0), mask=square)
    tl.store(pairs + (slot * 2 + 1) * CLASSES * CLASSES + cell, tl.sum(exposed, 0), mask=square)
    tl.store(sums + slot * 3, tl.sum(slope, 0))
    tl.store(sums + slot * 3 + 1, tl.sum(curvature, 0))
    tl.store(sums + slot * 3 + 2, tl.sum(held, 0))


@triton.jit
def _count(  # type: ignore[no-untyped-def]
    labels, order, ends, label_of, weights, gamma, counts, rows, steps, points,
    CLASSES: tl.constexpr, WIDTH: tl.constexpr, ENTRIES: tl.constexpr, ANNOTATORS: tl.constexpr, GROUPS: tl.constexpr,
):  # fmt: skip
    member, point = tl.program_id(0).to(tl.int64), tl.program_id(1)
    i, j = tl.arange(0, WIDTH), tl.arange(0, WIDTH)
    member_labels = labels + tl.load(label_of + member) * rows * steps * ANNOTATORS
    member_gamma, member_weights = gamma + member * rows * steps * CLASSES, weights + member * rows
    low, high = tl.load(ends + point), tl.load(ends + point + 1)
    square = (i < CLASSES)[:, None] & (j < CLASSES)[None, :]
    for group in tl.static_range(GROUPS):
        sums = tl.zeros((ENTRIES, WIDTH, WIDTH), tl.float32)
        for begin in range(low, high, ENTRIES):
            entry = begin + tl.arange(0, ENTRIES)
            at = tl.load(order + entry, mask=entry < high, other=0)
            weight = tl.load(member_weights + at // steps, mask=entry < high, other=0.0)
            inside = (entry < high)[:, None] & (i < CLASSES)[None, :]
            share = tl.load(member_gamma + at[:, None] * CLASSES + i[None, :], mask=inside, other=0.0) * weight[:, None]
            for annotator in tl.static_range(ANNOTATORS // GROUPS):
                label_at = member_labels + at * ANNOTATORS + group * (GROUPS > 1) + annotator
                label = tl.load(label_at, mask=entry < high, other=-1).to(tl.int32)
                sums += tl.where((label[:, None] == j[None, :])[:, None, :], share[:, :, None], 0.0)
        out = counts + ((member * GROUPS + group) * points + point) * CLASSES * CLASSES
        tl.store(out + i[:, None] * CLASSES + j[None, :], tl.sum(sums, 0), mask=square)


@triton.jit
def likelihood_of(  # type: ignore[no-untyped-def]
    q, member_labels, at, point, trusted, real, j, points,
    CLASSES: tl.constexpr, ANNOTATORS: tl.constexpr, GROUPS: tl.constexpr, TRUSTED: tl.constexpr,
):  # fmt: skip
    """Emission probability of all annotators' labels at one step, for each true label: (rows, classes)."""
    total = tl.full((real.shape[0], j.shape[0]), 1.0, tl.float32)
    inside = real[:, None] & (j < CLASSES)[None, :]
    for annotator in tl.static_range(ANNOTATORS):
        label = tl.load(member_labels + at * ANNOTATORS + annotator, mask=real, other=-1).to(tl.int32)
        annotator_q = q + (annotator % GROUPS) * points * CLASSES * CLASSES
        cell = point[:, None] * (CLASSES * CLASSES) + j[None, :] * CLASSES + tl.maximum(label, 0)[:, None]
        seen = tl.load(annotator_q + cell, mask=inside & (label >= 0)[:, None], other=1.0)
        total = total * seen
    if TRUSTED:
        known = tl.load(trusted + at, mask=real, other=-1).to(tl.int32)
        total = tl.where((known >= 0)[:, None] & (known[:, None] != j[None, :]), 0.0, total)
    return tl.maximum(total, 1e-30)


@triton.jit
def links_of(  # type: ignore[no-untyped-def]
    q, member_labels, at, point, earlier_point, trusted, real, next_step, i, j, rho, points,
    CLASSES: tl.constexpr, ANNOTATORS: tl.constexpr, GROUPS: tl.constexpr, TRUSTED: tl.constexpr,
):  # fmt: skip
    """Emission probability with bursts, for each true label before and now, and the expected number of kept draws."""
    total = tl.full((real.shape[0], i.shape[0], j.shape[0]), 1.0, tl.float32)
    kept = tl.zeros((real.shape[0], i.shape[0], j.shape[0]), tl.float32)
    inside, inside_from = real[:, None] & (j < CLASSES)[None, :], real[:, None] & (i < CLASSES)[None, :]
    for annotator in tl.static_range(ANNOTATORS):
        now = tl.load(member_labels + at * ANNOTATORS + annotator, mask=real, other=-1).to(tl.int32)
        before = tl.load(member_labels + (at - 1) * ANNOTATORS + annotator, mask=real, other=-1).to(tl.int32)
        annotator_q = q + (annotator % GROUPS) * points * CLASSES * CLASSES
        rows_here = point[:, None] * (CLASSES * CLASSES) + j[None, :] * CLASSES
        seen = tl.load(annotator_q + rows_here + tl.maximum(now, 0)[:, None], mask=inside, other=1.0)[:, None, :]
        error = 1 - tl.load(annotator_q + rows_here + j[None, :], mask=inside, other=1.0)[:, None, :]
        rows_there = earlier_point[:, None] * (CLASSES * CLASSES) + i[None, :] * (CLASSES + 1)
        earlier = 1 - tl.load(annotator_q + rows_there, mask=inside_from, other=1.0)[:, :, None]
        was_wrong = (before[:, None] != i[None, :])[:, :, None]
        is_right = (now[:, None] == j[None, :])[:, None, :]
        right_again = (error - earlier) / tl.maximum(1 - earlier, 1e-6)
        again = tl.where(was_wrong, error / tl.maximum(earlier, 1e-6), right_again)
        again = tl.minimum(tl.maximum(again, 0.0), 1.0)
        goes_on = was_wrong & (before[:, None] != j[None, :])[:, None, :]
        repeated = tl.where(now == before, 1.0, 0.0)[:, None, None]
        named = tl.where(goes_on, repeated, seen / tl.maximum(error, 1e-6))
        same = rho * tl.where(is_right, 1 - again, again * named)
        mixed = (1 - rho) * seen + same
        linked = ((now >= 0) & (before >= 0) & (next_step > 0))[:, None, None]
        alone = tl.where((now >= 0)[:, None, None], seen, 1.0)
        total = total * tl.where(linked, mixed, alone)
        kept = kept + tl.where(linked, same / tl.maximum(mixed, 1e-30), 0.0)
    if TRUSTED:
        known = tl.load(trusted + at, mask=real, other=-1).to(tl.int32)
        wrong = ((known >= 0)[:, None] & (known[:, None] != j[None, :]))[:, None, :]
        total = tl.where(wrong, 0.0, total)
    return tl.maximum(total, 1e-30), kept


@triton.jit
def evidence_at(member_evidence, at, real, j, power, CLASSES: tl.constexpr, EVIDENCE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Evidence of one step, and its power, the factor of the transition probabilities: (rows, classes) each."""
    inside = real[:, None] & (j < CLASSES)[None, :]
    if EVIDENCE:
        values = tl.load(member_evidence + at[:, None] * CLASSES + j[None, :], mask=inside, other=0.0)
        scaled = tl.where((j < CLASSES)[None, :], power * values, float("-inf"))
        ratio = tl.exp(scaled - tl.max(scaled, 1)[:, None])
    else:
        values = tl.zeros((real.shape[0], j.shape[0]), tl.float32)
        ratio = tl.where((j < CLASSES)[None, :], values + 1.0, 0.0)
    return values, ratio


@triton.jit
def move_of(member_moves, jumps, at, real, i, j, ratio, CLASSES: tl.constexpr, JUMPS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Normalised transition probabilities, (rows, from, to), and whether there is no gap before the step."""
    cell = i[:, None] * CLASSES + j[None, :]
    inside = (i < CLASSES)[:, None] & (j < CLASSES)[None, :]
    if JUMPS:
        jump = tl.load(jumps + at, mask=real, other=0).to(tl.int32)
        values = tl.load(
            member_moves + jump[:, None, None] * (CLASSES * CLASSES) + cell[None], mask=inside[None], other=0.0
        )
        next_step = (jump == 0).to(tl.float32)
    else:
        values = tl.load(member_moves + cell, mask=inside, other=0.0)[None]
        next_step = real.to(tl.float32)
    move = values * ratio[:, None, :]
    return move / tl.maximum(tl.sum(move, 2), 1e-30)[:, :, None], next_step
