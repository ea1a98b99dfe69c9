"""The job store of one node: moves jobs through queues and timers, and counts their memory.

Owns the life of a job on one node. ADDJOB makes a job ACTIVE and queues it, at once or after its
delay. GETJOB takes it out of the queue (ACTIVE again). Unless it is acknowledged before its
``qtime``, it goes back to its old place in the queue (at-least-once), or stays ACTIVE for good
(retry 0, at-most-once). ACKJOB ends it; its time to live ends it in any case.

What several nodes do with a job together is built on this: its copies in ``replication``, who
queues it again in ``requeue``, its end in ``ack_gc``, its way to another node in ``federation``.

Freeing a million jobs takes some tenths of a second, during which a node would serve nobody. So a
flush replaces the containers of jobs and queues with new ones, and hands the old ones over to
``LazyFree``, which empties them bit by bit.
"""

from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Final

from disque_trio.eventlog import schema
from disque_trio.node.core.jobs.events import EventNotes
from disque_trio.node.core.jobs.job import (
    ACKED,
    ACTIVE,
    FLAG_DELIVERED,
    FLAG_PAUSED,
    FLAG_QUEUED_BEFORE,
    FLAG_TRAILER,
    FLAG_WATCHED,
    FLAG_WILLQUEUE,
    FLAGS_HOLDING,
    FLAGS_OF_ENDS,
    GONE,
    JOB_OVERHEAD,
    QUEUED,
    UINT32_MAX,
    WAIT_REPL,
    Job,
    JobIds,
    Taking,
    first_due,
)
from disque_trio.node.core.jobs.marked import FLAGS as FLAGS_MARKED
from disque_trio.node.core.jobs.marked import MarkingRegistry
from disque_trio.node.core.jobs.outcomes import RING_MASK, Outcomes
from disque_trio.node.core.jobs.progress import Progress
from disque_trio.node.core.jobs.replicas import Replicas
from disque_trio.node.core.jobs.timers import IN_LOT, JobTimers
from disque_trio.node.core.jobs.trailers import Trailers
from disque_trio.node.core.jobs.uniques import Uniques
from disque_trio.node.core.jobs.waits import ReplicationWaits
from disque_trio.node.core.queues.limits import Limits
from disque_trio.node.core.queues.queue import Queue
from disque_trio.node.core.queues.queues import Queues
from disque_trio.node.core.rpc.services import Services
from disque_trio.node.core.shared.policies import Policies
from disque_trio.protocol.serialjob import deljob
from disque_trio.protocol.trailer import Trailer

if TYPE_CHECKING:
    from mypy_extensions import i64

FREED_AT_ONCE: Final = 1_000  # entries; a fraction of a millisecond


class LazyFree:
    """Holds containers that nothing refers to any more, and empties them step by step."""

    def __init__(self) -> None:
        self._lists: list[list[Job]] = []
        self._jobs: list[dict[bytes, Job] | dict[bytes, Trailer]] = []
        self._queues: list[dict[bytes, Queue]] = []

    def add(
        self,
        lists: list[list[Job]],
        jobs: list[dict[bytes, Job]],
        queues: list[dict[bytes, Queue]],
    ) -> None:
        """Add lists of jobs, dicts of jobs by id, and dicts of queues (with their jobs) by name."""
        self._lists += lists
        self._jobs += [shard for shard in jobs if shard]
        self._queues += [shard for shard in queues if shard]

    def add_trailers(self, trailers: list[dict[bytes, Trailer]]) -> None:
        """Add dicts of trailers by the ids of their jobs."""
        self._jobs += [shard for shard in trailers if shard]

    def free(self, count: int) -> bool:
        """Free ``count`` entries. Return False when nothing is left."""
        while count > 0:
            if self._lists:
                jobs = self._lists[-1]
                if len(jobs) > count:
                    del jobs[-count:]
                    return True
                count -= len(jobs) + 1
                self._lists.pop()
            elif self._queues:
                queues = self._queues[-1]
                while queues and count > 0:
                    queue = queues.popitem()[1]
                    self._lists += queue.hand_over()
                    count -= 1
                if not queues:
                    self._queues.pop()
                    count -= 1
            elif self._jobs:
                found = self._jobs[-1]
                while found and count > 0:
                    found.popitem()
                    count -= 1
                if not found:
                    self._jobs.pop()
                    count -= 1
            else:
                return False
        return True


TIME_ERROR: Final = 500  # ms; requeue times are spread by this, so that holders act one by one
TOGETHER: Final = 62  # ms for each second of retry time, a 16th: jobs are announced at such times
WARNING_TIME: Final = 500  # ms; how long before it requeues a job a node asks the other holders
TIDIED: Final = 16  # shards of a registry visited per cron: all of them within seconds
MAX_EVICTIONS: Final = 1_000  # per command, so that a lower maxmemory does not stop the node


