"""Disque's commands as methods with types, on the node in use."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from disque_trio.client import replies, requests
from disque_trio.client.jobs import Job
from disque_trio.client.nodes import Hello, parse_hello
from disque_trio.client.requests import Headers
from disque_trio.client.router import Router
from disque_trio.client.scans import scan
from disque_trio.client.schedules import Schedules
from disque_trio.resp.command import Argument
from disque_trio.respclient.concurrency import library
from disque_trio.respclient.connection import Reply
from disque_trio.respclient.errors import ConnectionLost, LeavingError
from disque_trio.respclient.values import Name, elements, integer, text


class Commands:
    """The commands about jobs by their ids and about queues: what needs no worker loop.

    Attributes:
        schedules: jobs that the cluster adds by itself.
    """

    def __init__(self, router: Router) -> None:
        self.schedules: Schedules = Schedules(router)
        self._router = router

    # Settling jobs by id

    async def ack(self, *ids: str, result: Name | None = None) -> int:
        """Acknowledge jobs (ACKJOB); returns how many the node knew as not yet acknowledged.

        ``result`` is what ``wait`` gives for each of them.
        """
        return integer(await self._control(*requests.ackjob(ids, result)))

    async def fastack(self, *ids: str) -> int:
        """Acknowledge jobs at less cost and with less guarantee; returns how many it deleted."""
        return integer(await self._control("FASTACK", *ids))

    async def nack(self, *ids: str, delay: float | None = None, reason: Name | None = None) -> int:
        """Give jobs back, counting that; returns how many.

        Args:
            delay: seconds until they are queued; None: at once, or as the policy of their queue
                says.
            reason: why, which SHOW shows.
        """
        return integer(await self._control(*requests.nack(ids, delay, reason)))

    async def dead(self, *ids: str, reason: Name | None = None) -> int:
        """Refuse jobs for good: they go to the dead letters of their queues. Returns how many.

        Raises:
            ReplyError: there are no dead letters for a queue.
        """
        return integer(await self._control(*requests.dead(ids, reason)))

    async def wait(
        self,
        ids: str | Sequence[str],
        timeout: float | None = None,  # noqa: ASYNC109 - the node's
    ) -> list[replies.Outcome]:
        """Wait until all the jobs have ended, and tell how, in the order of ``ids`` (WAITJOB).

        It uses a connection of its own. Those that had not ended in time are ``pending``.

        Args:
            timeout: seconds; None waits for ever.
        """
        if isinstance(ids, str):
            ids = [ids]
        deadline = None if timeout is None else library().current_time() + timeout
        retry = self._router.retry()

        async def attempt() -> list[replies.Outcome]:
            session = await self._router.session(retry)
            left = 0
            if deadline is not None:
                left = requests.milliseconds(deadline - library().current_time())
            try:
                reply = await session.blocking.execute(["WAITJOB", left, *ids], _ignore)
            except LeavingError:
                self._router.leave(session)
                raise
            return replies.outcomes(reply)

        return await retry.run(
            attempt, lambda error: isinstance(error, ConnectionLost | LeavingError), waits=True
        )

    async def cancel(self, *ids: str) -> int:
        """End jobs, so that nobody gets them any more (CANCEL); returns how many the node held.

        A worker that has one of them finds it ``lost`` at its next WORKING.
        """
        return integer(await self._control("CANCEL", *ids))

    async def update(
        self,
        id: str,
        *,
        body: Name | None = None,
        delay: float | None = None,
        ttl: int | None = None,
        retry: int | None = None,
        queue: Name | None = None,
    ) -> None:
        """Change a job that is not delivered (UPDATEJOB); what is None stays as it is.

        Raises:
            ReplyError: the job cannot be changed.
        """
        wait = None if delay is None else requests.seconds(delay)
        changes = requests.options(BODY=body, DELAY=wait, TTL=ttl, RETRY=retry, QUEUE=queue)
        await self._control("UPDATEJOB", id, *changes)

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

    async def promote(self, *ids: str) -> int:
        """Queue now what is delayed or pauses (PROMOTE); returns how many went."""
        return integer(await self._control("PROMOTE", *ids))

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

    async def qstat(self, queue: Name, *, full: bool = False) -> replies.Record | None:
        """The fields of QSTAT; None if the node does not know the queue.

        Args:
            full: also how many jobs are delayed, in hand and dead letters, for which the node looks
                at all that it has.
        """
        return replies.record(await self._control("QSTAT", queue, *(["FULL"] if full else [])))

    async def qscan(
        self,
        *,
        count: int | None = None,
        minlen: int | None = None,
        maxlen: int | None = None,
        importrate: int | None = None,
        match: Name | None = None,
    ) -> AsyncGenerator[str]:
        """All queues of a node with ``minlen`` to ``maxlen`` jobs and at least that import rate,
        whose name matches the pattern ``match`` (``mail.*``).

        A name may come twice; what is there throughout comes at least once.
        """
        filters = requests.options(COUNT=count, MINLEN=minlen, MAXLEN=maxlen, IMPORTRATE=importrate)
        filters += requests.options(MATCH=match)
        async with aclosing(scan(self._router, "QSCAN", filters)) as names:
            async for name in names:
                yield text(name)

    async def jscan(
        self,
        *,
        count: int | None = None,
        queue: Name | None = None,
        states: Sequence[str] = (),
        min_age: int | None = None,
        max_age: int | None = None,
        min_returns: int | None = None,
        group: Name | None = None,
        headers: Headers | None = None,
    ) -> AsyncGenerator[str]:
        """The ids of all jobs of a node, of one queue or of some states if given.

        An id may come twice; what is there throughout comes at least once.

        Args:
            count: about so many jobs are looked at in a step.
            min_age, max_age: seconds since they were added.
            min_returns: how often they were queued again, at least.
            group: that they belong to.
            headers: names and values that they have.
        """
        more = (min_age, max_age, min_returns, group, headers)
        filters = requests.jscan(count, queue, states, *more)
        async with aclosing(scan(self._router, "JSCAN", filters)) as ids:
            async for id in ids:
                yield text(id)

    async def jscan_full(
        self,
        *,
        count: int | None = None,
        queue: Name | None = None,
        states: Sequence[str] = (),
        min_age: int | None = None,
        max_age: int | None = None,
        min_returns: int | None = None,
        group: Name | None = None,
        headers: Headers | None = None,
    ) -> AsyncGenerator[replies.Record]:
        """Like ``jscan``, but yields what ``show`` says of each job."""
        more = (min_age, max_age, min_returns, group, headers)
        filters = requests.jscan(count, queue, states, *more)
        async with aclosing(scan(self._router, "JSCAN", [*filters, "REPLY", "all"])) as found:
            async for fields in found:
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

    # Policies of queues

    async def set_policy(
        self,
        queue: Name,
        *,
        attempts: int | None = None,
        dead: Name | None = None,
        backoff: tuple[float, float] | None = None,
        dead_ttl: int | None = None,
        ttl: int | None = None,
        retry: int | None = None,
        replicate: int | None = None,
        maxlen: int | None = None,
        maxbytes: int | None = None,
        rate: str | None = None,
        burst: int | None = None,
        active: int | None = None,
        groups: str | None = None,
    ) -> None:
        """Set options of the policy of a queue, a pattern (``mail.*``) or all queues (``*``).

        What is None stays as it was. 0 unsets an option, the empty name ``dead``, -1 ``retry``.

        Args:
            attempts: how often a job is delivered before it goes to the queue ``dead``.
            backoff: the shortest and the longest pause before a job is queued again, s.
            dead_ttl: how long a dead letter lives, s.
            ttl, retry, replicate, maxlen: what ``add`` takes where it is not told.
            maxbytes: how many bytes the bodies of queued jobs may have.
            rate: how many jobs are delivered in a time, as ``50/s``, ``300/m`` or ``1000/h``.
            burst: how many of these at once, after a pause.
            active: how many jobs may be delivered and not acknowledged at once.
            groups: ``fair``: the groups of jobs are served in turn; ``fifo``: and one job of a
                group at a time.

        Raises:
            NoExtError: a node of the cluster does not know this.
        """
        command: list[Argument] = ["QSET", queue]
        command += requests.options(ATTEMPTS=attempts, DEAD=dead, DEADTTL=dead_ttl)
        again = "" if retry is not None and retry < 0 else retry
        command += requests.options(TTL=ttl, RETRY=again, REPLICATE=replicate, MAXLEN=maxlen)
        command += requests.options(MAXBYTES=maxbytes, RATE=rate, BURST=burst, ACTIVE=active)
        command += requests.options(GROUPS=groups)
        await self._control(*command, *requests.backoff(backoff))

    async def purge(self, queue: Name) -> int:
        """Cancel all that is queued (QPURGE); returns how many jobs."""
        return integer(await self._control("QPURGE", queue))

    async def move(self, source: Name, target: Name, *, count: int | None = None) -> int:
        """Move what is queued, at most ``count`` jobs, to the queue ``target`` (QMOVE); returns how
        many went.

        Raises:
            ConnectionLost: some may have gone. Without ``count`` it is sent again instead, and
                tells how many went then.
        """
        command = ["QMOVE", source, target, *requests.options(COUNT=count)]
        return integer(await self._router.run_one("control", command, repeat=count is None))

    async def policy(self, queue: Name) -> replies.Policy | None:
        """The policy that applies to a queue (QGET); None: none does."""
        return replies.policy(await self._control("QGET", queue))

    async def policies(self) -> list[replies.Policy]:
        """All policies, by name."""
        found = map(replies.policy, elements(await self._control("QGET")))
        return [policy for policy in found if policy is not None]

    async def delete_policy(self, queue: Name) -> bool:
        """Delete the policy of just this name (QDEL); returns whether there was one."""
        return integer(await self._control("QDEL", queue)) > 0

    # Topics

    async def bind(self, topic: Name, queue: Name) -> None:
        """Let a queue get a job for each ``publish`` to a topic (BIND): words with dots between
        them, where ``*`` stands for one word and ``#`` for any number."""
        await self._control("BIND", topic, queue)

    async def unbind(self, topic: Name, queue: Name) -> bool:
        """Take back a ``bind`` (UNBIND); returns whether there was one."""
        return integer(await self._control("UNBIND", topic, queue)) > 0

    async def bindings(
        self, *, queue: Name | None = None, topic: Name | None = None
    ) -> list[tuple[str, str]]:
        """Topics and queues that are bound (BINDINGS): all, those of one queue, or those that a
        ``publish`` to ``topic`` would take."""
        options = requests.options(QUEUE=queue, MATCH=topic)
        return replies.bindings(await self._control("BINDINGS", *options))

    # Dead letters

    async def redrive(
        self,
        dead: Name,
        *,
        to: Name | None = None,
        count: int | None = None,
        ids: Sequence[str] = (),
    ) -> int:
        """Send dead letters back to where they come from, with counters at zero (REDRIVE).

        Args:
            dead: the queue that they are in.
            to: send them to this queue instead.
            count: so many at most.
            ids: only these.

        Returns:
            How many went.
        """
        match = ["MATCH", *ids] if ids else []
        options = requests.options(TO=to, COUNT=count)
        return integer(await self._control("REDRIVE", dead, *options, *match))

    async def _control(self, *command: Argument) -> Reply:
        return await self._router.run_one("control", command, repeat=True)


async def _ignore(reply: Reply) -> None:
    """Nothing is lost with a reply that nobody waits for any more."""
