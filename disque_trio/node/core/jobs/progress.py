"""Notes what becomes of the jobs of a node, so that a start forgets none of it.

The append-only file says which jobs there are. What has become of them since they were added is
noted here, in the records of the progress file (see ``protocol.progress``): which jobs clients
have, pauses, counters, reasons, results. Nothing waits for these notes. That a client gets a job is
written before the reply leaves, or the job would be delivered twice; everything else after it,
since an attempt that no client has seen must not count. A busy node writes notes for a ms at a
time; so if it is killed, it forgets what happened in its last ms at most.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from disque_trio.node.core.jobs.job import (
    ACTIVE,
    FLAG_DELIVERED,
    FLAG_NACKED,
    FLAG_PAUSED,
    FLAG_QUEUED_BEFORE,
    FLAG_RESERVED,
    FLAG_TRAILER,
    FLAG_WILLQUEUE,
    QUEUED,
    Job,
    is_maker,
)
from disque_trio.node.core.jobs.replicas import Replicas
from disque_trio.node.core.jobs.trailers import JobOnDisk, Trailers
from disque_trio.protocol.progress import (
    SOON,
    WAITING,
    JobEnding,
    JobProgress,
    pack_block,
    pack_ending,
    pack_job,
    pack_taken,
    pack_time,
)
from disque_trio.respserver.machine import Machine

if TYPE_CHECKING:
    from mypy_extensions import i64

GAP: Final = 1  # ms between two blocks of notes
FLAGS_KEPT: Final = (
    FLAG_QUEUED_BEFORE | FLAG_WILLQUEUE | FLAG_DELIVERED | FLAG_RESERVED | FLAG_PAUSED | FLAG_NACKED
)


class Progress:
    """The notes of one node.

    Args:
        machine: provides the time.
        trailers: of the jobs.
        replicas: has this node's id.

    Attributes:
        recording: somebody writes the notes down.
        write: called with a block of notes.
        taken: ids of jobs that clients got since the last block of them; append those only while
            ``recording``.
        due: when to write what the turns have not written, in ms; 0: nothing is left.
        soon: ids of jobs that come back soon, as the connection of their client broke, and when, in
            ms. Their retry time is not over by then, but a start takes it to be.
        waiting: jobs by id that were loaded but not queued, although no client has them: until
            other nodes were asked, or their retry time is over.
        to_queue: ids of those that are queued once other nodes were asked, and of some that are no
            longer ``waiting``.
    """

    def __init__(self, machine: Machine, trailers: Trailers, replicas: Replicas) -> None:
        self.recording = False
        self.write: Callable[[bytes], None] = _drop
        self.taken: list[bytes] = []
        self.due: i64 = 0
        self.soon: dict[bytes, int] = {}
        self.waiting: dict[bytes, Job] = {}
        self.to_queue: set[bytes] = set()
        self._machine = machine
        self._trailers = trailers
        self._replicas = replicas
        self._jobs: list[Job] = []
        self._endings: list[JobEnding] = []
        self._written_at: i64 = 0
        self._taken_at: i64 = 0

    # ---- notes ------------------------------------------------------------------------------

    def note(self, job: Job) -> None:
        """Note that something happened to ``job``."""
        if self.recording:
            self._jobs.append(job)
            self._call()

    def note_ending(self, id: bytes, kind: int, until: int, result: bytes | None) -> None:
        """Note how the job ``id`` ended; the other arguments are those of ``JobEnding``."""
        if self.recording:
            self._endings.append(JobEnding(id, kind, until, result))
            self._call()

    def _call(self) -> None:
        """Note when to write what this turn does not, because the last block was written just
        now."""
        if not self.due:
            self.due = self._machine.now + GAP

    def write_taken(self) -> None:
        """Write a block with the jobs that clients got, unless it has to wait for a ms."""
        now: i64 = self._machine.now
        if self._taken_at == now:
            self._call()
            return
        self._taken_at = now
        block = pack_taken(self.taken, self._machine.now)
        self.taken = []
        if not (self._jobs or self._endings):
            self.due = 0
        self.write(block)

    def write_block(self) -> None:
        """Write a block of all notes, unless it has to wait for a ms."""
        now: i64 = self._machine.now
        if self._written_at == now:
            return
        jobs, endings = self._jobs, self._endings
        if self._taken_at == now and not (jobs or endings):
            return
        self._written_at = self._taken_at = now
        self.due = 0
        blocks = b""
        if self.taken:  # first: other notes may be about what became of these
            blocks = pack_taken(self.taken, self._machine.now)
            self.taken = []
        self._jobs, self._endings = [], []
        records: list[bytes] = []
        if jobs:
            records.append(pack_time(self._machine.now))
            records += [self.record(job) for job in jobs if job.state in (ACTIVE, QUEUED)]
        records += map(pack_ending, endings)
        if records:
            blocks += pack_block(records)
        if blocks:
            self.write(blocks)

    def flush(self) -> None:
        """Forget the notes: all jobs have been forgotten."""
        self.taken = []
        self._jobs = []
        self._endings = []
        self.soon.clear()
        self.waiting.clear()
        self.to_queue.clear()

    # ---- all of it --------------------------------------------------------------------------

    def records_of(self, jobs: list[Job]) -> list[bytes]:
        """The records of those of ``jobs`` about which there is something to know besides what the
        append-only file says."""
        records = [self.record(job) for job in jobs if self.has_moved(job)]
        return [pack_time(self._machine.now), *records] if records else []

    def has_moved(self, job: Job) -> bool:
        """Whether ``job`` is not where a start would put it that knows only the file."""
        state = job.state
        if state == QUEUED:
            if job.nacks or job.deliveries or not self.is_own(job):
                return True
        elif state != ACTIVE:
            return False
        elif self._waits(job):
            return True
        elif job.retry == 0:
            # Others are delayed, or copies. If it was delivered, it usually is no longer in the
            # file; but it may be that nobody knows.
            return job.flags & FLAG_DELIVERED != 0
        elif job.nacks or job.deliveries or job.flags & (FLAG_DELIVERED | FLAG_PAUSED):
            return True
        elif job.flags & (FLAG_QUEUED_BEFORE | FLAG_WILLQUEUE) and self.is_own(job):
            return True  # it is in another node's queue, or other nodes have yet to be asked
        if not job.flags & FLAG_TRAILER:
            return False
        trailer = self._trailers.of(job)
        return trailer is not None and (trailer.reason != b"" or len(trailer.attempts) > 0)

    def _waits(self, job: Job) -> bool:
        """Whether ``job`` was loaded, but not queued yet, although no client has it."""
        if isinstance(job, JobOnDisk):
            return job.waits
        return self.waiting.get(job.id) is job

    def _is_to_be_queued(self, job: Job) -> bool:
        """Whether ``job`` was loaded, and other nodes have yet to be asked before it is queued. If
        the node ends before that, the next process has to ask."""
        return job.id in self.to_queue and self.waiting.get(job.id) is job

    def leave(self, job: Job) -> None:
        """Note that another node has ``job``, or knows when it has to be queued."""
        self.to_queue.discard(job.id)
        self.waiting.pop(job.id, None)

    def tidy(self) -> None:
        """Forget which jobs were to be queued once none is ``waiting``: a node may have loaded
        millions, and they may have ended since."""
        if self.to_queue and not self.waiting:
            self.to_queue = set()
            self.waiting = {}

    def is_own(self, job: Job) -> bool:
        """Whether this node made ``job``."""
        return is_maker(self._replicas.own, job.id)

    def record(self, job: Job) -> bytes:
        """The record of ``job``."""
        taken = 0
        if job.state == ACTIVE and job.flags & (FLAG_DELIVERED | FLAG_PAUSED) == FLAG_DELIVERED:
            taken = self._machine.now if job.taking is None else job.taking.last_seen
        flags: int = job.flags & FLAGS_KEPT
        if self._waits(job):
            flags |= WAITING
        qtime: int = job.qtime
        if taken and job.id in self.soon:
            flags |= SOON
            qtime = min(qtime, self.soon[job.id])
        state = QUEUED if self._is_to_be_queued(job) else job.state
        found = JobProgress(state, flags, qtime, taken, job.nacks, job.deliveries)
        trailer = self._trailers.of(job)
        if trailer is not None:
            found.reason = trailer.reason
            found.attempts = trailer.attempts
        return pack_job(job.id, found)


def _drop(block: bytes) -> None:
    """Where blocks go while nobody writes them down."""
