"""Counts the jobs of queues by state (QSTAT FULL).

Each job is counted by one of its holders, so that the sums over the nodes are numbers of jobs.

They are not counted as they come and go, since that would make each job more expensive. Instead a
walk looks at all jobs of the node, slice by slice; clients are served in between. One walk counts
for all who asked before it began; later requests wait for the next one, so there are never two.
"""

from collections.abc import Callable
from typing import Final

from disque_trio.node.core.jobs.job import (
    ACTIVE,
    FLAG_PAUSED,
    FLAG_TRAILER,
    QUEUED,
    WAIT_REPL,
    Job,
    first_due,
    is_delivered,
    is_maker,
)
from disque_trio.node.core.jobs.registry import SHARDS
from disque_trio.node.core.jobs.trailers import Trailers
from disque_trio.node.core.queues.core import Core
from disque_trio.respserver.client import Client, Pending

SLICE: Final = 2_000  # jobs to look at per turn, roughly; takes well below a millisecond


# States of a job of this node. A copy: another node queues and delivers it. Waiting for its retry
# time: no other node has it, and it was loaded, or taken out of its queue.
IN_QUEUE: Final = "queued"
IN_HAND: Final = "active"
LATER: Final = "delayed"
COPY: Final = "copy"
RETRYING: Final = "waiting-retry"
ADDING: Final = "waiting"
ENDED: Final = "acked"
STATES: Final = (IN_QUEUE, IN_HAND, LATER, COPY, RETRYING, ADDING, ENDED)


def state_of(job: Job, now: int) -> str:
    """The state of ``job`` at ``now`` (ms): one of ``STATES``."""
    if job.state == QUEUED:
        return IN_QUEUE
    if job.state == WAIT_REPL:
        return ADDING
    if job.state != ACTIVE:
        return ENDED
    if is_delivered(job):
        # A job that is delivered at most once need not be acknowledged.
        return IN_HAND if job.retry else ENDED
    if job.flags & FLAG_PAUSED or (job.delay and first_due(job) > now):
        return LATER
    return RETRYING if job.delivered is None else COPY


# What users call the stages of a job that waits or runs; other jobs have none.
FRESH: Final = b"fresh"
RUNNING: Final = b"running"
DELAYED: Final = b"delayed"
RETRIED: Final = b"retrying"
DEAD: Final = b"dead"
STAGES: Final = (FRESH, RUNNING, DELAYED, RETRIED, DEAD)


def stage_of(job: Job, trailers: Trailers, now: int) -> bytes:
    """The stage of ``job`` at ``now`` (ms), which is one of ``STAGES``, or empty. One that a worker
    has runs, also if it came back before; a copy has no stage until this node queues it."""
    queued = job.state == QUEUED
    later = False
    if not queued:
        # As ``state_of``, without the states that need not be told apart here: lists look at all
        # jobs of the node.
        if job.state != ACTIVE:
            return b""
        if is_delivered(job):
            return RUNNING if job.retry else b""
        later = bool(job.flags & FLAG_PAUSED) or bool(job.delay and first_due(job) > now)
        if not later and job.delivered is not None:
            return b""
    if job.flags & FLAG_TRAILER and trailers.is_dead_letter(job):
        return DEAD
    if job.nacks + job.deliveries > 0:
        return RETRIED
    if queued:
        return FRESH
    return DELAYED if later else b""


class CountingHolders:
    """Says which of the nodes that hold a job counts it, so that the sums over all nodes count it
    once."""

    def __init__(self, core: Core) -> None:
        self._peers = core.peers
        self._replicas = core.store.replicas

    def counts_waiting(self, job: Job) -> bool:
        """Whether this node counts ``job``, which waits for its time in no queue, as all of its
        holders know: the node that made it does; if that does not answer, the first one, by its id,
        that does."""
        holders = job.delivered
        if holders is None or is_maker(self._replicas.own, job.id):
            return True
        for node in holders:
            if is_maker(node, job.id) and self._peers.answers(node):
                return False
        return self._is_first(holders)

    def counts_copy(self, job: Job) -> bool:
        """Whether this node counts ``job``, a copy of one that another node queues, as that one
        does not answer."""
        holders = job.delivered or ()
        if job.place is not None:
            return not self._peers.answers(job.place.node) and self._is_first(holders)
        own = self._replicas.own
        return not any(node != own and self._peers.answers(node) for node in holders)

    def _is_first(self, holders: tuple[bytes, ...]) -> bool:
        """Whether none of the other ``holders`` that answer has a lower id."""
        own = self._replicas.own
        return not any(node < own and self._peers.answers(node) for node in holders)


