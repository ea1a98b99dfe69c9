"""The other side is a foreign client, which follows the pseudo-code of the protocol command by
command."""

from functools import partial

import pytest
import trio

from disque_pressure import (
    QueueAlreadyExistsError,
    QueueClosedError,
    QueueDoesNotExistError,
    QueueFullError,
    QueueInUseError,
)
from packages.pressure.tests.support.pressure_helpers import (
    Foreign,
    ForeignClosed,
    Spot,
    blocked,
    run,
)
from tests.support.redis_server import plain_client, until

thread = partial(trio.to_thread.run_sync, abandon_on_cancel=True)


@pytest.mark.parametrize("bound", [0, 1, 5])
@pytest.mark.parametrize("block", [True, False])
async def test_this_library_gets_what_the_foreign_client_puts(
    spot: Spot, foreign: Foreign, bound: int, block: bool
) -> None:
    foreign.create(bound)
    async with spot.queue() as q:
        with pytest.raises(QueueAlreadyExistsError):
            await q.create()
        for n in range(5):
            foreign.put(b"%d" % n, block)
            assert await q.get_nowait() == b"%d" % n
            assert spot.tokens() == (1, 1, 1, 0)
        stats = await q.stats()
        assert stats.produced_messages == stats.consumed_messages == 5
        assert stats.producer == "foreign_pid1"
        foreign.close()
        with pytest.raises(QueueClosedError):
            await q.put(b"x")
        await q.delete()
        assert spot.keys() == set()


@pytest.mark.parametrize("bound", [0, 1, 5])
@pytest.mark.parametrize("block", [True, False])
async def test_the_foreign_client_gets_what_this_library_puts(
    spot: Spot, foreign: Foreign, bound: int, block: bool
) -> None:
    async with spot.queue() as q:
        await q.create(bound)
        for n in range(5):
            await q.put(b"%d" % n)
            assert foreign.get(block) == b"%d" % n
            assert spot.tokens() == (1, 1, 1, 0)
        await q.close()
        with pytest.raises(ForeignClosed):
            foreign.get()
        with pytest.raises(ForeignClosed):
            foreign.put(b"x")
        await thread(foreign.delete)
        assert spot.keys() == set()


@pytest.mark.parametrize("bound", [1, 3])
@pytest.mark.parametrize("ours", ["producer", "consumer"])
async def test_both_block_and_wake_each_other_at_the_same_time(
    spot: Spot, foreign: Foreign, ours: str, bound: int
) -> None:
    count = 60
    got: list[bytes] = []

    def they_put() -> None:
        for n in range(count):
            foreign.put(b"%d" % n)
        foreign.close()

    def they_get() -> None:
        try:
            while True:
                got.append(foreign.get())
        except ForeignClosed:
            pass

    async with spot.queue() as q:
        await q.create(bound)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(thread, they_get if ours == "producer" else they_put)
            if ours == "producer":
                for n in range(count):
                    await q.put(b"%d" % n)
                await q.close()
            else:
                async for data in q:
                    assert await q.length() <= bound
                    got.append(data)
        assert got == [b"%d" % n for n in range(count)]
        assert spot.tokens()[:3] == (1, 1, 1)
        assert await q.closed()  # the last foreign get may have taken one of the two tokens


async def test_waiting_for_a_role_does_not_overtake_foreign_clients(
    spot: Spot, foreign: Foreign
) -> None:
    async with spot.queue() as q, spot.queue() as other:
        await q.create()
        async with trio.open_nursery() as nursery, q.producer():
            nursery.start_soon(other.put, b"ours")
            await blocked(spot.raw, 1)
            nursery.start_soon(thread, foreign.put, b"theirs")
            await blocked(spot.raw, 2)
        assert sorted(await q.get_many(5)) == [b"ours", b"theirs"]
        assert spot.tokens() == (1, 1, 1, 0)


PUT_STEPS = ("popped producer_free", "set producer", "popped not_full", "pushed", "counted")


@pytest.mark.parametrize("step", PUT_STEPS)
@pytest.mark.parametrize("bound", [1, 2, 0])
async def test_a_get_during_a_foreign_put_leaves_at_most_one_permit(
    spot: Spot, foreign: Foreign, step: str, bound: int
) -> None:
    async with spot.queue() as q:
        await q.create(bound)
        steps = foreign.put_steps(b"x")
        for name in steps:
            if name == step:
                break
        with pytest.raises(QueueInUseError):
            await q.put_nowait(b"y")
        got = await q.get_many(5, timeout=0) if await q.length() else []
        if not got:
            with pytest.raises(Exception, match="empty"):
                await q.get_nowait()
        run(steps)
        assert spot.raw.llen(spot.key("not_full")) <= 1
        got += await q.get_many(5) if not got else []
        assert got == [b"x"]
        assert spot.tokens() == (1, 1, 1, 0)


GET_STEPS = ("popped consumer_free", "set consumer", "popped", "pushed not_full", "counted")


