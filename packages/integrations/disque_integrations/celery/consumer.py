"""Jobs pushed by a node, as many at once as the credit allows.

Lives in the client's loop. Nobody waits here for a job, and settling a job does not wait either:
Celery has a loop of its own, which must not be blocked. If the connection is lost, or the node
leaves its cluster, jobs come from another node; jobs in hand remain in hand if possible.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Final

import trio
from trio_util import AsyncValue

from disque_trio.client.fetch import hold
from disque_trio.client.job import Job
from disque_trio.client.jobs import HeldJob
from disque_trio.client.pushes import Own, Pushes, open_pushes
from disque_trio.client.router import Router
from disque_trio.client.session import Session
from disque_trio.resp.command import Argument
from disque_trio.respclient.delivery import InFlight
from disque_trio.respclient.errors import (
    ConnectionLost,
    DisqueError,
    LeavingError,
    NoExtError,
    ReplyError,
)
from disque_trio.respclient.log import library_log

_log = library_log("disque.celery")

MAX_CREDIT: Final = 65_535
_CLOSING: Final = 2.0
"""Seconds to settle jobs at the end."""


class _CeleryJob(HeldJob):
    """A job in hand. Its spans are those of Celery's tracing."""

    grace = 0.25
    traced = False

    async def finish(self) -> None:
        """Give it back, which is not a failure."""
        await self.requeue()


async def refuse(job: HeldJob) -> None:
    """Refuse a job for good: it goes to the dead letters, or is acknowledged without any."""
    try:
        await job.dead()
    except ReplyError:
        await job.ack()  # its queue has no dead letters


class _Line(Pushes):
    """A connection on which jobs are pushed to a consumer. ``asked``: how it began."""

    def __init__(self, *own: *Own, consumer: "Consumer") -> None:
        super().__init__(*own)
        self._consumer = consumer

    @property
    def queues(self) -> Sequence[str]:
        return self._consumer.queues

    def move(self) -> None:
        self.retire()

    def consume(self) -> list[Argument]:
        self.asked = self._consumer.consume()
        return self.asked

    def arrived(self, job: Job) -> None:
        self._consumer.arrived(self, job)

    def finished(self) -> None:
        self._consumer.news.set()


