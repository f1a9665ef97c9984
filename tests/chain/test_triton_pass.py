"""The Triton pass does what the plain one does, seen through Triton's interpreter on any machine."""

import os

import numpy as np
import pytest
import torch

from chains import make_case

os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is first imported
pytest.importorskip("triton", reason="Triton is not installed here; it comes with torch on GPU machines.")

from labeltide.chain.plain import plain_pass
from labeltide.chain.triton_pass import triton_pass

pytestmark = pytest.mark.skipif(
    torch.cuda.is_available(), reason="With a GPU the kernels are compiled; benchmarks/speed.py compares them there."
)


@pytest.mark.parametrize("seed", range(8))
def test_the_triton_pass_equals_the_plain_one(seed):
    annotators = 1 + seed % 3
    sizes = {"members": 2, "rows": 3 + 5 * seed, "steps": 5, "classes": 2 + seed % 4, "annotators": annotators}
    sizes |= {"groups": annotators if seed % 2 else 1, "points": 5 if seed % 3 else 4}
    case = make_case(seed, **sizes, evidence=seed % 4 != 1, bursts=seed % 2 == 0, jumps=seed % 3 == 0)
    for one, two in zip(plain_pass(*case, posterior=True), triton_pass(*case, posterior=True), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-5 * (1 + float(one.abs().max())))
