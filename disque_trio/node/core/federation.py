"""Gets jobs from other nodes for consumers that wait on this one.

A node whose clients wait on an empty queue asks others for jobs of it (NEEDJOBS). A node that has
some gives a part of them (YOURJOBS); one that has none gives the next job that it gets (see
``exports``). ``need_jobs`` decides when to ask whom.
"""

from heapq import heappop, heappush

from disque_trio.cluster.peers import Peers
from disque_trio.eventlog import schema
from disque_trio.node.core.aof_codec import AofCodec
from disque_trio.node.core.bus_codec import BusCodec
from disque_trio.node.core.exports import ASKED_ALL, Exports
from disque_trio.node.core.job import ACKED, ACTIVE, FLAG_DELIVERED, Job
from disque_trio.node.core.need_jobs import COUNT_MAX, Imports
from disque_trio.node.core.notices import Notices
from disque_trio.node.core.queue import PAUSED_OUT, Queue
from disque_trio.node.core.store import WARNING_TIME, JobStore
from disque_trio.node.core.tombstones import Tombstones
from disque_trio.node.core.updates import Updates
from disque_trio.protocol import bus
from disque_trio.protocol.bus import JobsMessage, PacketError, QueueMessage
from disque_trio.protocol.keyrecord import CONFIRMED


class Federation:
    """Moves the jobs of a queue to where their consumers are.

    Args:
        store: the jobs.
        aof_codec: makes their records for the journal.
        codec: decodes those of other nodes.
        exports: gives jobs to nodes that want them.
        tombstones: jobs that have ended.
        updates: changes to known jobs.
        notices: knows which nodes are not C nodes.
        peers: the rest of the cluster.

    Attributes:
        exports: as given.
        questions: heap of the queues for which clients wait: when to ask again (ms), a number, the
            queue.
    """

    def __init__(
        self,
        store: JobStore,
        aof_codec: AofCodec,
        codec: BusCodec,
        exports: Exports,
        tombstones: Tombstones,
        updates: Updates,
        notices: Notices,
        peers: Peers,
    ) -> None:
        self.questions: list[tuple[int, int, Queue]] = []
        self._store = store
        self._machine = store.machine
        self._notes = store.notes
        self._queues = store.queues
        self._replicas = store.replicas
        self._aof_codec = aof_codec
        self._codec = codec
        self.exports = exports
        self._tombstones = tombstones
        self._updates = updates
        self._notices = notices
        self._peers = peers
        self._question_number = 0
        self._asks = False  # it may ask others, and has done so for all waiting clients
        self._sweep_at = 0

    def import_rate(self, queue: Queue) -> int:
        """The number of jobs per second that ``queue`` gets from other nodes."""
        return 0 if queue.imports is None else queue.imports.rate(self._machine.now)

    # ---- asking -----------------------------------------------------------------------------

    def need_jobs(self, queue: Queue) -> None:
        """Ask nodes that may have jobs of ``queue``, which is empty here, for some, as often as the
        pacing allows. Repeats itself while clients wait."""
        queue.wanted = self._machine.now
        if not self.may_ask():
            return  # ``cron`` asks as soon as it may
        imports = queue.imports
        if imports is None:
            imports = queue.imports = Imports()
        if imports.ask_all(self._machine.now):
            self._replicas.tell_of_queue(self._peers.everyone(), bus.NEEDJOBS, queue.name, 1)
        self._ask_sources(queue, imports, False)
        if queue.waiters:
            self._ask_later(queue, imports)

    def may_ask(self) -> bool:
        """Whether this node may ask others for jobs now."""
        return self._peers.size > 1 and not self._peers.leaving and not self._machine.write_problem

    def cron(self, now: int) -> None:
        """Run the periodic work, a few times a second."""
        may_ask = self.may_ask()
        if may_ask and not self._asks:
            # It met other nodes, or can take jobs again.
            for queue in self._queues.index.values():
                if queue.waiters and not queue.length:
                    self.need_jobs(queue)
            if self._queues.interests is not None:
                self._queues.interests.ask_again()
        self._asks = may_ask
        if now >= self._sweep_at:
            self._sweep_at = now + ASKED_ALL
            self.exports.forget_old(now)

    def _ask_sources(self, queue: Queue, imports: Imports, at_once: bool) -> None:
        """Ask the nodes that lately gave jobs of ``queue`` for more, if it is time to."""
        count = imports.ask_sources(self._machine.now, at_once)
        if count:
            for id in imports.sources:
                most = count if self._notices.is_read_by(id) else COUNT_MAX
                self._replicas.tell_of_queue([id], bus.NEEDJOBS, queue.name, min(count, most))

    def offer(self, queue: Queue) -> None:
        """Give jobs of ``queue`` to nodes that wait for some."""
        if self.exports.asked_for:
            self.exports.offer(queue.name)

    def runs_low(self, queue: Queue, imports: Imports) -> None:
        """Ask for more jobs of ``queue``, whose last job or nearly so was taken while jobs stream
        in, before the next client finds it empty."""
        if not self.may_ask():
            return
        if queue.length:
            if imports.asks_ahead(self._machine.now):
                self._ask_sources(queue, imports, True)
            return
        if queue.waiters or imports.streams(self._machine.now):
            self._ask_sources(queue, imports, True)
        if queue.waiters:
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
            if queue.waiters and not queue.length:
                self.need_jobs(queue)

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
            count += int(self._take_in(sender, job))
        self._received(sender, name, count)

    def _received(self, sender: bytes, name: bytes, count: int) -> None:
        """Note that ``sender`` gave ``count`` jobs of the queue ``name``."""
        queue = self._queues.by_name.get(name)
        if count and queue is not None:
            if queue.imports is None:
                queue.imports = Imports()
            queue.imports.received(sender, self._machine.now, queue.jobs_out, count)
            if self._queues.interests is not None:
                self._queues.interests.received(sender, queue, count)

    def _take_in(self, sender: bytes, new: Job) -> bool:
        """Queue the job ``new``, which ``sender`` gave, unless it is known or has ended. Returns
        whether it was queued."""
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
            if self._codec.trailer is not None:
                store.trailers.put(job, self._codec.trailer)
                store.uniques.hold(job, CONFIRMED)
            if self._machine.journaling:
                self._aof_codec.note(job)
        else:
            for id in new.delivered or ():
                replicas.add(job, id)
            if self._codec.trailer is not None:
                self._updates.take(job, new, self._codec.trailer)
            if job.state != ACTIVE or job.retry == 0:
                return False
        if job.retry:
            replicas.add(job, sender)
        job.flags &= ~FLAG_DELIVERED
        store.put(job)
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

    def tell_paused(self, name: bytes, paused: int) -> None:
        """Set the pause bits of the queue ``name`` on all other nodes."""
        self._replicas.tell_of_queue(self._peers.everyone(), bus.PAUSE, name, paused)

    def on_pause(self, sender: bytes, message: QueueMessage) -> None:
        """Handle PAUSE: a client of another node used PAUSE with BCAST."""
        paused = message.aux & 3
        if paused or message.queue in self._queues.by_name:
            self.pause(message.queue, paused)

    def flush(self) -> None:
        """Start over: all jobs and queues have been forgotten."""
        self.exports.flush()
        self.questions.clear()
