"""The application: its tasks, and the cluster that their jobs go to."""

import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from functools import partial
from typing import Any, Final, ParamSpec, Protocol, Self, TypedDict, TypeVar, Unpack, overload

from disque_trio.client import Client
from disque_trio.client.connecting import connect_to
from disque_trio.client.urls import DEFAULT, Cluster
from disque_trio.job_options import ScheduleOptions, check_names
from disque_trio.tasks import composing
from disque_trio.tasks.calling import Backend
from disque_trio.tasks.composing import WorkflowOptions
from disque_trio.tasks.core import Core, Later
from disque_trio.tasks.definition import DeclaredQueue, Definition, QueueOptions, Results, name_of
from disque_trio.tasks.handle import Handle, Handles
from disque_trio.tasks.link import OfLoop, OwnThread
from disque_trio.tasks.members import PREFIX
from disque_trio.tasks.policies import QueuePolicy, Schedules, Timetable
from disque_trio.tasks.retrying import old_word, renamed
from disque_trio.tasks.serializers import Json, Serializer, Serializers, serializer_of
from disque_trio.tasks.template import AsyncTask, Bound, Task, TaskOptions, step_of
from disque_trio.tasks.testing import Jobs, testing
from disque_trio.tasks.uniqueness import OF_KEYS

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")

_OF_DEFINITIONS = {
    "retries",
    "backoff",
    "retry_for",
    "never_for",
    "unique",
    "timeout",
    "process",
    "results",
    "group_by",
}
"""Options of a task that are attributes of its definition."""
_OF_JOBS = {*ScheduleOptions.__annotations__, *OF_KEYS}
"""Options of a task that are those of its jobs."""

KEY_FOR = 60.0
"""Seconds to keep generated keys beyond the time for which an add may be repeated."""


class Decorator(Protocol):
    """The decorator that ``@app.task(...)`` returns: it makes a task of a function."""

    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...


class Timeouts(TypedDict, total=False):
    """How long to try to reach a node, in seconds.

    Keys:
        add_timeout: when adding a job, and when a program connects for the first time; by default
            5.
        node_timeout: otherwise; by default 30.
        connect_timeout: in each attempt; by default 5.
        retry_for: the former name of ``node_timeout``.
    """

    add_timeout: float
    node_timeout: float
    connect_timeout: float
    retry_for: float


