"""A quick look at some of the rows, which decides whether the model of timing errors is worth fitting."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from labeltide.chain.data import ChainData, ChainParameters, Members
from labeltide.chain.families import constant_shape, family
from labeltide.chain.logit import Families
from labeltide.chain.timing import fit_timing, no_offsets, start_offsets
from labeltide.chain.timing_expect import TimedChains, timing_log_likelihood
from labeltide.chain.timing_states import longest_offset

SCREEN_WINDOWS, SCREEN_STEPS = 60, 50  # windows that are looked at, and the most steps of one
SCREEN_REACH = 4  # the longest offset, in steps
SCREEN_ITERATIONS = 5  # of EM, without offsets and then with them
SCREEN_WORTH = 6.0  # log-likelihood that offsets must gain
POWERS = (0.1, 0.4, 1.5)  # of the evidence, from which EM starts


class Screened(NamedTuple):
    """Result of the quick look: the gain in log-likelihood, and chains from which EM over all rows starts."""

    gain: Tensor  # (fits,), of offsets
    plain: ChainParameters  # (fits), with Q at one moment
    timed: ChainParameters  # (fits), with Q at one moment


def screen_timing(data: ChainData, fits: Members, chain: ChainParameters) -> Screened:
    """Fit models without and with offsets to a sample of windows, with Q constant over the clock.

    The evidence of the data holds `likelihood_ratios`. EM starts from several powers, because features of neighbouring
    steps are dependent to a degree that is not known.
    """
    part = _sample(_cut(data))
    n_fits, device = len(fits.labels), data.mask.device
    start = _starts(chain)
    fit = torch.arange(n_fits, device=device).repeat_interleave(len(start.power) // n_fits)
    members = Members(fits.labels[fit], fits.evidence[fit], torch.ones(len(fit), len(part.mask), device=device))
    kinds = Families.of([family(data.n_classes, constant_shape(np.zeros(1)), "each")] * len(fit), device)
    plain = TimedChains(start, no_offsets(len(fit), data.n_classes, device))
    plain = fit_timing(part, members, kinds, plain, iterations=SCREEN_ITERATIONS, learn_offsets=False)
    offsets = start_offsets(min(SCREEN_REACH, longest_offset(data.n_classes)), device)
    timed = TimedChains(plain.chain, offsets.expand(*plain.offsets.shape[:3], -1))
    timed = fit_timing(part, members, kinds, timed, iterations=SCREEN_ITERATIONS)
    before, plain_chain = _best(part, members, plain, n_fits)
    after, timed_chain = _best(part, members, timed, n_fits)
    return Screened(after - before, plain_chain, timed_chain)


def _starts(chain: ChainParameters) -> ChainParameters:
    """Chains from which EM starts: that of each fit with every power."""
    n_fits, device = len(chain.power), chain.power.device
    fit = torch.arange(n_fits, device=device).repeat_interleave(len(POWERS))
    level = chain.matrices.mean((1, 2), keepdim=True)
    powers = torch.tensor(POWERS, device=device).repeat(n_fits)
    return chain._replace(matrices=level, bursts=None).take(fit)._replace(power=powers)


def _best(data: ChainData, members: Members, fitted: TimedChains, n_fits: int) -> tuple[Tensor, ChainParameters]:
    """The highest log-likelihood of each fit among its starts, (fits,), and the chain that reached it."""
    score, best = timing_log_likelihood(data, members, fitted).sum(1).view(n_fits, -1).max(1)
    first = torch.arange(n_fits, device=best.device) * (len(fitted.offsets) // n_fits)
    return score, fitted.chain.take(first + best)


def _cut(data: ChainData) -> ChainData:
    """Rows cut into windows of at most `SCREEN_STEPS` steps, at one moment of the clock and by one annotator."""
    steps = data.mask.shape[1]
    padding = -steps % min(steps, SCREEN_STEPS)

    def windows(values: Tensor, axis: int, fill: float) -> Tensor:
        """Pad the steps along an axis, cut them, and join windows to rows, which are the axis before."""
        shape = list(values.shape)
        shape[axis] = padding
        whole = torch.cat([values, values.new_full(shape, fill)], axis)
        return whole.unflatten(axis, (-1, min(steps, SCREEN_STEPS))).flatten(axis - 1, axis)

    labels = data.labels.amax(-1, keepdim=True)  # one annotator has labels in a row
    assert data.evidence is not None
    mask = windows(data.mask, 1, False)
    more: dict[str, Any] = {"n_points": 1, "points": torch.zeros_like(mask, dtype=torch.int64)}
    for name in ("trusted", "jumps"):
        values = getattr(data, name)
        more[name] = None if values is None else windows(values, 1, 0)
    return replace(data, labels=windows(labels, 2, -1), mask=mask, evidence=windows(data.evidence, 2, 0.0), **more)


def _sample(data: ChainData) -> ChainData:
    """Up to `SCREEN_WINDOWS` windows without padding in their first step, evenly spread."""
    real = data.mask[:, 0].nonzero().flatten()
    count = min(len(real), SCREEN_WINDOWS)
    places = torch.linspace(0, len(real) - 1, count, device=real.device).round().long()
    return data.take_rows(real[places])
