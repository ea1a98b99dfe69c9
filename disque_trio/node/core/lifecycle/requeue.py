"""Queues unacknowledged jobs again, and agrees with the other holders on which node does so.

Every holder queues a job again when its retry time has passed without an acknowledgement. So that
only one does, it asks the others half a second before (WILLQUEUE). A node that has the job in a
queue answers QUEUED, and a node that hears QUEUED starts its retry time again. If two nodes queued
it anyway, one of them, chosen by their ids and the job's, takes it out again. A job that stays in
its queue for long is announced again before the others begin to ask. A job that is delivered with
less than half of its retry time left is announced too (WORKING), so that its worker has the whole
retry time.

A job may have to pause before it is queued again: as long as the worker that handed it back wants,
or as the policy of its queue says. Nodes with extensions are told for how long (REQUEUED), and wait
as long; the first to ask then queues it. C nodes know no pauses: WORKING keeps them waiting.
"""

import hashlib
from functools import partial

from disque_trio.eventlog import schema
from disque_trio.node.core.federation.exports import Exports
from disque_trio.node.core.jobs.job import (
    ACKED,
    ACTIVE,
    FLAG_DELIVERED,
    FLAG_HOLDS_GROUP,
    FLAG_IN_HAND,
    FLAG_NACKED,
    FLAG_PAUSED,
    FLAG_QUEUED_BEFORE,
    FLAG_RESERVED,
    FLAG_TRAILER,
    FLAG_WILLQUEUE,
    QUEUED,
    UINT16_MAX,
    WAIT_REPL,
    Job,
    Taking,
    first_due,
)
from disque_trio.node.core.jobs.places import TELL_AFTER
from disque_trio.node.core.lifecycle.dead_letters import DeadLetters
from disque_trio.node.core.lifecycle.lots import Lots
from disque_trio.node.core.lifecycle.successors import Successors
from disque_trio.node.core.queues.core import Core
from disque_trio.node.core.queues.pauses import HELD_BACK, Pauses
from disque_trio.node.core.queues.queue import PAUSED_IN
from disque_trio.node.core.queues.store import WARNING_TIME
from disque_trio.protocol import bus
from disque_trio.protocol.bus import JobMessage, PacketError
from disque_trio.protocol.fields import Field, FieldsError
from disque_trio.protocol.requeued import unpack_requeued
from disque_trio.protocol.trailer import BY_ATTEMPTS


