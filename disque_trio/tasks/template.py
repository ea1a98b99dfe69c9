"""Adds jobs: templates of a task with its options and the steps that follow."""

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import (
    Any,
    Concatenate,
    Generic,
    NoReturn,
    ParamSpec,
    TypeAlias,
    TypeVar,
    Unpack,
    cast,
    overload,
)
from uuid import uuid4

from disque_trio.client import AddManyError, Client, DisqueError
from disque_trio.client.patience import patience
from disque_trio.job_options import JobOptions, ScheduleOptions, check_names, stored
from disque_trio.tasks import retrying, traces, uniqueness
from disque_trio.tasks.core import Core, Later
from disque_trio.tasks.current import current_job
from disque_trio.tasks.definition import Backoff, Definition, QueueOptions, Results, Unique
from disque_trio.tasks.errors import BadJob, BucketFailed
from disque_trio.tasks.handle import Handle, Handles
from disque_trio.tasks.hooks import Adding
from disque_trio.tasks.members import grouped
from disque_trio.tasks.messages import RESERVED, Step, decode_arguments, encode_arguments
from disque_trio.tasks.serializers import Serializer
from disque_trio.tasks.uniqueness import OF_KEYS, UniqueOptions, implies_unique, of_addjob

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
S = TypeVar("S")


class Options(JobOptions, UniqueOptions, total=False):
    """Options of jobs of tasks, besides those of all jobs.

    Keys:
        queue: a queue in place of the task's.
        unique: see ``TaskOptions``; or the key itself. False: no key, not even that of a job which
            a task adds.
        unique_for, unique_until, replace, debounce, throttle: see ``UniqueOptions``. A ``delay``,
            or a time, comes before that of ``debounce``.
        headers: the program's own headers.
        retries, timeout, backoff: in place of the task's; a function for ``backoff`` belongs to
            the task.
        redeliver_after: see ``TaskOptions``.
    """

    queue: str
    unique: Unique | str
    headers: Mapping[str, str]
    retries: int | None
    timeout: float | None
    backoff: tuple[float, float] | None
    redeliver_after: int


class TaskOptions(ScheduleOptions, QueueOptions, UniqueOptions, total=False):
    """Options of a task; those of its jobs are defaults, and those of its queue apply to all tasks
    there (see ``QueueOptions``).

    Keys:
        queue: the queue that the task's jobs go to.
        name: the name of the task in jobs; by default the module and name of the function.
        retries: how often a failed job is tried again; by default 5.
        backoff: the shortest and the longest pause before a retry, in seconds; by default 1 and
            600. Each pause is twice as long as the one before, give or take a quarter. Or a
            function that returns the pause, called with the number of the attempt that failed (the
            first is 1) and its exception.
        retry_for: try again only after these exceptions; after others the job is dead at once.
        never_for: do not try again after these exceptions, even if ``retry_for`` has them.
        redeliver_after: seconds after which a node delivers a job again if its worker gives no
            sign of life; 0: never. By default 30, or a tenth of a short ``ttl``. ADDJOB calls it
            RETRY.
        retry: its former name.
        unique: True adds no job while the task has one with the same arguments, and returns that
            job's id instead. A function makes such a key from the arguments. Without it, a job that
            another task adds is not added again when that task is retried; False: it is.
        unique_for, unique_until, replace, debounce, throttle: see ``UniqueOptions``. The last two
            imply ``unique=True``.
        results: where its results are kept: ``memory`` or ``store``, as in ``Disque``.
        timeout: seconds that the function may take. An ``async`` function is then cancelled. Other
            functions cannot be cancelled, so the worker's process ends. Both are retried.
        process: whether a worker runs the function in a process that runs nothing else meanwhile.
            At its timeout only that process ends.
        group_by: a function that makes the name of a job's group from the arguments, such as the
            customer; what it returns is made a string, and with None the job has no group.
        serializer: the serializer of arguments and results, in place of the app's.
        cron: when to add the task without arguments: five fields, ``@daily``, ``@every 10s``.
        tz: the time zone of ``cron``; None: UTC.
        catchup: if times were missed while no node was up, make up for the last one.
    """

    queue: str | None
    name: str | None
    retries: int
    backoff: Backoff
    retry_for: tuple[type[BaseException], ...] | None
    never_for: tuple[type[BaseException], ...]
    redeliver_after: int
    unique: Unique
    results: Results
    timeout: float | None
    process: bool
    group_by: Callable[..., object] | None
    serializer: str | Serializer | None
    cron: str | None
    tz: str | None
    catchup: bool


Make: TypeAlias = Callable[[Options, tuple[Any, ...], Mapping[str, Any]], tuple[Step, str | None]]
"""Makes a job of options and arguments, and its key."""