class Disque:
    """The tasks of a program, and the cluster that their jobs go to. Creating one does not connect.

    Args:
        url: ``disque://user:password@host:7711,host2:7711``, or ``disques://`` for TLS. None: the
            environment variable DISQUE_URL, or else ``disque://127.0.0.1:7711``.
        name: the name of the program among those that use the cluster. The names of its schedules
            begin with it, so that schedules which the program no longer has can be deleted; without
            a name they remain.
        queue: the queue of tasks that do not name one.
        serializer: the serializer of tasks without one of their own: ``json``, ``msgpack`` or an
            object.
        backend: the event loop in which workers run ``async`` functions: ``trio``, or ``asyncio``
            for functions that use its libraries.
        results: where results are kept: ``memory``, in that of nodes, for a minute; or ``store``,
            as jobs, for a day, which also holds larger ones.
        safe_adds: give a key (UNIQUE) to each job that has none of its own, so that adding it can
            be repeated if a node is lost, without adding it twice. Without this, losing a node
            raises ``ConnectionLost``, and in a partition both sides can add jobs.
        timeouts: how long to try to reach a node.

    Raises:
        ValueError: the URL, the serializer or another argument is invalid.

    Attributes:
        cluster: the cluster that the URL describes.
        nodes: its addresses, as ``connect`` takes them.
        password: the password for its nodes; None if there is none.
        hooks: decorators for functions to be called around its tasks: see ``Hooks``.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        name: str = "",
        queue: str = "tasks",
        serializer: str | Serializer = "json",
        backend: Backend = "trio",
        results: Results = "memory",
        safe_adds: bool = True,
        **timeouts: Unpack[Timeouts],
    ) -> None:
        self.cluster: Final = _cluster_of_environment() if url is None else Cluster.parse(url)
        self.nodes: list[str] = list(self.cluster.nodes)
        self.password: str | None = self.cluster.password
        self._queue = queue
        check_names(timeouts, Timeouts.__annotations__)
        node_timeout = timeouts.get("node_timeout", 30.0)
        if "retry_for" in timeouts:
            old_word("retry_for", "node_timeout", 1)
            node_timeout = timeouts["retry_for"]
        add_timeout = timeouts.get("add_timeout", 5.0)
        if not add_timeout > 0:
            raise ValueError(f"add_timeout must be more than 0 seconds, not {add_timeout}")
        self._node_timeout = node_timeout
        self._connect_timeout = timeouts.get("connect_timeout", 5.0)
        self._serializer = serializer_of(serializer)
        serializers = Serializers([Json(), self._serializer])
        key_for = node_timeout + KEY_FOR if safe_adds else None
        thread = OwnThread(partial(self._open, add_timeout))
        self.core: Core = Core(
            thread, serializers, key_for, _known(backend), self._open_at, results, add_timeout
        )
        self.hooks: Final = self.core.hooks
        self._policies: dict[str, QueuePolicy] = {}
        self._schedules = Schedules(name)

    def __repr__(self) -> str:
        return f"<Disque {','.join(self.nodes)} with {len(self.core.tasks)} tasks>"

    # Tasks

    @overload
    def task(  # type: ignore[overload-overlap]
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...
    @overload
    def task(self, function: None = None, /, **options: Unpack[TaskOptions]) -> Decorator: ...
    def task(
        self, function: Callable[..., Any] | None = None, /, **options: Unpack[TaskOptions]
    ) -> Any:
        """Make a task of a function, ``async`` or not: ``@app.task``, ``@app.task(queue="mail")``.

        Args:
            options: see ``TaskOptions``.

        Raises:
            TypeError: this is not a function, a function with ``cron`` needs arguments, or there
                is no such option.
            ValueError: the name is taken, another task sets a property of the queue differently, or
                an argument is invalid.
        """
        check_names(options, TaskOptions.__annotations__)
        said = renamed(options, 1)
        given = {name: value for name, value in said.items() if value is not None}
        of_jobs = {name: given[name] for name in _OF_JOBS & given.keys()}
        of_task: dict[str, Any] = {name: given[name] for name in _OF_DEFINITIONS & given.keys()}
        name, serializer, cron = options.get("name"), options.get("serializer"), options.get("cron")

        def define(function: Callable[..., Any]) -> Task[..., Any] | AsyncTask[..., Any]:
            of_queue = {name: given[name] for name in QueueOptions.__annotations__ & given.keys()}
            called = name_of(function) if name is None else name
            try:
                definition = Definition(
                    called,
                    function,
                    options.get("queue") or self._queue,
                    self._serializer if serializer is None else serializer_of(serializer),
                    options=of_jobs,
                    **of_task,
                )
                if definition.name in self.core.tasks or definition.name.startswith(PREFIX):
                    raise ValueError(f"the name {definition.name!r} is taken")
                policy = self._policies.get(definition.queue) or QueuePolicy()
                grouped = definition.group_by is not None
                policy.merge(definition.queue, of_queue, grouped=grouped)
            except (TypeError, ValueError) as error:
                raise type(error)(f"task {called}: {error}") from None
            self.core.serializers.add(definition.serializer)
            kind = AsyncTask if definition.is_async else Task
            task: Task[..., Any] | AsyncTask[..., Any] = kind(self.core, definition)
            if cron is not None:
                definition.check((), {})
                catchup = options.get("catchup", False)
                table = Timetable(cron, options.get("tz"), catchup, task.bind())
                self._schedules.add(definition.name, table)
            self._policies[definition.queue] = policy
            self.core.tasks[definition.name] = definition
            return task

        return define if function is None else define(function)

    def queue(self, name: str, **options: Unpack[DeclaredQueue]) -> str:
        """Say what the policy of a queue, or of all queues that match a pattern, has to be:
        ``HOOKS = app.queue("hooks", active=20, group_rate="5/s")``.

        ``setup``, and each start of a worker, sets those options that differ from the policy that
        is in force, as it does for those of tasks.

        Returns:
            The name.

        Raises:
            TypeError: there is no such option.
            ValueError: a task, or another call, says something else.
        """
        check_names(options, DeclaredQueue.__annotations__)
        policy = self._policies.get(name) or QueuePolicy()
        policy.merge(name, options)
        self._policies[name] = policy
        return name

    def schedule(
        self,
        name: str,
        times: str,
        bound: Bound[Any],
        *,
        tz: str | None = None,
        catchup: bool = False,
    ) -> None:
        """Add a job again and again: ``app.schedule("report", "@daily", report.bind(7))``.

        The nodes do this. ``setup``, and each start of a worker, tells them about it. If the app
        has a name, this also deletes those of its schedules that the program no longer has.

        Args:
            times, tz, catchup: as for ``Schedules.set``.

        Raises:
            TypeError: ``bound`` is a task to which ``bind`` was not applied.
            ValueError: the app already has a schedule with this name.
        """
        step_of(bound)
        self._schedules.add(name, Timetable(times, tz, catchup, bound))

    @overload
    def group(self, members: Sequence[Bound[R]]) -> Handles[R]: ...
    @overload
    def group(
        self, members: Sequence[Bound[Any]], then: Bound[S], **options: Unpack[WorkflowOptions]
    ) -> Handle[S]: ...
    def group(
        self,
        members: Sequence[Bound[Any]],
        then: Bound[Any] | None = None,
        **options: Unpack[WorkflowOptions],
    ) -> Handles[Any] | Handle[Any]:
        """Add jobs that belong together, optionally with a last one that gets all their results.

        Args:
            members: the jobs.
            then: a job to add when all members are done, with the list of their results as its
                first argument. With it, the whole group is added as one job first, so that all
                members are added or none. Without it, members are added one by one.
            options: with ``then``: see ``WorkflowOptions``.

        Returns:
            The handle of ``then``, or without that the handles of the members.

        Raises:
            TypeError: members lack arguments, or ``then`` does not take a result.
            ValueError: ``then`` is given, but there are no members. Also raises the exceptions of
                ``Template.add``.
        """
        if then is not None:
            return composing.group_before(members, then, options).add()
        if options:
            raise TypeError("options of a group need then; or use group([...]).add()")
        return composing.add_all(self.core, members)

    def handle(self, id: str) -> Handle[Any]:
        """Return the handle of a job that was added elsewhere. Raises TypeError if ``id`` is no
        text, as a handle is."""
        if not isinstance(id, str):
            raise TypeError(f"the id of a job is a str, not {type(id).__name__}")
        return Handle(self.core, id)

    def cancel(self, id: str, *, terminate: bool = False) -> Later[None]:
        """End a job that was added elsewhere; see ``Handle.cancel``."""
        return self.handle(id).cancel(terminate=terminate)

    # Workers

    def queues(self) -> list[str]:
        """Return the queues of the tasks, in the order of their definition."""
        return list(dict.fromkeys(task.queue for task in self.core.tasks.values()))

    def setup(self) -> Later[None]:
        """Set the policies of the queues and the schedules where they differ from those wanted.

        Blocks in a thread; in a task of Trio or asyncio, await it. Workers do this when they start.

        Raises:
            NoExtError: a node of the cluster does not support policies or schedules.
            ReplyError: a rate or a time is invalid.
            ConnectionLost: no node could be reached in time.
        """
        return Later(self.core, self._set_up, "the set-up")

    async def _set_up(self, client: Client) -> None:
        for queue, policy in self._policies.items():
            await policy.apply(client, queue)
        await self._schedules.apply(client)

    def worker_start(self, function: Callable[[], R]) -> Callable[[], R]:
        """The former name of ``hooks.on_process_start``."""
        old_word("worker_start", "hooks.on_process_start", 1)
        return self.hooks.on_process_start(function)

    # Connections

    @contextmanager
    def using(self, client: Client) -> Iterator[None]:
        """Use ``client`` for everything within the block.

        This includes what other threads and loops of the process add. The client's loop must be the
        current one. (By default, a client in a thread of its own connects at first use.)
        """
        with self.core.using(OfLoop(client)):
            yield

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Client]:
        """Connect, and use the client within the block; see ``using``. Raises the exceptions of
        ``disque_trio.client.connect``."""
        async with self._open() as client:
            with self.using(client):
                yield client

    def close(self) -> None:
        """Close the connections of the client in its own thread. The next use opens them again."""
        self.core.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self, first: float | None = None) -> AbstractAsyncContextManager[Client]:
        return connect_to(self.cluster, self._node_timeout, self._connect_timeout, first)

    def _open_at(self, node: str) -> AbstractAsyncContextManager[Client]:
        return connect_to(self.cluster.only(node), 0, self._connect_timeout)

    # Tests

    @contextmanager
    def overriding(
        self, functions: Mapping[Callable[..., Any], Callable[..., Any]]
    ) -> Iterator[None]:
        """Call other functions than those of ``Depends`` within the block:
        ``app.overriding({get_session: fake_session})``."""
        before = dict(self.hooks.overrides)
        self.hooks.overrides.update(functions)
        try:
            yield
        finally:
            self.hooks.overrides.clear()
            self.hooks.overrides.update(before)

    @contextmanager
    def testing(self, *, run: bool = True, backend: Backend | None = None) -> Iterator[Jobs]:
        """Use no nodes within the block: adding a job runs it before the call returns.

        Failed jobs are retried at once, and the result is available at once.

        Args:
            run: False only records what is added.
            backend: the event loop for ``async`` functions whose jobs are added by threads; None:
                the same as in workers.
        """
        with testing(self.core, run, _known(backend or self.core.backend)) as jobs:
            yield jobs


def _cluster_of_environment() -> Cluster:
    try:
        return Cluster.parse(os.environ.get("DISQUE_URL") or DEFAULT)
    except ValueError as error:
        raise ValueError(f"the environment variable DISQUE_URL: {error}") from None


def _known(backend: Backend) -> Backend:
    if backend not in ("trio", "asyncio"):
        raise ValueError(f"the backend must be trio or asyncio, not {backend!r}")
    return backend
