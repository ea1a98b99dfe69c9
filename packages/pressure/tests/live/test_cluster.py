"""Queues in a Redis cluster, and behind a sentinel."""

from pathlib import Path

import coredis
import pytest
import redis
import trio
from coredis.connection import TCPLocation

from disque_pressure import PressureConnectionError, PressureQueue, ServerRefusedError
from disque_pressure.keys import tagged_prefix
from packages.pressure.tests.support.pressure_helpers import blocked, settled
from tests.support.harness import HANG_SECONDS
from tests.support.redis_server import RedisServer, plain_client


async def test_a_queue_is_found_on_the_node_that_has_its_slot(nodes: list[RedisServer]) -> None:
    await settled(nodes)
    client = coredis.RedisCluster("127.0.0.1", nodes[1].port)
    served = set()
    for number in range(4):
        prefix = tagged_prefix(f"p{number}")
        one = PressureQueue("q", port=nodes[0].port, prefix=prefix)
        two = PressureQueue("q", client=client, prefix=prefix)
        async with one as q, two as other, trio.open_nursery() as nursery:
            await q.create(1)
            nursery.start_soon(q.put_many, [b"a", b"b", b"c"])
            assert [await other.get() for _ in range(3)] == [b"a", b"b", b"c"]

            async def get(q: PressureQueue = other) -> None:
                assert await q.get() == b"d"

            nursery.start_soon(get)
            for index, server in enumerate(nodes):
                with plain_client(server.port) as raw:
                    if raw.execute_command("CLUSTER COUNTKEYSINSLOT", slot(raw, prefix)):
                        served.add(index)
                        await blocked(raw, 2)
            await q.put(b"d")
    assert served == {0, 1}
    for stream in client.connection_pool.cluster_layout._error_stream:
        stream.close()  # coredis does not


def slot(raw: "redis.Redis", prefix: str) -> int:
    return int(raw.execute_command("CLUSTER KEYSLOT", prefix))


async def test_a_queue_whose_keys_are_in_many_slots_is_a_clear_error(
    nodes: list[RedisServer],
) -> None:
    await settled(nodes)
    async with PressureQueue("q", port=nodes[0].port) as q:
        with pytest.raises(ServerRefusedError, match=r"slot.*braces"):
            await q.create()


async def test_a_sentinel_tells_which_redis_to_use(own_redis: RedisServer, tmp_path: Path) -> None:
    config = tmp_path / "sentinel.conf"
    config.write_text(f"sentinel monitor main 127.0.0.1 {own_redis.port} 1\n")
    directory = tmp_path / "sentinel"
    directory.mkdir()
    sentinel = RedisServer(directory, "--sentinel")
    sentinel.config = config
    sentinel.start()
    try:
        location = TCPLocation("127.0.0.1", sentinel.port)
        nobody = TCPLocation("127.0.0.1", 1)  # one of several sentinels may be down
        client = coredis.Sentinel([nobody, location]).primary_for("main")
        async with PressureQueue("q", client=client) as q:
            await q.create(1)
            await q.put(b"a")
            assert await q.get() == b"a"
            own_redis.stop()
            with pytest.raises(PressureConnectionError):
                await q.put(b"b")
            own_redis.start()
            with trio.fail_after(HANG_SECONDS):
                while True:
                    try:
                        await q.put(b"b")
                        break
                    except PressureConnectionError:
                        await trio.sleep(0.1)
            assert b"b" in await q.get_many(2)
        unknown = coredis.Sentinel([location]).primary_for("other")
        async with PressureQueue("q", client=unknown) as q:
            with pytest.raises(PressureConnectionError, match="no sentinel knows 'other'"):
                await q.create()
    finally:
        sentinel.stop()
