"""The nursery of a client when its owner is cancelled."""

import asyncio

from disque_trio.respclient.background import background
from tests.support.harness import HANG_SECONDS
from tests.support.loops import on_asyncio


@on_asyncio
async def test_a_task_can_be_cancelled_at_any_point_of_opening_one() -> None:
    async def hold() -> None:
        async with background():
            await asyncio.sleep(3600)

    for turns in range(8):
        task = asyncio.create_task(hold())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task], timeout=HANG_SECONDS)
        assert task.cancelled(), turns
