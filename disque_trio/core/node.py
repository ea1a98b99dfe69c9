"""A node: the jobs and queues it holds and everything that can happen to them.

Owns the life of jobs. Nothing here waits, reads a clock or draws a random number by itself: the
driver passes the time (ms since the epoch) into ``command`` and ``tick``, and the entropy and
the generator into the constructor. What the outside has to do comes out as effects:

- replies are in ``client.out``; clients other than the caller that got one are in ``woken``;
- what other nodes have to hear goes to ``peers``;
- ``next_wake()`` says when ``tick`` wants to be called.

The life of a job, in the states of ``job``: ADDJOB makes it ACTIVE and queues it, at once or
after its delay. GETJOB takes it out of the queue (ACTIVE again). Unless it is acknowledged
before its ``qtime``, it goes back to its old place in the queue (at-least-once), or stays
ACTIVE for good (retry 0, at-most-once). ACKJOB ends it; its time to live ends it in any case.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import islice
from typing import TYPE_CHECKING
from zlib import crc32

from disque_trio.core.client import REPLY_ON, REPLY_SKIP, Client
from disque_trio.core.command import Command, CommandError
from disque_trio.core.host import Host
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
from disque_trio.core.latency import LatencyMonitor
from disque_trio.core.memory import UNLIMITED, Memory
from disque_trio.core.peers import Peers
from disque_trio.core.queue import PAUSED_IN, PAUSED_OUT, QUEUE_OVERHEAD, Queue
from disque_trio.core.registry import SHARD_SHIFT, Registry
from disque_trio.core.slowlog import SlowLog
from disque_trio.core.timers import JobTimers
from disque_trio.protocol.inline import quote
from disque_trio.protocol.reply import error, null_array

if TYPE_CHECKING:
    from random import Random

TIME_ERROR = 500  # ms; requeue times are spread by this so that holders do not act at once
MAX_JOBS_PER_TICK = 10_000
MAX_EVICTIONS = 1_000  # a command; so that lowering maxmemory does not stop the node

LEAVING = b"-LEAVING This node is leaving the cluster, please connect to a different one\r\n"
_NOAUTH = b"-NOAUTH Authentication required.\r\n"
_OOM = b"-OOM command not allowed when used memory > 'maxmemory'.\r\n"


class Node:
    """One node.

    Args:
        id: 40 lower-case hex characters.
        commands: the command table, names in lower case.
        host: what is around the state machine (see ``host``).
        peers: the rest of the cluster.
        entropy: gives so many random bytes, for job ids.
        rng: for times that are spread on purpose.
        clock: monotonic ns, for the durations that SLOWLOG and commandstats show.
        maxmemory: bytes of jobs and queues, 0: no limit.

    Attributes:
        now: time of the current turn, ms since the epoch.
        woken: clients other than the caller that were replied to; the driver empties it.
        leaving: CLUSTER LEAVING yes was said.
    """

    def __init__(
        self,
        id: bytes,
        commands: dict[bytes, Command],
        host: Host,
        peers: Peers,
        entropy: Callable[[int], bytes],
        rng: "Random",
        clock: Callable[[], int],
        maxmemory: int = 0,
    ) -> None:
        self.id = id
        self.host = host
        self.peers = peers
        self.rng = rng
        self.now = 0
        self.leaving = False
        self.woken: list[Client] = []
        self.jobs: Registry[Job] = Registry()
        self.queues: dict[bytes, Queue] = {}
        self.queue_index: Registry[Queue] = Registry()
        self.memory = Memory(maxmemory)
        self.ids = JobIds(id, entropy)
        self.commands = commands
        self.slowlog = SlowLog()
        self.latency = LatencyMonitor()
        self.monitors: list[Client] = []  # clients that see every command
        self.total_commands = 0
        self.total_added = 0
        self.total_delivered = 0
        self.total_acked = 0
        self.total_requeued = 0
        self.total_expired = 0
        self.total_evicted = 0
        self.blocked_clients = 0
        self._lookup: dict[bytes, Command] = dict(commands)
        for name, command in commands.items():
            self._lookup[name.upper()] = command
        self._clock = clock
        self._entropy = entropy
        self._slow = UNLIMITED  # ns from which a command's duration interests anyone
        self._timers = JobTimers()
        self._last_ctime = 0
        self._ready: list[Queue] = []  # queues that may have both jobs and waiting clients
        self._wait_ends: list[tuple[int, int, Client]] = []  # heap: deadline, number, client
        self._waits = 0
        self._idle_cursor = 0

    # ---- what the driver calls ------------------------------------------------------------

    def command(self, client: Client, args: list[bytes], now: int) -> None:
        """Serve one request of ``client``, which must not be blocked.

        The replies are in ``client.out`` afterwards, unless the client is blocked now.
        """
        self.now = now
        self.total_commands += 1
        command = self._lookup.get(args[0])
        if command is None:
            command = self._lookup.get(args[0].lower())
        replies = len(client.out)
        mode = client.reply_mode
        if command is None:
            client.out.append(error(b"ERR unknown command '%b'" % args[0][:128]))
        elif not command.min_args <= len(args) <= command.max_args:
            client.out.append(error(f"ERR wrong number of arguments for '{command.name}' command"))
        elif not client.authenticated and not command.unauthenticated:
            client.out.append(_NOAUTH)
        elif self.memory.used > self.memory.evict_above and not self._may_run(command):
            client.out.append(_OOM)
        else:
            client.last_command = command.name
            if self.monitors and not command.skip_monitor:
                self._show_monitors(client, args)
            started = self._clock()
            try:
                command.handler(self, client, args)
            except CommandError as failure:
                client.out.append(error(str(failure)))
            if self._ready:
                self.serve_waiting()
            took = self._clock() - started
            command.calls += 1
            command.nanoseconds += took
            if took >= self._slow:
                self._note_slow(command, args, took)
        if mode != REPLY_ON and client.reply_mode != REPLY_ON:
            del client.out[replies:]
            if mode == REPLY_SKIP and not client.waits_for:
                client.reply_mode = REPLY_ON

    def watch_durations(self, slower_than: int, threshold: int) -> None:
        """Keep commands of ``slower_than`` µs and more (negative: none) in the slow log and
        events of ``threshold`` ms and more (0: none) in the latency monitor."""
        self.slowlog.slower_than = slower_than
        self.latency.threshold = threshold
        self._slow = slower_than * 1000 if slower_than >= 0 else UNLIMITED
        if threshold:
            self._slow = min(self._slow, threshold * 1_000_000)

    def _note_slow(self, command: Command, args: list[bytes], took: int) -> None:
        if command.name == "auth":
            args = [args[0], b"(redacted)"]
        self.slowlog.add(self.now, took // 1000, args)
        event = b"fast-command" if "fast" in command.flags else b"command"
        self.latency.add(event, self.now, took // 1_000_000)

    def _show_monitors(self, client: Client, args: list[bytes]) -> None:
        line = b"+%d.%06d [%b] %b\r\n" % (
            self.now // 1000,
            self.now % 1000 * 1000,
            self.host.address(client).encode(),
            b" ".join([quote(arg) for arg in args]),
        )
        for monitor in self.monitors:
            monitor.out.append(line)
            self.woken.append(monitor)

    def tick(self, now: int) -> None:
        """Do what is due at ``now``: queue again, expire, end waits. At most 10000 jobs a call:
        when there is more to do, ``next_wake`` is in the past afterwards."""
        self.now = now
        for job in self._timers.due(now, MAX_JOBS_PER_TICK):
            self._job_due(job)
        self.serve_waiting()
        ends = self._wait_ends
        while ends and ends[0][0] <= now:
            _, number, client = heappop(ends)
            if client.wait_number == number and client.waits_for:
                self.unblock(client, null_array(client.resp))

    def next_wake(self) -> int:
        """When ``tick`` has to be called, ms since the epoch; 0: not before something happens."""
        due = self._timers.next_due()
        ends = self._wait_ends
        while ends and not (ends[0][2].wait_number == ends[0][1] and ends[0][2].waits_for):
            heappop(ends)
        if ends and (due == 0 or ends[0][0] < due):
            return ends[0][0]
        return due

    def forget_client(self, client: Client) -> None:
        """``client`` is gone: it waits for nothing any more."""
        if client.waits_for:
            self._stop_waiting(client)
        if client.monitor:
            self.monitors.remove(client)

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
            self.enqueue(job, False)
        return job

    def enqueue(self, job: Job, nack: bool) -> bool:
        """Put ``job`` into its queue; False where it may not be.

        A job that is delivered at most once is never queued after it was delivered.
        ``nack`` says which counter a further delivery goes to.
        """
        retry = job.retry
        if job.state != ACTIVE or (retry == 0 and job.flags & FLAG_DELIVERED):
            return False
        job.state = QUEUED
        if retry:
            job.qtime = self.now + retry * 1000 + self._time_error()
        else:
            job.qtime = 0
        if nack or job.flags & FLAG_QUEUED_BEFORE:
            if nack:
                job.nacks = min(job.nacks + 1, UINT16_MAX)
            else:
                job.deliveries = min(job.deliveries + 1, UINT16_MAX)
            self.total_requeued += 1
            self.peers.tell_queued(job, nack)
        job.flags |= FLAG_QUEUED_BEFORE
        self._schedule(job)
        queue = self.queues.get(job.queue)
        if queue is None:
            queue = self.create_queue(job.queue)
        queue.push(job)
        queue.atime = self.now
        if queue.waiters:
            self._ready.append(queue)
        return True

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
            job.qtime = self.now + job.retry * 1000 + self._time_error()
            self._schedule(job)
            self.peers.tell_working(job)
        return job.retry

    # ---- time -------------------------------------------------------------------------------

    def _time_error(self) -> int:
        return int(self.rng.random() * TIME_ERROR) - TIME_ERROR // 2

    def _schedule(self, job: Job) -> None:
        """Look at ``job`` when it has to be queued, or a second after it expires."""
        awake = job.etime * 1000 + 1000
        if 0 < job.qtime < awake:
            awake = job.qtime
        if job.awake:
            self._timers.move(job, awake)
        else:
            self._timers.add(job, awake)

    def _job_due(self, job: Job) -> None:
        if job.etime * 1000 <= self.now:
            self.total_expired += 1
            self.delete(job)
            return
        if job.state == QUEUED:
            # Nobody took it for a whole retry period: it is where it should be.
            job.qtime = self.now + job.retry * 1000 + self._time_error() if job.retry else 0
            self._schedule(job)
            return
        queue = self.queues.get(job.queue)
        if job.retry and queue is not None and queue.paused & PAUSED_IN:
            job.qtime = self.now + job.retry * 1000 + self._time_error()
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
            self._ready.append(queue)

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

    # ---- clients that wait ------------------------------------------------------------------

    def block(self, client: Client, names: list[bytes], timeout: int, withcounters: bool) -> None:
        """``client`` waits for one job of the queues ``names``, ``timeout`` ms (0: for ever)."""
        self._waits += 1
        client.wait_number = self._waits
        client.waits_for = names
        client.withcounters = withcounters
        self.blocked_clients += 1
        for name in names:
            queue = self.queues.get(name)
            if queue is None:
                queue = self.create_queue(name)
            queue.waiters[client] = None
        if timeout:
            ends = self._wait_ends
            # Waits that ended early leave their entry behind; they must not pile up.
            if len(ends) > 1000 and len(ends) > 4 * self.blocked_clients:
                ends[:] = sorted(e for e in ends if e[2].wait_number == e[1] and e[2].waits_for)
            heappush(ends, (self.now + timeout, self._waits, client))

    def serve_waiting(self) -> None:
        """Give jobs of the queues that got some to the clients that wait for them."""
        while self._ready:
            queue = self._ready.pop(0)
            while queue.length and queue.waiters and not queue.paused & PAUSED_OUT:
                client = next(iter(queue.waiters))
                job = self.take_job(queue)
                self.unblock(client, b"*1\r\n" + job_entry(job, queue, client.withcounters))

    def unblock(self, client: Client, reply: bytes) -> None:
        """End the wait of ``client``, which must be blocked, with ``reply``."""
        self._stop_waiting(client)
        if client.reply_mode == REPLY_ON:
            client.out.append(reply)
        elif client.reply_mode == REPLY_SKIP:
            client.reply_mode = REPLY_ON
        self.woken.append(client)

    def unblock_all(self) -> None:
        """End all waits: with an error when the node is leaving, else empty."""
        for queue in self.queue_index.values():
            for client in list(queue.waiters):
                self.unblock(client, LEAVING if self.leaving else null_array(client.resp))

    def _stop_waiting(self, client: Client) -> None:
        for name in client.waits_for:
            self.queues[name].waiters.pop(client, None)
        client.waits_for = []
        self.blocked_clients -= 1

    # ---- memory -----------------------------------------------------------------------------

    def _may_run(self, command: Command) -> bool:
        """Above 95% of the memory: evict what may go; False when ``command`` must be refused."""
        self.evict()
        return not command.denyoom or self.memory.used <= self.memory.evict_above

    def evict(self) -> None:
        """Delete acknowledged jobs and delivered at-most-once jobs, oldest first, and with no
        job left idle queues, until below 95% of the memory."""
        memory = self.memory
        if memory.policy_acks:
            for job in list(islice(memory.evictable.values(), MAX_EVICTIONS)):
                if memory.used <= memory.evict_above:
                    break
                self.total_evicted += 1
                self.delete(job)
        if self.jobs.count == 0 and memory.used > memory.evict_above:
            self.evict_idle_queues(self.now)

    def renew_id(self) -> None:
        """Become another node: CLUSTER RESET HARD."""
        self.id = self._entropy(20).hex().encode()
        self.ids = JobIds(self.id, self._entropy)

    def reset_stats(self) -> None:
        """Set all counters to zero."""
        self.total_commands = 0
        self.total_added = 0
        self.total_delivered = 0
        self.total_acked = 0
        self.total_requeued = 0
        self.total_expired = 0
        self.total_evicted = 0
        self.memory.peak = self.memory.used
        for command in self.commands.values():
            command.calls = 0
            command.nanoseconds = 0

    def flush(self) -> None:
        """Forget all jobs and queues; clients that wait for jobs are told that there are none."""
        self.unblock_all()
        self.jobs.clear()
        self._timers.clear()
        self.queues.clear()
        self.queue_index.clear()
        self.memory.clear()


def job_entry(job: Job, queue: Queue, withcounters: bool) -> bytes:
    """``job`` as GETJOB gives it: queue, id and body, and the counters if asked for."""
    body = job.body
    if body is None:
        body = b""
    if withcounters:
        return (
            b"*7\r\n%b%b\r\n$%d\r\n%b\r\n$5\r\nnacks\r\n:%d\r\n"
            b"$21\r\nadditional-deliveries\r\n:%d\r\n"
        ) % (queue.reply_head, job.id, len(body), body, job.nacks, job.deliveries)
    return b"*3\r\n%b%b\r\n$%d\r\n%b\r\n" % (queue.reply_head, job.id, len(body), body)
