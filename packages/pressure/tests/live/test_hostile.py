"""Wrong arguments, and a Redis that is full, slow, restarted or protected by a password."""

import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import coredis
import pytest
import redis
import trio

from disque_pressure import (
    InvalidNameError,
    PressureConnectionError,
    PressureError,
    PressureQueue,
    QueueEmptyError,
    QueueInUseError,
    ServerRefusedError,
    WrongTypeError,
)
from packages.pressure.tests.support.pressure_helpers import Spot, blocked
from tests.support.redis_server import RedisServer, plain_client, server_version, until

Anything: Any = object  # to get past type checkers


@pytest.fixture
def private(tmp_path: Path) -> Iterator[Spot]:
    """A queue in a Redis for one test, which may fill it, stop it and lock it."""
    # Before 7.0, DEBUG needs no option.
    options = ("--enable-debug-command", "yes") if server_version() >= (7,) else ()
    server = RedisServer(tmp_path, *options)
    server.start()
    with plain_client(server.port) as client:
        yield Spot(server.port, "p", "q", client)
    server.stop()


@pytest.mark.parametrize(
    ("bound", "error"),
    [
        (-1, ValueError),
        ((1 << 53) + 1, ValueError),
        (10**400, ValueError),
        (1.5, TypeError),
        (float("nan"), TypeError),
        ("3", TypeError),
    ],
)
async def test_an_invalid_bound_is_refused(
    spot: Spot, bound: Anything, error: type[Exception]
) -> None:
    async with spot.queue() as q:
        with pytest.raises(error):
            await q.create(bound)
        assert not await q.exists()


async def test_the_largest_bound_is_exact(spot: Spot) -> None:
    async with spot.queue() as q:
        await q.create(1 << 53)
        await q.put(b"a")
        assert (await q.stats()).bound == 1 << 53


@pytest.mark.parametrize("name", ["", "\ud800", "x:bound", "x:held:delete"])
def test_an_invalid_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidNameError):
        PressureQueue(name)


@pytest.mark.parametrize("name", [b"bytes", None, 5])
def test_a_name_is_text(name: Anything) -> None:
    with pytest.raises(TypeError):
        PressureQueue(name)


# pytest puts ids into the environment, where a long one keeps other programs from starting.
@pytest.mark.parametrize(
    "name",
    ["two\nlines", "*[a-z]", "\0", pytest.param("x" * 1_000_000, id="long"), "x:stats"],
)
async def test_a_name_may_be_unusual(spot: Spot, name: str) -> None:
    async with PressureQueue(name, port=spot.port, prefix=spot.prefix) as q:
        await q.create(1)
        await q.put(b"a")
        assert await q.get() == b"a"
        await q.delete()
    assert not spot.keys()


@pytest.mark.parametrize("lease", [0, -1, float("nan"), float("inf"), 1e300, 8 * 24 * 3600.0])
def test_an_invalid_lease_is_refused(lease: float) -> None:
    with pytest.raises(ValueError, match="lease"):
        PressureQueue("q", lease=lease)


@pytest.mark.parametrize("data", ["text", None, 5, [1]])
async def test_an_element_must_be_bytes(spot: Spot, data: Anything) -> None:
    async with spot.queue() as q:
        await q.create()
        before = spot.values()
        with pytest.raises(TypeError):
            await q.put(data)
        with pytest.raises(TypeError):
            await q.put_many([b"a", data])
        assert spot.values() == before


@pytest.mark.parametrize(
    ("count", "error"), [(0, ValueError), (-1, ValueError), (1.5, TypeError), ("2", TypeError)]
)
async def test_an_invalid_number_of_elements_is_refused(
    spot: Spot, count: Anything, error: type[Exception]
) -> None:
    async with spot.queue() as q:
        await q.create()
        await q.put_many([b"a", b"b"])
        before = spot.values()
        with pytest.raises(error):
            await q.get_many(count)
        assert spot.values() == before


