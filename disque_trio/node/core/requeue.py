"""Queues unacknowledged jobs again, and agrees with the other holders on which node does so.

Every holder queues a job again when its retry time is over without an acknowledge. So that only
one does, it asks the others half a second before (WILLQUEUE); whoever has it in a queue answers
QUEUED, and whoever hears QUEUED pushes its own time back. Where two queued it all the same, one of
them, chosen by the job's id, takes it out again. A job that stays in its queue for long is
announced again before the others begin to ask. A job that is delivered with less than half of its
retry time left is announced as well (WORKING), so that its worker has the whole retry time.
"""

from disque_trio.cluster.peers import Peers
from disque_trio.eventlog import schema
from disque_trio.node.core.exports import Exports
from disque_trio.node.core.job import (
    ACKED,
    ACTIVE,
    FLAG_DELIVERED,
    FLAG_QUEUED_BEFORE,
    FLAG_RESERVED,
    FLAG_WILLQUEUE,
    QUEUED,
    UINT16_MAX,
    WAIT_REPL,
    Job,
)
from disque_trio.node.core.queue import PAUSED_IN
from disque_trio.node.core.store import WARNING_TIME, JobStore
from disque_trio.node.core.tombstones import Tombstones
from disque_trio.protocol import bus
from disque_trio.protocol.bus import JobMessage, PacketWriter


class Requeue:
    """Queues the jobs of one node again when their retry time is over.

    Args:
        store: the jobs.
        exports: those that other nodes want.
        tombstones: the jobs that have ended.
        peers: the rest of the cluster.
        packets: makes this node's packets.
    """

    def __init__(
        self,
        store: JobStore,
        exports: Exports,
        tombstones: Tombstones,
        peers: Peers,
        packets: PacketWriter,
    ) -> None:
        self._store = store
        self._machine = store.machine
        self._notes = store.notes
        self._replicas = store.replicas
        self._exports = exports
        self._tombstones = tombstones
        self._peers = peers
        self._packets = packets

    def enqueue(self, job: Job, nack: bool, reason: schema.Reason) -> bool:
        """Put ``job`` into its queue; returns False if it must not be queued.

        A job that is delivered at most once is never queued after it was delivered.
        ``nack`` says which counter a further delivery goes to, ``reason`` is for the event log.
        """
        if job.state != ACTIVE or (job.retry == 0 and job.flags & (FLAG_DELIVERED | FLAG_RESERVED)):
            return False
        store = self._store
        if nack or job.flags & FLAG_QUEUED_BEFORE:
            if nack:
                job.nacks = min(job.nacks + 1, UINT16_MAX)
            else:
                job.deliveries = min(job.deliveries + 1, UINT16_MAX)
            store.total_requeued += 1
            self._replicas.tell_requeued(job, nack)
        store.put(job)
        if self._notes.eventing:
            self._notes.note(schema.QUEUED, job, reason)
        if self._exports.asked_for:
            self._exports.offer(job.queue)
        return True

    def work_on(self, job: Job) -> int:
        """Postpone the next delivery to ``retry`` from now for a worker that needs more time.
        Returns retry, s."""
        store = self._store
        if job.retry and job.state != WAIT_REPL:
            if job.state == QUEUED:
                store.dequeue(job)
            store.postpone(job)
            self._replicas.tell_working(job)
        if self._notes.eventing:
            self._notes.note(schema.WORKING, job)
        return job.retry

    def due(self, job: Job) -> None:
        """Handle ``job`` from the timers, ACTIVE or QUEUED: queue it, or warn the others."""
        store = self._store
        now = self._machine.now
        if job.state == QUEUED:
            # Nobody took it for a whole retry period: it is where it should be.
            self._replicas.tell_queued(job)
            store.postpone(job)
            return
        queue = store.queues.by_name.get(job.queue)
        if job.retry and queue is not None and queue.paused & PAUSED_IN:
            store.postpone(job)
        elif job.qtime - store.ahead(job) > now:
            store.schedule(job)  # it was looked at for another reason
        elif job.flags & FLAG_WILLQUEUE and job.delivered is not None:
            # If the clock jumped over the time for it, the others get theirs to answer now.
            job.flags &= ~FLAG_WILLQUEUE
            if job.qtime < now + WARNING_TIME // 2:
                job.qtime = now + WARNING_TIME
            store.schedule(job)
            self._replicas.tell_willqueue(job)
        elif not self.enqueue(
            job, False, schema.BY_RETRY if job.flags & FLAG_QUEUED_BEFORE else schema.BY_DELAY
        ):
            job.qtime = 0
            store.schedule(job)

    # ---- what other nodes say ---------------------------------------------------------------

    def _living_job(self, sender: bytes, id: bytes) -> Job | None:
        """Find the unfinished job ``id`` that a packet of ``sender`` about its queue refers to.
        ``sender`` holds it as well; if it does not know that the job was acknowledged, or
        cancelled, this node tells it."""
        job = self._store.jobs.get(id)
        if job is None:
            self._tombstones.refuse_cancelled(sender, id)
            return None
        if job.state == WAIT_REPL:
            return None
        if job.state == ACKED:
            self._replicas.tell_acked(sender, job, self._store.trailers.of(job))
            return None
        self._replicas.add(job, sender)
        return job

    def on_queued(self, sender: bytes, message: JobMessage) -> None:
        """Handle QUEUED: another holder has the job in its queue."""
        job = self._living_job(sender, message.id)
        if job is None:
            return
        if message.flags & bus.INCR_NACKS:
            job.nacks = min(job.nacks + 1, UINT16_MAX)
        if message.flags & bus.INCR_DELIVERIES:
            job.deliveries = min(job.deliveries + 1, UINT16_MAX)
        if job.retry:
            job.flags &= ~FLAG_DELIVERED  # whoever had it has lost it
        if job.state == QUEUED and self._keeps(job, sender):
            # It has to hear that it was not the only one.
            self._peers.send(sender, self._packets.about_job(bus.QUEUED, job.id))
            return
        self._leave_to_other(job)

    def _leave_to_other(self, job: Job) -> None:
        """Leave ``job`` to another holder: it is not queued here for a whole retry time."""
        if job.state == QUEUED:
            self._store.dequeue(job)
            if self._notes.eventing:
                self._notes.note(schema.DEQUEUED, job, schema.BY_PEER)
        if job.retry:
            self._store.postpone(job)

    def _keeps(self, job: Job, sender: bytes) -> bool:
        """Of two nodes that queued ``job``: whether this one keeps it. The random part of the
        job's id decides, so that it is not always the same node that wins."""
        own = self._replicas.own
        mask = job.id[11:35]
        for i in range(len(sender)):
            mine = own[i] ^ mask[i % 24]
            other = sender[i] ^ mask[i % 24]
            if mine != other:
                return mine > other
        return True

    def on_willqueue(self, sender: bytes, message: JobMessage) -> None:
        """Handle WILLQUEUE: another holder asks whether it needs to queue the job."""
        job = self._living_job(sender, message.id)
        if job is not None and job.state == QUEUED:
            # The rest is likely about to do the same.
            self._replicas.tell_queued(job)

    def on_working(self, sender: bytes, message: JobMessage) -> None:
        """Handle WORKING: a worker of another holder has the job, or asked for more time."""
        job = self._living_job(sender, message.id)
        if job is not None:
            self._leave_to_other(job)
