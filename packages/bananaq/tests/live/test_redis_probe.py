"""The state of the Redis is known soon, without an operation, and without waiting for it."""

import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from disque_bananaq.core.requests import Add, from_now
from disque_bananaq.redis_store.health import DOWN, HUNG, REFUSING, UP, Notice
from packages.bananaq.tests.support.banana_daemons import RedisCluster
from packages.bananaq.tests.support.redis_drive import (
    NEVER,
    RedisDrive,
    RedisServer,
    hung,
    plain_client,
    running,
    until,
)
from packages.bananaq.tests.support.store_semantics import MINUTE, add, body
from packages.bananaq.tests.support.store_semantics import status as all_status
from tests.support import ROOT
from tests.support.harness import HANG_SECONDS

pytestmark = pytest.mark.live

SOON = 0.02
Log = list[Notice]


@asynccontextmanager
async def watched(
    server: RedisServer, log: Log, **options: object
) -> AsyncIterator[tuple[RedisDrive, Callable[[], object]]]:
    """A store that monitors its Redis, and a function that returns the state."""
    options = {"probe_seconds": SOON, "tell": log.extend, "pool_size": 1} | options
    async with running(server.port, **options) as drive:
        yield drive, lambda: drive.store.info()["redis_link_status"]


async def looked(server: RedisServer, times: int = 2) -> None:
    """Wait until the store has probed the Redis this many more times."""
    with plain_client(server.port) as raw:

        def looks() -> int:
            stats = raw.info("commandstats")
            return int(stats.get("cmdstat_dbsize", {"calls": 0})["calls"])

        before = looks()
        await until(lambda: looks() >= before + times)


async def test_a_redis_that_goes_away_and_comes_back_is_noticed_without_an_operation(
    own_redis: RedisServer,
) -> None:
    log: Log = []
    async with watched(own_redis, log) as (drive, status):
        await until(lambda: status() == UP)
        assert 0 < int(drive.store.info()["redis_round_trip_us"]) < 10_000_000
        await add(drive, b"q", b"1")
        own_redis.stop()
        await until(lambda: status() == DOWN)
        own_redis.start()
        await until(lambda: status() == UP)
        assert drive.store.info()["redis_restarts"] == 1
        assert drive.store.info()["redis_errors"] == 0
    first, lost, *rest = log
    assert not first.urgent
    assert lost.urgent
    assert {line.event for line in rest} >= {"Redis is back", "Redis was restarted"}


async def test_a_redis_that_lost_its_data_is_reported_as_empty(own_redis: RedisServer) -> None:
    log: Log = []
    own_redis.stop()
    own_redis.options = ()  # no more AOF
    own_redis.start()
    async with watched(own_redis, log) as (drive, _):
        await add(drive, b"q", b"1")
        with plain_client(own_redis.port) as raw:
            before = raw.dbsize()
        await looked(own_redis)
        own_redis.stop()
        own_redis.start()
        await until(lambda: drive.store.info()["redis_restarts"] == 1)
        [line] = [line for line in log if "keys_before" in line.fields]
        assert line.urgent
        assert line.fields["keys"] == 0
        assert line.fields["keys_before"] == before > 0


