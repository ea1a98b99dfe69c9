"""Jobs that lie on disk, to look at: scans and QPEEK tell about them, and they stay where they are,
unless their file is damaged: then they are found elsewhere first, and come back.

What is needed is read while the caller does something else; until it is there, the iterators here
yield None. Meanwhile jobs go on moving to disk and back.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final
from zlib import crc32

from disque_trio.node.core.jobs.job import (
    ACTIVE,
    FLAG_QUEUED_BEFORE,
    FLAG_TRAILER,
    FLAG_WILLQUEUE,
    QUEUED,
    Job,
    first_due,
    read_job,
)
from disque_trio.node.core.jobs.registry import SHARD_SHIFT
from disque_trio.node.core.jobs.trailers import JobOnDisk
from disque_trio.node.core.pages.pages import ALL, IDS, VIEW
from disque_trio.node.core.pages.segment import (
    LATER,
    PLACE_BITS,
    QTIME,
    RETRIED,
    UNKNOWN,
    DamagedError,
    Records,
    Segment,
)
from disque_trio.node.core.queues.group_lanes import by_turns
from disque_trio.node.core.queues.queue import GROUPED_AT_ONCE, Queue
from disque_trio.node.core.queues.store import TIME_ERROR, JobStore
from disque_trio.protocol.serialjob import ID_LENGTH, SerialJob
from disque_trio.protocol.trailer import BY_ATTEMPTS, Letter, Trailer, split_body

READ_AHEAD: Final = 1 << 20  # bytes; a scan reads no more together
KEPT: Final = 10_000  # ms that what was read is kept for whoever asked for it


def job_of(segment: Segment, records: Records, at: int, store: JobStore) -> Job:
    """The job ``at`` of those that were read from ``segment``, to look at."""
    found = records.job(at, segment.queue)
    body, trailer = found.body, None
    if found.flags & FLAG_TRAILER:
        body, trailer = split_body(body)
    job = JobOnDisk(
        found.id,
        segment.queue,
        body,
        found.repl,
        found.ctime,
        found.etime,
        found.delay,
        found.retry,
    )
    job.trailer = trailer
    job.waits = segment.origin == RETRIED
    job.nacks = found.nacks
    job.deliveries = found.deliveries
    revive(job, segment, records.places[at], found.flags, records.number(at, QTIME), store)
    return job


def revive(job: Job, segment: Segment, place: int, flags: int, qtime: int, store: JobStore) -> None:
    """Set what ``job``, which was at ``place`` of ``segment`` with these ``flags``, has besides: as
    if its timer had gone on."""
    job.delivered = segment.holders_at(place)
    job.state = QUEUED
    job.flags = flags
    job.dump = store.dump_number
    now = store.machine.now
    if job.delivered is not None:
        if qtime and segment.told:
            qtime = segment.told + job.retry * 1000
    elif qtime and qtime <= now and segment.origin is None:
        gap = job.retry * 1000
        qtime += (now - qtime) // gap * gap + gap
    job.qtime = qtime
    if segment.origin is not None:
        _revive_copy(job, segment, place, store)


def remade(segment: Segment, place: int, found: SerialJob, store: JobStore) -> Job:
    """The job at ``place`` of ``segment``, which cannot be read, that was ``found`` in the
    append-only file."""
    job = read_job(found, segment.queue, found.etime, found.ctime, 0)
    now = store.machine.now
    flags = found.flags
    due = _retry_time(job, now)
    if segment.origin == LATER:
        due = first_due(job)
    elif segment.origin == RETRIED:
        flags |= FLAG_WILLQUEUE
    else:
        flags |= FLAG_QUEUED_BEFORE | (FLAG_WILLQUEUE if job.retry else 0)
        if segment.origin is None:
            segment.told = 0
            if segment.holders_at(place) is not None:
                due = now + 1  # other holders may not have heard of it for long
        if not job.retry:
            due = 0
    revive(job, segment, place, flags, due, store)
    return job


def _retry_time(job: Job, heard: int) -> int:
    """Return when the retry time of ``job``, last heard of at ``heard``, is over (both in ms). It
    begins after the delay at the earliest."""
    first = first_due(job)
    return (heard if heard > first else first) + job.retry * 1000


def _revive_copy(job: Job, segment: Segment, place: int, store: JobStore) -> None:
    """Set when ``job``, a copy that was at ``place`` of ``segment``, is queued, and where it is."""
    heard = segment.told
    is_heard = segment.heard is not None and segment.heard[place >> 3] >> (place & 7) & 1
    if is_heard:
        heard = segment.heard_at
    if heard:
        spread = int(store.random() * TIME_ERROR) - TIME_ERROR // 2
        job.qtime = _retry_time(job, heard) + spread
    job.state = ACTIVE
    node = segment.origin or b""
    if node in (LATER, RETRIED):
        return
    is_known = node[:1] != UNKNOWN
    if not is_known:
        node = segment.heard_from
    places = store.replicas.places
    if segment.left is not None and segment.left[place >> 3] >> (place & 7) & 1:
        job.place = places.in_hand(node)
    elif is_known or is_heard:
        job.place = places.queued(node)


def dead_letter_of(queue: bytes) -> Job:
    """A job that stands for the dead letters of ``queue`` that lie on disk."""
    id = b"D" * ID_LENGTH
    job = JobOnDisk(id, queue, b"", 1, 0, 0, 0, 0)
    job.state = QUEUED
    job.flags = FLAG_TRAILER
    job.waits = False
    job.trailer = Trailer()
    job.trailer.letter = Letter(id, b"", BY_ATTEMPTS, 0, b"")
    return job


def line_order(job: Job) -> tuple[int, bytes]:
    """What the jobs of a line are in the order of."""
    return job.ctime, job.id


class DiskViews:
    """Looks at the jobs of ``store`` that lie on disk.

    Args:
        rebuild: has the jobs of a segment, which cannot be read for a reason, come back.
    """

    def __init__(self, store: JobStore, rebuild: Callable[[Segment, str], None]) -> None:
        self._rebuild = rebuild
        # What was read and when (ms), by number of the segment and place, the oldest first.
        self._read: dict[tuple[int, int], tuple[int, bytes]] = {}
        self._asked: dict[tuple[int, int], None] = {}
        self._store = store
        self._pages = store.queues.pages

    def clear(self) -> None:
        """Forget what was read."""
        self._read.clear()
        self._asked.clear()

    def take_in(self, number: int, place: int, data: bytes) -> None:
        """Take what was read of the segment ``number`` for an order with this ``place``."""
        self._read[number, place] = self._store.machine.now, data

    @property
    def due(self) -> int:
        """When ``tidy`` next has something to do (ms); 0: never."""
        for moment, _ in self._read.values():
            return moment + KEPT
        return 0

    def tidy(self, now: int) -> None:
        """Forget what nobody has fetched for long: whoever asked for it has left, or will ask
        again."""
        while 0 < self.due <= now:
            key = next(iter(self._read))
            del self._read[key]
            self._asked.pop(key, None)

    def _data(self, segment: Segment, place: int) -> bytes | None:
        """The record at ``place`` of ``segment``, or its whole file if that is ``ALL``, or its
        ``IDS``, to look at; None: not yet. Empty: it cannot be read."""
        if segment.data is not None:
            if place == ALL:
                return segment.data
            if place == IDS:
                return segment.data[segment.size :]
            return segment.part(segment.data, place)
        key = (segment.number, VIEW + place)
        if key in self._read:
            self._asked.pop(key, None)
            return self._read.pop(key)[1]
        if key not in self._asked:
            self._asked[key] = None
            self._pages.order_read(segment, VIEW + place)
        return None

    def _look_at(self, segment: Segment, records: Records, at: int) -> Job | None:
        """The job ``at`` of ``records``, which stays on disk, in ``segment``. None: it has
        ended."""
        # It may have come into memory meanwhile, or even have left it again.
        id = records.ids[at]
        job = self._store.jobs.get(id)
        if job is not None or not self._pages.find(id):
            return job
        job = job_of(segment, records, at, self._store)
        gone = job.etime * 1000 + 1000
        job.awake = min(job.qtime, gone) if job.qtime else gone  # as ``JobStore.schedule``
        return job

    def jobs_in(self, segment: Segment) -> list[Job] | None:
        """The jobs that are still in ``segment``, to look at; None: not yet. If they cannot be
        read, there are none, and they come back into memory."""
        data = self._data(segment, ALL)
        if data is None:
            return None
        try:
            return list(self._jobs_in(segment, data).values())
        except DamagedError as problem:
            self._rebuild(segment, str(problem))
            return []

    def payloads(self, segment: Segment, data: bytes) -> list[bytes]:
        """The serialised jobs of ``segment``, whose file is ``data``, for an append-only file.
        Raises ``DamagedError``."""
        found: list[bytes] = []
        trailers = self._store.trailers
        replicas = self._store.replicas
        records = segment.read_all(data)
        for at in range(len(records.places)):
            job = records.job(at, segment.queue)
            if job.flags & FLAG_TRAILER and not trailers.all_travel:
                body, trailer = split_body(job.body)
                if not trailers.travels(trailer):
                    job.flags &= ~FLAG_TRAILER
                    job.body = body
            found.append(replicas.write(job, segment.holders_at(records.places[at])))
        return found

    def dead(self) -> dict[bytes, int]:
        """How many dead letters lie on disk, by queue, besides copies that other nodes count."""
        found: dict[bytes, int] = {}
        for segment in self._pages.segments.values():
            if segment.letters and segment.origin in (None, LATER, RETRIED):
                found[segment.queue] = found.get(segment.queue, 0) + segment.live
        return found

    def ids(self, segment: Segment) -> list[bytes] | None:
        """The ids of the jobs that are still in ``segment``, in order; None: not yet. Raises
        ``DamagedError``."""
        data = self._data(segment, IDS)
        if data is None:
            return None
        found: list[bytes] = []
        first = segment.slot << PLACE_BITS
        for place in segment.places():
            id = data[place * ID_LENGTH : (place + 1) * ID_LENGTH]
            if first + place not in self._pages.find(id):
                raise DamagedError("an id is wrong, or cannot be read")
            found.append(id)
        return found

    def scan(self, cursor: int, count: int) -> tuple[int, Iterator[Job | None]]:
        """Do a step of a scan of all jobs; see ``Registry.scan``. Return the next cursor, and the
        jobs; None: the next one is not there yet."""
        registry = self._store.jobs
        following, found = registry.scan(cursor, count)
        if not self._pages.jobs or cursor >> 32:
            return following, iter(found)
        end = following or 1 << 32
        nearer, places = self._pages.index.scan(cursor, end, count)
        if nearer < end:
            found = [job for job in found if crc32(job.id) < nearer]
        on_disk = [self._pages.at(place) for place in places]
        jobs = self._jobs_of(found, on_disk, cursor, nearer)
        return nearer if nearer < 1 << 32 else 0, jobs

    def scan_all(self, count: int) -> Iterator[Job | None]:
        """All jobs, in steps of about ``count``; None: the next one is not there yet."""
        cursor = 0
        while True:
            cursor, jobs = self.scan(cursor, count)
            yield from jobs
            if not cursor:
                return

    def _jobs_of(
        self, found: list[Job], on_disk: list[tuple[Segment, int]], first: int, end: int
    ) -> Iterator[Job | None]:
        """The jobs that a step of a scan ``found``, and those that are ``on_disk``, whose checksums
        are at least ``first`` and below ``end``; None: the next one is not there yet."""
        yield from found
        seen = {job.id for job in found}
        damaged: list[Segment] = []
        ahead: deque[tuple[Segment, int, bytes | None]] = deque()  # being read, or in memory
        size = 0
        rest = iter(on_disk)
        while True:
            while size < READ_AHEAD and (following := next(rest, None)) is not None:
                segment, place = following
                if segment.number in self._pages.segments:
                    ahead.append((segment, place, self._data(segment, place)))
                    size += segment.offsets[place + 1] - segment.offsets[place]
                else:
                    damaged.append(segment)  # to those who look for its jobs
            if not ahead:
                break
            segment, place, data = ahead.popleft()
            size -= segment.offsets[place + 1] - segment.offsets[place]
            while data is None:
                data = self._data(segment, place)
                if data is None:
                    yield None
            try:
                job = self._look_at(segment, segment.read_part(data, place), 0)
            except DamagedError as problem:
                damaged.append(segment)
                self._rebuild(segment, str(problem))
                continue
            if job is not None:
                seen.add(job.id)
                yield job
        if not damaged:
            return
        while any(segment.number in self._pages.segments for segment in damaged):
            yield None
        shards = self._store.jobs.shards[first >> SHARD_SHIFT : (end - 1 >> SHARD_SHIFT) + 1]
        found = [job for shard in shards for job in shard.values() if first <= crc32(job.id) < end]
        # Some may have gone to disk again.
        _, places = self._pages.index.scan(first, end, 1 << 32)
        on_disk = [self._pages.at(place) for place in places]
        for job in self._jobs_of(found, on_disk, first, end):
            if job is None or job.id not in seen:
                yield job

    def walk(self, queue: Queue, backwards: bool) -> Iterator[Job | None]:
        """The jobs of ``Queue.walk``, with those that lie on disk; None: the next one is not there
        yet."""
        if queue.paged is None:
            yield from queue.walk(backwards)
            return
        groups = queue.groups
        if groups is None:
            yield from self._walk_lane(queue, backwards)
            return
        lanes = (self._walk_lane(lane, backwards) for lane in groups.queues())
        if backwards:
            yield from self._walk_lane(queue, True)
        yield from by_turns(lanes, GROUPED_AT_ONCE)
        if not backwards:
            yield from self._walk_lane(queue, False)

    def _walk_lane(self, queue: Queue, backwards: bool) -> Iterator[Job | None]:
        """The same, without groups."""
        on_disk = [] if queue.paged is None else queue.paged.by_urgency
        urgencies = dict.fromkeys([*queue.urgencies(), *on_disk])
        for urgency in sorted(urgencies, reverse=not backwards):
            yield from self._walk_line(queue, urgency, backwards)

    def _walk_line(self, queue: Queue, urgency: int, backwards: bool) -> Iterator[Job | None]:
        """The jobs of ``queue`` with this ``urgency``, in turn, in stretches: each goes as far as
        the segment that ends first. What lies in a stretch may be in memory and in all segments
        that begin in it."""
        low: tuple[int, bytes] = (-1, b"")
        high: tuple[int, bytes] = (1 << 64, b"")
        files: dict[int, bytes] = {}
        while True:
            line = [] if queue.paged is None else queue.paged.by_urgency.get(urgency, [])
            line = [one for one in line if one.end > low and one.begin < high]
            is_last = not line
            start, end = low, high
            if line and backwards:
                start = max([(one.ctime, one.id[:-1]) for one in line])
                line = [one for one in line if one.end > start]
            elif line:
                end = min([(one.last_ctime, one.last_id + b"\0") for one in line])
                line = [one for one in line if one.begin < end]
            if not self._fetch(line, files):
                yield None  # then others may be the next
                continue
            part: dict[bytes, Job] = {}
            damaged: Segment | None = None
            for segment in line:
                try:
                    part.update(self._jobs_in(segment, files[segment.number]))
                except DamagedError as problem:
                    damaged = segment
                    self._rebuild(segment, str(problem))
            if damaged is not None:
                while damaged.number in self._pages.segments:
                    yield None
                continue
            part.update({job.id: job for job in queue.between(urgency, start, end)})
            jobs = [job for job in part.values() if start < line_order(job) < end]
            jobs.sort(key=line_order, reverse=backwards)
            if backwards:
                high = start
            else:
                low = end
            yield from jobs
            if is_last:
                return

    def _fetch(self, line: list[Segment], files: dict[int, bytes]) -> bool:
        """Let ``files`` be those of ``line``; return False if some are not there yet."""
        numbers = {one.number for one in line}
        for number in list(files):
            if number not in numbers:
                del files[number]
        for segment in line:
            if segment.number not in files:
                data = self._data(segment, ALL)
                if data is not None:
                    files[segment.number] = data
        return len(files) == len(line)

    def _jobs_in(self, segment: Segment, data: bytes) -> dict[bytes, Job]:
        """The jobs that are still in ``segment``, whose file is ``data``, to look at. Raises
        ``DamagedError``."""
        found: dict[bytes, Job] = {}
        records = segment.read_all(data)
        for at in range(len(records.places)):
            job = self._look_at(segment, records, at)
            if job is not None and segment.has(records.places[at]):
                found[job.id] = job
        return found
