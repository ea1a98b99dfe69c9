"""Background tasks beside a block: those that end with it, and those that clean up after it.

Owns what Trio's nurseries do otherwise: errors arrive as they are here and not in a group.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import trio


@asynccontextmanager
async def aside(*functions: Callable[[], Awaitable[object]]) -> AsyncIterator[None]:
    """Run `functions` as tasks as long as the block takes; then they are cancelled.

    An exception of one of them cancels the block and is raised in its place. Of several exceptions
    the first is raised.
    """
    failure: Exception | None = None
    async with trio.open_nursery() as nursery:

        async def run(function: Callable[[], Awaitable[object]]) -> None:
            nonlocal failure
            try:
                await function()
            except Exception as error:
                failure = failure or error
                nursery.cancel_scope.cancel()

        for function in functions:
            nursery.start_soon(run, function)
        try:
            yield
        except Exception as error:
            failure = failure or error
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure


@asynccontextmanager
async def background() -> AsyncIterator[trio.Nursery]:
    """A nursery for connections that outlive the cancellation of the block, so that what was taken
    can be given back; it ends with the block."""

    opened: list[trio.Nursery] = []
    ready = trio.Event()

    async def stay() -> None:
        with trio.CancelScope(shield=True):
            async with trio.open_nursery() as inner:
                opened.append(inner)
                ready.set()
                await trio.sleep_forever()

    async with trio.open_nursery() as outer:
        outer.start_soon(stay)
        # Not `outer.start`: cancelled, it would wait for the end of what never ends by itself.
        with trio.CancelScope(shield=True):
            await ready.wait()
        try:
            yield opened[0]
        finally:
            opened[0].cancel_scope.cancel()
