"""The jobs and queues of a node and all that can happen to them.

Owns the life of jobs. ADDJOB makes a job ACTIVE and queues it, at once or after its delay. GETJOB
takes it out of the queue (ACTIVE again). Unless it is acknowledged before its ``qtime``, it goes
back to its old place in the queue (at-least-once), or stays ACTIVE for good (retry 0,
at-most-once). ACKJOB ends it; its time to live ends it in any case.

Clients are ``node``'s; a queue that got a job while clients wait for one is noted in ``ready``.
"""

from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING
from zlib import crc32

from disque_trio.core.job import (
    ACKED,
    ACTIVE,
    FLAG_DELIVERED,
    FLAG_QUEUED_BEFORE,
    GONE,
    JOB_OVERHEAD,
    QUEUED,
    UINT16_MAX,
    UINT32_MAX,
    Job,
    JobIds,
)
from disque_trio.core.memory import Memory
from disque_trio.core.peers import Peers
from disque_trio.core.queue import PAUSED_IN, PAUSED_OUT, QUEUE_OVERHEAD, Queue
from disque_trio.core.registry import SHARD_SHIFT, Registry
from disque_trio.core.timers import JobTimers
from disque_trio.protocol.serialjob import (
    decode_fields,
    deljob,
    encode_job,
    encode_nodes,
    loadjob,
)

if TYPE_CHECKING:
    from random import Random

TIME_ERROR = 500  # ms; requeue times are spread by this so that holders do not act at once
MAX_EVICTIONS = 1_000  # a command; so that lowering maxmemory does not stop the node