async def test_a_hung_redis_is_noticed_and_waiting_clients_get_an_error(
    own_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("disque_bananaq.redis_store.probe.HUNG_SECONDS", 2)
    monkeypatch.setattr("disque_trio.redis.connection.REPLY_SECONDS", NEVER)
    log: Log = []
    async with watched(own_redis, log, reply_seconds=1) as (drive, status):
        await until(lambda: status() == UP)
        with hung(own_redis):
            await until(lambda: status() == HUNG)
            with trio.fail_after(HANG_SECONDS):
                result = await drive.run(Add(b"q", b"", from_now(MINUTE)))
            assert result.error
            assert drive.store.info()["redis_errors"] == 1
            assert drive.store.info()["redis_round_trip_us"] == -1
        await until(lambda: status() == UP)
        assert sum(line.urgent for line in log) == 1


async def test_a_redis_that_accepts_no_events_is_noticed(own_redis: RedisServer) -> None:
    log: Log = []
    async with watched(own_redis, log) as (drive, status):
        await until(lambda: status() == UP)
        with plain_client(own_redis.port) as raw:
            for bad, good in (
                (("CONFIG", "SET", "maxmemory", "1"), ("CONFIG", "SET", "maxmemory", "0")),
                (("REPLICAOF", "127.0.0.1", "1"), ("REPLICAOF", "NO", "ONE")),
                (
                    ("CONFIG", "SET", "min-replicas-to-write", "1"),
                    ("CONFIG", "SET", "min-replicas-to-write", "0"),
                ),
                (("CONFIG", "SET", "requirepass", "x"), ("CONFIG", "SET", "requirepass", "")),
            ):
                raw.execute_command(*bad)
                if "requirepass" in bad:
                    raw.execute_command("CLIENT", "KILL", "TYPE", "NORMAL", "SKIPME", "YES")
                await until(lambda: status() == REFUSING)
                raw.execute_command(*good)
                await until(lambda: status() == UP)
        before = len(log)
        for _ in range(3):
            await add(drive, b"q", b"1")
        assert len(log) == before


async def test_probing_leaves_nothing_behind(own_redis: RedisServer) -> None:
    async with watched(own_redis, [], prefix="mine") as (_, status):
        await looked(own_redis)
        assert status() == UP
        with plain_client(own_redis.port) as raw:
            assert raw.dbsize() == 0
            assert raw.info("persistence")["rdb_changes_since_last_save"] == 0
            assert raw.info("replication")["master_repl_offset"] == 0


async def test_a_user_without_the_right_to_probe_is_no_failure(own_redis: RedisServer) -> None:
    with plain_client(own_redis.port) as raw:
        raw.execute_command("ACL", "SETUSER", "default", "-info", "-dbsize")
    async with watched(own_redis, []) as (_, status):
        await until(lambda: status() == UP)


async def test_a_user_with_the_documented_rights_can_do_everything(
    own_redis: RedisServer,
) -> None:
    text = (ROOT / "packages" / "bananaq" / "docs" / "bananaq.md").read_text()
    [rights] = re.findall(r"`ACL SETUSER (bananaq .*?)`", text)
    with plain_client(own_redis.port) as raw:
        raw.execute_command("ACL", "SETUSER", *rights.replace("PASSWORD", "x").split())
    async with watched(own_redis, [], username="bananaq", password="x") as (drive, status):
        await until(lambda: status() == UP)
        await drive.watch(b"q", b"g")
        drive.store.enter(b"q", b"g", 1)
        await add(drive, b"q", b"1")
        assert await drive.told(b"q", b"g")
        assert await body(drive, b"q", b"g") == b"1"
        assert [found.queue for found in await all_status(drive, [])] == [b"q"]
        await looked(own_redis)
        assert status() == UP
        assert drive.store.info()["redis_errors"] == 0


async def test_the_end_of_the_store_is_no_failure_of_the_redis(own_redis: RedisServer) -> None:
    log: Log = []
    with plain_client(own_redis.port) as raw:
        async with watched(own_redis, log, probe_seconds=NEVER) as (drive, status):
            await until(lambda: status() == UP)
            raw.execute_command("CLIENT", "PAUSE", 10_000, "WRITE")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(drive.run, Add(b"q", b"", from_now(MINUTE)))
                await until(lambda: any("b" in row["flags"] for row in raw.client_list()))
                nursery.cancel_scope.cancel()
        raw.execute_command("CLIENT", "UNPAUSE")
    assert not [line for line in log if line.urgent]


async def test_the_state_is_true_even_before_the_first_probe() -> None:
    log: Log = []
    async with running(1, probe_seconds=NEVER, tell=log.extend, pool_size=1) as drive:
        await until(lambda: log)
        assert drive.store.info()["redis_link_status"] == DOWN
        assert len(log) == 1


async def test_a_cluster_is_in_the_state_of_its_worst_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("disque_bananaq.redis_store.probe.HUNG_SECONDS", 2)
    monkeypatch.setattr("disque_trio.redis.connection.REPLY_SECONDS", NEVER)
    cluster = RedisCluster(tmp_path)
    log: Log = []
    try:
        cluster.start()
        first, second, third = cluster.servers
        async with watched(first, log, cluster=True) as (drive, status):
            await until(lambda: drive.store.info()["redis_nodes_up"] == 3)
            assert status() == UP
            with hung(first):
                await until(lambda: status() != UP)
                assert drive.store.info()["redis_nodes"] == 3
            await until(lambda: drive.store.info()["redis_nodes_up"] == 3)
            with plain_client(third.port) as raw:
                raw.config_set("maxmemory", 1)
                await until(lambda: status() == REFUSING)
                assert drive.store.info()["redis_nodes_up"] == 2
                assert str(third.port) in str(log[-1].fields["redis"])
            second.stop()
            await until(lambda: status() == DOWN)
    finally:
        cluster.stop()