class Bound(Generic[R_co]):
    """A task with its arguments and options, to be added later: as a step of a chain, as a member
    of a group, or by a schedule. Chains and groups are like that, too.

    Args:
        core: the core of the app.
        first: the job, and those that follow it.
        lacks: which arguments are missing if nothing comes before this; empty: none.
        refuses: why it cannot come behind something whose result is its first argument; empty: it
            can.
        key: the key of the job if nothing comes before it; None: it has none.
    """

    def __init__(
        self,
        core: Core,
        first: Step,
        *,
        lacks: str = "",
        refuses: str = "",
        key: str | None = None,
    ) -> None:
        self.core = core
        self.first = first
        self.lacks = lacks
        self.refuses = refuses
        self.key = key

    def __repr__(self) -> str:
        return f"<Bound {self.first.task}>"

    @property
    def step(self) -> Step:
        """The job, if nothing comes before it, with its group. Raises TypeError if arguments are
        missing."""
        if self.lacks:
            raise TypeError(self.lacks)
        return grouped(self.core, self.first)

    def followed(self, steps: Sequence[Step]) -> "Bound[Any]":
        """Return a chain: this, then ``steps``."""
        return self._with(replace(self.first, then=(*self.first.then, *steps)))

    def then(self, next: "Bound[S]") -> "Bound[S]":
        """Return a chain: this, then ``next`` with the result as its first argument. Raises
        TypeError if ``next`` does not take that."""
        return self.followed(following(next).chain)

    __or__ = then

    def on_error(self, next: "Bound[Any]") -> "Bound[R_co]":
        """Return the same with a job to add if this one, or one that follows it, fails for good.
        Its first argument is a dictionary that says what failed. Raises TypeError if ``next`` does
        not take that."""
        return self._with(replace(self.first, on_error=following(next)))

    def same_arguments(self, body: bytes | None) -> bool:
        """Whether the body of a job has the same arguments, although its bytes differ: those of an
        encrypted one do each time."""
        serializer = self.core.serializers.of(self.first.content_type)
        if body is None or not hasattr(serializer, "fingerprint"):
            return False
        try:
            return decode_arguments(serializer, body) == decode_arguments(
                serializer, self.first.body
            )
        except (BadJob, BucketFailed):
            return False

    def add(self) -> Handle[R_co]:
        """Add the job now; see ``Template.add``."""
        step = self.step
        later = Later(self.core, adder(self.core, step, self.key), f"adding {step.task}")
        return Handle(self.core, later)

    def _with(self, first: Step) -> "Bound[Any]":
        return Bound(self.core, first, lacks=self.lacks, refuses=self.refuses, key=self.key)


def checked(bound: Bound[R]) -> Bound[R]:
    """Return the argument. Raises TypeError if it is not bound."""
    if not isinstance(bound, Bound):
        raise TypeError(f"{bound!r} has no arguments yet: use its bind(...)")
    return bound


def step_of(bound: Bound[Any]) -> Step:
    """Return the step of a bound task before which nothing comes. Raises TypeError if the argument
    is not bound, or other arguments are missing."""
    return checked(bound).step


def following(bound: Bound[Any]) -> Step:
    """Return the step of a bound task that gets a result as its first argument. Raises TypeError if
    the argument is not bound, or the task does not take a result."""
    if checked(bound).refuses:
        raise TypeError(bound.refuses)
    return bound.first


