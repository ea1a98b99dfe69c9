"""Where jobs are as far as a node knows that holds copies of them: in which node's queue, or in the
hands of which node's clients.

A copy comes from the node that queues the job. That node tells the other holders when it queues the
job again, and some time after it has delivered it or given it away: not of jobs that end sooner, as
most do. So if it dies, the others know what it had in its queues (see ``dead_nodes``).
"""

from typing import TYPE_CHECKING, Final

from disque_trio.node.core.jobs.job import Job, Place

if TYPE_CHECKING:
    from mypy_extensions import i64

# ms; a holder is told of a delivery after one to two such times.
TELL_AFTER: Final = 100
SMALL: Final = 512  # bytes; larger bodies are not kept in memory until then if their jobs end


class Left:
    """Jobs that have left the queues of a node, and may have ended since: to find a job by its id
    costs more than all else that is done about it here.

    Attributes:
        jobs: those with small bodies. ids: of the others.
    """

    __slots__ = ("ids", "jobs")

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        self.ids: list[bytes] = []


class Places:
    """The places that the jobs of one node share, and what has left its queues lately.

    Attributes:
        due: when to look at ``left``, in ms since the epoch; 0: there is nothing.
    """

    def __init__(self) -> None:
        self.due: i64 = 0
        self._tell_after: i64 = TELL_AFTER
        self._queued: dict[bytes, Place] = {}
        self._in_hand: dict[bytes, Place] = {}
        self._left = Left()
        self._left_before = Left()

    def queued(self, node: bytes) -> Place:
        """In a queue of ``node``."""
        place = self._queued.get(node)
        if place is None:
            place = self._queued[node] = Place(node, False)
        return place

    def in_hand(self, node: bytes) -> Place:
        """In the hands of a client of ``node``."""
        place = self._in_hand.get(node)
        if place is None:
            place = self._in_hand[node] = Place(node, True)
        return place

    def leaves(self, job: Job, now: int) -> None:
        """Note that ``job``, which other nodes hold too, leaves the queue here at ``now`` (ms)."""
        if len(job.body or b"") <= SMALL:
            self._left.jobs.append(job)
        else:
            self._left.ids.append(job.id)
        if not self.due:
            self.due = now + self._tell_after

    def hurry(self, now: int) -> None:
        """Keep nothing back from ``now`` (ms) on: this node is about to stop."""
        self._tell_after = 0
        if self.due:
            self.due = now

    def take(self, now: int) -> Left:
        """The jobs that have left long enough ago, at ``now``; they are forgotten."""
        found = self._left_before
        before = self._left_before = self._left
        self._left = Left()
        if not self._tell_after:
            found.jobs += before.jobs
            found.ids += before.ids
            before = self._left_before = Left()
        self.due = now + TELL_AFTER if before.jobs or before.ids else 0
        return found

    def flush(self) -> None:
        """Forget what has left: all jobs have been forgotten."""
        self._left = Left()
        self._left_before = Left()
        self.due = 0
