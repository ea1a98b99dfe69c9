"""Jobs as the client hands them out.

Owns `Job` (what GETJOB says) and `HeldJob` (a job that is being worked on, kept from being
delivered again by WORKING in the background).

The rule that the worker loop serves: a job is acknowledged only after its loop body ended
normally, and a job whose body did not end normally is given back, at once if possible. In doubt
nothing is sent, and the node delivers the job again when its retry time is over.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import trio

from disque_trio.client.errors import (
    AckedError,
    ConnectionLost,
    DisqueError,
    NoJobError,
    TooLateError,
)
from disque_trio.client.router import Router
from disque_trio.client.session import Session

HEARTBEAT_GRACE = 0.05
"""Seconds before the first WORKING: a handler that is done sooner costs no extra command."""

HEARTBEAT_FRACTION = 0.5
"""How much of the job's retry time passes between two WORKING."""


@dataclass(frozen=True, slots=True)
class Job:
    """A job as GETJOB delivers it.

    Attributes:
        id: 40 characters, to be used with `Client.ack` and the others.
        queue: name of its queue; bytes that are not UTF-8 appear as surrogate escapes.
        body: what was added.
        nacks: how often a consumer gave it back with NACK, 0 without counters.
        additional_deliveries: how often it was queued again otherwise, 0 without counters.
    """

    id: str
    queue: str
    body: bytes
    nacks: int = 0
    additional_deliveries: int = 0


class HeldJob:
    """A job that this client works on.

    Until it is settled by `ack`, `fastack`, `nack` or `release`, WORKING is sent in the background
    at half of its retry time, so that the node does not deliver it to somebody else.
    """

    def __init__(
        self,
        router: Router,
        session: Session,
        job: Job,
        on_settled: Callable[["HeldJob"], object],
    ) -> None:
        self._router = router
        self._session = session
        self._on_settled = on_settled
        self._scope = trio.CancelScope()
        self._settling = trio.Lock()
        self._job = job
        self._settled = False
        self._lost = False
        self.processed = False
        """True when its loop body has ended normally: an unfinished settlement is an ACKJOB."""
        session.job_taken()

    def __repr__(self) -> str:
        return f"<HeldJob {self.id} of queue {self.queue!r}>"

    @property
    def id(self) -> str:
        """The job id."""
        return self._job.id

    @property
    def queue(self) -> str:
        """The name of its queue."""
        return self._job.queue

    @property
    def body(self) -> bytes:
        """What was added."""
        return self._job.body

    @property
    def nacks(self) -> int:
        """How often a consumer gave it back with NACK."""
        return self._job.nacks

    @property
    def additional_deliveries(self) -> int:
        """How often it was queued again for another reason."""
        return self._job.additional_deliveries

    @property
    def settled(self) -> bool:
        """It was acknowledged, given back or released: nothing more will be sent for it."""
        return self._settled

    @property
    def lost(self) -> bool:
        """The node no longer lets us postpone the next delivery: another worker may get the job.

        This is so when WORKING is answered with TOOLATE (half of the TTL is over), NOJOB or ACKED.
        """
        return self._lost

    async def ack(self) -> None:
        """Acknowledge it (ACKJOB). Does nothing if it is settled.

        Raises:
            ConnectionLost: no node took the acknowledgement within `retry_for`.
        """
        await self._settle("ACKJOB")

    async def fastack(self) -> None:
        """Acknowledge it with FASTACK: cheaper in a cluster, with less guarantee.

        Raises:
            ConnectionLost: as for `ack`.
        """
        await self._settle("FASTACK")

    async def nack(self) -> None:
        """Give it back for delivery now, and count that (NACK). Does nothing if it is settled.

        Raises:
            ConnectionLost: as for `ack`.
        """
        await self._settle("NACK")

    def release(self) -> None:
        """Send nothing more for it.

        The caller takes care of it by its id, or the node delivers it again after its retry time.
        """
        if not self._settled:
            self._settled = True
            self._scope.cancel()
            self._session.job_settled()
            self._on_settled(self)

    async def finish(self) -> None:
        """Settle it as its loop was left: ACKJOB if the body had ended normally, else NACK."""
        await self._settle("ACKJOB" if self.processed else "NACK")

    async def keep_working(self) -> None:
        """Send WORKING until the job is settled or lost. Runs as a task of the client."""
        with self._scope:
            await trio.sleep(HEARTBEAT_GRACE)
            while True:
                try:
                    reply = await self._router.run_one(
                        "control", ["WORKING", self.id], repeat=True, home=self._session
                    )
                except (TooLateError, NoJobError, AckedError):
                    self._lost = True
                    return
                except ConnectionLost:
                    continue  # it has tried for `retry_for` seconds, with pauses
                except DisqueError:
                    return
                retry = reply if isinstance(reply, int) else 0
                if retry <= 0:
                    return  # at most once: it is never delivered again
                await trio.sleep(retry * HEARTBEAT_FRACTION)

    async def _settle(self, command: Literal["ACKJOB", "FASTACK", "NACK"]) -> None:
        # One at a time: a loop that is left and a client that closes may both want to settle it.
        async with self._settling:
            if not self._settled:
                if command == "NACK":
                    # A WORKING behind it would take the job out of its queue again.
                    self._scope.cancel()
                await self._router.run_one(
                    "control", [command, self.id], repeat=True, home=self._session
                )
                self.release()
