"""Jobs that the client works on.

Owns ``HeldJob`` (a job in progress, which WORKING in the background keeps from being delivered
again) and ``Jobs``, the loop over held jobs.
"""

from collections.abc import Callable
from typing import ClassVar, Final, Protocol

from disque_trio.client import replies, requests, tracing
from disque_trio.client.job import Job, JobFields
from disque_trio.client.router import Router
from disque_trio.client.session import Session
from disque_trio.client.shown import ShownJob
from disque_trio.resp.command import Argument
from disque_trio.respclient.concurrency import library
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
    ReplyError,
    TooLateError,
)
from disque_trio.respclient.values import Name

HEARTBEAT_GRACE = 0.05
"""Seconds before the first WORKING. A handler that finishes sooner costs no extra command."""

_PAUSE: Final = 0.1  # s between two WORKING that say how far the job is
_AGAIN: Final = 0.5  # s until WORKING is sent again that no node has answered
_MOST_PROGRESS: Final = 200  # bytes of the text of that

HEARTBEAT_FRACTION = 0.5
"""The fraction of the job's retry time that passes between two WORKING commands."""


def checked_progress(fraction: float, text: str) -> tuple[float, str]:
    """Return what is sent of how far a job is. Raises ValueError, TypeError; see
    ``HeldJob.progress``."""
    if not isinstance(text, str):
        raise TypeError(f"the text of progress must be a str, not {type(text).__name__}")
    if not 0 <= fraction <= 1:
        raise ValueError(f"progress must be from 0 to 1, not {fraction}")
    cut = text.encode("utf-8", "replace")[:_MOST_PROGRESS].decode("utf-8", "ignore")
    return float(fraction), cut


class Origin(Protocol):
    """The connection on which a job was pushed."""

    async def settle(self, job: "HeldJob", commands: list[list[Argument]]) -> list[Reply]:
        """Send commands, the last of which ends the delivery, and return the replies."""

    async def execute(self, *command: Argument) -> Reply:
        """Send a command about one of the connection's jobs and return the reply.

        Raises:
            ReplyError: the node replied with an error.
            ConnectionLost: the connection can no longer be used.
        """

    def released(self) -> None:
        """Note that somebody else now takes care of one of the connection's jobs."""

    def dropped(self) -> None:
        """Note that nobody works on a cancelled job of the connection any more."""


