"""A connection of its own, on which a node pushes jobs (CONSUME) and these jobs are settled.

Owns the connection from CONSUME to its end: no more jobs come once it is retired, lost, or stopped
by the node. It is closed when the jobs that it brought are settled. Subclasses say what is consumed
and what becomes of the jobs.
"""

from collections.abc import Callable
from typing import Final, TypeAlias, TypeVar

from disque_trio.client import replies
from disque_trio.client.job import Job
from disque_trio.client.jobs import HeldJob
from disque_trio.client.router import Router
from disque_trio.client.session import Session
from disque_trio.resp.command import Argument
from disque_trio.respclient.concurrency import Event, library
from disque_trio.respclient.connection import Connection, Reply
from disque_trio.respclient.delivery import InFlight
from disque_trio.respclient.errors import ConnectionLost, DisqueError, LeavingError

P = TypeVar("P", bound="Pushes")
Own: TypeAlias = tuple[Connection, Router, Session, InFlight]
"""The arguments of ``Pushes``."""

STOP: Final[list[Argument]] = ["CONSUME", "STOP"]


class Pushes:
    """The jobs pushed on ``connection``. Run by ``in_flight``.

    Args:
        router, session: where commands about the jobs go when the connection is lost.
        in_flight: the jobs that are not settled.

    Attributes:
        by_pattern: the queues are those that match patterns.
        over: no more jobs are wanted, or will come.
        failure: makes the error with which it ended; None: there is none.
        stopped: set when no job is on its way any more.
        ended: set when the connection is closed.
    """

    def __init__(
        self, connection: Connection, router: Router, session: Session, in_flight: InFlight
    ) -> None:
        self.connection = connection
        self.session = session
        self.by_pattern: bool = False
        self.over: bool = False
        self.failure: Callable[[], DisqueError] | None = None
        self.stopped: Event = library().Event()
        self.ended: Event = library().Event()
        self._router = router
        self._in_flight = in_flight
        self._jobs: set[HeldJob] = set()
        self._retired = library().Event()
        self._unused = library().Event()
        connection.on_push = self._pushed

    # ---- for subclasses ---------------------------------------------------------------------

    def consume(self) -> list[Argument]:
        """The CONSUME with which to begin."""
        raise NotImplementedError

    def ask_less(self) -> bool:
        """Make ``consume`` what older nodes know, too. Return False if it is that already."""
        return False

    def arrived(self, job: Job) -> None:
        """Handle a job."""
        raise NotImplementedError

    def finished(self) -> None:
        """Note that ``over`` is set now."""

    async def last_words(self) -> None:
        """Send what is left to send when all jobs are settled."""

    # ---- the beginning ----------------------------------------------------------------------

    async def begin(self) -> bool:
        """Ask the node to push jobs. Return False if it cannot.

        Raises:
            ConnectionLost, ReplyError: see ``Session.asks``.
        """
        try:
            begun = await self.session.asks(self.connection, *self.consume())
            if not begun and not self.connection.closed and self.ask_less():
                self.session.pushes = True
                begun = await self.session.asks(self.connection, *self.consume())
        except BaseException:
            self.retire()  # a job may be on its way
            raise
        if not begun:
            self.session.cannot_push(by_pattern=self.by_pattern)
            self.connection.close()
        return begun

    # ---- jobs -------------------------------------------------------------------------------

    def _pushed(self, message: list[Reply]) -> None:
        if message[0] == b"job":
            self.arrived(replies.job(message[1:]))
        elif message[0] == b"cancelled" and isinstance(id := message[1], bytes):
            about = id.decode()
            found = next((job for job in self._jobs if job.id == about), None)
            self.cancelled(found, terminate=b"terminate" in message[2:])
        elif message[0] == b"stopped":
            self._router.leave(self.session)
            self._end(lambda: LeavingError("LEAVING", f"{self.session.address} stopped pushing"))

    def hold(self, job: Job, kind: Callable[..., HeldJob] = HeldJob) -> HeldJob:
        """Keep a job that arrived from being delivered again, until it is settled."""
        self.session.job_taken()
        held = kind(self._router, self.session, job, self._settled, self)
        self._jobs.add(held)
        self._in_flight.add(held)
        return held

    def _settled(self, job: HeldJob) -> None:
        self._jobs.discard(job)
        self._in_flight.discard(job)
        self.session.job_settled()
        self._unused.set()

    def cancelled(self, job: HeldJob | None, *, terminate: bool) -> None:
        """Note that a job was cancelled; None: it is not held, or not yet. ``terminate``: see
        ``HeldJob``."""
        if job is not None:
            job.cancelled(terminate=terminate)

    def dropped(self) -> None:
        """Note that the task of a cancelled job has ended."""

    async def settle(self, job: HeldJob, commands: list[list[Argument]]) -> list[Reply]:
        """Send commands, the last of which ends the delivery of ``job``, and return the replies.

        Raises:
            ConnectionLost, LeavingError: the reply to one of the commands.
            ReplyError: the reply to the last command.
        """
        answers = await self.connection.execute_many(commands)
        for answer in answers:
            if isinstance(answer, ConnectionLost | LeavingError):
                raise answer
        if isinstance(answers[-1], DisqueError):
            raise answers[-1]
        return answers

    async def execute(self, *command: Argument) -> Reply:
        """Send a command about one of the jobs and return the reply. Raises ReplyError,
        ConnectionLost."""
        return await self.connection.execute(*command)

    def released(self) -> None:
        """Note that somebody else takes care of a job."""

    # ---- the end ----------------------------------------------------------------------------

    def retire(self) -> None:
        """Take no more jobs, and close the connection once those in hand are settled."""
        self._end(None)

    def _end(self, failure: Callable[[], DisqueError] | None) -> None:
        if not self.over:
            self.over = True
            self.failure = failure
            self.finished()
            self._retired.set()

    async def run(self) -> None:
        """Run until this is retired and its jobs are settled, or the connection breaks."""
        try:
            async with library().open_nursery() as nursery:
                nursery.start_soon(self._wind_up)
                await self.connection.ended.wait()
                nursery.cancel_scope.cancel()
        finally:
            self.connection.close()
            address = self.session.address
            self._end(lambda: ConnectionLost(f"{address}: connection lost", maybe_executed=True))
            for job in self._jobs:
                # The node queues the job again: send WORKING before another consumer gets it.
                job.hurry()
            self.stopped.set()
            self.ended.set()

    async def _wind_up(self) -> None:
        await self._retired.wait()
        await self.connection.execute_many([STOP])
        self.stopped.set()
        while self._jobs:
            self._unused = library().Event()
            await self._unused.wait()
        await self.last_words()
        self.connection.close()


async def open_pushes(
    router: Router, session: Session, in_flight: InFlight, make: Callable[[*Own], P]
) -> P | None:
    """Open a connection on which the node pushes what ``make`` says. Return None if it cannot.

    Raises:
        ConnectionLost, ReplyError: see ``Session.asks``.
    """
    connection = await session.open_for_pushes()
    if connection is None:
        return None
    pushes = make(connection, router, session, in_flight)
    in_flight.serve(pushes)
    return pushes if await pushes.begin() else None
