"""Elements that Redis delivered after their get had ended.

A get takes its elements out of the queue, but a stalled Redis only does so when it wakes up, when
the get may have ended. These elements cannot go back into the queue: it may be full by now, and
others may have got the elements that followed them, or seen its end. So the handle keeps them, and
its next get returns them. That get waits for late replies first, which preserves the order.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, cast

import trio

from disque_trio.redis.connection import RedisConnection
from disque_trio.redis.errors import RedisError, RedisUnavailable
from disque_trio.respclient.concurrency import Nursery
from disque_trio.respclient.connection import Reply


class LateElements:
    """The late elements of one handle, which arrive over ``redis``. Tasks in ``nursery`` wait for
    them."""

    def __init__(self, nursery: Nursery, redis: RedisConnection) -> None:
        self._nursery = nursery
        self._redis = redis
        self._items: deque[bytes] = deque()
        self._under_way = 0
        self._arrived = trio.Event()

    def __len__(self) -> int:
        return len(self._items)

    @property
    def any(self) -> bool:
        """Whether there are late elements, or may be soon."""
        return bool(self._items) or self._under_way > 0

    def expect(
        self,
        reply: Coroutine[Any, Any, Reply],
        afterwards: Callable[[], Awaitable[None]] | None,
    ) -> None:
        """Wait for the reply to a get that was given up, then call ``afterwards``."""
        try:
            self._nursery.start_soon(self._wait, reply, afterwards)
        except RuntimeError:  # the handle is closed
            reply.close()
        else:
            self._under_way += 1

    async def _wait(
        self,
        reply: Coroutine[Any, Any, Reply],
        afterwards: Callable[[], Awaitable[None]] | None,
    ) -> None:
        try:
            try:
                items = await reply
            except (RedisUnavailable, RedisError):
                items = None
            # Otherwise it is empty, or an error, which begins with a code.
            if isinstance(items, list) and items and isinstance(items[0], bytes):
                self._items += cast("list[bytes]", items)
                self._stir()
            if afterwards is not None:
                await afterwards()
        finally:
            self._under_way -= 1
            self._stir()

    def _stir(self) -> None:
        self._arrived.set()
        self._arrived = trio.Event()

    async def get(self, count: int, until: float) -> list[bytes]:
        """Return the first late elements, at most ``count``, waiting for those that may come.

        If the list is empty, there are none, and the caller has to ask Redis.

        Raises:
            RedisUnavailable: Redis does not reply by ``until``.
        """
        with trio.move_on_at(until):
            while self._under_way and not self._items:
                await self._arrived.wait()
        if not self._items and (self._under_way or self._redis.silent):
            raise RedisUnavailable(
                "Redis does not answer: an earlier get has no reply yet", False, "hung"
            )
        return [self._items.popleft() for _ in range(min(count, len(self._items)))]
