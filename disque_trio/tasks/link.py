"""How a program reaches the cluster, from whatever calls it: a thread, or a task of Trio or
asyncio."""

import asyncio
import os
import sys
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Protocol, TypeVar

import trio

from disque_trio.client import Client, sync

T = TypeVar("T")

MOST_THREADS = 1000
"""Threads that may wait for the client's at once, for tasks of a Trio program: they only wait."""


def in_async() -> bool:
    """Whether this is called in a task of Trio or asyncio, which must not block."""
    return trio.lowlevel.in_trio_task() or in_asyncio()


def in_asyncio() -> bool:
    """Whether this is called in a task of asyncio."""
    if "asyncio" not in sys.modules:
        return False
    try:
        return asyncio.current_task() is not None
    except RuntimeError:  # there is no loop
        return False


async def in_thread(function: Callable[[], T]) -> T:
    """Call a function that blocks in a thread, from a task of Trio or asyncio. When that is
    cancelled the thread is left alone."""
    if in_asyncio():
        return await asyncio.to_thread(function)
    return await trio.to_thread.run_sync(function, abandon_on_cancel=True, limiter=_waiting())


_limiter: trio.lowlevel.RunVar[trio.CapacityLimiter] = trio.lowlevel.RunVar("disque_threads")


def _waiting() -> trio.CapacityLimiter:
    try:
        return _limiter.get()
    except LookupError:
        limiter = trio.CapacityLimiter(MOST_THREADS)
        _limiter.set(limiter)
        return limiter


class Link(Protocol):
    """A way to a client."""

    async def run(self, function: Callable[[Client], Awaitable[T]]) -> T:
        """Await ``function(client)``, from a task of Trio or asyncio."""

    def run_sync(self, function: Callable[[Client], Awaitable[T]]) -> T:
        """The same from a thread, which blocks meanwhile."""


class OwnThread:
    """A client in a thread of its own, which is connected at first use and serves all.

    Args:
        open: makes the client.
    """

    def __init__(self, open: Callable[[], sync.Client]) -> None:
        self._open = open
        self._client: sync.Client | None = None
        self._making = threading.Lock()
        _all.add(self)

    def in_child(self) -> None:
        """The process was forked: another thread may have been at it."""
        self._making = threading.Lock()

    async def run(self, function: Callable[[Client], Awaitable[T]]) -> T:
        return await in_thread(partial(self.run_sync, function))

    def run_sync(self, function: Callable[[Client], Awaitable[T]]) -> T:
        with self._making:
            if self._client is None:
                self._client = self._open()
            client = self._client
        return client.run(function)

    def close(self) -> None:
        """Close the connections. The next use opens them again."""
        with self._making:
            client, self._client = self._client, None
        if client is not None:
            client.close()


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
        if self._loop is not None:
            return asyncio.run_coroutine_threadsafe(
                _coroutine(function, self._client), self._loop
            ).result()
        return trio.from_thread.run(function, self._client, trio_token=self._token)


def _coroutine(
    function: Callable[[Client], Awaitable[T]], client: Client
) -> Coroutine[Any, Any, T]:
    async def run() -> T:
        return await function(client)

    return run()
