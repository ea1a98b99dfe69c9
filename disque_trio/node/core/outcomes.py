"""Remembers how the jobs of one node ended, for WAITJOB and for holders that were away.

Of a job that was just acknowledged, or has expired, nothing is kept but its id, in a ring of fixed
size: that costs a few instructions, and the memory of 16384 ids. Results, and other endings that
somebody may ask for, are kept for ``result-ttl``; then the ids of those with a result go into the
ring. That a job was cancelled is kept until its time
to live is over, so that a holder that was away does not deliver it. Both are bounded and in the
memory account; what would be forgotten first anyway makes room.
"""

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

from disque_trio.node.core.job import (
    ACKED,
    FLAG_END_UNKNOWN,
    FLAG_WATCHED,
    FLAGS_OF_ENDS,
    Job,
    id_minutes,
)
from disque_trio.node.core.registry import Registry
from disque_trio.node.core.trailers import Trailers
from disque_trio.protocol import trailer as endings
from disque_trio.respserver.machine import Machine

if TYPE_CHECKING:
    from mypy_extensions import i64

RING: Final = 16_384  # ids of jobs that were acknowledged last, or expired
DEFAULT_RESULT_TTL: Final = 60  # s
MOST_BYTES: Final = 64 << 20  # of results, and as many of the rest, where maxmemory is not set
_OVERHEAD: Final = 400  # bytes that one entry takes beside its result
RING_MASK: Final = RING - 1


class Outcome:
    """How a job ended.

    Attributes:
        kind: ACKED, DEAD, EXPIRED, CANCELLED or GONE of ``protocol.trailer``.
        result: what its worker left; None: nothing.
    """

    __slots__ = ("kind", "result")

    def __init__(self, kind: int, result: bytes | None = None) -> None:
        self.kind = kind
        self.result = result


GONE: Final = Outcome(endings.GONE)
_JUST_ACKED: Final = Outcome(endings.ACKED)
_EXPIRED: Final = Outcome(endings.EXPIRED)


class Kept:
    """Outcomes by the ids of their jobs, each until its time. They may take a tenth of maxmemory,
    or 64 MiB without one; then those whose time would come first make room.

    Args:
        machine: whose memory account counts them.

    Attributes:
        by_id: the outcomes, which may be so many that one dict would stop the node when it grows.
        size: bytes that they take.
    """

    def __init__(self, machine: Machine) -> None:
        self.by_id: Registry[Outcome] = Registry()
        self.size = 0
        self._memory = machine.memory
        self._ends: list[tuple[int, int, bytes]] = []  # heap: until when, ms, a number, the id
        self._number = 0

    def add(self, id: bytes, outcome: Outcome, until: int) -> None:
        """Keep ``outcome`` of the job ``id`` until ``until`` (ms), if there is none yet."""
        if self.by_id.get(id) is not None:
            return
        size = _size(outcome)
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

    def of(self, id: bytes) -> Outcome | None:
        """The outcome of the job ``id``; None: there is none."""
        return self.by_id.get(id) if self.by_id.count else None

    def forget_old(self, now: int) -> list[bytes]:
        """Forget what need not be kept any longer; returns the jobs that were acknowledged."""
        acked: list[bytes] = []
        while self._ends and self._ends[0][0] <= now:
            id = self._ends[0][2]
            outcome = self.by_id.get(id)
            if outcome is not None and outcome.kind == endings.ACKED:
                acked.append(id)
            self._drop_first()
        return acked

    def make_room(self, wanted: int) -> None:
        """Forget as much as it takes for no more than ``wanted`` bytes of memory to be used."""
        while self._ends and self._memory.used > wanted:
            self._drop_first()

    def _drop_first(self) -> None:
        """Forget what would be forgotten first."""
        _, _, id = heappop(self._ends)
        size = _size(self.by_id.shard_of(id)[id])
        self.by_id.drop(id)
        self.size -= size
        self._memory.used -= size

    def clear(self) -> None:
        """Forget all, after the memory account was reset."""
        self.by_id = Registry()
        self._ends = []
        self.size = 0


def _size(outcome: Outcome) -> int:
    """The bytes that ``outcome`` takes."""
    return _OVERHEAD + len(outcome.result or b"")


class Recent:
    """The ids in the rings. A dictionary of them is made when the first one is looked for, which
    takes no longer than to search the rings once."""

    def __init__(self, acked: list[bytes], expired: list[bytes]) -> None:
        self._rings = (expired, acked)
        self._ids: dict[bytes, Outcome] | None = None

    def of(self, id: bytes) -> Outcome | None:
        """How the job ``id`` ended; None: it is not there."""
        ids = self._ids
        if ids is None:
            expired, acked = self._rings
            ids = dict.fromkeys(expired, _EXPIRED) | dict.fromkeys(acked, _JUST_ACKED)
            self._ids = ids
        return ids.get(id)


class Watch:
    """Is told how jobs end that somebody waits for (FLAG_WATCHED). See ``job_waits``."""

    def ended(self, id: bytes, outcome: Outcome) -> None:
        """The job ``id`` has ended; GONE: it left this node, nothing else is known."""
        raise NotImplementedError