@pytest.mark.parametrize("step", GET_STEPS)
async def test_puts_during_a_foreign_get_never_exceed_the_bound(
    spot: Spot, foreign: Foreign, step: str
) -> None:
    async with spot.queue() as q:
        await q.create(2)
        await q.put_many([b"a", b"b"])
        steps = foreign.get_steps()
        for name in steps:
            if name == step:
                break
        with pytest.raises(QueueInUseError):
            await q.get_nowait()
        room = 0 if step in ("popped consumer_free", "set consumer") else 1
        put = 0
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def put_all() -> None:
                nonlocal put
                while True:
                    await q.put(b"c")
                    put += 1
                    assert spot.raw.llen(spot.data) <= 2

            await until(lambda: put == room)
            await blocked(spot.raw)
            nursery.cancel_scope.cancel()
        assert put == room
        assert run(steps) == b"a"
        # There may be one foreign permit too many now, which must not mislead this library.
        with pytest.raises(QueueFullError):  # noqa: PT012
            while True:
                await q.put(b"d", timeout=0.2)
                assert spot.raw.llen(spot.data) <= 2
        assert spot.raw.llen(spot.data) == 2
        assert spot.tokens() == (1, 1, 0, 0)


@pytest.mark.parametrize("step", PUT_STEPS[:2])
async def test_the_role_of_a_dead_foreign_client_is_never_taken_but_repaired_on_request(
    spot: Spot, foreign: Foreign, step: str
) -> None:
    async with spot.queue(lease=0.2) as q:
        await q.create(1)
        await q.put(b"a")  # so :producer names a client of this library
        await q.get()
        steps = foreign.put_steps(b"x")
        for name in steps:
            if name == step:
                break
        with pytest.raises(QueueInUseError):
            await q.put(b"y", timeout=0.7)
        blamed = await q.repair("producer")
        assert blamed == (foreign.uid.decode() if step == "set producer" else q.uid)
        await q.put(b"y")
        assert await q.get() == b"y"
        assert spot.tokens() == (1, 1, 1, 0)


async def test_a_permit_of_a_dead_client_is_restored(spot: Spot, foreign: Foreign) -> None:
    async with spot.queue() as q:
        await q.create(1)
        steps = foreign.put_steps(b"x")
        for name in steps:
            if name == "popped not_full":
                break
        await q.repair("producer")
        assert spot.tokens() == (1, 1, 1, 0)
        spot.raw.delete(spot.key("not_full"))  # without a repair, a put restores it
        await q.put(b"y")
        assert await q.get() == b"y"
        assert spot.tokens() == (1, 1, 1, 0)


async def test_a_foreign_delete_wakes_a_blocked_put_and_get(spot: Spot, foreign: Foreign) -> None:
    async with spot.queue() as q, spot.queue() as other:
        await q.create(1)
        await q.put(b"a")
        ended: list[str] = []

        async def put() -> None:
            with pytest.raises((QueueDoesNotExistError, QueueClosedError)):
                await q.put(b"b")
            ended.append("put")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(put)
            await blocked(spot.raw)
            await thread(foreign.delete)
        assert ended == ["put"]
        # The additional keys of this library expire; nothing else is left.
        assert spot.keys() <= {"held:producer", "lease:producer"}
        await other.create(1, patience=0)

        async def get() -> None:
            with pytest.raises((QueueDoesNotExistError, QueueClosedError)):
                await q.get()
            ended.append("get")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(get)
            await blocked(spot.raw, 2)
            await thread(foreign.delete)
        assert ended == ["put", "get"]


async def test_a_delete_wakes_foreign_blocked_puts_and_gets(spot: Spot, foreign: Foreign) -> None:
    ended: list[str] = []
    async with spot.queue() as q:
        await q.create(1)
        await q.put(b"a")

        def put() -> None:
            foreign.put(b"b")  # it succeeds; the element is deleted with the queue
            ended.append("put")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(thread, put)
            await blocked(spot.raw)
            await q.delete()
        assert ended == ["put"]
        assert spot.keys() == set()

        await q.create(1)

        def get() -> None:
            with plain_client(spot.port) as client, pytest.raises(ForeignClosed):
                Foreign(client, spot.data).get()
            ended.append("get")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(thread, get)
            await blocked(spot.raw)
            await q.delete()
        assert ended == ["put", "get"]
        assert spot.keys() == set()


async def test_a_foreign_close_wakes_a_blocked_get(spot: Spot, foreign: Foreign) -> None:
    async with spot.queue() as q:
        await q.create()
        async with trio.open_nursery() as nursery:

            async def get() -> None:
                with pytest.raises(QueueClosedError):
                    await q.get()

            nursery.start_soon(get)
            await blocked(spot.raw, 2)
            foreign.close()
        assert spot.tokens() == (1, 1, 1, 2)


async def test_an_overfilled_queue_drains_to_its_bound_before_it_accepts_more(
    spot: Spot, foreign: Foreign
) -> None:
    async with spot.queue() as q:
        await q.create(2)
        await q.put_many([b"a", b"b"])
        spot.raw.lpush(spot.data, b"c")  # like a client that cannot wait any longer
        spot.raw.lpush(spot.key("not_full"), "0")
        assert await q.get() == b"a"
        assert spot.tokens() == (1, 1, 0, 0)
        assert await q.get() == b"b"
        assert spot.tokens() == (1, 1, 1, 0)
