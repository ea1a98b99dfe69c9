"""The clients of bananaq under asyncio."""

import asyncio
import os
import signal

import pytest

from disque_bananaq.client import BananaClient, HeldEvent, connect, consumer, work
from packages.bananaq.tests.support.banana_daemons import Daemon
from tests.support.harness import HANG_SECONDS
from tests.support.loops import on_asyncio

pytestmark = pytest.mark.live


async def until(client: BananaClient, queue: str, **wanted: int) -> None:
    """Wait until the group ``g`` has these counts."""
    async with asyncio.timeout(HANG_SECONDS):
        while True:
            counts = (await client.status(queue, groups=["g"]))[queue]["g"]
            if all(counts[name] == value for name, value in wanted.items()):
                return
            await asyncio.sleep(0.01)


@on_asyncio
async def test_events_are_consumed_with_and_without_a_block(bananaq: Daemon, queue: str) -> None:
    async with connect(port=bananaq.port) as client:
        for body in "abcd":
            await client.add(queue, body, expire=60)
        async with consumer(queue, group="g", port=bananaq.port) as events:
            assert [(await anext(events)).body for _ in range(2)] == [b"a", b"b"]
        # The second event was held, and was requeued.
        bodies = []
        async for event in (loop := consumer(queue, group="g", port=bananaq.port)):
            bodies.append(event.body)
            if len(bodies) == 3:
                await event.ack()
                break
        await loop.aclose()
        assert bodies == [b"b", b"c", b"d"]
        await until(client, queue, done=4, inprogress=0)


@on_asyncio
async def test_the_event_of_a_cancelled_consumer_is_requeued(bananaq: Daemon, queue: str) -> None:
    async with connect(port=bananaq.port) as client:
        await client.add(queue, "a", expire=60)
        taken = asyncio.Event()

        async def consume() -> None:
            async for _ in consumer(queue, group="g", port=bananaq.port):
                taken.set()
                await asyncio.sleep(HANG_SECONDS)

        task = asyncio.create_task(consume())
        await taken.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        del task
        event = await client.get(queue, "g", wait=5)
        assert event is not None
        assert (event.body, event.delivery) == (b"a", 2)


@on_asyncio
async def test_work_ends_by_a_signal_when_its_handlers_have_finished(
    bananaq: Daemon, queue: str
) -> None:
    async with connect(port=bananaq.port) as client:
        for body in "ab":
            await client.add(queue, body, expire=60)
        done: list[bytes] = []

        async def handler(event: HeldEvent) -> None:
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(0.1)
            done.append(event.body)

        await work(queue, "g", handler, port=bananaq.port)
        assert done == [b"a"]
        await until(client, queue, done=1, inprogress=0)
