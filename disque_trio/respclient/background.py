"""Runs the background tasks of a client."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio


@asynccontextmanager
async def background() -> AsyncIterator[trio.Nursery]:
    """Open a nursery for a client's connections and heartbeats, which ends with the block.

    It is shielded from the caller's cancellation, so that what the client holds can still be given
    back while the caller is being cancelled. An exception of the block comes out as it is, not in a
    group.
    """
    failure: BaseException | None = None
    try:
        async with trio.open_nursery() as outer:
            # Shielded, because a start that is cancelled would wait for the end of the task.
            with trio.CancelScope(shield=True):
                nursery: trio.Nursery = await outer.start(_shielded)
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


async def _shielded(task_status: trio.TaskStatus[trio.Nursery]) -> None:
    with trio.CancelScope(shield=True):
        async with trio.open_nursery() as nursery:
            task_status.started(nursery)
            await trio.sleep_forever()
