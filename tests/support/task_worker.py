"""A worker for tasks in the test process."""

import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import trio

from disque_trio.client import Client
from disque_trio.client.jobs import HeldJob
from disque_trio.tasks import Disque
from disque_trio.tasks.running import Outcome, Runner
from tests.support.harness import HANG_SECONDS


@asynccontextmanager
async def working(app: Disque, client: Client) -> AsyncIterator[list[Outcome]]:
    """Run the jobs of ``app`` within the block, four at a time; yields the outcomes."""
    outcomes: list[Outcome] = []
    runner = Runner(app)

    async def handle(job: HeldJob) -> None:
        outcomes.append(await runner.run(job))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(
            lambda: client.work(handle, *app.queues(), concurrency=4, withheaders=True)
        )
        yield outcomes
        nursery.cancel_scope.cancel()


@contextmanager
def working_thread(app: Disque) -> Iterator[list[Outcome]]:
    """The same in a thread with its own connections, after ``app.setup()``."""
    began = threading.Event()
    running: list[tuple[trio.lowlevel.TrioToken, trio.Event, list[Outcome]]] = []

    async def main() -> None:
        stop = trio.Event()
        async with app.connect() as client:
            await app.setup()
            async with working(app, client) as outcomes:
                running.append((trio.lowlevel.current_trio_token(), stop, outcomes))
                began.set()
                await stop.wait()

    thread = threading.Thread(target=trio.run, args=(main,))
    thread.start()
    assert began.wait(HANG_SECONDS)
    [(token, stop, outcomes)] = running
    try:
        yield outcomes
    finally:
        token.run_sync_soon(stop.set)
        thread.join(HANG_SECONDS)
