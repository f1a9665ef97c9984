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
from labeltide.chain.margins import MarginCells, margin_cells
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
    cells: MarginCells | None  # None for timing errors


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
        tried = _try_models(directed, single, screened, fit)
        before = directed.chosen.held_out[fit].max()
        least = max(float(before), float(tried[0][0])) + HYBRID_WORTH
        held_out, better = max(tried[1:], key=lambda entry: entry[0])
        if held_out > least:
            yield fit, better


def _try_models(directed: Directed, single: ChainData, screened: Screened, fit: int) -> list[tuple[float, Better]]:
    """Held-out log-likelihoods and models of one fit: the plain one first, then those that look promising."""
    one = torch.tensor([fit], device=single.mask.device)
    first = torch.zeros_like(one)
    assert single.evidence is not None
    data = replace(single, labels=single.labels[one], evidence=single.evidence[one])
    member, folds = Members(first, first, directed.fits.weights[one]), directed.folds[one]
    best = int(directed.chosen.held_out[fit].argmax())
    families = [directed.chosen.families[fit][best]]
    groups = directed.chosen.parameters.matrices.shape[1]

    def entry(tried: TriedHybrid, data: ChainData, family: Family, cells: MarginCells | None) -> tuple[float, Better]:
        return float(tried.held_out[0]), Better(tried.parameters, member, data, family, cells)

    def start(chain: ChainParameters, n_points: int) -> ChainParameters:
        matrices = chain.matrices[one]
        repeats = n_points // matrices.shape[2]
        return chain.take(one)._replace(matrices=matrices.repeat(1, groups, repeats, 1, 1))

    tried = [
        entry(try_plain(data, member, start(screened.plain, data.n_points), families, folds), data, families[0], None)
    ]
    if screened.timing[fit] > SCREEN_WORTH:
        timed = try_timing(data, member, start(screened.timed, data.n_points), families, folds)
        tried.append(entry(timed, data, families[0], None))
    if screened.margins[fit] > SCREEN_WORTH:
        in_cells, cells = margin_cells(data, directed.grid)
        family = cells.family(data.n_classes, directed.period)
        near = try_plain(in_cells, member, start(screened.near, in_cells.n_points), [family], folds)
        tried.append(entry(near, in_cells, family, cells))
    return tried


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
    return HybridFit(steps, shares, numbers, noise, offsets, thresholds)


def impute(posterior: Tensor, mask: Tensor, trusted: Tensor | None, seed: int) -> Tensor:
    """True labels drawn from the posterior (rows, steps, classes), -1 on padding: int8 (rows, steps).

    One random number serves all steps of a row, so that labels persist as they do in the posterior.
    """
    chance = torch.from_numpy(np.random.default_rng(seed).random((len(posterior), 1, 1))).to(posterior)
    drawn = (posterior.cumsum(-1) < chance).sum(-1).clamp_max(posterior.shape[-1] - 1)
    drawn = torch.where(mask, drawn, -1).to(torch.int8)
    return drawn if trusted is None else torch.where(trusted >= 0, trusted, drawn)
