"""Concurrent operations: the races of the protocol that this library closes."""

import random
from functools import partial

import pytest
import trio

from disque_pressure import (
    QueueAlreadyExistsError,
    QueueBusyError,
    QueueClosedError,
    QueueDoesNotExistError,
    QueueEmptyError,
    QueueFullError,
    QueueInUseError,
)
from packages.pressure.tests.support.pressure_helpers import Foreign, Spot, blocked, run
from tests.support.redis_server import plain_client, until

thread = partial(trio.to_thread.run_sync, abandon_on_cancel=True)


async def test_one_of_many_concurrent_creates_succeeds(spot: Spot) -> None:
    outcomes: list[str] = []

    async def create() -> None:
        async with spot.queue() as q:
            try:
                await q.create(5)
                outcomes.append("created")
            except QueueAlreadyExistsError:
                outcomes.append("exists")

    async with trio.open_nursery() as nursery:
        for _ in range(8):
            nursery.start_soon(create)
    assert sorted(outcomes) == ["created"] + ["exists"] * 7
    assert spot.tokens() == (1, 1, 1, 0)


async def test_the_second_of_two_concurrent_deletes_finds_no_queue(spot: Spot) -> None:
    async with spot.queue() as q, spot.queue() as other:
        await q.create()
        async with trio.open_nursery() as nursery, q.consumer():
            nursery.start_soon(q.delete)
            await until(lambda: not spot.raw.exists(spot.key("bound")))
            with pytest.raises(QueueDoesNotExistError):
                await other.delete()
        assert spot.keys() == set()


async def test_a_create_during_a_delete_waits_and_gets_a_complete_queue(spot: Spot) -> None:
    async with spot.queue() as q, spot.queue() as other:
        await q.create()
        async with trio.open_nursery() as nursery, q.producer():
            nursery.start_soon(q.delete)
            await until(lambda: not spot.raw.exists(spot.key("bound")))
            with pytest.raises(QueueBusyError):
                await other.create(patience=0.1)
            nursery.start_soon(other.create, 2)
        assert spot.values() == {
            "bound": b"2",
            "producer_free": 1,
            "consumer_free": 1,
            "not_full": 1,
        }


@pytest.mark.parametrize("role", ["producer", "consumer"])
async def test_a_client_that_waits_for_a_role_of_a_deleted_queue_gets_an_error(
    spot: Spot, role: str
) -> None:
    async with spot.queue() as q, spot.queue() as other:
        await q.create()
        holding = q.producer() if role == "producer" else q.consumer()
        async with trio.open_nursery() as nursery, holding:

            async def wait() -> None:
                with pytest.raises((QueueDoesNotExistError, QueueClosedError)):
                    await (other.put(b"x") if role == "producer" else other.get())

            nursery.start_soon(wait)
            await blocked(spot.raw)
            nursery.start_soon(q.delete)
            await until(lambda: not spot.raw.exists(spot.key("bound")))
        assert spot.keys() == set()


async def test_a_delete_ends_a_blocked_put_and_get(spot: Spot) -> None:
    async with spot.queue() as q, spot.queue() as other:
        await q.create(1)
        await q.put(b"a")

        async def put() -> None:
            with pytest.raises((QueueDoesNotExistError, QueueClosedError)):
                await q.put(b"b")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(put)
            await blocked(spot.raw)
            await other.delete(timeout=5)
        assert spot.keys() == set()
        await q.create(1)

        async def get() -> None:
            with pytest.raises((QueueDoesNotExistError, QueueClosedError)):
                await q.get()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(get)
            await blocked(spot.raw, 2)
            await other.delete(timeout=5)
        assert spot.keys() == set()


async def test_an_abandoned_delete_leaves_the_queue_unchanged(spot: Spot) -> None:
    async with spot.queue() as q, spot.queue() as other:
        await q.create(1)
        async with q.producer() as p:
            await p.put(b"a")
            before = spot.values()
            with pytest.raises(QueueInUseError):
                await other.delete(timeout=0.1)
            assert spot.values() == {
                **before,
                "not_full": 1,
            }  # for the producer, which checks for itself
            with pytest.raises(QueueFullError):
                await p.put(b"b", timeout=0)
        assert await other.get() == b"a"
        assert spot.tokens() == (1, 1, 1, 0)