class HeldJob(JobFields, Delivery):
    """A job that this client is working on.

    Until the job is settled by ``ack``, ``fastack``, ``nack``, ``requeue``, ``dead`` or
    ``release``, WORKING is sent in the background at half of its retry time, so that the node does
    not deliver it to somebody else. The job is ``lost`` if the node answers WORKING with TOOLATE
    (half of the TTL is over), NOJOB, ACKED or CANCELLED; once that node is lost, if all others
    answer NOJOB.

    Args:
        router, session: where the job's commands go, to the session first.
        job: the job as delivered.
        on_settled: called with this object when the job is settled.
        origin: the connection on which the job was pushed; None if the job was fetched.

    Attributes:
        grace: seconds before the first WORKING.
        traced: whether the job has a span, if anybody traces.
        goes_on: the task will take its next job from the same loop. So the node may push that job
            with the reply to the command that settles this one, which saves a round trip.
        terminate: whether whoever cancelled the job wants its task to be ended, if that runs in a
            process of its own.
        processing: the span of the job; None if nobody traces.
    """

    grace: ClassVar[float] = HEARTBEAT_GRACE
    traced: ClassVar[bool] = True

    def __init__(
        self,
        router: Router,
        session: Session,
        job: Job,
        on_settled: Callable[["HeldJob"], object],
        origin: Origin | None = None,
    ) -> None:
        super().__init__(job, self.grace, on_settled)
        self._router = router
        self._session = session
        self._job = job
        self._origin = origin
        self.goes_on = False
        self._unsaid: tuple[float, str] | None = None  # of ``progress``
        self._say_at = 0.0  # when something may be said again
        self._at_most_once = False
        self._last_reason: str | None = None if job.nacks else ""
        self.terminate: bool = False
        self._when_cancelled: Callable[[], object] | None = None
        self._outcome = "release"
        self._reason: Name | None = None
        # The task that will process the job creates this object.
        self.processing: tracing.Processing | None = None
        if tracing.tracer is not None and self.traced:
            self.processing = tracing.tracer.processing(job, session.address)

    @property
    def address(self) -> str:
        """The address of the node that it came from."""
        return self._session.name

    async def last_reason(self) -> str:
        """Return the reason of the last NACK; empty if there was none, or the node does not say."""
        if self._last_reason is None:
            try:
                shown = replies.record(await self._control(["SHOW", self.id, "MAXBODY", 0]))
            except DisqueError:
                return ""
            self._last_reason = ShownJob.of(shown or {}).last_reason
        return self._last_reason

    async def ack(self, result: Name | None = None) -> None:
        """Acknowledge the job (ACKJOB) and leave ``result`` for anyone who waits for it.

        Does nothing if the job is already settled.

        Raises:
            ConnectionLost: no node took the acknowledgement within ``retry_for``.
        """
        self._outcome = "ack"
        await self._settle(lambda: self._send(requests.ackjob([self.id], result)))

    async def ack_behind(self, addjob: list[Argument]) -> None:
        """Add a job, and acknowledge this one. Does nothing if this one is already settled.

        Raises:
            ReplyError: the other job could not be added; this one is acknowledged.
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
            self.processed = False  # without the answer it is not done
            raise
        if added and isinstance(added[0], DisqueError):
            raise added[0]

    async def fastack(self) -> None:
        """Acknowledge the job with FASTACK: cheaper in a cluster, with weaker guarantees.

        Raises:
            ConnectionLost: as for ``ack``.
        """
        self._outcome = "ack"
        await self._settle(lambda: self._send(["FASTACK", self.id]))

    async def nack(self, *, delay: float | None = None, reason: Name | None = None) -> None:
        """Give the job back as failed (NACK). Does nothing if it is already settled.

        Args:
            delay: seconds until the job is queued again; None: at once, or as the policy of its
                queue says.
            reason: why, for whoever looks at the job later.

        Raises:
            ConnectionLost: as for ``ack``.
        """
        command = requests.nack([self.id], delay, reason)
        self._outcome, self._reason = "nack", reason
        await self._settle(lambda: self._hand_back(command), back=True)

    async def requeue(self, *, reason: Name | None = None) -> None:
        """Hand the job to another consumer now, although nothing went wrong (ENQUEUE).

        This counts as an additional delivery, not as a NACK. Does nothing if the job is already
        settled.

        Args:
            reason: why, for whoever looks at the job later. With one this counts as a NACK, which
                is the command that has a reason.

        Raises:
            ConnectionLost: as for ``ack``.
        """
        command: list[Argument] = ["ENQUEUE", self.id]
        if reason is not None:
            command = requests.nack([self.id], 0, reason)
        self._outcome = "requeue"
        await self._settle(lambda: self._hand_back(command), back=True)

    async def dead(self, *, reason: Name | None = None) -> None:
        """Refuse the job for good: it goes to the dead letters of its queue.

        Does nothing if the job is already settled.

        Raises:
            ReplyError: the queue has no dead letters. The job is then not settled, and no further
                WORKING is sent for it.
            ConnectionLost: as for ``ack``.
        """
        command = requests.dead([self.id], reason)
        self._outcome, self._reason = "dead", reason
        await self._settle(lambda: self._hand_back(command), back=True)

    async def update(self, *, body: Name) -> None:
        """Change the body of the job, which was given back, for its next delivery (UPDATEJOB).

        This asks the node that it came from. Others may not hold it, even the one that made it.

        Raises:
            ReplyError: the job cannot be changed.
            ConnectionLost: as for ``ack``.
        """
        await self._control(["UPDATEJOB", self.id, *requests.options(BODY=body)])

    def when_cancelled(self, call: Callable[[], object]) -> None:
        """Call this when the node says that the job was cancelled. See ``Client.loops``."""
        self._when_cancelled = call

    def cancelled(self, *, terminate: bool = False) -> None:
        """Note that the job was cancelled: it is ``lost``, and will not be delivered again.
        ``terminate``: see the attribute."""
        self._lost = True
        self.terminate = terminate
        self._hush()
        if self._when_cancelled is not None:
            self._when_cancelled()

    def drop(self) -> None:
        """Send nothing more for the job, which was cancelled."""
        if self._origin is not None and not self.settled:
            self._origin.dropped()
        self._outcome = "cancelled"
        self.end()

    def progress(self, fraction: float, text: str = "") -> None:
        """Say how far the job is, for whoever looks at it with SHOW while this client has it.

        The last one that was said is sent soon, with the next WORKING. May be called in any thread.

        Args:
            fraction: from 0 to 1.
            text: what is sent of it are 200 bytes.

        Raises:
            ValueError: ``fraction`` is not from 0 to 1.
            TypeError: it is no number, or ``text`` no text.
        """
        said = checked_progress(fraction, text)
        if self.in_flight is not None:
            self.in_flight.soon(lambda: self._say(*said))

    def _say(self, fraction: float, text: str) -> None:
        self._unsaid = (fraction, text)
        if not self._settled:
            within = max(0.0, self._say_at - library().current_time())
            self.hurry(within)
            if self._at_most_once and self._turn is None:
                self._beat_after(within)  # nothing else is planned

    def release(self) -> None:
        """Send nothing more for the job.

        The caller takes care of the job by its id, or the server delivers it again after its retry
        time.
        """
        if self._origin is not None and not self.settled:
            self._origin.released()
        super().release()

    def end(self) -> None:
        """Send nothing more for the job: it was settled, or could not be."""
        super().end()
        if self.processing is not None:
            self.processing.end(self._outcome, self._reason)

    def left(self) -> None:
        """Note that the task that processed the job has left the loop."""
        if self.processing is not None:
            self.processing.leave()

    async def finish(self) -> None:
        """Settle the job when its loop is left: ACKJOB if the body ended normally, else NACK."""
        await (self.ack() if self.processed else self.nack())

    async def _heartbeat(self) -> float | None:
        said, self._unsaid = self._unsaid, None
        self._say_at = library().current_time() + _PAUSE
        try:
            try:
                retry = await self._working(said)
            except ReplyError as error:
                if said is None or error.code != "ERR":
                    raise
                retry = await self._working()  # it is a node that knows no progress
        except JobCancelledError:
            self.cancelled()
            return None
        except (TooLateError, NoJobError, AckedError):
            self._lost = True
            return None
        except ConnectionLost:
            return _AGAIN  # it was tried for ``retry_for`` seconds, with pauses
        except DisqueError:
            return None
        # A job with a retry time of 0 is never delivered again.
        self._at_most_once = retry == 0
        if self._unsaid is not None:
            return _PAUSE
        return retry * HEARTBEAT_FRACTION if isinstance(retry, int) and retry > 0 else None

    async def _working(self, progress: tuple[float, str] | None = None) -> Reply:
        command = requests.working(self.id, progress)
        if self._origin is not None:
            try:
                # A NACK will be sent on this connection, too. From another connection, WORKING
                # could arrive after the NACK and take the job back out of its queue.
                return await self._origin.execute(*command)
            except ConnectionLost:
                pass
        try:
            return await self._control(command)
        except NoJobError:
            if self._session.alive:
                raise
        # Its node is lost, and the one in use has no copy; others have. Unless they hear that this
        # client still works on the job, they deliver it again.
        return await self._router.run_anywhere(command)

    async def _send(self, *commands: list[Argument]) -> list[Reply]:
        """Send commands, the last of which ends the job's delivery, and return the replies.

        The other commands may run on any node.
        """
        try:
            if self._origin is not None:
                try:
                    return await self._origin.settle(self, list(commands))
                except (ConnectionLost, LeavingError):
                    pass  # send it as for a job that was fetched
            *before, last = commands
            answers: list[Reply] = []
            if before:
                answers = await self._router.run("control", before, repeat=True)
            return [*answers, await self._control(last)]
        except BaseException:
            self._outcome = "lost"
            raise

    async def _hand_back(self, command: list[Argument]) -> None:
        """Send a command that does nothing at a node that has no copy of the job, such as the one
        that is in use once that of the job is lost. Then that one is asked, if it is soon back."""
        [reply] = await self._send(command)
        if reply == 0 and not self._session.alive:
            await self._router.run_at(self._session.address, command)

    async def _control(self, command: list[Argument]) -> Reply:
        return await self._router.run_one("control", command, repeat=True, pinned=self._session)


class Jobs(DeliveryLoop[HeldJob]):
    """The worker loop: ``async for job in client.jobs("queue")``.

    - Asking for the next job acknowledges the previous one, unless it is already settled.
    - Leaving the loop by ``break``, an exception or cancellation gives the current job back (NACK).
      If the loop is in a block (``async with client.jobs("q") as jobs: async for job in jobs:
      ...``), this happens at the end of the block. Otherwise it happens in the background as soon
      as Python disposes of the loop, or at the latest when the client is closed.
    - To leave after finishing a job, call ``await job.ack()`` and then ``break``, or call ``stop``.

    Fetching a job raises the same exceptions as ``Client.get``.
    """
