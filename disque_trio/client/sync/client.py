"""The client for threads: the asynchronous client's methods, blocking."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from functools import wraps
from typing import Concatenate, Final, ParamSpec, Self, TypeVar, Unpack

import trio

from disque_trio.client import client, connecting
from disque_trio.client.fetch import GetOptions
from disque_trio.client.job import Job
from disque_trio.client.jobs import HeldJob as AsyncJob
from disque_trio.client.jobs import Jobs as AsyncJobs
from disque_trio.client.schedules import Schedules as AsyncSchedules
from disque_trio.client.sync.jobs import HeldJob, Jobs
from disque_trio.client.sync.portal import Portal
from disque_trio.client.urls import Cluster
from disque_trio.respclient.thread_loop import Blocking, blocking
from disque_trio.respclient.tls import TlsOption
from disque_trio.respclient.values import Name

AsyncClient = client.Client

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

_PART = 100
"""How many items of a scan to fetch from the loop at once."""


class Schedules(Blocking[AsyncSchedules]):
    """The schedules of a cluster (CRON); see ``disque_trio.client.Client.schedules``."""

    def __init__(self, portal: Portal) -> None:
        self._portal = portal

    set: Final = blocking(AsyncSchedules.set)
    get: Final = blocking(AsyncSchedules.get)
    all: Final = blocking(AsyncSchedules.all)
    delete: Final = blocking(AsyncSchedules.delete)
    pause: Final = blocking(AsyncSchedules.pause)
    resume: Final = blocking(AsyncSchedules.resume)
    run: Final = blocking(AsyncSchedules.run)

    def _run(self, call: Callable[[AsyncSchedules], Awaitable[R]]) -> R:
        return self._portal.run(lambda client: call(client.schedules))


def _scan(
    method: Callable[Concatenate[AsyncClient, P], AsyncGenerator[T]],
) -> "Callable[Concatenate[Client, P], Iterator[T]]":
    """Make the blocking iterator for ``method``, which returns an asynchronous one."""

    @wraps(method)
    def scan(self: "Client", /, *args: P.args, **options: P.kwargs) -> Iterator[T]:
        return self._scanned(lambda client: method(client, *args, **options))

    return scan


class Client(Blocking[AsyncClient]):
    """A client of a Disque cluster for threads, made by ``connect``. Any number of threads may
    share it.

    Its methods are those of ``disque_trio.client.Client``, with the same arguments, results and
    exceptions. They block the calling thread. An exception raised in that thread meanwhile, such as
    KeyboardInterrupt, cancels the call.

    After ``os.fork``, the child opens a connection of its own when it first uses the client. Jobs,
    loops and scans begun before the fork remain the parent's: in the child they raise
    ``ConnectionLost``.

    Attributes:
        schedules: the jobs that the cluster adds by itself; see ``Schedules``.
    """

    def __init__(self, portal: Portal) -> None:
        self.schedules: Final = Schedules(portal)
        self._portal = portal

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect. Jobs that are still held are given back; calls in progress in other threads
        raise ``ConnectionLost``."""
        self._portal.close()

    @property
    def address(self) -> str | None:
        """The address of the node in use, such as ``127.0.0.1:7711``; None if there is none."""
        return self._portal.loop().value.address

    def run(self, function: Callable[[AsyncClient], Awaitable[R]]) -> R:
        """Await ``function(client)`` with the asynchronous client, in the thread of its Trio loop.

        Returns or raises the outcome. ``function`` must not block: there, methods of this client
        raise ``RuntimeError``.
        """
        return self._run(function)

    # Producing

    add: Final = blocking(AsyncClient.add)
    publish: Final = blocking(AsyncClient.publish)
    add_many: Final = blocking(AsyncClient.add_many)

    # Consuming

    def get(self, *queues: Name, **options: Unpack[GetOptions]) -> list[Job]:
        """Fetch jobs (GETJOB) from the queues, preferring those named first.

        A call that has to wait uses a connection of its own. If an exception interrupts the call, a
        job that was already on its way is queued again with ENQUEUE. A job with a retry time of 0
        is lost instead, as at-most-once delivery implies.

        Args:
            queues: names of queues, at least one.
            options: see ``GetOptions``.

        Returns:
            The jobs; empty if none arrived in time. The caller must ``ack`` each of them.
        """
        return self._portal.run(lambda client: client.get(*queues, **options), self._put_back)

    def _put_back(self, jobs: list[Job]) -> None:
        if jobs:
            self.enqueue(*[job.id for job in jobs])

    def jobs(self, *queues: Name, withheaders: bool = False, pattern: bool = False) -> Jobs:
        """Return the worker loop over the jobs of the queues; see ``Jobs``.

        ``withheaders`` and ``pattern`` are those of ``get``.
        """
        return Jobs(
            self._portal,
            lambda client: client.jobs(*queues, withheaders=withheaders, pattern=pattern),
        )

    def loops(
        self, *queues: Name, count: int, withheaders: bool = False, pattern: bool = False
    ) -> list[Jobs]:
        """Return ``count`` loops like that of ``jobs``, for as many threads; they share a
        connection.

        When one loop is stopped, the others continue, but take their next jobs on a new connection.
        """
        loops: list[AsyncJobs] = []

        def start(client: AsyncClient) -> AsyncJobs:
            if not loops:
                loops.extend(
                    client.loops(*queues, count=count, withheaders=withheaders, pattern=pattern)
                )
            return loops.pop()

        return [Jobs(self._portal, start) for _ in range(count)]

    def work(
        self,
        handler: Callable[[HeldJob], object],
        *queues: Name,
        concurrency: int = 1,
        withheaders: bool = False,
        pattern: bool = False,
    ) -> None:
        """Run ``handler`` on each job of the queues, in ``concurrency`` threads, forever.

        A job is acknowledged when its handler returns. If the handler raises an ``Exception``, the
        exception is logged and the job is given back with NACK. A job that the handler settled
        itself is left alone. No job is fetched before a handler is free to take it.

        The call ends when an exception is raised in the calling thread, such as KeyboardInterrupt,
        or SystemExit from a signal handler. No more jobs are then taken, and those in hand are
        finished first, since threads cannot be stopped. SystemExit in a handler does the same, and
        gives its job back.

        ``withheaders`` and ``pattern`` are those of ``get``.

        Raises:
            ConnectionLost: no node could be reached within ``retry_for``.
        """

        async def work(
            client: AsyncClient, threads: Callable[[AsyncJob], Awaitable[object]]
        ) -> None:
            async def handle(job: AsyncJob) -> None:
                await threads(job)
                job.processed = True

            await client.work(
                handle,
                *queues,
                concurrency=concurrency,
                withheaders=withheaders,
                pattern=pattern,
            )

        self._in_threads(handler, concurrency, work)

    # Calls

    call: Final = blocking(AsyncClient.call)

    def serve(
        self,
        queue: Name,
        handler: Callable[[HeldJob], Name | None],
        *,
        concurrency: int = 1,
    ) -> None:
        """Serve calls to the queue, in ``concurrency`` threads, forever.

        The return value of ``handler`` is the answer. If it raises an ``Exception``, the caller
        gets the text of that exception as a ``CallError``.

        Requests whose callers no longer wait are dropped. The call ends as ``work`` does.

        Raises:
            ConnectionLost: no node could be reached within ``retry_for``.
        """
        self._in_threads(
            handler,
            concurrency,
            lambda client, threads: client.serve(queue, threads, concurrency=concurrency),
        )

    def _in_threads(
        self,
        handler: Callable[[HeldJob], R],
        count: int,
        run: Callable[[AsyncClient, Callable[[AsyncJob], Awaitable[R]]], Awaitable[None]],
    ) -> None:
        """Await ``run(client, handle)`` until a handler exits; ``handle`` calls ``handler`` in one
        of ``count`` threads."""
        loop = self._portal.loop()
        limiter = trio.CapacityLimiter(count)
        scope = trio.CancelScope()
        exits: list[BaseException] = []

        async def handle(job: AsyncJob) -> R:
            held = HeldJob(self._portal, loop, job)
            try:
                return await loop.in_thread(lambda: handler(held), limiter)
            except (SystemExit, KeyboardInterrupt) as error:
                # Raised in the loop, it would end the loop and the calls of other threads.
                exits.append(error)
                scope.cancel()
                await trio.sleep_forever()

        async def until_one_exits(client: AsyncClient) -> None:
            with scope:
                await run(client, handle)

        self._run(until_one_exits)
        if exits:
            raise exits[0]

    # Settling jobs by id

    ack: Final = blocking(AsyncClient.ack)
    fastack: Final = blocking(AsyncClient.fastack)
    nack: Final = blocking(AsyncClient.nack)
    dead: Final = blocking(AsyncClient.dead)
    wait: Final = blocking(AsyncClient.wait)
    cancel: Final = blocking(AsyncClient.cancel)
    update: Final = blocking(AsyncClient.update)
    working: Final = blocking(AsyncClient.working)
    enqueue: Final = blocking(AsyncClient.enqueue)
    promote: Final = blocking(AsyncClient.promote)
    dequeue: Final = blocking(AsyncClient.dequeue)
    deljob: Final = blocking(AsyncClient.deljob)

    # Inspection

    show: Final = blocking(AsyncClient.show)
    qlen: Final = blocking(AsyncClient.qlen)
    qpeek: Final = blocking(AsyncClient.qpeek)
    qstat: Final = blocking(AsyncClient.qstat)
    qscan: Final = _scan(AsyncClient.qscan)
    jscan: Final = _scan(AsyncClient.jscan)
    jscan_full: Final = _scan(AsyncClient.jscan_full)

    # Nodes, policies, topics

    pause: Final = blocking(AsyncClient.pause)
    info: Final = blocking(AsyncClient.info)
    hello: Final = blocking(AsyncClient.hello)
    execute: Final = blocking(AsyncClient.execute)
    set_policy: Final = blocking(AsyncClient.set_policy)
    policy: Final = blocking(AsyncClient.policy)
    policies: Final = blocking(AsyncClient.policies)
    delete_policy: Final = blocking(AsyncClient.delete_policy)
    purge: Final = blocking(AsyncClient.purge)
    move: Final = blocking(AsyncClient.move)
    bind: Final = blocking(AsyncClient.bind)
    unbind: Final = blocking(AsyncClient.unbind)
    bindings: Final = blocking(AsyncClient.bindings)
    redrive: Final = blocking(AsyncClient.redrive)

    def _run(self, call: Callable[[AsyncClient], Awaitable[R]]) -> R:
        return self._portal.run(call)

    def _scanned(self, begin: Callable[[AsyncClient], AsyncGenerator[T]]) -> Iterator[T]:
        loop = self._portal.loop()
        items = begin(loop.value)

        async def part(_: AsyncClient) -> list[T]:
            found: list[T] = []
            async for item in items:
                found.append(item)
                if len(found) == _PART:
                    break
            return found

        try:
            while found := self._portal.run(part, loop=loop):
                yield from found
        finally:
            # Do not wait: any thread may dispose of an abandoned scan.
            loop.start(items.aclose)


def connect(
    nodes: str | Sequence[str] = ("127.0.0.1:7711",),
    *,
    username: str | None = None,
    password: str | None = None,
    tls: TlsOption = None,
    client_name: str | None = None,
    hints: bool = True,
    retry_for: float = 30.0,
    connect_timeout: float = 5.0,
) -> Client:
    """Connect to a cluster: ``with connect(["10.0.0.1:7711", "10.0.0.2:7711"]) as client``, or
    ``client = connect(...)`` and later ``client.close()``.

    Arguments, exceptions and the choice of the node are those of ``disque_trio.client.connect``.
    A client that was never closed is closed when the program exits.
    """
    cluster = Cluster.of(nodes, username, password, tls, client_name, hints)
    return connect_to(cluster, retry_for, connect_timeout)


def connect_to(
    cluster: Cluster, retry_for: float, connect_timeout: float = 5.0, first: float | None = None
) -> Client:
    """Like ``connect``, but takes the nodes and their credentials as a ``Cluster``. ``first``: the
    seconds for which to try at the start, if that differs."""
    return Client(Portal(lambda: connecting.connect_to(cluster, retry_for, connect_timeout, first)))
