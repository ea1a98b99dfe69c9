"""Jobs that move to where their consumers are.

A node whose clients wait on an empty queue asks others for its jobs (NEEDJOBS); whoever has some
gives a part of them (YOURJOBS), and whoever has none gives the next one that it gets. When to ask
whom is ``imports``'s.
"""

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

from disque_trio.core.collection import CollectingStore
from disque_trio.core.imports import ALL_MAX, SOURCES_MAX, WINDOW, Imports
from disque_trio.core.job import ACKED, ACTIVE, FLAG_DELIVERED, Job
from disque_trio.core.peers import Peers
from disque_trio.core.queue import PAUSED_OUT, Queue
from disque_trio.core.store import WARNING_TIME
from disque_trio.protocol import bus
from disque_trio.protocol.bus import PacketError, PacketWriter
from disque_trio.protocol.serialjob import loadjob

if TYPE_CHECKING:
    from random import Random

# How long a question holds, ms: until it is asked again, if jobs are still wanted.
ASKED_ALL: Final = ALL_MAX + 1_000
ASKED_SOURCES: Final = SOURCES_MAX + 100
MANY_QUEUES: Final = 10_000  # for which questions are remembered
MAX_NAME: Final = 1_000  # bytes of the name of one of them
TIDIED: Final = 16  # shards of the registry looked at in a cron: all of them within seconds
MAX_GIVEN_BYTES: Final = 4 << 20  # of jobs in one YOURJOBS, unless the first alone is longer


