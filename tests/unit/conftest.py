"""Fixtures of the unit tests: a node whose time is moved by hand."""

from collections.abc import Callable

import pytest

from tests.support.node_bench import Bench


@pytest.fixture
def bench() -> Bench:
    """One node with no memory limit and no password."""
    return Bench()


@pytest.fixture
def make_bench() -> Callable[..., Bench]:
    """Makes nodes: ``make_bench(seed=3, maxmemory=1_000_000, password=b"pw")``."""
    return Bench
