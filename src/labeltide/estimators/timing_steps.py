"""The step of `tide` that looks for timing errors, after Q was chosen and before distillation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from labeltide.chain.data import Chain, ChainData, ChainParameters, Members
from labeltide.chain.families import Family
from labeltide.chain.select import Chosen, try_families
from labeltide.chain.timing_expect import (
    TimedChains,
    class_shares,
    expect_timing,
    has_one_annotator_per_row,
    likelihood_ratios,
)
from labeltide.chain.timing_screen import SCREEN_WORTH, Screened, screen_timing
from labeltide.chain.timing_select import TIMING_WORTH, TimingTraining, try_plain, try_timing
from labeltide.chain.timing_states import longest_offset
from labeltide.estimators.step_evidence import StepModel, fit_step_model
from labeltide.estimators.timing_fit import TimingFit
from labeltide.kernels.threads import torch_on_one_thread
from labeltide.noise.fixed import FixedNoise

MOST_STEPS = 2**18  # of more, some rows decide: with 10^6 steps the model of timing errors took 10 minutes and 2 GB
STEPS_AT_ONCE = 2**15  # whose posterior is then computed together
Found = tuple[Tensor, TimingFit, TimingTraining]  # posterior (rows, steps, classes), model, and input of its bootstrap
NoiseOf = Callable[[ChainParameters, int], FixedNoise]  # the noise function of a chain of a fit


class Better(NamedTuple):
    """A model with timing errors that predicts the held-out labels of a fit better than the chain."""

    parameters: TimedChains  # one member
    member: Members  # one, with all rows
    data: ChainData  # of this fit
    family: Family  # of Q


class Directed(NamedTuple):
    """Fits of the directed chain, to which the model of timing errors is compared."""

    features: Tensor  # (rows, steps, features)
    data: ChainData  # with the evidence of networks
    fits: Members  # one member for each fit, with all its rows
    folds: Tensor  # (fits, rows)
    chosen: Chosen


@torch_on_one_thread()
def find_timing(
    directed: Directed, labels: Tensor, noise_of: NoiseOf
) -> dict[int, tuple[Tensor, TimingFit, TimingTraining]]:
    """Models of those fits whose labels have timing errors, by number of the fit.

    Timing errors must gain `TIMING_WORTH` units of held-out log-likelihood over the same model without them, and over
    the directed chain.

    Parameters
    ----------
    labels : Tensor of shape (fits, rows, steps, classes)
        The posterior of the directed chain.
    """
    data = directed.data
    if not longest_offset(data.n_classes) or not has_one_annotator_per_row(data):
        return {}
    thinned = data.mask.numel() > MOST_STEPS
    seen, seen_labels = _thin(directed, labels) if thinned else (directed, labels)
    models, log_probs = _step_evidence(seen, seen_labels)
    single = seen.data.with_evidence(likelihood_ratios(log_probs, seen.data.mask))
    shares = class_shares(log_probs, seen.data.mask)  # (fits, classes)
    return {
        fit: (
            _smooth_all(directed, better, models[fit], shares[fit], fit) if thinned else _smooth(better),
            _describe(better, models[fit], shares[fit].cpu().double().numpy(), noise_of, fit),
            TimingTraining(better.data.of_fit(0), better.parameters.cpu(), better.family),
        )
        for fit, better in _find_better(seen, single)
    }


def _smooth(better: Better) -> Tensor:
    """Posterior of the true labels: (rows, steps, classes)."""
    return expect_timing(better.data, better.member, better.parameters).posterior[0]


def _smooth_all(directed: Directed, better: Better, model: StepModel, shares: Tensor, fit: int) -> Tensor:
    """The same for all rows, some at a time, where the model was fitted to some of them."""
    data, folds = directed.data, directed.folds[fit]
    every = torch.arange(len(folds), device=folds.device)
    parts = []
    for rows in every.split(max(1, STEPS_AT_ONCE // data.mask.shape[1])):
        evidence = (model.log_probs(directed.features[rows], folds[rows]) - shares.log()).float()[None]
        part = data.take_rows(rows).with_evidence(evidence)
        part = replace(part, labels=part.labels[fit : fit + 1])
        member = better.member._replace(weights=directed.fits.weights[fit : fit + 1, rows])
        parts.append(_smooth(better._replace(data=part, member=member)))
    return torch.cat(parts)


def _step_evidence(directed: Directed, labels: Tensor) -> tuple[list[StepModel], Tensor]:
    """Classifiers of single steps, and their log-probabilities (fits, rows, steps, classes)."""
    models = [
        fit_step_model(directed.features, directed.data.mask, posterior, folds)
        for posterior, folds in zip(labels, directed.folds, strict=True)
    ]
    parts = [model.log_probs(directed.features, folds) for model, folds in zip(models, directed.folds, strict=True)]
    return models, torch.stack(parts)


def _thin(directed: Directed, labels: Tensor) -> tuple[Directed, Tensor]:
    """Evenly spread rows with about `MOST_STEPS` steps, and the score of the directed chain's best family there."""
    n_rows, n_steps = directed.data.mask.shape
    rows = torch.linspace(0, n_rows - 1, max(1, MOST_STEPS // n_steps), device=labels.device).round().long()
    data, folds, chosen = directed.data.take_rows(rows), directed.folds[:, rows], directed.chosen
    fits = directed.fits._replace(weights=directed.fits.weights[:, rows])
    best = [of_fit[place] for of_fit, place in zip(chosen.families, chosen.held_out.argmax(1).tolist(), strict=True)]
    kinds = [[[kind] * (int(folds.max()) + 2)] for kind in best]
    held_out = try_families(data, fits, chosen.parameters, folds, kinds).held_out
    chosen = chosen._replace(families=[[kind] for kind in best], held_out=held_out)
    return Directed(directed.features[rows], data, fits, folds, chosen), labels[:, rows]


def _find_better(directed: Directed, single: ChainData) -> Iterator[tuple[int, Better]]:
    """The fits that look suspicious and whose held-out labels the model of timing errors predicts clearly better."""
    screened = screen_timing(single, directed.fits, directed.chosen.parameters)
    for fit in (screened.gain > SCREEN_WORTH).nonzero().flatten().tolist():
        held_out, better = _try_one(directed, single, screened, fit)
        if held_out > float(directed.chosen.held_out[fit].max()) + TIMING_WORTH:
            yield fit, better


def _try_one(directed: Directed, single: ChainData, screened: Screened, fit: int) -> tuple[float, Better]:
    """Held-out log-likelihood and model of one fit, minus infinity where offsets gain less than `TIMING_WORTH`."""
    assert single.evidence is not None
    one = torch.tensor([fit], device=single.mask.device)
    first = torch.zeros_like(one)
    member, folds = Members(first, first, directed.fits.weights[one]), directed.folds[one]
    data = replace(single, labels=single.labels[one], evidence=single.evidence[one])
    family = directed.chosen.families[fit][int(directed.chosen.held_out[fit].argmax())]
    groups = directed.chosen.parameters.matrices.shape[1]

    def start(chain: ChainParameters) -> ChainParameters:
        """The chain of this fit with Q at every point and for every annotator."""
        return chain.take(one)._replace(matrices=chain.matrices[one].repeat(1, groups, data.n_points, 1, 1))

    plain = try_plain(data, member, start(screened.plain), [family], folds)
    timed = try_timing(data, member, start(screened.timed), [family], folds)
    gain = float(timed.held_out[0] - plain.held_out[0])
    held_out = float(timed.held_out[0]) if gain > TIMING_WORTH else -np.inf
    return held_out, Better(timed.parameters, member, data, family)


def _describe(better: Better, model: StepModel, shares: np.ndarray, noise_of: NoiseOf, fit: int) -> TimingFit:
    """The model on the CPU, as an audit and a file need it."""
    chain = better.parameters.cpu()
    start, transition = (tensor[0].double().numpy() for tensor in chain.chain[:2])
    numbers, steps = Chain(start, transition, float(chain.chain.power[0])), StepModel(*(part.cpu() for part in model))
    offsets = chain.offsets[0].double().numpy()
    return TimingFit(steps, shares, numbers, noise_of(chain.chain, fit), offsets)


def impute(posterior: Tensor, mask: Tensor, trusted: Tensor | None, seed: int) -> Tensor:
    """True labels drawn from the posterior (rows, steps, classes), -1 on padding: int8 (rows, steps).

    One random number serves all steps of a row, so that labels persist as they do in the posterior.
    """
    chance = torch.from_numpy(np.random.default_rng(seed).random((len(posterior), 1, 1))).to(posterior)
    drawn = (posterior.cumsum(-1) < chance).sum(-1).clamp_max(posterior.shape[-1] - 1)
    drawn = torch.where(mask, drawn, -1).to(torch.int8)
    return drawn if trusted is None else torch.where(trusted >= 0, trusted, drawn)
