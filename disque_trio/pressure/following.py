"""Shows the newest elements of a queue, and those that follow, without taking them.

Owns the position: how many elements had been produced at the last look. New ones are on the left
of the list, as many as the counter has grown by, unless they were taken since.
"""

from typing import Any, cast

from disque_trio.pressure.errors import QueueDoesNotExistError
from disque_trio.pressure.queue import PressureQueue
from disque_trio.redis.script import Script

MOST = 10_000
"""Elements of one look."""

# KEYS: data, bound, closed, produced. ARGV: produced at the last look, else -1; how many; the most.
_LOOK = Script(
    """
local produced = tonumber(redis.call('GET', KEYS[4]) or 0)
local length = redis.call('LLEN', KEYS[1])
local new = tonumber(ARGV[2])
if tonumber(ARGV[1]) >= 0 then new = math.max(produced - tonumber(ARGV[1]), 0) end
local shown = math.min(new, length, tonumber(ARGV[3]))
local found = {}
if shown > 0 then found = redis.call('LRANGE', KEYS[1], 0, shown - 1) end
return {
    redis.call('EXISTS', KEYS[2]), redis.call('EXISTS', KEYS[3]), produced, new - shown, found,
}
""",
    "pressure_follow",
)


class Follower:
    """Follows the elements that are put into a queue.

    Attributes:
        over: the queue was closed, or deleted since the first look: nothing will come any more.
    """

    def __init__(self, queue: PressureQueue) -> None:
        self._queue = queue
        self._produced = -1
        self.over = False

    async def look(self, count: int = 0) -> tuple[list[bytes], int]:
        """The newest elements, oldest first, and how many that came were gone already.

        Shows ``count`` at the first time, later those that came since.

        Raises:
            QueueDoesNotExistError: there was no such queue at the first look.
            PressureConnectionError: Redis cannot be reached.
        """
        keys = self._queue.keys
        first = self._produced < 0
        looked = [keys.data, keys.bound, keys.closed, keys.protocol[6]]
        reply = await self._queue.engine.run(_LOOK, looked, self._produced, count, MOST)
        exists, closed, produced, missed, found = cast("list[Any]", reply)
        if first and not exists:
            raise QueueDoesNotExistError(self._queue.name)
        self._produced = produced
        self.over = bool(closed) or not exists
        found.reverse()
        return found, 0 if first else missed
