"""Gives jobs to other nodes whose consumers wait for them.

Another node asks (NEEDJOBS) and gets a part of the queue (YOURJOBS) or, if there is nothing to
spare, the next job that arrives. A node that takes jobs fast gets those that arrive within a
millisecond in one packet, or sooner if there are enough.
"""

from collections import deque
from typing import Final, NamedTuple

from disque_trio.cluster.peers import Peers
from disque_trio.eventlog import schema
from disque_trio.node.core.bus_codec import BusCodec
from disque_trio.node.core.job import FLAG_DELIVERED, FLAG_HOLDS_GROUP
from disque_trio.node.core.need_jobs import ALL_MAX, COUNT_MAX, SOURCES_MAX, WINDOW
from disque_trio.node.core.queue import PAUSED_OUT, Queue
from disque_trio.node.core.store import TIME_ERROR, JobStore
from disque_trio.protocol import bus
from disque_trio.protocol.bus import PacketWriter, QueueMessage

# How long a request is remembered, in ms: until it is repeated, if jobs are still wanted.
ASKED_ALL: Final = ALL_MAX + 1_000
ASKED_SOURCES: Final = SOURCES_MAX + 100
WORTH: Final = 50  # jobs that are worth a packet to a node that takes them fast
FRESH: Final = 100  # ms for which its request may be answered with more than one job
MANY_QUEUES: Final = 10_000  # for which requests are remembered
MAX_NAME: Final = 1_000  # length limit for their names, in bytes
MAX_GIVEN_BYTES: Final = 4 << 20  # bytes of jobs in one YOURJOBS, unless the first is longer


class Wanted(NamedTuple):
    """A request of another node that got no jobs yet.

    Attributes:
        jobs: how many it asked for.
        time: when it asked.
        until: when to forget it, in ms.
    """

    jobs: int
    time: int
    until: int


