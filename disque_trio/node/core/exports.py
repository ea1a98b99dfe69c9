"""Gives jobs to other nodes whose consumers wait for them.

Another node asks (NEEDJOBS): it gets a part of the queue (YOURJOBS), or where there is nothing to
spare, the next job that comes.
"""

from collections import deque
from typing import Final

from disque_trio.cluster.peers import Peers
from disque_trio.eventlog import schema
from disque_trio.node.core.bus_codec import BusCodec
from disque_trio.node.core.need_jobs import ALL_MAX, SOURCES_MAX, WINDOW
from disque_trio.node.core.queue import PAUSED_OUT, Queue
from disque_trio.node.core.store import JobStore
from disque_trio.protocol import bus
from disque_trio.protocol.bus import PacketWriter, QueueMessage

# How long a question holds, ms: until it is asked again, if jobs are still wanted.
ASKED_ALL: Final = ALL_MAX + 1_000
ASKED_SOURCES: Final = SOURCES_MAX + 100
MANY_QUEUES: Final = 10_000  # for which questions are remembered
MAX_NAME: Final = 1_000  # bytes of the name of one of them
MAX_GIVEN_BYTES: Final = 4 << 20  # of jobs in one YOURJOBS, unless the first alone is longer


class Exports:
    """Serves the requests of other nodes for the jobs of this node.

    Args:
        store: the jobs.
        codec: serialises them.
        peers: the rest of the cluster.
        packets: makes this node's packets.

    Attributes:
        asked_for: queues of which other nodes want jobs and got none, with the nodes' ids and until
            when that holds, ms.
        later: when to offer which queue, ms, the next one first.
    """

    def __init__(
        self, store: JobStore, codec: BusCodec, peers: Peers, packets: PacketWriter
    ) -> None:
        self.asked_for: dict[bytes, dict[bytes, int]] = {}
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
        """Handle NEEDJOBS: give ``sender`` jobs, unless they are needed here. Half of the queue at
        most, so that the jobs do not go to and fro."""
        name = message.queue
        count = message.aux
        queue = self._queues.by_name.get(name)
        spare = 0 if queue is None else self._spare(queue)
        if queue is None or spare <= 0:
            # Sources are asked more often than all nodes, and sometimes ahead of need.
            self._remember(name, sender, ASKED_ALL if count == 1 else ASKED_SOURCES)
            if queue is not None and queue.length and not queue.paused & PAUSED_OUT:
                self._offer_later(name)
        elif self._peers.linked(sender):
            count = min(max(count, 1), bus.MAX_YOURJOBS)
            if spare < 2 * count:
                count = max(spare // 2, 1)
            self._give(sender, queue, count)

    def _spare(self, queue: Queue) -> int:
        """The number of jobs of ``queue`` that other nodes may have. Imported jobs are for the
        clients here, or they would go to and fro; after a while they are like any other. A job that
        is given must be struck off the append-only file."""
        if queue.paused & PAUSED_OUT or self._machine.write_problem:
            return 0
        if queue.imports is None:
            return queue.length
        return queue.length - queue.imports.left(self._machine.now, queue.jobs_out)

    def _remember(self, name: bytes, sender: bytes, time: int) -> None:
        """Reserve the next job of the queue ``name`` for ``sender``, unless a client of this node
        wants it. Otherwise ``sender`` would have to wait until it asks again."""
        if len(name) > MAX_NAME:
            return
        nodes = self.asked_for.get(name)
        if nodes is None:
            if len(self.asked_for) >= MANY_QUEUES:
                del self.asked_for[next(iter(self.asked_for))]
            nodes = self.asked_for[name] = {}
        nodes[sender] = max(self._machine.now + time, nodes.get(sender, 0))

    def offer(self, name: bytes) -> None:
        """Give a new job in the queue ``name`` to a node that waits for one."""
        nodes = self.asked_for.get(name)
        queue = self._queues.by_name.get(name)
        if nodes is None or queue is None or queue.waiters:
            return
        while nodes and self._spare(queue) > 0:
            id = next(iter(nodes))
            until = nodes.pop(id)
            # One that has begun to leave since it asked is not reachable either.
            if until > self._machine.now and id in self._peers.reachable and self._peers.linked(id):
                self._give(id, queue, 1)
        if not nodes:
            del self.asked_for[name]

    def _offer_later(self, name: bytes) -> None:
        """Schedule an offer of jobs that clients of this node may still take."""
        if name not in self._in_later:
            self._in_later.add(name)
            self.later.append((self._machine.now + WINDOW + 1, name))

    def offer_due(self, now: int) -> None:
        """Offer the jobs whose time for local clients is over."""
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
        before = notes.peer
        notes.peer = id
        jobs: list[bytes] = []
        size = 0
        while len(jobs) < count and size < MAX_GIVEN_BYTES:
            job = store.hand_out(queue)
            if notes.eventing:
                notes.note(schema.EXPORTED, job)
            if job.retry == 0:
                job.delivered = self._replicas.sets.of((id,))
            else:
                # Whoever collects the job here will know that it may be there as well.
                self._replicas.add(job, id)
            jobs.append(self._codec.encode(job))
            size += len(jobs[-1])
            if job.retry == 0:
                store.delete(job)  # there must never be two of it
            else:
                # The receiver counts the retry time from now, too.
                store.postpone(job)
        notes.peer = before
        self._peers.send(id, self._packets.jobs(bus.YOURJOBS, jobs))

    def forget_old(self, now: int) -> None:
        """Forget outdated requests of other nodes."""
        for name, nodes in list(self.asked_for.items()):
            if max(nodes.values()) < now:
                del self.asked_for[name]

    def flush(self) -> None:
        """Forget everything: all jobs and queues are gone."""
        self.asked_for.clear()
        self.later.clear()
        self._in_later.clear()