class Requeue:
    """Queues the jobs of one node again after their retry time.

    Args:
        exports: gives jobs to nodes that want them.
        dead_letters: jobs that are not queued again.
        successors: jobs that have followed others.
        pauses: before jobs are queued again.
        lots: of jobs that stay queued.
    """

    def __init__(
        self,
        core: Core,
        exports: Exports,
        dead_letters: DeadLetters,
        successors: Successors,
        pauses: Pauses,
        lots: Lots,
    ) -> None:
        store = core.store
        self._store = store
        self._machine = store.machine
        self._notes = store.notes
        self._replicas = store.replicas
        self._trailers = store.trailers
        self._policies = store.policies
        self._dead_letters = dead_letters
        self._successors = successors
        self._pauses = pauses
        self._lots = lots
        self._exports = exports
        self._tombstones = core.tombstones
        self._paging = core.paging
        self._peers = core.peers
        self._packets = core.packets

    def enqueue(self, job: Job, nack: bool, reason: schema.Reason) -> bool:
        """Put ``job`` into its queue; return False if it must not be queued.

        A job that is delivered at most once is never queued after it was delivered. ``nack``: count
        a further delivery as a negative acknowledgement. ``reason``: for the event log.
        """
        flags = job.flags
        if job.state != ACTIVE or (job.retry == 0 and flags & (FLAG_DELIVERED | FLAG_RESERVED)):
            return False
        store = self._store
        progress = store.progress
        was_elsewhere = False  # as a note may say
        if flags & FLAG_PAUSED:
            job.flags &= ~HELD_BACK  # it was counted when the pause began
            store.total_requeued += 1
            self._replicas.tell_queued(job)
        elif nack or flags & FLAG_QUEUED_BEFORE:
            if nack:
                job.nacks = min(job.nacks + 1, UINT16_MAX)
            elif job.deliveries < UINT16_MAX:
                job.deliveries += 1
            store.total_requeued += 1
            if flags & FLAG_TRAILER:
                self._pauses.tell(job, bus.INCR_NACKS if nack else bus.INCR_DELIVERIES, 0)
            else:
                self._replicas.tell_requeued(job, nack)
        elif job.delivered is not None and job.qtime - first_due(job) >= WARNING_TIME:
            # See ``JobStore.queue_unless_held``: another holder may have asked just then, too, and
            # be about to queue it as well. Others are due when their delay is over.
            self._replicas.announce(job, bus.QUEUED)
            was_elsewhere = job.id not in progress.waiting
        job.place = None
        store.put(job)
        # A start queues those that were made here without a note.
        if (
            nack
            or flags & (FLAG_QUEUED_BEFORE | FLAG_PAUSED)
            or was_elsewhere
            or not progress.is_own(job)
        ):
            progress.note(job)
        if self._notes.noting:
            self._notes.note(schema.QUEUED, job, reason)
        if self._exports.asked_for:
            self._exports.offer(job.queue)
        return True

    def put_back(self, job: Job) -> None:
        """Put ``job`` into its queue again, which was taken out for a client that has left before
        it was sent."""
        store = self._store
        self._trailers.discount_attempt(job, self._replicas.own)
        if job.taking is not None and self._machine.now - job.taking.last_seen >= TELL_AFTER:
            self._replicas.announce(job, bus.QUEUED)  # they may have heard that it left
        store.put(job)
        store.queues.queued_again.note(job.id, self._machine.now)
        store.progress.note(job)
        if self._notes.noting:
            self._notes.note(schema.QUEUED, job, schema.BY_DISCONNECT)
        if self._exports.asked_for:
            self._exports.offer(job.queue)

    def hand_back(self, job: Job, delay: int, reason: bytes) -> bool:
        """Handle NACK: queue ``job`` again, maybe after a pause. Return whether it had been
        delivered and will be again, if only as a dead letter.

        Args:
            delay: the pause, in ms; -1: as the policy of the queue says.
            reason: the worker's; empty: it gave none.
        """
        if job.state != ACTIVE or (job.retry == 0 and job.flags & (FLAG_DELIVERED | FLAG_RESERVED)):
            return False
        if reason:
            trailer = self._trailers.want(job)
            trailer.reason = reason
            self._trailers.recount(job, trailer)
        if self._policies.count and self._dead_letters.is_spent(job):
            self._dead_letters.bury(job, BY_ATTEMPTS)
            return True
        if delay < 0:
            delay = self._pauses.backoff(job)
        asks = self._others_count(job)
        if delay < WARNING_TIME and asks:
            delay = WARNING_TIME
        if delay == 0:
            return self.enqueue(job, True, schema.BY_NACK)
        self._pauses.begin(job, delay, bus.INCR_NACKS)
        if asks:
            self._pauses.ask_everyone(job, delay)
        return True

    def _others_count(self, job: Job) -> bool:
        """Whether ``job``, which a client of another node got, may have been delivered as often as
        the policy of its queue allows: its other holders know that, and are asked before it is
        queued."""
        if not self._policies.count or job.delivered is None:
            return False
        if job.flags & FLAG_DELIVERED and job.taking is not None and job.place is None:
            return False
        return self._policies.of(job.queue).attempts > 0

    def work_on(self, job: Job, progress: bytes = b"") -> int:
        """Postpone the next delivery by ``retry`` for a worker that needs more time. Returns
        ``retry``, in s. progress: see ``Taking``; empty: as before."""
        store = self._store
        if job.retry and job.state != WAIT_REPL:
            if job.state == QUEUED:
                store.dequeue(job)
                store.limits.grouping.hold(job, True)
            store.postpone(job)
            self._replicas.tell_working(job)
            self._worked_on(job)
            store.progress.note(job)
        taking = job.taking
        if progress and taking is not None:
            job.taking = Taking(taking.client, taking.last_seen, progress, taking.since)
        if self._notes.noting:
            self._notes.note(schema.WORKING, job)
        return job.retry

    def due(self, job: Job) -> None:
        """Handle ``job`` from the timers, ACTIVE or QUEUED: queue it, or warn the others."""
        store = self._store
        now = self._machine.now
        if job.state == QUEUED:
            # Nobody took it for a whole retry period: it may stay where it is.
            self._lots.stays(job)
            return
        queue = store.queues.by_name.get(job.queue)
        if job.retry and queue is not None and queue.paused & PAUSED_IN:
            store.postpone(job)
            if self._notes.noting:
                self._notes.note_pause(job, schema.BY_QUEUE)
        elif job.qtime - store.ahead(job) > now:
            store.schedule(job)  # the timer was for something else
            if job.flags & FLAG_PAUSED:
                self._pauses.keep_waiting(job)
        elif job.flags & FLAG_WILLQUEUE and job.delivered is not None:
            # If the clock jumped past the warning, give the others their time to answer now.
            job.flags &= ~FLAG_WILLQUEUE
            if job.qtime < now + WARNING_TIME // 2:
                job.qtime = now + WARNING_TIME
            store.schedule(job)
            self._replicas.announce(job, bus.WILLQUEUE)
        else:
            if job.flags & FLAG_IN_HAND:
                store.limits.taken_back(job, True)
            if not (self._policies.count and self._is_kept_back(job)) and not self.enqueue(
                job, False, why_due(job) if self._notes.noting else schema.BY_RETRY
            ):
                job.qtime = 0
                store.schedule(job)

    def _is_kept_back(self, job: Job) -> bool:
        """Whether the policy of its queue keeps ``job``, which is due, from being queued now: makes
        it a dead letter, or begins a pause."""
        if not job.flags & FLAG_QUEUED_BEFORE or job.retry == 0:
            return False
        if self._dead_letters.is_spent(job):
            self._dead_letters.bury(job, BY_ATTEMPTS)
            return True
        if job.flags & FLAG_PAUSED:
            return False
        pause = self._pauses.backoff(job)
        if pause == 0:
            return False
        self._pauses.begin(job, pause, bus.INCR_DELIVERIES)
        return True

    # ---- from other nodes -------------------------------------------------------------------

    def _living_job(self, sender: bytes, id: bytes) -> Job | None:
        """Find the unfinished job ``id`` to which a packet of ``sender``, another holder, refers.
        If the job has ended, or another one has followed it, tell ``sender``, which does not
        know."""
        job = self._store.jobs.get(id)
        if job is None:
            refused = self._tombstones.refuse_cancelled(sender, id)
            if not refused and self._peers.understands(sender):
                refused = self._successors.tell_followed(sender, id)
            if not refused:
                self._tombstones.refuse(sender, id)
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
        lot = message.aux
        if lot and not message.flags and self._lots.has(job, sender, lot):
            return
        self._pauses.count(job, message.flags)
        self._queued_elsewhere(job, sender, message.flags, lot)

    def _queued_elsewhere(self, job: Job, sender: bytes, flags: int, lot: int = 0) -> None:
        """Handle that the node ``sender`` has ``job`` in its queue, in one of its lots unless
        ``lot`` is 0; ``flags``: see ``bus``."""
        if job.retry and self._pauses.is_lost(job, flags):
            job.flags &= ~FLAG_DELIVERED
            if job.flags & FLAG_IN_HAND:
                self._store.limits.taken_back(job, True)
            if job.flags & FLAG_HOLDS_GROUP:
                self._store.limits.grouping.left(job)
        if job.state == QUEUED and self._keeps(job, sender):
            if not flags & bus.NOREPLY:
                # Tell it that another node queued the job too. If it comes to another conclusion,
                # as it may while a node is new to one of them, they must not go on arguing.
                last = bus.NOREPLY if self._peers.understands(sender) else 0
                self._peers.send(sender, self._packets.about_job(bus.QUEUED, job.id, 0, last))
            return
        job.place = self._replicas.places.queued(sender)
        if self._is_about_to_ask(job) and self._peers.understands(sender):
            return  # what it hears now may be out of date, as what made it ask
        was_queued = job.state == QUEUED
        self._leave_to_other(job)
        job.flags &= ~HELD_BACK
        if was_queued and job.retry and self._peers.understands(sender):
            self._ask_again(job)
        elif lot and job.retry:
            self._lots.join(job, sender, lot)

    def _is_about_to_ask(self, job: Job) -> bool:
        """Whether this node asks within half a second whether another holder has ``job``. A pause
        is news: the holder that told of it queues the job afterwards."""
        asks = job.flags & (FLAG_QUEUED_BEFORE | FLAG_WILLQUEUE | FLAG_PAUSED) == FLAG_WILLQUEUE
        soon = self._machine.now + 2 * WARNING_TIME
        return asks and job.state == ACTIVE and job.delivered is not None and job.qtime <= soon

    def _ask_again(self, job: Job) -> None:
        """Ask soon whether another holder still has ``job``, which was taken out of its queue here
        because one had it in its own: it may have given it to this node meanwhile."""
        self._store.queue_soon_unless_held(job)

    def on_requeued(self, sender: bytes, fields: list[Field]) -> None:
        """Handle REQUEUED: another holder reports a job that was not processed. Raises
        ``PacketError``."""
        try:
            message = unpack_requeued(fields)
        except FieldsError as problem:
            raise PacketError(f"malformed REQUEUED: {problem}") from problem
        if self._store.jobs.get(message.id) is None and self._paging.bring(
            message.id, partial(self.on_requeued, sender, fields)
        ):
            return
        job = self._living_job(sender, message.id)
        if job is None:
            return
        if message.reason or message.attempts:
            self._pauses.learn(job, message)
        self._pauses.count(job, message.flags)
        if message.delay and job.retry:
            if self._pauses.corrects(job, sender, message):
                return
            if message.flags and not self._pauses.is_lost(job, message.flags):
                return  # if nobody queues it meanwhile, this node does when its time is over
            if job.state == QUEUED:
                if not message.flags & bus.INCR_NACKS:
                    # Its retry time was over there just when this node, which had asked as well,
                    # queued it.
                    self._replicas.announce(job, bus.QUEUED)
                    return
                self._take_out(job)
            if message.flags:
                job.place = None
            self._pauses.follow(job, message)
        elif message.flags:
            self._queued_elsewhere(job, sender, message.flags)

    def _leave_to_other(self, job: Job) -> None:
        """Leave ``job`` to another holder: do not queue it here for a whole retry time."""
        if job.state == QUEUED:
            self._take_out(job)
        if job.retry:
            job.flags |= FLAG_QUEUED_BEFORE
            self._store.postpone(job)
            self._store.progress.leave(job)
            if job.flags & FLAG_PAUSED:  # or a start would queue it once the pause is over
                self._store.progress.note(job)

    def _take_out(self, job: Job) -> None:
        """Take ``job`` out of its queue here, because of what another holder said."""
        self._store.dequeue(job)
        self._store.limits.grouping.hold(job, False)
        if self._notes.noting:
            self._notes.note(schema.DEQUEUED, job, schema.BY_PEER)

    def _keeps(self, job: Job, sender: bytes) -> bool:
        """Whether this node, rather than ``sender``, keeps ``job``, which both have queued.

        C nodes have an order of their own, which gives one of two nodes up to four jobs in five.
        Nodes with extensions share evenly, unless a C node comes between them in its order: then,
        if all three had the job, each could leave it to the next.
        """
        peers = self._peers
        own = self._replicas.own
        mine, other = place_on_c(own, job.id), place_on_c(sender, job.id)
        if peers.understands(sender):
            low, high = min(mine, other), max(mine, other)
            for id in peers.everyone():
                if not peers.understands(id) and low < place_on_c(id, job.id) < high:
                    break
            else:
                mine, other = even_place(own, job.id), even_place(sender, job.id)
        return mine >= other

    def on_willqueue(self, sender: bytes, message: JobMessage) -> None:
        """Handle WILLQUEUE: another holder asks whether it needs to queue the job."""
        if message.aux:
            sender = self._replicas.named(message.aux)
            if not sender:
                return
        job = self._living_job(sender, message.id)
        if job is None:
            return
        if job.state == QUEUED:
            # The other holders are probably about to ask as well.
            self._replicas.announce(job, bus.QUEUED)
            return
        place = job.place
        if place is not None and place.node != sender and message.mark and not message.aux:
            self._replicas.pass_on(job, sender, place.node, message.mark)
        self._pauses.answer(job, sender)

    def on_working(self, sender: bytes, message: JobMessage) -> None:
        """Handle WORKING: a worker of another holder has the job, or needs more time."""
        job = self._living_job(sender, message.id)
        if job is not None:
            self._leave_to_other(job)
            job.place = self._replicas.places.in_hand(sender)
            self._worked_on(job)

    def _worked_on(self, job: Job) -> None:
        """Note that the worker that has ``job`` said so."""
        taking = job.taking
        if taking is not None:
            now = self._machine.now
            job.taking = Taking(taking.client, now, taking.progress, taking.since)


def why_due(job: Job) -> schema.Reason:
    """The reason why ``job``, which is due, is queued."""
    if job.flags & FLAG_NACKED:
        return schema.BY_NACK
    return schema.BY_RETRY if job.flags & FLAG_QUEUED_BEFORE else schema.BY_DELAY


def place_on_c(node: bytes, job: bytes) -> int:
    """The rank of ``node`` among the nodes that queued ``job`` (both ids), as C nodes compute it:
    the highest keeps it. Where the nodes' ids differ, the random part of the job's id decides."""
    return int.from_bytes(node, "big") ^ int.from_bytes((2 * job[11:35])[: len(node)], "big")


def even_place(node: bytes, job: bytes) -> int:
    """Like ``place_on_c``, but each node is highest equally often."""
    return int.from_bytes(hashlib.blake2b(node + job, digest_size=16).digest(), "big")
