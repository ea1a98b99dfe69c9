"""Calls the function of a task, in this loop or in a thread, within its timeout."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import copy_context
from functools import partial
from typing import Any, Literal, Protocol, TypeAlias

import trio

from disque_trio.respclient.concurrency import library
from disque_trio.respclient.foreign import AsyncioThread, in_asyncio
from disque_trio.tasks.definition import Definition

_LETTING_GO = 1.0
"""Seconds for a function that was cancelled to end."""

SETTLE_SECONDS = 5.0
"""How long settling a job may take when the worker is being cancelled."""


class TimedOut(Exception):
    """The function was cancelled, since its timeout is over."""


class Runaway(Exception):
    """The timeout of a function is over, and it goes on: in a thread, blocking the loop of asyncio,
    or without taking notice of its cancellation."""


class Quit(Exception):
    """The function raised what is no ``Exception``, which is its cause: ``SystemExit``,
    ``KeyboardInterrupt`` or the like. It would end the worker, and with it what others have there.
    """


class Caller(Protocol):
    """A way to call functions."""

    async def call(
        self, definition: Definition, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        """What the function returns. Raises what it raises, ``TimedOut``, ``Runaway``, ``Quit``."""

    def shielded(self) -> AbstractContextManager[object]:
        """A block that a cancellation from outside lets go on for a while."""


Backend: TypeAlias = Literal["trio", "asyncio"]
"""What ``async`` functions run in."""


class InLoop:
    """Awaits ``async`` functions in the loop of Trio or asyncio, or in one of asyncio in a thread
    where they want that, and calls the others in threads.

    Args:
        limiter: of the threads, in Trio; None: Trio's own.
        backend: what ``async`` functions want.
    """

    def __init__(
        self, limiter: trio.CapacityLimiter | None = None, backend: Backend = "trio"
    ) -> None:
        self._limiter = limiter
        self._asyncio = AsyncioThread() if backend == "asyncio" else None

    async def call(
        self, definition: Definition, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        function = partial(definition.function, *args, **kwargs)
        if not definition.is_async:
            return await self._call(definition, partial(_outlive, function))
        try:
            return await self._call(definition, function)
        except BaseException as error:
            if isinstance(error, Exception | GeneratorExit) or _is_cancelled(error):
                raise
            raise Quit from error

    async def _call(self, definition: Definition, function: "partial[Any]") -> Any:
        timeout = definition.timeout
        if in_asyncio():
            return await _in_asyncio(definition, function)
        if definition.is_async and self._asyncio is None:
            return await (function() if timeout is None else _in_own_task(definition, function))
        with trio.move_on_after(float("inf") if timeout is None else timeout):
            if self._asyncio is not None and definition.is_async:
                return await self._asyncio.run(function)
            return await trio.to_thread.run_sync(
                function, abandon_on_cancel=True, limiter=self._limiter
            )
        raise _late(definition, runs=self._asyncio is not None and self._asyncio.stuck)

    def shielded(self) -> AbstractContextManager[object]:
        return library().move_on_after(SETTLE_SECONDS, shield=True)


async def _in_own_task(definition: Definition, function: "partial[Any]") -> Any:
    """Await a function of Trio in a task that can be left alone, where it takes no notice of its
    cancellation: it waits for a thread, say. It has a timeout. Raises TimedOut, Runaway."""
    assert definition.timeout is not None
    scope = trio.CancelScope(deadline=trio.current_time() + definition.timeout)
    ended = trio.Event()
    values: list[Any] = []
    errors: list[BaseException] = []

    async def run() -> None:
        try:
            with scope:
                values.append(await function())
        except BaseException as error:  # a system task may raise nothing
            errors.append(error)
        ended.set()

    trio.lowlevel.spawn_system_task(run, name=definition.name, context=copy_context())
    try:
        with trio.move_on_after(definition.timeout + _LETTING_GO):
            await ended.wait()
    except trio.Cancelled:
        scope.cancel()
        with trio.CancelScope(shield=True):
            await ended.wait()
        if not (values or errors):
            raise
    if errors:
        raise errors[0]
    if values:
        return values[0]
    raise _late(definition, runs=not ended.is_set())


async def _in_asyncio(definition: Definition, function: "partial[Any]") -> Any:
    scope = asyncio.timeout(definition.timeout)
    try:
        async with scope:
            if definition.is_async:
                return await function()
            run = copy_context().run
            # Not by to_thread: a cancelled wait for it leaves the thread alone all the same.
            return await asyncio.get_running_loop().run_in_executor(None, run, function)
    except TimeoutError:
        if scope.expired():
            raise _late(definition) from None
        raise


def _outlive(function: "partial[Any]") -> Any:
    """Call a function in a thread, where all that it raises is its own. Raises Quit."""
    try:
        return function()
    except Exception:
        raise
    except BaseException as error:
        raise Quit from error


def _is_cancelled(error: BaseException) -> bool:
    """Whether the task of Trio or asyncio is to end, by this error."""
    if in_asyncio():
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0
    if isinstance(error, BaseExceptionGroup):
        return any(_is_cancelled(one) for one in error.exceptions)
    return isinstance(error, trio.Cancelled)


def _late(definition: Definition, *, runs: bool = False) -> Exception:
    text = f"after {definition.timeout} s"
    return TimedOut(text) if definition.is_async and not runs else Runaway(text)
