"""Runs the background tasks of a client."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from disque_trio.respclient.concurrency import Nursery, TaskStatus, library


@asynccontextmanager
async def background() -> AsyncIterator[Nursery]:
    """Open a nursery for a client's connections and heartbeats, which ends with the block.

    It is shielded from the caller's cancellation, so that what the client holds can still be given
    back while the caller is being cancelled. An exception of the block comes out as it is, not in a
    group.
    """
    failure: BaseException | None = None
    try:
        async with library().open_nursery() as outer:
            # Shielded, because a start that is cancelled would wait for the end of the task.
            with library().CancelScope(shield=True):
                nursery: Nursery = await outer.start(_shielded)
            try:
                yield nursery
            except (Exception, KeyboardInterrupt, SystemExit) as error:
                # Kept out of the nursery, which would wrap it in a group.
                failure = error
            finally:
                nursery.cancel_scope.cancel()
    finally:
        if failure is not None:
            try:
                raise failure
            finally:
                failure = None


async def _shielded(task_status: TaskStatus) -> None:
    with library().CancelScope(shield=True):
        async with library().open_nursery() as nursery:
            task_status.started(nursery)
            await library().sleep_forever()
