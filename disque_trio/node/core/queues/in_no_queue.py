"""Moves jobs that are in no queue to disk while memory is short: copies that this node holds for
others, jobs with a delay, and jobs that were loaded without knowing whether a client has them.

The segments of copies go by the node that has the jobs in its queue, as far as this one knows, by
queue, and by the time at which this node would ask whether it still has. That node says in time
that it has (QUEUED): memory keeps a bit for each job of which it was heard. When the time of the
last one has come and all were heard of, the segment stays where it is for a further retry time.
Otherwise it comes back, and its jobs are asked about one by one. A second bit says that a client of
that node has the job (LEFT). So a copy on disk is late by a 32nd of its retry time, at most, and in
most cases it ends without having been read.

A segment of jobs with a delay comes back just before the first of these is over. The later that is,
the longer is the time that its jobs are spread over. One of loaded jobs comes back just before the
first of their retry times is over. That may be the same time for all of them, and they can go to
disk again from their queues; so only one such segment comes at a time.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from disque_trio.node.core.jobs.job import (
    ACTIVE,
    FLAG_DELIVERED,
    FLAG_QUEUED_BEFORE,
    FLAG_TRAILER,
    Job,
    first_due,
    is_maker,
)
from disque_trio.node.core.pages.segment import LATER, RETRIED, UNKNOWN, Segment, SegmentLines
from disque_trio.node.core.queues.disk_views import line_order
from disque_trio.node.core.queues.page_out import AGAIN_AFTER, MOST_SETS, STAYING, PageOut
from disque_trio.node.core.queues.store import WARNING_TIME, JobStore
from disque_trio.protocol.keyrecord import PENDING

LEAST_AGE: Final = 1_000  # ms; most jobs end sooner
LEAST_DELAY: Final = 2_000  # ms
READ_AHEAD: Final = 500  # ms before the delay of the first job of a segment is over
LEAST_OF: Final = 128  # of the jobs that a segment may have
LATENESS: Final = 32  # of the retry time
LOOKED_AT: Final = 8_192  # jobs at a time
LOOK_AFTER: Final = 10  # ms, whether memory has room for loaded jobs whose time has come
AT_LEAST_EVERY: Final = 100  # ms some of these come back, even if it has none
_FRACTION: Final = 64  # of the limit, by which memory grows before the next look


class InNoQueue:
    """Moves those jobs of ``store`` to disk that are in no queue.

    Args:
        out: makes the segments.

    Attributes:
        lines: their segments.
        over: numbers of those of loaded jobs whose time has come.
        break_up: called before a look at the timers: lots of copies go back there.
    """

    def __init__(self, store: JobStore, out: PageOut) -> None:
        self.lines = SegmentLines(b"", {}, {}, _nothing)
        self.over: deque[int] = deque()
        self.break_up: Callable[[], None] = _nothing
        self._coming = 0  # the last one of these that was read
        self._came_at = 0
        self._store = store
        self._out = out
        self._pages = out.pages
        self._machine = store.machine
        self._memory = store.machine.memory
        self._timers = store.timers
        self._below = 0  # number of the timers' bucket that was looked at last; 0: begin again
        self._found_any = False
        self._rest_until = 0
        self._rest_below = 0

    def wake_up(self) -> None:
        """Look again soon."""
        self._rest_until = 0

    def clear(self) -> None:
        """Start over: there are no jobs any more."""
        self.lines = SegmentLines(b"", {}, {}, _nothing)
        self.over.clear()
        self._below = 0

    # ---- to disk ----------------------------------------------------------------------------

    def page_out_one(self) -> bool:
        """Move some jobs to disk; return whether there were any that may go."""
        memory = self._memory
        now = self._machine.now
        if now < self._rest_until and memory.used < self._rest_below:
            return False
        found: dict[tuple[bytes, bytes, int], list[Job]] = {}
        looked = 0
        waiting = self._store.progress.waiting
        # First those that are not needed for longest.
        self.break_up()
        for number in self._timers.numbers(self._below):
            self._below = number
            for job in self._timers.in_bucket(number):
                looked += 1
                if waiting and waiting.get(job.id) is job:
                    if not self._is_retried(job, now):
                        continue
                    # The metrics tell jobs of which there are copies elsewhere from others.
                    key = (RETRIED, job.queue, int(job.retry) * 2 + (job.delivered is None))
                elif self._may_go(job, now):
                    key = (_origin(job), job.queue, int(job.retry))
                elif self._is_later(job, now):
                    key = (LATER, job.queue, 0)
                else:
                    continue
                jobs = found.get(key)
                if jobs and int(jobs[0].awake - job.awake) > _spread(key[0], jobs[0], now):
                    if self._write(key[0], jobs):
                        return True
                    jobs = None
                if jobs is None:
                    jobs = found[key] = []
                jobs.append(job)
                if len(jobs) == self._pages.most and key[0] is not RETRIED:
                    self._below = number + 1
                    self._write(key[0], jobs)
                    return True
            if looked > LOOKED_AT:
                break
        else:
            self._below = 0
        written = [self._write(key[0], jobs) for key, jobs in found.items()]
        self._found_any = self._found_any or any(written)
        if not self._below:
            if not self._found_any:
                self._rest_until = now + AGAIN_AFTER
                self._rest_below = memory.used + memory.limit // _FRACTION
            self._found_any = False
        return any(written)

    def _may_go(self, job: Job, now: int) -> bool:
        """Whether ``job`` is a copy that may go to disk at ``now`` (ms)."""
        if (
            job.state != ACTIVE
            or not job.retry
            or job.delivered is None
            or job.flags & (STAYING | FLAG_DELIVERED)
            or int(job.awake) < now + job.retry * 250
            or job.ctime // 1_000_000 + LEAST_AGE > now
            or is_maker(self._store.replicas.own, job.id)
        ):
            return False
        place = job.place
        if place is not None and (place.in_hand or place.node not in job.delivered):
            return False
        if job.flags & FLAG_TRAILER:
            trailer = self._store.trailers.of(job)
            if trailer is not None and trailer.key:
                # Somebody may still give it up.
                entry = self._store.uniques.of(job)
                return entry is not None and entry.state > PENDING
        return True

    def _is_later(self, job: Job, now: int) -> bool:
        """Whether ``job`` was made here, and has a delay for which it may go to disk at ``now``
        (ms)."""
        return (
            job.delay > 0
            and job.state == ACTIVE
            and not job.flags & (STAYING | FLAG_DELIVERED | FLAG_QUEUED_BEFORE)
            and int(job.awake) > now + LEAST_DELAY
            and first_due(job) > now + LEAST_DELAY
            # Put off by WORKING, it would still count as delayed after that.
            and int(job.qtime) <= first_due(job)
            and is_maker(self._store.replicas.own, job.id)
            and job.place is None
        )

    def _is_retried(self, job: Job, now: int) -> bool:
        """Whether ``job``, which was loaded and is not queued yet, may go to disk at ``now`` (ms)
        until its retry time is over. Those that other nodes are being asked about stay."""
        return (
            job.state == ACTIVE
            and job.retry > 0
            and not job.flags & (STAYING | FLAG_DELIVERED)
            and int(job.awake) > now + LEAST_DELAY
            and job.place is None
            and job.id not in self._store.progress.to_queue
        )

    def _write(self, origin: bytes, jobs: list[Job]) -> bool:
        """Make segments of ``jobs``, which ``origin`` has queued, unless they are too few."""
        if origin is not RETRIED:
            return self._write_one(origin, jobs)
        # All of a time at once, and in order: jobs that come into their queue between others that
        # are on disk could not go there again.
        jobs.sort(key=line_order)
        written = False
        part: list[Job] = []
        size = 0
        for job in jobs:
            part.append(job)
            size += len(job.body or b"")
            if len(part) == self._pages.most or size >= self._pages.most_bytes:
                written = self._write_one(origin, part) or written
                part = []
                size = 0
        return self._write_one(origin, part) or written

    def _write_one(self, origin: bytes, jobs: list[Job]) -> bool:
        """Make a segment of ``jobs``, which ``origin`` has queued, unless they are too few."""
        if len(jobs) < max(self._pages.most // LEAST_OF, 1):
            return False
        if origin is LATER or origin is RETRIED:
            due = min([int(job.awake) for job in jobs]) - READ_AHEAD
        else:
            due = max([int(job.awake) for job in jobs])
        jobs.sort(key=line_order)
        segment = self._out.make(jobs[0].queue, 0, jobs, [], origin)
        if segment is None:
            return False
        if origin is RETRIED:
            waiting = self._store.progress.waiting
            for job in jobs:
                if not job.awake:  # it has left the timers
                    del waiting[job.id]
        self.lines.add(segment)
        self._pages.tell_at(segment, due)
        self._store.limits.wake(self._pages.due)
        return True

    # ---- from disk --------------------------------------------------------------------------

    def is_coming(self) -> bool:
        """Whether a segment of loaded jobs is being read because its time has come."""
        segment = self._pages.segments.get(self._coming)
        return segment is not None and segment.reading

    def bring_retried(self, now: int, page_in: Callable[[Segment, bytes], bool]) -> None:
        """Bring loaded jobs back whose time has come at ``now`` (ms), one segment after the other:
        those that are in memory with ``page_in``. If memory is short, the next one has to wait a
        little until it is not."""
        pages = self._pages
        while self.over and not self.is_coming():
            if self._memory.used > pages.above and now < self._came_at + AT_LEAST_EVERY:
                return
            segment = pages.segments.get(self.over.popleft())
            if segment is None or segment.reading:
                continue
            self._coming = segment.number
            self._came_at = now
            if segment.data is not None:
                page_in(segment, segment.data)
            else:
                pages.order_read(segment)

    # ---- what other nodes say ---------------------------------------------------------------

    def hears(self, segment: Segment, place: int, node: bytes) -> bool:
        """Note that ``node`` has the job at ``place`` of ``segment`` in its queue; return False if
        that is not where it was."""
        if not self._is_told_of_by(segment, place, node):
            return False
        heard = segment.heard
        if heard is None:
            heard = segment.heard = bytearray(len(segment.bits))
            segment.heard_at = self._machine.now
        heard[place >> 3] |= 1 << (place & 7)
        if segment.left is not None:
            segment.left[place >> 3] &= ~(1 << (place & 7)) & 255
        return True

    def _is_told_of_by(self, segment: Segment, place: int, node: bytes) -> bool:
        """Whether the job at ``place`` of ``segment`` was in the queue of ``node`` as far as is
        known, or may have been, as that node made it."""
        if segment.origin == node:
            return True
        if segment.origin != UNKNOWN + node[:8]:
            return False
        if node not in (segment.holders_at(place) or ()):
            return False
        segment.heard_from = node
        return True

    def is_copy_on(self, segment: Segment, place: int, nodes: tuple[bytes, ...]) -> bool:
        """Note that the job at ``place`` of ``segment`` may also be on ``nodes``; return False if
        it is no copy for others, or has to be read for that."""
        holders = segment.holders_at(place)
        if segment.origin is None or holders is None:
            return False
        more = [node for node in nodes if node not in holders]
        if more:
            if len(segment.holders) >= MOST_SETS:
                return False
            before = segment.takes
            segment.held_by(place, self._store.replicas.sets.of((*holders, *more)))
            self._pages.count(segment.takes - before)
        return True

    def leaves(self, segment: Segment, place: int, node: bytes) -> bool:
        """Note that a client of ``node`` has the job at ``place`` of ``segment``; return False if
        it was not in a queue of that node."""
        if not self._is_told_of_by(segment, place, node):
            return False
        if segment.left is None:
            segment.left = bytearray(len(segment.bits))
        segment.left[place >> 3] |= 1 << (place & 7)
        return True

    def look_at(self, segment: Segment) -> bool:
        """Return whether ``segment``, whose time has come, may stay where it is, as all its jobs
        were heard of."""
        heard = segment.heard
        if heard is None:
            return False
        bits = segment.bits
        for at in range(len(bits)):
            if bits[at] & ~heard[at] & (255 if at < len(bits) - 1 else _last_bits(segment.count)):
                return False
        if segment.heard_from:
            segment.origin = segment.heard_from
            segment.heard_from = b""
        segment.told = segment.heard_at
        segment.heard = None
        self._pages.tell_at(segment, self.ask_after(segment))
        return True

    def ask_after(self, segment: Segment) -> int:
        """When to ask whether the jobs of ``segment`` still are where they were when it was told
        of them (ms)."""
        retry = segment.retry * 1000
        return segment.told + retry - WARNING_TIME + retry // LATENESS

    def later(self) -> dict[bytes, int]:
        """How many jobs lie on disk until their delay is over, by queue."""
        return self._count(LATER)

    def retried(self) -> dict[bytes, int]:
        """How many jobs that were loaded lie on disk until their retry time is over, by queue."""
        return self._count(RETRIED)

    def _count(self, origin: bytes) -> dict[bytes, int]:
        """How many jobs are in segments with this ``origin``, by queue."""
        found: dict[bytes, int] = {}
        for segment in self.lines.by_urgency.get(0, []):
            if segment.origin == origin:
                found[segment.queue] = found.get(segment.queue, 0) + segment.live
        return found

    def of_node(self, node: bytes) -> Segment | None:
        """A segment of jobs that ``node`` had queued; None: there is none, or it is being read."""
        for segment in self.lines.by_urgency.get(0, []):
            if segment.origin == node:
                return segment
        return None


def _spread(origin: bytes, last: Job, now: int) -> int:
    """How many ms the times of the jobs of a segment may be apart, of which ``last`` is the last
    one."""
    if origin is LATER:
        return int(last.awake - now) // 4
    return int(last.retry) * 1000 // LATENESS


def _origin(job: Job) -> bytes:
    """The node that has ``job`` in its queue; see ``Segment.origin``."""
    return UNKNOWN + job.id[2:10] if job.place is None else job.place.node


def _last_bits(count: int) -> int:
    """Those bits of the last byte of a segment with ``count`` jobs that stand for jobs."""
    return (1 << ((count - 1) % 8 + 1)) - 1


def _nothing() -> None:
    pass
