"""The fields of a job that UPDATEJOB, QMOVE and ADDJOB REPLACE change."""

from disque_trio.eventlog import schema
from disque_trio.node.core.federation.exports import Exports
from disque_trio.node.core.jobs.job import (
    ACTIVE,
    FLAG_PAUSED,
    FLAG_QUEUED_BEFORE,
    FLAG_WILLQUEUE,
    FLAGS_HOLDING,
    FLAGS_PRIORITY,
    JOB_OVERHEAD,
    QUEUED,
    UINT32_MAX,
    WAIT_REPL,
    Job,
    first_due,
    is_delivered,
)
from disque_trio.node.core.lifecycle.requeue import Requeue, why_due
from disque_trio.node.core.queues.core import Core
from disque_trio.node.core.queues.queue import PAUSED_IN
from disque_trio.node.core.queues.store import TIME_ERROR
from disque_trio.protocol.trailer import Trailer
from disque_trio.respserver.memory import MEMORY


class Contents:
    """The fields of a job that a change sets.

    Attributes:
        queue: its name.
        body: as the producer sent it.
        retry: s.
        etime: when the job expires, in s since the epoch.
        due: when it is first queued, in ms since the epoch.
        priority: as flags of the job.
        group, note, headers: see ``Trailer``.

    Args:
        trailer: of ``job``; None: it has none.
    """

    __slots__ = ("body", "due", "etime", "group", "headers", "note", "priority", "queue", "retry")

    def __init__(self, job: Job, trailer: Trailer | None) -> None:
        self.queue = job.queue
        self.body = job.body or b""
        self.retry = int(job.retry)
        self.etime = int(job.etime)
        self.due = first_due(job)
        self.priority = job.flags & FLAGS_PRIORITY
        self.group = b"" if trailer is None else trailer.group
        self.note = b"" if trailer is None else trailer.note
        self.headers = [] if trailer is None else trailer.headers

    def moves(self, job: Job, trailer: Trailer) -> bool:
        """Whether they give ``job``, with its ``trailer``, another place in another queue, or in
        its own."""
        return (
            self.queue != job.queue
            or self.priority != job.flags & FLAGS_PRIORITY
            or self.group != trailer.group
        )


class ContentsSetter:
    """Gives jobs of ``store`` new contents; ``requeue`` queues those whose delay is over, and
    ``exports`` offers them to nodes that want them."""

    def __init__(self, core: Core, requeue: Requeue, exports: Exports) -> None:
        self._store = core.store
        self._requeue = requeue
        self._exports = exports

    def move(self, job: Job, contents: Contents) -> None:
        """Give ``job`` the queue, priority and group of ``contents``; call ``set`` next. A queued
        job goes to its place there."""
        store = self._store
        name = contents.queue
        if job.flags & FLAGS_HOLDING:
            store.limits.release(job)
        trailer = store.trailers.want(job)
        first = trailer.added_to or job.queue
        trailer.added_to = b"" if first == name else first
        store.trailers.recount(job, trailer)
        queues = store.queues
        job_queued = job.state == QUEUED
        if job_queued:
            store.dequeue(job)
        shares = store.machine.memory.shares
        if shares is not None and shares.counts(job.id):
            size = JOB_OVERHEAD + len(job.body or b"")
            if trailer.shared:
                size += trailer.counted
            shares.add(job.queue, MEMORY, -size)
            shares.add(name, MEMORY, size)
        job.queue = queues.one_name(name)
        job.flags = job.flags & ~FLAGS_PRIORITY | contents.priority
        trailer.group = contents.group
        if job_queued:
            job.state = QUEUED
            queue = queues.by_name.get(name)
            if queue is None:
                queue = queues.create(name)
            queue.push(job)
            queue.atime = store.machine.now
            if queue.length == 1:
                queue.filled = store.machine.now
            if queues.interests is not None:
                queues.interests.note(queue)
            if queue.waiters:
                queues.ready.append(queue)

    def offer(self, job: Job) -> None:
        """Offer ``job``, which was moved and set, to nodes that may want it."""
        if job.state == QUEUED and self._exports.asked_for:
            self._exports.offer(job.queue)

    def set(self, job: Job, contents: Contents, asked: bool) -> None:
        """Change the fields of ``job``, and reschedule it. ``asked``: a client asked this node
        to."""
        store = self._store
        body = contents.body
        grows = len(body) - len(job.body or b"")
        memory = store.machine.memory
        memory.used += grows
        if memory.shares is not None:
            memory.shares.job_grew(job.id, job.queue, grows)
        if job.state == QUEUED:
            store.queues.by_name[job.queue].body_grew(grows)
        job.body = body
        job.etime = contents.etime
        retry_changed = job.retry != contents.retry
        job.retry = contents.retry
        created = job.ctime // 1_000_000
        delay_changed = contents.due != created + job.delay * 1000
        delay = max(contents.due - created + 999, 0) // 1000
        job.delay = delay if delay <= UINT32_MAX else UINT32_MAX  # another node may say anything
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
        """Schedule the first queueing of ``job`` for ``due`` (ms), here or where it was added. If
        it pauses, the node that was asked queues it."""
        store = self._store
        now = store.machine.now
        if job.state == QUEUED and due > now:
            store.dequeue(job)
            if store.notes.noting:
                store.notes.note(schema.DEQUEUED, job, schema.BY_COMMAND)
            job.flags &= ~FLAG_WILLQUEUE
            if job.nacks == 0 and job.deliveries == 0:
                job.flags &= ~FLAG_QUEUED_BEFORE
            job.qtime = due
        elif job.state == ACTIVE and job.flags & FLAG_PAUSED and not asked:
            job.flags |= FLAG_WILLQUEUE
            # In case the node that was asked is gone by then, or has queued it already.
            job.qtime = due + TIME_ERROR if due > now else store.retry_time(job)
        elif job.state == ACTIVE and (
            job.flags & FLAG_PAUSED or not job.flags & FLAG_QUEUED_BEFORE
        ):
            queue = store.queues.by_name.get(job.queue)
            job.qtime = max(due, now)
            if due <= now and (queue is None or not queue.paused & PAUSED_IN):
                self._requeue.enqueue(job, False, why_due(job))
                return
        elif job.state == ACTIVE and job.retry:
            # A copy: the node that queues it first has a whole retry time.
            job.flags |= FLAG_WILLQUEUE
            job.qtime = store.retry_time(job) + max(due - now, 0)
        store.schedule(job)
