"""A client of another kind, that follows the protocol's pseudo-code command by command, on the
other side."""

from functools import partial

import pytest
import trio

from disque_trio.pressure import (
    QueueAlreadyExistsError,
    QueueClosedError,
    QueueDoesNotExistError,
    QueueInUseError,
)
from tests.support.pressure_helpers import Foreign, ForeignClosed, Spot, blocked, plain_client, run

thread = partial(trio.to_thread.run_sync, abandon_on_cancel=True)


@pytest.mark.parametrize("bound", [0, 1, 5])
@pytest.mark.parametrize("block", [True, False])
async def test_what_they_put_we_get(spot: Spot, foreign: Foreign, bound: int, block: bool) -> None:
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
async def test_what_we_put_they_get(spot: Spot, foreign: Foreign, bound: int, block: bool) -> None:
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
async def test_both_at_once_block_and_wake_each_other(
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
        assert await q.closed()  # their last get may have taken one of the two elements


async def test_our_wait_for_a_role_leaves_it_to_those_who_came_before(
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
async def test_in_the_middle_of_their_put_our_get_leaves_one_permit_at_most(
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
async def test_in_the_middle_of_their_get_our_puts_never_exceed_the_bound(
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
        put = 0
        with trio.move_on_after(0.2):
            while True:
                await q.put(b"c")
                put += 1
                assert spot.raw.llen(spot.data) <= 2
        assert put == (0 if step in ("popped consumer_free", "set consumer") else 1)
        assert run(steps) == b"a"
        # Their permit may be one too many now; we do not fall for it.
        with trio.move_on_after(0.2):
            while True:
                await q.put(b"d")
                assert spot.raw.llen(spot.data) <= 2
        assert spot.raw.llen(spot.data) == 2
        assert spot.tokens() == (1, 1, 0, 0)


@pytest.mark.parametrize("step", PUT_STEPS[:2])
async def test_a_foreign_client_that_died_is_never_robbed_but_repaired_on_request(
    spot: Spot, foreign: Foreign, step: str
) -> None:
    async with spot.queue(lease=0.2) as q:
        await q.create(1)
        await q.put(b"a")  # so :producer names one of us
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


async def test_a_permit_that_a_dead_client_took_is_put_back(spot: Spot, foreign: Foreign) -> None:
    async with spot.queue() as q:
        await q.create(1)
        steps = foreign.put_steps(b"x")
        for name in steps:
            if name == "popped not_full":
                break
        await q.repair("producer")
        assert spot.tokens() == (1, 1, 1, 0)
        spot.raw.delete(spot.key("not_full"))  # and without a repair it is healed by a put
        await q.put(b"y")
        assert await q.get() == b"y"
        assert spot.tokens() == (1, 1, 1, 0)


async def test_their_delete_wakes_our_blocked_put_and_get(spot: Spot, foreign: Foreign) -> None:
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
        # What is ours beside the twelve keys expires; nothing else is left.
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


async def test_our_delete_wakes_their_blocked_put_and_get(spot: Spot, foreign: Foreign) -> None:
    ended: list[str] = []
    async with spot.queue() as q:
        await q.create(1)
        await q.put(b"a")

        def put() -> None:
            foreign.put(b"b")  # the deletion lets it through; the element goes with the queue
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


async def test_their_close_wakes_our_blocked_get(spot: Spot, foreign: Foreign) -> None:
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


async def test_an_overfilled_queue_drains_to_its_bound_before_it_takes_more(
    spot: Spot, foreign: Foreign
) -> None:
    async with spot.queue() as q:
        await q.create(2)
        await q.put_many([b"a", b"b"])
        spot.raw.lpush(spot.data, b"c")  # as a client does that cannot wait any more
        spot.raw.lpush(spot.key("not_full"), "0")
        assert await q.get() == b"a"
        assert spot.tokens() == (1, 1, 0, 0)
        assert await q.get() == b"b"
        assert spot.tokens() == (1, 1, 1, 0)
