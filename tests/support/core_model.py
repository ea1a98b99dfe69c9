"""The simplest correct node, to compare the core with.

Nothing is sorted, indexed or counted in advance: every question is answered by looking at all jobs.
If several waiting clients could be served by several queues, the model does not choose; ``deliver``
checks the node's choice instead.
"""

from dataclasses import dataclass, field

GRID = 32  # ms; the node handles a job at the end of the 32 ms that contain its time
IDLE = 300_000  # ms after which an empty queue is dropped
JOB_BYTES = 480
QUEUE_BYTES = 800


@dataclass
class ModelJob:
    """A job; ``number`` is its place in the order of creation, times are ms."""

    id: bytes
    number: int
    queue: bytes
    body: bytes
    created: int
    delay: int
    retry: int
    expires: int
    requeue_at: int  # 0 for never
    queued: bool = False
    was_queued: bool = False
    was_delivered: bool = False
    nacks: int = 0
    deliveries: int = 0

    def awake_at(self) -> int:
        """When it is due to be queued or dropped."""
        gone = self.expires + 1000
        return min(self.requeue_at, gone) if self.requeue_at else gone

    def looked_at(self) -> int:
        """When the node handles it."""
        return (self.awake_at() // GRID + 1) * GRID


@dataclass
class ModelQueue:
    """A queue; ``waiting`` contains the clients in order of arrival."""

    used: int
    paused_in: bool = False
    paused_out: bool = False
    waiting: list[int] = field(default_factory=list)

    def state(self) -> bytes:
        """The reply to PAUSE state."""
        if self.paused_in:
            return b"all" if self.paused_out else b"in"
        return b"out" if self.paused_out else b"none"


class Model:
    """The correct contents and answers of a node. ``jitter`` is added to every requeue time."""

    def __init__(self, now: int, jitter: int) -> None:
        self.now = now
        self.jitter = jitter
        self.jobs: dict[bytes, ModelJob] = {}
        self.queues: dict[bytes, ModelQueue] = {}
        self.waits: dict[int, tuple[list[bytes], int]] = {}  # client: queues, deadline or 0
        self.created = 0

    # ---- questions ------------------------------------------------------------------------------

    def queued(self, queue: bytes) -> list[ModelJob]:
        """The jobs of a queue, oldest first."""
        found = [job for job in self.jobs.values() if job.queued and job.queue == queue]
        return sorted(found, key=lambda job: job.number)

    def next_wake(self) -> int:
        """When something is due next; 0 for never."""
        times = [job.looked_at() for job in self.jobs.values()]
        times += [deadline for _, deadline in self.waits.values() if deadline]
        return min(times, default=0)

    def memory(self) -> int:
        """The memory of all jobs and queues."""
        jobs = sum(JOB_BYTES + len(job.body) for job in self.jobs.values())
        return jobs + sum(QUEUE_BYTES + len(name) for name in self.queues)

    # ---- commands -------------------------------------------------------------------------------

    def queue(self, name: bytes) -> ModelQueue:
        """The queue with that name, created if necessary."""
        if name not in self.queues:
            self.queues[name] = ModelQueue(used=self.now)
        return self.queues[name]

    def add_problem(self, queue: bytes, delay: int, ttl: int, maxlen: int | None) -> str | None:
        """The code of ADDJOB's error, if any."""
        if delay >= ttl:
            return "ERR"
        if maxlen is not None and len(self.queued(queue)) >= maxlen:
            return "MAXLEN"
        if queue in self.queues and self.queues[queue].paused_in:
            return "PAUSED"
        return None

    def add(
        self, id: bytes, queue: bytes, body: bytes, delay: int, retry: int | None, ttl: int
    ) -> None:
        """ADDJOB answered ``id``. Times are s."""
        if retry is None:
            retry = max(min(ttl // 10, 300), 1)
        self.created += 1
        job = ModelJob(
            id=id,
            number=self.created,
            queue=queue,
            body=body,
            created=self.now,
            delay=delay,
            retry=retry,
            expires=(self.now // 1000 + ttl) * 1000,
            requeue_at=self.now + delay * 1000 if delay else 0,
        )
        self.jobs[id] = job
        if not delay:
            self.enqueue(job, False)

    def enqueue(self, job: ModelJob, nack: bool) -> bool:
        """Put a job into its queue, if it is allowed there."""
        if job.queued or (job.retry == 0 and job.was_delivered):
            return False
        job.queued = True
        job.requeue_at = self.now + job.retry * 1000 + self.jitter if job.retry else 0
        if nack:
            job.nacks += 1
        elif job.was_queued:
            job.deliveries += 1
        job.was_queued = True
        self.queue(job.queue).used = self.now
        return True

    def dequeue(self, job: ModelJob) -> bool:
        """Remove a job from its queue, if it is there."""
        if not job.queued:
            return False
        job.queued = False
        self.queue(job.queue).used = self.now
        return True

    def delete(self, job: ModelJob) -> None:
        """Remove a job that was acknowledged, deleted or expired."""
        self.dequeue(job)
        del self.jobs[job.id]

    def take(self, job: ModelJob) -> None:
        """Note a delivery of ``job``, which must be the first in a queue that may deliver."""
        assert job.queued
        assert job is self.queued(job.queue)[0]
        assert not self.queue(job.queue).paused_out
        assert job.retry or not job.was_delivered, "delivered twice in spite of retry 0"
        self.dequeue(job)
        job.was_delivered = True
        if job.retry and job.requeue_at - self.now < job.retry * 500:
            job.requeue_at = self.now + job.retry * 1000 + self.jitter

    def get(self, names: list[bytes], count: int) -> list[ModelJob]:
        """The result of GETJOB: one job from each queue, repeatedly until there are enough."""
        found: list[ModelJob] = []
        while True:
            before = len(found)
            for name in names:
                jobs = self.queued(name) if name in self.queues else []
                if len(found) < count and jobs and not self.queue(name).paused_out:
                    self.take(jobs[0])
                    found.append(jobs[0])
            if len(found) == before:
                return found

    def working(self, job: ModelJob) -> bool:
        """Postpone the next delivery; returns False if half of the time to live is over."""
        if self.now - job.created > (job.expires - job.created) // 2:
            return False
        if job.retry:
            self.dequeue(job)
            job.requeue_at = self.now + job.retry * 1000 + self.jitter
        return True

    def pause(self, name: bytes, options: list[str]) -> bytes:
        """PAUSE; returns the state afterwards."""
        into = out = False
        for option in options:
            into = option != "none" and (into or option in ("in", "all"))
            out = option != "none" and (out or option in ("out", "all"))
        if options == ["state"]:
            return self.queues[name].state() if name in self.queues else b"none"
        if name in self.queues or into or out:
            queue = self.queue(name)
            queue.paused_in, queue.paused_out, queue.used = into, out, self.now
            return queue.state()
        return b"none"

    def flush(self) -> set[int]:
        """Forget everything; returns the clients whose wait ends."""
        waiting = set(self.waits)
        self.jobs.clear()
        self.queues.clear()
        self.waits.clear()
        return waiting

    # ---- waiting clients ------------------------------------------------------------------------

    def block(self, client: int, names: list[bytes], timeout: int) -> None:
        """Make ``client`` wait for ``timeout`` ms, or forever (0)."""
        self.waits[client] = (names, self.now + timeout if timeout else 0)
        for name in names:
            if client not in self.queue(name).waiting:
                self.queue(name).waiting.append(client)

    def stop_waiting(self, client: int) -> None:
        """End a wait, or note that the client is gone."""
        for name in self.waits.pop(client)[0]:
            if client in self.queues[name].waiting:
                self.queues[name].waiting.remove(client)

    def deliver(self, client: int, id: bytes) -> None:
        """Note a delivery to a waiting client, whose turn it must be."""
        job = self.jobs[id]
        assert self.queue(job.queue).waiting[0] == client, "not first come, first served"
        self.take(job)
        self.stop_waiting(client)

    def starving(self) -> list[bytes]:
        """Queues that have both jobs and waiting clients, and may deliver."""
        return [
            name
            for name, queue in self.queues.items()
            if queue.waiting and not queue.paused_out and self.queued(name)
        ]

    # ---- time -----------------------------------------------------------------------------------

    def tick(self, now: int) -> None:
        """Handle due jobs."""
        self.now = now
        for job in [job for job in self.jobs.values() if job.looked_at() <= now]:
            queue = self.queues.get(job.queue)
            again = now + job.retry * 1000 + self.jitter
            # A job that was never queued may still be queued, until the last moment.
            if job.expires + (0 if job.was_queued else 1000) <= now:
                self.delete(job)
            elif job.queued or (job.retry and queue is not None and queue.paused_in):
                job.requeue_at = again  # it stays for another retry time
            else:
                self.enqueue(job, False)

    def timed_out(self) -> set[int]:
        """The clients whose wait is over."""
        return {
            client
            for client, (_, deadline) in self.waits.items()
            if deadline and deadline <= self.now
        }

    def drop_idle_queues(self) -> int:
        """Drop unused queues; returns their number."""
        idle = [
            name
            for name, queue in self.queues.items()
            if not self.queued(name)
            and not queue.waiting
            and queue.state() == b"none"
            and self.now - queue.used >= IDLE
        ]
        for name in idle:
            del self.queues[name]
        return len(idle)
