"""Fixtures of bananaq's tests: each store, behind one way to drive it."""

import itertools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from banana_fixtures import *  # noqa: F403
from hypothesis import HealthCheck, settings
from redis_drive import RedisServer, running
from store_semantics import Drive, EmbeddedDrive

# A busy machine is no failure; and a failure prints how to repeat it.
settings.register_profile(
    "bananaq", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("bananaq")

_number = itertools.count(1)


@pytest.fixture(scope="session")
def banana_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A Redis that all tests share, so nobody stops it; each test has a prefix of its own."""
    server = RedisServer(tmp_path_factory.mktemp("banana-redis"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def prefix() -> str:
    """For the keys of this test."""
    return f"test{next(_number)}"


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[RedisServer]:
    """A Redis of the test's own, to stop and to start again. It keeps its data (AOF)."""
    server = RedisServer(tmp_path, "--appendonly", "yes", "--appendfsync", "always")
    server.start()
    yield server
    server.stop()


@pytest.fixture(params=["embedded", pytest.param("redis", marks=pytest.mark.live)])
async def store(request: pytest.FixtureRequest, prefix: str) -> AsyncIterator[Drive]:
    """An empty store; the test runs once with each kind."""
    if request.param == "embedded":
        yield EmbeddedDrive()
        return
    server: RedisServer = request.getfixturevalue("banana_redis")
    async with running(server.port, prefix=prefix, pool_size=2) as drive:
        yield drive
