"""Cross-validation of hybrid hidden Markov models with timing errors and without."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from labeltide.chain.data import ChainData, ChainParameters, Members
from labeltide.chain.families import Family
from labeltide.chain.pooled import families_of
from labeltide.chain.timing import fit_timing, no_offsets, start_offsets
from labeltide.chain.timing_expect import TimedChains, timing_log_likelihood
from labeltide.chain.timing_states import longest_offset

TIMING_ITERATIONS = 12  # of EM
TIMING_WORTH = 5.0  # held-out log-likelihood that offsets must gain


class TriedTiming(NamedTuple):
    """A model that was tried for some fits."""

    parameters: TimedChains  # (fits), learned from all rows
    held_out: Tensor  # (fits,), log-likelihood of all rows, each by a chain that was fitted without it


class TimingTraining(NamedTuple):
    """Labels, evidence of single steps and fitted chain of one fit: the input of its bootstrap."""

    data: ChainData  # with likelihood ratios as evidence
    parameters: TimedChains  # one member
    family: Family  # of Q


def try_plain(
    data: ChainData, fits: Members, chain: ChainParameters, families: Sequence[Family], folds: Tensor
) -> TriedTiming:
    """The model without timing errors and with Q(t); `chain` (fits) is where EM starts, with Q at one moment."""
    return _try(data, fits, TimedChains(chain, no_offsets(len(folds), data.n_classes, folds.device)), families, folds)


def try_timing(
    data: ChainData, fits: Members, chain: ChainParameters, families: Sequence[Family], folds: Tensor
) -> TriedTiming:
    """The model with timing errors; `chain` (fits) is where EM starts, with Q at one moment."""
    pairs = data.n_classes * (data.n_classes - 1)
    offsets = start_offsets(longest_offset(data.n_classes), folds.device)
    offsets = offsets.expand(len(folds), chain.matrices.shape[1], pairs, -1)
    return _try(data, fits, TimedChains(chain, offsets), families, folds, learn_offsets=True)


def _try(
    data: ChainData,
    fits: Members,
    start: TimedChains,
    families: Sequence[Family],
    folds: Tensor,
    learn_offsets: bool = False,
) -> TriedTiming:
    """Fit each fit without each fold, score it there, and fit it to all rows."""
    n_fits, n_folds = len(folds), int(folds.max()) + 1
    each = torch.arange(n_fits, device=folds.device).repeat_interleave(n_folds + 1)
    left_out = folds[each] == torch.arange(n_folds + 1, device=folds.device).repeat(n_fits)[:, None]  # (members, rows)
    members = fits.take(each)
    members = members._replace(weights=members.weights * ~left_out)
    kinds = families_of([families[fit] for fit in each.tolist()], folds.device)
    fitted = fit_timing(
        data, members, kinds, start.take(each), iterations=TIMING_ITERATIONS, learn_offsets=learn_offsets
    )
    scores = (timing_log_likelihood(data, members, fitted) * left_out).sum(1).view(n_fits, -1).sum(1)
    whole = torch.arange(n_fits, device=folds.device) * (n_folds + 1) + n_folds
    return TriedTiming(fitted.take(whole), scores)