class JobStateCounts:
    """The counts of the jobs of one queue, on one node.

    Attributes:
        delayed: wait for the end of a delay or a pause, and this node counts them.
        in_hand: delivered by this node and not acknowledged.
        dead: dead letters that this node counts.
        waiting: loaded, but not queued yet (see ``Progress.waiting``).
        replies: the pending replies, each with the function that makes it.
    """

    def __init__(self) -> None:
        self.delayed = 0
        self.in_hand = 0
        self.dead = 0
        self.waiting = 0
        self.replies: list[tuple[Pending, Callable[[JobStateCounts], bytes]]] = []


class JobStateCounter:
    """The counting on one node.

    Attributes:
        shares: says which jobs it counts.
    """

    def __init__(self, core: Core) -> None:
        self._machine = core.machine
        self._store = core.store
        self._paging = core.paging
        self._rpc = core.rpc
        self.shares = CountingHolders(core)
        self._counting: dict[bytes, JobStateCounts] = {}  # by queue
        self._next: dict[bytes, JobStateCounts] = {}  # for the next walk
        self._shard = 0  # the next one of the registry

    def begin(
        self, client: Client, queue: bytes, answer: Callable[[JobStateCounts], bytes]
    ) -> None:
        """Count the jobs of ``queue``; then ``answer`` makes the reply to ``client``."""
        reply = Pending(client, None)
        client.line_up(reply)
        self._next.setdefault(queue, JobStateCounts()).replies.append((reply, answer))
        self._rpc.timer.wake_by(self._machine.now)

    def do_slice(self) -> None:
        """Look at some more jobs, if somebody waits for that."""
        if not self._counting:
            if not self._next:
                return
            self._counting, self._next = self._next, {}
            self._shard = 0
        shards = self._store.jobs.shards
        left = SLICE
        while left > 0 and self._shard < SHARDS:
            shard = shards[self._shard]
            self._shard += 1
            left -= len(shard)
            for job in shard.values():
                tally = self._counting.get(job.queue)
                if tally is not None:
                    self.count(tally, job)
        if self._shard == SHARDS:
            self._answer()
        if self._counting or self._next:
            self._rpc.timer.wake_by(self._machine.now)

    def count(self, tally: JobStateCounts, job: Job) -> str:
        """Count ``job``, which is in the queue of ``tally``. Return its state: COPY if another
        node counts it."""
        state = state_of(job, self._machine.now)
        counted = True
        if state == IN_HAND:
            tally.in_hand += 1
        elif state == LATER:
            if not self.shares.counts_waiting(job):
                return COPY
            tally.delayed += 1
        elif job.state != QUEUED and job.state != ACTIVE:
            return state
        elif job.id in self._store.progress.waiting:
            tally.waiting += 1
        else:
            counted = state != COPY
        if self._store.trailers.is_dead_letter(job) and (counted or self.shares.counts_copy(job)):
            tally.dead += 1
        return state

    def _answer(self) -> None:
        """Reply to all who waited for this walk, which is over."""
        counted, self._counting = self._counting, {}
        dead = self._paging.views.dead()
        aside = self._paging.aside
        later, retried = aside.later(), aside.retried()
        for name, tally in counted.items():
            tally.delayed += later.get(name, 0)
            tally.waiting += retried.get(name, 0)
            tally.dead += dead.get(name, 0)
            for reply, answer in tally.replies:
                reply.reply = answer(tally)
                self._machine.answered.append(reply)

    def flush(self) -> None:
        """Reply with what was counted so far: all jobs have been forgotten."""
        self._answer()
        self._counting, self._next = self._next, {}
        self._answer()
