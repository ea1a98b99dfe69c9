"""Waits until one of some lists has an element, without taking it.

Owns the blocked commands of a handle. ``BLMOVE key key RIGHT RIGHT`` takes the rightmost element of
a list and puts it back in the same place, so it blocks while the list is empty, and otherwise
changes nothing. A script takes the element afterwards. So a wait can be given up, its connection
lost or its process killed at any moment without losing anything.

All waits for a list share one command, on a connection of its own. It ends within ``SLICE`` seconds
after the last wait.
"""

from collections.abc import Iterable

import trio

from disque_trio.redis.connection import REPLY_SECONDS, Open, RedisConnection
from disque_trio.redis.errors import RedisError, RedisUnavailable
from disque_trio.respclient.concurrency import Nursery

SLICE = 1.0
PAUSE = 0.1


class _Waiter:
    """A task that waits. ``error``: why its wait failed."""

    def __init__(self) -> None:
        self.event = trio.Event()
        self.error: Exception | None = None


class Waits:
    """The waits of one handle; their commands run in ``nursery``."""

    def __init__(self, nursery: Nursery, open_: Open) -> None:
        self._nursery = nursery
        self._open = open_
        self._connections: dict[bytes, RedisConnection] = {}
        self._waiters: dict[bytes, set[_Waiter]] = {}

    async def any(self, keys: Iterable[bytes], seconds: float) -> None:
        """Wait until one of the lists ``keys`` has an element, at most ``seconds``.

        May return early, and the element may be gone again: look, and wait again.

        Raises:
            RedisUnavailable: Redis cannot be reached.
            RedisError: the server does not know BLMOVE, or does not allow it.
        """
        waiter = _Waiter()
        keys = tuple(keys)
        for key in keys:
            waiters = self._waiters.get(key)
            if waiters is None:
                waiters = self._waiters[key] = set()
                self._nursery.start_soon(self._watch, key, waiters)
            waiters.add(waiter)
        try:
            with trio.move_on_after(seconds):
                await waiter.event.wait()
        finally:
            for key in keys:
                self._waiters.get(key, set()).discard(waiter)
        if waiter.error is not None:
            raise waiter.error

    async def _watch(self, key: bytes, waiters: set[_Waiter]) -> None:
        """Block on the list until it has an element, or nobody waits for it any more."""
        error: Exception | None = None
        try:
            redis = self._connections.get(key)
            if redis is None:
                redis = self._connections[key] = RedisConnection(self._nursery, self._open)
            words = (b"BLMOVE", key, key, b"RIGHT", b"RIGHT", str(SLICE))
            while waiters and await redis.command(*words, seconds=SLICE + REPLY_SECONDS) is None:
                pass
        except RedisUnavailable as failure:
            # An interrupted wait has changed nothing, and the next script finds out whether Redis
            # is there. Only report it if there could be no wait at all.
            if not failure.maybe_executed:
                error = failure
        except RedisError as failure:
            if failure.code == "WRONGTYPE":
                pass  # the next script reports which key it is
            elif failure.code == "OOM":
                # Memory is full, and Redis thinks that BLMOVE needs more. Elements can still be
                # got, so look at the list from time to time instead.
                await trio.sleep(PAUSE)
            else:
                error = failure
        finally:
            # Whoever comes from now on needs a new command.
            del self._waiters[key]
            for waiter in waiters:
                waiter.error = error
                waiter.event.set()
