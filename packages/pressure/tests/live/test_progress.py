"""How many elements of a put_many are in the queue when it is interrupted."""

from collections.abc import Awaitable, Callable
from functools import partial

import pytest
import trio

from disque_pressure import PressureQueue, QueueClosedError, QueueDoesNotExistError
from packages.pressure.tests.support.pressure_helpers import Spot, blocked
from tests.support.redis_server import until


async def interrupted(
    spot: Spot, q: PressureQueue, act: Callable[[], Awaitable[object]]
) -> list[int]:
    """Put five elements into a queue for two, and act when it is full; return the progress."""
    seen: list[int] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(after_block, spot, act)
        await q.put_many([b"%d" % n for n in range(5)], progress=seen.append)
    return seen


async def after_block(spot: Spot, act: Callable[[], Awaitable[object]]) -> None:
    await until(lambda: spot.raw.llen(spot.data) == 2)
    await blocked(spot.raw)
    await act()


async def test_an_interrupted_put_many_tells_how_many_elements_are_in(spot: Spot) -> None:
    async def close() -> None:
        spot.raw.lpush(spot.key("closed"), 0, 0)
        spot.raw.rpop(spot.data)
        spot.raw.lpush(spot.key("not_full"), 0)

    async def delete() -> None:
        spot.raw.delete(spot.key("bound"))
        spot.raw.lpush(spot.key("not_full"), 0)

    for act, error in ((close, QueueClosedError), (delete, QueueDoesNotExistError)):
        async with spot.queue() as q:
            await q.create(2, force=True)
            with pytest.RaisesGroup(pytest.RaisesExc(error, check=lambda e: e.done == 2)):
                await interrupted(spot, q, act)
        spot.raw.delete(*(spot.key(suffix) for suffix in spot.keys()))  # noqa: SIM118


async def test_progress_is_exact_after_a_cancellation(spot: Spot) -> None:
    seen: list[int] = []
    async with spot.queue() as q:
        await q.create(2)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(
                partial(q.put_many, [b"%d" % n for n in range(9)], progress=seen.append)
            )
            await until(lambda: spot.raw.llen(spot.data) == 2)
            assert await q.get() == b"0"
            await until(lambda: spot.raw.llen(spot.data) == 2)
            nursery.cancel_scope.cancel()
        assert seen == [2, 3]
        assert await q.get_many(5) == [b"1", b"2"]