class FederatedStore(CollectingStore):
    """Jobs that move between nodes."""

    def __init__(
        self,
        id: bytes,
        peers: Peers,
        packets: PacketWriter,
        entropy: Callable[[int], bytes],
        rng: "Random",
        maxmemory: int,
    ) -> None:
        super().__init__(id, peers, packets, entropy, rng, maxmemory)
        self._hungry: list[tuple[int, int, Queue]] = []  # heap: when to ask again, number, queue
        self._hunger_number = 0
        self._offers: deque[tuple[int, bytes]] = deque()  # when to offer what was kept, ms; queue
        self._kept: dict[bytes, int] = {}  # the queues in there
        self._asks = False  # this node may ask others, and did so for all who wait
        self._sweep_at = 0

    def import_rate(self, queue: Queue) -> int:
        """Jobs a second that ``queue`` gets from other nodes."""
        return 0 if queue.imports is None else queue.imports.rate(self.now)

    # ---- asking -----------------------------------------------------------------------------

    def need_jobs(self, queue: Queue) -> None:
        """Clients want jobs of ``queue``, which has none: ask those who may have some, as often
        as is decent. While clients wait this goes on by itself."""
        if not self._may_ask():
            return  # ask_for_waiting comes when it may
        imports = queue.imports
        if imports is None:
            imports = queue.imports = Imports()
        if imports.ask_all(self.now):
            self.tell_of_queue(self.peers.everyone(), bus.NEEDJOBS, queue.name, 1)
        self._ask_sources(queue, imports, False)
        if queue.waiters:
            self._look_again(queue, imports)

    def _may_ask(self) -> bool:
        return self.peers.size > 1 and not self.leaving and not self.write_problem

    def cron(self, now: int) -> None:
        """What is to be done a few times a second."""
        self.now = now
        may_ask = self._may_ask()
        if may_ask and not self._asks:
            # It met others, or can take jobs again.
            for queue in self.queue_index.values():
                if queue.waiters and not queue.length:
                    self.need_jobs(queue)
        self._asks = may_ask
        if now >= self._sweep_at:
            self._sweep_at = now + ASKED_ALL
            for name, nodes in list(self.asked_for.items()):
                if max(nodes.values()) < now:
                    del self.asked_for[name]
        self.evict_idle_queues(now)
        self.jobs.tidy(TIDIED)

    def _ask_sources(self, queue: Queue, imports: Imports, at_once: bool) -> None:
        count = imports.ask_sources(self.now, at_once)
        if count:
            self.tell_of_queue(list(imports.sources), bus.NEEDJOBS, queue.name, count)

    def emptied(self, queue: Queue) -> None:
        """The last job of ``queue`` was taken: while jobs stream in do not wait for the next
        client to find it empty."""
        imports = queue.imports
        if imports is None or not self._may_ask():
            return
        if queue.waiters or imports.streams(self.now):
            self._ask_sources(queue, imports, True)
        if queue.waiters:
            self._look_again(queue, imports)

    def _look_again(self, queue: Queue, imports: Imports) -> None:
        """Ask once more when it is time, if clients still wait then."""
        due = max(imports.next_question(), self.now + 1)
        if imports.due == 0 or due < imports.due:
            imports.due = due
            self._hunger_number += 1
            heappush(self._hungry, (due, self._hunger_number, queue))

    def ask_again(self, now: int) -> None:
        """Ask for the queues whose time has come."""
        while self._hungry and self._hungry[0][0] <= now:
            due, _, queue = heappop(self._hungry)
            imports = queue.imports
            if imports is None or imports.due != due:
                continue  # it was asked earlier
            imports.due = 0
            if queue.waiters and not queue.length:
                self.need_jobs(queue)

    # ---- giving -----------------------------------------------------------------------------

    def on_needjobs(self, sender: bytes, packet: bytes) -> None:
        """Give ``sender`` jobs, unless they are needed here. Half of the queue at most, so that
        the jobs do not go to and fro."""
        name, count = bus.read_about_queue(packet)
        queue = self.queues.get(name)
        spare = 0 if queue is None else self._spare(queue)
        if queue is None or spare <= 0:
            # Sources are asked more often than all nodes, and sometimes ahead of need.
            self._remember(name, sender, ASKED_ALL if count == 1 else ASKED_SOURCES)
            if queue is not None and queue.length and not queue.paused & PAUSED_OUT:
                self._offer_later(name)
        elif self.peers.linked(sender):
            count = min(max(count, 1), bus.MAX_YOURJOBS)
            if spare < 2 * count:
                count = max(spare // 2, 1)
            self._give(sender, queue, count)

    def _spare(self, queue: Queue) -> int:
        """How many jobs of ``queue`` other nodes may have. What was imported is for the clients
        here, or it would go to and fro; after a while it is like any other. A job that is given
        must be struck off the append-only file."""
        if queue.paused & PAUSED_OUT or self.write_problem:
            return 0
        if queue.imports is None:
            return queue.length
        return queue.length - queue.imports.left(self.now, queue.jobs_out)

    def _remember(self, name: bytes, sender: bytes, time: int) -> None:
        """``sender`` gets the next job that comes into the queue ``name`` here, unless a client
        of this node wants it. Else it would have to wait until its next question."""
        if len(name) > MAX_NAME:
            return
        nodes = self.asked_for.get(name)
        if nodes is None:
            if len(self.asked_for) >= MANY_QUEUES:
                del self.asked_for[next(iter(self.asked_for))]
            nodes = self.asked_for[name] = {}
        nodes[sender] = max(self.now + time, nodes.get(sender, 0))

    def offer(self, name: bytes) -> None:
        nodes = self.asked_for.get(name)
        queue = self.queues.get(name)
        if nodes is None or queue is None or queue.waiters:
            return
        while nodes and self._spare(queue) > 0:
            id = next(iter(nodes))
            until = nodes.pop(id)
            # One that has begun to leave since it asked is not reachable either.
            if until > self.now and id in self.peers.reachable and self.peers.linked(id):
                self._give(id, queue, 1)
        if not nodes:
            del self.asked_for[name]

    def _offer_later(self, name: bytes) -> None:
        """Jobs are kept for clients of this node: offer them when these have had their time."""
        if name not in self._kept:
            due = self.now + WINDOW + 1
            self._kept[name] = due
            self._offers.append((due, name))

    def offer_kept(self, now: int) -> None:
        """Offer what was kept for long enough."""
        while self._offers and self._offers[0][0] <= now:
            _, name = self._offers.popleft()
            del self._kept[name]
            self.offer(name)
            queue = self.queues.get(name)
            if name in self.asked_for and queue is not None and queue.length:
                self._offer_later(name)

    def pause(self, name: bytes, paused: int) -> None:
        super().pause(name, paused)
        if not paused & PAUSED_OUT and name in self.asked_for:
            self.offer(name)

    def _give(self, id: bytes, queue: Queue, count: int) -> None:
        """Send ``count`` jobs of ``queue``, which has so many, to the node ``id``."""
        before = self.peer
        self.peer = id
        jobs: list[bytes] = []
        size = 0
        while len(jobs) < count and size < MAX_GIVEN_BYTES:
            job = self._hand_out(queue)
            if self.eventing:
                self.note("exported", job)
            if job.retry == 0:
                job.delivered = self.holders.of((id,))
            else:
                # Whoever collects the job here will know that it may be there as well.
                self._add_holder(job, id)
            jobs.append(self._for_bus(job))
            size += len(jobs[-1])
            if job.retry == 0:
                self.delete(job)  # there must never be two of it
            else:
                self._schedule(job)
        self.peer = before
        self.peers.send(id, self.packets.jobs(bus.YOURJOBS, jobs))

    # ---- taking -----------------------------------------------------------------------------

    def on_yourjobs(self, sender: bytes, packet: bytes) -> None:
        """Queue the jobs that another node gives."""
        for data in bus.read_jobs(packet):
            job = self.job_from_bus(data)
            if job is None:
                raise PacketError("a YOURJOBS with something that is no job")
            self._take_in(sender, job)

    def _take_in(self, sender: bytes, new: Job) -> None:
        job = self.jobs.get(new.id)
        if job is not None and job.state == ACKED:
            self.answer_acked(sender, job)
            return
        if job is None and self.has_ended(sender, new.id):
            return
        if job is None:
            job = new
            self._register(job)
            if self.journaling:
                self.journal.append(loadjob(self.serialize(job)))
        else:
            for id in new.delivered or ():
                self._add_holder(job, id)
            if job.state != ACTIVE or job.retry == 0:
                return
        if job.retry:
            self._add_holder(job, sender)
        job.flags &= ~FLAG_DELIVERED
        self._put(job)
        if self.eventing:
            self.note("imported", job, new=True)
            self.note("queued", job, "import")
        self._keep_time(job)
        queue = self.queues[job.queue]
        if queue.imports is None:
            queue.imports = Imports()
        queue.imports.received(sender, self.now, queue.jobs_out)

    def _keep_time(self, job: Job) -> None:
        """Go on with the retry time of ``job`` where its other holders are: they do not know that
        it is here, and would queue it again after the time that they count from its creation."""
        if job.retry and job.delivered is not None and len(job.delivered) > 2:
            first = job.ctime // 1_000_000 + (job.delay + job.retry) * 1000
            if first <= self.now + 2 * WARNING_TIME:
                self.still_queued(job)
            elif first < job.qtime:
                job.qtime = first
                self._schedule(job)

    def flush(self) -> None:
        self.asked_for.clear()
        self._kept.clear()
        self._offers.clear()
        self._hungry.clear()
        super().flush()
