"""Pauses before a job is queued again, and what the other holders are told of them.

Nodes with extensions are told (REQUEUED) how long a pause is and why, and what this node knows of
the job's deliveries. C nodes know no pauses: WORKING keeps them waiting.
"""

from typing import Final

from disque_trio.eventlog import schema
from disque_trio.node.core.jobs.job import (
    FLAG_IN_HAND,
    FLAG_NACKED,
    FLAG_PAUSED,
    FLAG_QUEUED_BEFORE,
    FLAG_TRAILER,
    FLAG_WILLQUEUE,
    UINT16_MAX,
    Job,
)
from disque_trio.node.core.queues.core import Core
from disque_trio.node.core.queues.store import TIME_ERROR, WARNING_TIME
from disque_trio.protocol import bus
from disque_trio.protocol.requeued import Requeued

MAX_PAUSE: Final = 1 << 42  # ms, a hundred years
# By how many ms a pause here has to outlast that of a node that does not know of it
MUCH_LATER: Final = WARNING_TIME + 4 * TIME_ERROR
HELD_BACK: Final = FLAG_PAUSED | FLAG_NACKED


class Pauses:
    """Keeps the jobs of one node from being queued again for a while."""

    def __init__(self, core: Core) -> None:
        store = self._store = core.store
        self._machine = store.machine
        self._replicas = store.replicas
        self._trailers = store.trailers
        self._policies = store.policies
        self._random = core.rng.random
        self._peers = core.peers
        self._packets = core.packets

    def backoff(self, job: Job) -> int:
        """Return the pause before ``job`` is requeued by the policy of its queue, in ms.

        The minimum at first, twice as long each time, plus or minus a quarter, never beyond the
        bounds.
        """
        if not self._policies.count:
            return 0
        policy = self._policies.of(job.queue)
        least = policy.backoff_min
        most = policy.backoff_max
        if most == 0:
            return 0
        pause = min(least << min(int(job.nacks) + int(job.deliveries), 40), most)
        return min(max(int(int(pause) * (0.75 + self._random() / 2)), least), most)

    def begin(self, job: Job, delay: int, flags: int) -> None:
        """Queue ``job`` again in ``delay`` ms. ``flags``: the reason, as in ``Requeued``."""
        self.count(job, flags)
        self._hold_back(job, min(delay, MAX_PAUSE), flags)
        if self._store.notes.noting:
            reason = schema.BY_NACK if flags & bus.INCR_NACKS else schema.BY_RETRY
            self._store.notes.note_pause(job, reason)
        self.tell(job, flags, delay)
        self.keep_waiting(job)

    def follow(self, job: Job, message: Requeued) -> None:
        """Pause ``job``, as another holder says."""
        # Not before the sender, which tells others when it queues the job. But if this node asked,
        # it is first; if both waited for each other, the job would never come.
        late = TIME_ERROR + int(self._random() * TIME_ERROR) if message.flags else 0
        self._hold_back(job, min(message.delay, MAX_PAUSE) + late, message.flags)

    def answer(self, job: Job, sender: bytes) -> None:
        """Tell ``sender``, which is about to queue ``job``, which is not queued here, of deliveries
        and of a pause that it does not know of, or that a client of this node has the job: a node
        that was down does not know that."""
        paused = job.flags & FLAG_PAUSED != 0
        left = int(job.qtime - self._machine.now) if paused else self._store.in_hand_for(job)
        if left <= MUCH_LATER:
            left = 0  # the sender may know of it: then its own pause is over first
        elif not paused:
            left += MUCH_LATER  # this node is the first to queue it again, and counts the delivery
        if self._peers.understands(sender):
            if left or job.flags & FLAG_TRAILER:
                self._tell_one(sender, job, 0, left)
        elif left and paused:
            self._peers.send(sender, self._packets.about_job(bus.WORKING, job.id))

    def is_lost(self, job: Job, flags: int) -> bool:
        """Whether the client of this node that got ``job`` has lost it: another holder queued it
        (``flags``: why), which it may also have done before it could hear of the delivery."""
        return flags & bus.INCR_NACKS != 0 or self._store.in_hand_for(job) <= 0

    def corrects(self, job: Job, sender: bytes, message: Requeued) -> bool:
        """Whether ``sender`` says that a client has ``job``, since it has not heard that a worker
        handed it back; then it is told."""
        if message.flags or not job.flags & FLAG_NACKED or not 0 <= message.nacks < int(job.nacks):
            return False
        left = int(job.qtime - self._machine.now)
        self._tell_one(sender, job, bus.INCR_NACKS, left if left > 0 else 1)
        return True

    def count(self, job: Job, flags: int) -> None:
        """Count what ``flags`` say happened."""
        if flags & bus.INCR_NACKS:
            job.nacks = min(job.nacks + 1, UINT16_MAX)
        if flags & bus.INCR_DELIVERIES:
            job.deliveries = min(job.deliveries + 1, UINT16_MAX)
        if flags & (bus.INCR_NACKS | bus.INCR_DELIVERIES):
            self._store.jobs.marked.add(job)

    def _hold_back(self, job: Job, delay: int, flags: int) -> None:
        """Keep ``job`` from being queued for ``delay`` ms."""
        if job.flags & FLAG_IN_HAND:
            self._store.limits.taken_back(job)
        job.flags |= FLAG_WILLQUEUE | (HELD_BACK if flags & bus.INCR_NACKS else FLAG_PAUSED)
        job.qtime = self._machine.now + delay
        self._store.schedule(job)
        self._store.progress.leave(job)
        self._store.progress.note(job)

    def tell(self, job: Job, flags: int, delay: int) -> None:
        """Tell the other holders what happened to ``job`` (see ``Requeued``)."""
        for id in self._replicas.of(job):
            if self._peers.understands(id):
                self._tell_one(id, job, flags, delay)
            elif id != self._replicas.own:
                self._peers.send(id, self._packets.about_job(bus.QUEUED, job.id, 0, flags))

    def _tell_one(self, id: bytes, job: Job, flags: int, delay: int) -> None:
        """Tell the node ``id``, which knows extensions, what happened to ``job``."""
        message = Requeued(job.id, flags, delay, b"", {})
        trailer = self._trailers.of(job)
        if trailer is not None:
            message.reason, message.attempts = trailer.reason, trailer.attempts
        if not flags and not job.flags & FLAG_PAUSED:
            message.nacks = int(job.nacks)
        self._peers.send(id, self._packets.fields(bus.REQUEUED, message.pack()))

    def ask_everyone(self, job: Job, delay: int) -> None:
        """Tell the nodes that are not known to hold ``job`` of its pause, too, and ask them what
        they know of it: the client that handed it back got it from one that may be among them."""
        holders = job.delivered or ()
        question = self._packets.about_job(bus.WILLQUEUE, job.id)
        for id in self._peers.everyone():
            if id not in holders and self._peers.understands(id):
                self._tell_one(id, job, bus.INCR_NACKS, delay)
                self._peers.send(id, question)

    def keep_waiting(self, job: Job) -> None:
        """Keep C nodes from queueing the paused ``job``: after each WORKING they wait for the retry
        time."""
        c_nodes = self._replicas.c_nodes_of(job)
        again = self._machine.now + int(job.retry) * 500
        if c_nodes and again < job.awake:
            packet = self._packets.about_job(bus.WORKING, job.id)
            for id in c_nodes:
                self._peers.send(id, packet)
            self._store.timers.move(job, again)

    def learn(self, job: Job, message: Requeued) -> None:
        """Note what another node knows of the deliveries of ``job``."""
        trailer = self._trailers.want(job)
        trailer.reason = message.reason or trailer.reason
        known = sum(trailer.attempts.values())
        self._trailers.learn_attempts(job, message.attempts)
        if sum(trailer.attempts.values()) > known:
            # A client had it, whatever ``JobStore.queue_unless_held`` was told.
            job.flags |= FLAG_QUEUED_BEFORE