class JobStore:
    """Holds the jobs of one node and changes their states.

    Args:
        own: this node's id.
        policies: of the queues.
        entropy: returns that many random bytes, for job ids.

    Attributes:
        trailers: fields of jobs that C Disque does not have.
        queues: all queues.
        replicas: which nodes may hold which jobs.
        notes: the events of jobs.
        waits: the ADDJOBs that wait for copies.
        limits: keep the queues within their policies.
        uniques: the keys of ADDJOB UNIQUE.
        jobs: all jobs. timers: when to look at each.
        progress: notes what becomes of the jobs.
        outcomes: how jobs ended.
        ids: makes the ids of new jobs.
        evictable: jobs that may be deleted without breaking a promise, in the order in which they
            became so: acknowledged jobs, and at-most-once jobs that were delivered.
        evicts: whether maxmemory-policy is acks (otherwise noeviction).
        freeing: flushed objects that still take memory; None: there are none.
        random: returns a number from 0 to 1.
        dump_number: number of the dump under way, or of the last one (see ``aof_codec``).
        total_added, total_delivered, total_acked, total_requeued, total_evicted, total_updated:
            the counters in INFO stats.

    CPython 3.11 looks attributes up fast only in objects with at most 30 of them.
    """

    def __init__(
        self,
        services: Services,
        own: bytes,
        policies: Policies,
        entropy: Callable[[int], bytes],
    ) -> None:
        machine = self.machine = services.machine
        jobs = self.jobs = MarkingRegistry()
        trailers = self.trailers = Trailers(machine.memory, services.peers, jobs.marked)
        queues = self.queues = Queues(machine)
        replicas = self.replicas = Replicas(own, services)
        self.notes = EventNotes(machine, trailers)
        self.waits = ReplicationWaits(machine)
        self.policies = policies
        self.limits = Limits(services, policies, queues, trailers, replicas)
        self.progress = Progress(machine, trailers, replicas)
        self.outcomes = Outcomes(machine, trailers, self.progress)
        self.uniques = Uniques(services, replicas, trailers)
        self.timers = JobTimers()
        self.ids = JobIds(own, entropy)
        self.evictable: dict[bytes, Job] = {}
        self.evicts = True
        self.freeing: LazyFree | None = None
        self.dump_number = 0
        self.reset_stats()
        self._memory = machine.memory
        self.random = services.rng.random
        self._last_ctime = 0
        self._last_etime = 0
        self._last_retry = 0
        self._taking = Taking(0, 0)  # the last one: the jobs of a turn share it

    def reset_stats(self) -> None:
        """Set all counters to zero."""
        self.outcomes.total_expired = self.outcomes.total_cancelled = 0
        self.total_added = 0
        self.total_delivered = 0
        self.total_acked = 0
        self.total_requeued = 0
        self.total_evicted = 0
        self.total_updated = 0

    # ---- jobs: in ---------------------------------------------------------------------------

    def make_job(
        self, queue: bytes, body: bytes, repl: int, delay: int, retry: int, ttl: int
    ) -> Job:
        """Register a new job, ACTIVE, in no queue, and held by this node alone.

        ``ttl`` and ``retry`` are in seconds. Times that exceed 32 bits of seconds are cut off.
        """
        # The same as next_ctime, without a call.
        now = self.machine.now
        now_ms: i64 = now
        ctime: i64 = now_ms * 1_000_000
        if ctime <= self._last_ctime:
            ctime = self._last_ctime + 1
        self._last_ctime = ctime
        id = self.ids.make(ttl, retry)
        etime = now // 1000 + ttl
        if etime > UINT32_MAX:
            etime = UINT32_MAX
        # Most jobs share these with the job before. Uncompiled, each int is an object of 32 bytes.
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
        jobs = self.jobs
        jobs.shard_of(id)[id] = job
        jobs.count += 1
        if delay:
            jobs.marked.add(job)
        memory = self._memory
        memory.used += JOB_OVERHEAD + len(body)
        if memory.shares is not None:
            memory.shares.job_grew(id, queue, JOB_OVERHEAD + len(body))
        return job

    def next_ctime(self) -> int:
        """Return the ctime of a new job: ms since the epoch times 10**6, strictly increasing."""
        now_ms: i64 = self.machine.now
        ctime: i64 = now_ms * 1_000_000
        if ctime <= self._last_ctime:
            ctime = self._last_ctime + 1
        self._last_ctime = ctime
        return ctime

    def register(self, job: Job) -> bool:
        """Hold ``job``, which came from another node or from a file; return False if its id is
        already known."""
        id = job.id
        jobs = self.jobs
        shard = jobs.shard_of(id)
        if id in shard or (self.queues.pages.jobs and self.queues.pages.find(id)):
            return False
        shard[id] = job
        jobs.count += 1
        if job.delay or job.nacks or job.deliveries:
            jobs.marked.add(job)
        if job.etime == self._last_etime:  # as in make_job
            job.etime = self._last_etime
        else:
            self._last_etime = job.etime
        if job.retry == self._last_retry:
            job.retry = self._last_retry
        else:
            self._last_retry = job.retry
        memory = self._memory
        memory.used += JOB_OVERHEAD
        if job.body is not None:
            memory.used += len(job.body)
        if memory.shares is not None:
            memory.shares.job_grew(id, job.queue, JOB_OVERHEAD + len(job.body or b""))
        return True

    def put(self, job: Job) -> Queue:
        """Put ``job`` into its queue, and schedule its requeue after the retry time. Return the
        queue."""
        job.state = QUEUED
        flags = job.flags
        if self.progress.waiting:
            self.progress.waiting.pop(job.id, None)
        if flags & FLAGS_HOLDING:
            self.limits.release(job)
            flags = job.flags
        job.flags = flags | FLAG_QUEUED_BEFORE
        self.postpone(job)
        queues = self.queues
        queue = queues.by_name.get(job.queue)
        if queue is None:
            queue = queues.create(job.queue)
        queue.push(job)
        queue.atime = self.machine.now
        if queue.length == 1:
            queue.filled = self.machine.now
        if job.nacks or job.deliveries:
            queues.queued_again.note(job.id, self.machine.now)
        if queues.interests is not None:
            queues.interests.note(queue)
        if queue.waiters:
            queues.ready.append(queue)
        return queue

    def dequeue(self, job: Job) -> None:
        """Take ``job``, which must be queued, out of its queue."""
        queue = self.queues.by_name[job.queue]
        queue.remove(job)
        queue.atime = self.machine.now
        job.state = ACTIVE
        if job.awake >= IN_LOT:
            self.schedule(job)

    # ---- jobs: out --------------------------------------------------------------------------

    def take_job(self, queue: Queue) -> Job:
        """Deliver the first job of ``queue``, which must not be empty."""
        machine = self.machine
        self.total_delivered += 1
        queue.wanted = machine.now
        job = self.hand_out(queue)
        traffic = queue.traffic
        traffic.delivered += 1
        if traffic.delivered >= traffic.wait_at:
            traffic.waited(machine.now - self._waits_since(job), machine.now)
        if job.flags & FLAG_TRAILER:
            self.uniques.start(job)
        if job.retry and job.qtime - machine.now < job.retry * 500:
            # It waited so long that a holder, maybe this one, would soon queue it again for another
            # worker. C Disque lets that happen.
            self.postpone(job)
            self.replicas.tell_working(job)
        client = machine.client
        if client is not None:
            taking = self._taking
            if taking.last_seen != machine.now or taking.client != client.id:
                taking = self._taking = Taking(client.id, machine.now)
            job.taking = taking
        if job.delivered is not None and job.retry:
            self.replicas.places.leaves(job, machine.now)
        if self.policies.count:
            if job.retry and self.policies.of(job.queue).attempts:
                self.trailers.count_attempt(job, self.replicas.own)
            if self.policies.limited:
                self.limits.delivered(job)
        progress = self.progress
        if progress.recording and job.retry:
            progress.taken.append(job.id)
            if job.flags & FLAG_TRAILER:
                progress.note(job)  # it may count the deliveries
        if self.notes.noting:
            self.notes.note(schema.DELIVERED, job)
        return job

    def _waits_since(self, job: Job) -> int:
        """When ``job``, which was queued until now, was due or queued again, in ms."""
        # A client may have left before it got it: it was queued again then, and nothing counts it.
        since = self.queues.queued_again.at(job.id)
        if since == 0 and (job.nacks or job.deliveries):
            # Too many came again since then: about when it was queued, or was to be queued again.
            since = int(job.qtime - job.retry * 1000)
        return max(first_due(job), since)

    def hand_out(self, queue: Queue, job: Job | None = None) -> Job:
        """Take ``job``, or the first one, of ``queue`` for a client, here or on another node: that
        one tells the other holders. While the file lags there must be one that is not at-most-once:
        its end could not be written."""
        machine = self.machine
        if job is None:
            job = queue.pop_with_retry() if machine.lagging else queue.pop()
        else:
            queue.remove(job)
        queue.atime = machine.now
        job.state = ACTIVE
        job.flags |= FLAG_DELIVERED
        if job.awake >= IN_LOT:
            self.schedule(job)
        if job.retry:
            self.jobs.marked.add(job)
        else:
            self.evictable[job.id] = job
            if machine.journaling:
                if job.flags & FLAG_TRAILER:
                    self.uniques.outlives(job)
                # It will never be delivered again: a restart must not even know it.
                machine.journal.append(deljob(job.id))
        return job

    def in_hand_for(self, job: Job) -> int:
        """For how many ms more a client of this node has ``job``; 0 or less: none has it."""
        if job.state != ACTIVE or job.taking is None:
            return 0
        if job.flags & (FLAG_DELIVERED | FLAG_PAUSED) != FLAG_DELIVERED:
            return 0
        return int(job.taking.last_seen + job.retry * 1000 - self.machine.now)

    def count_acked(self, job: Job) -> None:
        """Count ``job``, which a client of this node acknowledged."""
        self.total_acked += 1
        queue = self.queues.by_name.get(job.queue)
        if queue is None:
            if not job.queue:
                return  # only its id is known here
            traffic = self.queues.traffic(job.queue)
        else:
            traffic = queue.traffic
        traffic.acked += 1
        if traffic.acked >= traffic.processing_at:
            taking = job.taking
            if (
                taking is not None
                and job.state == ACTIVE
                and job.flags & (FLAG_DELIVERED | FLAG_PAUSED) == FLAG_DELIVERED
            ):
                traffic.processed(self.machine.now - taking.since, self.machine.now)

    def mark_acked(self, job: Job) -> None:
        """Mark ``job``, not acknowledged so far, so that it is never delivered again."""
        more = job.flags & FLAGS_OF_ENDS
        if more and more & FLAG_TRAILER:
            self.uniques.ended(job)
        if job.state == WAIT_REPL:
            # It was processed before it had its copies: its producer may get its reply.
            self.waits.end(job, b"+" + job.id + b"\r\n")
            self.total_added += 1
            self.queues.added(self.queues.traffic(job.queue), job)
            if self.notes.noting:
                self.notes.note(schema.ADDED, job, new=True)
        elif self.machine.journaling:
            self.machine.journal.append(deljob(job.id))
        if job.state == QUEUED:
            self.dequeue(job)
        if self.progress.waiting:
            self.progress.waiting.pop(job.id, None)
        outcomes = self.outcomes
        if more:
            if more & FLAGS_HOLDING:
                self.limits.release(job)
            outcomes.acked(job)
        else:  # what ``acked`` does, without a call
            outcomes.ring[outcomes.at] = job.id
            outcomes.at = (outcomes.at + 1) & RING_MASK
        job.state = ACKED
        job.confirmed = None
        self.evictable[job.id] = job

    def delete(self, job: Job) -> None:
        """Remove ``job`` from memory."""
        if job.state == QUEUED:
            self.dequeue(job)
        more = job.flags & FLAGS_OF_ENDS
        if more and more & FLAG_TRAILER:
            self.uniques.left(job)
        if self.machine.journaling and (
            job.state == ACTIVE or (job.state == ACKED and more & FLAG_TRAILER)
        ):
            self.machine.journal.append(deljob(job.id))
        if job.state == WAIT_REPL:
            self.waits.job_removed(job)
        job.state = GONE
        self.timers.remove(job)
        id = job.id
        jobs = self.jobs
        jobs.marked.drop(id)
        del jobs.shard_of(id)[id]
        jobs.count -= 1
        body = job.body
        memory = self._memory
        memory.used -= JOB_OVERHEAD if body is None else JOB_OVERHEAD + len(body)
        if memory.shares is not None:
            memory.shares.job_grew(id, job.queue, -JOB_OVERHEAD - len(body or b""))
        if self.evictable:
            self.evictable.pop(id, None)
        self.queues.queued_again.pop(id)
        if self.progress.waiting:
            self.progress.waiting.pop(id, None)
        if more:
            if more & FLAGS_HOLDING:
                self.limits.release(job)
            self.trailers.drop(job)
            if more & FLAG_WATCHED:
                self.outcomes.lost(job)

    def let_go(self, job: Job) -> None:
        """Remove ``job`` from memory, although it lives, or may live, elsewhere: it keeps its
        key."""
        entry = self.uniques.of(job)
        self.trailers.drop(job)
        self.delete(job)
        if entry is not None:
            self.uniques.note(entry)
            self.uniques.may_go(entry)

    def expire(self, job: Job) -> None:
        """Remove ``job``, whose time to live is over."""
        self.outcomes.total_expired += 1
        if self.notes.noting:
            self.notes.note(schema.EXPIRED, job)
        self.outcomes.expired(job)
        self.delete(job)

    # ---- time -------------------------------------------------------------------------------

    def retry_time(self, job: Job) -> int:
        """Return when to requeue ``job`` unless acknowledged, in ms since the epoch; 0: never."""
        if job.retry == 0:
            return 0
        spread = int(self.random() * TIME_ERROR) - TIME_ERROR // 2
        return self.machine.now + job.retry * 1000 + spread

    def postpone(self, job: Job) -> None:
        """Put off the next queueing of ``job`` until its retry time has passed."""
        if job.retry:
            job.flags |= FLAG_WILLQUEUE
        job.qtime = self.retry_time(job)
        self.schedule(job)

    def queue_unless_held(self, job: Job, at: int) -> None:
        """Queue ``job`` at ``at`` (ms), unless another holder that is asked before has it. No
        client is known to have had it meanwhile, so that does not count as a further delivery."""
        job.flags = (job.flags & ~FLAG_QUEUED_BEFORE) | FLAG_WILLQUEUE
        job.qtime = at
        self.schedule(job)

    def queue_soon_unless_held(self, job: Job) -> None:
        """The same in a second, or when ``job`` is due if that is earlier."""
        self.queue_unless_held(job, min(job.qtime, self.machine.now + 2 * WARNING_TIME))

    def schedule(self, job: Job) -> None:
        """Set the timer of ``job``: when to queue or announce it, or a second after it expires."""
        awake = job.etime * 1000 + 1000
        due = job.qtime
        if due:
            if job.delivered is not None:
                due -= self.ahead(job)
            if due < awake:
                awake = due
        if job.flags & FLAGS_MARKED or job.delay or job.nacks or job.deliveries:
            self.jobs.marked.add(job)
        if job.awake:
            self.timers.move(job, awake)
        else:
            self.timers.add(job, awake)

    def ahead(self, job: Job) -> int:
        """Return how long before ``qtime`` to look at ``job``, in ms."""
        if job.delivered is None:
            return 0
        if job.state == QUEUED:
            # Announce it before the others begin to ask, and together with other jobs: at times
            # that are the same for all.
            lead = min(2 * WARNING_TIME, job.retry * 500)
            return lead + (job.qtime - lead) % (job.retry * TOGETHER + 1)
        return WARNING_TIME if job.flags & FLAG_WILLQUEUE else 0

    def awake_of(self, job: Job) -> int:
        """When the timers look at ``job``, or at the lot that it is in, in ms; 0: never."""
        return int(job.qtime) - self.ahead(job) if job.awake >= IN_LOT else int(job.awake)

    def cron(self, now: int) -> None:
        """Do the periodic work at ``now``."""
        self.jobs.tidy(TIDIED)
        self.outcomes.cron(now)
        self.uniques.sweep(TIDIED)

    # ---- memory -----------------------------------------------------------------------------

    def evict(self, wanted: int) -> None:
        """Delete acknowledged jobs and delivered at-most-once jobs, oldest first, and idle queues
        if no job is left, until at most ``wanted`` bytes are used."""
        if not self.evicts:
            return
        memory = self._memory
        for job in list(islice(self.evictable.values(), MAX_EVICTIONS)):
            if memory.used <= wanted:
                break
            self.total_evicted += 1
            if self.notes.noting:
                self.notes.note(schema.EVICTED, job)
            if job.state == ACKED:
                # Other holders may not know it yet, and give it to this node again.
                self.outcomes.gone.add(job.id)
            self.delete(job)
        if memory.used > wanted:
            self.outcomes.kept.make_room(wanted)
            self.outcomes.cancelled.make_room(wanted)
        if self.jobs.count == 0 and memory.used > wanted:
            self.queues.evict_idle()

    def flush(self) -> None:
        """Forget all jobs and queues; no client may be waiting for one."""
        freeing = self.freeing = self.freeing or LazyFree()
        jobs = [*self.jobs.hand_over(), self.evictable]
        freeing.add_trailers(self.trailers.hand_over())
        jobs += self.jobs.marked.hand_over()
        self.uniques.flush()
        self.limits.flush()
        freeing.add(self.timers.hand_over(), jobs, self.queues.hand_over())
        self.evictable = {}
        self._memory.clear()
        self.outcomes.flush()
        self.free_some()

    def free_some(self) -> None:
        """Free some of the flushed jobs and queues."""
        if self.freeing is not None and not self.freeing.free(FREED_AT_ONCE):
            self.freeing = None
