"""Takes elements without losing any: reads them, secures them elsewhere, then removes them.

Owns the order of these steps. The protocol has no acknowledgements: an element that was popped is
lost if its taker dies. So a reader holds the consumer role, which keeps others from popping, and
only looks at the oldest elements. Once the caller says that they are safe, the reader pops them,
which counts them and wakes the producer. If the reader dies in between, they stay in the queue:
they come twice, but they come.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

from disque_pressure.deadlines import until
from disque_pressure.errors import (
    QueueClosedError,
    QueueDoesNotExistError,
    QueueEmptyError,
)
from disque_pressure.queue import PressureQueue
from disque_pressure.roles import Consumer
from disque_pressure.scripts import MOST_BYTES
from disque_trio.redis.script import Script

BATCH = 100
"""The most elements in progress at once."""

# KEYS: data, bound, closed. ARGV: how many, and the number of bytes after which to stop. The oldest
# elements are on the right of the list, and come first in the reply.
_LOOK = Script(
    """
local count, most, bytes = tonumber(ARGV[1]), tonumber(ARGV[2]), 0
local found = {}
while #found < count and bytes < most do
  local step = math.min(count - #found, 10)
  local part = redis.call('LRANGE', KEYS[1], -#found - step, -#found - 1)
  for i = #part, 1, -1 do
    found[#found + 1] = part[i]
    bytes = bytes + #part[i]
  end
  if #part < step then break end
end
return {redis.call('EXISTS', KEYS[2]), redis.call('EXISTS', KEYS[3]), found}
""",
    "pressure_look",
)


class Reader:
    """A consumer of a queue that reads elements before it removes them. Made by ``reading``."""

    def __init__(self, queue: PressureQueue, consumer: Consumer) -> None:
        self._queue = queue
        self._consumer = consumer

    async def look(
        self,
        count: int,
        timeout: float | None = None,
    ) -> list[bytes]:
        """Return the oldest 1 to ``count`` elements, oldest first, without taking them.

        Waits for the first one up to ``timeout`` seconds; None waits forever, 0 does not wait.

        Raises:
            QueueEmptyError: there was no element in time.
            QueueClosedError: the queue is closed and empty.
            QueueDoesNotExistError: the queue was deleted.
            PressureConnectionError: Redis cannot be reached.
        """
        engine, keys, name = self._queue.engine, self._queue.keys, self._queue.name
        looked = [keys.data, keys.bound, keys.closed]
        deadline = until(timeout)
        while True:
            reply = await engine.run(_LOOK, looked, count, MOST_BYTES, deadline=deadline)
            exists, closed, found = cast("list[Any]", reply)
            if not exists:
                raise QueueDoesNotExistError(name)
            if found:
                return list(found)
            if closed:
                raise QueueClosedError(name)
            await engine.wait([keys.data, keys.closed], deadline, QueueEmptyError(name))

    async def drain(
        self,
        hand_over: Callable[[list[bytes]], Awaitable[None]],
        *,
        count: int | None,
        wait: bool,
        timeout: float | None,
    ) -> None:
        """Look at elements and hand them over, at most ``BATCH`` at a time, until the queue is
        closed and empty, or ``count`` elements were handed over.

        Args:
            hand_over: secures elements elsewhere, then calls ``remove``.
            wait: False also ends when the queue is empty.
            timeout: as for ``look``.

        Raises the errors of ``look`` and of ``hand_over``.
        """
        left = count
        while left is None or left > 0:
            most = BATCH if left is None else min(BATCH, left)
            try:
                elements = await self.look(most, timeout if wait else 0)
            except QueueClosedError:
                return
            except QueueEmptyError:
                if wait:
                    raise
                return
            await hand_over(elements)
            if left is not None:
                left -= len(elements)

    async def remove(self, elements: list[bytes]) -> list[bytes]:
        """Remove elements that are now safe: all that ``look`` returned, or the first of them.

        Returns:
            Elements that were removed although ``look`` had not returned them. This only happens if
            a client took elements without being the consumer.

        Raises:
            RoleLostError: another client is now the consumer, and gets these elements again.
        """
        taken: list[bytes] = []
        try:
            while len(taken) < len(elements):  # each call may return fewer
                taken += await self._consumer._remove(len(elements) - len(taken))
        except (QueueEmptyError, QueueClosedError):
            pass
        if taken == elements:
            return []
        return [element for element in taken if element not in elements]


@asynccontextmanager
async def reading(
    queue: PressureQueue,
    timeout: float | None = None,
) -> AsyncIterator[Reader]:
    """Be the consumer of ``queue`` within the block, and yield a ``Reader``.

    Raises:
        QueueInUseError: another client was the consumer for ``timeout`` seconds.
    """
    async with queue.consumer(timeout) as consumer:
        yield Reader(queue, consumer)
