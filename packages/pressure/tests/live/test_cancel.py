"""A cancelled operation releases its role, and loses nothing."""

import gc
import random
from collections.abc import Awaitable, Callable
from typing import Any

import coredis
import pytest
import trio
from coredis.connection import TCPLocation

from disque_pressure import PressureError, PressureQueue
from packages.pressure.tests.support.pressure_helpers import Spot, blocked
from tests.support.harness import HANG_SECONDS
from tests.support.redis_server import until


async def cancel_when(
    spot: Spot, connections: int, operation: Callable[[], Awaitable[object]]
) -> None:
    """Start the operation, and cancel it once this many connections block in Redis."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(operation)
        await blocked(spot.raw, connections)
        nursery.cancel_scope.cancel()


async def test_a_cancelled_put_releases_its_role(spot: Spot) -> None:
    async with spot.queue(uid="me") as q:
        await q.create(1)
        await q.put(b"a")
        before = spot.values()
        await cancel_when(spot, 1, lambda: q.put(b"b"))
        assert spot.values() == before
        assert spot.keys().isdisjoint({"lease:producer", "held:producer"})


async def test_a_cancelled_get_releases_its_role(spot: Spot) -> None:
    async with spot.queue() as q:
        await q.create(1)
        await cancel_when(spot, 2, q.get)
        assert spot.tokens() == (1, 1, 1, 0)
        assert spot.keys().isdisjoint({"lease:consumer", "held:consumer"})
        await q.put(b"a")
        assert await q.get_nowait() == b"a"


@pytest.mark.parametrize("role", ["producer", "consumer"])
async def test_a_cancelled_wait_for_a_role_takes_nothing(spot: Spot, role: str) -> None:
    async with spot.queue() as q, spot.queue() as other:
        await q.create()
        holding = q.producer() if role == "producer" else q.consumer()
        async with holding:
            tokens = spot.tokens()
            waiting = (lambda: other.put(b"x")) if role == "producer" else other.get
            await cancel_when(spot, 1, waiting)
            assert spot.tokens() == tokens
        assert spot.tokens() == (1, 1, 1, 0)
        assert await other.length() == 0


async def test_a_cancelled_block_releases_its_role(spot: Spot) -> None:
    async with spot.queue() as q:
        await q.create()
        with trio.CancelScope() as scope:
            async with q.producer(), q.consumer():
                scope.cancel()
                await trio.sleep_forever()
        assert spot.tokens() == (1, 1, 1, 0)
        assert spot.keys() == {"bound", "producer", "consumer"} | {
            "producer_free",
            "consumer_free",
            "not_full",
        }


async def test_a_cancelled_close_leaves_the_queue_open(spot: Spot) -> None:
    async with spot.queue() as q, spot.queue() as other:
        await q.create()
        async with q.producer():
            await cancel_when(spot, 1, other.close)
        assert spot.tokens() == (1, 1, 1, 0)


@pytest.mark.parametrize("bound", [0, 1])
async def test_a_cancelled_delete_leaves_the_queue_as_it_was(spot: Spot, bound: int) -> None:
    async with spot.queue() as q, spot.queue() as other:
        await q.create(bound)
        await q.put(b"a")
        async with q.consumer():
            before = spot.values()
            await cancel_when(spot, 1, other.delete)
            assert spot.values() == before
            assert not spot.raw.exists(spot.key("held:delete"))
        assert await q.get() == b"a"


async def test_an_operation_that_is_cancelled_before_it_starts_does_nothing(spot: Spot) -> None:
    async with spot.queue() as q:
        await q.create()
        await q.put(b"a")
        before = spot.values()
        for call in (q.get, lambda: q.put(b"b"), q.close, q.delete):
            with trio.CancelScope() as scope:
                scope.cancel()
                await call()
            assert scope.cancelled_caught
        assert spot.values() == before


async def test_with_random_cancellations_each_element_arrives_once_and_in_order(spot: Spot) -> None:
    rng = random.Random(7)
    total = 400
    got: list[bytes] = []

    async def produce(q: PressureQueue) -> None:
        n, slower = 0, 1.0
        while n < total:
            with trio.move_on_after(slower * rng.choice((0, 0.0005, 0.002, 0.01))) as scope:
                await q.put(b"%d" % n)
                n += 1
            # Otherwise, a slow machine would never finish.
            slower *= 1.02 if scope.cancelled_caught else 0.98

    async def consume(q: PressureQueue) -> None:
        slower = 1.0
        while len(got) < total:
            with trio.move_on_after(slower * rng.choice((0, 0.0005, 0.002, 0.01))) as scope:
                got.append(await q.get())
            slower *= 1.02 if scope.cancelled_caught else 0.98

    async with spot.queue() as q, spot.queue() as other:
        await q.create(3)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(produce, q)
            nursery.start_soon(consume, other)
        assert got == [b"%d" % n for n in range(total)]
        assert spot.tokens() == (1, 1, 1, 0)
        stats = await q.stats()
        assert stats.produced_messages == stats.consumed_messages == total


async def test_many_cancelled_waits_need_no_more_connections(spot: Spot) -> None:
    async with spot.queue() as q:
        await q.create()
        await cancel_when(spot, 2, q.get)
        connections = len(spot.raw.client_list())
        for _ in range(150):
            with trio.move_on_after(0.001):
                await q.get()
        assert len(spot.raw.client_list()) <= connections
        await q.put(b"a")
        assert await q.get() == b"a"
    await until(lambda: len(spot.raw.client_list()) < connections)


async def test_a_handle_that_was_cancelled_while_connecting_works_afterwards(spot: Spot) -> None:
    async with spot.queue() as first:
        await first.create()
    for n in range(100):
        async with spot.queue() as q:
            with trio.move_on_after(n * 0.00004):
                await q.stats()
            with trio.move_on_after(n * 0.00004):
                await q.get()
            assert (await q.stats()).consumer_free


@pytest.mark.parametrize("seconds", [0, 0.0002, 0.001])
async def test_a_handle_opened_in_a_cancelled_scope_ends(spot: Spot, seconds: float) -> None:
    for _ in range(10):
        with trio.fail_after(HANG_SECONDS), trio.move_on_after(seconds):
            async with spot.queue() as q:
                await q.exists()


async def test_connections_that_fail_to_open_leave_nothing_open(spot: Spot) -> None:
    # An unclosed connection warns when it is garbage-collected, which is an error here.
    rng = random.Random(5)
    nobody = coredis.Sentinel([TCPLocation("127.0.0.1", 1)]).primary_for("main")
    wrong = coredis.Redis(port=spot.port, password="wrong")

    async def one() -> None:
        options: dict[str, Any] = rng.choice(({}, {"client": nobody}, {"client": wrong}))
        with trio.move_on_after(rng.random() * 0.01):
            try:
                async with spot.queue(**options) as q:
                    with trio.move_on_after(rng.random() * 0.01):
                        await rng.choice((q.create, q.exists, q.get, q.stats))()
            except PressureError:
                pass

    with trio.fail_after(HANG_SECONDS):
        for _ in range(5):
            async with trio.open_nursery() as nursery:
                for _ in range(20):
                    nursery.start_soon(one)
    gc.collect()
