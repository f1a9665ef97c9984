"""A quick look for timing errors in some of the rows, which decides whether the whole model is worth fitting."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from labeltide.chain.data import ChainData, ChainParameters, Members
from labeltide.chain.families import constant_shape, family
from labeltide.chain.logit import Families
from labeltide.chain.timing import fit_timing, no_offsets, start_offsets
from labeltide.chain.timing_expect import TimedChains, timing_log_likelihood
from labeltide.chain.timing_states import longest_offset

SCREEN_WINDOWS, SCREEN_STEPS = 128, 50  # windows that are looked at, and the most steps of one
SCREEN_REACH = 4  # the longest offset, in steps
SCREEN_ITERATIONS = 5  # of EM, without offsets and then with them
SCREEN_WORTH = 3.0  # log-likelihood that offsets must gain


def screen_timing(data: ChainData, fits: Members, chain: ChainParameters) -> Tensor:
    """Log-likelihood that offsets gain in a sample of windows, with Q constant over the clock: (fits,).

    The evidence of the data holds `likelihood_ratios`.
    """
    part = _sample(_cut(data))
    n_fits, device = len(fits.labels), data.mask.device
    members = fits._replace(weights=torch.ones(n_fits, len(part.mask), device=device))
    kinds = Families.of([family(data.n_classes, constant_shape(np.zeros(1)), "each")] * n_fits, device)
    level = chain.matrices.mean((1, 2), keepdim=True)
    flat = chain._replace(matrices=level, power=torch.ones_like(chain.power))
    timely = TimedChains(flat, no_offsets(n_fits, data.n_classes, device))
    timely = fit_timing(part, members, kinds, timely, iterations=SCREEN_ITERATIONS, learn_offsets=False)
    offsets = start_offsets(min(SCREEN_REACH, longest_offset(data.n_classes)), device).expand(
        *timely.offsets.shape[:3], -1
    )
    timed = fit_timing(part, members, kinds, TimedChains(timely.chain, offsets), iterations=SCREEN_ITERATIONS)
    reached = [timing_log_likelihood(part, members, fitted).sum(1) for fitted in (timely, timed)]
    return reached[1] - reached[0]


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