class Template(Generic[P, R]):
    """A task with its options and the steps that follow: the template for jobs.

    In a thread, methods that add jobs block until these are added. In a task of Trio or asyncio,
    awaiting what the method returns adds them. These methods raise:

    - ``TypeError``: the function does not take these arguments, or they cannot be serialized.
    - ``NoReplError``, ``MaxLenError``, ``PausedError``, ``OOMError``, ``NoUniqueError`` and
      others: the queue or the node refused the job.
    - ``ConnectionLost``: no node could be reached in time.

    Args:
        core: the core of the app.
        definition: the definition of the task.
        options: options that replace those of the definition.
        then: the steps that follow.
        on_error: what to add if a job fails for good.
    """

    def __init__(
        self,
        core: Core,
        definition: Definition,
        options: Options | None = None,
        then: tuple[Step, ...] = (),
        on_error: Step | None = None,
    ) -> None:
        self._core = core
        self._definition = definition
        self._options: Options = options or {}
        self._then = then
        self._on_error = on_error

    @property
    def name(self) -> str:
        """The name of the task."""
        return self._definition.name

    @property
    def queue(self) -> str:
        """The queue that the jobs go to."""
        return self._options.get("queue", self._definition.queue)

    def add(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Add a job with these arguments."""
        return self._add(self._options, args, kwargs)

    def at(self, when: datetime | float, /, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Add a job to be delivered at ``when``: a ``datetime`` with a time zone, or seconds since
        the epoch. Also raises ValueError if there is no time zone."""
        return self._add({**self._options, "at": when}, args, kwargs)

    def add_in(self, seconds: float, /, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Add a job to be delivered after ``seconds``."""
        return self._add({**self._options, "delay": seconds}, args, kwargs)

    def delay(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise TypeError: elsewhere this name means ``add``, and here it was ``add_in``."""
        raise TypeError(
            f"{self.name}: use add(...) to add a job now, as delay(...) does in Celery, and "
            "add_in(seconds, ...) to add one to be delivered later"
        )

    def map(self, arguments: Iterable[Any]) -> Handles[R]:
        """Add many jobs as one pipeline.

        Args:
            arguments: for each job, a tuple of arguments or a single argument.

        Raises:
            AddManyError: some jobs were not added; its ``results`` say which ones were.
        """
        calls = [one if isinstance(one, tuple) else (one,) for one in arguments]
        made = [self._made(self._whole, call, {}) for call in calls]
        name = f"adding {len(made)} jobs of {self.name}"
        return Handles(self._core, Later(self._core, self._many(made), name))

    def options(self, **options: Unpack[Options]) -> "Template[P, R]":
        """Return the template with other options. Raises TypeError for an unknown option."""
        check_names(options, Options.__annotations__)
        merged = cast(Options, {**self._options, **retrying.renamed(options, 1)})
        return Template(self._core, self._definition, merged, self._then, self._on_error)

    def then(self, next: Bound[S]) -> "Template[P, S]":
        """Return the template followed by ``next``, which gets the result as first argument.
        Raises TypeError if ``next`` does not take that."""
        then = (*self._then, *following(next).chain)
        return Template(self._core, self._definition, self._options, then, self._on_error)

    __or__ = then

    def on_error(self, next: Bound[Any]) -> "Template[P, R]":
        """Return the template with a job to add if one of its jobs, or one that follows it, fails
        for good; see ``Bound.on_error``."""
        error = following(next)
        return Template(self._core, self._definition, self._options, self._then, error)

    @overload
    def bind(self, *args: P.args, **kwargs: P.kwargs) -> Bound[R]: ...
    @overload
    def bind(
        self: "Template[Concatenate[Any, Q], R]", *args: Q.args, **kwargs: Q.kwargs
    ) -> Bound[R]: ...
    def bind(self, *args: Any, **kwargs: Any) -> Bound[R]:
        """Bind arguments, for a job that is added later: all of them, or all but the first one.

        In a chain, a step gets the result of the previous one as its first argument, followed by
        these. Raises TypeError if the function takes these arguments neither alone nor behind a
        result, or if they cannot be serialized.
        """
        lacks = self._definition.problem(args, kwargs)
        refuses = self._definition.problem((None, *args), kwargs)
        if lacks and refuses:
            self._definition.check(args, kwargs, all_there=False)
            raise TypeError(lacks)
        make = partial(self._step, all_there=not lacks)
        step, key = self._made(make, args, kwargs)
        return Bound(self._core, step, lacks=lacks, refuses=refuses, key=key)

    def _adding(
        self, options: Options, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[Adding, ExitStack]:
        """Enter the hooks around an add."""
        merged: dict[str, Any] = {**self._definition.options, **options}
        queue = merged.pop("queue", self._definition.queue)
        headers = dict(merged.pop("headers", {}))
        adding = Adding(self.name, args, kwargs, queue, headers, merged)
        return adding, self._core.hooks.adding(adding)

    def _made(
        self, make: Make, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[Step, str | None]:
        """Return a job that is bound, or is one of many, and its key."""
        if not self._core.hooks.adds:
            return make(self._options, args, kwargs)
        adding, around = self._adding(self._options, args, kwargs)
        with around:
            return make(_said(adding), adding.args, adding.kwargs)
        raise RuntimeError("a hook around an add must not keep its exception")

    def _add(self, options: Options, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Handle[R]:
        if self._core.hooks.adds:
            return self._add_within_hooks(*self._adding(options, args, kwargs))
        step, key = self._whole(options, args, kwargs)
        later = Later(self._core, adder(self._core, step, key), f"adding {self.name}")
        return Handle(self._core, later)

    def _add_within_hooks(self, adding: Adding, around: ExitStack) -> Handle[R]:
        with around:
            step, key = self._whole(_said(adding), adding.args, adding.kwargs)
            around = around.pop_all()
        add = adder(self._core, step, key)

        async def run(client: Client) -> str:
            adding.id = await add(client)
            return adding.id

        return Handle(self._core, Later(self._core, run, f"adding {self.name}", around))

    def _whole(
        self, options: Options, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[Step, str | None]:
        """Return a job before which nothing comes, and the key that the program gives it."""
        step, key = self._step(options, args, kwargs)
        if "group" not in step.options:
            group = self._definition.group(args, kwargs)
            step = replace(step, options={**step.options, **stored({"group": group})})
        return step, key

    def _step(
        self,
        options: Options,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        all_there: bool = True,
    ) -> tuple[Step, str | None]:
        """Return the job, and the key that the program gives it."""
        definition = self._definition
        merged: dict[str, Any] = {**definition.options, **options}
        queue = merged.pop("queue", definition.queue)
        unique = merged.pop("unique", definition.unique)
        headers = merged.pop("headers", {})
        of_key = {name: merged.pop(name) for name in OF_KEYS & merged.keys()}
        if unique is None and implies_unique(of_key):
            unique = True
        if options.keys() & (OF_KEYS | {"unique"}) and unique is not False:
            uniqueness.check(of_key, unique)
        per_call = {name: merged.pop(name) for name in retrying.OPTIONS.keys() & merged.keys()}
        if RESERVED & headers.keys():
            raise ValueError(f"these headers are reserved: {', '.join(sorted(RESERVED))}")
        if not all(isinstance(text, str) for pair in headers.items() for text in pair):
            raise TypeError(f"names and values of headers must be str: {headers!r}")
        if per_call:
            headers = {**headers, **retrying.headers_of(per_call)}
        definition.check(args, kwargs, all_there=all_there)
        said = stored(cast(JobOptions, merged))
        if "at" in said:
            said.pop("delay", None)
        said |= uniqueness.said(of_key)
        key = definition.key(unique, args, kwargs) if all_there else None
        body = encode_arguments(definition.serializer, args, kwargs)
        kind = definition.serializer.content_type
        step = Step(definition.name, queue, kind, body, said, headers, self._then, self._on_error)
        return step, key

    def _many(
        self, made: list[tuple[Step, str | None]]
    ) -> Callable[[Client], Coroutine[Any, Any, list[str]]]:
        """Return a function that adds several jobs, which differ only in their bodies and keys."""
        keys = [_key(self._core, step, key) for step, key in made]
        trace = traces.current()

        async def add(client: Client) -> list[str]:
            if not made:
                return []
            results: list[str | DisqueError] = [""] * len(made)
            failed = False
            for places in _by_group([step for step, _ in made]):
                first = made[places[0]][0]
                options = first.keyless()
                if (key := keys[places[0]]) is not None:
                    options["unique"] = [one and one[0] for one in (keys[at] for at in places)]
                    kept = key[1]
                    options |= of_addjob(first.options) if kept is None else {"unique_for": kept}
                jobs = [made[at][0].job(trace) for at in places]
                bodies = [body for body, _ in jobs]
                try:
                    with patience(self._core.add_timeout):
                        found: Sequence[str | DisqueError] = await client.add_many(
                            first.queue, bodies, headers=jobs[0][1], **options
                        )
                except AddManyError as error:
                    found = error.results
                    failed = True
                for at, result in zip(places, found, strict=True):
                    results[at] = result
            if failed:
                raise AddManyError(results)
            return [result for result in results if isinstance(result, str)]

        return add


def _said(adding: Adding) -> Options:
    return cast(Options, {**adding.options, "queue": adding.queue, "headers": adding.headers})


def _by_group(steps: Sequence[Step]) -> list[list[int]]:
    """The indexes of ``steps``, which differ only in their bodies and groups, by group."""
    places: dict[object, list[int]] = {}
    for at, step in enumerate(steps):
        places.setdefault(step.options.get("group"), []).append(at)
    return list(places.values())


def adder(core: Core, step: Step, key: str | None) -> Callable[[Client], Awaitable[str]]:
    """Return a function that adds a job, using the same key however often it is called."""
    keyed = _key(core, step, key)
    trace = traces.current()

    async def add(client: Client) -> str:
        with patience(core.add_timeout):
            if keyed is None:
                return await step.add(client, trace)
            return await step.add(client, trace, key=keyed[0], kept=keyed[1])

    return add


def _key(core: Core, step: Step, key: str | None) -> tuple[str, float | None] | None:
    """Return the key of a job, and how long it is kept; that is None if its options say it. None:
    it has no key.

    Args:
        key: the key that the program gives it; None: it gives none; empty: it wants none.
    """
    if key:
        return key, None
    if core.key_for is None:
        return None
    job = current_job()
    if job is not None and key is None:
        return job.key_for(step), job.kept
    return uuid4().hex, core.key_for


class Task(Template[P, R]):
    """A function that runs as a job, and can still be called directly."""

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
    """An ``async`` function that runs as a job, and can still be awaited directly."""

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
