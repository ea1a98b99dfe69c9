"""How a program reaches the cluster, from a thread or from a task of Trio or asyncio."""

import asyncio
import math
import os
import threading
import time
import weakref
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from typing import Generic, Protocol, TypeVar

import trio

from disque_trio.client import Client, ConnectionLost, tracing
from disque_trio.client.sync.portal import Portal
from disque_trio.respclient.foreign import in_asyncio, in_thread, outcome_of

T = TypeVar("T")


class Link(Protocol):
    """A way to run functions with a client."""

    async def run(self, function: Callable[[Client], Awaitable[T]]) -> T:
        """Await ``function(client)``, from a task of Trio or asyncio."""

    def run_sync(self, function: Callable[[Client], Awaitable[T]]) -> T:
        """The same, from a thread, which blocks meanwhile."""


class OwnThread:
    """A client in a thread of its own, connected at first use and shared by all callers.

    Args:
        connect: makes the client.
    """

    def __init__(self, connect: Callable[[], AbstractAsyncContextManager[Client]]) -> None:
        self._connect = connect
        self._portal: Portal | None = None
        self._making = threading.Lock()
        self._failed: tuple[float, str] = (-math.inf, "")  # when, and why
        _all.add(self)

    def in_child(self) -> None:
        """Replace the lock after a fork, since another thread may have held it."""
        self._making = threading.Lock()

    async def run(self, function: Callable[[Client], Awaitable[T]]) -> T:
        # Connecting blocks.
        portal = self._portal
        if portal is None:
            portal = await in_thread(self._connected)
        return await portal.run_beside(function)

    def run_sync(self, function: Callable[[Client], Awaitable[T]]) -> T:
        return self._connected().run(function)

    def _connected(self) -> Portal:
        asked = time.monotonic()
        with self._making:
            if self._portal is None:
                when, why = self._failed
                if when > asked:  # another thread has tried meanwhile: not each in turn
                    raise ConnectionLost(why)
                try:
                    self._portal = Portal(self._connect)
                except ConnectionLost as error:
                    self._failed = time.monotonic(), str(error)
                    raise
            return self._portal

    def close(self) -> None:
        """Close the connections. The next use opens them again."""
        with self._making:
            portal, self._portal = self._portal, None
        if portal is not None:
            portal.close()


_all: "weakref.WeakSet[OwnThread]" = weakref.WeakSet()


def _in_child() -> None:
    for one in list(_all):
        one.in_child()


os.register_at_fork(after_in_child=_in_child)


class OfLoop:
    """The client of one loop, used by that loop, by other loops and by threads."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._pid = os.getpid()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        if in_asyncio():
            self._loop = asyncio.get_running_loop()
        else:
            self._token = trio.lowlevel.current_trio_token()

    @property
    def inherited(self) -> bool:
        """Whether this object belongs to a process that this one was forked from."""
        return self._pid != os.getpid()

    def _is_here(self) -> bool:
        if self._loop is not None:
            return in_asyncio() and asyncio.get_running_loop() is self._loop
        return trio.lowlevel.in_trio_task() and trio.lowlevel.current_trio_token() is self._token

    async def run(self, function: Callable[[Client], Awaitable[T]]) -> T:
        if self._is_here():
            return await function(self._client)
        return await outcome_of(*self._submit(function))

    def run_sync(self, function: Callable[[Client], Awaitable[T]]) -> T:
        future, drop = self._submit(function)
        try:
            return future.result()
        except BaseException:
            drop()
            raise

    def _submit(
        self, function: Callable[[Client], Awaitable[T]]
    ) -> tuple[Future[T], Callable[[], object]]:
        """Start ``function(client)`` in the loop; return its future and a function to cancel it."""
        client = self._client
        call = _Call(tracing.carried(lambda: function(client)))
        try:
            if self._loop is not None:
                future = asyncio.run_coroutine_threadsafe(call.run(), self._loop)
                return call.outcome, future.cancel
            assert self._token is not None
            token = self._token
            token.run_sync_soon(lambda: trio.lowlevel.spawn_system_task(call.run_in_trio))
        except (RuntimeError, trio.RunFinishedError) as error:
            raise ConnectionLost("the loop of the client has ended") from error

        def drop() -> None:
            try:
                token.run_sync_soon(call.scope.cancel)
            except trio.RunFinishedError:
                pass

        return call.outcome, drop


class _Call(Generic[T]):
    """A call whose outcome others wait for."""

    def __init__(self, function: Callable[[], Awaitable[T]]) -> None:
        self.outcome: Future[T] = Future()
        self.scope = trio.CancelScope()
        self._function = function

    async def run(self) -> None:
        """Run in the loop, and pass any exception to whoever waits for the outcome."""
        try:
            self.outcome.set_result(await self._function())
        except Exception as error:
            self.outcome.set_exception(error)
        finally:
            if not self.outcome.done():
                lost = ConnectionLost("the loop of the client is ending", maybe_executed=True)
                self.outcome.set_exception(lost)

    async def run_in_trio(self) -> None:
        """The same, as a system task, which must not raise."""
        with self.scope:
            await self.run()
