"""The store in a Redis: several stores at once, and failures of Redis."""

import random
from collections import Counter

import pytest
import trio

from disque_bananaq.core.requests import (
    Ack,
    Add,
    Get,
    Last,
    Next,
    Request,
    Status,
    from_now,
)
from disque_bananaq.core.results import Result
from disque_bananaq.redis_store.store import RedisStore
from packages.bananaq.tests.support.redis_drive import (
    RedisDrive,
    RedisServer,
    plain_client,
    running,
    serving,
    until,
)
from packages.bananaq.tests.support.store_semantics import (
    MINUTE,
    MS,
    ack,
    add,
    body,
    counts,
    flush,
    get,
    status,
    try_add,
    try_get,
)
from tests.support.harness import HANG_SECONDS

pytestmark = pytest.mark.live


SCRIPTS = ("eval", "evalsha")


def adding(queue: bytes, text: bytes, expire: int = MINUTE) -> Add:
    return Add(queue, text, from_now(expire))


def getting(queue: bytes, group: bytes, hold: int = MINUTE) -> Get:
    return Get(queue, group, from_now(hold))


async def test_two_daemons_deliver_each_event_once_to_each_group(
    banana_redis: RedisServer, prefix: str
) -> None:
    events = 10_000
    seen = {group: Counter[bytes]() for group in (b"g", b"h")}
    given: dict[bytes, set[bytes]] = {b"g": set(), b"h": set()}
    chance = random.Random(7)

    async def produce(drive: RedisDrive, first: int) -> None:
        for start in range(first, events, 100):
            if start // 50 % 2 == first // 50:
                await drive.run_all([adding(b"q", b"%d" % n) for n in range(start, start + 50)])

    async def consume(drive: RedisDrive, group: bytes) -> None:
        while len(seen[group]) < events:
            gets = [getting(b"q", group, chance.choice((20 * MS, MINUTE))) for _ in range(20)]
            acks = []
            bodies = []
            for request, got in zip(gets, await drive.run_all(gets), strict=True):
                assert got.error == ""
                if got.event is None:
                    continue
                assert got.event.id not in given[group]  # never the same delivery twice
                given[group].add(got.event.id)
                if request.hold[0] < MINUTE and chance.random() < 0.1:
                    continue  # misses its deadline
                acks.append(Ack(b"q", group, got.event.id))
                bodies.append(got.event.body)
            for text, done in zip(bodies, await drive.run_all(acks), strict=True):
                if done.count:
                    seen[group][text] += 1
            if not acks:
                await trio.sleep(0.002)

    async with (
        running(banana_redis.port, prefix=prefix, pool_size=2) as one,
        running(banana_redis.port, prefix=prefix, pool_size=2) as two,
    ):
        with trio.fail_after(HANG_SECONDS):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(produce, one, 0)
                nursery.start_soon(produce, two, 50)
                for group in seen:
                    for drive in (one, two):
                        nursery.start_soon(consume, drive, group)
        for group, counted in seen.items():
            assert counted == Counter({b"%d" % n: 1 for n in range(events)})
            assert await counts(one, b"q", group) == (events, 0, 0, events, 0)


async def test_operations_of_one_queue_are_executed_in_order(
    banana_redis: RedisServer, prefix: str
) -> None:
    async with running(banana_redis.port, prefix=prefix) as drive:
        for _ in range(3):
            requests: list[Request] = []
            for n in range(400):
                requests += [adding(b"q", b"%d" % n), getting(b"q", b"g", 0)]
                if n % 100 == 50:
                    with plain_client(banana_redis.port) as client:
                        client.script_flush()
            results = await drive.run_all(requests)
            assert [result.event.body for result in results[1::2] if result.event] == [
                b"%d" % n for n in range(400)
            ]


async def test_large_bodies_come_in_several_replies(banana_redis: RedisServer, prefix: str) -> None:
    async with running(banana_redis.port, prefix=prefix) as drive:
        bodies = [bytes([n]) * 700_000 for n in range(20)]
        await drive.run_all([adding(b"q", text) for text in bodies])
        *results, late = await drive.run_all([getting(b"q", b"g") for _ in range(21)])
        assert [result.event.body for result in results if result.event] == bodies
        assert late.event is None
        assert late.due > 0


