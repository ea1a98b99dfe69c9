"""The jobs that one node holds and all that happens to them there.

Owns the life of jobs. ADDJOB makes a job ACTIVE and queues it, at once or after its delay. GETJOB
takes it out of the queue (ACTIVE again). Unless it is acknowledged before its ``qtime``, it goes
back to its old place in the queue (at-least-once), or stays ACTIVE for good (retry 0,
at-most-once). ACKJOB ends it; its time to live ends it in any case.

What other nodes have to do with it is in the classes on top: who queues a job again in ``requeue``,
copies in ``replication``, the end of acknowledged jobs in ``collection``, jobs that move in
``federation``. They override the methods under "what other nodes have to hear". Files are
``filing``'s, clients ``node``'s.
"""

from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Final
from zlib import crc32

from disque_trio.core.discard import FREED_AT_ONCE, Discarded
from disque_trio.core.holders import HolderSets
from disque_trio.core.job import (
    ACKED,
    ACTIVE,
    FLAG_DELIVERED,
    FLAG_QUEUED_BEFORE,
    FLAG_RESERVED,
    FLAG_WILLQUEUE,
    GONE,
    JOB_OVERHEAD,
    QUEUED,
    UINT16_MAX,
    UINT32_MAX,
    WAIT_REPL,
    Job,
    JobIds,
)
from disque_trio.core.peers import Peers
from disque_trio.core.queue import PAUSED_IN, PAUSED_OUT, Queue
from disque_trio.core.queues import Queues
from disque_trio.core.registry import SHARD_SHIFT, Registry
from disque_trio.core.timers import JobTimers
from disque_trio.protocol.serialjob import deljob, encode_job, loadjob

if TYPE_CHECKING:
    from random import Random

TIME_ERROR: Final = 500  # ms; requeue times are spread by this so that holders do not act at once
WARNING_TIME: Final = 500  # ms before it queues a job again a node asks the other holders
MAX_EVICTIONS: Final = 1_000  # a command; so that lowering maxmemory does not stop the node
MANY_NAMES: Final = 1_000


