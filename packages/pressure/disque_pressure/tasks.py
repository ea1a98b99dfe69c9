"""Runs tasks beside a block, which end with it, and blocks that delay a cancellation.

Unlike Trio's nurseries, these raise errors as they are, not in a group.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import trio


@asynccontextmanager
async def aside(*functions: Callable[[], Awaitable[object]]) -> AsyncIterator[None]:
    """Run ``functions`` as tasks during the block, and cancel them at its end.

    An exception in one of them cancels the block and is raised in its place. If there are several
    exceptions, the first one is raised.
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
    """Delay a cancellation from outside by ``seconds`` within the block.

    When it then cancels the block, the block ends without an exception, and the next checkpoint
    raises.
    """
    scope = trio.CancelScope(shield=True)

    async def watch() -> None:
        try:
            await trio.sleep_forever()
        finally:
            scope.deadline = trio.current_time() + seconds

    async with aside(watch):
        with scope:
            yield
