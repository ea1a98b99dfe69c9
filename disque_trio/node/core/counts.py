"""Counts for metrics what happens to jobs, by queue, while somebody wants to know it.

What is counted are the events that ``events`` notes, so that nothing has to be counted at each
place once more. A queue has its own counts while it is one of the first ``most`` that were counted;
all others share one (``rest``), and so each event is in exactly one of them for good.

How long a job waited, and how long it was processed, is known from when it was queued again, and
delivered: both are kept for as many jobs as ``MOST_TIMES``, the latest ones.
"""

from typing import Final

from disque_trio.eventlog import schema
from disque_trio.eventlog.schema import Kind, Reason
from disque_trio.histogram import JOB_TIMES, MS, Histogram
from disque_trio.node.core.job import Job

MOST_TIMES: Final = 100_000
_NEVER: Final = -1
_AGAIN: Final = (schema.BY_RETRY, schema.BY_NACK, schema.BY_ENQUEUE, schema.BY_DISCONNECT)
_MADE_HERE: Final = (schema.BY_DEATH, schema.BY_REDRIVE)


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


class Times:
    """When something began for a job, ms, by its id: the latest ``MOST_TIMES``."""

    __slots__ = ("_most", "_times")

    def __init__(self, most: int = MOST_TIMES) -> None:
        self._times: dict[bytes, int] = {}
        self._most = most

    def __len__(self) -> int:
        return len(self._times)

    def begin(self, id: bytes, now: int) -> None:
        """It begins for the job ``id``, maybe once more."""
        times = self._times
        times[id] = now
        if len(times) > self._most:
            del times[next(iter(times))]

    def end(self, id: bytes) -> int:
        """When it began; -1: nobody knows. It is forgotten."""
        return self._times.pop(id, _NEVER)


class JobCounts:
    """The counts of one node.

    Args:
        most: how many queues have their own.

    Attributes:
        by_queue: the counts of queues that have their own. rest: of all others.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.by_queue: dict[bytes, QueueCounts] = {}
        self.rest = QueueCounts()
        self._queued = Times()  # again
        self._delivered = Times()

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
        if event == schema.DELIVERED:
            counts = self.of(job.queue)
            counts.delivered += 1
            since = self._queued.end(job.id)
            if since == _NEVER:
                since = job.ctime // 1_000_000 + int(job.delay) * 1000
            if counts.wait is None:
                counts.wait = Histogram(JOB_TIMES, MS)
            counts.wait.observe(max(now - since, 0))
            if job.retry:
                self._delivered.begin(job.id, now)
        elif event == schema.ADDED:
            if reason not in _MADE_HERE:
                self.of(job.queue).added += 1
        elif event == schema.QUEUED:
            if reason in _AGAIN:
                self.of(job.queue).requeued += 1
                self._delivered.end(job.id)
                self._queued.begin(job.id, now)
            elif job.nacks or job.deliveries:  # imported, after it was delivered elsewhere
                self._queued.begin(job.id, now)
        elif event == schema.ACKED or (event == schema.DELETED and reason == schema.BY_FASTACK):
            self._acked(job, reason, now)
        elif event == schema.NACKED:
            self.of(job.queue).nacked += 1
        else:
            self._count_rare(event, job)

    def _acked(self, job: Job, reason: Reason, now: int) -> None:
        self._queued.end(job.id)
        since = self._delivered.end(job.id)
        # Of one that this node does not hold it knows no queue.
        if reason == schema.BY_PEER or (job.body is None and not job.queue):
            return
        counts = self.of(job.queue)
        counts.acked += 1
        if since != _NEVER:
            if counts.processing is None:
                counts.processing = Histogram(JOB_TIMES, MS)
            counts.processing.observe(max(now - since, 0))

    def _count_rare(self, event: Kind, job: Job) -> None:
        counts = self.of(job.queue)
        if event == schema.EXPIRED:
            counts.expired += 1
        elif event == schema.EVICTED:
            counts.evicted += 1
        elif event == schema.DEAD:
            counts.dead += 1
        elif event == schema.CANCELLED:
            counts.cancelled += 1
        elif event != schema.DELETED and event != schema.EXPORTED:
            return
        self._queued.end(job.id)
        self._delivered.end(job.id)
