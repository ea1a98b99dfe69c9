"""Waiting, many elements, timeouts, settings, and a Redis that goes away."""

import os
import threading

import coredis
import pytest
import trio

from disque_pressure import (
    PressureConnectionError,
    PressureQueue,
    QueueClosedError,
    QueueDoesNotExistError,
    QueueEmptyError,
    QueueFullError,
)
from disque_pressure.client_id import client_id
from disque_pressure.reading import reading
from disque_pressure.settings import Settings, resolve
from packages.pressure.tests.support.pressure_helpers import Child, Spot, blocked
from tests.support.harness import HANG_SECONDS
from tests.support.redis_server import RedisServer, plain_client, until

SINGLES = int(os.environ.get("PRESSURE_SINGLES", "10000"))  # more with ``make soak``


async def test_a_put_waits_until_there_is_space(spot: Spot) -> None:
    async with spot.queue() as q, spot.queue() as other, trio.open_nursery() as nursery:
        await q.create(1)
        await q.put(b"a")
        nursery.start_soon(q.put, b"b")
        await blocked(spot.raw)
        assert spot.tokens() == (0, 1, 0, 0)
        assert await other.get() == b"a"
        assert await other.get() == b"b"
    assert spot.tokens() == (1, 1, 1, 0)


async def test_a_get_waits_until_there_is_an_element(spot: Spot) -> None:
    got: list[bytes] = []

    async def get(q: PressureQueue) -> None:
        got.append(await q.get())

    async with spot.queue() as q, spot.queue() as other:
        await q.create(1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(get, q)
            await blocked(spot.raw, 2)
            assert spot.tokens() == (1, 0, 1, 0)
            await other.put(b"a")
        assert got == [b"a"]
    assert spot.tokens() == (1, 1, 1, 0)


async def test_a_blocked_get_ends_at_once_when_the_queue_is_closed(spot: Spot) -> None:
    got: list[bytes] = []
    async with spot.queue() as q, spot.queue() as other:
        await q.create()
        assert q._ready is not None
        q._ready._slice = 1000.0  # so that it does not look again by itself
        with trio.fail_after(HANG_SECONDS):
            async with trio.open_nursery() as nursery:

                async def drain() -> None:
                    got.extend([data async for data in q])

                nursery.start_soon(drain)
                await blocked(spot.raw, 2)
                await other.put(b"last")
                await other.close()
        assert got == [b"last"]
        assert spot.tokens() == (1, 1, 1, 2)


async def test_put_many_adds_as_space_permits_and_get_many_takes_what_is_available(
    spot: Spot,
) -> None:
    items = [b"%d" % n for n in range(50)]
    got: list[bytes] = []
    async with spot.queue() as q, spot.queue() as other:
        await q.create(7)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(q.put_many, items)
            while len(got) < 50:
                part = await other.get_many(5)
                assert 1 <= len(part) <= 5
                assert spot.raw.llen(spot.data) <= 7
                got += part
        assert got == items
        assert spot.tokens() == (1, 1, 1, 0)


async def test_put_many_reports_at_its_timeout_how_many_are_in(spot: Spot) -> None:
    async with spot.queue() as q:
        await q.create(3)
        with pytest.raises(QueueFullError) as caught:
            await q.put_many([b"a", b"b", b"c", b"d"], timeout=0.05)
        assert caught.value.done == 3
        assert await q.get_many(10) == [b"a", b"b", b"c"]
        assert spot.tokens() == (1, 1, 1, 0)


async def test_put_many_of_nothing_only_checks_the_queue(spot: Spot) -> None:
    async with spot.queue() as q:
        with pytest.raises(QueueDoesNotExistError):
            await q.put_many([])
        await q.create(1)
        await q.put(b"a")
        assert await q.put_many([]) == 0
        await q.close()
        with pytest.raises(QueueClosedError):
            await q.put_many([])
        assert spot.tokens() == (1, 1, 0, 2)


async def test_elements_that_exceed_one_script_call_stay_in_order(spot: Spot) -> None:
    items = [b"%d" % n for n in range(3500)] + [bytes([n]) * 400_000 for n in range(10)]
    async with spot.queue() as q:
        await q.create()
        assert await q.put_many(iter(items)) == len(items)
        got: list[bytes] = []
        while len(got) < len(items):
            got += await q.get_many(999)
        assert got == items
        assert spot.keys().isdisjoint({"lease:producer", "held:producer"})


async def test_a_large_get_takes_no_more_than_one_reply_can_carry(spot: Spot) -> None:
    small, large = [b"%d" % n for n in range(3000)], [bytes([n]) * 1_000_000 for n in range(40)]
    async with spot.queue() as q:
        await q.create()
        await q.put_many(large + small)
        assert len(await q.get_many(10**9)) < 20
        while (await q.length()) > len(small):
            await q.get()
        assert await q.get_many(10**9) == small[:1000]
        assert spot.raw.get(spot.key("stats:consumed_messages")) == b"1040"


async def test_a_peek_is_limited_to_what_one_reply_can_carry(spot: Spot) -> None:
    items = [bytes([n]) * 1_000_000 for n in range(40)] + [b"%d" % n for n in range(25)]
    async with spot.queue() as q:
        await q.create()
        await q.put_many(items)
        got: list[bytes] = []
        async with reading(q) as reader:
            while len(got) < len(items):
                part = await reader.look(100)
                assert len(part) < 40
                assert await reader.remove(part) == []
                got += part
        assert got == items


async def test_elements_that_were_read_in_parts_are_removed_together(spot: Spot) -> None:
    items = [bytes([n]) * 1_000_000 for n in range(40)]
    async with spot.queue() as q:
        await q.create()
        await q.put_many(items)
        async with reading(q) as reader:
            assert await reader.remove(items[:30]) == []
        assert await q.length() == 10


@pytest.mark.parametrize("wrong", ["text", 5, None])
async def test_elements_are_bytes(spot: Spot, wrong: object) -> None:
    async with spot.queue() as q:
        await q.create()
        with pytest.raises(TypeError):
            await q.put(wrong)  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            await q.put_many([b"a", wrong])  # type: ignore[list-item]
        with pytest.raises(TypeError):
            await q.put_many(b"abc")  # type: ignore[arg-type]
        assert await q.length() == 0


async def test_wrong_arguments_are_refused(spot: Spot) -> None:
    async with spot.queue() as q:
        await q.create()
        for timeout in (-1, float("nan")):
            with pytest.raises(ValueError, match="timeout"):
                await q.get(timeout)
        with pytest.raises(ValueError, match="0"):
            await q.get_many(0)
        with pytest.raises(ValueError, match="butler"):
            await q.repair("butler")
    with pytest.raises(ValueError, match="lease"):
        spot.queue(lease=0)
    with pytest.raises(PressureConnectionError, match="async with"):
        await spot.queue().put(b"x")


@pytest.mark.load  # when it ends is the question
async def test_one_deadline_applies_to_everything_a_put_waits_for(spot: Spot) -> None:
    async with spot.queue() as q, spot.queue() as other, trio.open_nursery() as nursery:
        await q.create(1)
        await q.put(b"a")
        async with other.producer():
            nursery.start_soon(expect_full, q, 0.6)
            await blocked(spot.raw)
        # The role is free; the queue is still full.
    assert spot.tokens() == (1, 1, 0, 0)


async def expect_full(q: PressureQueue, timeout: float) -> None:
    started = trio.current_time()
    with pytest.raises(QueueFullError):
        await q.put(b"b", timeout)
    assert timeout <= trio.current_time() - started < timeout + 10


async def test_an_error_in_the_block_is_raised_unchanged(spot: Spot) -> None:
    with pytest.raises(QueueDoesNotExistError):
        async with spot.queue() as q:
            await q.get()
    with pytest.raises(ZeroDivisionError):
        async with spot.queue():
            raise ZeroDivisionError
    with trio.CancelScope() as scope:
        async with spot.queue() as q:
            await q.create()
            scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught


async def test_closing_the_handle_ends_waiting_operations(spot: Spot) -> None:
    async with spot.queue() as q:
        await q.create()
        async with trio.open_nursery() as nursery:

            async def get() -> None:
                with pytest.raises(PressureConnectionError):
                    await q.get()

            nursery.start_soon(get)
            await blocked(spot.raw, 2)
            await q.aclose()
        with pytest.raises(PressureConnectionError):
            await q.put(b"x")


async def test_stats_equal_those_in_the_keys(spot: Spot) -> None:
    async with spot.queue(lease=20) as q:
        await q.create(3)
        await q.put_many([b"ab", b"cde"])
        await q.get()
        async with q.producer():
            stats = await q.stats()
        assert (stats.length, stats.bound, stats.closed, stats.not_full) == (1, 3, False, True)
        assert (stats.producer, stats.consumer) == (q.uid, q.uid)
        assert (stats.producer_free, stats.consumer_free) == (False, True)
        assert (stats.produced_messages, stats.produced_bytes) == (2, 5)
        assert (stats.consumed_messages, stats.consumed_bytes) == (1, 2)
        assert stats.producer_lease is not None
        assert 15 < stats.producer_lease <= 20
        assert stats.consumer_lease is None
        assert await q.length() == await q.qsize() == 1


async def test_a_client_id_names_process_thread_and_task() -> None:
    ids = {client_id()}

    async def task() -> None:
        assert client_id() == client_id()
        ids.add(client_id())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(task)
        nursery.start_soon(task)
    ids.add(await trio.to_thread.run_sync(client_id))
    assert len(ids) == 4
    assert all(f"_pid{os.getpid()}_thread" in name for name in ids)
    assert client_id().split("_thread")[1].startswith(str(threading.get_native_id()))


def test_arguments_take_precedence_over_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert resolve() == Settings("127.0.0.1", 6379, 0, "__pressure__")
    monkeypatch.setenv("REDIS_SERVER", "example")
    monkeypatch.setenv("REDIS_PORT", "7000")
    monkeypatch.setenv("REDIS_DB", "2")
    monkeypatch.setenv("PRESSURE_PREFIX", "p")
    assert resolve() == Settings("example", 7000, 2, "p")
    assert resolve("h", 1, 0, "x") == Settings("h", 1, 0, "x")
    monkeypatch.setenv("REDIS_PORT", "many")
    with pytest.raises(ValueError, match="REDIS_PORT"):
        resolve()


async def test_the_environment_and_the_database_select_the_queue(
    spot: Spot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDIS_PORT", str(spot.port))
    monkeypatch.setenv("REDIS_DB", "3")
    monkeypatch.setenv("PRESSURE_PREFIX", spot.prefix)
    async with PressureQueue("q") as q, spot.queue(db=0) as elsewhere:
        await q.create()
        assert await q.exists()
        assert not await elsewhere.exists()
        await q.delete()


async def test_a_client_tells_how_to_connect(spot: Spot) -> None:
    client = coredis.Redis(port=spot.port, db=4, decode_responses=True, stream_timeout=0.1)
    async with PressureQueue("q", client=client, prefix=spot.prefix) as q:
        await q.create()
        await q.put(b"\xff")
        assert await q.get() == b"\xff"
        with pytest.raises(QueueEmptyError):
            await q.get(timeout=0.3)
        await q.delete()


async def test_an_unreachable_redis_is_a_clear_error() -> None:
    async with PressureQueue("q", port=1) as q:
        for call in (q.create, q.exists, q.get, lambda: q.put(b"x"), q.delete, q.stats):
            with pytest.raises(PressureConnectionError, match=r"127\.0\.0\.1:1") as caught:
                await call()
            assert not caught.value.maybe_executed
            assert caught.value.queue == "q"


async def test_a_restart_of_redis_is_an_error_and_then_it_works_again(
    own_redis: RedisServer,
) -> None:
    errors: list[PressureConnectionError] = []

    async def expect_error(q: PressureQueue) -> None:
        with pytest.raises(PressureConnectionError) as caught:
            await q.get()
        errors.append(caught.value)

    async with PressureQueue("q", port=own_redis.port, lease=1) as q:
        await q.create(100)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(expect_error, q)
            await until(lambda: q_is_consumed(own_redis))
            own_redis.stop()
        assert len(errors) == 1
        with pytest.raises(PressureConnectionError):
            await q.put(b"x")
        own_redis.start()
        # Scripts are loaded again; the role that could not be released is free after the lease.
        await q.put(b"x")
        with trio.fail_after(HANG_SECONDS):
            assert await q.get() == b"x"
        assert (await q.stats()).consumer_free


def q_is_consumed(server: RedisServer) -> bool:
    """Return whether the queue has a consumer and two connections wait."""
    with plain_client(server.port) as client:
        waiting = sum("b" in row["flags"] for row in client.client_list())
        return waiting == 2 and client.llen("__pressure__:q:consumer_free") == 0


async def test_a_server_that_lost_the_scripts_gets_them_again(spot: Spot) -> None:
    async with spot.queue() as q:
        await q.create()
        await q.put(b"a")
        spot.raw.script_flush()
        await q.put(b"b")
        assert await q.get_many(5) == [b"a", b"b"]
        assert spot.raw.get(spot.key("stats:produced_messages")) == b"2"


async def test_a_closed_connection_is_reopened(spot: Spot) -> None:
    async with spot.queue() as q:
        await q.create()
        for n in range(100):  # more often than a pool has connections
            for row in spot.raw.client_list():
                if row["cmd"] != "client|list":
                    spot.raw.client_kill_filter(_id=row["id"])
            try:
                await q.put(b"%d" % n)
            except PressureConnectionError:
                await q.put(b"%d" % n)
        got = await q.get_many(1000)
        assert sorted(set(got), key=int) == [b"%d" % n for n in range(100)]
        assert spot.tokens() == (1, 1, 1, 0)


PRODUCER = """
import sys, trio
from disque_pressure import PressureQueue
port, prefix, count, size = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
async def main():
    async with PressureQueue("q", port=port, prefix=prefix) as q:
        items = [b"%d" % n for n in range(count)]
        if size == 1:
            for item in items:
                await q.put(item)
        else:
            for start in range(0, count, size):
                assert await q.put_many(items[start:start + size]) == len(items[start:start + size])
        await q.close()
trio.run(main)
"""


async def some(q: PressureQueue) -> list[bytes]:
    """Return the next elements; none if the queue has ended."""
    try:
        return await q.get_many(101)
    except QueueClosedError:
        return []


@pytest.mark.parametrize(("count", "size"), [(100_000, 137), (SINGLES, 1)])
async def test_two_processes_pass_elements_in_order_and_complete(
    spot: Spot, count: int, size: int
) -> None:
    async with spot.queue() as q:
        await q.create(500)
        child = Child(PRODUCER, spot.port, spot.prefix, count, size)
        got: list[bytes] = []
        try:
            if size == 1:
                got = [data async for data in q]
            else:
                while not (await q.closed() and await q.length() == 0):
                    got += await some(q)
            assert await trio.to_thread.run_sync(child.wait) == 0
        finally:
            child.close()
        assert got == [b"%d" % n for n in range(count)]
        stats = await q.stats()
        assert stats.produced_messages == stats.consumed_messages == count
        assert stats.produced_bytes == stats.consumed_bytes == sum(map(len, got))
        assert spot.tokens() == (1, 1, 1, 2)


async def test_a_wait_continues_after_its_connection_breaks(spot: Spot) -> None:
    async with spot.queue() as q, spot.queue() as other:
        await q.create(1)
        async with trio.open_nursery() as nursery:

            async def get() -> None:
                assert await q.get() == b"a"

            nursery.start_soon(get)
            await blocked(spot.raw, 2)
            killed = [row["id"] for row in spot.raw.client_list() if "b" in row["flags"]]
            for number in killed:
                spot.raw.client_kill_filter(_id=number)

            def waits_again() -> bool:
                rows = spot.raw.client_list()
                return sum("b" in row["flags"] and row["id"] not in killed for row in rows) == 2

            await until(waits_again)
            await other.put(b"a")
        assert spot.tokens() == (1, 1, 1, 0)


async def test_an_iteration_that_is_left_early_keeps_nothing(spot: Spot) -> None:
    async with spot.queue() as q:
        await q.create()
        await q.put_many([b"a", b"b"])
        async for data in q:
            assert data == b"a"
            break
        assert spot.tokens() == (1, 1, 1, 0)
        assert await q.get_many(5) == [b"b"]