async def test_an_element_may_be_large(spot: Spot) -> None:
    data = bytes(range(256)) * (50_000_000 // 256)
    async with spot.queue() as q:
        await q.create(1)
        await q.put(data)
        assert await q.get() == data


async def test_an_element_that_redis_refuses_is_an_error(private: Spot) -> None:
    private.raw.config_set("proto-max-bulk-len", 1 << 20)
    async with private.queue(lease=0.3) as q:
        await q.create(3)
        before = private.values()
        with pytest.raises(PressureError):
            await q.put(bytes(3 << 20))
        assert private.values() == before
        await q.put(b"a")
        assert await q.get() == b"a"


async def test_queues_with_names_like_keys_do_not_disturb_each_other(spot: Spot) -> None:
    handles = [
        PressureQueue(name, port=spot.port, prefix=spot.prefix)
        for name in ("q", "q:stats", "q:lease", "q:held")
    ]
    async with handles[0], handles[1], handles[2], handles[3]:
        for q in handles:
            await q.create(2)
            await q.put(q.name.encode())
        await handles[1].delete()
        for q in handles[:1] + handles[2:]:
            assert await q.get() == q.name.encode()
            assert (await q.stats()).consumed_messages == 1


async def test_a_prefix_that_points_into_another_queue_changes_nothing_there(spot: Spot) -> None:
    async with (
        spot.queue() as q,
        PressureQueue("bound", port=spot.port, prefix=spot.data) as intruder,
    ):
        await q.create(3)
        await q.put(b"a")
        before = spot.values()
        for call in (
            intruder.create,
            partial(intruder.create, force=True),
            partial(intruder.put, b"x"),
            intruder.get,
            intruder.delete,
        ):
            with pytest.raises(PressureError):
                await call()
        assert spot.values() == before


@pytest.mark.parametrize("value", ["9223372036854775807", "007", "-0", "1.5", " 1"])
@pytest.mark.parametrize("counter", ["messages", "bytes"])
async def test_a_counter_at_its_maximum_costs_no_element(
    spot: Spot, counter: str, value: str
) -> None:
    async with spot.queue() as q:
        await q.create()
        await q.put(b"a")
        for kind in ("produced", "consumed"):
            spot.raw.set(spot.key(f"stats:{kind}_{counter}"), value)
        before = spot.values()
        for call in (partial(q.put, b"b"), q.get):
            with pytest.raises(WrongTypeError, match=counter):
                await call()
        assert spot.values() == before


# Memory


def fill(raw: "redis.Redis") -> None:
    raw.config_set("maxmemory", 1)


async def test_a_full_redis_refuses_puts_and_nothing_changes(private: Spot) -> None:
    async with private.queue() as q:
        await q.create(3)
        await q.put(b"a")
        before = private.values()
        fill(private.raw)
        for call in (
            partial(q.put, b"b"),
            partial(q.put_many, [b"b", b"c"]),
            q.producer().__aenter__,
        ):
            with pytest.raises(ServerRefusedError):
                await call()
        assert private.values() == before
        private.raw.config_set("maxmemory", 0)
        await q.put(b"b")
        assert await q.get_many(5) == [b"a", b"b"]


@pytest.mark.parametrize("way", ["get", "get_many", "consumer"])
async def test_a_full_redis_can_be_emptied(private: Spot, way: str) -> None:
    elements = [b"%d" % n for n in range(20)]
    async with private.queue() as q, private.queue() as other:
        await q.create()
        await q.put_many(elements)
        fill(private.raw)
        await q.close()
        if way == "get":
            assert [data async for data in other] == elements
        elif way == "get_many":
            assert await other.get_many(50) == elements
        else:
            async with other.consumer() as consumer:
                assert [data async for data in consumer] == elements
        assert (await q.stats()).consumed_messages == 20
        await q.delete()
    assert not private.keys()


async def test_a_get_waits_while_redis_is_full(private: Spot) -> None:
    got: list[bytes] = []

    async def get() -> None:
        got.append(await q.get())

    async with private.queue() as q, private.queue() as other:
        await q.create(1)
        fill(private.raw)
        with pytest.raises(QueueEmptyError):
            await q.get(0.3)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(get)
            await until(lambda: private.tokens()[1] == 0)
            private.raw.config_set("maxmemory", 0)
            await other.put(b"a")
        assert got == [b"a"]


@pytest.mark.load  # a starved process does not renew it in time
async def test_roles_are_released_while_redis_is_full(private: Spot) -> None:
    async with private.queue(lease=2) as q, private.queue() as other:
        await q.create(1)
        await q.put(b"a")
        async with q.producer(), q.consumer() as consumer:
            fill(private.raw)
            # Leases must be renewed nevertheless: with an expired one, nobody would have to wait.
            with pytest.raises(QueueInUseError):
                await other.get(3)
            assert await consumer.get() == b"a"
        assert private.tokens() == (1, 1, 1, 0)


async def test_a_waiting_put_releases_its_role_when_redis_becomes_full(private: Spot) -> None:
    async with private.queue() as q:
        await q.create(1)
        async with trio.open_nursery() as nursery:

            async def put() -> None:
                with pytest.raises(ServerRefusedError) as caught:
                    await q.put_many([b"a", b"b"])
                assert caught.value.done == 1

            nursery.start_soon(put)
            await blocked(private.raw)
            fill(private.raw)
        assert private.tokens()[:2] == (1, 1)
        assert await q.get() == b"a"


async def test_a_delete_is_undone_while_redis_is_full(private: Spot) -> None:
    async with private.queue() as q, private.queue() as other:
        await q.create(2)
        await q.put(b"a")
        async with q.consumer():
            fill(private.raw)
            with pytest.raises(QueueInUseError):
                await other.delete(0.1)
        assert await q.get() == b"a"
        assert (await q.stats()).bound == 2


# Restarts, passwords, slow replies


@pytest.mark.parametrize("way", ["put", "get"])
async def test_a_restart_of_redis_ends_a_wait_or_lets_it_continue(
    own_redis: RedisServer, way: str
) -> None:
    outcome: list[object] = []
    async with (
        PressureQueue("q", port=own_redis.port, lease=0.5) as q,
        PressureQueue("q", port=own_redis.port) as other,
    ):
        await q.create(1)
        if way == "put":
            await q.put(b"a")

        async def wait() -> None:
            try:
                outcome.append(await (q.put(b"b") if way == "put" else q.get()))
            except PressureConnectionError as error:
                outcome.append(error)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            with plain_client(own_redis.port) as raw:
                await blocked(raw)
            own_redis.stop()
            own_redis.start()
            if way == "put":
                assert await other.get(10) == b"a"
            else:
                await other.put(b"c", 10)
        if way == "put":
            expected = [b"b"] if outcome == [None] else []
        else:
            expected = [] if outcome == [b"c"] else [b"c"]
        assert await q.length() == len(expected)
        await q.close(10)
        assert [data async for data in q] == expected


async def test_without_the_password_nothing_works_and_the_error_says_why(private: Spot) -> None:
    private.raw.config_set("requirepass", "secret")
    async with private.queue() as q:
        for call in (q.create, q.exists, q.stats, partial(q.put, b"a"), q.get, q.delete):
            with pytest.raises(PressureConnectionError):
                await call()
    wrong = coredis.Redis(port=private.port, password="wrong")
    async with PressureQueue("q", client=wrong) as q:
        with pytest.raises(PressureConnectionError, match="password"):
            await q.create()
    right = coredis.Redis(port=private.port, password="secret")
    async with PressureQueue("q", client=right) as q:
        await q.create()
        await q.put(b"a")
        assert await q.get() == b"a"


async def test_with_a_slow_redis_nothing_is_lost_or_repeated(
    private: Spot, monkeypatch: pytest.MonkeyPatch
) -> None:
    # However slow the machine is.
    for module in ("disque_trio.redis.connection", "disque_pressure.deadlines"):
        monkeypatch.setattr(f"{module}.GRACE_SECONDS", 20.0)
    got: list[bytes] = []
    sleep = partial(private.raw.execute_command, "DEBUG", "SLEEP", 1.5)
    async with private.queue() as q, private.queue() as other:
        await q.create(1)
        async with trio.open_nursery() as nursery:

            async def get() -> None:
                got.append(await other.get())

            nursery.start_soon(get)
            await blocked(private.raw)
            async with trio.open_nursery() as inner:
                inner.start_soon(trio.to_thread.run_sync, sleep)
                # The reply with the outcome may arrive a little later.
                await q.put(b"a", 0.1)
        assert got == [b"a"]
        with trio.move_on_after(0.1):
            await q.put(b"b")
        assert await q.get() == b"b"
        assert private.tokens() == (1, 1, 1, 0)


# Many at once


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_two_hundred_randomly_cancelled_tasks_leave_a_working_queue(
    spot: Spot, seed: int
) -> None:
    rng = random.Random(seed)
    put: list[bytes] = []
    got: list[bytes] = []
    async with spot.queue() as one, spot.queue() as two, trio.open_nursery() as nursery:
        await one.create(5)

        async def work(number: int) -> None:
            q = rng.choice((one, two))
            items = [b"%d/%d" % (number, n) for n in range(rng.choice((1, 3, 8)))]
            in_queue = 0

            def progress(done: int) -> None:
                nonlocal in_queue
                in_queue = done

            with trio.move_on_after(rng.random() * 0.4):
                kind = rng.randrange(4)
                if kind == 0:
                    await q.put_many(items, progress=progress)
                elif kind == 1:
                    async with q.producer() as producer:
                        await producer.put_many(items, progress=progress)
                elif kind == 2:
                    while True:
                        got.extend(await q.get_many(3))
                else:
                    async with q.consumer() as consumer:
                        got.append(await consumer.get())
            put.extend(items[:in_queue])

        async with trio.open_nursery() as tasks:
            for number in range(200):
                tasks.start_soon(work, number)
        assert spot.tokens()[:2] == (1, 1)
        await one.close(5)
        got.extend([data async for data in two])
        nursery.cancel_scope.cancel()
    assert sorted(got) == sorted(put)
    assert put
