"""The kernel variants that tests run through: all that this processor has, or that which LABELTIDE_KERNELS names."""

import os
from unittest.mock import patch

import pytest

from labeltide.kernels import library

REQUESTED = library.requested()
ALL = [REQUESTED] if REQUESTED else [*library.runnable(), "torch"]
COMPILED = [name for name in ALL if name != "torch"]
NONE = pytest.param("torch", marks=pytest.mark.skip("No compiled kernel here: not built, or LABELTIDE_KERNELS=torch."))


def using(name: str):
    """Use a variant of the kernels within a block."""
    return patch.dict(os.environ, {library.ENVIRONMENT: name})
