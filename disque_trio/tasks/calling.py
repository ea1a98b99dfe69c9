"""Calls the function of a task within its timeout, in this loop or in a thread."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextvars import copy_context
from functools import partial
from typing import Any, Literal, Protocol, TypeAlias

import trio

from disque_trio.client import tracing
from disque_trio.respclient.foreign import AsyncioThread, in_asyncio
from disque_trio.tasks.current import CurrentJob
from disque_trio.tasks.definition import Definition
from disque_trio.tasks.ending import Failed, Held, JobCancelled
from disque_trio.tasks.errors import Reject, Retry
from disque_trio.tasks.messages import describe
from disque_trio.tasks.retrying import is_final
from disque_trio.tracebacks import traceback_of

_LETTING_GO = 1.0
"""Seconds that a cancelled function has to end."""


class TimedOut(Exception):
    """The function was cancelled because of its timeout."""


class Runaway(Exception):
    """The function goes on after its timeout: in a thread, blocking the asyncio loop, or ignoring
    its cancellation."""


class Quit(Exception):
    """The function raised a ``BaseException`` such as ``SystemExit``, which is the cause of this.

    Uncaught, it would end the worker and all that others run there.
    """


class Caller(Protocol):
    """A way to call the functions of tasks."""

    async def call(
        self, definition: Definition, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        """Return what the function returns. Raises what it raises, and TimedOut, Runaway, Quit."""


class CallerHere(Caller, Protocol):
    """A way to call them in this process."""

    def wait(self, function: Callable[[], Any]) -> Any:
        """Await ``function()`` in the loop for ``async`` functions, from a thread in which this
        calls another one."""


class CallerApart(Protocol):
    """A way to run tasks each in a process that runs nothing else meanwhile."""

    async def run(
        self, job: Held, current: CurrentJob, definition: Definition, body: bytes, *, alone: bool
    ) -> Any:
        """Run the function of ``definition`` with the arguments in ``body``, and return what it
        returns. Raises Failed, and JobCancelled.

        Args:
            alone: whether the process may run nothing before and after it either.
        """


async def call(
    caller: Caller, definition: Definition, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    """Call the function of a task. Raises Failed."""
    try:
        return await caller.call(definition, args, kwargs)
    except (Failed, JobCancelled):
        raise
    except Retry as error:
        text = f"Retry: {error}".removesuffix(": ")
        raise Failed(text, raised=error, delay=error.delay) from None
    except Reject as error:
        raise Failed(f"Reject: {error}".removesuffix(": "), final=True) from None
    except (TimedOut, Runaway) as error:
        late, runaway = TimeoutError(str(error)), isinstance(error, Runaway)
        final = is_final(definition, late)
        raise Failed(describe(late), raised=late, final=final, runaway=runaway) from None
    except Exception as error:
        raised = error.__cause__ if isinstance(error, Quit) else error
        assert raised is not None
        if (processing := tracing.current()) is not None:
            processing.failed(raised)
        # Format it here: the logger's form, with all variables, would block the loop too long.
        trace = traceback_of(raised)
        final = is_final(definition, raised)
        raise Failed(describe(raised), trace=trace, raised=raised, final=final) from None


Backend: TypeAlias = Literal["trio", "asyncio"]
"""The event loop in which ``async`` functions run."""


class InLoop:
    """Awaits ``async`` functions in the current Trio or asyncio loop, or, if they need asyncio, in
    an asyncio loop in a thread. Calls other functions in threads.

    Args:
        limiter: limits the threads, in Trio; None: Trio's default.
        backend: the event loop that ``async`` functions need.
    """

    def __init__(
        self, limiter: trio.CapacityLimiter | None = None, backend: Backend = "trio"
    ) -> None:
        self._limiter = limiter
        self._loop: asyncio.AbstractEventLoop | None = None  # the current one, if of asyncio
        self._asyncio = AsyncioThread() if backend == "asyncio" else None

    async def call(
        self, definition: Definition, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        function = partial(definition.function, *args, **kwargs)
        if not definition.is_async:
            return await self._call(definition, partial(outlive, function))
        try:
            return await self._call(definition, function)
        except BaseException as error:
            if isinstance(error, Exception | GeneratorExit) or _is_cancelled(error):
                raise
            raise Quit from error

    def wait(self, function: Callable[[], Any]) -> Any:
        if self._loop is not None:
            return asyncio.run_coroutine_threadsafe(function(), self._loop).result()
        if self._asyncio is not None:
            return trio.from_thread.run(self._asyncio.run, function)
        return trio.from_thread.run(function)

    async def _call(self, definition: Definition, function: "partial[Any]") -> Any:
        timeout = definition.timeout
        if in_asyncio():
            self._loop = asyncio.get_running_loop()
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


async def _in_own_task(definition: Definition, function: "partial[Any]") -> Any:
    """Await a Trio function with a timeout in a task of its own.

    If the function ignores its cancellation, because it waits for a thread, say, the task can be
    abandoned. Raises TimedOut, Runaway.
    """
    assert definition.timeout is not None
    scope = trio.CancelScope(deadline=trio.current_time() + definition.timeout)
    ended = trio.Event()
    values: list[Any] = []
    errors: list[BaseException] = []

    async def run() -> None:
        try:
            with scope:
                values.append(await function())
        except BaseException as error:  # a system task must not raise
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
            # Not to_thread: cancelling a wait for that abandons the thread all the same.
            return await asyncio.get_running_loop().run_in_executor(None, run, function)
    except TimeoutError:
        if scope.expired():
            raise _late(definition) from None
        raise


def outlive(function: "partial[Any]") -> Any:
    """Call a function where every exception is its own, as in a thread. Raises Quit."""
    try:
        return function()
    except Exception:
        raise
    except BaseException as error:
        raise Quit from error


def _is_cancelled(error: BaseException) -> bool:
    """Return whether ``error`` cancels the current task of Trio or asyncio."""
    if in_asyncio():
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0
    if isinstance(error, BaseExceptionGroup):
        return any(_is_cancelled(one) for one in error.exceptions)
    return isinstance(error, trio.Cancelled)


def _late(definition: Definition, *, runs: bool = False) -> Exception:
    text = f"after {definition.timeout} s"
    return TimedOut(text) if definition.is_async and not runs else Runaway(text)
