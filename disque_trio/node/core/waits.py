"""Keeps track of ADDJOBs that wait for copies, and of the clients that sent them."""

from collections import deque
from typing import Final

from disque_trio.node.core.job import Job
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
        job: the job. needed: confirmations that it takes from other nodes.
        external: this node does not hold it afterwards.
        deadline: when the client gives up, ms, 0: never.
        gap: ms until those that do not answer are asked once more, at ``repeat`` (ms).
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

    # What follows is asked for jobs with trailers only: ADDJOB UNIQUE waits for more.

    def agreed(self) -> bool:
        """Whether the job may be added now that enough nodes have confirmed it; if not, it is seen
        to that it will be."""
        return True

    def refusal(self, usual: bytes) -> bytes:
        """What to answer when the time is over: ``usual``, or what else it waits for."""
        return usual

    def try_again(self, now: int) -> bool:
        """Try again to get what it waits for, unless that is copies; returns whether."""
        return False

    def given_up(self) -> bool:
        """The job was given up. Returns whether the other nodes need not be told in the usual
        way."""
        return False


class ReplicationWaits:
    """The ADDJOBs of one node that wait for copies.

    Args:
        machine: hands the replies out.

    Attributes:
        by_job: the waits by the ids of their jobs.
        attempts: when to try more for which wait, ms, the next one first.
    """

    def __init__(self, machine: Machine) -> None:
        self.by_job: dict[bytes, ReplicationWait] = {}
        # Nearly all end before they are due; the rest is put behind the others again.
        self.attempts: deque[tuple[int, ReplicationWait]] = deque()
        self._machine = machine

    def begin(self, client: Client, job: Job, needed: int, external: bool, timeout: int) -> None:
        """Make ``client`` wait until ``needed`` nodes have confirmed ``job``, ``timeout`` ms long
        (0: for ever)."""
        now = self._machine.now
        deadline = now + timeout if timeout else 0
        wait = ReplicationWait(client, job, needed, external, deadline, now + RETRY_GAP)
        self.by_job[job.id] = wait
        self.attempts.append((now + RETRY_GAP, wait))
        client.line_up(wait)

    def resume(self, wait: ReplicationWait) -> None:
        """Let ``wait``, which is in the line of its client already, go on as if it began now."""
        wait.repeat = self._machine.now + RETRY_GAP
        self.by_job[wait.job.id] = wait
        self.attempts.append((wait.repeat, wait))

    def end(self, job: Job, reply: bytes) -> ReplicationWait:
        """Answer ``reply`` to the client that waits for ``job``; there must be one."""
        wait = self.by_job.pop(job.id)
        wait.reply = reply
        self._machine.answered.append(wait)
        return wait

    def job_removed(self, job: Job) -> None:
        """Answer the client that still waits for ``job``, if any, before the job is deleted."""
        if job.id in self.by_job:
            self.end(job, REMOVED)

    def due(self, now: int) -> ReplicationWait | None:
        """Take the next wait for which to try more by ``now`` (ms) off ``attempts``; None: there
        is none."""
        attempts = self.attempts
        while attempts and (attempts[0][1].reply is not None or attempts[0][0] <= now):
            _, wait = attempts.popleft()
            if wait.reply is None:
                return wait
        return None

    def next_due(self) -> int:
        """When ``due`` has something to give, ms; 0: never."""
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
        """All jobs are forgotten: tell the clients that wait. Returns the jobs of these."""
        jobs = [wait.job for wait in self.by_job.values()]
        for job in jobs:
            self.end(job, REMOVED)
        self.attempts.clear()
        return jobs
