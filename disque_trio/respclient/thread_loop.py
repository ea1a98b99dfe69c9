"""Runs a Trio loop in a thread of its own, for programs without one.

Owns the thread and the way of calls into it and back. Knows nothing of queues and jobs.
"""

import atexit
import os
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

import trio

A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)
P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class LoopEnded(RuntimeError):
    """The loop is closed, or belongs to another process.

    Attributes:
        begun: whether the interrupted call had begun.
    """

    def __init__(self, message: str, *, begun: bool = False) -> None:
        super().__init__(message)
        self.begun = begun


class _Call(Generic[R]):
    """A call in progress: the function to await, and where its outcome goes."""

    def __init__(self, function: Callable[[], Awaitable[R]]) -> None:
        self.function = function
        self.begun = False
        self.future: Future[R] = Future()
        self.scope: trio.CancelScope = trio.CancelScope()

    def drop(self) -> None:
        """Cancel the call. Runs in the loop, which takes what it is given in order; so a call that
        has not begun by then was never handed over."""
        if self.begun:
            self.scope.cancel()
        elif not self.future.done():
            self.future.set_exception(LoopEnded("it was not begun"))

    async def run(self) -> None:
        """Run in the loop, and put any outcome into the future."""
        try:
            with self.scope:
                self.future.set_result(await self.function())
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            self.future.set_exception(error)
        finally:
            # Cancelled, by the caller through the scope or because the loop ends.
            if not self.future.done():
                self.future.set_exception(LoopEnded("it was closed meanwhile", begun=True))


class _WaitedFor(threading.local):
    """The loop that waits for this thread to finish, if any."""

    by: "Loop[Any] | None" = None


_waited_for = _WaitedFor()


@dataclass(frozen=True)
class EnteredContext(Generic[R]):
    """An asynchronous context that one task of the loop entered and will leave."""

    loop: "Loop[Any]"
    call: _Call[None]
    done: trio.Event
    value: R

    def leave(self) -> None:
        """Leave the context and wait until it is left. Raises what leaving raises."""
        self.loop.soon(self.done.set)
        self.call.future.result()


class _Outside(Generic[T]):
    """State shared by the thread and its callers. The thread has no reference to the ``Loop``, so
    that an abandoned loop is garbage collected and its thread ends."""

    def __init__(self, context: Callable[[], AbstractAsyncContextManager[T]]) -> None:
        self.context = context
        self.opened: Future[tuple[trio.lowlevel.TrioToken, trio.Nursery, trio.Event, T]] = Future()
        self._scope = trio.CancelScope()
        self._token: trio.lowlevel.TrioToken | None = None
        self._dropped = False

    def drop(self) -> None:
        """End the loop, in whatever state it is: nobody waits for it to open any more."""
        self._dropped = True
        if self._token is not None:
            try:
                self._token.run_sync_soon(self._scope.cancel)
            except trio.RunFinishedError:
                pass

    def thread(self) -> None:
        try:
            trio.run(self.main)
        except BaseException as error:
            if not self.opened.done():
                self.opened.set_exception(error)
            # Otherwise, calls in progress have been told, and later ones find no loop.

    async def main(self) -> None:
        ended = trio.Event()
        self._token = token = trio.lowlevel.current_trio_token()
        if self._dropped:
            return
        try:
            with self._scope:
                async with self.context() as value, trio.open_nursery() as nursery:
                    self.opened.set_result((token, nursery, ended, value))
                    await ended.wait()
                    nursery.cancel_scope.cancel()
        except Exception as error:
            if self.opened.done():
                raise
            self.opened.set_exception(error)