class Consumer:
    """Takes the jobs of ``queues`` while fewer than ``credit`` are in hand.

    Args:
        router: chooses the node.
        in_flight: the jobs that are not settled.
        on_job: called with each job.
        on_end: called with the error that ended the consumer; not when it was retired.

    Attributes:
        queues: whose jobs are wanted.
        ended: set when the consumer has ended.
        news: set when another connection may be needed.
    """

    def __init__(
        self,
        router: Router,
        in_flight: InFlight,
        on_job: Callable[[Job], object],
        on_end: Callable[[DisqueError], object],
    ) -> None:
        self.ended = trio.Event()
        self.news = trio.Event()
        self._router = router
        self._in_flight = in_flight
        self._on_job = on_job
        self._on_end = on_end
        self.queues: tuple[str, ...] = ()
        self._credit = 1
        self._line: _Line | None = None
        self._held: dict[str, HeldJob] = {}
        self._settling = AsyncValue(0)  # how many jobs are being settled
        self._unread: dict[str, str] = {}  # queues by ids of jobs passed on and not yet taken
        self._retired = False
        self._nursery: trio.Nursery | None = None

    def want(self, queues: Sequence[str], credit: int) -> None:
        """Take jobs of these queues, at most ``credit`` at a time, from now on. No queues: none."""
        changed = tuple(queues) != self.queues
        self.queues, self._credit = tuple(queues), min(max(credit, 1), MAX_CREDIT)
        if changed:
            self._give_back_unread()
        if self._line is None or self._line.over:
            self.news.set()
        elif changed:
            self._line.connection.submit([self.consume()])
        elif self.queues:
            self._line.connection.submit([["CREDIT", self._credit]])

    def consume(self) -> list[Argument]:
        """The command that says what is wanted."""
        if not self.queues:
            return ["CONSUME", "STOP"]
        return ["CONSUME", *self.queues, "CREDIT", self._credit, "WITHCOUNTERS"]

    def arrived(self, line: _Line, job: Job) -> None:
        """Pass a job on."""
        if job.queue not in self.queues or line.over:  # it crossed the last CONSUME
            line.connection.submit([["ENQUEUE", job.id]])
            return
        self._hold(line.hold(job, _CeleryJob))
        self._unread[job.id] = job.queue
        self._on_job(job)

    def take(self, id: str) -> bool:
        """Take a job that was passed to ``on_job``, in the thread that works on it. Returns False
        if it was given back meanwhile, because its queue is no longer wanted."""
        return self._unread.pop(id, None) is not None

    def _give_back_unread(self) -> None:
        """Give back jobs that nobody took while their queue was wanted: nobody may ever look."""
        unread = list(self._unread)  # copied, since another thread takes jobs
        unwanted = [id for id in unread if self._unread.get(id) not in self.queues]
        self.settle(HeldJob.requeue, filter(self.take, unwanted))

    async def keep(self, job: Job) -> None:
        """Hold a job that was fetched elsewhere. Raises ConnectionLost."""
        hints = self._router.hints
        session = None if hints is None else hints.holder(job.id)
        if session is None:
            session = await self._router.session(self._router.retry())
        self._hold(hold(self._router, session, self._in_flight, job, _CeleryJob))

    def _hold(self, job: HeldJob) -> None:
        """Replace a delivery of the same job that was lost."""
        job.detached = True
        if (before := self._held.get(job.id)) is not None:
            before.end()
        self._held[job.id] = job

    def settle(self, how: Callable[[HeldJob], Awaitable[None]], ids: Iterable[str]) -> None:
        """Settle jobs in hand with ``HeldJob.ack``, for example."""
        for id in ids:
            job = self._held.pop(id, None)
            if job is not None and self._nursery is not None:
                self._settling.value += 1
                self._nursery.start_soon(self._settle, how, job)

    async def _settle(self, how: Callable[[HeldJob], Awaitable[None]], job: HeldJob) -> None:
        try:
            await how(job)
        except DisqueError as error:
            _log.warning("job not settled", job=job.id, error=str(error))
            job.end()
        finally:
            self._settling.value -= 1

    async def settled(self) -> None:
        """Wait until all jobs that ``settle`` was asked to settle are."""
        await self._settling.wait_value(0)

    def retire(self) -> None:
        """Take no more jobs, give back those in hand, and end."""
        self._retired = True
        self.news.set()

    async def run(self) -> None:
        """Run the consumer, as a task of the client."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                try:
                    await self._keep_a_line()
                except DisqueError as error:
                    self._on_end(error)
                with trio.move_on_after(_CLOSING, shield=True):
                    if self._line is not None:
                        self._line.retire()
                        await self._line.stopped.wait()
                await self._in_flight.finish(self._held.values())
                nursery.cancel_scope.deadline = trio.current_time() + _CLOSING
        finally:
            self._nursery = None
            self.ended.set()

    async def _keep_a_line(self) -> None:
        """Keep a connection as long as jobs are wanted. Raises DisqueError if that fails."""
        retry = self._router.retry()
        while not self._retired:
            self.news = trio.Event()
            if not self.queues or (self._line is not None and not self._line.over):
                await self.news.wait()
                continue
            session: Session | None = None
            try:
                session = await self._router.session_for(self.queues, retry)
                self._line = await self._open(session)
            except DisqueError as error:
                passing = isinstance(error, ConnectionLost | LeavingError)
                if session is not None and isinstance(error, LeavingError):
                    self._router.leave(session)
                elif session is not None:
                    passing |= self._router.guest_failed(session, error, repeat=True)
                if not passing or not await retry.again():
                    raise
            else:
                retry.reset()

    async def _open(self, session: Session) -> _Line:
        make = partial(_Line, consumer=self)
        line = await open_pushes(self._router, session, self._in_flight, make)
        if line is None:
            raise NoExtError("NOEXT", f"{session.address} cannot push jobs, which Celery needs")
        if line.asked != self.consume():
            line.connection.submit([self.consume()])
        if self._router.hints is not None:
            self._router.hints.follow(line)
        return line
