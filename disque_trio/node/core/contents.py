"""What UPDATEJOB changes of a job, and a change that is not known to all holders yet."""

from typing import Final

from disque_trio.node.core.job import Job
from disque_trio.respserver.client import Pending

FIRST_GAP: Final = 500  # ms between attempts to tell a holder, doubled each time
PATIENCE: Final = 2_000  # ms that a client waits for the holders


class Contents:
    """What a change of a job sets.

    Attributes:
        body: as the producer sends it. retry: s. etime: when the job expires, s since the epoch.
        due: when it is queued first, ms since the epoch.
    """

    __slots__ = ("body", "due", "etime", "retry")

    def __init__(self, job: Job) -> None:
        self.body = job.body or b""
        self.retry = int(job.retry)
        self.etime = int(job.etime)
        self.due = job.ctime // 1_000_000 + int(job.delay) * 1000


class Spread:
    """A change that not all holders of its job have confirmed.

    Attributes:
        version: of the change. missing: the nodes that have not confirmed it.
        before: what the job had before it.
        replies: of the clients that wait. deadline: until when, ms.
        due: when the missing ones are told again, ms. gap: ms until the time after that.
    """

    def __init__(self, version: int, missing: list[bytes], before: Contents, now: int) -> None:
        self.version = version
        self.missing = missing
        self.before = before
        self.replies: list[Pending] = []
        self.deadline = now + PATIENCE
        self.due = now + FIRST_GAP
        self.gap = FIRST_GAP