class JobStore:
    """What one node holds.

    Args:
        id: the node's id, 40 lower-case hex characters.
        peers: the rest of the cluster.
        entropy: gives so many random bytes, for job ids.
        rng: for times that are spread on purpose.
        maxmemory: bytes of jobs and queues, 0: no limit.

    Attributes:
        now: time of the current turn, ms since the epoch.
        ready: queues that may have both jobs and waiting clients.
        journaling: note in ``journal`` what has to be in an append-only file.
        journal: records for the append-only file; the driver takes them once a turn, before the
            replies leave.
        flushed: everything was forgotten: what the file has is void. The driver resets it.
        dump_number: of the dump that is under way, or of the last one.
    """

    def __init__(
        self,
        id: bytes,
        peers: Peers,
        entropy: Callable[[int], bytes],
        rng: "Random",
        maxmemory: int,
    ) -> None:
        self.id = id
        self.peers = peers
        self.now = 0
        self.jobs: Registry[Job] = Registry()
        self.queues: dict[bytes, Queue] = {}
        self.queue_index: Registry[Queue] = Registry()
        self.memory = Memory(maxmemory)
        self.ids = JobIds(id, entropy)
        self.ready: list[Queue] = []
        self.journaling = False
        self.journal: list[bytes] = []
        self.flushed = False
        self.dump_number = 0
        self._my_nodes = encode_nodes([id])
        self.total_added = 0
        self.total_delivered = 0
        self.total_acked = 0
        self.total_requeued = 0
        self.total_expired = 0
        self.total_evicted = 0
        self._entropy = entropy
        self._random = rng.random
        self._timers = JobTimers()
        self._last_ctime = 0
        self._idle_cursor = 0

    # ---- jobs: in ---------------------------------------------------------------------------

    def add_job(
        self, queue: bytes, body: bytes, repl: int, delay: int, retry: int, ttl: int
    ) -> Job:
        """Make a job, held by this node alone, and queue it at once or after ``delay`` s.

        ttl and retry are in s. Times beyond 32 bits of seconds are cut to that.
        """
        now = self.now
        ctime = now * 1_000_000
        if ctime <= self._last_ctime:
            ctime = self._last_ctime + 1
        self._last_ctime = ctime
        etime = now // 1000 + ttl
        job = Job(
            self.ids.make(ttl, retry),
            queue,
            body,
            repl,
            ctime,
            etime if etime < UINT32_MAX else UINT32_MAX,
            delay if delay < UINT32_MAX else UINT32_MAX,
            retry if retry < UINT32_MAX else UINT32_MAX,
            self.dump_number,
        )
        id = job.id
        self.jobs.shards[crc32(id) >> SHARD_SHIFT][id] = job
        self.jobs.count += 1
        self.memory.used += JOB_OVERHEAD + len(body)
        self.total_added += 1
        if delay:
            job.qtime = now + job.delay * 1000
            self._schedule(job)
        else:
            self._put(job)
        if self.journaling:
            self.journal.append(loadjob(self.serialize(job)))
        return job

    def enqueue(self, job: Job, nack: bool) -> bool:
        """Put ``job`` into its queue; False where it may not be.

        A job that is delivered at most once is never queued after it was delivered.
        ``nack`` says which counter a further delivery goes to.
        """
        if job.state != ACTIVE or (job.retry == 0 and job.flags & FLAG_DELIVERED):
            return False
        if nack or job.flags & FLAG_QUEUED_BEFORE:
            if nack:
                job.nacks = min(job.nacks + 1, UINT16_MAX)
            else:
                job.deliveries = min(job.deliveries + 1, UINT16_MAX)
            self.total_requeued += 1
            self.peers.tell_queued(job, nack)
        self._put(job)
        return True

    def _put(self, job: Job) -> None:
        """Put ``job`` into its queue, to come back there after its retry time."""
        job.state = QUEUED
        job.flags |= FLAG_QUEUED_BEFORE
        job.qtime = self._retry_time(job)
        self._schedule(job)
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
        job = queue.pop()
        queue.atime = self.now
        job.state = ACTIVE
        job.flags |= FLAG_DELIVERED
        self.total_delivered += 1
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
                    if len(found) == count:
                        return found
            if len(found) == before:
                return found

    def acknowledge(self, job: Job) -> bool:
        """``job`` was processed. False when that was known."""
        known = job.state == ACKED
        if not known:
            if job.state == QUEUED:
                self.dequeue(job)
            job.state = ACKED
            self.total_acked += 1
            if self.journaling:
                self.journal.append(deljob(job.id))
        if job.delivered is None:
            self.delete(job)  # the only copy
        else:
            self.memory.evictable[job.id] = job
            self.peers.collect(job)
        return not known

    def delete(self, job: Job) -> None:
        """Forget ``job`` altogether."""
        if job.state == QUEUED:
            self.dequeue(job)
        if self.journaling and job.state == ACTIVE:
            self.journal.append(deljob(job.id))
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
        if job.retry:
            if job.state == QUEUED:
                self.dequeue(job)
            job.qtime = self._retry_time(job)
            self._schedule(job)
            self.peers.tell_working(job)
        return job.retry

    # ---- time -------------------------------------------------------------------------------

    def _retry_time(self, job: Job) -> int:
        """When ``job`` is queued again unless it is acknowledged, ms; 0: never."""
        if job.retry == 0:
            return 0
        return self.now + job.retry * 1000 + int(self._random() * TIME_ERROR) - TIME_ERROR // 2

    def _schedule(self, job: Job) -> None:
        """Look at ``job`` when it has to be queued, or a second after it expires."""
        awake = job.etime * 1000 + 1000
        if 0 < job.qtime < awake:
            awake = job.qtime
        if job.awake:
            self._timers.move(job, awake)
        else:
            self._timers.add(job, awake)

    def job_due(self, job: Job) -> None:
        """The timers gave ``job``: expire it or queue it."""
        over = self.now - job.etime * 1000
        # A delay just below the time to live leaves less time than the timers are late; such a
        # job still gets its place in the queue for the second until it is dropped.
        if over >= 1000 or (over >= 0 and job.flags & FLAG_QUEUED_BEFORE):
            self.total_expired += 1
            self.delete(job)
            return
        if job.state == QUEUED:
            # Nobody took it for a whole retry period: it is where it should be.
            job.qtime = self._retry_time(job)
            self._schedule(job)
            return
        queue = self.queues.get(job.queue)
        if job.retry and queue is not None and queue.paused & PAUSED_IN:
            job.qtime = self._retry_time(job)
            self._schedule(job)
        elif not self.enqueue(job, False):
            job.qtime = 0
            self._schedule(job)

    # ---- queues -----------------------------------------------------------------------------

    def create_queue(self, name: bytes) -> Queue:
        """Make the queue ``name``, which must not exist."""
        queue = self.queues[name] = Queue(name, self.now)
        self.queue_index.put(name, queue)
        self.memory.used += QUEUE_OVERHEAD + len(name)
        return queue

    def destroy_queue(self, queue: Queue) -> None:
        """Forget ``queue``, which must be empty and have no client waiting."""
        del self.queues[queue.name]
        self.queue_index.drop(queue.name)
        self.memory.used -= QUEUE_OVERHEAD + len(queue.name)

    def pause(self, name: bytes, paused: int) -> None:
        """Set the pause bits of the queue ``name``, which is made if need be."""
        queue = self.queues.get(name)
        if queue is None:
            queue = self.create_queue(name)
        queue.paused = paused
        queue.atime = self.now
        if queue.waiters:
            self.ready.append(queue)

    def evict_idle_queues(self, now: int, steps: int = 200) -> int:
        """Forget queues that are empty, unpaused, unwatched and idle; visits about ``steps``.

        Idle means 300 s, 10 s above 75% of the memory, 2 s above 95%. Goes on while at least one
        in ten goes. Returns how many went.
        """
        self.now = now
        gone = 0
        while True:
            level = self.memory.level()
            idle = 300_000 if level == 0 else 10_000 if level == 1 else 2_000
            self._idle_cursor, queues = self.queue_index.scan(self._idle_cursor, steps)
            here = 0
            for queue in queues:
                if self._is_idle(queue, idle):
                    self.destroy_queue(queue)
                    here += 1
            gone += here
            if here * 10 < steps:
                return gone

    def _is_idle(self, queue: Queue, idle: int) -> bool:
        return (
            queue.length == 0
            and not queue.waiters
            and not queue.paused
            and self.now - queue.atime >= idle
        )

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
                self.delete(job)
            if self.jobs.count == 0 and memory.used > wanted:
                self.evict_idle_queues(self.now)

    def renew_id(self) -> None:
        """Become another node: CLUSTER RESET HARD."""
        self.id = self._entropy(20).hex().encode()
        self.ids = JobIds(self.id, self._entropy)

    # ---- the append-only file ---------------------------------------------------------------

    def serialize(self, job: Job) -> bytes:
        """``job`` as it stands in files."""
        return encode_job(
            job.id,
            job.state,
            job.flags,
            job.repl,
            job.etime,
            job.ctime,
            job.delay,
            job.retry,
            job.nacks,
            job.deliveries,
            job.queue,
            job.body or b"",
            self._my_nodes if job.delivered is None else encode_nodes(job.delivered),
        )

    def load_job(self, data: bytes, queue_it: bool) -> bool:
        """Take a job that a file has, unless it has expired or is known.

        The file tells that the job was taken, not whether it was delivered since. So an
        at-least-once job is queued after a whole retry time, and an at-most-once job only when its
        delay is not over, for then it cannot have been queued before. ``queue_it`` says that the
        file was written when nothing happened any more: jobs that were queued are queued again.

        Raises:
            SerialJobError: it is not a job.
        """
        (
            id,
            state,
            _,
            flags,
            repl,
            etime,
            ctime,
            delay,
            retry,
            nacks,
            deliveries,
            name,
            body,
            nodes,
        ) = decode_fields(data)
        now = self.now
        shard = self.jobs.shards[crc32(id) >> SHARD_SHIFT]
        if etime * 1000 <= now or id in shard:
            return False
        queue = self.queues.get(name)
        if queue is not None:
            name = queue.name  # one object for all its jobs
        job = Job(id, name, body, repl, ctime, etime, delay, retry, self.dump_number)
        job.flags = flags
        job.nacks = nacks
        job.deliveries = deliveries
        if len(nodes) > 1:
            job.delivered = nodes
        shard[id] = job
        self.jobs.count += 1
        self.memory.used += JOB_OVERHEAD + len(body)
        if state == ACKED:
            job.state = ACKED
            self.memory.evictable[id] = job
        elif state == QUEUED and queue_it:
            self._put(job)
            return True
        elif delay and now < (queued_first := ctime // 1_000_000 + delay * 1000):
            # A clock that has gone back since must not make the delay longer.
            job.qtime = min(queued_first, now + delay * 1000)
        else:
            job.qtime = self._retry_time(job)
            if retry == 0:
                job.flags |= FLAG_DELIVERED
                self.memory.evictable[id] = job
        self._schedule(job)
        return True

    def forget_job(self, id: bytes) -> None:
        """A file says that the job ``id`` was done with."""
        job = self.jobs.get(id)
        if job is not None:
            self.delete(job)

    def start_dump(self) -> None:
        """Begin to dump all jobs: none is in the dump yet."""
        self.dump_number += 1

    def dump_shard(self, number: int, room: int) -> tuple[list[bytes], bool]:
        """The records of the jobs in shard ``number`` of the registry that are not in the dump, no
        more than about ``room`` bytes of them, and whether these were all.

        Jobs that are added while a dump is under way are in the journal, and so not here."""
        records: list[bytes] = []
        for job in self.jobs.shards[number].values():
            if job.dump != self.dump_number:
                if room <= 0:
                    return records, False
                job.dump = self.dump_number
                if job.state in (ACTIVE, QUEUED):
                    records.append(loadjob(self.serialize(job)))
                    room -= len(records[-1])
        return records, True

    def flush(self) -> None:
        """Forget all jobs and queues; no client may be waiting."""
        self.journal.clear()
        self.flushed = True
        self.jobs.clear()
        self._timers.clear()
        self.queues.clear()
        self.queue_index.clear()
        self.memory.clear()
