"""One thread for torch: the tests are many small fits, which two threads only slow down."""

import os
from collections.abc import Iterator

import pytest
import torch
from hypothesis import HealthCheck, settings

from labeltide.kernels import library
from variants import ALL, COMPILED, NONE

torch.set_num_threads(1)

# CI draws the same examples every time and prints how to repeat a failure; at home new ones are drawn.
# A fixture that chooses kernels stays as it is for all examples of a test.
calm = {"deadline": None, "print_blob": True, "suppress_health_check": [HealthCheck.function_scoped_fixture]}
settings.register_profile("ci", derandomize=True, **calm)
settings.register_profile("home", **calm)
settings.load_profile("ci" if os.environ.get("CI") else "home")


@pytest.fixture(params=COMPILED or [NONE])
def compiled_variant(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run once with each compiled variant of the kernels that the processor has."""
    with library.using(request.param):
        yield request.param


@pytest.fixture(params=ALL)
def any_variant(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run once with each compiled variant, and once with torch in place of all kernels."""
    with library.using(request.param):
        yield request.param