@pytest.mark.parametrize("suffix", ["m", "ids", "exp", "body"])
async def test_a_key_of_another_type_is_an_error_and_stays(
    banana_redis: RedisServer, prefix: str, suffix: str
) -> None:
    with plain_client(banana_redis.port) as raw:
        raw.set(f"{prefix}:{{q=q}}:{suffix}", "mine")
        async with running(banana_redis.port, prefix=prefix) as drive:
            result = await drive.run(adding(b"q", b"1"))
            assert result.error.startswith("ERR server-side error: WRONGTYPE")
            assert result.id == b""
            assert not result.unsure
            assert await add(drive, b"other", b"1")
        assert raw.get(f"{prefix}:{{q=q}}:{suffix}") == b"mine"


@pytest.mark.parametrize("suffix", ["p", "r"])
async def test_a_group_key_of_another_type_stops_only_that_group(
    banana_redis: RedisServer, prefix: str, suffix: str
) -> None:
    with plain_client(banana_redis.port) as raw:
        async with running(banana_redis.port, prefix=prefix) as drive:
            key = f"{prefix}:{{q=q}}:g:g:{suffix}"
            raw.set(key, "mine")
            requests = [adding(b"q", b"1"), getting(b"q", b"g"), getting(b"q", b"h")]
            added, refused, got = await drive.run_all(requests)
            assert added.id
            assert refused.error.startswith("ERR server-side error: WRONGTYPE")
            assert got.event is not None
            assert raw.get(key) == b"mine"
            raw.delete(key)
            assert await body(drive, b"q", b"g") == b"1"


async def test_a_full_redis_accepts_no_events_but_delivers_them(own_redis: RedisServer) -> None:
    async with running(own_redis.port) as drive:
        for n in range(3):
            await add(drive, b"q", b"%d" % n)
        held = await get(drive, b"q", b"g", 1000 * MS)
        again = await get(drive, b"q", b"g")
        with plain_client(own_redis.port) as raw:
            raw.config_set("maxmemory", 1)
            requests = [getting(b"q", b"new"), adding(b"q", b"x"), getting(b"q", b"new")]
            results = await drive.run_all(requests)
            assert results[1].error.startswith("ERR server-side error: OOM")
            assert not results[1].unsure
            got = [result.event for result in (results[0], results[2])]
            assert [event.body for event in got if event] == [b"0", b"1"]
            one = await drive.run(adding(b"q", b"x"))
            assert "OOM" in one.error
            assert await ack(drive, b"q", b"g", again.id) == 1
            await drive.advance(1500)
            assert (await get(drive, b"q", b"g")).id == held.id + b"_2"
            assert (await try_get(drive, b"q", b"alone")).event is not None
            await flush(drive, b"q")
            assert await status(drive, []) == []
            raw.config_set("maxmemory", 0)
        await add(drive, b"q", b"room")
        assert await body(drive, b"q", b"g") == b"room"


async def test_an_event_whose_body_was_evicted_is_skipped(
    banana_redis: RedisServer, prefix: str
) -> None:
    async with running(banana_redis.port, prefix=prefix) as drive:
        ids = [await add(drive, b"q", b"%d" % n) for n in range(4)]
        assert await body(drive, b"q", b"g", 50 * MS) == b"0"
        with plain_client(banana_redis.port) as raw:
            raw.hdel(f"{prefix}:{{q=q}}:body", ids[0], ids[2])
        await drive.advance(100)
        assert [await body(drive, b"q", b"g") for _ in range(3)] == [b"1", b"3", None]
        assert await counts(drive, b"q", b"g") == (2, 2, 0, 0, 0)


async def test_all_keys_expire_some_time_after_the_last_event(
    banana_redis: RedisServer, prefix: str
) -> None:
    async with running(banana_redis.port, prefix=prefix) as drive:
        drive.store.enter(b"q", b"g", 1)
        await try_add(drive, b"q", b"1", own_id=b"x", group=b"g")
        await try_add(drive, b"q", b"2", own_id=b"y", group=b"g", front=True)
        await add(drive, b"q", b"3", 10 * MINUTE)
        await add(drive, b"over", b"3", -1)
        await get(drive, b"q", b"g")
        await get(drive, b"q", b"g", 0)
        await get(drive, b"q", b"h", 50 * MS)
        await drive.advance(100)
        await get(drive, b"q", b"h", 50 * MS)
        await drive.advance(100)
        await get(drive, b"q", b"h", 0)
        await try_get(drive, b"none", b"g")
        await flush(drive, b"flushed")
        with plain_client(banana_redis.port) as raw:
            keys = list(raw.scan_iter(f"{prefix}:*"))
            assert len(keys) >= 10
            assert [key for key in keys if raw.ttl(key) < 1] == []
            assert 660 <= raw.ttl(f"{prefix}:{{q=q}}:body") <= 3600


