"""Redises for the tests of bananaq, a store in one, and processes of bananaq."""

import itertools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.support.banana_fixtures import *  # noqa: F403
from tests.support.redis_drive import RedisServer, running
from tests.support.store_semantics import Drive

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


@pytest.fixture
async def store(banana_redis: RedisServer, prefix: str) -> AsyncIterator[Drive]:
    """An empty store in a Redis."""
    async with running(banana_redis.port, prefix=prefix, pool_size=2) as drive:
        yield drive
