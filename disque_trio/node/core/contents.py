"""What UPDATEJOB changes of a job, and a change that is not known to all holders yet."""

from typing import Final

from disque_trio.eventlog import schema
from disque_trio.node.core.job import (
    ACTIVE,
    FLAG_DELIVERED,
    FLAG_PAUSED,
    FLAG_QUEUED_BEFORE,
    FLAG_WILLQUEUE,
    QUEUED,
    WAIT_REPL,
    Job,
)
from disque_trio.node.core.queue import PAUSED_IN
from disque_trio.node.core.requeue import Requeue
from disque_trio.node.core.store import TIME_ERROR, JobStore
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
        self.due = first_due(job)


class Spread:
    """A change that not all holders of its job have confirmed.

    Attributes:
        version: of the change. told: the nodes that hold the job, as far as is known. missing:
            those of them that have not confirmed it.
        before: what the job had before it.
        replies: of the clients that wait. deadline: until when, ms.
        due: when the missing ones are told again, ms. gap: ms until the time after that.
    """

    def __init__(self, version: int, missing: list[bytes], before: Contents, now: int) -> None:
        self.version = version
        self.told = list(missing)
        self.missing = missing
        self.before = before
        self.replies: list[Pending] = []
        self.deadline = now + PATIENCE
        self.due = now + FIRST_GAP
        self.gap = FIRST_GAP


def first_due(job: Job) -> int:
    """When ``job`` is queued first, ms since the epoch."""
    return job.ctime // 1_000_000 + int(job.delay) * 1000


def is_delivered(job: Job) -> bool:
    """Whether a client of this node has ``job``; one that handed it back has not, though the job
    pauses and is not queued yet."""
    return job.state == ACTIVE and job.flags & (FLAG_DELIVERED | FLAG_PAUSED) == FLAG_DELIVERED


class ContentsSetter:
    """Gives jobs of ``store`` other contents; ``requeue`` queues those whose delay is over."""

    def __init__(self, store: JobStore, requeue: Requeue) -> None:
        self._store = store
        self._requeue = requeue

    def set(self, job: Job, contents: Contents, asked: bool) -> None:
        """Change the fields of ``job``, and when it is looked at. ``asked``: a client asks this
        node for it."""
        store = self._store
        body = contents.body
        grows = len(body) - len(job.body or b"")
        store.machine.memory.used += grows
        if job.state == QUEUED:
            store.queues.by_name[job.queue].body_grew(grows)
        job.body = body
        job.etime = contents.etime
        retry_changed = job.retry != contents.retry
        job.retry = contents.retry
        created = job.ctime // 1_000_000
        delay_changed = contents.due != created + job.delay * 1000
        job.delay = max(contents.due - created + 999, 0) // 1000
        if job.state == WAIT_REPL:
            return
        if is_delivered(job):
            store.schedule(job)
        elif delay_changed:
            self._delay(job, contents.due, asked)
        elif (
            retry_changed
            and job.qtime
            and job.flags & (FLAG_QUEUED_BEFORE | FLAG_PAUSED) == FLAG_QUEUED_BEFORE
        ):
            store.postpone(job)
        else:
            store.schedule(job)

    def _delay(self, job: Job, due: int, asked: bool) -> None:
        """``job`` is to be queued first at ``due`` (ms), here or where it was added; one that
        pauses, at the node that was asked."""
        store = self._store
        now = store.machine.now
        if job.state == QUEUED and due > now:
            store.dequeue(job)
            if store.notes.eventing:
                store.notes.note(schema.DEQUEUED, job, schema.BY_COMMAND)
            job.flags &= ~FLAG_WILLQUEUE
            if job.nacks == 0 and job.deliveries == 0:
                job.flags &= ~FLAG_QUEUED_BEFORE
            job.qtime = due
        elif job.state == ACTIVE and job.flags & FLAG_PAUSED and not asked:
            job.flags |= FLAG_WILLQUEUE
            # If the one that was asked is gone by then, or has queued it already.
            job.qtime = due + TIME_ERROR if due > now else store.retry_time(job)
        elif job.state == ACTIVE and (
            job.flags & FLAG_PAUSED or not job.flags & FLAG_QUEUED_BEFORE
        ):
            queue = store.queues.by_name.get(job.queue)
            job.qtime = max(due, now)
            if due <= now and (queue is None or not queue.paused & PAUSED_IN):
                self._requeue.enqueue(job, False, schema.BY_DELAY)
                return
        elif job.state == ACTIVE and job.retry:
            # A copy: whoever queues it first has a retry time for it.
            job.flags |= FLAG_WILLQUEUE
            job.qtime = store.retry_time(job) + max(due - now, 0)
        store.schedule(job)
