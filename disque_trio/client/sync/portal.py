"""The way from threads to the client that runs in a Trio loop, and back."""

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
    """Runs calls of a client of its own, which is connected in a Trio loop of a thread of its own.

    A child made by ``os.fork`` has no such thread: at its first call a new client is connected.

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
        """The loop of this process.

        Raises:
            ConnectionLost: the client is closed; or it is new here, and no node can be reached.
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
        """Await ``function`` of the client in its loop, and return or raise the outcome.

        Args:
            keep: takes the result if the wait for it was broken by an exception in this thread
                (KeyboardInterrupt).
            loop: the only one that will do, for what belongs to a client; None: that of now.

        Raises:
            ConnectionLost: the client is closed, or what belongs to it was made before a fork.
        """
        loop = loop or self.loop()
        client = loop.value
        with _lost_with_its_loop():
            return loop.run(tracing.carried(lambda: function(client)), keep)

    async def run_beside(self, function: Callable[[Client], Awaitable[R]]) -> R:
        """``run`` for tasks of other loops, of Trio or asyncio, which it does not block. When such
        a task is cancelled, so is the call.

        Raises:
            ConnectionLost: as ``run``.
        """
        loop = self._loop
        if loop is None:
            # Connecting takes a thread, and time.
            loop = await in_thread(self.loop)
        client = loop.value
        with _lost_with_its_loop():
            call = tracing.carried(lambda: function(client))
            return await outcome_of(*loop.submit(call))

    def close(self) -> None:
        """Disconnect; what is held is given back. May be called again."""
        with self._opening:
            self._closed = True
            loop, self._loop = self._loop, None
        if loop is not None:
            loop.close()

    def forked(self) -> None:
        """Begin anew, in a child: nobody else runs there, and its parent has the connections."""
        self._opening = threading.Lock()
        self._loop = None


@contextmanager
def _lost_with_its_loop() -> Iterator[None]:
    """Raises ConnectionLost where the loop of a client has ended."""
    try:
        yield
    except LoopEnded as ended:
        raise ConnectionLost(
            f"the client cannot be used any more: {ended}", maybe_executed=ended.begun
        ) from None


_portals: "weakref.WeakSet[Portal]" = weakref.WeakSet()


def _forked() -> None:
    for portal in list(_portals):
        portal.forked()


os.register_at_fork(after_in_child=_forked)
