"""The client: Disque's commands as methods with types, over whichever node serves best."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TypeVar, Unpack

from disque_trio.client import tracing
from disque_trio.client.adding import add_all, add_one
from disque_trio.client.calls import Calls
from disque_trio.client.commands import Commands
from disque_trio.client.fetch import GetOptions, fetch, fetch_traced
from disque_trio.client.handlers import handle, serve_one
from disque_trio.client.job import Job
from disque_trio.client.jobs import HeldJob, Jobs
from disque_trio.client.replies import ids
from disque_trio.client.requests import Pattern, addjob, kept_for, new_key
from disque_trio.client.router import Router
from disque_trio.client.session import Session
from disque_trio.client.supply import Supply
from disque_trio.job_options import AddOptions, Headers
from disque_trio.respclient.delivery import InFlight, Source
from disque_trio.respclient.values import Name, elements, text

S = TypeVar("S", bound=Source)


class Client(Commands):
    """A client of a Disque cluster, made by ``connect``. Any number of tasks may share it.

    Queue names and bodies are ``str`` (sent as UTF-8) or bytes. Times are in seconds. Unless a
    method says otherwise, it repeats its command after a lost connection, for up to ``retry_for``
    seconds. All methods raise:

    - ``ReplyError``, or the subclass for the error code, if the node replies with an error;
    - ``ConnectionLost``, if no node could be reached in time, or if a command that is not safe to
      repeat may or may not have been executed.
    """

    def __init__(self, router: Router, in_flight: InFlight) -> None:
        super().__init__(router)
        self._in_flight = in_flight
        self._calls = Calls(router, in_flight)

    @property
    def address(self) -> str | None:
        """The address of the node in use, such as ``127.0.0.1:7711``; None if there is none."""
        address = self._router.address
        return None if address is None else str(address)

    def run_source(self, make: Callable[[Router, InFlight], S]) -> S:
        """Make a source of deliveries, and run it until it ends or the client is closed."""
        source = make(self._router, self._in_flight)
        self._in_flight.serve(source)
        return source

    # Producing

    async def add(
        self,
        queue: Name,
        body: Name,
        *,
        timeout: float | None = 5.0,
        headers: Headers | None = None,
        unique: Name | bool = False,
        unique_for: float | None = None,
        async_: bool = False,
        retry_lost: bool = False,
        **options: Unpack[AddOptions],
    ) -> str:
        """Add a job (ADDJOB) and return its id.

        Args:
            queue: the name of the queue.
            body: the body of the job, up to 512 MiB.
            timeout: seconds to wait until enough nodes have the job; None waits forever.
            headers: names and values to send with the body; pass pairs if a name occurs twice.
            unique: a key. If the queue has a job with this key, nothing is added and the id of
                that job is returned. True generates a key. A command with a key is repeated after
                a lost connection, at another node if need be, since that cannot add a second job.
            unique_for: seconds to keep the key, whatever becomes of the job. By default, a key
                that you pass is kept as long as the job lives, and a generated key is kept a
                minute longer than the command may be repeated.
            async_: return without waiting for the replication.
            retry_lost: what to do, without a key, if the connection is lost and the node may or may
                not have taken the job: True adds it again, perhaps a second time; False raises.
            options: ``replicate``, ``delay``, ``at``, ``retry``, ``ttl``, ``maxlen``, ``priority``,
                ``group``, ``note``; see ``JobOptions``. For a key of your own also
                ``unique_until`` and ``replace``; see ``KeyOptions``. With these a repeated command
                adds a second job if the first one has started.

        Raises:
            NoReplError: the job was not replicated in time.
            MaxLenError, PausedError, OOMError: the queue or the node refused the job.
            NoExtError, NoUniqueError: headers or keys are not possible at the moment.
            ConnectionLost: see ``retry_lost``; ``maybe_executed`` tells the two cases apart.
            ValueError: ``timeout`` is not positive, ``at`` has no time zone, both ``at`` and
                ``delay`` were given, or options of the key are incompatible.
        """
        key, kept = self._key(unique, unique_for, timeout)
        command = addjob(
            *(queue, body, timeout),
            headers=headers,
            key=key,
            kept=kept,
            async_=async_,
            **options,
        )
        repeat = retry_lost or key is not None
        return text(await add_one(self._router, command, repeat=repeat))

    async def publish(
        self,
        topic: Name,
        body: Name,
        *,
        timeout: float | None = 5.0,
        headers: Headers | None = None,
        unique: Name | bool = False,
        unique_for: float | None = None,
        async_: bool = False,
        retry_lost: bool = False,
        **options: Unpack[AddOptions],
    ) -> list[str]:
        """Add a job to each queue that is bound to a matching topic (ADDJOB @topic; see ``bind``).

        The arguments are those of ``add``. With ``unique`` the call can be repeated, and adds only
        the jobs that are missing.

        Returns:
            The job ids, ordered by the names of their queues.

        Raises:
            AddManyError: some jobs were not added; its ``results`` say which ones were.
            ReplyError: no job was added, all for the same reason, or the arguments are wrong.
            ConnectionLost, ValueError: as for ``add``.
        """
        key, kept = self._key(unique, unique_for, timeout)
        queue = b"@" + (topic.encode() if isinstance(topic, str) else topic)
        command = addjob(
            *(queue, body, timeout),
            headers=headers,
            key=key,
            kept=kept,
            async_=async_,
            **options,
        )
        repeat = retry_lost or key is not None
        added = await add_one(self._router, command, repeat=repeat)
        return ids(elements(added))

    def _key(
        self, unique: Name | bool, unique_for: float | None, timeout: float | None
    ) -> tuple[Name | None, float | None]:
        """Return the key of an ADDJOB and how long to keep it (s), given arguments of ``add``."""
        if unique is False:
            return None, unique_for
        if unique is not True:
            return unique, unique_for
        if unique_for is None:
            unique_for = kept_for(self._router.retry_for + (timeout or 0))
        return new_key(), unique_for

    async def add_many(
        self,
        queue: Name,
        bodies: Iterable[Name],
        *,
        timeout: float | None = 5.0,
        headers: Headers | None = None,
        unique: bool | Sequence[Name] = False,
        unique_for: float | None = None,
        async_: bool = False,
        retry_lost: bool = False,
        **options: Unpack[AddOptions],
    ) -> list[str]:
        """Add jobs as one pipeline and return their ids in order.

        The arguments are those of ``add``. ``unique`` is either True, which generates a key for
        each job, or a sequence of keys, one for each job.

        Raises:
            AddManyError: some jobs were not added; its ``results`` say which ones were.
            ValueError: as for ``add``, or the number of keys is not that of the bodies.
        """
        bodies = list(bodies)
        keys: Sequence[Name | None] = [None] * len(bodies)
        if unique is True:
            keys = [new_key() for _ in bodies]
            if unique_for is None:
                unique_for = kept_for(self._router.retry_for + (timeout or 0))
        elif unique is not False:
            keys = unique
        if headers is not None and not isinstance(headers, Mapping):
            headers = list(headers)
        commands = [
            addjob(
                *(queue, body, timeout),
                headers=headers,
                key=key,
                kept=unique_for,
                async_=async_,
                **options,
            )
            for body, key in zip(bodies, keys, strict=True)
        ]
        repeat = retry_lost or unique is not False
        return ids(await add_all(self._router, commands, repeat=repeat))

    # Consuming

    async def get(self, *queues: Name, **options: Unpack[GetOptions]) -> list[Job]:
        """Fetch jobs (GETJOB) from the queues, preferring those named first.

        A call that has to wait uses a connection of its own. If the call is cancelled, this
        connection is closed, and a job that was already on its way is queued again with ENQUEUE. A
        job with a retry time of 0 is lost instead, as at-most-once delivery implies.

        Args:
            queues: names of queues, at least one.
            options: see ``GetOptions``.

        Returns:
            The jobs; empty if none arrived in time. The caller must ``ack`` each of them.
        """

        async def fetching() -> tuple[Session, list[Job]]:
            session, jobs = await fetch(self._router, queues, **options)
            if self._router.hints is not None:
                self._router.hints.taken(session, [job.id for job in jobs])
            return session, jobs

        tracer = tracing.seeing()
        if tracer is not None:
            return await fetch_traced(tracer, queues, fetching)
        _, jobs = await fetching()
        return jobs

    def jobs(self, *queues: Name, withheaders: bool = False, pattern: bool = False) -> Jobs:
        """Return the worker loop over the jobs of the queues; see ``Jobs``.

        ``withheaders`` and ``pattern`` are those of ``get``.
        """
        supply = Supply(self._router, self._in_flight, queues, withheaders, pattern)
        return Jobs(self._in_flight, supply.take, leave=supply.pause)

    def loops(
        self,
        *queues: Name,
        count: int,
        withheaders: bool = False,
        pattern: Pattern = False,
        calm: bool = False,
    ) -> list[Jobs]:
        """Return ``count`` loops like that of ``jobs``, which share a connection.

        With the ``pattern`` "nodead", queues of dead letters (``mail.dead``) match only patterns
        that end in ``.dead``.

        When one loop is stopped, the others continue, but take their next jobs on a new connection.
        ``calm``: if the connection is lost, somebody else tells the node soon what becomes of the
        jobs; if nobody does, they come again after two seconds (``ONLOSS soon``), or, from an older
        node, after their retry time. The node also tells when a job is cancelled (``WITHCANCELS``).
        """
        supply = Supply(self._router, self._in_flight, queues, withheaders, pattern, calm)
        return [
            Jobs(self._in_flight, supply.take, leave=supply.pause, on_its_way=supply.on_its_way)
            for _ in range(count)
        ]

    async def work(
        self,
        handler: Callable[[HeldJob], Awaitable[object]],
        *queues: Name,
        concurrency: int = 1,
        withheaders: bool = False,
        pattern: bool = False,
    ) -> None:
        """Run ``handler`` on each job of the queues, ``concurrency`` jobs at a time, forever.

        A job is acknowledged when its handler returns. If the handler raises an ``Exception``, the
        exception is logged and the job is given back with NACK. A job that the handler settled
        itself is left alone. No job is fetched before a handler is free to take it. To stop, cancel
        the call: current jobs are given back. ``withheaders`` and ``pattern`` are those of ``get``.

        Raises:
            ConnectionLost: no node could be reached within ``retry_for``.
        """
        supply = Supply(self._router, self._in_flight, queues, withheaders, pattern)
        await handle(supply, self._in_flight, handler, concurrency)

    # Calls

    async def call(
        self,
        queue: Name,
        body: Name,
        *,
        timeout: float = 30.0,
        headers: Headers | None = None,
        replicate: int = 1,
    ) -> bytes:
        """Send a request to whoever serves the queue, and return the answer.

        A request may be served twice if its server or a node dies, or a connection is lost; the
        first answer counts. If the call times out or is cancelled, its request is cancelled too, if
        possible.

        Args:
            timeout: seconds to wait for the answer.
            headers: headers of the request, besides those that the call itself needs.
            replicate: how many nodes must hold the request. With the default of 1, the request is
                lost if that node dies, unless it is the node that this client uses.

        Raises:
            TooSlowError: no answer arrived in time. It is both a ``trio.TooSlowError`` and a
                ``TimeoutError``.
            CallError: the handler raised an exception.
            NoExtError: the node cannot push answers.
            ReplyError, ConnectionLost: the request could not be added.
            ValueError: the timeout is not positive.
        """
        return await self._calls.call(queue, body, headers, replicate, timeout)

    async def serve(
        self,
        queue: Name,
        handler: Callable[[HeldJob], Awaitable[Name | None]],
        *,
        concurrency: int = 1,
    ) -> None:
        """Serve calls to the queue, ``concurrency`` at a time, forever.

        The return value of ``handler`` is the answer. If it raises an ``Exception``, the caller
        gets the text of that exception as a ``CallError``.

        Requests whose callers no longer wait are dropped. To stop, cancel the call: the current
        requests go to other servers.

        Raises:
            ConnectionLost: no node could be reached within ``retry_for``.
        """
        supply = Supply(self._router, self._in_flight, (queue,), True, False)
        await handle(supply, self._in_flight, partial(serve_one, handler), concurrency)