async def test_ended_events_are_removed(banana_redis: RedisServer, prefix: str) -> None:
    async with running(banana_redis.port, prefix=prefix) as drive:
        await drive.run_all([adding(b"q", b"%d" % n, 50 * MS) for n in range(500)])
        await drive.run_all([getting(b"q", b"g") for _ in range(300)])
        await add(drive, b"q", b"long")  # after the gets, for which the others may all have ended
        await drive.advance(250)
        assert await counts(drive, b"q", b"g") == (1, 0, 0, 0, 1)
        with plain_client(banana_redis.port) as raw:
            sizes = {
                key.decode().rpartition(":")[2]: raw.execute_command("HLEN", key)
                if raw.type(key) == b"hash"
                else raw.zcard(key)
                for key in raw.scan_iter(f"{prefix}:*")
            }
        assert {name: size for name, size in sizes.items() if name != "m"} == {
            "ids": 1,
            "exp": 1,
            "body": 1,
        }


async def test_consumers_are_counted_across_all_daemons(
    banana_redis: RedisServer, prefix: str
) -> None:
    async def consumers() -> list[tuple[bytes, int]]:
        found = await status(one, [])
        return [(g.group, g.consumers) for queue in found for g in queue.groups]

    async with running(banana_redis.port, prefix=prefix) as one:
        async with running(banana_redis.port, prefix=prefix) as two:
            for drive in (one, two):
                drive.store.enter(b"q:", b"g:%", 1)
            two.store.enter(b"q:", b"g:%", 2)
            two.store.enter(b"q:", b"h", 2)
            await status(two, [b"q:"])
            assert await consumers() == [(b"g:%", 3), (b"h", 1)]
            two.store.leave(b"q:", b"h", 2)
            await status(two, [b"q:"])
            assert await consumers() == [(b"g:%", 3)]
        # The other one has disconnected, and has said so.
        assert await consumers() == [(b"g:%", 1)]
        with plain_client(banana_redis.port) as raw:
            [member] = raw.zrange(f"{prefix}:{{q=q%3A}}:c", 0, -1)
            raw.zadd(f"{prefix}:{{q=q%3A}}:c", {member: 1})
        assert await consumers() == []


async def test_a_waiting_client_notices_what_others_do(
    banana_redis: RedisServer, prefix: str
) -> None:
    async with (
        running(banana_redis.port, prefix=prefix) as one,
        running(banana_redis.port, prefix=prefix) as two,
    ):
        await one.watch(b"q", b"g")
        one.available.clear()
        await add(two, b"other", b"1")
        await add(two, b"q", b"1")
        assert await one.told(b"q", b"g")
        assert {queue for queue, _ in one.available} == {b"q"}
        one.available.clear()
        # A short deadline: waiting clients look again when it has passed.
        await get(two, b"q", b"g", 1900 * MS)
        assert await one.told(b"q", b"g")
        due = (await try_get(one, b"q", b"g")).due
        assert await one.now() < due < await one.now() + 1900 * MS


async def test_a_waiting_client_is_woken_now_and_then_in_any_case(
    banana_redis: RedisServer, prefix: str
) -> None:
    async with running(banana_redis.port, prefix=prefix, poll_seconds=0.01) as drive:
        await drive.watch(b"q", b"g")
        await until(lambda: drive.available.count((b"q", b"g")) >= 3)
        drive.store.unwatch(b"q", b"g")
        drive.available.clear()
        await trio.sleep(0.05)
        assert drive.available == []


async def test_replies_that_arrive_together_are_reported_once(
    banana_redis: RedisServer, prefix: str
) -> None:
    async with running(banana_redis.port, prefix=prefix) as drive:
        await drive.run_all([adding(b"q", b"") for _ in range(200)])
        assert drive.ends == 1


