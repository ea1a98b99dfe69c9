"""Trio or asyncio, whichever is running, with the parts that clients need, under Trio's names.

Under Trio, ``library()`` is Trio itself. Under asyncio it is ``on_asyncio``, a stand-in for Trio,
which is only imported there since it needs the extra ``asyncio``.

asyncio's own ``Task.cancel`` does not respect scopes. It raises an exception once, at a point where
a task waits, even in a shielded scope, and even if what the task waits for has just happened. Code
that waits has to take this into account.
"""

import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from signal import Signals
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeVarTuple, cast

import trio
from trio.lowlevel import in_trio_task

from disque_trio.respclient.errors import TooSlowError

Ts = TypeVarTuple("Ts")


class Event(Protocol):
    """An event that tasks can wait for."""

    def is_set(self) -> bool: ...
    def set(self) -> None: ...
    async def wait(self) -> object: ...


class Lock(Protocol):
    """A lock that one task at a time can hold, in an ``async with`` block."""

    async def __aenter__(self) -> object: ...
    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None: ...


class CancelScope(Protocol):
    """A block that can be cancelled."""

    @property
    def cancelled_caught(self) -> bool: ...
    def cancel(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> bool | None: ...


class Nursery(Protocol):
    """A group of tasks."""

    @property
    def cancel_scope(self) -> CancelScope: ...
    def start_soon(self, function: Callable[[*Ts], Awaitable[object]], /, *args: *Ts) -> object: ...
    async def start(self, function: Callable[..., Awaitable[object]], /, *args: object) -> Any: ...


class Token(Protocol):
    """The running loop."""

    def run_sync_soon(self, function: Callable[[], object], /) -> None:
        """Call a function in the loop. May itself be called from anywhere, even from finalisers.

        Raises:
            trio.RunFinishedError: the loop has ended.
        """


class Lowlevel(Protocol):
    """The parts of ``trio.lowlevel`` that clients need."""

    async def checkpoint(self) -> None: ...
    def current_trio_token(self) -> Token: ...
    def spawn_system_task(self, function: Callable[[], Awaitable[object]], /) -> object: ...


class TaskStatus(Protocol):
    """Lets a task tell ``Nursery.start`` that it has started."""

    def started(self, value: Any = None, /) -> None: ...


class Library(Protocol):
    """The parts of Trio that clients need."""

    @property
    def lowlevel(self) -> Lowlevel: ...

    def move_on_after(self, seconds: float, /, *, shield: bool = False) -> CancelScope: ...
    def open_nursery(self) -> AbstractAsyncContextManager[Nursery]: ...
    def current_time(self) -> float: ...
    async def sleep(self, seconds: float, /) -> None: ...
    async def sleep_forever(self) -> object: ...
    async def open_tcp_stream(self, host: str, port: int, /) -> trio.abc.HalfCloseableStream: ...
    async def open_unix_socket(self, path: str, /) -> trio.abc.HalfCloseableStream: ...
    async def aclose_forcefully(self, stream: trio.abc.AsyncResource, /) -> None: ...
    def open_signal_receiver(
        self, *signals: Signals
    ) -> AbstractContextManager[AsyncIterator[int]]: ...

    # After the methods whose types mean the classes of the same names.
    def Event(self) -> Event: ...
    def Lock(self) -> Lock: ...
    def CancelScope(self, *, shield: bool = False) -> CancelScope: ...


_TRIO: Final = cast(Library, trio)


def library() -> Library:
    """Return the library that is running; Trio if none is.

    Raises:
        ImportError: it is asyncio, but the extra ``asyncio`` is not installed.
    """
    if in_trio_task():
        return _TRIO
    asyncio = sys.modules.get("asyncio")  # Trio does not import it
    if asyncio is None:
        return _TRIO
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _TRIO
    from disque_trio.respclient import on_asyncio

    return cast(Library, on_asyncio)


def is_trio(used: Library) -> bool:
    """Return whether ``used``, from ``library()``, is Trio itself."""
    return used is _TRIO


@contextmanager
def fail_after(seconds: float) -> Iterator[None]:
    """Cancel the block if it takes longer than ``seconds``.

    Raises:
        TooSlowError: it took longer.
    """
    with library().move_on_after(seconds) as scope:
        yield
    if scope.cancelled_caught:
        raise TooSlowError(f"not done within {seconds:g} s")
