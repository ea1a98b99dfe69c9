"""Remembers how the jobs of one node ended, for WAITJOB and for holders that were away.

Of a job that was just acknowledged, or has expired, only its id is kept, in a ring of fixed size.
That costs a few instructions, and the memory for 16384 ids. Results, and other outcomes that
somebody may ask for, are kept for ``result-ttl``; after that, the ids of jobs with a result go into
the ring. That a job was cancelled is kept until its time to live is over, so that a holder that was
away does not deliver it. Both are bounded and in the memory account; to make room, whatever would
be forgotten first is dropped.
"""

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

from disque_trio.node.core.jobs.job import (
    ACKED,
    FLAG_END_UNKNOWN,
    FLAG_WATCHED,
    FLAGS_OF_ENDS,
    Job,
    id_minutes,
)
from disque_trio.node.core.jobs.progress import Progress
from disque_trio.node.core.jobs.recent_ids import RecentIds
from disque_trio.node.core.jobs.registry import Registry
from disque_trio.node.core.jobs.trailers import Trailers
from disque_trio.protocol import trailer as endings
from disque_trio.protocol.progress import JobEnding, pack_ending
from disque_trio.respserver.machine import Machine
from disque_trio.respserver.memory import Memory

if TYPE_CHECKING:
    from mypy_extensions import i64

RING: Final = 16_384  # ids of the jobs that were last acknowledged, or that last expired
DEFAULT_RESULT_TTL: Final = 60  # s
MOST_BYTES: Final = 64 << 20  # for results, and for the rest, if maxmemory is not set
_PLACE: Final = 110  # bytes that an id takes in an index
_OVERHEAD: Final = 400  # bytes that an entry takes in addition to its result
RING_MASK: Final = RING - 1


class Outcome:
    """The way a job ended.

    Attributes:
        kind: ACKED, DEAD, EXPIRED, CANCELLED or GONE of ``protocol.trailer``.
        result: what its worker returned; None: nothing.
        queue: in which it was; empty: not known. The result counts for the users of this queue.
    """

    __slots__ = ("kind", "queue", "result")

    def __init__(self, kind: int, result: bytes | None = None, queue: bytes = b"") -> None:
        self.kind = kind
        self.result = result
        self.queue = queue


GONE: Final = Outcome(endings.GONE)
_JUST_ACKED: Final = Outcome(endings.ACKED)
_EXPIRED: Final = Outcome(endings.EXPIRED)


class Kept:
    """Outcomes by job id, each kept until its time. They may take a tenth of maxmemory, or 64 MiB
    if that is not set; beyond it, those with the earliest time are dropped.

    Args:
        machine: has the memory account.

    Attributes:
        by_id: the outcomes, in shards, as resizing a single large dict could stall the node.
        size: bytes that they take.
    """

    def __init__(self, machine: Machine) -> None:
        self.by_id: Registry[Outcome] = Registry()
        self.size = 0
        self._memory = machine.memory
        self._ends: list[tuple[int, int, bytes]] = []  # heap: until when (ms), a number, the id
        self._number = 0

    def add(self, id: bytes, outcome: Outcome, until: int) -> None:
        """Keep ``outcome`` of the job ``id`` until ``until`` (ms), if it has none yet."""
        if self.by_id.get(id) is not None:
            return
        size = size_of(outcome)
        memory = self._memory
        limit = memory.limit // 10 if memory.limit else MOST_BYTES
        if size > limit:
            return
        while self.size + size > limit:
            self._drop_first()
        self.by_id.put(id, outcome)
        self._number += 1
        heappush(self._ends, (until, self._number, id))
        self.size += size
        memory.used += size
        if memory.shares is not None and outcome.queue:
            memory.shares.job_grew(id, outcome.queue, size)

    def of(self, id: bytes) -> Outcome | None:
        """The outcome of the job ``id``; None: it is not known."""
        return self.by_id.get(id) if self.by_id.count else None

    def forget_old(self, now: int) -> list[bytes]:
        """Forget the outcomes whose time is over; return the jobs that were acknowledged."""
        acked: list[bytes] = []
        while self._ends and self._ends[0][0] <= now:
            id = self._ends[0][2]
            outcome = self.by_id.get(id)
            if outcome is not None and outcome.kind == endings.ACKED:
                acked.append(id)
            self._drop_first()
        return acked

    def entries(self) -> list[JobEnding]:
        """Everything that is kept."""
        found: list[JobEnding] = []
        for until, _, id in self._ends:
            outcome = self.by_id.shard_of(id)[id]
            found.append(JobEnding(id, outcome.kind, until, outcome.result))
        return found

    def make_room(self, wanted: int) -> None:
        """Drop outcomes until at most ``wanted`` bytes of memory are used."""
        while self._ends and self._memory.used > wanted:
            self._drop_first()

    def _drop_first(self) -> None:
        """Drop the outcome with the earliest time."""
        _, _, id = heappop(self._ends)
        outcome = self.by_id.shard_of(id)[id]
        size = size_of(outcome)
        self.by_id.drop(id)
        self.size -= size
        memory = self._memory
        memory.used -= size
        if memory.shares is not None and outcome.queue:
            memory.shares.job_grew(id, outcome.queue, -size)

    def clear(self) -> None:
        """Forget everything, after the memory account was reset."""
        self.by_id = Registry()
        self._ends = []
        self.size = 0


