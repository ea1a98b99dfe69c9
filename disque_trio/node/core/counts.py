"""Counts for metrics what happens to jobs, by queue, while somebody wants to know it.

What is counted are the events that ``events`` notes, so that nothing has to be counted at each
place once more. A queue has its own counts while it is one of the first ``most`` that were counted;
all others share one (``rest``), and so each event is in exactly one of them for good.

How long a job waited, and how long it was processed, is known from when it was queued again, and
delivered: both are kept for as many jobs as ``MOST_TIMES``, the latest ones.
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
from disque_trio.node.core.job import Job

MOST_TIMES: Final = 100_000
_NEVER: Final = -1
_AGAIN: Final = (BY_RETRY, BY_NACK, BY_ENQUEUE, BY_DISCONNECT)
_MADE_HERE: Final = (BY_DEATH, BY_REDRIVE)


class QueueCounts:
    """What happened to the jobs of a queue; the attributes are called as the events.

    Attributes:
        wait, processing: of its deliveries; None: there was none.
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
        most_times: for how many jobs it is known since when they wait, or are processed.

    Attributes:
        by_queue: the counts of queues that have their own. rest: of all others.
    """

    def __init__(self, most: int, most_times: int = MOST_TIMES) -> None:
        self.most = most
        self.by_queue: dict[bytes, QueueCounts] = {}
        self.rest = QueueCounts()
        # Since when, ms, by the ids of jobs.
        self._queued: dict[bytes, int] = {}  # again
        self._delivered: dict[bytes, int] = {}
        self._most_times = most_times

    def of(self, queue: bytes) -> QueueCounts:
        """The counts for what happens to jobs of ``queue``: its own, if it can have them."""
        counts = self.by_queue.get(queue)
        if counts is None:
            # The name that is empty is where all others are added up.
            if len(self.by_queue) >= self.most or not queue:
                return self.rest
            counts = self.by_queue[queue] = QueueCounts()
        return counts

    def forget(self, queue: bytes) -> None:
        """There is no such queue any more."""
        self.by_queue.pop(queue, None)

    def limit(self, most: int) -> None:
        """Keep counts for ``most`` queues from now on; those above are forgotten."""
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
            since = self._queued.pop(job.id, _NEVER) if self._queued else _NEVER
            if since == _NEVER:
                since = job.ctime // 1_000_000
                if job.delay:
                    since += int(job.delay) * 1000
            if counts.wait is None:
                counts.wait = Histogram(JOB_TIMES, MS)
            counts.wait.observe(now - since if now > since else 0)
            if job.retry:
                self._begin(self._delivered, job, now)
        elif event == ACKED:
            self._acked(job, reason, now)
        elif event == ADDED:
            if reason not in _MADE_HERE:
                counts = self.by_queue.get(job.queue) or self.of(job.queue)
                counts.added += 1
        elif event == QUEUED:
            if reason in _AGAIN:
                self.of(job.queue).requeued += 1
                self._delivered.pop(job.id, None)
                self._begin(self._queued, job, now)
            elif job.nacks or job.deliveries:  # imported, after it was delivered elsewhere
                self._begin(self._queued, job, now)
        elif event == NACKED:
            self.of(job.queue).nacked += 1
        elif event == DELETED and reason == BY_FASTACK:
            self._acked(job, reason, now)
        else:
            self._count_rare(event, job)

    def _begin(self, times: dict[bytes, int], job: Job, now: int) -> None:
        """It begins for ``job``, maybe once more. Only the latest times are kept."""
        times[job.id] = now
        if len(times) > self._most_times:
            del times[next(iter(times))]

    def _acked(self, job: Job, reason: Reason, now: int) -> None:
        since = self._delivered.pop(job.id, _NEVER)
        if self._queued:
            self._queued.pop(job.id, None)
        # Of one that this node does not hold it knows no queue.
        if reason == BY_PEER or (job.body is None and not job.queue):
            return
        counts = self.by_queue.get(job.queue) or self.of(job.queue)
        counts.acked += 1
        if since != _NEVER:
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
        self._queued.pop(job.id, None)
        self._delivered.pop(job.id, None)
