"""Adds jobs: a task with its options, and the steps behind it."""

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Generic, ParamSpec, TypedDict, TypeVar, Unpack
from uuid import uuid4

from disque_trio.client import Client
from disque_trio.client.requests import unix_ms
from disque_trio.tasks import traces
from disque_trio.tasks.core import Core, Later
from disque_trio.tasks.definition import Definition, Unique
from disque_trio.tasks.handle import Handle, Handles
from disque_trio.tasks.messages import RESERVED, Step, encode_arguments

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")


class Options(TypedDict, total=False):
    """What may be said of jobs beside their arguments.

    Keys:
        queue: in place of the task's.
        delay: seconds until they are queued. at: when they are, instead.
        unique: see ``Disque.task``, or the key itself.
        unique_for: seconds for which a key is kept; without it as long as the job lives.
        priority: 0 to 7, the highest first.
        ttl: seconds that they live.
        retry: seconds after which a job is given to somebody else when its worker's node is gone.
        group: that they belong to, where the policy of the queue serves groups.
        replicate: number of nodes that must hold each.
        headers: of the program, beside those of tasks.
    """

    queue: str
    delay: float
    at: datetime | float
    unique: Unique | str
    unique_for: float
    priority: int
    ttl: int
    retry: int
    group: str
    replicate: int
    headers: Mapping[str, str]


class Bound(Generic[R]):
    """A task with its arguments and options, to be added later: as a step of a chain, a member of
    a group, or by a schedule."""

    def __init__(self, core: Core, step: Step) -> None:
        self._core = core
        self.step = step

    def __repr__(self) -> str:
        return f"<Bound {self.step.task}>"

    def then(self, next: "Bound[S]") -> "Bound[S]":
        """This, and ``next`` behind it, which gets the result as its first argument."""
        return Bound(self._core, behind_last(self.step, step_of(next)))

    def add(self) -> Handle[R]:
        """Add it now; as ``Template.add``."""
        step = self.step
        later = Later(self._core, adder(self._core, step, None), f"adding {step.task}")
        return Handle(self._core, later)


def step_of(bound: Bound[Any]) -> Step:
    """The step that a bound task is. Raises TypeError: it is none."""
    if not isinstance(bound, Bound):
        raise TypeError(f"{bound!r} has no arguments yet: use its bind(...)")
    return bound.step