def size_of(outcome: Outcome) -> int:
    """The bytes that ``outcome`` takes."""
    return _OVERHEAD + len(outcome.result or b"")


class Index:
    """Finds ids in a ring, which only has to be fast to write: what was written since the last
    look-up is taken over then, so each id costs once.

    Args:
        memory: the account for what it takes.

    Attributes:
        size: bytes that it takes.
    """

    def __init__(self, memory: Memory) -> None:
        self.size = 0
        self._memory = memory
        self._ring: list[bytes] = []  # as it was then
        self._places: dict[bytes, int] = {}
        self._at: i64 = 0

    def has(self, id: bytes, ring: list[bytes], at: int) -> bool:
        """Whether the job ``id`` is in ``ring``, whose next id goes to ``at``."""
        last = (self._at - 1) & RING_MASK
        if not self._ring or self._ring[last] is not ring[last]:
            # It went around, or is another one.
            self._ring = ring[:]
            self._places = dict(zip(_written(ring, at), range(RING), strict=False))
            self._at = at
            self._count()
        elif at != self._at:
            self._take_over(ring, at)
            self._count()
        return id in self._places

    def _count(self) -> None:
        """Update the memory account."""
        size = _PLACE * len(self._places)
        self._memory.used += size - self.size
        self.size = size

    def _take_over(self, ring: list[bytes], at: int) -> None:
        """Take over what was written up to ``at``."""
        seen = self._ring
        places = self._places
        place = self._at
        while place != at:
            if places.get(seen[place]) == place:
                del places[seen[place]]
            id = ring[place]
            seen[place] = id
            places[id] = place
            place = (place + 1) & RING_MASK
        self._at = at


class Watch:
    """Hears how jobs end if somebody waits for that (FLAG_WATCHED). See ``job_waits``."""

    def ended(self, id: bytes, outcome: Outcome) -> None:
        """Handle that the job ``id`` ended; GONE: it left this node, and nothing else is known."""
        raise NotImplementedError


MAX_TOMBSTONES: Final = 10_000  # jobs; up to twice as many are remembered


