"""What a program has called around its tasks: when they are added, run, succeed and fail, and when
processes start and end."""

import inspect
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol, TypeAlias, TypeVar

from disque_trio.tasks.current import CurrentJob
from disque_trio.tasks.definition import Definition
from disque_trio.tasks.depends import needs_of
from disque_trio.tasks.serializers import Json

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(slots=True)
class Adding:
    """A job that is being added. What is before the ``yield`` of a hook may change all but ``id``.

    Attributes:
        task: the name of the task.
        args, kwargs: the arguments.
        queue: the queue for the job.
        headers: the program's own headers.
        options: other options, as for ``Template.options``.
        id: the id of the job once it is added; None before, and if it was only bound.
    """

    task: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    queue: str
    headers: dict[str, str]
    options: dict[str, Any]
    id: str | None = None


@dataclass(slots=True)
class Running:
    """A run of a task. What is before the ``yield`` of a hook may change the arguments.

    Attributes:
        job: the job.
        args, kwargs: the arguments.
    """

    job: CurrentJob
    args: list[Any]
    kwargs: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Failure:
    """A run that failed.

    Attributes:
        error: what went wrong, such as ``ValueError: no such address``.
        raised: the exception; None if there was none, as for a job that cannot be read.
        retry_in: the seconds until the next attempt; None if there will be none.
    """

    error: str
    raised: BaseException | None
    retry_in: float | None


AroundAdd: TypeAlias = Callable[[Adding], Iterator[None]]
AroundRun: TypeAlias = Callable[[Running], Iterator[None] | AsyncIterator[None]]


@dataclass(slots=True)
class Hooks:
    """The hooks of an app. Its methods are decorators, which return the function as it is.

    Attributes:
        events: the functions for the events of runs and processes, by the name of the event.
        adds, runs: the hooks around adding and running.
        overrides: functions in place of those of ``Depends``, in tests.
    """

    events: dict[str, list[Callable[..., Any]]] = field(default_factory=dict)
    adds: list[AroundAdd] = field(default_factory=list)
    runs: list[AroundRun] = field(default_factory=list)
    overrides: dict[Callable[..., Any], Callable[..., Any]] = field(default_factory=dict)

    def around_add(self, function: F) -> F:
        """Run a generator around adding a job: it gets an ``Adding`` and yields once. It runs in
        the caller, and what is after its ``yield`` once the job is added, or bound."""
        if not inspect.isgeneratorfunction(function):
            raise TypeError(f"{function!r} must be a generator that yields once, and not async")
        self.adds.append(function)
        return function

    def around_run(self, function: F) -> F:
        """Run a generator around each run of a task, within its timeout: it gets a ``Running`` and
        yields once. Exceptions of the task are raised at its ``yield``. If it is async, it runs in
        the loop of async tasks; else where the task runs."""
        if not (inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)):
            raise TypeError(f"{function!r} must be a generator that yields once")
        self.runs.append(function)
        return function

    def on_start(self, function: F) -> F:
        """Call a function with a ``CurrentJob`` before its task runs."""
        return self._on("start", function)

    def on_success(self, function: F) -> F:
        """Call a function with a ``CurrentJob`` and the result after its task has returned."""
        return self._on("success", function)

    def on_failure(self, function: F) -> F:
        """Call a function with a ``CurrentJob`` and a ``Failure`` after each run that failed."""
        return self._on("failure", function)

    def on_death(self, function: F) -> F:
        """Call a function with a ``CurrentJob`` and a ``Failure`` when a worker makes the job a
        dead letter."""
        return self._on("death", function)

    def on_worker_start(self, function: F) -> F:
        """Call a function when a worker starts, in its first process, before it connects."""
        return self._on("worker_start", function)

    def on_process_start(self, function: F) -> F:
        """Call a function in each worker process before it connects. If it raises an exception, the
        process does not start."""
        return self._on("process_start", function)

    def on_shutdown(self, function: F) -> F:
        """Call a function in each worker process when its last task has ended."""
        return self._on("shutdown", function)

    def _on(self, event: str, function: F) -> F:
        if event.endswith("_start") and event != "start" and inspect.iscoroutinefunction(function):
            raise TypeError(f"{function!r} is async, but no loop runs when a process starts")
        self.events.setdefault(event, []).append(function)
        return function

    def start(self, event: str) -> None:
        """Call the functions for the start of a worker or a process. Raises what they raise."""
        for function in self.events.get(event, ()):
            function()

    def called(self, event: str) -> list[Definition]:
        """Return the functions for an event in the form in which a ``Caller`` takes them."""
        functions = self.events.get(event)
        if not functions:
            return []
        return [Definition(f"on_{event}", one, "", Json()) for one in functions]

    def adding(self, adding: Adding) -> ExitStack:
        """Enter the hooks around an add. Raises what they raise."""
        with ExitStack() as stack:
            for function in self.adds:
                stack.enter_context(contextmanager(function)(adding))
            return stack.pop_all()


