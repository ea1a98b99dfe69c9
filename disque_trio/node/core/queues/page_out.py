"""Moves the middle of long queues to disk: chooses jobs that may go, and makes segments of them."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from disque_trio.node.core.jobs.job import (
    FLAG_DELIVERED,
    FLAG_TRAILER,
    FLAGS_IN_FILES,
    FLAGS_PRIORITY,
    JOB_OVERHEAD,
    Job,
)
from disque_trio.node.core.jobs.registry import SHARD_SHIFT
from disque_trio.node.core.pages.pages import Pages
from disque_trio.node.core.pages.segment import (
    EXPIRING_SECONDS,
    FIXED,
    RETRIED,
    Segment,
    SegmentLines,
)
from disque_trio.node.core.queues.columns import Columns
from disque_trio.node.core.queues.disk_views import line_order
from disque_trio.node.core.queues.group_lanes import LANES_A_LOOK, Lanes, put_in_group
from disque_trio.node.core.queues.keys_on_disk import KeysOnDisk
from disque_trio.node.core.queues.queue import Queue, chunk_after, place_after
from disque_trio.node.core.queues.store import JobStore
from disque_trio.respserver.memory import MEMORY

if TYPE_CHECKING:
    from mypy_extensions import i64

HEAD_KEPT: Final = 2  # segments' worth of jobs that stay at the head of a queue
QUEUES_A_LOOK: Final = 64
SEGMENTS_A_TURN: Final = 8
JOBS_A_TURN: Final = 4_096
RETRY_AFTER: Final = 1_000  # ms after an error of the disk
AGAIN_AFTER: Final = 1_000  # ms after a look at all queues that found nothing
# How much smaller segments are, while no queue is long enough: not at all at first, but from the
# second time on fewer jobs stay in memory.
SHORTER: Final = (0, 0, 3, 6)  # powers of two
LEAST_RUN: Final = 16  # jobs that are worth a file
LEAST_BYTES: Final = 8_192  # of records, likewise
_FRACTION: Final = 64  # of the limit, by which memory grows before the next look
MOST_SETS: Final = 200  # of holders in a segment; a byte has to say which
_LATEST: Final = 1 << 61  # creation time of a job on disk
# Those that a job on disk may not have.
STAYING: Final = ~(1 | 2 | FLAG_DELIVERED | FLAGS_PRIORITY | FLAG_TRAILER)


class PageOut:
    """Moves jobs of ``store`` to disk.

    Args:
        keys: of jobs on disk.

    Attributes:
        more: called if no queue has jobs that may go; returns whether others went.
        busy: ids of jobs that have to stay, as other parts of the node refer to them.
        came: when jobs of a queue last came back, in ms.
    """

    def __init__(self, store: JobStore, keys: KeysOnDisk) -> None:
        self.pages: Pages = store.queues.pages
        self.keys = keys
        self.more: Callable[[], bool] = _no_more
        self.busy: list[dict[bytes, Any]] = []
        self.came = 0
        self._store = store
        self._machine = store.machine
        self._memory = store.machine.memory
        self._replicas = store.replicas
        self._last: Queue | None = None  # that jobs were taken from
        self._cursor = 0
        self._looked_at_all = False  # since ``_idle`` was reset
        self._tight = 0  # place in ``SHORTER``
        self._rest_until = 0
        self._rest_below = 0
        self._retry_at = 0
        # Where there are no more jobs that may go, by queue, or group, and urgency.
        self._passed: dict[tuple[Queue, int], tuple[int, bytes]] = {}
        # How far jobs went that belong between those on disk, likewise.
        self._filled: dict[tuple[Queue, int], tuple[int, bytes]] = {}
        self._lanes = Lanes()

    def wake_up(self) -> None:
        """Look again soon."""
        self._rest_until = 0

    def failed(self) -> None:
        """Write nothing for a while."""
        self._retry_at = self._machine.now + RETRY_AFTER

    def clear(self) -> None:
        """Start over: there are no jobs any more."""
        self._last = None
        self._cursor = 0
        self._passed.clear()
        self._filled.clear()
        self._lanes = Lanes()

    def some(self) -> None:
        """Move the next jobs to disk, if there are any that may go."""
        pages = self.pages
        now = self._machine.now
        if pages.problem and now < self._retry_at:
            return
        rests = now < self._rest_until and self._memory.used < self._rest_below
        if rests and not self._store.progress.waiting:
            return
        before = pages.jobs
        for _ in range(SEGMENTS_A_TURN):
            if pages.writing > pages.most_writing:
                return
            if (rests or not self._page_out_one()) and not self.more():
                return
            if self._memory.used <= pages.above or pages.jobs - before >= JOBS_A_TURN:
                return

    def _page_out_one(self) -> bool:
        """Move the jobs of one segment to disk; return False if no queue has so many."""
        last = self._last
        lanes = self._lanes
        lanes.looks = LANES_A_LOOK
        if not lanes.queues:
            if last is not None and self._page_out(last, self._tight if self._tight > 1 else 0):
                return True
            queues = self._store.queues.index
            lanes.from_start = self._cursor == 0
            self._cursor, lanes.queues = queues.scan(self._cursor, QUEUES_A_LOOK)
            lanes.queues.reverse()
        while lanes.queues:
            queue = lanes.queues[-1]
            if queue.length and self._page_out(queue, self._tight):
                lanes.queues = []
                self._last = queue
                if self._tight == 1:
                    self._tight = 0
                self._looked_at_all = False
                return True
            if lanes.looks <= 0:
                return False
            lanes.queues.pop()
        if self._cursor == 0:
            if self._looked_at_all or lanes.from_start:
                self._rest()
            else:
                self._tight = 0
            self._looked_at_all = True
        return False

    def _rest(self) -> None:
        """All queues were looked at in vain: look closer, or rest for a while."""
        memory = self._memory
        above = self.pages.above
        enough = above + (memory.external_above - above) * self._tight // 4
        if self._tight + 1 < len(SHORTER) and memory.used > enough:
            self._tight += 1
            return
        self._tight = 0
        self._passed.clear()
        self._filled.clear()
        if not self.pages.writing:
            self.pages.problem = ""  # there is nothing to write
        self._rest_until = self._machine.now + AGAIN_AFTER
        self._rest_below = memory.used + memory.limit // _FRACTION
        self._last = None

    def _page_out(self, queue: Queue, tight: int) -> bool:
        """Move jobs of the middle of ``queue`` to disk; return whether there were any. ``tight``:
        leave fewer in memory (see ``SHORTER``)."""
        if queue.length - queue.on_disk() < 4:
            return False
        most, most_bytes = self.pages.most, self.pages.most_bytes
        if queue.groups is None:
            return self._page_out_lane(queue, queue, tight, most, most_bytes)
        if not queue.grouped:
            return False
        lanes = self._lanes
        lanes.begin(queue)
        while lanes.looks > 0:
            lane = lanes.lane()
            if lane is None:
                return False
            if lane is not queue:
                most, most_bytes = lanes.share(self.pages)
                tight = max(tight, 1)
            in_memory = lane.length - lane.on_disk()
            if in_memory >= 4 and self._page_out_lane(queue, lane, tight, most, most_bytes):
                return True
            lanes.go_on()
        return False

    def _page_out_lane(
        self, queue: Queue, lane: Queue, tight: int, most: int, most_bytes: int
    ) -> bool:
        """The same for ``lane``, that is ``queue`` or one of its groups; ``most`` jobs with
        ``most_bytes`` go together."""
        for urgency in lane.urgencies():
            run = self._find_run(lane, urgency, tight, most, most_bytes)
            if run is not None:
                index, start, count = run
                jobs = lane.cut(urgency, index, start, count)
                if self._write(queue, lane, urgency, jobs):
                    return True
                self._passed[lane, urgency] = (jobs[-1].ctime, jobs[-1].id)
        return False

    def _find_run(
        self, queue: Queue, urgency: int, tight: int, most: int, most_bytes: int
    ) -> tuple[int, int, int] | None:
        """Find jobs of ``queue`` that may go: the chunk that they begin in, the place in it, and
        their number. None: there are too few."""
        chunks = queue.line(urgency)
        segments = [] if queue.paged is None else queue.paged.by_urgency.get(urgency, [])
        shorter = SHORTER[tight]
        if shorter:
            least = LEAST_RUN if tight + 1 == len(SHORTER) else 2 * LEAST_RUN
            most = min(most, max(most >> shorter, least))
            most_bytes = max(most_bytes >> shorter, LEAST_BYTES)
        keep = 1 if tight else HEAD_KEPT
        after = self._passed.get((queue, urgency), (0, b""))
        if segments:
            after = max(after, segments[-1].end)
        if after[0]:
            index, start = _after(chunks, after)
            run = _measure(chunks, index, start, most, most_bytes, tight > 0)
            if run:
                return index, start, run
        if segments:
            # None behind the last segment: those ahead of the first.
            ahead = queue.ahead(segments[0])
            count = segments[0].count
            if ahead >= (keep + 1) * count:
                index, start = _position(chunks, ahead - count)
                return index, start, count
            if self._machine.now < self.came + AGAIN_AFTER:
                return None  # somebody may be about to look at them
            return self._find_between(queue, urgency, most, most_bytes, tight)
        if after[0]:
            return None
        index, start, ahead = _skip_head(chunks, keep * most, most, most_bytes)
        run = _measure(chunks, index, start, most, most_bytes, tight > 0)
        run = min(run, max(ahead // keep, 1))  # more would come back at once
        return (index, start, run) if run else None

    def _find_between(
        self, queue: Queue, urgency: int, most: int, most_bytes: int, tight: int
    ) -> tuple[int, int, int] | None:
        """The same, for jobs that belong between those on disk, but not near the head."""
        chunks = queue.line(urgency)
        assert queue.paged is not None
        first = queue.paged.by_urgency[urgency][0]
        keep = ((1 if tight else HEAD_KEPT) + 1) * max(most, first.count)
        index, start, ahead = _skip_head(chunks, keep, most, most_bytes)
        at = queue, urgency
        after = max(self._filled.get(at, (0, b"")), (first.ctime, first.id[:-1]))
        index, start = max((index, start), _after(chunks, after))
        while True:
            run = _measure(chunks, index, start, most, most_bytes, tight > 0)
            run = min(run, max(ahead >> 1, 1))
            if not run:
                return None
            part = _part(chunks, index, start, run)
            self._filled[at] = line_order(part[-1])
            if 2 * sum([self._stays(job) for job in part]) <= run:
                return index, start, run
            index, start = _after(chunks, line_order(part[-1]))

    def _stays(self, job: Job) -> bool:
        """Whether ``job``, which is queued, has to stay in memory."""
        return (
            job.flags & STAYING != 0
            or job.place is not None
            or any(job.id in ids for ids in self.busy)
            or job.id in self._store.progress.waiting
        )

    def _write(self, queue: Queue, lane: Queue, urgency: int, jobs: list[Job]) -> bool:
        """Make a segment of those of ``jobs`` that may go, and put the others back into ``lane``,
        that is ``queue`` or one of its groups. Return whether there are any."""
        kept: list[Job] = []
        segment = self.make(queue.name, urgency, jobs, kept, None)
        lane.put_in(urgency, kept)
        if segment is None:
            return False
        pages = self.pages
        if queue.paged is None:
            queue.paged = SegmentLines(
                queue.name, pages.hungry, pages.dry, self._store.limits.judge_need
            )
        if lane is not queue:
            put_in_group(queue, lane, segment, pages)
        lines = lane.paged
        assert lines is not None
        lines.add(segment)
        lane.look()
        self._store.limits.wake(self.pages.due)
        return True

    def make(
        self, name: bytes, urgency: int, jobs: list[Job], kept: list[Job], origin: bytes | None
    ) -> Segment | None:
        """Make a segment of those of ``jobs`` that may go, and add the others to ``kept``; None:
        there are none. They are jobs of the queue ``name`` with this ``urgency``, in order. With an
        ``origin`` (see ``Segment``) they are copies that may go as far as ``InNoQueue``
        knows."""
        copies = origin is not None
        pages = self.pages
        store = self._store
        progress = store.progress
        waiting = progress.waiting
        waits = origin == RETRIED
        busy = [ids for ids in self.busy if ids]
        segment: Segment | None = None
        columns = Columns()
        memory: i64 = 0
        tell_at = 0
        moved = differs = trailed = False
        registry = store.jobs
        marked = registry.marked
        shards = registry.shards
        timers = store.timers
        shares = self._memory.shares
        most_bytes: i64 = 2 * pages.most_bytes
        gone: i64 = self._machine.now // 1000 + EXPIRING_SECONDS  # they would come back by then
        earliest: i64 = 0
        for job in jobs:
            body = job.body
            if (
                job.flags & STAYING
                or (job.place is not None and not copies)
                or (copies and job.flags & FLAG_DELIVERED)
                or body is None
                or job.etime <= gone
                or job.ctime > _LATEST
                or (waiting and not waits and job.id in waiting)
                or (busy and any(job.id in ids for ids in busy))
                or (differs and segment is not None and len(segment.holders) >= MOST_SETS)
                or columns.size > most_bytes  # with what ``_measure`` does not know of
            ):
                kept.append(job)
                continue
            flags = job.flags & FLAGS_IN_FILES
            whole = body
            is_letter = False
            if job.flags & FLAG_TRAILER:
                trailer = self._trailer_of(job)
                if not trailer:
                    kept.append(job)
                    continue
                flags |= FLAG_TRAILER
                whole += trailer
                is_letter = self._store.trailers.is_dead_letter(job)
            if segment is not None and segment.letters != is_letter:
                kept.append(job)
                continue
            holders = job.delivered
            overhead = len(whole) - len(body)
            if segment is None:
                segment = pages.begin(name, urgency, overhead)
                segment.origin = origin
                segment.letters = is_letter
                segment.ctime, segment.id = job.ctime, job.id
                segment.holders.append(holders)
                earliest = job.etime
            if differs or overhead != segment.overhead or holders is not segment.holders[0]:
                differs = True
                segment.differ(len(columns.ids), overhead, holders)
            if not moved and (copies or job.nacks or job.deliveries):
                moved = progress.has_moved(job)
            id = job.id
            checksum = columns.add(job, flags, whole)
            if holders is not None and job.retry:
                awake = store.awake_of(job)
                tell_at = awake if not tell_at or awake < tell_at else tell_at
                segment.is_shared(int(job.retry), int(job.repl))
            if job.etime < earliest:
                earliest = job.etime
            timers.remove(job)
            if flags & FLAG_TRAILER:
                trailed = True
                self._leave_trailer(job)
            del shards[checksum >> SHARD_SHIFT][id]
            marked.drop(id)
            memory += len(body)
            if shares is not None and not shares.counts(id):
                shares.add(name, MEMORY, JOB_OVERHEAD + len(body))
            segment.last_ctime, segment.last_id = job.ctime, id
        if segment is None:
            return None
        count = len(columns.ids)
        registry.count -= count
        self._memory.used -= int(memory) + JOB_OVERHEAD * count
        segment.bodies = int(memory)
        segment.etime = int(earliest)
        segment.moved = moved or not (copies or columns.are_of(self._replicas.own))
        alone = segment.holders == [None]
        segment.plain = alone and not (copies or trailed or segment.moved)
        data = columns.fill(segment)
        pages.add(segment, columns.ids, columns.checksums, data)
        if tell_at and not copies:
            pages.tell_at(segment, tell_at)
        return segment

    def _trailer_of(self, job: Job) -> bytes:
        """The trailer of ``job``, as it goes to disk; empty: ``job`` has to stay."""
        trailer = self._store.trailers.of(job)
        if job.delivered is not None and (trailer is None or trailer.updated):
            return b""  # not all of them may know the change
        if trailer is None or trailer.ending:
            return b""
        return self._store.trailers.carried(job)

    def _leave_trailer(self, job: Job) -> None:
        """Forget the trailer of ``job``, which goes to disk, but for the key."""
        store = self._store
        trailer = store.trailers.of(job)
        if trailer is not None and trailer.key:
            self.keys.add(job.id, trailer.added_to or job.queue, trailer.key)
        store.trailers.drop(job)


def _measure(
    chunks: list[list[Job]], index: int, start: int, most: int, most_bytes: int, tight: bool
) -> int:
    """How many jobs from a place in the line on fit into a segment; 0: fewer than that, or as many
    again do not follow, and these stay in memory. ``tight``: they need not be so many."""
    size = 0
    count = 0
    first = start
    for at in range(index, len(chunks)):
        chunk = chunks[at]
        for place in range(first, len(chunk)):
            size += len(chunk[place].body or b"") + FIXED
            count += 1
            if count == most or size >= most_bytes:
                left = len(chunk) - place - 1
                wanted = 1 if tight else count
                while left < wanted:
                    at += 1
                    if at >= len(chunks):
                        return 0
                    left += len(chunks[at])
                return count
        first = 0
    return 0


def _skip(chunks: list[list[Job]], most: int, size: int) -> tuple[int, int, int]:
    """The place in the line behind the first ``most`` jobs, or behind fewer if they have ``size``
    bytes; and how many they are."""
    count = 0
    for index in range(len(chunks)):
        chunk = chunks[index]
        for at in range(len(chunk)):
            if count >= most or size <= 0:
                return index, at, count
            count += 1
            size -= len(chunk[at].body or b"") + FIXED
    return len(chunks), 0, count


def _skip_head(
    chunks: list[list[Job]], kept: int, most: int, most_bytes: int
) -> tuple[int, int, int]:
    """The same, for ``kept`` jobs, with bytes in proportion to ``most_bytes`` for ``most`` of them.
    If there are few, as they are large, some of the small ones behind them count, too."""
    size = kept * most_bytes // most
    found = _skip(chunks, kept, size)
    if _measure(chunks, found[0], found[1], most, most_bytes, True) > found[2]:
        found = _skip(chunks, kept, 2 * size)
    return found


def _after(chunks: list[list[Job]], last: tuple[int, bytes]) -> tuple[int, int]:
    """The place in the line behind ``last`` (see ``line_order``)."""
    index = chunk_after(chunks, last[0], last[1])
    return index, 0 if index == len(chunks) else place_after(chunks[index], last[0], last[1])


def _part(chunks: list[list[Job]], index: int, start: int, count: int) -> list[Job]:
    """The next ``count`` jobs from a place in the line on."""
    found: list[Job] = []
    while len(found) < count:
        found += chunks[index][start : start + count - len(found)]
        index, start = index + 1, 0
    return found


def _position(chunks: list[list[Job]], count: int) -> tuple[int, int]:
    """The place in the line behind the first ``count`` jobs."""
    index = 0
    while count >= len(chunks[index]):
        count -= len(chunks[index])
        index += 1
    return index, count


def _no_more() -> bool:
    return False
