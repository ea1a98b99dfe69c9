"""Runs the background tasks of a client."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from disque_trio.respclient.concurrency import Nursery, library


@asynccontextmanager
async def background() -> AsyncIterator[Nursery]:
    """Open a nursery for a client's connections and heartbeats, which ends with the block.

    The nursery is shielded from the caller's cancellation, so that what the client holds can be
    given back while the caller is being cancelled. Exceptions in the block are raised as they are,
    not in a group.
    """
    failure: BaseException | None = None
    shielded = library().CancelScope(shield=True)
    opened = library().Event()
    nursery: Nursery

    # Do not use ``Nursery.start``: interrupted by a cancellation in asyncio, it would wait for the
    # end of the task, which the shield keeps from being cancelled.
    async def run() -> None:
        nonlocal nursery
        with shielded:
            async with library().open_nursery() as nursery:
                opened.set()
                await library().sleep_forever()

    try:
        async with library().open_nursery() as outer:
            outer.start_soon(run)
            try:
                await opened.wait()
                yield nursery
            except (Exception, KeyboardInterrupt, SystemExit) as error:
                # Kept out of the nursery, which would wrap it in a group.
                failure = error
            finally:
                shielded.cancel()
    finally:
        if failure is not None:
            try:
                raise failure
            finally:
                failure = None
