"""Roles held for many operations, their leases, and repairs."""

import pytest
import trio

from disque_pressure import (
    QueueClosedError,
    QueueDoesNotExistError,
    QueueEmptyError,
    QueueFullError,
    QueueInUseError,
    RoleLostError,
)
from packages.pressure.tests.support.pressure_helpers import Spot, blocked
from tests.support.harness import HANG_SECONDS
from tests.support.redis_server import until


async def test_a_producer_keeps_its_role_for_many_puts(spot: Spot) -> None:
    async with spot.queue() as q:
        await q.create(3)
        async with q.producer() as p:
            assert spot.tokens() == (0, 1, 1, 0)
            assert {"lease:producer", "held:producer"} <= spot.keys()
            await p.put(b"a")
            assert await p.put_many([b"b"]) == 1
            with pytest.raises(QueueInUseError) as caught:
                await q.put_nowait(b"x")
            assert caught.value.user == q.uid
            with pytest.raises(QueueFullError) as full:
                await p.put_many([b"c", b"d"], timeout=0)
            assert full.value.done == 1
            with pytest.raises(QueueFullError):
                await p.put(b"d", timeout=0.05)
            assert spot.tokens() == (0, 1, 0, 0)
            await q.get()
            await p.put(b"e")
            await p.close()
            with pytest.raises(QueueClosedError):
                await p.put(b"f")
            with pytest.raises(QueueClosedError):
                await p.close()
            assert spot.tokens() == (0, 1, 0, 2)
        assert spot.tokens() == (1, 1, 0, 2)
        assert [data async for data in q] == [b"b", b"c", b"e"]
        assert spot.keys().isdisjoint({"lease:producer", "held:producer"})


async def test_a_consumer_keeps_its_role_until_the_queue_is_closed_and_empty(spot: Spot) -> None:
    async with spot.queue() as q, spot.queue() as other:
        await q.create()
        async with q.consumer() as c:
            assert spot.tokens() == (1, 0, 1, 0)
            with pytest.raises(QueueInUseError):
                await other.get_nowait()
            with pytest.raises(QueueEmptyError):
                await c.get(timeout=0)
            with pytest.raises(QueueEmptyError):
                await c.get(timeout=0.05)
            await other.put_many([b"a", b"b", b"c"])
            assert await c.get() == b"a"
            assert await c.get_many(1) == [b"b"]
            await other.close()
            assert [data async for data in c] == [b"c"]
            with pytest.raises(QueueClosedError):
                await c.get()
            assert spot.tokens() == (1, 0, 1, 2)
        assert spot.tokens() == (1, 1, 1, 2)
        assert spot.keys().isdisjoint({"lease:consumer", "held:consumer"})


async def test_a_closed_queue_accepts_no_producer(spot: Spot) -> None:
    async with spot.queue() as q:
        await q.create()
        await q.close()
        with pytest.raises(QueueClosedError):
            async with q.producer():
                pytest.fail("it is closed")
        assert spot.tokens() == (1, 1, 1, 2)


async def test_a_second_producer_waits_for_the_first_to_leave(spot: Spot) -> None:
    async with spot.queue() as q, spot.queue() as other, trio.open_nursery() as nursery:
        await q.create()
        order: list[str] = []

        async def second() -> None:
            async with other.producer() as p:
                order.append("second")
                await p.put(b"2")

        async with q.producer() as p:
            nursery.start_soon(second)
            await blocked(spot.raw)
            await p.put(b"1")
            order.append("first")
        await until(lambda: spot.raw.llen(spot.data) == 2)
        assert order == ["first", "second"]


async def test_waiting_for_a_role_ends_at_the_timeout(spot: Spot) -> None:
    async with spot.queue() as q, spot.queue() as other:
        await q.create()
        async with q.consumer():
            with pytest.raises(QueueInUseError) as caught:
                async with other.consumer(timeout=0.05):
                    pytest.fail("it is in use")
            assert caught.value.role == "consumer"
            assert spot.tokens() == (1, 0, 1, 0)


@pytest.mark.load  # a starved process does not renew it in time
async def test_the_lease_of_a_held_role_is_renewed(spot: Spot) -> None:
    async with spot.queue(lease=2) as q, spot.queue(lease=2) as other:
        await q.create()
        async with q.producer() as p:
            with pytest.raises(QueueInUseError):
                await other.put(b"x", timeout=3)  # longer than the lease
            assert spot.raw.pttl(spot.key("lease:producer")) > 0
            await p.put(b"y")
        assert await q.get() == b"y"


