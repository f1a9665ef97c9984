"""Forward-backward pass of the hidden Markov model (Rabiner 1989): in C, Triton or torch, whichever is there."""

from __future__ import annotations

import torch

from labeltide.chain.data import ChainData, ChainParameters, Expected, Members
from labeltide.chain.plain import plain_pass
from labeltide.kernels import choose
from labeltide.kernels.chain import ChainInputs, compiled_pass

NUMBERS_AT_ONCE = 2**29  # kept by a pass: in torch three matrices for every step and member, in Triton one vector


def is_compiled(data: ChainData) -> bool:
    """Whether a pass over these data runs in C."""
    return choose("chain", data.labels.device) == "c"


def expect(data: ChainData, members: Members, parameters: ChainParameters, *, posterior: bool = False) -> Expected:
    """E-step: the likelihood of the recorded labels and the expected sufficient statistics of every member."""
    backend = choose("chain", data.labels.device)
    if backend == "c":
        return fused_pass(data, members, parameters, posterior=posterior)
    run, kept = plain_pass, 3 * data.n_classes**2
    if backend == "triton":
        from labeltide.kernels.chain_triton import MAX_TRITON_CLASSES

        if data.n_classes <= MAX_TRITON_CLASSES:
            run, kept = triton_pass, data.n_classes + 1
    at_once = max(1, NUMBERS_AT_ONCE // (data.mask.numel() * kept))
    parts = []
    for part in torch.arange(len(parameters.power), device=data.mask.device).split(at_once):
        parts.append(run(data, members.take(part), parameters.take(part), posterior=posterior))
    joined = [torch.cat(tensors) for tensors in zip(*(part[:6] for part in parts), strict=True)]
    smoothed = [part.posterior for part in parts if part.posterior is not None]
    return Expected(*joined, torch.cat(smoothed) if smoothed else None)  # type: ignore[call-arg]


def fused_pass(data: ChainData, members: Members, parameters: ChainParameters, *, posterior: bool = False) -> Expected:
    """A pass in C."""
    out = Expected(*compiled_pass(kernel_inputs(data, members, parameters), posterior=posterior))
    return out._replace(log_likelihood=out.log_likelihood.to(parameters.power.dtype))


def triton_pass(data: ChainData, members: Members, parameters: ChainParameters, *, posterior: bool = False) -> Expected:
    """A pass in Triton."""
    from labeltide.kernels import chain_triton

    return Expected(*chain_triton.triton_pass(kernel_inputs(data, members, parameters), posterior=posterior))


def kernel_inputs(data: ChainData, members: Members, parameters: ChainParameters) -> ChainInputs:
    """The tensors of a pass as its kernels take them."""
    return ChainInputs(
        data.labels,
        data.mask.sum(1),
        data.places(),
        data.evidence,
        data.trusted,
        data.jumps,
        *members,
        parameters.start,
        data.transitions(parameters.transition),
        *parameters[2:],
    )
