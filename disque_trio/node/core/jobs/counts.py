"""Counts what happens to jobs, by queue, for metrics, as long as somebody wants to know.

The counted events are those that ``events`` notes, so no other code has to count. A queue has
counts of its own if it was among the first ``most`` queues; all others share one (``rest``). So
each event is counted exactly once, and stays where it was counted.

The time that a job waited is measured from when it was queued again, the time that it was processed
from when it was delivered. Both moments are kept for the latest jobs.
"""

from typing import Final

from disque_trio.eventlog.schema import (
    ACKED,
    ADDED,
    BY_DEATH,
    BY_DISCONNECT,
    BY_ENQUEUE,
    BY_FASTACK,
    BY_NACK,
    BY_PEER,
    BY_REDRIVE,
    BY_RETRY,
    CANCELLED,
    DEAD,
    DELETED,
    DELIVERED,
    EVICTED,
    EXPIRED,
    EXPORTED,
    NACKED,
    QUEUED,
    Kind,
    Reason,
)
from disque_trio.histogram import JOB_TIMES, MS, Histogram
from disque_trio.node.core.jobs.job import Job
from disque_trio.node.core.jobs.moments import MOST, Moments

_AGAIN: Final = (BY_RETRY, BY_NACK, BY_ENQUEUE, BY_DISCONNECT)
_MADE_HERE: Final = (BY_DEATH, BY_REDRIVE)


class QueueCounts:
    """Counts of the events of a queue; the attributes are named like the events.

    Attributes:
        wait, processing: times of its deliveries; None: there were none.
    """

    __slots__ = (
        "acked",
        "added",
        "cancelled",
        "dead",
        "delivered",
        "evicted",
        "expired",
        "nacked",
        "processing",
        "requeued",
        "wait",
    )

    def __init__(self) -> None:
        self.added = 0
        self.delivered = 0
        self.acked = 0
        self.requeued = 0
        self.nacked = 0
        self.expired = 0
        self.evicted = 0
        self.dead = 0
        self.cancelled = 0
        self.wait: Histogram | None = None
        self.processing: Histogram | None = None


class JobCounts:
    """The counts of one node.

    Args:
        most: how many queues have their own.
        most_times: for how many jobs it keeps since when they have waited or been processed, at
            most.

    Attributes:
        by_queue: the counts of queues that have their own.
        rest: those of all others.
    """

    def __init__(self, most: int, most_times: int = MOST) -> None:
        self.most = most
        self.by_queue: dict[bytes, QueueCounts] = {}
        self.rest = QueueCounts()
        # Since when, in ms, by job id.
        self._queued = Moments(most_times)  # queued again
        self._delivered = Moments(most_times)

    def of(self, queue: bytes) -> QueueCounts:
        """The counts that include the jobs of ``queue``: its own, if it can have them."""
        counts = self.by_queue.get(queue)
        if counts is None:
            # The empty name stands for the sum of all others.
            if len(self.by_queue) >= self.most or not queue:
                return self.rest
            counts = self.by_queue[queue] = QueueCounts()
        return counts

    def forget(self, queue: bytes) -> None:
        """Forget the counts of ``queue``, which no longer exists."""
        self.by_queue.pop(queue, None)

    def limit(self, most: int) -> None:
        """Keep counts for at most ``most`` queues; drop those of later ones."""
        self.most = most
        for queue in list(self.by_queue)[most:]:
            del self.by_queue[queue]

    def reset(self) -> None:
        """Set all counters to zero."""
        self.by_queue = {}
        self.rest = QueueCounts()

    def note(self, event: Kind, job: Job, reason: Reason, now: int) -> None:
        """Count ``event``, which happened to ``job`` at ``now`` (ms) for ``reason``."""
        if event == DELIVERED:
            counts = self.by_queue.get(job.queue) or self.of(job.queue)
            counts.delivered += 1
            since = self._queued.pop(job.id)
            if since == 0:
                since = job.ctime // 1_000_000
                if job.delay:
                    since += int(job.delay) * 1000
            if counts.wait is None:
                counts.wait = Histogram(JOB_TIMES, MS)
            counts.wait.observe(now - since if now > since else 0)
            if job.retry:
                self._delivered.note(job.id, now)
        elif event == ACKED:
            self._acked(job, reason, now)
        elif event == ADDED:
            if reason not in _MADE_HERE:
                counts = self.by_queue.get(job.queue) or self.of(job.queue)
                counts.added += 1
        elif event == QUEUED:
            if reason in _AGAIN:
                self.of(job.queue).requeued += 1
                self._delivered.pop(job.id)
                self._queued.note(job.id, now)
            elif job.nacks or job.deliveries:  # imported, after it was delivered elsewhere
                self._queued.note(job.id, now)
        elif event == NACKED:
            self.of(job.queue).nacked += 1
        elif event == DELETED and reason == BY_FASTACK:
            self._acked(job, reason, now)
        else:
            self._count_rare(event, job)

    def _acked(self, job: Job, reason: Reason, now: int) -> None:
        since = self._delivered.pop(job.id)
        self._queued.pop(job.id)
        # The queue of a job that this node does not hold is unknown.
        if reason == BY_PEER or (job.body is None and not job.queue):
            return
        counts = self.by_queue.get(job.queue) or self.of(job.queue)
        counts.acked += 1
        if since:
            if counts.processing is None:
                counts.processing = Histogram(JOB_TIMES, MS)
            counts.processing.observe(now - since if now > since else 0)

    def _count_rare(self, event: Kind, job: Job) -> None:
        counts = self.of(job.queue)
        if event == EXPIRED:
            counts.expired += 1
        elif event == EVICTED:
            counts.evicted += 1
        elif event == DEAD:
            counts.dead += 1
        elif event == CANCELLED:
            counts.cancelled += 1
        elif event != DELETED and event != EXPORTED:
            return
        self._queued.pop(job.id)
        self._delivered.pop(job.id)
