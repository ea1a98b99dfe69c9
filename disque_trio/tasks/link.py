"""How a program reaches the cluster, from whatever calls it: a thread, or a task of Trio or
asyncio."""

import asyncio
import os
import threading
import weakref
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Protocol, TypeVar

import trio

from disque_trio.client import Client
from disque_trio.client.sync.portal import Portal
from disque_trio.respclient.foreign import in_asyncio, in_thread

T = TypeVar("T")


class Link(Protocol):
    """A way to a client."""

    async def run(self, function: Callable[[Client], Awaitable[T]]) -> T:
        """Await ``function(client)``, from a task of Trio or asyncio."""

    def run_sync(self, function: Callable[[Client], Awaitable[T]]) -> T:
        """The same from a thread, which blocks meanwhile."""


class OwnThread:
    """A client in a thread of its own, which is connected at first use and serves all.

    Args:
        connect: makes the client.
    """

    def __init__(self, connect: Callable[[], AbstractAsyncContextManager[Client]]) -> None:
        self._connect = connect
        self._portal: Portal | None = None
        self._making = threading.Lock()
        _all.add(self)

    def in_child(self) -> None:
        """The process was forked: another thread may have been at it."""
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
        with self._making:
            if self._portal is None:
                self._portal = Portal(self._connect)
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
    """A client of the loop that makes this, used by that loop, by other ones and by threads."""

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
        """It belongs to a process that this one was forked from."""
        return self._pid != os.getpid()

    def _is_here(self) -> bool:
        if self._loop is not None:
            return in_asyncio() and asyncio.get_running_loop() is self._loop
        return trio.lowlevel.in_trio_task() and trio.lowlevel.current_trio_token() is self._token

    async def run(self, function: Callable[[Client], Awaitable[T]]) -> T:
        if self._is_here():
            return await function(self._client)
        return await in_thread(partial(self.run_sync, function))

    def run_sync(self, function: Callable[[Client], Awaitable[T]]) -> T:
        if self._loop is None:
            return trio.from_thread.run(function, self._client, trio_token=self._token)

        async def run() -> T:
            return await function(self._client)

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result()
