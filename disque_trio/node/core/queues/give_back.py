"""Gives plain jobs back to the disk that came into memory alone, because a command named them.

Their records are still where they were, in the file of their segment. So nothing is written: if a
job is as it was, its place in the segment counts again.
"""

from typing import Any, Final
from zlib import crc32

from disque_trio.node.core.jobs.job import FLAGS_IN_FILES, JOB_OVERHEAD, QUEUED, Job
from disque_trio.node.core.pages.segment import Segment
from disque_trio.node.core.queues.queue import Queue
from disque_trio.node.core.queues.store import JobStore
from disque_trio.respserver.memory import MEMORY

AFTER: Final = 1_000  # ms in memory; a command may be about to use the job
AT_ONCE: Final = 256  # jobs to look at in a turn
MOST: Final = 16_384  # others stay in memory until their segment comes


class Visit:
    """A job that came into memory alone.

    Attributes:
        number: of its segment. place: in it.
        since: when it came, in ms.
        qtime, flags: its own then. print: the hash of what its record says.
    """

    __slots__ = ("flags", "number", "place", "print", "qtime", "since")

    def __init__(self, segment: Segment, place: int, job: Job, since: int, print: int) -> None:
        self.number = segment.number
        self.place = place
        self.since = since
        self.qtime = int(job.qtime)
        self.flags = int(job.flags)
        self.print = print


class GiveBack:
    """Gives jobs of ``store`` back to the disk.

    Args:
        busy: ids of jobs that have to stay, as in ``PageOut``.

    Attributes:
        visits: the jobs that came into memory alone, by id, the first one first.
    """

    def __init__(self, store: JobStore, busy: list[dict[bytes, Any]]) -> None:
        self.visits: dict[bytes, Visit] = {}
        self._busy = busy
        self._store = store
        self._pages = store.queues.pages

    def note(self, segment: Segment, place: int, job: Job) -> None:
        """Note that ``job``, which was at ``place`` of ``segment``, came into memory."""
        self.visits.pop(job.id, None)
        if len(self.visits) >= MOST:
            del self.visits[next(iter(self.visits))]
        now = self._store.machine.now
        self.visits[job.id] = Visit(segment, place, job, now, self._print(job))

    def turn(self) -> None:
        """Give back jobs that came some time ago."""
        before = self._store.machine.now - AFTER
        over: list[bytes] = []
        for id, visit in self.visits.items():
            if visit.since > before or len(over) >= AT_ONCE:
                break
            over.append(id)
        for id in over:
            visit = self.visits.pop(id)
            if any(id in ids for ids in self._busy):
                visit.since = before + AFTER
                self.visits[id] = visit
                continue
            job = self._store.jobs.get(id)
            segment = self._pages.segments.get(visit.number)
            if job is not None and segment is not None and self._is_as_it_was(job, visit, segment):
                self._put(job, segment, visit.place)

    def _print(self, job: Job) -> int:
        replicas = self._store.replicas
        flags = job.flags & FLAGS_IN_FILES
        return hash(replicas.serialize(job, flags, job.etime, job.body or b""))

    def _is_as_it_was(self, job: Job, visit: Visit, segment: Segment) -> bool:
        """Whether the record of ``job`` in ``segment`` still says all about it."""
        store = self._store
        return (
            job.state == QUEUED
            and int(job.qtime) == visit.qtime
            and int(job.flags) == visit.flags
            and job.queue == segment.queue
            and not (segment.reading or segment.has(visit.place))
            and self._print(job) == visit.print
            and _is_in_line(store.queues.by_name[job.queue], job)
        )

    def _put(self, job: Job, segment: Segment, place: int) -> None:
        """Let ``job`` be at ``place`` of ``segment`` again, and not in memory."""
        store = self._store
        id = job.id
        queue = store.queues.by_name[job.queue]
        lines = queue.paged
        assert lines is not None
        queue.lift(job)
        store.timers.remove(job)
        store.jobs.drop(id)
        store.jobs.marked.drop(id)
        memory = store.machine.memory
        size = JOB_OVERHEAD + len(job.body or b"")
        memory.used -= size
        if memory.shares is not None and not memory.shares.counts(id):
            memory.shares.add(job.queue, MEMORY, size)
        self._pages.put_back(segment, lines, place, id, crc32(id))
        if job.etime < segment.etime:
            self._pages.watch(segment, int(job.etime))
            store.limits.wake(self._pages.due)
        queue.look()


def _is_in_line(queue: Queue, job: Job) -> bool:
    """Whether ``job`` is outside any group, in a queue that has none."""
    return queue.groups is None and not queue.grouped and queue.has(job)
