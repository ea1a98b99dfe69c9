"""Keeps track of ADDJOBs that wait for copies, and of the clients that sent them."""

from collections import deque
from typing import Final

from disque_trio.node.core.jobs.job import Job
from disque_trio.resp.reply import error
from disque_trio.respserver.client import Client, Pending
from disque_trio.respserver.machine import Machine

RETRY_GAP: Final = 50  # ms between attempts to get a job confirmed

REMOVED: Final = error(
    b"NOREPL job removed (expired?) before the requested replication level was achieved"
)


class ReplicationWait(Pending):
    """The pending reply of an ADDJOB that waits for copies of its job.

    Attributes:
        job: the job.
        needed: how many other nodes have to confirm.
        external: this node will not hold it afterwards.
        deadline: when the client gives up, in ms; 0: never.
        gap: ms between repeats to nodes that do not answer; the next is at ``repeat`` (ms).
    """

    __slots__ = ("deadline", "external", "gap", "job", "needed", "repeat")

    def __init__(
        self, client: Client, job: Job, needed: int, external: bool, deadline: int, repeat: int
    ) -> None:
        super().__init__(client, None)
        self.job = job
        self.needed = needed
        self.external = external
        self.deadline = deadline
        self.gap = RETRY_GAP
        self.repeat = repeat

    # The rest is called only for jobs with trailers: ADDJOB UNIQUE waits for more.

    def agreed(self) -> bool:
        """Whether the job may be added now that enough nodes have confirmed it; if not, starts what
        is missing."""
        return True

    def refusal(self, usual: bytes) -> bytes:
        """The reply when time is up: ``usual``, or one for what else it waits for."""
        return usual

    def try_again(self, now: int) -> bool:
        """Try again to get what it waits for, unless that is copies; return whether it did."""
        return False

    def given_up(self) -> bool:
        """Handle that the job was given up. Return True if other nodes need not be told in the
        usual way."""
        return False


class ReplicationWaits:
    """The ADDJOBs of one node that wait for copies.

    Args:
        machine: sends the replies.

    Attributes:
        by_job: the waits, by the ids of their jobs.
        attempts: when to try which wait again, in ms, the next one first.
    """

    def __init__(self, machine: Machine) -> None:
        self.by_job: dict[bytes, ReplicationWait] = {}
        # Nearly all end before they are due; the others go to the end again.
        self.attempts: deque[tuple[int, ReplicationWait]] = deque()
        self._machine = machine

    def begin(self, client: Client, job: Job, needed: int, external: bool, timeout: int) -> None:
        """Make ``client`` wait until ``needed`` nodes have confirmed ``job``, for at most
        ``timeout`` ms (0: forever)."""
        now = self._machine.now
        deadline = now + timeout if timeout else 0
        wait = ReplicationWait(client, job, needed, external, deadline, now + RETRY_GAP)
        self.by_job[job.id] = wait
        self.attempts.append((now + RETRY_GAP, wait))
        client.line_up(wait)

    def resume(self, wait: ReplicationWait) -> None:
        """Start ``wait``, which is in its client's line already, as if it began now."""
        wait.repeat = self._machine.now + RETRY_GAP
        self.by_job[wait.job.id] = wait
        self.attempts.append((wait.repeat, wait))

    def end(self, job: Job, reply: bytes) -> ReplicationWait:
        """Send ``reply`` to the client that waits for ``job``; there must be one."""
        wait = self.by_job.pop(job.id)
        wait.reply = reply
        self._machine.answered.append(wait)
        return wait

    def job_removed(self, job: Job) -> None:
        """Reply to the client that waits for ``job``, if any, before the job is deleted."""
        if job.id in self.by_job:
            self.end(job, REMOVED)

    def due(self, now: int) -> ReplicationWait | None:
        """Take the next wait that is due at ``now`` (ms) off ``attempts``; None: there is none."""
        attempts = self.attempts
        while attempts and (attempts[0][1].reply is not None or attempts[0][0] <= now):
            _, wait = attempts.popleft()
            if wait.reply is None:
                return wait
        return None

    def next_due(self) -> int:
        """Return when ``due`` next returns a wait, in ms; 0: never."""
        attempts = self.attempts
        while attempts and attempts[0][1].reply is not None:
            attempts.popleft()
        return attempts[0][0] if attempts else 0

    def of_client(self, client: Client) -> list[ReplicationWait]:
        """The waits of ``client``."""
        return [
            wait
            for wait in client.reply_queue
            if isinstance(wait, ReplicationWait) and wait.reply is None
        ]

    def removed_all(self) -> list[Job]:
        """Tell all waiting clients that their jobs are gone, and return these jobs."""
        jobs = [wait.job for wait in self.by_job.values()]
        for job in jobs:
            self.end(job, REMOVED)
        self.attempts.clear()
        return jobs
