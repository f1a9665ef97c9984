"""Where tests of Triton kernels run: compiled on a GPU, in Triton's interpreter elsewhere. Import it before them."""

import os

import pytest
import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is first imported
pytest.importorskip("triton", reason="Triton is not installed here; it comes with torch on GPU machines.")
