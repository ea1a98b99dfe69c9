"""Threads and their outcomes, for tasks of whichever loop the program runs: Trio or asyncio."""

import asyncio
import sys
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

import trio

T = TypeVar("T")

_LETTING_GO = 1.0
"""Seconds that something cancelled has to end."""


def in_async() -> bool:
    """Return whether the caller is a task of Trio or asyncio, which must not block."""
    return trio.lowlevel.in_trio_task() or in_asyncio()


def in_asyncio() -> bool:
    """Return whether the caller is a task of asyncio."""
    if "asyncio" not in sys.modules:
        return False
    try:
        return asyncio.current_task() is not None
    except RuntimeError:  # there is no loop
        return False


async def in_thread(function: Callable[[], T]) -> T:
    """Call a blocking function in a thread. If the task is cancelled, the thread is abandoned."""
    if in_asyncio():
        return await asyncio.to_thread(function)
    return await trio.to_thread.run_sync(function, abandon_on_cancel=True)


async def outcome_of(future: "Future[T]", drop: Callable[[], object]) -> T:
    """Wait for the outcome that another thread puts into ``future``, and return or raise it. If the
    task is cancelled, call ``drop``."""
    try:
        if in_asyncio():
            await _in_asyncio(future)
        else:
            await _in_trio(future)
    except BaseException:
        drop()
        raise
    return future.result()


async def _in_asyncio(future: "Future[T]") -> None:
    loop = asyncio.get_running_loop()
    done = asyncio.Event()

    def tell(_: "Future[T]") -> None:
        try:
            loop.call_soon_threadsafe(done.set)
        except RuntimeError:
            pass  # the loop is closed: nobody waits

    future.add_done_callback(tell)
    await done.wait()


async def _in_trio(future: "Future[T]") -> None:
    token = trio.lowlevel.current_trio_token()
    done = trio.Event()

    def tell(_: "Future[T]") -> None:
        try:
            token.run_sync_soon(done.set)
        except trio.RunFinishedError:
            pass  # nobody waits

    future.add_done_callback(tell)
    await done.wait()


class _AsyncioCall(Generic[T]):
    """A coroutine in the loop of another thread. ``outcome`` is set when it has really ended."""

    def __init__(
        self, function: Callable[[], Coroutine[Any, Any, T]], loop: asyncio.AbstractEventLoop
    ) -> None:
        self.outcome: Future[T] = Future()
        self._function = function
        self._loop = loop
        self._task: asyncio.Task[T] | None = None

    def begin(self) -> None:
        self._task = self._loop.create_task(self._run())
        self._task.add_done_callback(self._end)

    async def _run(self) -> T:
        try:
            return await self._function()
        except (SystemExit, KeyboardInterrupt) as error:
            # Raised here, they would end the loop, with everything that others run in it.
            self.outcome.set_exception(error)
            raise asyncio.CancelledError from error

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _end(self, task: "asyncio.Task[T]") -> None:
        if task.cancelled():
            self.outcome.cancel()  # unless it is already set
        elif error := task.exception():
            self.outcome.set_exception(error)
        else:
            self.outcome.set_result(task.result())


class AsyncioThread:
    """An asyncio loop in a thread of its own, for tasks of Trio. Starts when first needed and ends
    with the process.

    Attributes:
        stuck: whether something that was cancelled goes on, ignoring that or blocking the loop.
    """

    def __init__(self) -> None:
        self._starting = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.stuck = False

    async def run(self, function: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Await ``function()`` in that loop, with the caller's context variables. If the caller is
        cancelled, so is the call, which then has a second to end."""
        loop = self._started()
        call = _AsyncioCall(function, loop)
        loop.call_soon_threadsafe(call.begin)
        try:
            return await outcome_of(call.outcome, lambda: loop.call_soon_threadsafe(call.cancel))
        except trio.Cancelled:
            with trio.move_on_after(_LETTING_GO, shield=True):
                await _in_trio(call.outcome)
            self.stuck = self.stuck or not call.outcome.done()
            raise

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._starting:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                thread = threading.Thread(
                    target=self._loop.run_forever, name="disque-asyncio", daemon=True
                )
                thread.start()
            return self._loop
