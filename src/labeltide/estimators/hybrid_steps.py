"""The step of `tide` that looks for timing errors and errors near boundaries, after Q was chosen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from labeltide._clock import Period
from labeltide.chain.data import Chain, ChainData, ChainParameters, Members
from labeltide.chain.families import Family
from labeltide.chain.hybrid_screen import SCREEN_WORTH, Screened, screen_hybrid
from labeltide.chain.hybrid_select import HYBRID_WORTH, HybridTraining, TriedHybrid, try_plain, try_timing
from labeltide.chain.margins import MarginCells, find_log_odds, find_margins, margin_cells
from labeltide.chain.select import Chosen
from labeltide.chain.timing_expect import (
    TimedChains,
    class_shares,
    expect_timing,
    has_one_annotator_per_row,
    likelihood_ratios,
)
from labeltide.chain.timing_states import longest_offset
from labeltide.estimators.hybrid_fit import HybridFit
from labeltide.estimators.step_evidence import StepModel, fit_step_model
from labeltide.noise.fixed import FixedNoise

Found = tuple[Tensor, HybridFit, HybridTraining]  # posterior (rows, steps, classes), model, and input of its bootstrap
NoiseOf = Callable[[ChainParameters, int], FixedNoise]  # the noise function of a chain of a fit


class Better(NamedTuple):
    """A hybrid model that predicts the held-out labels of a fit better than the chain."""

    parameters: TimedChains  # one member
    member: Members  # one, with all rows
    data: ChainData  # of this fit; with errors near boundaries cells stand in place of points of the clock
    family: Family  # of Q
    cells: MarginCells | None = None  # None for timing errors
    by_network: bool = False  # whether cells go by the networks' log-odds, not by the margin


class Directed(NamedTuple):
    """Fits of the directed chain, to which hybrid models are compared."""

    features: Tensor  # (rows, steps, features)
    data: ChainData  # with the evidence of networks
    fits: Members  # one member for each fit, with all its rows
    folds: Tensor  # (fits, rows)
    chosen: Chosen
    grid: np.ndarray
    period: Period


def find_hybrids(
    directed: Directed, labels: Tensor, noise_of: NoiseOf
) -> dict[int, tuple[Tensor, HybridFit, HybridTraining]]:
    """Hybrid models for those fits whose labels have timing errors or errors near boundaries, by number of the fit.

    Timing errors, or errors near boundaries, must gain `HYBRID_WORTH` units of held-out log-likelihood over the same
    model without them, and over the directed chain.

    Parameters
    ----------
    labels : Tensor of shape (fits, rows, steps, classes)
        The posterior of the directed chain.
    """
    data = directed.data
    if not longest_offset(data.n_classes) or not has_one_annotator_per_row(data):
        return {}
    models = [
        fit_step_model(directed.features, data.mask, posterior, folds)
        for posterior, folds in zip(labels, directed.folds, strict=True)
    ]
    parts = [model.log_probs(directed.features, folds) for model, folds in zip(models, directed.folds, strict=True)]
    log_probs = torch.stack(parts)  # (fits, rows, steps, classes)
    single = data.with_evidence(likelihood_ratios(log_probs, data.mask))
    shares = class_shares(log_probs, data.mask).cpu().double().numpy()
    return {
        fit: (
            expect_timing(better.data, better.member, better.parameters).posterior[0],
            _describe(better, models[fit], shares[fit], noise_of, fit),
            HybridTraining(better.data.of_fit(0), better.parameters.cpu(), better.family),
        )
        for fit, better in _find_better(directed, single)
    }


def _find_better(directed: Directed, single: ChainData) -> Iterator[tuple[int, Better]]:
    """The fits that look suspicious and whose held-out labels a hybrid model predicts clearly better."""
    screened = screen_hybrid(single, directed.fits, directed.chosen.parameters)
    if directed.grid.ndim == 2 or directed.chosen.parameters.matrices.shape[1] > 1:
        screened = screened._replace(margins=torch.zeros_like(screened.margins))  # for one clock and one annotator
    suspected = torch.maximum(screened.timing, screened.margins) > SCREEN_WORTH
    for fit in suspected.nonzero().flatten().tolist():
        attempt = _Attempt(directed, single, screened, fit)
        least = max(float(directed.chosen.held_out[fit].max()), *attempt.without()) + HYBRID_WORTH
        held_out, better = max(attempt.models(), key=lambda model: model[0])
        if held_out > least:
            yield fit, better


class _Attempt:
    """Models of one suspicious fit."""

    def __init__(self, directed: Directed, single: ChainData, screened: Screened, fit: int) -> None:
        assert single.evidence is not None
        assert directed.data.evidence is not None
        self.directed, self.screened, self.fit = directed, screened, fit
        self.one = torch.tensor([fit], device=single.mask.device)
        first = torch.zeros_like(self.one)
        self.member = Members(first, first, directed.fits.weights[self.one])
        self.folds = directed.folds[self.one]
        self.data = replace(single, labels=single.labels[self.one], evidence=single.evidence[self.one])
        self.network = directed.data.evidence[self.one]  # (1, rows, steps, classes)
        self.family = directed.chosen.families[fit][int(directed.chosen.held_out[fit].argmax())]
        self.is_near = bool(screened.margins[fit] > SCREEN_WORTH)

    def without(self) -> list[float]:
        """Held-out log-likelihoods without these errors, by the evidence of single steps and by that of networks."""
        evidence = [self.data.evidence] + [likelihood_ratios(self.network, self.data.mask)] * self.is_near
        tried = [self._plain(self.data.with_evidence(ratios), self.screened.plain, self.family) for ratios in evidence]
        return [float(plain.held_out[0]) for plain in tried]

    def models(self) -> Iterator[tuple[float, Better]]:
        """Held-out log-likelihoods and models: with timing errors, and with errors near boundaries by either level."""
        if self.screened.timing[self.fit] > SCREEN_WORTH:
            start = self._start(self.screened.timed, self.data.n_points)
            timed = try_timing(self.data, self.member, start, [self.family], self.folds)
            yield float(timed.held_out[0]), Better(timed.parameters, self.member, self.data, self.family)
        for by_network in (False, True)[: self.is_near + (self.is_near and self.data.n_classes == 2)]:
            assert self.data.evidence is not None
            levels = find_log_odds(self.network[0]) if by_network else find_margins(self.data.evidence[0])
            in_cells, cells = margin_cells(self.data, self.directed.grid, levels)
            family = cells.family(self.data.n_classes, self.directed.period)
            near = self._plain(in_cells, self.screened.near, family)
            better = Better(near.parameters, self.member, in_cells, family, cells, by_network)
            yield float(near.held_out[0]), better

    def _plain(self, data: ChainData, chain: ChainParameters, family: Family) -> TriedHybrid:
        return try_plain(data, self.member, self._start(chain, data.n_points), [family], self.folds)

    def _start(self, chain: ChainParameters, n_points: int) -> ChainParameters:
        """The chain of this fit with Q at every point and for every annotator."""
        groups = self.directed.chosen.parameters.matrices.shape[1]
        matrices = chain.matrices[self.one]
        return chain.take(self.one)._replace(matrices=matrices.repeat(1, groups, n_points // matrices.shape[2], 1, 1))


def _describe(better: Better, model: StepModel, shares: np.ndarray, noise_of: NoiseOf, fit: int) -> HybridFit:
    """The model on the CPU, as an audit and a file need it."""
    chain = better.parameters.cpu()
    start, transition = (tensor[0].double().numpy() for tensor in chain.chain[:2])
    numbers, steps = Chain(start, transition, float(chain.chain.power[0])), StepModel(*(part.cpu() for part in model))
    offsets = chain.offsets[0].double().numpy()
    if better.cells is None:
        return HybridFit(steps, shares, numbers, noise_of(chain.chain, fit), offsets)
    thresholds = better.cells.thresholds.cpu().double().numpy()
    groups = chain.chain.matrices[0, 0].unflatten(0, (-1, len(thresholds) + 1)).transpose(0, 1)
    noise = FixedNoise(groups[None].double().numpy(), better.cells.moments)
    return HybridFit(steps, shares, numbers, noise, offsets, thresholds, better.by_network)


def impute(posterior: Tensor, mask: Tensor, trusted: Tensor | None, seed: int) -> Tensor:
    """True labels drawn from the posterior (rows, steps, classes), -1 on padding: int8 (rows, steps).

    One random number serves all steps of a row, so that labels persist as they do in the posterior.
    """
    chance = torch.from_numpy(np.random.default_rng(seed).random((len(posterior), 1, 1))).to(posterior)
    drawn = (posterior.cumsum(-1) < chance).sum(-1).clamp_max(posterior.shape[-1] - 1)
    drawn = torch.where(mask, drawn, -1).to(torch.int8)
    return drawn if trusted is None else torch.where(trusted >= 0, trusted, drawn)
