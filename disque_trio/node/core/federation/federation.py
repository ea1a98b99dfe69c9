"""Gets jobs from other nodes for consumers that wait on this one.

A node whose clients wait on an empty queue asks others for jobs of it (NEEDJOBS). A node that has
some gives a part of them (YOURJOBS); one that has none gives the next job that it gets (see
``exports``). ``need_jobs`` decides when to ask whom.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final

from disque_trio.eventlog import schema
from disque_trio.node.core.federation.exports import ASKED_ALL, MAX_NAME, Exports
from disque_trio.node.core.jobs.job import ACKED, ACTIVE, FLAG_DELIVERED, Job
from disque_trio.node.core.queues.bus_codec import TakeChange
from disque_trio.node.core.queues.core import Core
from disque_trio.node.core.queues.given_codec import GivenReader
from disque_trio.node.core.queues.need_jobs import COUNT_MAX, FIRST_MIN, POLL_MIN, Imports
from disque_trio.node.core.queues.pauses import HELD_BACK
from disque_trio.node.core.queues.queue import PAUSED_OUT, Queue
from disque_trio.node.core.queues.store import WARNING_TIME
from disque_trio.protocol import bus
from disque_trio.protocol.bus import JobsMessage, PacketError, QueueMessage
from disque_trio.protocol.keyrecord import CONFIRMED
from disque_trio.protocol.trailer import Trailer

MAX_POLLED: Final = 1_000  # queues that do not exist, and whose requests are paced
MAX_POLLED_SIZE: Final = 1_000_000  # bytes of their names


class Federation:
    """Moves the jobs of a queue to where their consumers are.

    Args:
        exports: gives jobs to nodes that want them.
        take_change: takes what another node has changed of a known job.

    Attributes:
        exports: as given.
        linked: nodes to which connections are new, and with which to ``exchange`` requests; and
            whether there were connections before.
        questions: heap of the queues for which clients wait: when to ask again (ms), a number, the
            queue.
        paused_elsewhere: called with the name of a queue and its pause bits, if another node tells
            them that does not share them.
    """

    def __init__(self, core: Core, exports: Exports, take_change: TakeChange) -> None:
        store = core.store
        self.questions: list[tuple[int, int, Queue]] = []
        self._store = store
        self._machine = store.machine
        self._notes = store.notes
        self._queues = store.queues
        self._replicas = store.replicas
        self._aof_codec = core.aof_codec
        self._codec = core.bus_codec
        self.exports = exports
        self._tombstones = core.tombstones
        self._paging = core.paging
        self._take_change = take_change
        self._notices = core.notices
        self._settlements = core.settlements
        self._peers = core.peers
        self._question_number = 0
        self.linked: dict[bytes, bool] = {}
        # Queues that do not exist here, but whose jobs clients asked for in vain: they take no part
        # in anything but the pacing of requests, and the oldest are forgotten.
        self._polled: dict[bytes, Queue] = {}
        self._polled_size = 0  # bytes of their names
        self._asks = False  # it may ask others, and has done so for all waiting clients
        self._sweep_at = 0
        self.paused_elsewhere: Callable[[bytes, int], None] = self.pause

    def import_rate(self, queue: Queue) -> int:
        """The number of jobs per second that ``queue`` gets from other nodes."""
        return 0 if queue.imports is None else queue.imports.rate(self._machine.now)

    # ---- asking -----------------------------------------------------------------------------

    def need_jobs(self, queue: Queue, again: bool = False) -> None:
        """Ask nodes that may have jobs of ``queue``, which is empty here, for some, as often as the
        pacing allows. Repeats itself (``again``) while clients wait."""
        queue.wanted = self._machine.now
        if not self.may_ask():
            return  # ``cron`` asks as soon as it may
        imports = queue.imports
        if imports is None:
            imports = queue.imports = Imports()
        if not again:
            imports.want(self._machine.now)
        if self._is_used_up(queue, imports):
            return
        # A client begins to wait, or polls, or waits while the others think that none does.
        begins = (not again and len(queue.waiters) <= 1) or (
            len(queue.waiters) > 0 and not imports.told_waits
        )
        soon = FIRST_MIN if queue.waiters else POLL_MIN
        if imports.ask_all(self._machine.now, soon if begins else 0):
            self._tell(queue, imports, self._peers.everyone(), 1)
        self._ask_sources(queue, imports, False)
        if queue.waiters:
            self._ask_later(queue, imports)

    def _is_used_up(self, queue: Queue, imports: Imports) -> bool:
        """Whether clients here may have no more jobs of ``queue`` for now. Once they may, those
        that wait ask as if they began to."""
        limits = self._store.limits
        if limits.needed and limits.is_used_up(queue):
            imports.told_waits = False
            return True
        return False

    def poll(self, name: bytes) -> None:
        """Ask other nodes for jobs of ``name``, a queue that does not exist here, for a client that
        does not wait for them."""
        if not self.may_ask() or len(name) > bus.MAX_QUEUE_NAME:
            return
        queue = self._polled.get(name)
        if queue is None:
            queue = self._polled[name] = Queue(name, self._machine.now)
            self._polled_size += len(name)
            while len(self._polled) > MAX_POLLED or self._polled_size > MAX_POLLED_SIZE:
                oldest = next(iter(self._polled))
                self._polled_size -= len(oldest)
                del self._polled[oldest]
        self.need_jobs(queue)

    def may_ask(self) -> bool:
        """Whether this node may ask others for jobs now."""
        if self._peers.size == 1 or self.exports.stopping:
            return False
        return not (self._peers.leaving or self._machine.add_problem)

    def cron(self, now: int) -> None:
        """Run the periodic work, a few times a second."""
        may_ask = self.may_ask()
        if may_ask and not self._asks:
            # It met other nodes, or can take jobs again.
            for queue in self._queues.index.values():
                if queue.waiters and not queue.deliverable():
                    self.need_jobs(queue)
            if self._queues.interests is not None:
                self._queues.interests.ask_again()
        self._asks = may_ask
        if now >= self._sweep_at:
            self._sweep_at = now + ASKED_ALL
            self.exports.forget_old(now)

    def exchange(self) -> None:
        """Tell the nodes to which connections are new what clients here wait for, and give them
        what they asked for: they, or this node, may have started after the others were asked."""
        linked, self.linked = self.linked, {}
        nodes = list(linked)
        self.exports.linked_to(nodes)
        for id, again in linked.items():
            if again:
                self.exports.ask_about_given(id)
        if not self.may_ask():
            return
        limits = self._store.limits
        for queue in self._queues.index.values():
            if queue.waiters and not queue.deliverable() and not limits.is_used_up(queue):
                self._replicas.tell_of_queue(nodes, bus.NEEDJOBS, queue.name, 1, bus.CLIENT_WAITS)
        if self._queues.interests is not None:
            self._queues.interests.linked_to(nodes)

    def _ask_sources(self, queue: Queue, imports: Imports, at_once: bool) -> None:
        """Ask the nodes that lately gave jobs of ``queue`` for more, if it is time to."""
        settles = self._peers.settles
        free = not self.exports.has_limit(queue)
        credit = free and all(map(settles, imports.sources))
        count = imports.ask_sources(self._machine.now, at_once, credit)
        if not count:
            return
        for id in imports.sources:
            if free and settles(id) and len(queue.name) <= MAX_NAME:
                imports.told_waits = len(queue.waiters) > 0
                flags = bus.CREDIT | (bus.CLIENT_WAITS if imports.told_waits else 0)
                self._settlements.want(id, QueueMessage(queue.name, count, flags))
            else:
                most = count if self._notices.is_read_by(id) else COUNT_MAX
                self._tell(queue, imports, [id], min(count, most))

    def _tell(self, queue: Queue, imports: Imports, nodes: list[bytes], count: int) -> None:
        """Ask ``nodes`` for ``count`` jobs of ``queue``."""
        imports.told_waits = len(queue.waiters) > 0
        flags = bus.CLIENT_WAITS if imports.told_waits else 0
        self._replicas.tell_of_queue(nodes, bus.NEEDJOBS, queue.name, count, flags)

    def offer(self, queue: Queue) -> None:
        """Give jobs of ``queue`` to nodes that wait for some."""
        if self.exports.asked_for:
            self.exports.offer(queue.name)

    def runs_low(self, queue: Queue, imports: Imports) -> None:
        """Ask for more jobs of ``queue``, whose last job or nearly so was taken while jobs stream
        in, before the next client finds it empty."""
        if not self.may_ask() or self._is_used_up(queue, imports):
            return
        if queue.deliverable():
            if imports.asks_ahead(self._machine.now):
                self._ask_sources(queue, imports, True)
            return
        now = self._machine.now
        wanted = imports.is_wanted(now, queue.jobs_out) and not imports.passes_on
        told = imports.told_waits  # now: to tell only the sources is not enough
        if queue.waiters or (imports.streams(now) and wanted):
            self._ask_sources(queue, imports, True)
        if queue.waiters and not told:
            imports.told_waits = False
            self.need_jobs(queue, True)
        elif queue.waiters:
            self._ask_later(queue, imports)

    def _ask_later(self, queue: Queue, imports: Imports) -> None:
        """Schedule the next request, in case clients still wait then."""
        due = max(imports.next_question(), self._machine.now + 1)
        if imports.due == 0 or due < imports.due:
            imports.due = due
            self._question_number += 1
            heappush(self.questions, (due, self._question_number, queue))

    def ask_due(self, now: int) -> None:
        """Ask for the queues whose time has come."""
        while self.questions and self.questions[0][0] <= now:
            due, _, queue = heappop(self.questions)
            imports = queue.imports
            if imports is None or imports.due != due:
                continue  # it was asked earlier
            imports.due = 0
            if queue.waiters and not queue.deliverable():
                self.need_jobs(queue, True)

    # ---- taking -----------------------------------------------------------------------------

    def on_yourjobs(self, sender: bytes, message: JobsMessage) -> None:
        """Handle YOURJOBS: queue the jobs that another node gives."""
        name = b""
        count = 0  # queued jobs of this queue
        for data in message.jobs:
            job = self._codec.decode(data)
            if job is None:
                self._received(sender, name, count)
                raise PacketError("a YOURJOBS with something that is not a job")
            if job.queue != name:
                self._received(sender, name, count)
                name = job.queue
                count = 0
            count += int(self._take_in(sender, job, self._codec.trailer))
        self._received(sender, name, count)

    def on_given(self, sender: bytes, packet: bytes) -> list[bytes]:
        """Handle GIVEN: the same as YOURJOBS. Returns jobs that lie on disk here, serialised, which
        have yet to be handled."""
        name = b""
        count = 0
        on_disk: list[bytes] = []
        pages = self._paging.pages
        reader = GivenReader(packet, self._store, self._codec)
        try:
            while (job := reader.next()) is not None:
                if pages.jobs and self._paging.knows(job.id):
                    on_disk.append(reader.data or self._codec.encode(job))
                    continue
                if job.queue is not name and job.queue != name:
                    self._received(sender, name, count)
                    name = job.queue
                    count = 0
                count += int(self._take_in(sender, job, reader.trailer))
        finally:
            self._received(sender, name, count)
        return on_disk

    def _received(self, sender: bytes, name: bytes, count: int) -> None:
        """Note that ``sender`` gave ``count`` jobs of the queue ``name``."""
        queue = self._queues.by_name.get(name)
        if count and queue is not None:
            polled = self._polled.pop(name, None)
            if polled is not None:
                self._polled_size -= len(name)
                queue.wanted = max(queue.wanted, polled.wanted)
                queue.imports = queue.imports or polled.imports
            if queue.imports is None:
                queue.imports = Imports()
            queue.imports.received(sender, self._machine.now, queue.jobs_out, count)
            if self._queues.interests is not None:
                self._queues.interests.received(sender, queue, count)
            if name in self.exports.asked_for:
                self.exports.pass_on(queue)
        elif name and queue is not None and queue.waiters and queue.imports is not None:
            # What came has ended, or is here: the sender takes its request for fulfilled.
            queue.imports.told_waits = False
            self.need_jobs(queue, True)

    def _take_in(self, sender: bytes, new: Job, trailer: Trailer | None) -> bool:
        """Queue the job ``new`` with this ``trailer``, which ``sender`` gave, unless it is known or
        has ended. Returns whether it was queued."""
        store = self._store
        replicas = self._replicas
        job = store.jobs.get(new.id)
        if job is not None and job.state == ACKED:
            replicas.tell_acked(sender, job, store.trailers.of(job))
            return False
        if job is None and self._tombstones.refuse(sender, new.id):
            return False
        if job is None:
            job = new
            store.register(job)
            if trailer is not None:
                store.trailers.put(job, trailer)
                store.uniques.hold(job, CONFIRMED)
            if self._machine.journaling:
                self._aof_codec.note(job)
        else:
            for id in new.delivered or ():
                replicas.add(job, id)
            came_back = int(new.deliveries) > int(job.deliveries)
            if int(new.nacks) > int(job.nacks):
                job.nacks = new.nacks
                store.jobs.marked.add(job)
                came_back = True
            if trailer is not None:
                self._take_change(job, new, trailer)
                if trailer.attempts:
                    store.trailers.learn_attempts(job, trailer.attempts)
            if job.state != ACTIVE or job.retry == 0:
                return False
            if not came_back and job.place is None and store.in_hand_for(job) > 0:
                # The sender queued it because it could not hear that a client here has it.
                replicas.add(job, sender)
                replicas.places.leaves(job, self._machine.now)
                return False
        if job.retry:
            replicas.add(job, sender)
        job.flags &= ~(FLAG_DELIVERED | HELD_BACK)
        job.place = None
        store.put(job).traffic.imported += 1
        store.progress.note(job)
        if self._notes.noting:
            self._notes.note(schema.IMPORTED, job, new=True)
            self._notes.note(schema.QUEUED, job, schema.BY_IMPORT)
        self._keep_time(job)
        return True

    def _keep_time(self, job: Job) -> None:
        """Keep the retry time of ``job`` in step with its other holders: they do not know that it
        is here, and count from its creation until they would queue it again."""
        if job.retry and job.delivered is not None and len(job.delivered) > 2:
            first = job.ctime // 1_000_000 + (job.delay + job.retry) * 1000
            if first <= self._machine.now + 2 * WARNING_TIME:
                self._replicas.tell_queued(job)
            elif first < job.qtime:
                job.qtime = first
                self._store.schedule(job)

    # ---- pausing ----------------------------------------------------------------------------

    def pause(self, name: bytes, paused: int) -> None:
        """Set the pause bits of the queue ``name`` here."""
        self._queues.pause(name, paused)
        if not paused & PAUSED_OUT and name in self.exports.asked_for:
            self.exports.offer(name)

    def on_pause(self, sender: bytes, message: QueueMessage) -> None:
        """Handle PAUSE: a client of another node used PAUSE with BCAST."""
        if not message.flags & bus.SHARED:
            self.paused_elsewhere(message.queue, message.aux & 3)

    def flush(self) -> None:
        """Start over: all jobs and queues have been forgotten."""
        self.exports.flush()
        self.questions.clear()
        self._polled.clear()
        self._polled_size = 0
