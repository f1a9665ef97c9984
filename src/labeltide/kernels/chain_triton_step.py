"""One step of the hidden Markov model in Triton: emission probabilities, evidence and transition probabilities."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def likelihood_of(  # type: ignore[no-untyped-def]
    q, member_labels, at, place, trusted, real, j, points,
    CLASSES: tl.constexpr, ANNOTATORS: tl.constexpr, GROUPS: tl.constexpr, TRUSTED: tl.constexpr,
):  # fmt: skip
    """Emission probability of all annotators' labels at one step, for each true label: (rows, classes)."""
    total = tl.full((real.shape[0], j.shape[0]), 1.0, tl.float32)
    inside = real[:, None] & (j < CLASSES)[None, :]
    for annotator in tl.static_range(ANNOTATORS):
        label = tl.load(member_labels + at * ANNOTATORS + annotator, mask=real, other=-1).to(tl.int32)
        annotator_q = q + (annotator % GROUPS) * points * CLASSES * CLASSES
        cell = place[:, None] * (CLASSES * CLASSES) + j[None, :] * CLASSES + tl.maximum(label, 0)[:, None]
        seen = tl.load(annotator_q + cell, mask=inside & (label >= 0)[:, None], other=1.0)
        total = total * seen
    if TRUSTED:
        known = tl.load(trusted + at, mask=real, other=-1).to(tl.int32)
        total = tl.where((known >= 0)[:, None] & (known[:, None] != j[None, :]), 0.0, total)
    return tl.maximum(total, 1e-30)


@triton.jit
def links_of(  # type: ignore[no-untyped-def]
    q, member_labels, at, place, earlier_place, trusted, real, next_step, i, j, rho, points,
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
        rows_here = place[:, None] * (CLASSES * CLASSES) + j[None, :] * CLASSES
        seen = tl.load(annotator_q + rows_here + tl.maximum(now, 0)[:, None], mask=inside, other=1.0)[:, None, :]
        error = 1 - tl.load(annotator_q + rows_here + j[None, :], mask=inside, other=1.0)[:, None, :]
        rows_there = earlier_place[:, None] * (CLASSES * CLASSES) + i[None, :] * (CLASSES + 1)
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
def evidence_of(member_evidence, at, real, j, power, CLASSES: tl.constexpr, EVIDENCE: tl.constexpr):  # type: ignore[no-untyped-def]
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
