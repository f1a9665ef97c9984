"""The Triton pass does what the plain one does: compiled on a GPU, in Triton's interpreter elsewhere."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from triton_device import DEVICE  # isort: skip

from chains import make_case
from labeltide.chain.passes import ChainParameters, Members, kernel_inputs, plain_pass
from labeltide.kernels.chain_triton import triton_pass


def on_device(data, members, parameters):
    moved = {name: value.to(DEVICE) if isinstance(value, torch.Tensor) else value for name, value in vars(data).items()}
    moved_parameters = (None if tensor is None else tensor.to(DEVICE) for tensor in parameters)
    return (
        replace(data, **moved),
        Members(*(tensor.to(DEVICE) for tensor in members)),
        ChainParameters(*moved_parameters),
    )


@pytest.mark.parametrize("seed", range(8))
def test_the_triton_pass_equals_the_plain_one(seed):
    annotators = 1 + seed % 3
    sizes = {"members": 2, "rows": 3 + 5 * seed, "steps": 5, "classes": 2 + seed % 4, "annotators": annotators}
    sizes |= {"groups": annotators if seed % 2 else 1, "points": 5 if seed % 3 else 4}
    case = make_case(seed, **sizes, evidence=seed % 4 != 1, bursts=seed % 2 == 0, jumps=seed % 3 == 0)
    fast = triton_pass(kernel_inputs(*on_device(*case)), posterior=True)
    for one, two in zip(plain_pass(*case, posterior=True), fast, strict=True):
        np.testing.assert_allclose(one, two.cpu(), rtol=1e-4, atol=1e-5 * (1 + float(one.abs().max())))