class Template(Generic[P, R]):
    """A task with its options, and the steps behind it: what jobs are made from.

    In a thread a method that adds blocks until the job is added. In a task of Trio or asyncio it
    does nothing until what it returns is awaited. What may be raised:

    - ``TypeError``: the function does not take these arguments, or they cannot be serialized.
    - ``NoReplError``, ``MaxLenError``, ``PausedError``, ``OOMError``, ``NoUniqueError`` and the
      like: refused by the queue or the node.
    - ``ConnectionLost``: no node could be reached in time.

    Args:
        core: of the app.
        definition: of the task.
        options: in place of those of the definition.
        then: the steps behind it.
    """

    def __init__(
        self,
        core: Core,
        definition: Definition,
        options: Options | None = None,
        then: tuple[Step, ...] = (),
    ) -> None:
        self._core = core
        self._definition = definition
        self._options: Options = options or {}
        self._then = then

    @property
    def name(self) -> str:
        """Of the task."""
        return self._definition.name

    @property
    def queue(self) -> str:
        """Where the jobs go."""
        return self._options.get("queue", self._definition.queue)

    def add(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Add a job with these arguments."""
        return self._add(self._options, args, kwargs)

    def at(self, when: datetime | float, /, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Add a job that begins at ``when``: a ``datetime`` with a time zone, or seconds since the
        epoch. Raises ValueError too: there is no time zone."""
        return self._add({**self._options, "at": when}, args, kwargs)

    def delay(self, seconds: float, /, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Add a job that begins after ``seconds``."""
        return self._add({**self._options, "delay": seconds}, args, kwargs)

    def map(self, arguments: Iterable[Any]) -> Handles[R]:
        """Add many jobs at once, as one pipeline: one for each of ``arguments``, which are tuples
        of arguments, or single ones.

        Raises:
            AddManyError: some were not added; its ``results`` say which.
        """
        calls = [one if isinstance(one, tuple) else (one,) for one in arguments]
        made = [self._step(self._options, call, {}) for call in calls]
        name = f"adding {len(made)} jobs of {self.name}"
        return Handles(self._core, Later(self._core, self._many(made), name))

    def options(self, **options: Unpack[Options]) -> "Template[P, R]":
        """The same with other options. Raises TypeError: there is no such option."""
        unknown = options.keys() - Options.__annotations__.keys()
        if unknown:
            raise TypeError(f"no option of a job: {', '.join(sorted(unknown))}")
        return Template(self._core, self._definition, {**self._options, **options}, self._then)

    def then(self, next: Bound[S]) -> "Template[P, S]":
        """The same with ``next`` behind it, which gets the result as its first argument."""
        step = step_of(next)
        then = (*self._then, replace(step, then=()), *step.then)
        return Template(self._core, self._definition, self._options, then)

    def bind(self, *args: Any, **kwargs: Any) -> Bound[R]:
        """The same with arguments, to be added later. A step of a chain gets the result of the one
        before as its first argument; these come behind it. Raises TypeError: the function takes no
        such arguments, or they cannot be serialized."""
        step, _ = self._step(self._options, args, kwargs, all_there=False)
        return Bound(self._core, step)

    def _add(self, options: Options, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Handle[R]:
        step, key = self._step(options, args, kwargs)
        later = Later(self._core, adder(self._core, step, key), f"adding {self.name}")
        return Handle(self._core, later)

    def _step(
        self,
        options: Options,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        all_there: bool = True,
    ) -> tuple[Step, str | None]:
        """The job, and the key that the program has for it."""
        definition = self._definition
        merged: dict[str, Any] = {**definition.options, **options}
        queue = merged.pop("queue", definition.queue)
        unique = merged.pop("unique", definition.unique)
        headers = merged.pop("headers", {})
        if RESERVED & headers.keys():
            raise ValueError(f"these headers are for tasks: {', '.join(sorted(RESERVED))}")
        if not all(isinstance(text, str) for pair in headers.items() for text in pair):
            raise TypeError(f"headers are of type str, both names and values: {headers!r}")
        if "at" in merged:
            merged["at"] = unix_ms(merged["at"]) / 1000
            merged.pop("delay", None)
        definition.check(args, kwargs, all_there=all_there)
        key = definition.key(unique, args, kwargs) if all_there else None
        body = encode_arguments(definition.serializer, args, kwargs)
        kind = definition.serializer.content_type
        step = Step(definition.name, queue, kind, body, merged, headers, self._then)
        return step, key

    def _many(
        self, made: list[tuple[Step, str | None]]
    ) -> Callable[[Client], Coroutine[Any, Any, list[str]]]:
        """Adds several jobs that differ in their bodies and keys."""
        own = [key for _, key in made if key is not None]
        key_for = self._core.key_for
        fresh = [uuid4().hex for _ in made] if not own and key_for is not None else []
        trace = traces.current()

        async def add(client: Client) -> list[str]:
            if not made:
                return []
            first = made[0][0]
            options = dict(first.options)
            if fresh:
                options |= {"unique": fresh, "unique_for": key_for}
            elif own:
                options["unique"] = own
            return await client.add_many(
                first.queue,
                [step.body for step, _ in made],
                headers=first.pairs(trace),
                **options,
            )

        return add


def adder(core: Core, step: Step, key: str | None) -> Callable[[Client], Awaitable[str]]:
    """Adds a job, however often it is called: always with the same key, if it may have one."""
    kept = step.options.get("unique_for")
    if key is None and core.key_for is not None:
        key, kept = uuid4().hex, core.key_for
    trace = traces.current()

    async def add(client: Client) -> str:
        return await step.add(client, trace, key=key, kept=kept)

    return add


def behind_last(step: Step, next: Step) -> Step:
    """``step`` with ``next``, and all that is behind that, behind its last one."""
    return replace(step, then=(*step.then, replace(next, then=()), *next.then))


class Task(Template[P, R]):
    """A function that runs as a job, and can be called as ever."""

    def __init__(self, core: Core, definition: Definition) -> None:
        super().__init__(core, definition)
        self.__name__: str = definition.function.__name__
        self.__doc__ = definition.function.__doc__
        self.__wrapped__: Callable[P, R] = definition.function

    def __repr__(self) -> str:
        return f"<Task {self.name}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function, here and now."""
        return self.__wrapped__(*args, **kwargs)


class AsyncTask(Template[P, R]):
    """An ``async`` function that runs as a job, and can be awaited as ever."""

    def __init__(self, core: Core, definition: Definition) -> None:
        super().__init__(core, definition)
        self.__name__: str = definition.function.__name__
        self.__doc__ = definition.function.__doc__
        self.__wrapped__: Callable[P, Coroutine[Any, Any, R]] = definition.function

    def __repr__(self) -> str:
        return f"<Task {self.name}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        """Call the function, here and now."""
        return self.__wrapped__(*args, **kwargs)
