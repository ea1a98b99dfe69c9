"""Puts the jobs that a node loads where they were: into its queues, clients' hands, pauses.

What the append-only file does not say is in the progress file (see ``progress``). With it, a job
that no client had is queued at once. If other nodes hold it too, they are asked first (WILLQUEUE),
as soon as there are connections to them: one may have queued or delivered it meanwhile. Without it,
as on a C node, anybody may have the job, so it is queued after its retry time.
"""

from typing import Final

from disque_trio.cluster.peers import Peers
from disque_trio.node.core.jobs.job import (
    ACTIVE,
    FLAG_DELIVERED,
    FLAG_NACKED,
    FLAG_PAUSED,
    FLAG_QUEUED_BEFORE,
    FLAG_WILLQUEUE,
    QUEUED,
    Job,
    Taking,
    first_due,
)
from disque_trio.node.core.jobs.progress import FLAGS_KEPT
from disque_trio.node.core.queues.store import WARNING_TIME, JobStore
from disque_trio.protocol import bus
from disque_trio.protocol.progress import SOON, WAITING, JobProgress, KnownJobs, ProgressReader
from disque_trio.protocol.serialjob import deljob, is_job_id
from disque_trio.respserver.memory import UNLIMITED

ASIDE: Final = 5_000  # ms that jobs that go to disk wait at least, so that they can
CONNECTING: Final = 500  # ms after a start in which nodes usually connect with each other
_TOGETHER: Final = 100  # jobs that other nodes are asked about in the same ms


