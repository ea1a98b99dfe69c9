"""The client: Disque's commands as methods with types, over whichever node serves best."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import partial

import structlog

from disque_trio.client import replies
from disque_trio.client.errors import AddManyError
from disque_trio.client.fetch import fetch, take
from disque_trio.client.jobs import HeldJob, Job, Jobs
from disque_trio.client.nodes import Directory, Hello, parse_address, parse_hello
from disque_trio.client.requests import addjob, options
from disque_trio.client.requests import jscan as jscan_options
from disque_trio.client.router import Router
from disque_trio.client.session import Session
from disque_trio.resp.command import Argument
from disque_trio.respclient.background import background
from disque_trio.respclient.connection import Connector, Reply
from disque_trio.respclient.consumer import run_handlers
from disque_trio.respclient.delivery import InFlight
from disque_trio.respclient.errors import ConnectionLost, DisqueError
from disque_trio.respclient.values import Name, integer, text

_log = structlog.get_logger("disque.client")


class Client:
    """A client of a Disque cluster, made by ``connect``. Any number of tasks may share it.

    Queue names and bodies may be ``str`` (sent as UTF-8) or bytes. Times are in seconds. Unless a
    method says otherwise it repeats its command after a lost connection, for up to ``retry_for``
    seconds. All methods raise

    - ``ReplyError`` or the subclass of the code, when the node answers with an error,
    - ``ConnectionLost``, when no node could be reached in time or the fate of a command that is not
      safe to repeat is unknown.
    """

    def __init__(self, router: Router, in_flight: InFlight) -> None:
        self._router = router
        self._in_flight = in_flight

    @property
    def address(self) -> str | None:
        """The node in use, such as ``127.0.0.1:7711``; None while there is none."""
        address = self._router.address
        return None if address is None else str(address)

    # Producing

    async def add(
        self,
        queue: Name,
        body: Name,
        *,
        timeout: float | None = 5.0,  # noqa: ASYNC109 - the node's
        replicate: int | None = None,
        delay: int | None = None,
        retry: int | None = None,
        ttl: int | None = None,
        maxlen: int | None = None,
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
            retry: seconds after which an unacknowledged delivery is repeated; 0 for at most once.
            ttl: seconds of its life; the node's default is a day after ``delay``.
            maxlen: refuse the job if the queue is already that long.
            async_: do not wait for the replication.
            retry_lost: what to do when the connection is lost and the node may or may not have
                taken the job: True adds it again, perhaps a second time; False raises.

        Raises:
            NoReplError: not replicated in time.
            MaxLenError, PausedError, OOMError: refused by the queue or the node.
            ConnectionLost: see ``retry_lost``; ``maybe_executed`` tells which case it is.
            ValueError: the timeout is not positive.
        """
        command = addjob(queue, body, timeout, replicate, delay, retry, ttl, maxlen, async_)
        reply = await self._router.run_one("adds", command, repeat=retry_lost)
        return text(reply)

    async def add_many(
        self,
        queue: Name,
        bodies: Iterable[Name],
        *,
        timeout: float | None = 5.0,  # noqa: ASYNC109 - the node's
        replicate: int | None = None,
        delay: int | None = None,
        retry: int | None = None,
        ttl: int | None = None,
        maxlen: int | None = None,
        async_: bool = False,
        retry_lost: bool = False,
    ) -> list[str]:
        """Add jobs as one pipeline and return their ids in order. Arguments as for ``add``.

        Raises:
            AddManyError: some were not added; its ``results`` say which were.
            ValueError: the timeout is not positive.
        """
        commands = [
            addjob(queue, body, timeout, replicate, delay, retry, ttl, maxlen, async_)
            for body in bodies
        ]
        answers = await self._router.run("adds", commands, repeat=retry_lost)
        results: list[str | DisqueError] = []
        ids: list[str] = []
        for answer in answers:
            if isinstance(answer, DisqueError):
                results.append(answer)
            else:
                ids.append(text(answer))
                results.append(ids[-1])
        if len(ids) < len(results):
            raise AddManyError(results)
        return ids

    # Consuming

    async def get(
        self,
        *queues: Name,
        timeout: float | None = None,  # noqa: ASYNC109 - the node's
        count: int = 1,
        nohang: bool = False,
        withcounters: bool = True,
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
            withcounters: fill the job's ``nacks`` and ``additional_deliveries``.

        Returns:
            The jobs, none when there was none in time. The caller must ``ack`` each.
        """
        _, jobs = await fetch(
            self._router,
            queues,
            timeout=timeout,
            count=count,
            nohang=nohang,
            withcounters=withcounters,
        )
        return jobs

    def jobs(self, *queues: Name) -> Jobs:
        """The worker loop over the jobs of the queues: see ``Jobs``."""
        if not queues:
            raise ValueError("at least one queue is needed")
        return Jobs(self._in_flight, partial(take, self._router, self._in_flight, queues))

    async def work(
        self,
        handler: Callable[[HeldJob], Awaitable[object]],
        *queues: Name,
        concurrency: int = 1,
    ) -> None:
        """Run ``handler`` on each job of the queues, for ever, ``concurrency`` jobs at a time.

        A job is acknowledged when the handler returns and given back with NACK, with a line in the
        log, when it raises an ``Exception``; unless the handler settled it. No job is fetched
        before there is a handler free for it. Cancel the call to stop: current jobs are given back.

        Raises:
            ConnectionLost: no node could be reached within ``retry_for``.
        """
        loops = [self.jobs(*queues) for _ in range(concurrency)]
        failure = await run_handlers(loops, handler, _failed)
        if failure is not None:
            raise failure

    # Settling jobs by id

    async def ack(self, *ids: str) -> int:
        """Acknowledge jobs (ACKJOB); returns how many the node knew as not yet acknowledged."""
        return integer(await self._control("ACKJOB", *ids))

    async def fastack(self, *ids: str) -> int:
        """Acknowledge jobs at less cost and with less guarantee; returns how many it deleted."""
        return integer(await self._control("FASTACK", *ids))

    async def nack(self, *ids: str) -> int:
        """Give jobs back for delivery now, counting that; returns how many were queued."""
        return integer(await self._control("NACK", *ids))

    async def working(self, id: str) -> int:
        """Postpone the job's next delivery; returns its retry time in seconds.

        Raises:
            NoJobError: the node does not know the job.
            TooLateError: half of its TTL is over.
        """
        return integer(await self._control("WORKING", id))

    async def enqueue(self, *ids: str) -> int:
        """Queue jobs now; returns how many were queued."""
        return integer(await self._control("ENQUEUE", *ids))

    async def dequeue(self, *ids: str) -> int:
        """Take jobs out of their queue; they come back after their retry time. Returns how many."""
        return integer(await self._control("DEQUEUE", *ids))

    async def deljob(self, *ids: str) -> int:
        """Delete jobs on the node in use, and only there; returns how many."""
        return integer(await self._control("DELJOB", *ids))

    # Looking

    async def show(self, id: str) -> replies.Record | None:
        """All fields of a job under the names that SHOW uses; None if the node does not know it.

        The body is bytes, other texts are str, times are as SHOW gives them.
        """
        return replies.record(await self._control("SHOW", id))

    async def qlen(self, queue: Name) -> int:
        """How many jobs are queued, on the node in use."""
        return integer(await self._control("QLEN", queue))

    async def qpeek(self, queue: Name, count: int) -> list[Job]:
        """The first ``count`` jobs of a queue, the newest first if negative; none is taken."""
        return replies.jobs(await self._control("QPEEK", queue, count))

    async def qstat(self, queue: Name) -> replies.Record | None:
        """The fields of QSTAT; None if the node does not know the queue."""
        return replies.record(await self._control("QSTAT", queue))

    async def qscan(
        self,
        *,
        count: int | None = None,
        minlen: int | None = None,
        maxlen: int | None = None,
        importrate: int | None = None,
    ) -> AsyncIterator[str]:
        """All queues of a node with ``minlen`` to ``maxlen`` jobs and at least that import rate.

        A name may come twice; what is there throughout comes at least once.
        """
        filters = options(COUNT=count, MINLEN=minlen, MAXLEN=maxlen, IMPORTRATE=importrate)
        async for name in self._scan("QSCAN", filters):
            yield text(name)

    async def jscan(
        self, *, count: int | None = None, queue: Name | None = None, states: Sequence[str] = ()
    ) -> AsyncIterator[str]:
        """The ids of all jobs of a node, of one queue or of some states if given.

        An id may come twice; what is there throughout comes at least once.
        """
        async for id in self._scan("JSCAN", jscan_options(count, queue, states)):
            yield text(id)

    async def jscan_full(
        self, *, count: int | None = None, queue: Name | None = None, states: Sequence[str] = ()
    ) -> AsyncIterator[replies.Record]:
        """Like ``jscan``, but yields what ``show`` says of each job."""
        filters = [*jscan_options(count, queue, states), "REPLY", "all"]
        async for fields in self._scan("JSCAN", filters):
            record = replies.record(fields)
            if record is not None:
                yield record

    # The rest

    async def pause(self, queue: Name, *options: str) -> str:
        """Pause a queue (``in``, ``out``, ``all``, ``none``, ``state``, ``bcast``).

        Returns:
            Its new state.
        """
        return text(await self._control("PAUSE", queue, *options))

    async def info(self, section: str | None = None) -> dict[str, str]:
        """The fields of INFO."""
        arguments = [] if section is None else [section]
        return replies.info(await self._control("INFO", *arguments))

    async def hello(self) -> Hello:
        """The nodes that the node in use knows."""
        used = (await self._router.session(self._router.retry())).address
        return parse_hello(await self._control("HELLO"), used)

    async def execute(self, *arguments: Argument) -> Reply:
        """Run any other command that does not block, and return its reply as it is.

        It is not repeated when the connection is lost and it may have run. MONITOR cannot be used,
        and a blocking command would hold up everything else: ``get`` and ``add`` are for these.
        """
        return await self._router.run_one("control", arguments, repeat=False)

    async def _control(self, *command: Argument) -> Reply:
        return await self._router.run_one("control", command, repeat=True)

    async def _scan(self, command: str, options: list[Argument]) -> AsyncIterator[Reply]:
        session: Session | None = None
        cursor: Argument = 0
        retry = self._router.retry()
        while True:
            now_at = await self._router.session(retry)
            if now_at is not session:
                # Cursors mean nothing to another node: begin again there.
                session, cursor = now_at, 0
            connection = await session.connection("control")
            try:
                reply = await connection.execute(command, cursor, *options)
            except ConnectionLost:
                if not await retry.again():
                    raise
                continue
            retry = self._router.retry()
            cursor, page = replies.page(reply)
            for element in page:
                yield element
            if cursor == b"0":
                return


@asynccontextmanager
async def connect(
    nodes: str | Sequence[str] = ("127.0.0.1:7711",),
    *,
    password: str | None = None,
    retry_for: float = 30.0,
    connect_timeout: float = 5.0,
) -> AsyncIterator[Client]:
    """Connect to a cluster: ``async with connect(["10.0.0.1:7711", "10.0.0.2:7711"]) as client``.

    Any reachable node of the list will do: HELLO tells the others, and the client moves to the
    node with the best priority. When it loses its node, or the node is leaving the cluster, it
    goes on with another one, whether that was in the list or not.

    At the end of the block jobs that are still held are given back.

    Args:
        nodes: ``host:port``, ``[ipv6]:port`` or ``unix:/path`` of one or some nodes.
        password: for AUTH, sent to every node.
        retry_for: seconds to go on trying to reach a node, at the start as well as later.
        connect_timeout: seconds for one attempt to connect to one node.

    Raises:
        ConnectionLost: no node could be reached.
        AuthError: the password was refused.
        ValueError: an address cannot be read, or there is none.
    """
    if isinstance(nodes, str):
        nodes = [nodes]
    directory = Directory([parse_address(node) for node in nodes])
    async with background() as nursery:
        router = Router(
            Connector(nursery, password, connect_timeout), directory, retry_for=retry_for
        )
        in_flight = InFlight(nursery, _log)
        try:
            await router.session(router.retry())
            yield Client(router, in_flight)
        finally:
            await in_flight.close()
            router.close()


async def _failed(job: HeldJob) -> None:
    _log.exception("job failed", job=job.id, queue=job.queue)
    await job.nack()