class Loop(Generic[T]):
    """Runs calls for other threads in a Trio loop, inside of ``context``.

    The loop ends with ``close``, when it is garbage collected, or when the program exits. Calls in
    progress are then cancelled, and clean up.

    Attributes:
        value: the value of the context.
    """

    def __init__(self, context: Callable[[], AbstractAsyncContextManager[T]], name: str) -> None:
        """Start the loop in a thread named ``name``. Raises what entering the context raises."""
        outside = _Outside(context)
        # A daemon: otherwise the interpreter would wait for it before it runs our finalizer.
        self._thread = threading.Thread(target=outside.thread, name=name, daemon=True)
        self._pid = os.getpid()
        try:
            self._thread.start()
            self._token, self._nursery, ended, self.value = outside.opened.result()
        except BaseException:
            outside.drop()
            raise
        self._ended = ended
        weakref.finalize(self, _end, self._token, ended, self._pid).atexit = False
        _loops.add(self)

    def run(self, function: Callable[[], Awaitable[R]], keep: Callable[[R], None]) -> R:
        """Await ``function()`` in the loop and return or raise its outcome.

        If an exception in this thread (KeyboardInterrupt) interrupts the wait, the call is
        cancelled, and cleans up before that exception goes on. If there already was a result,
        ``keep`` is called with it.

        Raises:
            LoopEnded: there is no loop to run the call, or it ended first.
            RuntimeError: this is the loop's own thread, which would wait for itself.
        """
        if threading.current_thread() is self._thread:
            raise RuntimeError("a blocking call in the loop that would have to run it")
        call = _Call(function)
        try:
            # An exception may interrupt this as well: then nobody knows whether the call began.
            self._start(call)
            return call.future.result()
        except LoopEnded:
            raise
        except BaseException as broken:
            if call.future.done() and call.future.exception() is broken:
                raise
            self.soon(call.drop)
            if call.future.exception() is None:
                keep(call.future.result())
            raise

    def hold(self, context: Callable[[], AbstractAsyncContextManager[R]]) -> EnteredContext[R]:
        """Enter a context in a task of its own and keep it open. Raises what entering raises."""
        entered: Future[R] = Future()
        done = trio.Event()

        async def holder() -> None:
            async with context() as value:
                entered.set_result(value)
                await done.wait()

        def ended(outcome: "Future[None]") -> None:
            if not entered.done():
                entered.set_exception(outcome.exception() or LoopEnded("it is closed"))

        call = _Call(holder)
        call.future.add_done_callback(ended)
        try:
            self._start(call)
            value = entered.result()
        except BaseException:
            if not entered.done() or entered.exception() is None:
                # Interrupted from outside: do not hold it.
                self.soon(call.drop)
                call.future.exception()
            raise
        return EnteredContext(self, call, done, value)

    def soon(self, function: Callable[[], object]) -> None:
        """Run a plain function in the loop. Raises LoopEnded if the loop has ended."""
        if os.getpid() != self._pid:
            raise LoopEnded("it was opened in another process")
        try:
            self._token.run_sync_soon(function)
        except trio.RunFinishedError:
            raise LoopEnded("it is closed") from None

    def start(self, function: Callable[[], Awaitable[object]]) -> None:
        """Await ``function()`` in the loop without waiting for it. Exceptions are dropped, and so
        is the call if the loop has ended."""
        try:
            self._start(_Call(function))
        except LoopEnded:
            pass

    def submit(
        self, function: Callable[[], Awaitable[R]]
    ) -> "tuple[Future[R], Callable[[], None]]":
        """Start to await ``function()`` in the loop. Returns the future of its outcome, which must
        not be cancelled directly, and a function to cancel the call. Raises LoopEnded."""
        call = _Call(function)
        self._start(call)

        def drop() -> None:
            try:
                self.soon(call.drop)
            except LoopEnded:
                pass

        return call.future, drop

    async def in_thread(self, function: Callable[[], R], limiter: trio.CapacityLimiter) -> R:
        """Call a blocking function in another thread. To be awaited in the loop, which then waits
        for the end of that thread."""

        def call() -> R:
            _waited_for.by = self
            try:
                return function()
            finally:
                _waited_for.by = None

        return await trio.to_thread.run_sync(call, limiter=limiter)

    def close(self) -> None:
        """End the loop and wait for its end, unless the loop waits for this thread. May be called
        again, and from several threads."""
        # Not by the finalizer, which does nothing any more when the interpreter exits.
        _end(self._token, self._ended, self._pid)
        waits = threading.current_thread() is self._thread or _waited_for.by is self
        if os.getpid() == self._pid and not waits:
            self._thread.join()

    def _start(self, call: "_Call[R]") -> None:
        def start() -> None:
            call.begun = True
            try:
                self._nursery.start_soon(call.run)
            except RuntimeError:  # the nursery is closed
                call.future.set_exception(LoopEnded("it is closed"))

        self.soon(start)


def _end(token: trio.lowlevel.TrioToken, ended: trio.Event, pid: int) -> None:
    if os.getpid() == pid:
        try:
            token.run_sync_soon(ended.set)
        except trio.RunFinishedError:
            pass


_loops: "weakref.WeakSet[Loop[Any]]" = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    # Give back what is held before the interpreter exits and ends the threads.
    for loop in list(_loops):
        loop.close()


class Blocking(ABC, Generic[A_co]):
    """The blocking counterpart of an asynchronous object, for threads."""

    @abstractmethod
    def _run(self, call: Callable[[A_co], Awaitable[R]]) -> R:
        """Await ``call(object)`` in the object's loop, and return or raise the outcome."""


def blocking(
    method: Callable[Concatenate[A, P], Awaitable[R]],
) -> Callable[Concatenate[Blocking[A], P], R]:
    """Return a method for threads that calls ``method`` and waits for its outcome."""

    @wraps(method)
    def call(self: Blocking[A], /, *args: P.args, **options: P.kwargs) -> R:
        return self._run(lambda target: method(target, *args, **options))

    return call
