"""The client: Disque's commands as methods with types, over whichever node serves best."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TypeVar

from disque_trio.client import tracing
from disque_trio.client.adding import add_all, add_one
from disque_trio.client.calls import Calls
from disque_trio.client.commands import Commands
from disque_trio.client.fetch import fetch, fetch_traced
from disque_trio.client.handlers import handle, serve_one
from disque_trio.client.jobs import HeldJob, Job, Jobs
from disque_trio.client.replies import ids
from disque_trio.client.requests import Headers, addjob, kept_for, new_key
from disque_trio.client.router import Router
from disque_trio.client.supply import Supply
from disque_trio.respclient.delivery import InFlight, Source
from disque_trio.respclient.values import Name, elements, text

S = TypeVar("S", bound=Source)


class Client(Commands):
    """A client of a Disque cluster, made by ``connect``. Any number of tasks may share it.

    Queue names and bodies may be ``str`` (sent as UTF-8) or bytes. Times are in seconds. Unless a
    method says otherwise it repeats its command after a lost connection, for up to ``retry_for``
    seconds. All methods raise

    - ``ReplyError`` or the subclass of the code, when the node answers with an error,
    - ``ConnectionLost``, when no node could be reached in time or the fate of a command that is not
      safe to repeat is unknown.
    """

    def __init__(self, router: Router, in_flight: InFlight) -> None:
        super().__init__(router)
        self._in_flight = in_flight
        self._calls = Calls(router, in_flight)

    @property
    def address(self) -> str | None:
        """The node in use, such as ``127.0.0.1:7711``; None while there is none."""
        address = self._router.address
        return None if address is None else str(address)

    def run_source(self, make: Callable[[Router], S]) -> S:
        """Make a source of deliveries, and run it until it ends, or the client closes."""
        source = make(self._router)
        self._in_flight.serve(source)
        return source

    # Producing

    async def add(
        self,
        queue: Name,
        body: Name,
        *,
        timeout: float | None = 5.0,  # noqa: ASYNC109 - the node's
        replicate: int | None = None,
        delay: float | None = None,
        at: datetime | float | None = None,
        retry: int | None = None,
        ttl: int | None = None,
        maxlen: int | None = None,
        priority: int | None = None,
        group: Name | None = None,
        headers: Headers | None = None,
        unique: Name | bool = False,
        unique_for: float | None = None,
        async_: bool = False,
        retry_lost: bool = False,
    ) -> str:
        """Add a job (ADDJOB) and return its id.

        Args:
            queue: name of the queue.
            body: the job, up to 512 MiB.
            timeout: seconds to wait for ``replicate`` nodes to have it; None waits for ever.
            replicate: number of nodes that must hold it; the node's default is 3 or, if it knows
                fewer, all.
            delay: seconds before it is queued.
            at: when it is queued instead: a ``datetime`` with a time zone, or seconds since the
                epoch.
            retry: seconds after which an unacknowledged delivery is repeated; 0 for at most once.
            ttl: seconds of its life; the node's default is a day after ``delay``.
            maxlen: refuse the job if the queue is already that long, on all nodes together.
            priority: 0 to 7; the jobs of a queue are delivered by it, 7 first, then by age.
            group: that the job belongs to; see ``set_policy``.
            headers: names and values that go with the body; pairs, if a name comes twice.
            unique: a key: if the queue has a job with it, that one's id is returned and nothing is
                added. True makes a new key. With a key the command is repeated after a lost
                connection, at another node if need be, since that adds nothing a second time.
            unique_for: seconds for which the key is kept, whatever becomes of the job. By default
                a key that is given is kept as long as the job lives, and one that is made for a
                minute longer than the command may be repeated.
            async_: do not wait for the replication.
            retry_lost: what to do without a key when the connection is lost and the node may or may
                not have taken the job: True adds it again, perhaps a second time; False raises.

        Raises:
            NoReplError: not replicated in time.
            MaxLenError, PausedError, OOMError: refused by the queue or the node.
            NoExtError, NoUniqueError: headers or keys are not possible now.
            ConnectionLost: see ``retry_lost``; ``maybe_executed`` tells which case it is.
            ValueError: the timeout is not positive; a time without a time zone, or with a delay.
        """
        key, kept = self._key(unique, unique_for, timeout)
        command = addjob(
            *(queue, body, timeout, replicate, delay, retry, ttl, maxlen, async_),
            at=at,
            priority=priority,
            group=group,
            headers=headers,
            key=key,
            kept=kept,
        )
        repeat = retry_lost or key is not None
        return text(await add_one(self._router, command, repeat=repeat))

    async def publish(
        self,
        topic: Name,
        body: Name,
        *,
        timeout: float | None = 5.0,  # noqa: ASYNC109 - the node's
        replicate: int | None = None,
        delay: float | None = None,
        at: datetime | float | None = None,
        retry: int | None = None,
        ttl: int | None = None,
        maxlen: int | None = None,
        priority: int | None = None,
        headers: Headers | None = None,
        unique: Name | bool = False,
        unique_for: float | None = None,
        async_: bool = False,
        retry_lost: bool = False,
    ) -> list[str]:
        """Add a job to each queue that is bound to a matching topic (ADDJOB @topic; see ``bind``).
        Arguments as for ``add``; with ``unique`` it can be repeated, and adds what is missing.

        Returns:
            The ids of the jobs, in the order of the names of their queues.

        Raises:
            AddManyError: some were not added; its ``results`` say which were.
            ReplyError: none was, all for the same reason, or the arguments are wrong.
            ConnectionLost, ValueError: as for ``add``.
        """
        key, kept = self._key(unique, unique_for, timeout)
        queue = b"@" + (topic.encode() if isinstance(topic, str) else topic)
        command = addjob(
            *(queue, body, timeout, replicate, delay, retry, ttl, maxlen, async_),
            at=at,
            priority=priority,
            headers=headers,
            key=key,
            kept=kept,
        )
        repeat = retry_lost or key is not None
        added = await add_one(self._router, command, repeat=repeat)
        return ids(elements(added))

    def _key(
        self, unique: Name | bool, unique_for: float | None, timeout: float | None
    ) -> tuple[Name | None, float | None]:
        """The key of an ADDJOB, and for how long (s) it is to be kept, as ``add`` is told."""
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
        timeout: float | None = 5.0,  # noqa: ASYNC109 - the node's
        replicate: int | None = None,
        delay: float | None = None,
        at: datetime | float | None = None,
        retry: int | None = None,
        ttl: int | None = None,
        maxlen: int | None = None,
        priority: int | None = None,
        group: Name | None = None,
        headers: Headers | None = None,
        unique: bool | Sequence[Name] = False,
        unique_for: float | None = None,
        async_: bool = False,
        retry_lost: bool = False,
    ) -> list[str]:
        """Add jobs as one pipeline and return their ids in order. Arguments as for ``add``;
        ``unique`` True makes a key for each, or has one for each.

        Raises:
            AddManyError: some were not added; its ``results`` say which were.
            ValueError: as for ``add``; there are more or fewer keys than bodies.
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
                *(queue, body, timeout, replicate, delay, retry, ttl, maxlen, async_),
                at=at,
                priority=priority,
                group=group,
                headers=headers,
                key=key,
                kept=unique_for,
            )
            for body, key in zip(bodies, keys, strict=True)
        ]
        repeat = retry_lost or unique is not False
        return ids(await add_all(self._router, commands, repeat=repeat))

    # Consuming

    async def get(
        self,
        *queues: Name,
        timeout: float | None = None,  # noqa: ASYNC109 - the node's
        count: int = 1,
        nohang: bool = False,
        withcounters: bool = True,
        withheaders: bool = False,
        pattern: bool = False,
    ) -> list[Job]:
        """Fetch jobs (GETJOB) from the queues, those named first preferred.

        A call that has to wait uses a connection of its own. When it is cancelled, the connection
        is closed, and a job that was just on its way here is queued again with ENQUEUE (unless its
        retry is 0: such a job is then lost, as at most once implies).

        Args:
            queues: names, one at least.
            timeout: seconds to wait for the first job; None waits for ever, 0 not at all.
            count: how many to take if so many are there. A call that waited gets one.
            nohang: do not wait.
            withcounters: fill the job's ``nacks``, ``additional_deliveries``, ``priority`` and
                ``letter``.
            withheaders: fill its ``headers``. C nodes do not know that.
            pattern: the names are patterns (``mail.*``), and jobs come from all queues that match,
                also from those that are made only while it waits. C nodes do not know that.

        Returns:
            The jobs, none when there was none in time. The caller must ``ack`` each.
        """
        fetching = partial(
            fetch,
            self._router,
            queues,
            timeout=timeout,
            count=count,
            nohang=nohang,
            withcounters=withcounters,
            withheaders=withheaders,
            pattern=pattern,
        )
        tracer = tracing.seeing()
        if tracer is not None:
            return await fetch_traced(tracer, queues, fetching)
        _, jobs = await fetching()
        return jobs

    def jobs(self, *queues: Name, withheaders: bool = False, pattern: bool = False) -> Jobs:
        """The worker loop over the jobs of the queues, with their headers if wanted: see
        ``Jobs``. ``pattern``: as of ``get``."""
        supply = Supply(self._router, self._in_flight, queues, withheaders, pattern)
        return Jobs(self._in_flight, supply.take, leave=supply.pause)

    def loops(
        self, *queues: Name, count: int, withheaders: bool = False, pattern: bool = False
    ) -> list[Jobs]:
        """``count`` loops as of ``jobs``, which share a connection. When one is stopped the others
        go on, but take their next jobs on a new one."""
        supply = Supply(self._router, self._in_flight, queues, withheaders, pattern)
        return [Jobs(self._in_flight, supply.take, leave=supply.pause) for _ in range(count)]

    async def work(
        self,
        handler: Callable[[HeldJob], Awaitable[object]],
        *queues: Name,
        concurrency: int = 1,
        withheaders: bool = False,
        pattern: bool = False,
    ) -> None:
        """Run ``handler`` on each job of the queues, for ever, ``concurrency`` jobs at a time, with
        their headers if wanted. ``pattern``: as of ``get``.

        A job is acknowledged when the handler returns and given back with NACK, with a line in the
        log, when it raises an ``Exception``; unless the handler settled it. No job is fetched
        before there is a handler free for it. Cancel the call to stop: current jobs are given back.

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
        timeout: float = 30.0,  # noqa: ASYNC109 - goes to the server, too
        headers: Headers | None = None,
        replicate: int = 1,
    ) -> bytes:
        """Send a request to whoever serves the queue, and return the answer.

        The request may be served twice: when its server, or a node, dies, or a connection is lost.
        The first answer counts. When the time is over, or the call is cancelled, the request is
        cancelled, if possible.

        Args:
            timeout: seconds until nobody waits for the answer any more.
            headers: of the request, beside those of the call.
            replicate: number of nodes that must have the request. With one, as by default, it is
                lost if that node dies, unless it is the node that this client uses.

        Raises:
            TooSlowError: there was no answer in time. It is a ``trio.TooSlowError`` and a
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
        """Serve calls to the queue, for ever, ``concurrency`` at a time: what ``handler`` returns
        is the answer, and an ``Exception`` that it raises is raised by the caller, as its text.

        Requests whose callers do not wait any more are dropped. Cancel it to stop: others get the
        current requests.

        Raises:
            ConnectionLost: no node could be reached within ``retry_for``.
        """
        supply = Supply(self._router, self._in_flight, (queue,), True, False)
        await handle(supply, self._in_flight, partial(serve_one, handler), concurrency)
