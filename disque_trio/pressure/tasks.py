"""Background tasks beside a block, whose errors arrive as they are and not in a group."""

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
