"""A real redis-server for the tests of queues, and clients that inspect its keys."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from packages.pressure.tests.support.pressure_helpers import Foreign, Spot
from tests.support.redis_server import RedisServer, plain_client

_number = itertools.count(1)


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("REDIS_SERVER", "REDIS_PORT", "REDIS_DB", "PRESSURE_PREFIX"):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A Redis that all tests share, so no test stops it. Each test has its own prefix."""
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[RedisServer]:
    """A Redis for one test, which may stop and restart it. It keeps its data (AOF)."""
    server = RedisServer(tmp_path, "--appendonly", "yes", "--appendfsync", "always")
    server.start()
    yield server
    server.stop()


@pytest.fixture
def raw(redis_server: RedisServer) -> Iterator["redis.Redis"]:
    """A plain client of the shared Redis that retries nothing."""
    with plain_client(redis_server.port) as client:
        yield client


@pytest.fixture
def spot(redis_server: RedisServer, raw: "redis.Redis") -> Iterator[Spot]:
    """The keys of a queue that nobody else uses. They are removed after the test."""
    prefix = f"test{next(_number)}"
    yield Spot(redis_server.port, prefix, "q", raw)
    for key in raw.scan_iter(f"{prefix}:*"):
        raw.delete(key)


@pytest.fixture
def foreign(redis_server: RedisServer, spot: Spot) -> Iterator[Foreign]:
    """A foreign client for the queue of ``spot``."""
    with plain_client(redis_server.port) as client:
        yield Foreign(client, spot.data)


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[RedisServer]]:
    """Two nodes of a cluster that share the slots."""
    servers = []
    for n in range(2):
        directory = tmp_path / str(n)
        directory.mkdir()
        servers.append(RedisServer(directory, "--cluster-enabled", "yes"))
        servers[n].start()
    clients = [plain_client(server.port) for server in servers]
    clients[0].execute_command("CLUSTER ADDSLOTSRANGE", 0, 8191)
    clients[1].execute_command("CLUSTER ADDSLOTSRANGE", 8192, 16383)
    clients[0].execute_command("CLUSTER MEET", "127.0.0.1", servers[1].port)
    yield servers
    for client in clients:
        client.close()
    for server in servers:
        server.stop()
