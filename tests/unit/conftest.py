"""Fixtures of the unit tests: a node whose time is moved by hand."""

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, settings
from node_bench import Bench

# A busy machine is no failure; and a failure prints how to repeat it.
settings.register_profile(
    "unit", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("unit")


@pytest.fixture
def bench() -> Bench:
    """One node with no memory limit and no password."""
    return Bench()


@pytest.fixture
def make_bench() -> Callable[..., Bench]:
    """Makes nodes: ``make_bench(seed=3, maxmemory=1_000_000, password=b"pw")``."""
    return Bench
