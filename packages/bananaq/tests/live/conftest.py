"""Redis servers for the tests of bananaq, a store in one, and bananaq processes."""

import itertools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from packages.bananaq.tests.support.banana_fixtures import *  # noqa: F403
from packages.bananaq.tests.support.redis_drive import RedisServer, moved
from packages.bananaq.tests.support.store_semantics import Drive
from tests.support.tls_front import certificates  # noqa: F401

_number = itertools.count(1)


@pytest.fixture(scope="session")
def banana_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A Redis that all tests share, so no test stops it. Each test has its own prefix."""
    server = RedisServer(tmp_path_factory.mktemp("banana-redis"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def prefix() -> str:
    """The key prefix of this test."""
    return f"test{next(_number)}"


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[RedisServer]:
    """A Redis for one test, which may stop and restart it. It keeps its data (AOF)."""
    server = RedisServer(tmp_path, "--appendonly", "yes", "--appendfsync", "always")
    server.start()
    yield server
    server.stop()


@pytest.fixture
async def store(
    banana_redis: RedisServer, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Drive]:
    """An empty store in a Redis, whose clock the test moves."""
    async with moved(banana_redis.port, prefix, monkeypatch) as drive:
        yield drive
