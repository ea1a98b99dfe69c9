"""The application: tasks, and the cluster that their jobs go to."""

import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any, Final, ParamSpec, Protocol, Self, TypeVar, overload

from disque_trio.client import Client, HeldJob
from disque_trio.client.connecting import connect_to
from disque_trio.client.urls import DEFAULT, Cluster
from disque_trio.tasks import groups
from disque_trio.tasks.calling import Backend
from disque_trio.tasks.core import Core, Later
from disque_trio.tasks.definition import Definition, Unique, name_of
from disque_trio.tasks.handle import Handle, Handles
from disque_trio.tasks.link import OfLoop, OwnThread
from disque_trio.tasks.messages import TASK
from disque_trio.tasks.policies import QueuePolicy, Schedules, Timetable
from disque_trio.tasks.serializers import Json, Serializer, Serializers, serializer_of
from disque_trio.tasks.template import AsyncTask, Bound, Task, step_of
from disque_trio.tasks.testing import Jobs, testing

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")

KEY_FOR = 60.0
"""Seconds that keys of ours are kept for longer than an add may be repeated."""


class Decorator(Protocol):
    """What ``@app.task(...)`` gives: it makes a task of a function."""

    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...


class Disque:
    """The tasks of a program, and the cluster that their jobs go to. Making it connects to nothing.

    Args:
        url: ``disque://user:password@host:7711,host2:7711``, or ``disques://`` for TLS; None: what
            the environment variable DISQUE_URL says, or else ``disque://127.0.0.1:7711``.
        name: of the program, among those that use the cluster. Its schedules begin with it, so
            that those which the program no longer has can be deleted; without one they stay.
        queue: of tasks that name none.
        serializer: of tasks that have none of their own: ``json``, ``msgpack``, or an object.
        backend: what ``async`` functions run in, in workers: ``trio``, or ``asyncio`` for those
            that use its libraries.
        retry_for: seconds to go on trying when no node can be reached.
        connect_timeout: seconds for one attempt to connect to a node.
        safe_adds: each job without a key of its own gets one (UNIQUE), so that adding it can be
            repeated when a node is lost, and adds nothing twice. Without it that raises
            ``ConnectionLost``, and in a partition both sides can add jobs.

    Raises:
        ValueError: the URL, or the serializer, makes no sense.

    Attributes:
        cluster: what the URL says. nodes: addresses, as ``connect`` takes them.
        password: for these; None: none.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        name: str = "",
        queue: str = "tasks",
        serializer: str | Serializer = "json",
        backend: Backend = "trio",
        retry_for: float = 30.0,
        connect_timeout: float = 5.0,
        safe_adds: bool = True,
    ) -> None:
        if url is None:
            url = os.environ.get("DISQUE_URL") or DEFAULT
        self.cluster: Final = Cluster.parse(url)
        self.nodes: list[str] = list(self.cluster.nodes)
        self.password: str | None = self.cluster.password
        self._queue = queue
        self._retry_for = retry_for
        self._connect_timeout = connect_timeout
        self._serializer = serializer_of(serializer)
        serializers = Serializers([Json(), self._serializer])
        key_for = retry_for + KEY_FOR if safe_adds else None
        self.core: Core = Core(OwnThread(self._open), serializers, key_for, _known(backend))
        self._policies: dict[str, QueuePolicy] = {}
        self._schedules = Schedules(name)
        self._starts: list[Callable[[], object]] = []

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
    def task(
        self,
        function: None = None,
        /,
        *,
        queue: str | None = None,
        name: str | None = None,
        retries: int = 5,
        backoff: tuple[float, float] = (1.0, 600.0),
        unique: Unique = False,
        unique_for: float | None = None,
        timeout: float | None = None,
        rate: str | None = None,
        dead: str | None = None,
        priority: int | None = None,
        ttl: int | None = None,
        retry: int | None = None,
        serializer: str | Serializer | None = None,
        cron: str | None = None,
        tz: str | None = None,
        catchup: bool = False,
    ) -> Decorator: ...
    def task(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        queue: str | None = None,
        name: str | None = None,
        retries: int = 5,
        backoff: tuple[float, float] = (1.0, 600.0),
        unique: Unique = False,
        unique_for: float | None = None,
        timeout: float | None = None,
        rate: str | None = None,
        dead: str | None = None,
        priority: int | None = None,
        ttl: int | None = None,
        retry: int | None = None,
        serializer: str | Serializer | None = None,
        cron: str | None = None,
        tz: str | None = None,
        catchup: bool = False,
    ) -> Any:
        """Make a task of a function, ``async`` or not: ``@app.task``, ``@app.task(queue="mail")``.

        Args:
            queue: where its jobs go.
            name: in jobs; by default module and name of the function.
            retries: how often it is tried again after a failure.
            backoff: the shortest and the longest pause before that, s; twice as long each time, a
                quarter more or less.
            unique: while there is a job of this task with the same arguments, adding another one
                gives its id and adds nothing; or a function that makes a key of the arguments.
            unique_for: seconds for which the key is kept, whatever becomes of the job; without it
                as long as the job lives.
            timeout: seconds that it may take. An ``async`` function is cancelled then; any other
                one cannot be, and ends its worker's process. Either is tried again.
            rate: how many jobs of the queue are started, as ``50/s``, ``300/m`` or ``1000/h``, by
                all workers together. It is the queue's.
            dead: the queue of dead letters of the queue; ``<queue>.dead`` if nobody says.
            priority, ttl, retry: of its jobs; see ``Options``.
            serializer: of arguments and results, in place of the app's.
            cron: when it is added without arguments: five fields, ``@daily``, ``@every 10s``.
            tz: time zone of ``cron``; None: UTC.
            catchup: make up the last time that was missed while no node was there.

        Raises:
            TypeError: it is no function, or one of ``cron`` that needs arguments.
            ValueError: the name is taken; another task of the queue says otherwise of what is the
                queue's; an argument makes no sense.
        """

        def define(function: Callable[..., Any]) -> Task[..., Any] | AsyncTask[..., Any]:
            said = {"priority": priority, "ttl": ttl, "retry": retry, "unique_for": unique_for}
            definition = Definition(
                name_of(function) if name is None else name,
                function,
                queue or self._queue,
                self._serializer if serializer is None else serializer_of(serializer),
                retries=retries,
                backoff=backoff,
                timeout=timeout,
                unique=unique,
                options={key: value for key, value in said.items() if value is not None},
            )
            if definition.name in self.core.tasks or definition.name.startswith(groups.PREFIX):
                raise ValueError(f"the name {definition.name!r} is taken")
            policy = self._policies.get(definition.queue) or QueuePolicy()
            policy.merge(definition.queue, rate, dead)
            self.core.serializers.add(definition.serializer)
            kind = AsyncTask if definition.is_async else Task
            task: Task[..., Any] | AsyncTask[..., Any] = kind(self.core, definition)
            if cron is not None:
                definition.check((), {})
                table = Timetable(cron, tz, catchup, task.bind())
                self._schedules.add(definition.name, table)
            self._policies[definition.queue] = policy
            self.core.tasks[definition.name] = definition
            return task

        return define if function is None else define(function)

    def schedule(
        self,
        name: str,
        times: str,
        bound: Bound[Any],
        *,
        tz: str | None = None,
        catchup: bool = False,
    ) -> None:
        """Let a job be added again and again: ``app.schedule("report", "@daily", report.bind(7))``.

        The nodes do that; ``setup``, and each start of a worker, tells them. If the app has a name
        those of its schedules that the program does not have any more are deleted then.

        Args:
            times, tz, catchup: as of ``Schedules.set``.

        Raises:
            TypeError: ``bound`` is a task without ``bind``.
            ValueError: the app has a schedule with this name.
        """
        step_of(bound)
        self._schedules.add(name, Timetable(times, tz, catchup, bound))

    @overload
    def group(self, members: Sequence[Bound[R]]) -> Handles[R]: ...
    @overload
    def group(self, members: Sequence[Bound[Any]], then: Bound[S]) -> Handle[S]: ...
    def group(
        self, members: Sequence[Bound[Any]], then: Bound[Any] | None = None
    ) -> Handles[Any] | Handle[Any]:
        """Add jobs that belong together, and one behind them that gets the list of their results as
        its first argument. Without that the members are added one by one, and their handles
        returned; with it all is one job at first, so that all are added or none.

        Raises: as ``Template.add``; ValueError: there are no members.
        """
        if then is None:
            return groups.add_all(self.core, members)
        return groups.add(self.core, members, then)

    def handle(self, id: str) -> Handle[Any]:
        """The handle of a job that was added elsewhere."""
        return Handle(self.core, id)

    # Working

    def queues(self) -> list[str]:
        """The queues of the tasks, in the order in which they were defined."""
        return list(self._policies)

    def setup(self) -> Later[None]:
        """Set the policies of the queues, and the schedules, where they are not as they should be.
        Blocks in a thread; is awaited in a task of Trio or asyncio. Workers do it at their start.

        Raises:
            NoExtError: a node of the cluster does not know them.
            ReplyError: a rate or a time makes no sense.
            ConnectionLost: no node could be reached in time.
        """
        return Later(self.core, self._set_up, "the set-up")

    async def _set_up(self, client: Client) -> None:
        for queue, policy in self._policies.items():
            await policy.apply(client, queue)
        await self._schedules.apply(client)

    def worker_start(self, function: Callable[[], R]) -> Callable[[], R]:
        """Have each process of a worker call a function before it connects: ``@app.worker_start``.
        A worker that cannot is not started."""
        self._starts.append(function)
        return function

    def start_worker(self) -> None:
        """Call what ``worker_start`` was told. Raises what that raises."""
        for function in self._starts:
            function()

    def timeout_of(self, job: HeldJob) -> float | None:
        """How long the task of a job may take, s; None: for ever, or the job names none."""
        name = job.headers.get(TASK, b"").decode("utf-8", "replace")
        definition = self.core.tasks.get(name)
        return None if definition is None else definition.timeout

    # Connections

    @contextmanager
    def using(self, client: Client) -> Iterator[None]:
        """Within the block all goes over ``client``, whose loop runs here; also what other threads
        and loops of the process add. (By default there is a client in a thread of its own, which
        connects at first use.)"""
        with self.core.using(OfLoop(client)):
            yield

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Client]:
        """Connect, and use the client; see ``using``. Raises what ``disque_trio.client.connect``
        raises."""
        async with self._open() as client:
            with self.using(client):
                yield client

    def close(self) -> None:
        """Close the connections of the client in a thread. The next use opens them again."""
        self.core.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self) -> AbstractAsyncContextManager[Client]:
        return connect_to(self.cluster, self._retry_for, self._connect_timeout)

    # Tests

    @contextmanager
    def testing(self, *, run: bool = True, backend: Backend | None = None) -> Iterator[Jobs]:
        """Within the block jobs go to no node: each is run where it is added, before that returns,
        with its retries, and its result is there at once.

        Args:
            run: False only notes what is added.
            backend: in what ``async`` functions run that threads add; None: as in workers.
        """
        with testing(self.core, run, _known(backend or self.core.backend)) as jobs:
            yield jobs


def _known(backend: Backend) -> Backend:
    if backend not in ("trio", "asyncio"):
        raise ValueError(f"the backend is trio or asyncio, not {backend!r}")
    return backend
