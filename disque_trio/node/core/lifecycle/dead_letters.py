"""Dead letters: what becomes of jobs that nobody could process, and how they come back.

If the policy of a queue names a dead-letter queue, a job goes there when it was delivered as often
as the policy allows, when it expires, or when a worker gives it up. Nothing is lost on the way: the
letter exists, in the file too, before the job ends, and the other holders make a copy of it before
they let the job go. So while nodes do not see each other there may be two letters of a job, but
never none.
"""

import hashlib
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Final

from disque_trio.eventlog import schema
from disque_trio.node.core.jobs.job import (
    ACKED,
    DEFAULT_TTL,
    FLAG_DELIVERED,
    FLAG_RESERVED,
    QUEUED,
    WAIT_REPL,
    Job,
)
from disque_trio.node.core.jobs.outcomes import Outcome
from disque_trio.node.core.lifecycle.ack_gc import AckGc
from disque_trio.node.core.lifecycle.successors import Successors, first_id
from disque_trio.node.core.queues.core import Core
from disque_trio.node.core.queues.queue import PAUSED_IN
from disque_trio.protocol import bus
from disque_trio.protocol.bus import MAX_NAME_IN_FIELDS
from disque_trio.protocol.fields import FieldsError
from disque_trio.protocol.successor import successor_id
from disque_trio.protocol.trailer import (
    BY_ATTEMPTS,
    BY_EXPIRY,
    BY_REDRIVE,
    BY_WORKER,
    DEAD,
    REDRIVEN,
    Ending,
    Letter,
)

LOOKS: Final = 1_000  # jobs to look at in a slice
DEFAULT_DEAD_TTL: Final = 7 * 86_400  # s
LATE: Final = 10_000  # ms; a job that expires later than this did so while its node was down
_REASONS: Final[dict[int, schema.Reason]] = {
    BY_ATTEMPTS: schema.BY_ATTEMPTS,
    BY_EXPIRY: schema.BY_EXPIRY,
    BY_WORKER: schema.BY_REFUSAL,
}