async def test_a_foreign_create_during_a_delete_is_not_destroyed(
    spot: Spot, foreign: Foreign
) -> None:
    async with spot.queue() as q:
        await q.create()
        async with trio.open_nursery() as nursery, q.producer():

            async def delete() -> None:
                with pytest.raises(QueueBusyError):
                    await q.delete()

            nursery.start_soon(delete)
            await until(lambda: not spot.raw.exists(spot.key("bound")))
            foreign.client.setnx(spot.key("bound"), 7)
        assert spot.raw.get(spot.key("bound")) == b"7"


async def test_a_get_that_finds_nothing_makes_no_permit(spot: Spot, foreign: Foreign) -> None:
    async with spot.queue() as q:
        await q.create(1)
        steps = foreign.put_steps(b"x")
        for name in steps:
            if name == "popped not_full":
                break
        with pytest.raises(QueueEmptyError):
            await q.get_nowait()
        assert spot.tokens() == (0, 1, 0, 0)
        run(steps)
        assert spot.tokens() == (1, 1, 0, 0)
        with pytest.raises(QueueFullError):
            await q.put_nowait(b"y")


async def test_stale_permits_do_not_lead_above_the_bound(spot: Spot) -> None:
    async with spot.queue() as q:
        await q.create(1)
        await q.put(b"a")
        spot.raw.lpush(spot.key("not_full"), "0", "0", "0")
        with pytest.raises(QueueFullError):
            await q.put_nowait(b"b")
        with pytest.raises(QueueFullError):
            await q.put(b"b", timeout=0.1)
        assert spot.tokens() == (1, 1, 0, 0)


async def test_surplus_tokens_of_a_role_are_removed(spot: Spot) -> None:
    async with spot.queue() as q:
        await q.create()
        spot.raw.lpush(spot.key("producer_free"), "0", "0")
        spot.raw.lpush(spot.key("consumer_free"), "0", "0")
        await q.put(b"a")
        assert await q.get() == b"a"
        assert spot.tokens() == (1, 1, 1, 0)
        spot.raw.lpush(spot.key("producer_free"), "0", "0")
        async with q.producer(), q.consumer():
            assert spot.tokens() == (0, 0, 1, 0)
        assert spot.tokens() == (1, 1, 1, 0)


@pytest.mark.parametrize("seed", range(3))
async def test_many_clients_of_both_kinds_neither_lose_nor_repeat_anything(
    spot: Spot, seed: int
) -> None:
    rng = random.Random(seed)
    each = 40
    producers = [b"a", b"b", b"theirs"]
    got: list[bytes] = []
    ended = 0

    async def produce(name: bytes) -> None:
        async with spot.queue() as q:
            n = 0
            while n < each:
                count = min(rng.choice((1, 1, 4)), each - n)
                items = [b"%s %d" % (name, n + i) for i in range(count)]
                try:
                    if count == 1:
                        with trio.move_on_after(rng.choice((0.001, 0.01, 1))):
                            await q.put(items[0], rng.choice((None, 0, 0.01)))
                            n += 1
                    else:
                        n += await q.put_many(items, rng.choice((None, 0.01)))
                except QueueFullError as error:
                    n += error.done
                except QueueInUseError:
                    pass
        nonlocal ended
        ended += 1

    def they_produce() -> None:
        with plain_client(spot.port) as client:
            them = Foreign(client, spot.data)
            for n in range(each):
                them.put(b"theirs %d" % n)

    async def consume() -> None:
        async with spot.queue() as q:
            while len(got) < each * len(producers):
                try:
                    with trio.move_on_after(rng.choice((0.001, 0.01, 1))):
                        got.extend(await q.get_many(rng.choice((1, 3)), rng.choice((None, 0.01))))
                except (QueueEmptyError, QueueInUseError):
                    pass

    async with spot.queue() as q:
        await q.create(3)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(produce, b"a")
            nursery.start_soon(produce, b"b")
            nursery.start_soon(thread, they_produce)
            nursery.start_soon(consume)
            nursery.start_soon(consume)
        assert len(got) == len(set(got)) == each * len(producers)
        stats = await q.stats()
        assert stats.produced_messages == stats.consumed_messages == len(got)
        assert spot.tokens() == (1, 1, 1, 0)