async def test_redis_may_be_restarted_at_any_time(own_redis: RedisServer) -> None:
    async with running(own_redis.port) as drive:
        first = await get_after_adding(drive)
        await drive.watch(b"q", b"g")
        own_redis.stop()
        requests = [adding(b"q", b"x"), getting(b"q", b"g"), Status([], []), Last(b"q")]
        results = await drive.run_all(requests)
        assert all(result.error.startswith("ERR server-side error:") for result in results)
        with trio.fail_after(HANG_SECONDS):
            for _ in range(100):  # fails at once while Redis is down
                assert (await drive.run(adding(b"q", b"x"))).error
        drive.available.clear()
        own_redis.start()
        with trio.fail_after(HANG_SECONDS):
            while (await drive.run(Next(b"q", b"g"))).error:
                await trio.sleep(0.01)
        assert await drive.told(b"q", b"g")  # an event may have been missed
        drive.available.clear()
        assert await ack(drive, b"q", b"g", first) == 1
        await add(drive, b"q", b"new")
        assert await drive.told(b"q", b"g")
        assert await body(drive, b"q", b"g") == b"second"


async def get_after_adding(drive: RedisDrive) -> bytes:
    await add(drive, b"q", b"first")
    await add(drive, b"q", b"second")
    return (await get(drive, b"q", b"g")).id


async def test_an_operation_without_a_reply_may_have_been_executed(own_redis: RedisServer) -> None:
    async with running(own_redis.port, pool_size=1) as drive:
        await add(drive, b"q", b"1")
        results: list[Result] = []

        async def run() -> None:
            results.extend(await drive.run_all([getting(b"q", b"g", 0), adding(b"other", b"1")]))

        with plain_client(own_redis.port) as raw:
            raw.execute_command("CLIENT", "PAUSE", 10_000, "WRITE")

            def waiting() -> list[str]:
                return [row["id"] for row in raw.client_list() if "b" in row["flags"]]

            async with trio.open_nursery() as nursery:
                nursery.start_soon(run)
                await until(waiting)
                raw.client_kill_filter(_id=waiting()[0])
            raw.execute_command("CLIENT", "UNPAUSE")
        assert len(results) == 2
        assert all(result.error and result.unsure for result in results)


async def test_a_redis_that_was_never_reachable_is_a_clear_error() -> None:
    async with running(1, pool_size=1) as drive:
        result = await drive.run(adding(b"q", b"1"))
        assert result.error.startswith("ERR server-side error: Unable to establish a connection")
        assert not result.unsure


async def test_operations_wait_for_the_start_and_are_refused_after_the_end(
    banana_redis: RedisServer, prefix: str
) -> None:
    store = RedisStore(port=banana_redis.port, prefix=prefix)
    assert store.run(adding(b"q", b"1"), 0) is None
    async with serving(store):
        await until(lambda: store.answers)
    assert store.answers[0][1].id
    late = store.run(adding(b"q", b"1"), 0)
    assert late is not None
    assert late.error


async def test_the_cost_does_not_grow_with_the_number_of_events(own_redis: RedisServer) -> None:
    def cost() -> float:
        with plain_client(own_redis.port) as raw:
            stats = raw.info("commandstats")
            raw.config_resetstat()
            return float(sum(stats.get(f"cmdstat_{name}", {"usec": 0})["usec"] for name in SCRIPTS))

    async def work(drive: RedisDrive) -> float:
        best = 1e9
        for _ in range(5):
            cost()
            await drive.run_all([adding(b"q", b"x" * 100, 10 * MINUTE) for _ in range(250)])
            acks = []
            for got in await drive.run_all([getting(b"q", b"g") for _ in range(250)]):
                assert got.event is not None
                acks.append(Ack(b"q", b"g", got.event.id))
            assert all(result.count for result in await drive.run_all(acks))
            best = min(best, cost())
        return best

    with plain_client(own_redis.port) as raw:
        raw.config_set("appendonly", "no")
    async with running(own_redis.port, pool_size=1) as drive:
        await drive.run_all([adding(b"q", b"x" * 100, 10 * MINUTE) for _ in range(1000)])
        few = await work(drive)
        for _ in range(20):
            await drive.run_all([adding(b"q", b"x" * 100, 10 * MINUTE) for _ in range(5000)])
        many = await work(drive)
    assert many < 3 * few
