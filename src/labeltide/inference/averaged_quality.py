r"""Expected false alarms among flagged labels, averaged over what is not known of the share of wrong labels.

The quality of a label under the fitted chain takes Q and k as known. Where few labels tell them, flags at a bound on
its mean have more false alarms than the bound. The quality is therefore averaged over the profile likelihood of the
share S, :math:`\bar q_i = \int q_i(S) L(S) dS / \int L(S) dS`, as in Bayesian model averaging (Hoeting and others 1999)
with a uniform prior of S. The likelihood is raised to the power that makes its 95 % interval that of clusters
(docs/decisions/013-false-alarms.md).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from labeltide.chain.data import ChainData, ChainParameters
from labeltide.chain.passes import expect
from labeltide.inference.warm_start import same_data

# Mean qualities of flags under the fitted chain at which the averaged mean is computed.
LEVELS = np.array([0.0, 0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5])
SMALLEST_WEIGHT = 1e-3  # of a point of the profile, under which it is left out


class Weighted(NamedTuple):
    """Points of a profile likelihood: their chains, their weights, and which of them is the estimate."""

    parameters: ChainParameters
    weights: np.ndarray  # (points,), they sum to one
    centre: int


def profile_weights(shares: np.ndarray, roots: np.ndarray, critical: float, quantile: float) -> np.ndarray:
    """Weights of the points: likelihood from signed roots, tempered so that `critical` has the place of `quantile`."""
    weights = np.exp(-0.5 * (roots * quantile / critical) ** 2) * np.gradient(shares)
    weights[len(weights) // 2] += 1e-12  # all of the weight where every point has the same share
    return np.asarray(weights / weights.sum())


def false_alarm_curve(data: ChainData, points: Weighted) -> np.ndarray:
    """Averaged quality of the labels whose mean quality under the fitted chain is at most each of `LEVELS`: (levels,).

    Labels are taken lowest quality first. A level that no label reaches is its own average.
    """
    said = _quality(data, points.parameters, points.centre)
    averaged = np.zeros_like(said)
    kept = np.where(points.weights >= SMALLEST_WEIGHT, points.weights, 0.0)
    for place in np.flatnonzero(kept):
        averaged += kept[place] / kept.sum() * _quality(data, points.parameters, int(place))
    order = np.argsort(said, kind="stable")
    count = np.arange(1, len(order) + 1)
    said_means, means = said[order].cumsum() / count, averaged[order].cumsum() / count
    last = np.searchsorted(said_means, LEVELS, side="right") - 1
    return np.asarray(np.maximum.accumulate(np.where(last >= 0, means[last.clip(0)], LEVELS)))


def flag_bound(curve: np.ndarray | None, fdr: float) -> float:
    """The bound on the mean quality of flags at which their averaged quality is at most `fdr`; never above it."""
    if curve is None or np.interp(fdr, LEVELS, curve) <= fdr:
        return fdr
    fine = np.linspace(0, fdr, 201)
    return float(fine[np.flatnonzero(np.interp(fine, LEVELS, curve) <= fdr)].max(initial=0.0))


def averaged_share(curve: np.ndarray | None, mean_quality: float) -> float:
    """The expected share of false alarms among flags of this mean quality under the fitted chain."""
    return mean_quality if curve is None else max(mean_quality, float(np.interp(mean_quality, LEVELS, curve)))


def _quality(data: ChainData, parameters: ChainParameters, place: int) -> np.ndarray:
    """The probability that each recorded label is right under one of the chains: (labels,)."""
    one = same_data(1, torch.ones(1, data.labels.shape[1]))
    posterior = expect(data, one, parameters.take(torch.tensor([place])), posterior=True).posterior
    assert posterior is not None
    labels, values = data.labels[0].numpy(), posterior[0].double().numpy()
    row, step, annotator = np.nonzero((labels >= 0) & data.mask.numpy()[..., None])
    of_step = values[row, step]  # (labels, classes)
    return np.asarray(of_step[np.arange(len(row)), labels[row, step, annotator]] / of_step.sum(1).clip(1e-300))
