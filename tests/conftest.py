"""Fixtures that choose the kernels and the number of replicates."""

from collections.abc import Iterator
from unittest.mock import patch

import pytest

import shared_settings  # noqa: F401
from variants import ALL, COMPILED, NONE, using


@pytest.fixture(params=COMPILED or [NONE])
def compiled_variant(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run once with each compiled variant of the kernels that the processor has."""
    with using(request.param):
        yield request.param


@pytest.fixture(params=ALL)
def any_variant(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run once with each compiled variant, and once with torch in place of all kernels."""
    with using(request.param):
        yield request.param


@pytest.fixture(scope="module")
def few_replicates() -> Iterator[None]:
    """Bands from 100 replicates and tests from 24 or 39, as where a replicate is expensive."""
    with patch("labeltide.inference.bootstrap.MAX_OPERATIONS", 0):
        yield
