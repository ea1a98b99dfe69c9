"""The store in a Redis: operations in one call of the script see the effects of the previous
ones."""

import pytest

from disque_bananaq.core.requests import Ack, Add, Flush, Get, from_now
from packages.bananaq.tests.support.redis_drive import RedisServer, plain_client, running
from packages.bananaq.tests.support.store_semantics import (
    MINUTE,
    MS,
    add,
    counts,
    flush,
    get,
    status,
    try_get,
)

pytestmark = pytest.mark.live


def keys(server: RedisServer, prefix: str) -> list[str]:
    """Return the suffixes of the keys of the queue q."""
    with plain_client(server.port) as raw:
        start = f"{prefix}:{{q=q}}:"
        return sorted(
            key.decode().removeprefix(start)
            for key in raw.scan_iter(f"{prefix}:*")
            if key.startswith(start.encode())
        )


def getting(group: bytes) -> Get:
    return Get(b"q", group, from_now(MINUTE))


def adding_in_front(own_id: bytes) -> Add:
    return Add(b"q", b"first", from_now(MINUTE), b"okq", own_id, True)


async def test_a_flush_removes_what_was_created_in_the_same_call(
    banana_redis: RedisServer, prefix: str
) -> None:
    async with running(banana_redis.port, prefix=prefix) as drive:
        adding = Add(b"q", b"1", from_now(MINUTE), b"okq", None, False)
        _, given, _, _ = await drive.run_all(
            [adding, getting(b"g"), adding_in_front(b"x"), Flush(b"q")]
        )
        assert given.event is not None
        assert keys(banana_redis, prefix) == ["m"]
        acked = await drive.run(Ack(b"q", b"g", given.event.id))
        assert acked.count == 0
        assert (await try_get(drive, b"q", b"g")).due == 0
        assert await counts(drive, b"q", b"g") == (0, 0, 0, 0, 0)
        assert await counts(drive, b"q", b"okq") == (0, 0, 0, 0, 0)


async def test_a_group_starts_over_after_a_flush_in_the_same_call(
    banana_redis: RedisServer, prefix: str
) -> None:
    async with running(banana_redis.port, prefix=prefix) as drive:
        await add(drive, b"q", b"1")
        await get(drive, b"q", b"okq")
        await drive.run_all([getting(b"okq"), Flush(b"q"), adding_in_front(b"x")])
        [found] = await status(drive, [b"q"])
        assert [(one.group, one.redo) for one in found.groups] == [(b"okq", 1)]
        await flush(drive, b"q")
        assert keys(banana_redis, prefix) == ["m"]


async def test_a_group_starts_over_when_all_its_events_ended_before_the_call(
    banana_redis: RedisServer, prefix: str
) -> None:
    async with running(banana_redis.port, prefix=prefix) as drive:
        adding = Add(b"q", b"1", from_now(20 * MS), b"okq", None, False)
        _, given = await drive.run_all([adding, getting(b"okq")])
        assert given.event is not None
        await drive.advance(50)
        await drive.run_all([getting(b"okq"), adding_in_front(b"x")])
        [found] = await status(drive, [b"q"])
        assert [(one.group, one.redo) for one in found.groups] == [(b"okq", 1)]
        await flush(drive, b"q")
        assert keys(banana_redis, prefix) == ["m"]
