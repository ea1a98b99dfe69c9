"""Jobs as the client returns them.

Owns ``Job`` (what GETJOB says), ``HeldJob`` (a job that is being worked on, kept from being
delivered again by WORKING in the background) and the loop over these, ``Jobs``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from disque_trio.client import requests, tracing
from disque_trio.client.router import Router
from disque_trio.client.session import Session
from disque_trio.resp.command import Argument
from disque_trio.respclient.connection import Reply
from disque_trio.respclient.consumer import DeliveryLoop
from disque_trio.respclient.delivery import Delivery
from disque_trio.respclient.errors import (
    AckedError,
    ConnectionLost,
    DisqueError,
    JobCancelledError,
    LeavingError,
    NoJobError,
    TooLateError,
)
from disque_trio.respclient.values import Name

HEARTBEAT_GRACE = 0.05
"""Seconds before the first WORKING: a handler that is done sooner costs no extra command."""

HEARTBEAT_FRACTION = 0.5
"""How much of the job's retry time passes between two WORKING."""


@dataclass(frozen=True, slots=True)
class Letter:
    """Where a dead letter comes from.

    Attributes:
        queue: the queue of the job that died.
        why: ``attempts``, ``expired`` or ``refused``.
        attempts: how often it was delivered, as far as is known.
        reason: what the worker that refused it last said.
        first_id: the id that the job had at first.
    """

    queue: str
    why: str
    attempts: int
    reason: str
    first_id: str


@dataclass(frozen=True, slots=True)
class Job:
    """A job as GETJOB delivers it.

    Attributes:
        id: 40 characters, to be used with ``Client.ack`` and the others.
        queue: name of its queue; bytes that are not UTF-8 appear as surrogate escapes.
        body: what was added.
        nacks: how often a consumer gave it back with NACK, 0 without counters.
        additional_deliveries: how often it was queued again otherwise, 0 without counters.
        header_pairs: names and values, in their order; empty if it was not asked for them.
        letter: where it comes from if it is a dead letter; None without counters.
        priority: as it was added with; 0 without counters.
    """

    id: str
    queue: str
    body: bytes
    nacks: int = 0
    additional_deliveries: int = 0
    header_pairs: tuple[tuple[str, bytes], ...] = ()
    letter: Letter | None = None
    priority: int = 0

    @property
    def headers(self) -> dict[str, bytes]:
        """The headers by name; of a name that comes several times the first."""
        return dict(reversed(self.header_pairs))


class JobFields:
    """What can be read of a delivered job, besides what any message has; ``_job`` has it."""

    _job: "Job | JobFields"

    @property
    def nacks(self) -> int:
        """How often a consumer gave it back with NACK."""
        return self._job.nacks

    @property
    def additional_deliveries(self) -> int:
        """How often it was queued again for another reason."""
        return self._job.additional_deliveries

    @property
    def headers(self) -> dict[str, bytes]:
        """Its headers, if the loop was told to ask for them; see ``Job.headers``."""
        return self._job.headers

    @property
    def header_pairs(self) -> tuple[tuple[str, bytes], ...]:
        """Its headers in their order."""
        return self._job.header_pairs

    @property
    def letter(self) -> Letter | None:
        """Where it comes from if it is a dead letter."""
        return self._job.letter

    @property
    def priority(self) -> int:
        """The priority that it was added with."""
        return self._job.priority


class Origin(Protocol):
    """The connection that a job was pushed on."""

    async def settle(self, job: "HeldJob", commands: list[list[Argument]]) -> list[Reply]:
        """Send commands, of which the last one ends the delivery, and return the replies."""

    async def execute(self, *command: Argument) -> Reply:
        """Send a command about one of its jobs, and return the reply. Raises ReplyError;
        ConnectionLost: the connection is of no more use."""

    def released(self) -> None:
        """Somebody else takes care of one of its jobs."""