class DeadLetters:
    """Turns jobs of one node into dead letters, and dead letters into jobs.

    Args:
        successors: makes the dead letters.
        ack_gc: ends jobs on all nodes.

    Attributes:
        total_dead, total_redriven: the counters in INFO stats.
        cut_short: the last ``redrive`` did not look at all jobs. waits: it has to wait for the
            disk.
    """

    def __init__(self, core: Core, successors: Successors, ack_gc: AckGc) -> None:
        self._store = core.store
        self._trailers = core.store.trailers
        self._policies = core.policies
        self._successors = successors
        self._ack_gc = ack_gc
        self._peers = core.peers
        self._paging = core.paging
        self.total_dead = 0
        self.total_redriven = 0
        self.cut_short = False
        self.waits = False
        self._untold: dict[bytes, None] = {}  # letters that not all holders could be told about

    # ---- to the dead letters ----------------------------------------------------------------

    def goes_to(self, name: bytes) -> bytes:
        """The dead-letter queue of the queue ``name``. Empty: it has none, or its name is so long
        that no packet could say where a letter comes from."""
        dead = self._policies.of(name).dead
        return b"" if dead == name or len(name) > MAX_NAME_IN_FIELDS else dead

    def attempts(self, job: Job) -> int:
        """Return how often clients got ``job``, as far as this node knows: never too many."""
        trailer = self._trailers.of(job)
        return 0 if trailer is None else sum(trailer.attempts.values())

    def is_spent(self, job: Job) -> bool:
        """Whether ``job`` was delivered as often as the policy of its queue allows."""
        policy = self._policies.of(job.queue)
        return (
            policy.attempts > 0
            and self.attempts(job) >= policy.attempts
            and self.goes_to(job.queue) != b""
        )

    def bury(self, job: Job, why: int, reason: bytes = b"") -> None:
        """End ``job`` as a dead letter; its queue must have a dead-letter queue.

        Args:
            why: BY_ATTEMPTS or BY_WORKER.
            reason: given by the worker that gives it up; empty: none.
        """
        ending = self._ending(job, why, reason)
        self.total_dead += 1
        self._store.queues.died(job.queue)
        self._successors.make(job, ending, True)
        self._ack_gc.end(job, ending, _REASONS[why])
        self._successors.announce(job, ending)

    def _ending(self, job: Job, why: int, reason: bytes) -> Ending:
        trailer = self._trailers.of(job)
        letter = None if trailer is None else trailer.letter
        if not reason and trailer is not None:
            reason = trailer.reason
        attempts = self.attempts(job)
        policy = self._policies.of(job.queue)
        return Ending(
            DEAD,
            to=policy.dead,
            ttl=policy.dead_ttl or DEFAULT_DEAD_TTL,
            letter=Letter(first_id(job, letter), job.queue, why, attempts, reason),
        )

    def expire(self, job: Job) -> None:
        """Remove ``job``, whose time to live is over; it may leave a dead letter."""
        if self._policies.count and self._leaves_letter(job):
            ending = self._ending(job, BY_EXPIRY, b"")
            is_first = self._is_first(job)
            if is_first:
                self._store.queues.died(job.queue)
            self._successors.make(job, ending, is_first)
            self._find_others(successor_id(job.id, DEAD))
            self._successors.offer(ending)
            self._store.outcomes.ended(job, Outcome(DEAD))
            self.total_dead += 1
        queue = self._store.queues.by_name.get(job.queue)
        if queue is not None and job.state != ACKED:
            queue.jobs_expired += 1
        self._store.expire(job)

    def _find_others(self, id: bytes) -> None:
        """Tell the other holders of the letter ``id``, the job of which has expired here, that this
        node has it, too. If a node was given the job, not all holders know of it; the letter may
        have come and gone elsewhere before the job expires here."""
        new = self._store.jobs.get(id)
        if new is None:
            if self._paging.bring(id, partial(self._find_others, id)):
                return
            new = self._store.jobs.get(id)
        if new is None or new.state == ACKED:
            return
        if new.delivered is None or len(new.delivered) <= new.repl:
            return  # only who was given a job is one more than those that were to have it
        self._store.replicas.announce(new, bus.QUEUED if new.state == QUEUED else bus.WILLQUEUE)
        if len(self._untold) < LOOKS and not all(map(self._is_told, new.delivered)):
            self._untold[id] = None

    def _is_told(self, node: bytes) -> bool:
        """Whether ``node`` hears what it is told now, or nothing ever."""
        linked = node == self._store.replicas.own or self._peers.linked(node)
        return linked or not self._peers.knows(node)

    def linked_to_some(self) -> None:
        """Handle that there are new connections to nodes."""
        untold, self._untold = self._untold, {}
        for id in untold:
            self._find_others(id)

    def _leaves_letter(self, job: Job) -> bool:
        """Whether the expiring ``job`` becomes a dead letter: as far as this node knows, it was not
        processed, and might still have been delivered."""
        if job.state in (ACKED, WAIT_REPL) or job.body is None:
            return False
        if job.retry == 0 and job.flags & (FLAG_DELIVERED | FLAG_RESERVED):
            return False
        return self.goes_to(job.queue) != b""

    def _is_first(self, job: Job) -> bool:
        """Whether this node is the one that queues the letter of ``job``, which expires on all its
        holders at about the same time. The first reachable holder does, in an order that differs
        from job to job."""
        own = self._store.replicas.own
        if job.delivered is None:
            return True
        if self._store.machine.now - job.etime * 1000 > LATE:
            return False  # this node was down; others may have queued the letter long ago
        alive = [id for id in job.delivered if id == own or id in self._peers.reachable]
        return own == min(alive, key=lambda id: hashlib.sha256(id + job.id).digest())

    # ---- and back from them -----------------------------------------------------------------

    def redrive(
        self, texts: list[bytes], most: int, walk: Iterator[Job | None] | None = None
    ) -> int:
        """Send up to ``most`` jobs of a queue back, in the order of the queue. Sets ``cut_short``,
        and ``waits`` if that is because the next job lies on disk.

        Args:
            texts: the name of the queue; the queue to send them to (empty: back where each came
                from); and the ids of the jobs to send (none: any).
            walk: the jobs of the queue that have not been looked at; only some are, at once. None:
                look at all that are in memory ahead of those on disk.

        Returns:
            how many were sent. A job without an origin, or whose target takes no jobs, stays.

        Raises:
            FieldsError: there are too few texts.
        """
        if len(texts) < 2:
            raise FieldsError("a REDRIVE without queues")
        name, to, *ids = texts
        self.cut_short = self.waits = False
        queue = self._store.queues.by_name.get(name)
        if queue is None:
            return 0
        jobs: Iterable[Job | None] = queue.ready_jobs()
        if ids:
            found = [self._store.jobs.get(id) for id in ids]
            jobs = [job for job in found if job is not None and job.state == QUEUED]
        elif walk is not None:
            jobs = islice(walk, LOOKS)
        going: list[tuple[Job, bytes]] = []
        looks = 0
        if not most:
            jobs = []
        for job in jobs:
            if job is None:
                self.waits = True
                break
            looks += 1
            target = self._way_back(job, to)
            if target and job.queue == name and job.state == QUEUED:
                going.append((job, target))
                if len(going) == most:
                    break
        self.cut_short = (looks == LOOKS or self.waits) and walk is not None and not ids
        sent = 0
        for job, target in going:
            if job.state == QUEUED:  # an id may be given twice
                self._send_back(job, target)
                sent += 1
        self.total_redriven += sent
        return sent

    def _way_back(self, job: Job, to: bytes) -> bytes:
        """The queue that ``job`` goes back to; empty: it stays. ``to``: use this instead of its
        origin."""
        trailer = self._trailers.of(job)
        letter = None if trailer is None else trailer.letter
        target = to
        if not target and letter is not None and letter.why != BY_REDRIVE:
            target = letter.queue
        queue = self._store.queues.by_name.get(target)
        if target == job.queue or (queue is not None and queue.paused & PAUSED_IN):
            return b""
        return target

    def _send_back(self, job: Job, to: bytes) -> None:
        """Put a new job with the contents of ``job`` into the queue ``to``, and end ``job``."""
        trailer = self._trailers.of(job)
        before = None if trailer is None else trailer.letter
        attempts = 0 if before is None else before.attempts
        reason = b"" if before is None else before.reason
        letter = Letter(first_id(job, before), job.queue, BY_REDRIVE, attempts, reason)
        ttl = self._policies.of(to).ttl or DEFAULT_TTL
        ending = Ending(REDRIVEN, to=to, ttl=ttl, letter=letter)
        self._successors.make(job, ending, True)
        self._ack_gc.end(job, ending, schema.BY_REDRIVE)
        self._successors.announce(job, ending)
