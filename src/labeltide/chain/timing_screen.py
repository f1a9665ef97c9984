"""A quick look for timing errors in some of the rows, which decides whether the whole model is worth fitting."""

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

SCREEN_WINDOWS, SCREEN_STEPS = 96, 50  # windows that are looked at, and the most steps of one
SCREEN_REACH = 4  # the longest offset, in steps
SCREEN_ITERATIONS = 5  # of EM, without offsets and then with them
SCREEN_WORTH = 3.0  # log-likelihood that offsets must gain
POWERS = (0.1, 0.3, 0.8, 2.0)  # of the evidence, from which EM starts


class Screened(NamedTuple):
    """Result of the quick look."""

    gain: Tensor  # (fits,), log-likelihood that offsets gain
    power: Tensor  # (fits, 2), of the evidence without offsets and with them


def screen_timing(data: ChainData, fits: Members, chain: ChainParameters) -> Screened:
    """Fit chains without and with offsets to a sample of windows, with Q constant over the clock.

    The evidence of the data holds `likelihood_ratios`. EM starts from several powers, because features of neighbouring
    steps are dependent to a degree that is not known.
    """
    part = _sample(_cut(data))
    n_fits, n_powers, device = len(fits.labels), len(POWERS), data.mask.device
    fit = torch.arange(n_fits, device=device).repeat_interleave(n_powers)
    members = Members(fits.labels[fit], fits.evidence[fit], torch.ones(len(fit), len(part.mask), device=device))
    kinds = Families.of([family(data.n_classes, constant_shape(np.zeros(1)), "each")] * len(fit), device)
    start = chain.take(fit)._replace(power=torch.tensor(POWERS, device=device).repeat(n_fits))
    start = start._replace(matrices=start.matrices.mean((1, 2), keepdim=True))
    timely = TimedChains(start, no_offsets(len(fit), data.n_classes, device))
    timely = fit_timing(part, members, kinds, timely, iterations=SCREEN_ITERATIONS, learn_offsets=False)
    offsets = start_offsets(min(SCREEN_REACH, longest_offset(data.n_classes)), device)
    timed = TimedChains(timely.chain, offsets.expand(*timely.offsets.shape[:3], -1))
    timed = fit_timing(part, members, kinds, timed, iterations=SCREEN_ITERATIONS)
    reached, powers = [], []
    for fitted in (timely, timed):
        score, best = timing_log_likelihood(part, members, fitted).sum(1).view(n_fits, n_powers).max(1)
        reached.append(score)
        powers.append(fitted.chain.power.view(n_fits, n_powers).gather(1, best[:, None])[:, 0])
    return Screened(reached[1] - reached[0], torch.stack(powers, 1))


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