class HeldJob(JobFields, Delivery):
    """A job that this client works on.

    Until it is settled by ``ack``, ``fastack``, ``nack``, ``requeue`` or ``release``, WORKING is
    sent in the background at half of its retry time, so that the node does not deliver it to
    somebody else. It is ``lost`` when WORKING is answered with TOOLATE (half of the TTL is over),
    NOJOB, ACKED or CANCELLED.

    Args:
        router, session: where its commands go, to the session first.
        job: as delivered.
        on_settled: called with it when it is settled.
        origin: where it was pushed; None: it was fetched.

    Attributes:
        goes_on: its task will take the next job from the same loop, and so may have it pushed with
            the answer to what settles this one, a round trip earlier.
        processing: its span, if somebody traces; None: nobody does.
    """

    def __init__(
        self,
        router: Router,
        session: Session,
        job: Job,
        on_settled: Callable[["HeldJob"], object],
        origin: Origin | None = None,
    ) -> None:
        super().__init__(job, HEARTBEAT_GRACE, on_settled)
        self._router = router
        self._session = session
        self._job = job
        self._origin = origin
        self.goes_on = False
        self._outcome = "release"
        self._reason: Name | None = None
        # A job is made by the task that will process it.
        self.processing: tracing.Processing | None = (
            None if tracing.tracer is None else tracing.tracer.processing(job, session.address)
        )

    async def ack(self, result: Name | None = None) -> None:
        """Acknowledge it (ACKJOB) and leave ``result`` for who waits for it. Does nothing if it is
        settled.

        Raises:
            ConnectionLost: no node took the acknowledgement within ``retry_for``.
        """
        self._outcome = "ack"
        await self._settle(lambda: self._send(requests.ackjob([self.id], result)))

    async def ack_behind(self, addjob: list[Argument]) -> None:
        """Add a job, and acknowledge this one. Does nothing if it is settled.

        Raises:
            ReplyError: the job could not be added; this one is acknowledged.
            ConnectionLost: as for ``ack``.
        """
        added: list[Reply] = []

        async def send() -> None:
            added.extend(await self._send(addjob, requests.ackjob([self.id], None)))

        self.processed: bool = True
        self._outcome = "ack"
        try:
            await self._settle(send)
        except BaseException:
            self.processed = False  # without its answer it is not
            raise
        if added and isinstance(added[0], DisqueError):
            raise added[0]

    async def fastack(self) -> None:
        """Acknowledge it with FASTACK: cheaper in a cluster, with less guarantee.

        Raises:
            ConnectionLost: as for ``ack``.
        """
        self._outcome = "ack"
        await self._settle(lambda: self._send(["FASTACK", self.id]))

    async def nack(self, *, delay: float | None = None, reason: Name | None = None) -> None:
        """Give it back, and count that (NACK). Does nothing if it is settled.

        Args:
            delay: seconds until it is queued; None: at once, or as the policy of its queue says.
            reason: why, for who looks at it later.

        Raises:
            ConnectionLost: as for ``ack``.
        """
        command = requests.nack([self.id], delay, reason)
        self._outcome, self._reason = "nack", reason
        await self._settle(lambda: self._send(command), back=True)

    async def requeue(self) -> None:
        """Let somebody else have it now (ENQUEUE): nothing went wrong. It counts as a delivery
        more, not as a NACK. Does nothing if it is settled.

        Raises:
            ConnectionLost: as for ``ack``.
        """
        self._outcome = "requeue"
        await self._settle(lambda: self._send(["ENQUEUE", self.id]), back=True)

    async def dead(self, *, reason: Name | None = None) -> None:
        """Refuse it for good: it goes to the dead letters of its queue. Does nothing if it is
        settled.

        Raises:
            ReplyError: its queue has no dead letters; it is not settled then, and no WORKING is
                sent any more.
            ConnectionLost: as for ``ack``.
        """
        command = requests.dead([self.id], reason)
        self._outcome, self._reason = "dead", reason
        await self._settle(lambda: self._send(command), back=True)

    def release(self) -> None:
        """Send nothing more for it. The caller takes care of it by its id, or the server delivers
        it again when its time is over."""
        if self._origin is not None and not self.settled:
            self._origin.released()
        super().release()

    def end(self) -> None:
        """Send nothing more for it: it was settled, or could not be."""
        super().end()
        if self.processing is not None:
            self.processing.end(self._outcome, self._reason)

    def left(self) -> None:
        """Its loop is left, by the task that has processed it."""
        if self.processing is not None:
            self.processing.leave()

    async def finish(self) -> None:
        """Settle it as its loop was left: ACKJOB if the body had ended normally, else NACK."""
        await (self.ack() if self.processed else self.nack())

    async def _heartbeat(self) -> float | None:
        try:
            retry = await self._working()
        except (TooLateError, NoJobError, AckedError, JobCancelledError):
            self._lost = True
            return None
        except ConnectionLost:
            return 0  # it has tried for ``retry_for`` seconds, with pauses
        except DisqueError:
            return None
        # With a retry time of 0 it is never delivered again.
        return retry * HEARTBEAT_FRACTION if isinstance(retry, int) and retry > 0 else None

    async def _working(self) -> Reply:
        if self._origin is not None:
            try:
                # Where a NACK will be sent, too. On another connection it might overtake this one,
                # which would take the job back out of its queue then.
                return await self._origin.execute("WORKING", self.id)
            except ConnectionLost:
                pass
        return await self._control(["WORKING", self.id])

    async def _send(self, *commands: list[Argument]) -> list[Reply]:
        """Send commands, of which the last one ends its delivery, and return the replies. The
        others may run on any node."""
        try:
            if self._origin is not None:
                try:
                    return await self._origin.settle(self, list(commands))
                except (ConnectionLost, LeavingError):
                    pass  # what was fetched goes another way
            *before, last = commands
            answers: list[Reply] = []
            if before:
                answers = await self._router.run("control", before, repeat=True)
            return [*answers, await self._control(last)]
        except BaseException:
            self._outcome = "lost"
            raise

    async def _control(self, command: list[Argument]) -> Reply:
        return await self._router.run_one("control", command, repeat=True, pinned=self._session)


class Jobs(DeliveryLoop[HeldJob]):
    """The worker loop: ``async for job in client.jobs("queue")``.

    - Asking for the next job acknowledges the one before, unless it is settled.
    - Leaving the loop by ``break``, an exception or cancellation gives the current job back (NACK):
      at the end of the ``async with`` block if the loop is in one (``async with client.jobs("q") as
      jobs: async for job in jobs: ...``), else in the background as soon as Python disposes of the
      loop, at the latest when the client closes.
    - To leave after a job that is done: ``await job.ack()``, then ``break``; or ``stop()``.

    Fetching raises what ``Client.get`` raises.
    """
