"""Choice between the chain without timing errors and the one with them, by cross-validated likelihood."""

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

TIMING_ITERATIONS = 12  # of EM, without offsets and then with them
TIMING_WORTH = 10.0  # held-out log-likelihood that offsets must gain


class TriedTiming(NamedTuple):
    """Chains with timing errors, fitted to all rows, and their cross-validated scores."""

    parameters: TimedChains  # (fits)
    held_out: Tensor  # (fits,), log-likelihood of all rows, each by a chain that was fitted without it
    gain: Tensor  # (fits,), over the same chain without offsets


class TimingTraining(NamedTuple):
    """Labels, evidence of single steps and fitted chain of one fit: the input of its bootstrap."""

    data: ChainData  # with likelihood ratios as evidence
    parameters: TimedChains  # one member
    family: Family  # of Q


def try_timing(
    data: ChainData,
    fits: Members,
    start: ChainParameters,
    powers: Tensor,
    families: Sequence[Family],
    folds: Tensor,
) -> TriedTiming:
    """Fit each fit without each fold, with and without offsets, score it there, and fit it to all rows.

    Parameters
    ----------
    data : evidence holds `likelihood_ratios`
    start : the chain of each fit without timing errors
    powers : Tensor of shape (fits, 2)
        The power of the evidence at which EM starts, without offsets and with them.
    families : the family of Q of each fit
    folds : int64 Tensor of shape (fits, rows)
    """
    n_fits, n_folds, device = len(folds), int(folds.max()) + 1, folds.device
    fit = torch.arange(n_fits, device=device).repeat_interleave(n_folds + 1)
    left_out = folds[fit] == torch.arange(n_folds + 1, device=device).repeat(n_fits)[:, None]  # (members, rows)
    members = fits.take(fit)
    members = members._replace(weights=members.weights * ~left_out)
    kinds = families_of([families[index] for index in fit.tolist()], device)
    chain = start.take(fit)._replace(power=powers[fit, 0])
    timely = TimedChains(chain, no_offsets(len(fit), data.n_classes, device))
    timely = fit_timing(data, members, kinds, timely, iterations=TIMING_ITERATIONS, learn_offsets=False)
    annotators, pairs = chain.matrices.shape[1], data.n_classes * (data.n_classes - 1)
    offsets = start_offsets(longest_offset(data.n_classes), device).expand(len(fit), annotators, pairs, -1)
    timed = TimedChains(timely.chain._replace(power=powers[fit, 1]), offsets)
    timed = fit_timing(data, members, kinds, timed, iterations=TIMING_ITERATIONS)
    scores = [
        (timing_log_likelihood(data, members, fitted) * left_out).sum(1).view(n_fits, -1).sum(1)
        for fitted in (timely, timed)
    ]
    whole = torch.arange(n_fits, device=device) * (n_folds + 1) + n_folds
    return TriedTiming(timed.take(whole), scores[1], scores[1] - scores[0])
