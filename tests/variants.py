"""The kernel variants that tests run through: all that this processor has, or that which LABELTIDE_KERNELS names."""

import pytest

from labeltide.kernels import library

REQUESTED = library.requested()
ALL = [REQUESTED] if REQUESTED else [*library.runnable(), "torch"]
COMPILED = [name for name in ALL if name != "torch"]
NONE = pytest.param("torch", marks=pytest.mark.skip("No compiled kernel here: not built, or LABELTIDE_KERNELS=torch."))
