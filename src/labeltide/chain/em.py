"""EM (Dempster, Laird and Rubin 1977; Baum-Welch) for fleets of hidden Markov models with evidence and Q(t).

The E-step is a forward-backward pass (`passes.py`). The M-step has a closed form for the transition matrix and one
Newton step each for the power and for Q (`logit.py`): generalised EM.
"""

from __future__ import annotations

import contextlib
from typing import NamedTuple

import torch
from torch import Tensor

from labeltide.chain.data import ChainData, ChainParameters, Expected, Members, informedness
from labeltide.chain.logit import Families
from labeltide.chain.passes import expect, is_compiled
from labeltide.kernels.threads import torch_on_one_thread

PSEUDO_COUNT = 0.5  # by hand: added to every expected transition and its exposure (docs/decisions/008-starts-of-em.md)
# The power k has a Cauchy prior (Gelman and others 2008), because small networks that err with confidence look like
# wrong labels. It is a prior of k J / J', with J the informedness of Q and J' that of the Q of training: networks that
# were trained with too noisy a Q are too sure. Its long tail serves networks that learned for few epochs, which are too
# careful (docs/decisions/005-prior-of-k.md).
POWER_CENTRE, POWER_SCALE = 1.1, 0.25  # by hand
MAX_POWER = 20.0  # by hand
MIN_INFORMEDNESS = 0.05  # by hand
MAX_BURSTS = 0.98  # below one, where a draw would never be renewed


class FittedChains(NamedTuple):
    """Hidden Markov models after EM."""

    parameters: ChainParameters
    log_likelihood: Tensor  # (members, rows), also of rows that were not learned from


def fit_chains(
    data: ChainData,
    members: Members,
    families: Families,
    parameters: ChainParameters,
    *,
    iterations: int,
    learn_power: bool = False,
) -> FittedChains:
    """Run EM on all members together; Q starts at the least-squares fit of the families to that of `parameters`."""
    with torch_on_one_thread() if is_compiled(data) else contextlib.nullcontext():
        coefficients = families.fit_start(parameters.matrices)
        linked = _linked_labels(data, members)
        for _ in range(iterations):
            expected = expect(data, members, parameters)
            coefficients = families.step(coefficients, expected.counts)
            matrices = families.noise(coefficients)
            unit = power_unit(data, members, matrices) if learn_power else None
            parameters = _maximise(parameters, expected, matrices, unit)
            if parameters.bursts is not None:
                parameters = parameters._replace(bursts=(expected.kept / linked).clamp(0.0, MAX_BURSTS))
        return FittedChains(parameters, expect(data, members, parameters).log_likelihood)


def _maximise(
    parameters: ChainParameters, expected: Expected, matrices: Tensor, power_unit: Tensor | None
) -> ChainParameters:
    r"""M-step for the start, the transition matrix and the power.

    A also enters the normaliser :math:`\sum_j A_{ij} P_{tj}^k`. Bounding its logarithm by the tangent (a
    minorise-maximise step, Hunter and Lange 2004) gives :math:`A_{ij} = N_{ij} / D_{ij}`, expected transitions over
    their exposure, and never lowers the likelihood. Without evidence it is the Baum-Welch update. The power takes a
    damped Newton step with the complete-data information and its prior, in units of `power_unit`; None keeps it.
    """
    power, bursts = parameters.power, parameters.bursts
    start = _normalise((expected.starts[:, 0] + PSEUDO_COUNT) / (expected.starts[:, 1] + PSEUDO_COUNT))
    transition = _normalise((expected.pairs[:, 0] + PSEUDO_COUNT) / (expected.pairs[:, 1] + PSEUDO_COUNT))
    if power_unit is not None:
        slope, curvature = expected.power.unbind(1)
        away = power - POWER_CENTRE * power_unit
        # The precision of the normal density that bounds the prior from below.
        precision = 2 / ((POWER_SCALE * power_unit) ** 2 + away**2)
        step = ((slope - away * precision) / (curvature + precision)).clamp(-0.5, 0.5)
        power = (power + step).clamp(0.0, MAX_POWER)
    return ChainParameters(start, transition, power, matrices, bursts)


def power_unit(data: ChainData, members: Members, matrices: Tensor) -> Tensor:
    """Informedness of the Q with which each member's networks were trained, divided by that of its Q: (members,).

    It is one where the Q of training is not told.
    """
    if data.trained_with is None:
        return torch.ones(len(matrices), dtype=matrices.dtype, device=matrices.device)
    now = informedness(matrices).clamp_min(MIN_INFORMEDNESS)
    return data.trained_with[members.evidence].to(now).clamp_min(MIN_INFORMEDNESS) / now


def power_log_prior(power: Tensor, unit: Tensor | float = 1.0) -> Tensor:
    """Logarithm of the prior density of each member's power in its unit, zero at its centre."""
    return -(1 + ((power / unit - POWER_CENTRE) / POWER_SCALE) ** 2).log()


def _linked_labels(data: ChainData, members: Members) -> Tensor:
    """The weighted number of labels that follow another of the same annotator at once: (members,)."""
    recorded = (data.labels >= 0) & data.mask[..., None]  # (sets, rows, steps, annotators)
    both = recorded[:, :, 1:] & recorded[:, :, :-1]
    if data.jumps is not None:
        both &= (data.jumps[:, 1:] == 0)[..., None]
    linked = both.sum((2, 3)).to(members.weights)  # (sets, rows)
    return (linked[members.labels] * members.weights).sum(1).clamp_min(1.0)


def _normalise(values: Tensor) -> Tensor:
    return values / values.sum(-1, keepdim=True)
