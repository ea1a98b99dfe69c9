"""Elements whose get had ended before Redis delivered them.

A get takes its elements out of the queue, and a Redis that stalls does so only when it wakes up:
the get may have ended by then. They cannot go back into the queue, where there may be no room any
more, others may have got the elements behind them, or its end. So the handle keeps them, and its
next get returns them. That one waits for those that are under way, so the order remains.
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
    """The late elements of one handle, which arrive over ``redis``. Tasks of ``nursery`` wait for
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
        """Whether there are some, or may be soon."""
        return bool(self._items) or self._under_way > 0

    def expect(
        self,
        reply: Coroutine[Any, Any, Reply],
        afterwards: Callable[[], Awaitable[None]] | None,
    ) -> None:
        """Wait for the reply of a get that was given up; call ``afterwards`` then."""
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
            # Else it is empty, or begins with a code and says what was wrong.
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
        """The first of them, at most ``count``; waits for those that may come. None: ask Redis.

        Raises:
            RedisUnavailable: Redis does not reply until ``until``.
        """
        with trio.move_on_at(until):
            while self._under_way and not self._items:
                await self._arrived.wait()
        if not self._items and (self._under_way or self._redis.silent):
            raise RedisUnavailable(
                "Redis does not answer: an earlier get has no reply yet", False, "hung"
            )
        return [self._items.popleft() for _ in range(min(count, len(self._items)))]