class JobStore(Queues):
    """What one node holds.

    Args:
        id: the node's id, 40 lower-case hex characters.
        peers: the rest of the cluster.
        entropy: gives so many random bytes, for job ids.
        rng: for times that are spread on purpose.
        maxmemory: bytes of jobs and queues, 0: no limit.

    Attributes:
        asked_for: queues of which other nodes want jobs and got none, with the nodes' ids and until
            when that holds, ms.
        discarded: what was flushed and still takes memory; None: nothing.
        dump_number: of the dump that is under way, or of the last one (see ``filing``).
    """

    def __init__(
        self,
        id: bytes,
        peers: Peers,
        entropy: Callable[[int], bytes],
        rng: "Random",
        maxmemory: int,
    ) -> None:
        super().__init__(maxmemory)
        self.id = id
        self.peers = peers
        self.jobs: Registry[Job] = Registry()
        self.ids = JobIds(id, entropy)
        self.holders = HolderSets()
        self.dump_number = 0
        self.asked_for: dict[bytes, dict[bytes, int]] = {}
        self._me_alone: tuple[bytes, ...] = (id,)
        self.total_added = 0
        self.total_delivered = 0
        self.total_acked = 0
        self.total_requeued = 0
        self.total_expired = 0
        self.total_evicted = 0
        self._entropy = entropy
        self._random = rng.random
        self._timers = JobTimers()
        self.discarded: Discarded | None = None
        self._last_ctime = 0
        self._last_etime = 0
        self._last_retry = 0
        self._names: dict[bytes, bytes] = {}

    # ---- jobs: in ---------------------------------------------------------------------------

    def make_job(
        self, queue: bytes, body: bytes, repl: int, delay: int, retry: int, ttl: int
    ) -> Job:
        """Register a new job, ACTIVE and in no queue, and held by this node alone.

        ttl and retry are in s. Times beyond 32 bits of seconds are cut to that.
        """
        now = self.now
        ctime = now * 1_000_000
        if ctime <= self._last_ctime:
            ctime = self._last_ctime + 1
        self._last_ctime = ctime
        id = self.ids.make(ttl, retry)
        etime = now // 1000 + ttl
        if etime > UINT32_MAX:
            etime = UINT32_MAX
        # Most jobs have these of the one before. Uncompiled, each number is an object of 32 bytes.
        if etime == self._last_etime:
            etime = self._last_etime
        else:
            self._last_etime = etime
        if retry == self._last_retry:
            retry = self._last_retry
        else:
            if retry > UINT32_MAX:
                retry = UINT32_MAX
            self._last_retry = retry
        job = Job(
            id,
            queue,
            body,
            repl,
            ctime,
            etime,
            delay if delay < UINT32_MAX else UINT32_MAX,
            retry,
            self.dump_number,
        )
        self.jobs.shards[crc32(id) >> SHARD_SHIFT][id] = job
        self.jobs.count += 1
        self.memory.used += JOB_OVERHEAD + len(body)
        return job

    def place(self, job: Job) -> None:
        """Queue a new job, at once or after its delay, and note it in the journal."""
        self.total_added += 1
        if self.eventing:
            self.note("added", job, "" if job.delay else "add", new=True)
        if job.delay:
            job.qtime = self.now + job.delay * 1000
            self._schedule(job)
        else:
            self._put(job)
        if self.journaling:
            self.journal.append(loadjob(self.serialize(job)))
        if self.asked_for:
            self.offer(job.queue)

    def _register(self, job: Job) -> None:
        """Hold ``job``, which came from elsewhere."""
        self.jobs.put(job.id, job)
        if job.etime == self._last_etime:  # as in make_job
            job.etime = self._last_etime
        else:
            self._last_etime = job.etime
        if job.retry == self._last_retry:
            job.retry = self._last_retry
        else:
            self._last_retry = job.retry
        self.memory.used += JOB_OVERHEAD
        if job.body is not None:
            self.memory.used += len(job.body)

    def _one_name(self, name: bytes) -> bytes:
        """One object for the queue name of all jobs that have it."""
        queue = self.queues.get(name)
        if queue is not None:
            return queue.name
        known = self._names.get(name)
        if known is None:
            if len(self._names) >= MANY_NAMES:
                self._names.clear()
            known = self._names[name] = name
        return known

    def enqueue(self, job: Job, nack: bool, reason: str) -> bool:
        """Put ``job`` into its queue; False where it may not be.

        A job that is delivered at most once is never queued after it was delivered.
        ``nack`` says which counter a further delivery goes to, ``reason`` is for the event log.
        """
        if job.state != ACTIVE or (job.retry == 0 and job.flags & (FLAG_DELIVERED | FLAG_RESERVED)):
            return False
        if nack or job.flags & FLAG_QUEUED_BEFORE:
            if nack:
                job.nacks = min(job.nacks + 1, UINT16_MAX)
            else:
                job.deliveries = min(job.deliveries + 1, UINT16_MAX)
            self.total_requeued += 1
            self.tell_queued(job, nack)
        self._put(job)
        if self.eventing:
            self.note("queued", job, reason)
        if self.asked_for:
            self.offer(job.queue)
        return True

    def _put(self, job: Job) -> None:
        """Put ``job`` into its queue, to come back there after its retry time."""
        job.state = QUEUED
        job.flags |= FLAG_QUEUED_BEFORE
        self._postpone(job)
        queue = self.queues.get(job.queue)
        if queue is None:
            queue = self.create_queue(job.queue)
        queue.push(job)
        queue.atime = self.now
        if queue.waiters:
            self.ready.append(queue)

    def dequeue(self, job: Job) -> None:
        """Take ``job``, which must be queued, out of its queue."""
        queue = self.queues[job.queue]
        queue.remove(job)
        queue.atime = self.now
        job.state = ACTIVE

    # ---- jobs: out --------------------------------------------------------------------------

    def take_job(self, queue: Queue) -> Job:
        """Deliver the oldest job of ``queue``, which must not be empty."""
        self.total_delivered += 1
        job = self._hand_out(queue)
        if self.eventing:
            self.note("delivered", job)
        return job

    def _hand_out(self, queue: Queue) -> Job:
        """Take the oldest job of ``queue`` for a client, or for another node to give it to one."""
        job = queue.pop()
        queue.atime = self.now
        job.state = ACTIVE
        job.flags |= FLAG_DELIVERED
        if job.retry == 0:
            self.memory.evictable[job.id] = job
            if self.journaling:
                # It will never be delivered again: a restart must not even know it.
                self.journal.append(deljob(job.id))
        return job

    def get_jobs(self, names: list[bytes], count: int) -> list[Job]:
        """Deliver up to ``count`` jobs: one a queue, left to right, and again until enough."""
        found: list[Job] = []
        while True:
            before = len(found)
            for name in names:
                queue = self.queues.get(name)
                if queue is None:
                    queue = self.create_queue(name)
                elif queue.length and not queue.paused & PAUSED_OUT:
                    found.append(self.take_job(queue))
                    if queue.length == 0 and queue.imports is not None:
                        self.emptied(queue)
                    if len(found) == count:
                        return found
            if len(found) == before:
                return found

    def acknowledge(self, job: Job) -> bool:
        """``job`` was processed. False when that was known."""
        news = job.state != ACKED
        if news and self.eventing:
            self.note("acked", job, "client")
        if job.delivered is None and job.state in (ACTIVE, QUEUED):
            self.total_acked += 1
            self.delete(job)  # the only copy
            return True
        if news:
            self.total_acked += 1
            self._mark_acked(job)
        self.collect(job)
        return news

    def _mark_acked(self, job: Job) -> None:
        """``job``, which is not acknowledged yet, will never be delivered again."""
        if job.state == WAIT_REPL:
            self.overtaken(job)
        elif self.journaling:
            self.journal.append(deljob(job.id))
        if job.state == QUEUED:
            self.dequeue(job)
        job.state = ACKED
        job.confirmed = None
        self.memory.evictable[job.id] = job

    def delete(self, job: Job) -> None:
        """Forget ``job`` altogether."""
        if job.state == QUEUED:
            self.dequeue(job)
        if self.journaling and job.state == ACTIVE:
            self.journal.append(deljob(job.id))
        if job.state == WAIT_REPL:
            self.gave_up(job)
        job.state = GONE
        self._timers.remove(job)
        id = job.id
        del self.jobs.shards[crc32(id) >> SHARD_SHIFT][id]
        self.jobs.count -= 1
        self.memory.used -= JOB_OVERHEAD
        if job.body is not None:
            self.memory.used -= len(job.body)
        if self.memory.evictable:
            self.memory.evictable.pop(id, None)

    def work_on(self, job: Job) -> int:
        """A worker needs more time: its next delivery is ``retry`` from now. Returns retry, s."""
        if job.retry and job.state != WAIT_REPL:
            if job.state == QUEUED:
                self.dequeue(job)
            self._postpone(job)
            self.tell_working(job)
        if self.eventing:
            self.note("working", job)
        return job.retry

    # ---- what other nodes have to hear ------------------------------------------------------

    def tell_queued(self, job: Job, nack: bool) -> None:
        """``job`` was queued again: the other holders count it and push their own time back."""

    def tell_willqueue(self, job: Job) -> None:
        """``job`` will be queued again in WARNING_TIME, unless another holder knows better."""

    def tell_working(self, job: Job) -> None:
        """A worker asked for more time for ``job``."""

    def collect(self, job: Job) -> None:
        """Forget the acknowledged ``job``, if no other node can bring it back."""
        self.delete(job)

    def overtaken(self, job: Job) -> None:
        """``job``, which is in WAIT_REPL, was processed already: its producer may know."""

    def still_queued(self, job: Job) -> None:
        """``job`` waits in its queue for so long that other holders may want to queue it."""

    def gave_up(self, job: Job) -> None:
        """``job``, which is in WAIT_REPL, is about to be deleted: its producer has to know."""

    def offer(self, name: bytes) -> None:
        """A job of this node came into the queue ``name``; perhaps another node waits for it."""

    def emptied(self, queue: Queue) -> None:
        """The last job of ``queue``, which gets jobs from other nodes, was taken."""

    # ---- time -------------------------------------------------------------------------------

    def _retry_time(self, job: Job) -> int:
        """When ``job`` is queued again unless it is acknowledged, ms; 0: never."""
        if job.retry == 0:
            return 0
        return self.now + job.retry * 1000 + int(self._random() * TIME_ERROR) - TIME_ERROR // 2

    def _postpone(self, job: Job) -> None:
        """``job`` is queued (again) after its retry time at the earliest."""
        if job.retry:
            job.flags |= FLAG_WILLQUEUE
        job.qtime = self._retry_time(job)
        self._schedule(job)

    def _schedule(self, job: Job) -> None:
        """Look at ``job`` when it has to be queued or announced, or a second after it expires."""
        awake = job.etime * 1000 + 1000
        due = job.qtime
        if due:
            if job.delivered is not None:
                due -= self._ahead(job)
            if due < awake:
                awake = due
        if job.awake:
            self._timers.move(job, awake)
        else:
            self._timers.add(job, awake)

    def _ahead(self, job: Job) -> int:
        """How long before its time ``job`` is looked at, ms."""
        if job.delivered is None:
            return 0
        if job.state == QUEUED:
            # Say so before the others begin to ask.
            return min(2 * WARNING_TIME, job.retry * 500)
        return WARNING_TIME if job.flags & FLAG_WILLQUEUE else 0

    def job_due(self, job: Job) -> None:
        """The timers gave ``job``: expire it, queue it, or bring its acknowledge about."""
        over = self.now - job.etime * 1000
        # A delay just below the time to live leaves less time than the timers are late; such a
        # job still gets its place in the queue for the second until it is dropped.
        if over >= 1000 or (
            over >= 0 and (job.flags & FLAG_QUEUED_BEFORE or job.state in (WAIT_REPL, ACKED))
        ):
            self.total_expired += 1
            if self.eventing:
                self.note("expired", job)
            self.delete(job)
            return
        if job.state == ACKED:
            self.collect(job)
            return
        if job.state == WAIT_REPL:
            self._schedule(job)
            return
        if job.state == QUEUED:
            # Nobody took it for a whole retry period: it is where it should be.
            self.still_queued(job)
            self._postpone(job)
            return
        queue = self.queues.get(job.queue)
        if job.retry and queue is not None and queue.paused & PAUSED_IN:
            self._postpone(job)
        elif job.qtime - self._ahead(job) > self.now:
            self._schedule(job)  # it was looked at for another reason
        elif job.flags & FLAG_WILLQUEUE and job.delivered is not None:
            # If the clock jumped over the time for it, the others get theirs to answer now.
            job.flags &= ~FLAG_WILLQUEUE
            if job.qtime < self.now + WARNING_TIME // 2:
                job.qtime = self.now + WARNING_TIME
            self._schedule(job)
            self.tell_willqueue(job)
        elif not self.enqueue(job, False, "retry" if job.flags & FLAG_QUEUED_BEFORE else "delay"):
            job.qtime = 0
            self._schedule(job)

    # ---- memory -----------------------------------------------------------------------------

    def evict(self, wanted: int) -> None:
        """Delete acknowledged jobs and delivered at-most-once jobs, oldest first, and with no
        job left idle queues, until no more than ``wanted`` bytes are used."""
        memory = self.memory
        if memory.policy_acks:
            for job in list(islice(memory.evictable.values(), MAX_EVICTIONS)):
                if memory.used <= wanted:
                    break
                self.total_evicted += 1
                if self.eventing:
                    self.note("evicted", job)
                self.delete(job)
            if self.jobs.count == 0 and memory.used > wanted:
                self.evict_idle_queues(self.now)

    def renew_id(self) -> None:
        """Become another node: CLUSTER RESET HARD."""
        self.id = self._entropy(20).hex().encode()
        self.ids = JobIds(self.id, self._entropy)
        self._me_alone = (self.id,)

    # ---- the append-only file ---------------------------------------------------------------

    def serialize(self, job: Job) -> bytes:
        """``job`` as it stands in files."""
        return encode_job(
            job.id,
            job.state,
            job.flags & ~FLAG_RESERVED,
            job.repl,
            job.etime,
            job.ctime,
            job.delay,
            job.retry,
            job.nacks,
            job.deliveries,
            job.queue,
            b"" if job.body is None or job.state == ACKED else job.body,
            self.holders.encode(self._me_alone if job.delivered is None else job.delivered),
        )

    def flush(self) -> None:
        """Forget all jobs and queues; no client may be waiting."""
        self.journal.clear()
        self.flushed = True
        discarded = self.discarded = self.discarded or Discarded()
        discarded.add_lists(self._timers.hand_over())
        discarded.add_queues([self.queues])
        discarded.add_queues(self.queue_index.hand_over())
        discarded.add_jobs(self.jobs.hand_over())
        discarded.add_jobs([self.memory.hand_over()])
        self.queues = {}
        self.free_some()

    def free_some(self) -> None:
        """Free a part of what was flushed."""
        if self.discarded is not None and not self.discarded.free(FREED_AT_ONCE):
            self.discarded = None
