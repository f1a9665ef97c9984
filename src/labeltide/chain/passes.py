"""One pass of forward-backward, by the fastest means there is."""

from __future__ import annotations

from importlib.util import find_spec

import torch

from labeltide.chain.data import ChainData, ChainParameters, Expected, Members
from labeltide.chain.fused import fused_pass, usable
from labeltide.chain.plain import plain_pass

NUMBERS_AT_ONCE = 2**29  # that a pass keeps: in torch three matrices, in Triton one vector for every step and member


def expect(data: ChainData, members: Members, parameters: ChainParameters, *, posterior: bool = False) -> Expected:
    """The likelihood of recorded labels and the expected counts of everything hidden, for every member."""
    if usable(data):
        return fused_pass(data, members, parameters, posterior=posterior)
    run, kept = plain_pass, 3 * data.n_classes**2
    if data.labels.is_cuda and find_spec("triton") is not None:
        from labeltide.chain.triton_pass import MAX_CLASSES, triton_pass

        if data.n_classes <= MAX_CLASSES:
            run, kept = triton_pass, data.n_classes + 1
    at_once = max(1, NUMBERS_AT_ONCE // (data.mask.numel() * kept))
    parts = []
    for part in torch.arange(len(parameters.power), device=data.mask.device).split(at_once):
        parts.append(run(data, members.take(part), parameters.take(part), posterior=posterior))
    joined = [torch.cat(tensors) for tensors in zip(*(part[:6] for part in parts), strict=True)]
    smoothed = [part.posterior for part in parts if part.posterior is not None]
    return Expected(*joined, torch.cat(smoothed) if smoothed else None)  # type: ignore[call-arg]