class Outcomes:
    """What one node knows of jobs that have ended.

    Args:
        machine: whose time and memory account it is.
        trailers: say how a job ended, if there is more to say than that it was acknowledged.

    Attributes:
        watch: is told of the jobs that somebody waits for.
        result_ttl: how long results are kept, s.
        ring: ids of the jobs that were acknowledged last. at: where the next one goes.
        kept: results, and other endings that somebody waited for. cancelled: the jobs that were.
        total_expired, total_cancelled: what INFO stats shows.
    """

    def __init__(self, machine: Machine, trailers: Trailers) -> None:
        self.watch: Watch | None = None
        self.result_ttl = DEFAULT_RESULT_TTL
        self.kept = Kept(machine)
        self.cancelled = Kept(machine)
        self.total_expired = 0
        self.total_cancelled = 0
        self._machine = machine
        self._trailers = trailers
        self.ring = [b""] * RING
        self.at: i64 = 0
        self._expired = [b""] * RING
        self._next_expired: i64 = 0

    # ---- how jobs end -----------------------------------------------------------------------

    def acked(self, job: Job) -> None:
        """``job`` was acknowledged, or ended as its trailer says."""
        if job.flags & FLAGS_OF_ENDS:
            if job.flags & FLAG_END_UNKNOWN:
                self.lost(job)
                return
            trailer = self._trailers.of(job)
            if trailer is not None and trailer.ending is not None:
                ending = trailer.ending
                is_acked = ending.kind == endings.ACKED
                self.ended(job, Outcome(ending.kind, ending.result if is_acked else None))
                return
            self._tell(job, _JUST_ACKED)
        # What _note_acked does, not by a call more.
        self.ring[self.at] = job.id
        self.at = (self.at + 1) & RING_MASK

    def _note_acked(self, id: bytes) -> None:
        """Put the job ``id`` into the ring of those that were acknowledged."""
        at: i64 = self.at
        self.ring[at] = id
        self.at = (at + 1) & RING_MASK

    def expired(self, job: Job) -> None:
        """The time to live of ``job`` is over."""
        if job.state != ACKED:
            self._tell(job, _EXPIRED)
            at = self._next_expired
            self._expired[at] = job.id
            self._next_expired = (at + 1) & RING_MASK

    def ended(self, job: Job, outcome: Outcome) -> None:
        """``job`` has ended, and not just by an acknowledge."""
        now = self._machine.now
        if outcome.kind == endings.CANCELLED:
            self.cancelled.add(job.id, outcome, max(job.etime * 1000, now + 1))
        elif self.result_ttl:
            self.kept.add(job.id, outcome, now + self.result_ttl * 1000)
        elif outcome.kind == endings.ACKED:
            self._note_acked(job.id)
        self._tell(job, outcome)

    def heard_cancelled(self, id: bytes) -> None:
        """The job ``id``, which this node does not hold, was cancelled elsewhere."""
        minutes = id_minutes(id)
        if minutes >= 0:
            until = self._machine.now + (minutes + 1) * 60_000
            self.cancelled.add(id, Outcome(endings.CANCELLED), until)

    def lost(self, job: Job) -> None:
        """``job`` leaves this node, or has ended; how is not known here."""
        self._tell(job, GONE)

    def _tell(self, job: Job, outcome: Outcome) -> None:
        """Tell those who wait for ``job``, if there are any."""
        if job.flags & FLAG_WATCHED:
            job.flags &= ~FLAG_WATCHED
            if self.watch is not None:
                self.watch.ended(job.id, outcome)

    # ---- what is known of them --------------------------------------------------------------

    def is_cancelled(self, id: bytes) -> bool:
        """Whether the job ``id``, which this node does not hold, is known to be cancelled."""
        return self.cancelled.of(id) is not None

    def of_held(self, job: Job) -> Outcome | None:
        """How ``job``, which this node still has, ended; None: it has not, or nobody said how."""
        if job.state != ACKED or job.flags & FLAG_END_UNKNOWN:
            return None
        trailer = self._trailers.of(job)
        if trailer is None or trailer.ending is None:
            return _JUST_ACKED
        ending = trailer.ending
        return Outcome(ending.kind, ending.result if ending.kind == endings.ACKED else None)

    def recent(self) -> "Recent":
        """The jobs that were acknowledged last, and those that expired last; one does for many
        looks in one turn."""
        return Recent(self.ring, self._expired)

    def of(self, id: bytes, recent: "Recent") -> Outcome | None:
        """How the job ``id`` ended, which this node does not have any more; None: that is not
        known. ``recent`` is what ``recent()`` gave."""
        outcome = self.kept.of(id) or self.cancelled.of(id)
        return outcome or recent.of(id)

    # ---- the rest ---------------------------------------------------------------------------

    def cron(self, now: int) -> None:
        """Forget what need not be kept any longer."""
        for id in self.kept.forget_old(now):
            self._note_acked(id)
        self.cancelled.forget_old(now)

    def flush(self) -> None:
        """Forget everything, after the memory account was reset."""
        self.kept.clear()
        self.cancelled.clear()
        self.ring = [b""] * RING
        self._expired = [b""] * RING
