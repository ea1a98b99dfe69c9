"""Clients of the shared node, traced."""

from collections.abc import Iterator

import pytest

from packages.integrations.tests.support.spans import Traces, traced


@pytest.fixture
def traces() -> Iterator[Traces]:
    """The traces of the test."""
    with traced() as traces:
        yield traces
