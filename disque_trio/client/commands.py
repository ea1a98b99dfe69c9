"""Disque's commands as typed methods, run on the node in use."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Unpack

from disque_trio.client import policies, replies, requests
from disque_trio.client.job import Job
from disque_trio.client.nodes import Hello, parse_hello
from disque_trio.client.policies import Policy, PolicyOptions
from disque_trio.client.router import Router
from disque_trio.client.scans import scan
from disque_trio.client.schedules import Schedules
from disque_trio.client.session import Session
from disque_trio.job_options import seconds
from disque_trio.resp.command import Argument
from disque_trio.respclient.concurrency import library
from disque_trio.respclient.connection import Reply
from disque_trio.respclient.errors import BadIdError
from disque_trio.respclient.values import Name, elements, integer, text


class Commands:
    """The commands about jobs by id and about queues: all that need no worker loop.

    Attributes:
        schedules: the jobs that the cluster adds by itself; see ``Schedules``.
    """

    def __init__(self, router: Router) -> None:
        self.schedules: Schedules = Schedules(router)
        self._router = router

    # Settling jobs by id

    async def ack(self, *ids: str, result: Name | None = None) -> int:
        """Acknowledge jobs (ACKJOB) and return how many of them the node knew as unacknowledged.

        Whoever waits for one of these jobs with ``wait`` gets ``result``.
        """
        return await self._count(ids, lambda ids: requests.ackjob(ids, result))

    async def fastack(self, *ids: str) -> int:
        """Acknowledge jobs at less cost, with weaker guarantees (FASTACK); return how many the node
        deleted."""
        return await self._count(ids, lambda ids: ["FASTACK", *ids])

    async def nack(self, *ids: str, delay: float | None = None, reason: Name | None = None) -> int:
        """Give jobs back as failed (NACK) and return how many were given back.

        Args:
            delay: seconds until the jobs are queued again; None: at once, or as the policies of
                their queues say.
            reason: why; SHOW reports it.
        """
        return await self._count(ids, lambda ids: requests.nack(ids, delay, reason))

    async def dead(self, *ids: str, reason: Name | None = None) -> int:
        """Refuse jobs for good, so that they become dead letters; return how many were refused.

        Raises:
            ReplyError: a queue has no dead letters.
        """
        return await self._count(ids, lambda ids: requests.dead(ids, reason))

    async def wait(
        self,
        ids: str | Sequence[str],
        timeout: float | None = None,
    ) -> list[replies.Outcome]:
        """Wait until all the jobs have ended, and return how, in the order of ``ids`` (WAITJOB).

        Uses a connection of its own. Jobs that have not ended after ``timeout`` seconds are
        ``pending``; None waits forever.
        """
        if isinstance(ids, str):
            ids = [ids]
        deadline = None if timeout is None else library().current_time() + timeout

        async def wait(session: Session) -> list[replies.Outcome]:
            left = 0
            if deadline is not None:
                left = requests.milliseconds(deadline - library().current_time())
            return replies.outcomes(
                await session.blocking.execute(["WAITJOB", left, *ids], _ignore)
            )

        return await self._router.wait_at(wait)

    async def cancel(self, *ids: str, terminate: bool = False) -> int:
        """End jobs, so that nobody gets them any more (CANCEL); return how many the node held.

        A worker that is processing such a job finds it ``lost`` at its next WORKING.

        Args:
            terminate: have the worker end a task that runs in a process of its own. Nodes that do
                not know this just cancel the job.
        """
        if terminate:
            try:
                return await self._count(ids, lambda ids: ["CANCEL", *ids, "TERMINATE"])
            except BadIdError:
                pass
        return await self._count(ids, lambda ids: ["CANCEL", *ids])

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
        """Change a job that is not delivered (UPDATEJOB). None leaves a field as it is.

        Raises:
            ReplyError: the job cannot be changed.
        """
        wait = None if delay is None else seconds(delay)
        changes = requests.options(BODY=body, DELAY=wait, TTL=ttl, RETRY=retry, QUEUE=queue)
        await self._about(id, "UPDATEJOB", id, *changes)

    async def working(self, id: str, progress: tuple[float, Name] | None = None) -> int:
        """Postpone the job's next delivery (WORKING) and return its retry time in seconds.

        Args:
            progress: how far the job is, from 0 to 1, and a text of at most 200 bytes, which SHOW
                reports; None: as said before.

        Raises:
            NoJobError: the node does not know the job.
            TooLateError: half of the job's TTL is over.
        """
        return integer(await self._about(id, *requests.working(id, progress)))

    async def enqueue(self, *ids: str) -> int:
        """Queue jobs now (ENQUEUE) and return how many were queued."""
        return await self._count(ids, lambda ids: ["ENQUEUE", *ids])

    async def promote(self, *ids: str) -> int:
        """Queue delayed and pausing jobs now (PROMOTE) and return how many were queued."""
        return await self._count(ids, lambda ids: ["PROMOTE", *ids])

    async def dequeue(self, *ids: str) -> int:
        """Take jobs out of their queues, to which they return after their retry times (DEQUEUE);
        return how many were taken."""
        return await self._count(ids, lambda ids: ["DEQUEUE", *ids])

    async def deljob(self, *ids: str) -> int:
        """Delete jobs on the node in use, and only there (DELJOB); return how many were deleted."""
        return await self._count(ids, lambda ids: ["DELJOB", *ids])

    # Inspection

    async def show(self, id: str) -> replies.Record | None:
        """Return all fields of a job by the names that SHOW uses; None if the node has no such job.

        The body is bytes, other texts are str, and times are as SHOW reports them.
        """
        return replies.record(await self._about(id, "SHOW", id))

    async def qlen(self, queue: Name) -> int:
        """Return the number of jobs queued on the best node for the queue, or the node in use
        (QLEN)."""
        return integer(await self._at(queue, "QLEN", queue))

    async def qpeek(self, queue: Name, count: int) -> list[Job]:
        """Return the first ``count`` jobs of a queue without taking them, or the newest ones if
        ``count`` is negative (QPEEK)."""
        return replies.jobs(await self._at(queue, "QPEEK", queue, count))

    async def qstat(self, queue: Name, *, full: bool = False) -> replies.Record | None:
        """Return the fields of QSTAT; None if the node does not know the queue.

        Args:
            full: also count the queue's delayed jobs, jobs in hand and dead letters, for which the
                node looks at all its jobs.
        """
        return replies.record(await self._at(queue, "QSTAT", queue, *(["FULL"] if full else [])))

    async def qscan(
        self,
        *,
        count: int | None = None,
        minlen: int | None = None,
        maxlen: int | None = None,
        importrate: int | None = None,
        match: Name | None = None,
    ) -> AsyncGenerator[str]:
        """Yield the queues of a node that match all the filters (QSCAN).

        A name may come twice. A queue that exists during the whole scan comes at least once.

        Args:
            count: about how many queues each step looks at.
            minlen, maxlen: the least and the greatest number of queued jobs.
            importrate: the least import rate.
            match: a pattern for the name (``mail.*``).
        """
        filters = requests.options(COUNT=count, MINLEN=minlen, MAXLEN=maxlen, IMPORTRATE=importrate)
        filters += requests.options(MATCH=match)
        async with aclosing(scan(self._router, "QSCAN", filters)) as names:
            async for name in names:
                yield text(name)

    async def jscan(self, **filters: Unpack[requests.JobFilters]) -> AsyncGenerator[str]:
        """Yield the ids of the jobs of a node that match all the filters (JSCAN); see
        ``JobFilters``.

        An id may come twice. A job that exists during the whole scan comes at least once.
        """
        async with aclosing(scan(self._router, "JSCAN", requests.jscan(filters))) as ids:
            async for id in ids:
                yield text(id)

    async def jscan_full(
        self, **filters: Unpack[requests.JobFilters]
    ) -> AsyncGenerator[replies.Record]:
        """Like ``jscan``, but yield the fields that ``show`` returns for each job."""
        options = [*requests.jscan(filters), "REPLY", "all"]
        async with aclosing(scan(self._router, "JSCAN", options)) as found:
            async for fields in found:
                record = replies.record(fields)
                if record is not None:
                    yield record

    # Nodes

    async def pause(self, queue: Name, *options: str) -> str:
        """Pause a queue (PAUSE) and return its new state. The options are ``in``, ``out``, ``all``,
        ``none``, ``state`` and ``bcast``."""
        return text(await self._at(queue, "PAUSE", queue, *options))

    async def info(self, section: str | None = None) -> dict[str, str]:
        """Return the fields of INFO."""
        arguments = [] if section is None else [section]
        return replies.info(await self._control("INFO", *arguments))

    async def hello(self) -> Hello:
        """Return the nodes that the node in use knows (HELLO)."""
        used = (await self._router.session(self._router.retry())).address
        return parse_hello(await self._control("HELLO"), used)

    async def execute(self, *arguments: Argument) -> Reply:
        """Run any other command that does not block, and return its raw reply.

        The command is not repeated if the connection is lost and it may have run. Do not use it for
        MONITOR, nor for blocking commands, which would hold up everything else: use ``get`` and
        ``add`` for these.
        """
        return await self._router.run_one("control", arguments, repeat=False)

    # Policies of queues

    async def set_policy(self, queue: Name, **options: Unpack[PolicyOptions]) -> None:
        """Set options in the policy of a queue, a pattern (``mail.*``) or all queues (``*``); see
        ``PolicyOptions``.

        Raises:
            NoExtError: a node of the cluster does not support policies.
            TypeError: there is no such option.
        """
        if words := policies.words(options):
            await self._control("QSET", queue, *words)

    async def purge(self, queue: Name) -> int:
        """Cancel all queued jobs (QPURGE) and return how many there were."""
        return integer(await self._control("QPURGE", queue))

    async def move(self, source: Name, target: Name, *, count: int | None = None) -> int:
        """Move queued jobs, at most ``count``, to the queue ``target`` (QMOVE) and return how many
        were moved.

        Raises:
            ConnectionLost: some jobs may have been moved. Without ``count``, the command is
                repeated instead, and the result counts only the jobs moved by the last attempt.
        """
        command = ["QMOVE", source, target, *requests.options(COUNT=count)]
        return integer(await self._router.run_one("control", command, repeat=count is None))

    async def policy(self, queue: Name) -> Policy | None:
        """Return the policy that applies to a queue (QGET); None if there is none."""
        return policies.policy(await self._control("QGET", queue))

    async def policies(self) -> list[Policy]:
        """Return all policies, by name."""
        found = map(policies.policy, elements(await self._control("QGET")))
        return [policy for policy in found if policy is not None]

    async def delete_policy(self, queue: Name) -> bool:
        """Delete the policy with exactly this name (QDEL); return whether there was one."""
        return integer(await self._control("QDEL", queue)) > 0

    # Topics

    async def bind(self, topic: Name, queue: Name) -> None:
        """Bind a queue to a topic (BIND): it gets a job for each ``publish`` to a matching topic. A
        topic is words with dots between them; ``*`` stands for one word, ``#`` for any number."""
        await self._control("BIND", topic, queue)

    async def unbind(self, topic: Name, queue: Name) -> bool:
        """Remove a binding (UNBIND); return whether there was one."""
        return integer(await self._control("UNBIND", topic, queue)) > 0

    async def bindings(
        self, *, queue: Name | None = None, topic: Name | None = None
    ) -> list[tuple[str, str]]:
        """Return bindings as pairs of topic and queue (BINDINGS): all of them, those of ``queue``,
        or those that a ``publish`` to ``topic`` would match."""
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
        """Send dead letters back to the queues they came from, with counters at zero (REDRIVE);
        return how many were sent.

        Args:
            dead: the queue that holds the dead letters.
            to: send them to this queue instead.
            count: the most jobs to send.
            ids: only these jobs.
        """
        match = ["MATCH", *ids] if ids else []
        options = requests.options(TO=to, COUNT=count)
        return integer(await self._control("REDRIVE", dead, *options, *match))

    async def _control(self, *command: Argument) -> Reply:
        return await self._router.run_one("control", command, repeat=True)

    async def _at(self, queue: Name, *command: Argument) -> Reply:
        """Run a command at the node that is best for a queue."""
        return await self._router.run_one("control", command, repeat=True, queues=(queue,))

    async def _about(self, id: str, *command: Argument) -> Reply:
        """Run a command about a job, at the node that it came from or went to, if that is known."""
        holder = None if self._router.hints is None else self._router.hints.holder(id)
        return await self._router.run_one("control", command, repeat=True, pinned=holder)

    async def _count(
        self, ids: Sequence[str], command: Callable[[Sequence[str]], Sequence[Argument]]
    ) -> int:
        """Run a command about jobs at the nodes that they came from or went to; return the sum of
        the replies."""
        hints = self._router.hints
        total = 0
        for holder, some in [(None, ids)] if hints is None else hints.holders(ids):
            total += integer(
                await self._router.run_one("control", command(some), repeat=True, pinned=holder)
            )
        return total


async def _ignore(reply: Reply) -> None:
    """Drop a reply that nobody waits for any more; nothing is lost with it."""
