"""The step of `tide` that looks for timing errors, after Q was chosen and before distillation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from labeltide.chain.data import Chain, ChainData, ChainParameters, Members
from labeltide.chain.families import Family
from labeltide.chain.select import Chosen
from labeltide.chain.timing_expect import (
    TimedChains,
    class_shares,
    expect_timing,
    has_one_annotator_per_row,
    likelihood_ratios,
)
from labeltide.chain.timing_screen import SCREEN_WORTH, Screened, screen_timing
from labeltide.chain.timing_select import TIMING_WORTH, TimingTraining, try_timing
from labeltide.chain.timing_states import longest_offset
from labeltide.estimators.step_evidence import StepModel, fit_step_model
from labeltide.estimators.timing_fit import TimingFit
from labeltide.noise.fixed import FixedNoise

NoiseOf = Callable[[ChainParameters, int], FixedNoise]  # the noise function of a chain of a fit
Found = tuple[TimingFit, TimingTraining] | None  # None where timing errors were not found


class TimedFit(NamedTuple):
    """A fit with timing errors."""

    parameters: TimedChains  # one member
    posterior: Tensor  # (rows, steps, classes)
    family: Family  # of Q


class Untimed(NamedTuple):
    """Fits without timing errors."""

    features: Tensor  # (rows, steps, features)
    data: ChainData  # with the evidence of networks
    fits: Members  # one member for each fit, with all its rows
    folds: Tensor  # (fits, rows)
    chosen: Chosen

    def take(self, index: Tensor) -> tuple[Members, Tensor, ChainParameters, list[Family]]:
        """Members, folds, chain and the best family of Q of some fits, whose labels and evidence stand in order."""
        places = torch.arange(len(index), device=index.device)
        members = Members(places, places, self.fits.weights[index])
        best = self.chosen.held_out.argmax(1).tolist()
        families = [self.chosen.families[fit][best[fit]] for fit in index.tolist()]
        return members, self.folds[index], self.chosen.parameters.take(index), families


def correct_timing(untimed: Untimed, labels: Tensor, noise_of: NoiseOf) -> tuple[Tensor, list[Found]]:
    """The posterior (fits, rows, steps, classes), replaced for fits whose labels have timing errors, and their models.

    Timing errors must gain `TIMING_WORTH` units of held-out log-likelihood over the same model without them, and over
    the chain that was chosen before.
    """
    found: list[Found] = [None] * len(labels)
    data = untimed.data
    if not longest_offset(data.n_classes) or not has_one_annotator_per_row(data):
        return labels, found
    models = [
        fit_step_model(untimed.features, data.mask, posterior, folds)
        for posterior, folds in zip(labels, untimed.folds, strict=True)
    ]
    parts = [model.log_probs(untimed.features, folds) for model, folds in zip(models, untimed.folds, strict=True)]
    log_probs = torch.stack(parts)  # (fits, rows, steps, classes)
    single = data.with_evidence(likelihood_ratios(log_probs, data.mask))
    screened = screen_timing(single, untimed.fits, untimed.chosen.parameters)
    labels = labels.clone()
    for fit, tried in _choose(untimed, single, screened):
        labels[fit] = tried.posterior
        shares = class_shares(log_probs[fit : fit + 1], data.mask)[0].cpu().double().numpy()
        chain = tried.parameters.cpu()
        start, transition = (tensor[0].double().numpy() for tensor in chain.chain[:2])
        numbers = Chain(start, transition, float(chain.chain.power[0]))
        offsets = chain.offsets[0].double().numpy()
        model = StepModel(*(tensor.cpu() for tensor in models[fit]))
        timing = TimingFit(model, shares, numbers, noise_of(chain.chain, fit), offsets)
        found[fit] = timing, TimingTraining(single.of_fit(fit), chain, tried.family)
    return labels, found


def _choose(untimed: Untimed, single: ChainData, screened: Screened) -> list[tuple[int, TimedFit]]:
    """Those of the suspected fits whose labels the chain with timing errors predicts clearly better."""
    index = (screened.gain > SCREEN_WORTH).nonzero().flatten()
    if not len(index):
        return []
    assert single.evidence is not None
    data = replace(single, labels=single.labels[index], evidence=single.evidence[index])
    members, folds, chain, families = untimed.take(index)
    tried = try_timing(data, members, chain, screened.power[index], families, folds)
    before = untimed.chosen.held_out[index].amax(1)
    wins = (tried.gain > TIMING_WORTH) & (tried.held_out.to(before) > before + TIMING_WORTH)
    chosen = []
    for place in wins.nonzero().flatten().tolist():
        one = torch.tensor([place], device=index.device)
        parameters = tried.parameters.take(one)
        posterior = expect_timing(data, members.take(one), parameters).posterior[0]
        chosen.append((int(index[place]), TimedFit(parameters, posterior, families[place])))
    return chosen


def impute(posterior: Tensor, mask: Tensor, trusted: Tensor | None, seed: int) -> Tensor:
    """True labels drawn from the posterior (rows, steps, classes), -1 on padding: int8 (rows, steps).

    One random number serves all steps of a row, so that labels persist as they do in the posterior.
    """
    chance = torch.from_numpy(np.random.default_rng(seed).random((len(posterior), 1, 1))).to(posterior)
    drawn = (posterior.cumsum(-1) < chance).sum(-1).clamp_max(posterior.shape[-1] - 1)
    drawn = torch.where(mask, drawn, -1).to(torch.int8)
    return drawn if trusted is None else torch.where(trusted >= 0, trusted, drawn)