@pytest.mark.load  # a starved process does not renew it in time
async def test_a_waiting_put_keeps_its_role_beyond_the_lease(spot: Spot) -> None:
    async with spot.queue(lease=2) as q, spot.queue(lease=2) as other:
        await q.create(1)
        await q.put(b"a")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(q.put, b"b")
            await blocked(spot.raw)
            with pytest.raises(QueueInUseError):
                await other.put(b"c", timeout=3)
            assert await other.get() == b"a"
        assert await other.get() == b"b"


async def test_a_role_that_was_taken_away_is_an_error_and_is_not_released_twice(spot: Spot) -> None:
    async with spot.queue() as q, spot.queue() as other:
        await q.create()
        async with q.producer() as p, q.consumer() as c:
            assert await other.repair("producer") == q.uid
            assert await other.repair("consumer") == q.uid
            async with other.producer() as thief:
                for _ in range(2):
                    with pytest.raises(RoleLostError) as caught:
                        await p.put(b"mine")
                    assert caught.value.role == "producer"
                await thief.put(b"theirs")
                with pytest.raises(RoleLostError):
                    await c.get()
                assert spot.tokens() == (0, 1, 1, 0)
            assert spot.tokens() == (1, 1, 1, 0)
        # Leaving did not add a second token.
        assert spot.tokens() == (1, 1, 1, 0)
        assert await q.get_many(5) == [b"theirs"]


async def test_a_role_without_a_lease_is_taken_over_only_from_a_client_of_this_library(
    spot: Spot,
) -> None:
    async with spot.queue(lease=0.2) as q:
        await q.create(2)
        # Like a dead client of this library in the middle of a put: no permit either.
        spot.raw.delete(spot.key("producer_free"), spot.key("not_full"))
        spot.raw.set(spot.key("producer"), "dead")
        spot.raw.set(spot.key("held:producer"), "dead#1")
        spot.raw.set(spot.key("lease:producer"), "1", px=300)
        with trio.fail_after(HANG_SECONDS):
            await q.put(b"a")
        assert spot.tokens() == (1, 1, 1, 0)
        assert spot.keys().isdisjoint({"lease:producer", "held:producer"})
        # The same with a foreign client as the named producer: it must not be touched.
        spot.raw.delete(spot.key("producer_free"))
        spot.raw.set(spot.key("producer"), "deadline")
        spot.raw.set(spot.key("held:producer"), "dead#1")
        with pytest.raises(QueueInUseError):
            await q.put(b"b", timeout=0.5)
        assert spot.tokens() == (0, 1, 1, 0)


async def test_repair_frees_a_role_and_names_its_holder(spot: Spot) -> None:
    async with spot.queue() as q:
        await q.create(1)
        await q.put(b"a")
        assert await q.repair("producer") is None
        spot.raw.delete(spot.key("producer_free"))
        spot.raw.set(spot.key("producer"), "them")
        spot.raw.lpush(spot.key("not_full"), "stale")
        with pytest.raises(QueueInUseError) as caught:
            await q.repair("producer", "somebody else")
        assert caught.value.user == "them"
        assert spot.tokens() == (0, 1, 1, 0)
        assert await q.repair("producer", "them") == "them"
        assert spot.tokens() == (1, 1, 0, 0)  # the queue is full, so the permit was wrong
        spot.raw.delete(spot.key("consumer_free"))
        assert await q.repair("consumer") == ""
        assert spot.tokens() == (1, 1, 0, 0)


async def test_a_holder_in_a_deleted_queue_gets_a_clear_error(spot: Spot) -> None:
    async with spot.queue() as q, spot.queue() as other:
        await q.create()
        async with trio.open_nursery() as nursery, q.producer() as p:
            nursery.start_soon(other.delete)
            await until(lambda: not spot.raw.exists(spot.key("bound")))
            with pytest.raises(QueueDoesNotExistError):
                await p.put(b"x")
        assert spot.keys() == set()


async def test_the_additional_keys_expire(spot: Spot) -> None:
    async with spot.queue() as q:
        await q.create()
        async with q.producer(), q.consumer():
            for name in ("lease:producer", "held:producer", "lease:consumer", "held:consumer"):
                assert spot.raw.pttl(spot.key(name)) > 0
