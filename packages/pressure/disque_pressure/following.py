"""Shows the newest elements of a queue, and those that follow, without taking them.

Owns the position: the value of the counter of produced elements at the last look. New elements are
on the left of the list, as many as the counter has grown by, unless they were taken meanwhile.
"""

from typing import Any, cast

from disque_pressure.errors import QueueDoesNotExistError
from disque_pressure.queue import PressureQueue
from disque_trio.redis.script import Script

MOST = 10_000
"""The most elements of one look."""

# KEYS: data, bound, closed, produced. ARGV: produced at the last look, or -1; how many; the most.
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
        over: whether the queue was closed, or deleted since the first look: no more will come.
    """

    def __init__(self, queue: PressureQueue) -> None:
        self._queue = queue
        self._produced = -1
        self.over = False

    async def look(self, count: int = 0) -> tuple[list[bytes], int]:
        """Return new elements, oldest first, and how many others were already taken.

        The first call returns the newest ``count`` elements, later calls those added since.

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
