"""Fixtures that choose the kernels."""

from collections.abc import Iterator

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
