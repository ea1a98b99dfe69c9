"""Runs tasks beside a block that end with it, and blocks that delay a cancellation.

Owns what Trio's nurseries do otherwise: errors arrive as they are here and not in a group.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import trio


@asynccontextmanager
async def aside(*functions: Callable[[], Awaitable[object]]) -> AsyncIterator[None]:
    """Run ``functions`` as tasks as long as the block takes; then they are cancelled.

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
async def reprieve(seconds: float) -> AsyncIterator[None]:
    """A cancellation from outside reaches the block so many seconds later. If it does, the block
    ends there without an exception; the next checkpoint behind it raises."""
    scope = trio.CancelScope(shield=True)

    async def watch() -> None:
        try:
            await trio.sleep_forever()
        finally:
            scope.deadline = trio.current_time() + seconds

    async with aside(watch):
        with scope:
            yield
