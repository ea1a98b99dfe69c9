"""Fixtures for tests that run bananaq processes, imported by ``conftest``."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from packages.bananaq.tests.support.banana_daemons import (
    Daemon,
    RedisCluster,
    RedisServer,
    launch,
    redis_options,
)

__all__ = [
    "bananaq",
    "cluster_of_redis",
    "kind",
    "queue",
    "run_bananaq",
    "shared_embedded",
    "shared_redis",
]

DaemonFactory = Callable[..., Daemon]

_number = itertools.count(1)


@pytest.fixture(params=["embedded", "redis"])
def kind(request: pytest.FixtureRequest) -> str:
    """The kind of store: the test runs once with each."""
    return str(request.param)


@pytest.fixture
def queue() -> str:
    """A queue name that nobody else uses."""
    # The suffix keeps derived names distinct: "live1" with "2" appended could be another test's
    # name.
    return f"live{next(_number)}-"


@pytest.fixture(scope="session")
def shared_embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    daemon = launch(tmp_path_factory.mktemp("bananaq"))
    yield daemon
    daemon.close()


@pytest.fixture(scope="session")
def shared_redis(
    tmp_path_factory: pytest.TempPathFactory, banana_redis: RedisServer
) -> Iterator[Daemon]:
    options = redis_options(banana_redis, "shared-daemon")
    daemon = launch(tmp_path_factory.mktemp("bananaq"), *options, kind="redis")
    yield daemon
    daemon.close()


@pytest.fixture
def bananaq(request: pytest.FixtureRequest, kind: str) -> Iterator[Daemon]:
    """A daemon of each kind, shared by all tests: do not stop it or change its settings."""
    daemon: Daemon = request.getfixturevalue(f"shared_{kind}")
    yield daemon
    daemon.hang_up()


@pytest.fixture
def run_bananaq(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DaemonFactory]:
    """Starts daemons for one test: ``run_bananaq("redis", "--hz", "100")``. They end with the test.
    On the shared Redis they have separate keys; ``redis=`` names another Redis."""
    daemons: list[Daemon] = []

    def run(kind: str, *options: str, redis: RedisServer | None = None) -> Daemon:
        if kind == "redis":
            prefix = f"own{next(_number)}"
            if redis is None:
                redis = request.getfixturevalue("banana_redis")
            else:
                prefix = "own"
            options = (*redis_options(redis, prefix), *options)
        daemon = launch(tmp_path / f"bananaq-{len(daemons)}", *options, kind=kind)
        daemons.append(daemon)
        return daemon

    yield run
    for daemon in daemons:
        daemon.close()


@pytest.fixture(scope="session")
def cluster_of_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    """A cluster of three nodes, shared by all tests."""
    cluster = RedisCluster(tmp_path_factory.mktemp("redis-cluster"))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