class Waits(Protocol):
    """Awaits something in the loop of async tasks, from a thread in which a task runs."""

    def __call__(self, function: Callable[[], Any], /) -> Any: ...


def around(hooks: Hooks, definition: Definition, run: Running, wait: Waits) -> Definition:
    """Return the definition with a function that also runs the hooks and gets what is injected.

    Args:
        wait: awaits what is async for a function that is not.
    """
    needs = needs_of(definition.function)
    if not (needs or hooks.runs):
        return definition
    if definition.is_async:

        async def run_async(*args: Any, **kwargs: Any) -> Any:
            return await _compose(hooks, definition, run, _Contexts(None))

        return replace(definition, function=run_async)

    def run_here(*args: Any, **kwargs: Any) -> Any:
        steps = _compose(hooks, definition, run, _Contexts(wait))
        try:
            steps.send(None)
        except StopIteration as stop:
            return stop.value
        raise RuntimeError("a function in a thread cannot be suspended")

    run_here.needs_loop = _is_async_somewhere(hooks, definition)  # type: ignore[attr-defined]
    return replace(definition, function=run_here)


def needs_loop(definition: Definition) -> bool:
    """Whether the function, although it is not async, needs a loop for what is around it."""
    return getattr(definition.function, "needs_loop", False)


class _Contexts:
    """What is around a run. In a thread nothing here suspends: what is async is waited for.

    Args:
        wait: waits for it; None: this is in the loop.
    """

    def __init__(self, wait: Waits | None) -> None:
        self.stack = AsyncExitStack()
        self._wait = wait

    async def _do(self, function: Callable[[], Any]) -> Any:
        return await function() if self._wait is None else self._wait(function)

    async def enter(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function of any kind, and return its value or what it yields first."""
        if inspect.isasyncgenfunction(function):
            outer = asynccontextmanager(function)(*args, **kwargs)
            value = await self._do(outer.__aenter__)

            async def leave(*error: Any) -> bool | None:
                left: bool | None = await self._do(partial(outer.__aexit__, *error))
                return left

            self.stack.push_async_exit(leave)
            return value
        if inspect.isgeneratorfunction(function):
            return self.stack.enter_context(contextmanager(function)(*args, **kwargs))
        if inspect.iscoroutinefunction(function):
            return await self._do(partial(function, *args, **kwargs))
        return function(*args, **kwargs)


async def _compose(hooks: Hooks, definition: Definition, run: Running, contexts: _Contexts) -> Any:
    """Run a function within its hooks, with what is injected."""
    values: dict[Callable[..., Any], Any] = {}

    async def needed(function: Callable[..., Any]) -> dict[str, Any]:
        found = {}
        for name, one in needs_of(function).items():
            source = hooks.overrides.get(one.function, one.function)
            if source not in values:
                values[source] = await contexts.enter(source, **await needed(source))
            found[name] = values[source]
        return found

    async with contexts.stack:
        for hook in hooks.runs:
            await contexts.enter(hook, run)
        more = await needed(definition.function)
        value = definition.function(*run.args, **{**run.kwargs, **more})
        return await value if definition.is_async else value
    return None  # a hook has kept the exception


def _is_async_somewhere(hooks: Hooks, definition: Definition) -> bool:
    seen: set[Callable[..., Any]] = set()
    todo: list[Callable[..., Any]] = [definition.function]
    while todo:
        for one in needs_of(todo.pop()).values():
            source = hooks.overrides.get(one.function, one.function)
            if source not in seen:
                seen.add(source)
                todo.append(source)
    return any(
        inspect.isasyncgenfunction(one) or inspect.iscoroutinefunction(one)
        for one in (*seen, *hooks.runs)
    )
