"""Runs calls from threads on the client in its Trio loop."""

import os
import threading
import weakref
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import TypeVar

from disque_trio.client import tracing
from disque_trio.client.client import Client
from disque_trio.respclient.errors import ConnectionLost
from disque_trio.respclient.foreign import in_thread, outcome_of
from disque_trio.respclient.thread_loop import Loop, LoopEnded

R = TypeVar("R")


class Portal:
    """Runs the calls of a client, which lives in a Trio loop in a thread of its own.

    A child made by ``os.fork`` has no such thread: its first call connects a new client.

    Args:
        connect: makes the client.
    """

    def __init__(self, connect: Callable[[], AbstractAsyncContextManager[Client]]) -> None:
        """Connect. Raises what ``connect`` raises."""
        self._connect = connect
        self._closed = False
        self._opening = threading.Lock()
        self._loop: Loop[Client] | None = None
        self.loop()
        _portals.add(self)

    def loop(self) -> Loop[Client]:
        """Return the loop in this process; connect a client if there is none.

        Raises:
            ConnectionLost: the client is closed, or no node can be reached for a new one.
        """
        loop = self._loop
        if loop is None:
            with self._opening:
                if self._closed:
                    raise ConnectionLost("the client is closed")
                loop = self._loop
                if loop is None:
                    loop = self._loop = Loop(self._connect, "disque-client")
        return loop

    def run(
        self,
        function: Callable[[Client], Awaitable[R]],
        keep: Callable[[R], None] = lambda _: None,
        loop: Loop[Client] | None = None,
    ) -> R:
        """Await ``function(client)`` in the client's loop, and return or raise the outcome.

        Args:
            keep: called with the result if an exception in this thread (KeyboardInterrupt)
                interrupted the wait for it.
            loop: the loop to use, for objects that belong to one client; None: the current loop.

        Raises:
            ConnectionLost: the client is closed, or the object was made before a fork.
        """
        loop = loop or self.loop()
        client = loop.value
        with _lost_with_its_loop():
            return loop.run(tracing.carried(lambda: function(client)), keep)

    async def run_beside(self, function: Callable[[Client], Awaitable[R]]) -> R:
        """Like ``run``, but for tasks of other Trio or asyncio loops, which it does not block.

        If the task is cancelled, so is the call.

        Raises:
            ConnectionLost: as for ``run``.
        """
        loop = self._loop
        if loop is None:
            # Connecting blocks a thread, and takes time.
            loop = await in_thread(self.loop)
        client = loop.value
        with _lost_with_its_loop():
            call = tracing.carried(lambda: function(client))
            return await outcome_of(*loop.submit(call))

    def close(self) -> None:
        """Disconnect; jobs that are held are given back. May be called again."""
        with self._opening:
            self._closed = True
            loop, self._loop = self._loop, None
        if loop is not None:
            loop.close()

    def forked(self) -> None:
        """Start over in a forked child, where no other thread runs and the parent keeps the
        connections."""
        self._opening = threading.Lock()
        self._loop = None


@contextmanager
def _lost_with_its_loop() -> Iterator[None]:
    """Raise ConnectionLost if the client's loop has ended."""
    try:
        yield
    except LoopEnded as ended:
        raise ConnectionLost(
            f"the client can no longer be used: {ended}", maybe_executed=ended.begun
        ) from None


_portals: "weakref.WeakSet[Portal]" = weakref.WeakSet()


def _forked() -> None:
    for portal in list(_portals):
        portal.forked()


os.register_at_fork(after_in_child=_forked)