class Exports:
    """Serves the requests of other nodes for the jobs of this node.

    Args:
        store: the jobs.
        codec: serialises them.
        peers: the rest of the cluster.
        packets: makes this node's packets.

    Attributes:
        asked_for: by queue, the ids of nodes that want jobs and got none, with their requests.
        soon: queues to offer at ``soon_at``, ms.
        later: when to offer which queue, in ms, the next one first.
    """

    def __init__(
        self, store: JobStore, codec: BusCodec, peers: Peers, packets: PacketWriter
    ) -> None:
        self.asked_for: dict[bytes, dict[bytes, Wanted]] = {}
        self.soon: dict[bytes, None] = {}
        self.soon_at = 0
        self.later: deque[tuple[int, bytes]] = deque()
        self._store = store
        self._machine = store.machine
        self._notes = store.notes
        self._queues = store.queues
        self._replicas = store.replicas
        self._codec = codec
        self._peers = peers
        self._packets = packets
        self._in_later: set[bytes] = set()

    def on_needjobs(self, sender: bytes, message: QueueMessage) -> None:
        """Handle NEEDJOBS: give ``sender`` jobs, unless they are needed here."""
        name = message.queue
        count = message.aux
        queue = self._queues.by_name.get(name)
        spare = 0 if queue is None else self._spare(queue)
        if queue is None or spare <= 0:
            self._remember(name, sender, count)
            if queue is not None and queue.length and not queue.paused & PAUSED_OUT:
                self._offer_later(name)
        elif self._peers.linked(sender):
            if count > COUNT_MAX and spare < WORTH:
                self._remember(name, sender, count)
                self._offer_soon(name)
            else:
                self._give(sender, queue, self._portion(queue, count, spare))

    def _portion(self, queue: Queue, count: int, spare: int) -> int:
        """Return how many of the ``spare`` jobs of ``queue`` a node gets that asked for ``count``.

        At most half of them, so that jobs do not go back and forth, unless it takes them fast and
        nobody here does.
        """
        count = min(max(count, 1), bus.MAX_YOURJOBS)
        if spare >= 2 * count:
            return count
        if count > COUNT_MAX and self._machine.now - queue.wanted > WINDOW:
            return min(count, spare)
        return max(spare // 2, 1)

    def _spare(self, queue: Queue) -> int:
        """The number of jobs of ``queue`` that other nodes may have. Imported jobs are for the
        clients here at first, or they would go back and forth. None while the append-only file
        cannot be written: it has to record that a job was given away."""
        if queue.paused & PAUSED_OUT or self._machine.write_problem:
            return 0
        if self._store.limits.needed:
            self._store.limits.grouping.follow(queue)
        if queue.imports is None:
            return queue.deliverable()
        return queue.deliverable() - queue.imports.left(self._machine.now, queue.jobs_out)

    def give(self, id: bytes, queue: Queue, count: int) -> int:
        """Send up to ``count`` jobs of ``queue`` to the node ``id``, unless they are needed here;
        returns how many."""
        spare = self._spare(queue)
        if spare <= 0 or not self._peers.linked(id):
            return 0
        count = self._portion(queue, count, spare)
        self._give(id, queue, count)
        return count

    def _remember(self, name: bytes, sender: bytes, count: int) -> None:
        """Reserve the next job of the queue ``name`` for ``sender``, unless a client of this node
        wants it. Otherwise ``sender`` would have to wait until it asks again."""
        if len(name) > MAX_NAME:
            return
        nodes = self.asked_for.get(name)
        if nodes is None:
            if len(self.asked_for) >= MANY_QUEUES:
                del self.asked_for[next(iter(self.asked_for))]
            nodes = self.asked_for[name] = {}
        now = self._machine.now
        # Sources are asked more often than all nodes, and sometimes in advance.
        until = now + (ASKED_ALL if count == 1 else ASKED_SOURCES)
        before = nodes.get(sender)
        if before is not None:
            until = max(until, before.until)
        nodes[sender] = Wanted(count, now, until)

    def offer(self, name: bytes, late: bool = False) -> None:
        """Give a new job of the queue ``name`` to a node that waits for one. ``late``: do not wait
        for more jobs."""
        nodes = self.asked_for.get(name)
        queue = self._queues.by_name.get(name)
        if nodes is None or queue is None or queue.waiters:
            return
        now = self._machine.now
        while nodes and (spare := self._spare(queue)) > 0:
            id = next(iter(nodes))
            wanted = nodes[id]
            fast = wanted.jobs > COUNT_MAX and now - wanted.time <= FRESH
            if fast and not late and spare < WORTH:
                self._offer_soon(name)
                return
            del nodes[id]
            # It may have begun to leave since it asked; then it is not reachable either.
            if wanted.until > now and id in self._peers.reachable and self._peers.linked(id):
                self._give(id, queue, self._portion(queue, wanted.jobs, spare) if fast else 1)
        if not nodes:
            del self.asked_for[name]

    def _offer_soon(self, name: bytes) -> None:
        """Offer the queue ``name`` in a moment: more jobs may have arrived by then."""
        if not self.soon:
            self.soon_at = self._machine.now + 1
        self.soon[name] = None

    def _offer_later(self, name: bytes) -> None:
        """Schedule an offer of jobs that clients of this node may still take."""
        if name not in self._in_later:
            self._in_later.add(name)
            self.later.append((self._machine.now + WINDOW + 1, name))

    def next_due(self) -> int:
        """Return when ``offer_due`` next has something to do, in ms; 0: never."""
        due = self.later[0][0] if self.later else 0
        return min(due or self.soon_at, self.soon_at) if self.soon else due

    def offer_due(self, now: int) -> None:
        """Offer the jobs that other nodes wait for, and those that local clients have had time to
        take."""
        if self.soon and self.soon_at <= now:
            soon, self.soon = self.soon, {}
            for name in soon:
                self.offer(name, True)
        while self.later and self.later[0][0] <= now:
            _, name = self.later.popleft()
            self._in_later.discard(name)
            self.offer(name)
            queue = self._queues.by_name.get(name)
            if name in self.asked_for and queue is not None and queue.length:
                self._offer_later(name)

    def _give(self, id: bytes, queue: Queue, count: int) -> None:
        """Send ``count`` jobs of ``queue``, which has at least that many, to the node ``id``."""
        store = self._store
        notes = self._notes
        now = self._machine.now
        before = notes.peer
        notes.peer = id
        jobs: list[bytes] = []
        size = 0
        while len(jobs) < count and size < MAX_GIVEN_BYTES and queue.deliverable():
            job = store.hand_out(queue)
            if notes.noting:
                notes.note(schema.EXPORTED, job)
            if job.retry == 0:
                job.delivered = self._replicas.sets.of((id,))
            else:
                job.flags &= ~FLAG_DELIVERED  # not to a client
                # Whoever collects the job here has to know that it may be there too.
                self._replicas.add(job, id)
                if job.flags & FLAG_HOLDS_GROUP:
                    store.limits.grouping.left(job)
            jobs.append(self._codec.encode(job))
            size += len(jobs[-1])
            if job.retry == 0:
                store.let_go(job)  # it must never exist twice
            elif job.qtime - now < job.retry * 1000 - TIME_ERROR:
                # The receiver counts its retry time from now, too.
                store.postpone(job)
        notes.peer = before
        self._peers.send(id, self._packets.jobs(bus.YOURJOBS, jobs))

    def forget_old(self, now: int) -> None:
        """Forget outdated requests of other nodes."""
        for name, nodes in list(self.asked_for.items()):
            if max([wanted.until for wanted in nodes.values()]) < now:
                del self.asked_for[name]

    def flush(self) -> None:
        """Start over: all jobs and queues have been forgotten."""
        self.asked_for.clear()
        self.soon.clear()
        self.later.clear()
        self._in_later.clear()