class Outcomes:
    """One node's record of jobs that have ended.

    Args:
        machine: provides the time and memory account.
        trailers: have the endings of jobs that were not just acknowledged.
        progress: notes endings for the next start.

    Attributes:
        watch: hears of the jobs that somebody waits for.
        result_ttl: how long results are kept, in s.
        ring: ids of the jobs that were last acknowledged.
        at: index of the next one.
        kept: results, and other outcomes that somebody waited for.
        cancelled: cancelled jobs.
        gone: jobs that are no longer here, as they have ended (see ``tombstones``).
        total_expired, total_cancelled: the counters in INFO stats.
    """

    def __init__(self, machine: Machine, trailers: Trailers, progress: Progress) -> None:
        self.watch: Watch | None = None
        self.result_ttl = DEFAULT_RESULT_TTL
        self.kept = Kept(machine)
        self.cancelled = Kept(machine)
        self.gone = RecentIds(MAX_TOMBSTONES)
        self.total_expired = 0
        self.total_cancelled = 0
        self._machine = machine
        self._trailers = trailers
        self._progress = progress
        self.ring = [b""] * RING
        self.at: i64 = 0
        self._expired = [b""] * RING
        self._next_expired: i64 = 0
        self._find_acked = Index(machine.memory)
        self._find_expired = Index(machine.memory)

    # ---- how jobs end -----------------------------------------------------------------------

    def acked(self, job: Job) -> None:
        """Note that ``job`` was acknowledged, or ended as its trailer says."""
        if job.flags & FLAGS_OF_ENDS:
            if job.flags & FLAG_END_UNKNOWN:
                self.lost(job)
                return
            trailer = self._trailers.of(job)
            if trailer is not None and trailer.ending is not None:
                ending = trailer.ending
                if ending.kind == endings.ACKED and ending.result is not None:
                    self.ended(job, Outcome(ending.kind, ending.result, job.queue))
                else:
                    self.ended(job, Outcome(ending.kind))
                return
            self._tell(job, _JUST_ACKED)
        # The same as note_acked, without a call.
        self.ring[self.at] = job.id
        self.at = (self.at + 1) & RING_MASK

    def note_acked(self, id: bytes) -> None:
        """Put the job ``id`` into the ring of acknowledged jobs."""
        at: i64 = self.at
        self.ring[at] = id
        self.at = (at + 1) & RING_MASK

    def expired(self, job: Job) -> None:
        """Note that the time to live of ``job`` is over."""
        if job.state != ACKED:
            self._tell(job, _EXPIRED)
            at = self._next_expired
            self._expired[at] = job.id
            self._next_expired = (at + 1) & RING_MASK

    def ended(self, job: Job, outcome: Outcome) -> None:
        """Note that ``job`` ended in another way than by a plain acknowledgement."""
        now = self._machine.now
        if outcome.kind == endings.CANCELLED:
            self._keep(self.cancelled, job.id, outcome, max(job.etime * 1000, now + 1))
        elif self.result_ttl and self._has_room(outcome):
            self._keep(self.kept, job.id, outcome, now + self.result_ttl * 1000)
        elif outcome.kind == endings.ACKED:
            self.note_acked(job.id)
        self._tell(job, outcome)

    def _has_room(self, outcome: Outcome) -> bool:
        """Whether ``outcome``, which counts with its job so far, is within the budgets of the users
        of its queue: the results of some must not displace those of others."""
        shares = self._machine.memory.shares
        return shares is None or not outcome.queue or not shares.exceeds(outcome.queue)

    def cancelled_elsewhere(self, id: bytes) -> None:
        """Note that the job ``id``, which this node does not hold, was cancelled elsewhere."""
        minutes = id_minutes(id)
        if minutes >= 0:
            until = self._machine.now + (minutes + 1) * 60_000
            self._keep(self.cancelled, id, Outcome(endings.CANCELLED), until)

    def _keep(self, kept: Kept, id: bytes, outcome: Outcome, until: int) -> None:
        """Add to ``kept``, and note it for the next start."""
        kept.add(id, outcome, until)
        self._progress.note_ending(id, outcome.kind, until, outcome.result)

    def remember(self, ending: JobEnding) -> None:
        """Note ``ending``, which an earlier process knew, unless its time is over."""
        if ending.until > self._machine.now:
            kept = self.cancelled if ending.kind == endings.CANCELLED else self.kept
            kept.add(ending.id, Outcome(ending.kind, ending.result), ending.until)

    def records(self) -> list[bytes]:
        """The records of all endings that are kept, for the progress file."""
        found = [*self.kept.entries(), *self.cancelled.entries()]
        return [pack_ending(ending) for ending in found]

    def lost(self, job: Job) -> None:
        """Note that ``job`` leaves this node, or has ended in a way that is not known here."""
        self._tell(job, GONE)

    def _tell(self, job: Job, outcome: Outcome) -> None:
        """Tell those that wait for ``job``, if there are any."""
        if job.flags & FLAG_WATCHED:
            job.flags &= ~FLAG_WATCHED
            if self.watch is not None:
                self.watch.ended(job.id, outcome)

    # ---- look-ups ---------------------------------------------------------------------------

    def is_cancelled(self, id: bytes) -> bool:
        """Whether the job ``id``, which this node does not hold, is known to be cancelled."""
        return self.cancelled.of(id) is not None

    def of_held(self, job: Job) -> Outcome | None:
        """Return how ``job``, still on this node, ended; None: it has not, or it is unknown."""
        if job.state != ACKED or job.flags & FLAG_END_UNKNOWN:
            return None
        trailer = self._trailers.of(job)
        if trailer is None or trailer.ending is None:
            return _JUST_ACKED
        ending = trailer.ending
        return Outcome(ending.kind, ending.result if ending.kind == endings.ACKED else None)

    def of(self, id: bytes) -> Outcome | None:
        """Return how the job ``id``, no longer on this node, ended; None: unknown."""
        outcome = self.kept.of(id) or self.cancelled.of(id)
        if outcome is not None:
            return outcome
        if self._find_acked.has(id, self.ring, self.at):
            return _JUST_ACKED
        if self._find_expired.has(id, self._expired, self._next_expired):
            return _EXPIRED
        return None

    # ---- the rest ---------------------------------------------------------------------------

    def cron(self, now: int) -> None:
        """Forget what need not be kept any longer."""
        for id in self.kept.forget_old(now):
            self.note_acked(id)
        self.cancelled.forget_old(now)

    @property
    def index_size(self) -> int:
        """Bytes that finding jobs in the rings takes."""
        return self._find_acked.size + self._find_expired.size

    def flush(self) -> None:
        """Forget everything, after the memory account was reset."""
        self._find_acked = Index(self._machine.memory)
        self._find_expired = Index(self._machine.memory)
        self.kept.clear()
        self.cancelled.clear()
        self.ring = [b""] * RING
        self.at = 0
        self._expired = [b""] * RING
        self._next_expired = 0


def _written(ring: list[bytes], at: int) -> list[bytes]:
    """The part of ``ring`` that is in use, if the next id goes to ``at``: most nodes never fill
    it."""
    return ring if ring[at] else ring[:at]
