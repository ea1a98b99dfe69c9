"""Fixtures of the tests that start real processes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.live_helpers import session_node, shared_node, talk
from tests.support.pressure_helpers import RedisServer
from tests.support.tls_front import Certificates, all_certificates

__all__ = ["session_node", "shared_node", "talk"]


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Good and bad certificates, which all tests share."""
    return all_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def redis_port(tmp_path: Path) -> Iterator[str]:
    """The port of a Redis that the test has for itself."""
    server = RedisServer(tmp_path)
    server.start()
    yield str(server.port)
    server.stop()