class Recovery:
    """Places the jobs that one node loads.

    Args:
        store: the jobs.
        peers: the rest of the cluster.

    Attributes:
        asking: jobs to be queued, by their holders, who have to be asked first.
        ended: ids of jobs whose end has to be written to the file once it is open.
        lost: ids of jobs whose records in the file were damaged.
    """

    def __init__(self, store: JobStore, peers: Peers) -> None:
        self.asking: dict[tuple[bytes, ...], list[Job]] = {}
        self.ended: dict[bytes, None] = {}
        self.lost: dict[bytes, None] = {}
        self._store = store
        self._machine = store.machine
        self._progress = store.progress
        self._peers = peers
        self._found: ProgressReader | None = None
        self._known = KnownJobs()
        self._once = False
        self._stopped = False
        self._at_once = False
        self._in_hand: list[Job] = []

    @property
    def knows(self) -> bool:
        """Whether it is known what became of the jobs that are being loaded."""
        return self._found is not None

    @property
    def knows_all(self) -> bool:
        """Whether that is known of all of them, as the node stopped cleanly."""
        return self._found is not None and self._stopped

    def begin(self, found: ProgressReader, complete: bool, at_once: bool = False) -> None:
        """Use what was ``found`` for the jobs that are loaded next.

        Args:
            complete: every delivery of an at-most-once job is in the files.
            at_once: queue jobs without asking other holders, as a C node does if it is told to
                restore its queues.
        """
        self._found = found
        self._known = found.jobs
        self._once = complete
        self._stopped = found.stopped_at >= 0
        self._at_once = at_once

    # ---- one job ----------------------------------------------------------------------------

    def place(self, job: Job, flags: int, was_queued: bool) -> None:
        """Place ``job``, which had ``flags`` in the file, and ``was_queued`` when it was written
        there."""
        known = self._known.get(job.id)
        if known is not None:
            self._resume(job, known)
            return
        if self.delays(job, flags):
            return
        if job.retry == 0:
            own = self._progress.is_own(job)
            self._place_once(job, own and (was_queued or not flags & FLAG_QUEUED_BEFORE))
        elif self._is_to_queue(job, was_queued):
            self._queue(job)
        else:
            self._store.postpone(job)

    def delays(self, job: Job, flags: int) -> bool:
        """Schedule ``job``, which had ``flags`` in the file, for the end of its delay, or a retry
        time later if it is a copy; return False if the delay is over. That of an at-most-once copy
        does not count: the node that was chosen may have delivered the job."""
        now = self._machine.now
        first = first_due(job)
        if not job.delay or now >= first or (not job.retry and flags & FLAG_QUEUED_BEFORE):
            return False
        # If the clock was set back, that must not make the delay longer.
        job.qtime = min(first, now + job.delay * 1000)
        if flags & FLAG_QUEUED_BEFORE:
            job.qtime += job.retry * 1000
            job.flags |= FLAG_WILLQUEUE
        self._store.schedule(job)
        return True

    def skip(self, id: bytes, retry: int) -> None:
        """Note that the job ``id`` is not loaded, because it has expired. If the clock is wrong,
        a later start might take it for a job that was never delivered."""
        if not retry:
            self.ended[id] = None

    def forget(self, id: bytes) -> None:
        """Note that the job ``id``, which is not held, has ended."""
        self.ended.pop(id, None)
        self.lost.pop(id, None)

    def lose(self, id: bytes) -> None:
        """Note that the record of the job ``id`` is damaged."""
        self.lost[id] = None

    def write_ended(self) -> None:
        """Write the end of the jobs that were skipped."""
        self._machine.journal += map(deljob, self.ended)
        self.ended = {}

    def hold(self, job: Job) -> None:
        """Hold ``job``, which is delivered at most once and may have been."""
        job.flags |= FLAG_DELIVERED
        self._store.evictable[job.id] = job
        self._store.schedule(job)

    def postpone(self, job: Job, was_queued: bool) -> None:
        """Place ``job``, of which nothing is known, as a C node does: it is queued after its retry
        time."""
        store = self._store
        if job.delivered is None:
            # In the order of the file, so that those which go to disk are successive ones.
            job.flags |= FLAG_WILLQUEUE
            job.qtime = max(self._machine.now + job.retry * 1000, self._soonest())
            store.schedule(job)
        else:
            store.postpone(job)
        if self._is_to_queue(job, was_queued):
            self._progress.waiting[job.id] = job

    def _is_to_queue(self, job: Job, was_queued: bool) -> bool:
        """Whether it is for this node to queue ``job``, of which nothing is known, rather than hold
        a copy of it."""
        # When a node stops, it notes all jobs of other nodes that it has in its queues.
        was_queued = was_queued and not self._stopped
        return was_queued or job.delivered is None or self._progress.is_own(job)

    def _resume(self, job: Job, known: JobProgress) -> None:
        """Place ``job``, of which more is ``known``."""
        now = self._machine.now
        if known.reason or known.attempts:
            trailers = self._store.trailers
            trailer = trailers.want(job)
            trailer.reason = known.reason
            trailer.attempts = known.attempts
            trailers.recount(job, trailer)
        job.nacks = known.nacks
        job.deliveries = known.deliveries
        if job.retry == 0:
            job.flags |= known.flags & FLAGS_KEPT
            self._place_once(job, known.state == QUEUED)
            return
        # A client may have had it when its record was written.
        job.flags = job.flags & ~FLAG_DELIVERED | known.flags & FLAGS_KEPT
        if known.taken:
            job.flags |= FLAG_DELIVERED | FLAG_QUEUED_BEFORE | FLAG_WILLQUEUE
            job.flags &= ~(FLAG_PAUSED | FLAG_NACKED)
            job.taking = Taking(0, known.taken)
            retry = job.retry * 1000
            qtime = known.qtime or first_due(job) + retry
            if qtime - known.taken < retry // 2 and not known.flags & SOON:
                qtime = known.taken + retry  # see ``JobStore.take_job``
            self._in_hand.append(job)
            self._schedule(job, min(qtime, now + retry))
        elif known.state == QUEUED:
            self._queue(job)
        else:
            job.flags |= FLAG_WILLQUEUE  # another holder may have queued it meanwhile
            due = known.qtime or now
            if known.noted:
                # If the clock was set back, that must not make a pause longer.
                due = min(due, now + max(known.qtime - known.noted, 0))
            if known.flags & WAITING:
                due = max(due, self._soonest())
                self._progress.waiting[job.id] = job
            self._schedule(job, due)

    def _soonest(self) -> int:
        """When a job that waits for its retry time may be queued (ms): not while it is being
        loaded if there may be more of these than memory holds."""
        above = self._store.queues.pages.above
        return self._machine.now + ASIDE if above < UNLIMITED else 0

    def _schedule(self, job: Job, due: int) -> None:
        """Schedule ``job`` for ``due`` (ms), or for when its other holders can be asked: it was not
        in the queue here."""
        if self._is_known_elsewhere(job):
            due = max(due, self._machine.now + CONNECTING + WARNING_TIME)
        job.qtime = due
        self._store.schedule(job)

    def _has_others(self, job: Job) -> bool:
        """Whether other holders of ``job`` have to be asked before it is queued."""
        return not self._at_once and self._is_known_elsewhere(job)

    def _is_known_elsewhere(self, job: Job) -> bool:
        """Whether other nodes of the cluster may hold ``job``."""
        return any(self._peers.knows(id) for id in job.delivered or ())

    def _place_once(self, job: Job, undelivered: bool) -> None:
        """Place ``job``, which is delivered at most once: queue it if it was not delivered."""
        if undelivered and self._once:
            job.flags &= ~FLAG_DELIVERED
            self._store.put(job)
        else:
            self.hold(job)

    def queue_again(self, job: Job) -> None:
        """Place ``job``, which was in the queue here when the node stopped."""
        if job.retry == 0:
            self._place_once(job, True)
        else:
            self._queue(job)

    def asks_any(self, holders: tuple[bytes, ...]) -> bool:
        """Whether jobs on ``holders`` are queued only after these were asked."""
        return not self._at_once and any(self._peers.knows(id) for id in holders)

    def _queue(self, job: Job) -> None:
        """Queue ``job``, now or as soon as its other holders were asked."""
        store = self._store
        job.flags &= ~(FLAG_DELIVERED | FLAG_PAUSED | FLAG_NACKED)
        if not self._has_others(job):
            store.put(job)
            return
        store.postpone(job)
        self._progress.waiting[job.id] = job
        self._progress.to_queue.add(job.id)
        self.asking.setdefault(job.delivered or (), []).append(job)

    # ---- all of them ------------------------------------------------------------------------

    def finish(self) -> None:
        """Resume what concerns more than single jobs, once all are loaded."""
        store = self._store
        found = self._found
        if found is not None:
            for ending in found.endings.values():
                store.outcomes.remember(ending)
            for job in self._in_hand:
                if store.jobs.get(job.id) is job:
                    store.limits.resume(job)
        store.limits.group_all()
        # Another record, before or after the damaged one, may have told of the job.
        pages = store.queues.pages
        self.lost = {
            id: None
            for id in self.lost
            if is_job_id(id) and store.jobs.get(id) is None and not pages.find(id)
        }
        self._found = None
        self._known = KnownJobs()
        self._in_hand = []

    def go_on(self, now: int) -> None:
        """Ask the other holders of jobs, if there are connections to all of them."""
        for holders in list(self.asking):
            if self._may_ask(holders):
                self._ask(self.asking.pop(holders), now)

    def _may_ask(self, holders: tuple[bytes, ...]) -> bool:
        """Whether each of ``holders`` can be asked, or need not be: it has left the cluster; or it
        is down, and this node knows that it had the job itself when it stopped."""
        peers = self._peers
        for id in holders:
            if peers.linked(id) or not peers.knows(id):
                continue
            if not self._stopped or id in peers.reachable:
                return False
        return True

    def _ask(self, jobs: list[Job], now: int) -> None:
        """Queue ``jobs`` in a second, unless another holder objects. They are asked twice: now, and
        half a second before."""
        waiting = self._progress.waiting
        asked = 0
        for job in jobs:
            if job.state == ACTIVE and waiting.get(job.id) is job:
                at = now + 2 * WARNING_TIME + asked // _TOGETHER
                self._store.queue_unless_held(job, at)
                self._store.replicas.announce(job, bus.WILLQUEUE)
                asked += 1

    def flush(self) -> None:
        """Start over: all jobs have been forgotten."""
        self.asking.clear()
        self.lost.clear()
