"""A queue: jobs in order, and the clients blocked on it.

Keeps the order (by priority, creation time, id) and the counters of a queue. ``node`` decides who
may put jobs in or take them out.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Final

from disque_trio.node.core.jobs.job import Job
from disque_trio.node.core.pages.segment import Segment, SegmentLines
from disque_trio.node.core.queues.deaths import Deaths
from disque_trio.node.core.queues.groups import Groups
from disque_trio.node.core.queues.need_jobs import Imports
from disque_trio.node.core.queues.traffic import Traffic
from disque_trio.respserver.client import Client

PAUSED_IN: Final = 1
PAUSED_OUT: Final = 2

# As in ``job``. Compiled, a constant of another module costs a look-up.
FLAGS_PRIORITY: Final = 112

# Of the lines of groups: nothing is counted there.
_NO_TRAFFIC: Final = Traffic()

# What a queue costs in addition to its jobs, in bytes.
QUEUE_OVERHEAD: Final = 800

_CHUNK: Final = 512
_LOOKED_AT: Final = 1_000  # jobs, to find one that is not at-most-once
GROUPED_AT_ONCE: Final = 10_000  # jobs in groups to walk over
_LOOK: Final = 32  # jobs to take out between looks while few are ahead of the disk
_MOVED_AT_ONCE: Final = 16  # chunks to put into groups while one client waits for the result


def _chunk_of(chunks: list[list[Job]], job: Job) -> int:
    """The index of the first chunk that does not end before ``job``."""
    # A loop of our own: bisect would call a function for each comparison.
    ctime = job.ctime
    low = 0
    high = len(chunks)
    while low < high:
        middle = (low + high) >> 1
        other = chunks[middle][-1]
        if other.ctime < ctime or (other.ctime == ctime and other.id < job.id):
            low = middle + 1
        else:
            high = middle
    return low


def _place(chunk: list[Job], job: Job) -> int:
    """The index in ``chunk`` of the first job that does not come before ``job``."""
    ctime = job.ctime
    low = 0
    high = len(chunk)
    while low < high:
        middle = (low + high) >> 1
        other = chunk[middle]
        if other.ctime < ctime or (other.ctime == ctime and other.id < job.id):
            low = middle + 1
        else:
            high = middle
    return low


def chunk_after(chunks: list[list[Job]], ctime: int, id: bytes) -> int:
    """The index of the first chunk that does not end before, or with, this place in the line."""
    low = 0
    high = len(chunks)
    while low < high:
        middle = (low + high) >> 1
        other = chunks[middle][-1]
        if other.ctime < ctime or (other.ctime == ctime and other.id <= id):
            low = middle + 1
        else:
            high = middle
    return low


def place_after(chunk: list[Job], ctime: int, id: bytes) -> int:
    """The index in ``chunk`` of the first job that comes after this place in the line."""
    low = 0
    high = len(chunk)
    while low < high:
        middle = (low + high) >> 1
        other = chunk[middle]
        if other.ctime < ctime or (other.ctime == ctime and other.id <= id):
            low = middle + 1
        else:
            high = middle
    return low


def _precedes(job: Job, segment: Segment) -> bool:
    """Whether ``job`` comes before the first job of ``segment``, of the same urgency."""
    return job.ctime < segment.ctime or (job.ctime == segment.ctime and job.id < segment.id)


def _part_after(chunks: list[list[Job]], last: Job | None) -> list[Job]:
    """Return some of the jobs that follow ``last`` (None: of all), in order; empty: there are
    none."""
    index = start = 0
    if last is not None:
        index = _chunk_of(chunks, last)
        if index < len(chunks):
            chunk = chunks[index]
            start = _place(chunk, last)
            if chunk[start].id == last.id:
                start += 1
                if start == len(chunk):
                    index, start = index + 1, 0
    return chunks[index][start:] if index < len(chunks) else []


def _part_before(chunks: list[list[Job]], last: Job | None) -> list[Job]:
    """Return some of the jobs that precede ``last`` (None: of all), from back to front; empty:
    there are none."""
    index = len(chunks)
    end = 0
    if last is not None:
        index = _chunk_of(chunks, last)
        if index < len(chunks):
            end = _place(chunks[index], last)
    if not end:
        index -= 1
        if index < 0:
            return []
        end = len(chunks[index])
    part = chunks[index][:end]
    part.reverse()
    return part


class Queue:
    """The queued jobs of one name, in their order, and the clients blocked on it.

    The most urgent jobs come first; among equally urgent ones, the oldest. Nearly all jobs arrive
    in the order of their creation and leave at the front. The others (put back by a retry, or made
    on a node whose clock differs) go in between. So the jobs of each priority are kept in chunks of
    at most 512: adding at the end and taking the first job touch one chunk; anything else takes a
    binary search for the chunk and another inside it.

    Attributes:
        name: the queue's name.
        ctime, atime: creation and last use, in ms since the epoch.
        paused: PAUSED_IN and PAUSED_OUT bits.
        length: number of queued jobs.
        jobs_in, jobs_out: number of jobs ever put in, and taken out for any reason.
        jobs_expired: jobs of this queue that expired while this node held them.
        traffic: what clients of this node did with its jobs.
        waiters: clients blocked on this queue, in the order of their arrival.
        found_by: numbers of the patterns whose clients know that it has, or had, jobs.
        wanted: when a client of this node last took a job or asked for one in vain, in ms.
        filled: when it last got a job while it had none, in ms.
        deaths: its jobs that became dead letters; None: none did.
        imports: what this node knows of jobs of this queue elsewhere; None: it never asked.
        groups: the jobs that are in groups; None: there are none.
        paged: its jobs that lie on disk; None: it never had any.
        dry: the next job outside any group lies on disk.
        grouped: whether jobs go into groups. After it changes, call ``move_some`` until all jobs
            have moved.
        reply_head: the constant start of a GETJOB entry, up to the line with the id's length.
    """

    __slots__ = (
        "_chunks",
        "_counted",
        "_size",
        "_until_look",
        "_urgent",
        "atime",
        "ctime",
        "deaths",
        "dry",
        "filled",
        "found_by",
        "grouped",
        "groups",
        "imports",
        "jobs_expired",
        "jobs_in",
        "jobs_out",
        "length",
        "name",
        "paged",
        "paused",
        "reply_head",
        "traffic",
        "waiters",
        "wanted",
    )

    def __init__(self, name: bytes, now: int) -> None:
        self.name = name
        self.ctime = now
        self.atime = now
        self.paused = 0
        self.jobs_in = 0
        self.jobs_out = 0
        self.jobs_expired = 0
        self.traffic = _NO_TRAFFIC
        self.length = 0
        self._size = 0
        self._counted = False
        self._until_look = 0  # jobs to take out before it is counted how many are ahead of the disk
        self.paged: SegmentLines | None = None
        self.dry = False
        self.wanted = 0
        self.filled = now
        self.deaths: Deaths | None = None
        self.waiters: dict[Client, None] = {}
        self.found_by: tuple[int, ...] = ()
        self.imports: Imports | None = None
        self.groups: Groups | None = None
        self.grouped = False
        self.reply_head = b"$%d\r\n%b\r\n$40\r\n" % (len(name), name)
        self._chunks: list[list[Job]] = []
        self._urgent: dict[int, list[list[Job]]] = {}  # by FLAGS_PRIORITY, of those that have one

    def push(self, job: Job) -> None:
        """Put ``job`` into its place."""
        self.length += 1
        if self._counted:
            self._size += len(job.body or b"")
        self.jobs_in += 1
        if self.groups is not None and self.grouped and not self._has_line():
            self.groups.push(job)
            return
        chunks = self._chunks
        if job.flags & FLAGS_PRIORITY:
            chunks = self._urgent.setdefault(job.flags & FLAGS_PRIORITY, [])
        if not chunks:
            chunks.append([job])
            if self.dry:
                self.look()
            return
        chunk = chunks[-1]
        last = chunk[-1]
        if job.ctime > last.ctime or (job.ctime == last.ctime and job.id > last.id):
            if len(chunk) < _CHUNK:
                chunk.append(job)
            else:
                chunks.append([job])
            return
        self._insert(chunks, job)
        if self.dry:
            self.look()

    def pop(self) -> Job:
        """Take out the first job. There must be one that is ``deliverable``."""
        self.length -= 1
        self.jobs_out += 1
        if self.groups is not None and (self.grouped or not self._has_line()):
            job = self.groups.pop()
            if self._counted:
                self._size -= len(job.body or b"")
            return job
        chunks = self._urgent[max(self._urgent)] if self._urgent else self._chunks
        chunk = chunks[0]
        job = chunk.pop(0)
        if self._counted:
            self._size -= len(job.body or b"")
        if not chunk:
            self._drop(chunks, 0, job)
        if self.paged is not None:
            self._taken()
        return job

    def first_with_retry(self) -> Job | None:
        """The first job that is not at-most-once, among the first 1,000, if it is ``deliverable``;
        with groups only if it is the very next."""
        if self.groups is not None:
            line = self._has_line() and not self.grouped
            job = self.first() if line else self.groups.next_job()
            return job if job is not None and job.retry else None
        for job in islice(self.first_to_last(), _LOOKED_AT):
            if job.retry:
                return job
        return None

    def pop_with_retry(self) -> Job:
        """Take out ``first_with_retry``, which must exist."""
        job = self.first_with_retry()
        assert job is not None
        if self.groups is not None:
            return self.pop()
        self.remove(job)
        return job

    def first(self) -> Job:
        """The first of the jobs in no group. There must be one."""
        chunks = self._urgent[max(self._urgent)] if self._urgent else self._chunks
        return chunks[0][0]

    def remove(self, job: Job) -> None:
        """Take out ``job``, which must be in the queue."""
        self.length -= 1
        if self._counted:
            self._size -= len(job.body or b"")
        self.jobs_out += 1
        if self.groups is not None and self.groups.remove(job):
            return
        chunks = self._chunks
        if job.flags & FLAGS_PRIORITY:
            chunks = self._urgent[job.flags & FLAGS_PRIORITY]
        index = _chunk_of(chunks, job)
        chunk = chunks[index]
        del chunk[_place(chunk, job)]
        if not chunk:
            self._drop(chunks, index, job)
        if self.paged is not None:
            self._taken()

    def _drop(self, chunks: list[list[Job]], index: int, job: Job) -> None:
        """Remove a chunk that became empty when ``job`` was taken out."""
        del chunks[index]
        if not chunks and job.flags & FLAGS_PRIORITY:
            del self._urgent[job.flags & FLAGS_PRIORITY]

    def _by_urgency(self) -> list[list[list[Job]]]:
        """The chunks of each priority, the highest first."""
        return [
            *(self._urgent[flags] for flags in sorted(self._urgent, reverse=True)),
            self._chunks,
        ]

    def has(self, job: Job) -> bool:
        """Whether ``job`` is here, outside any group."""
        chunks = self._chunks
        if job.flags & FLAGS_PRIORITY:
            chunks = self._urgent.get(job.flags & FLAGS_PRIORITY, [])
        index = _chunk_of(chunks, job)
        if index == len(chunks):
            return False
        chunk = chunks[index]
        return chunk[_place(chunk, job)] is job

    def first_to_last(self) -> Iterator[Job]:
        """The queued jobs in the order in which GETJOB would return them."""
        if self.groups is not None:
            yield from self.groups.first_to_last()
        # Compiled, a generator expression would first build a list of everything.
        for chunks in self._by_urgency():
            for chunk in chunks:
                yield from chunk

    def last_to_first(self) -> Iterator[Job]:
        """The queued jobs in reverse order."""
        for chunks in reversed(self._by_urgency()):
            for chunk in reversed(chunks):
                yield from reversed(chunk)
        if self.groups is not None:
            yield from self.groups.last_to_first()

    def walk(self, backwards: bool) -> Iterator[Job]:
        """The jobs of ``first_to_last``, or ``last_to_first`` if ``backwards``, while jobs come and
        go. Those that stay come once; with groups, only the first 10,000 come."""
        if self.groups is not None:
            jobs = self.last_to_first() if backwards else self.first_to_last()
            yield from list(islice(jobs, GROUPED_AT_ONCE))
            return
        priorities = [*sorted(self._urgent, reverse=True), 0]
        if backwards:
            priorities.reverse()
        for priority in priorities:
            last: Job | None = None
            while True:
                chunks = self._urgent.get(priority, []) if priority else self._chunks
                part = _part_before(chunks, last) if backwards else _part_after(chunks, last)
                if not part:
                    break
                last = part[-1]
                yield from part

    # ---- jobs on disk -----------------------------------------------------------------------

    def on_disk(self) -> int:
        """How many of its jobs lie on disk."""
        return 0 if self.paged is None else self.paged.live

    def line(self, urgency: int) -> list[list[Job]]:
        """The chunks of the jobs in memory with these FLAGS_PRIORITY. None may become empty."""
        return self._urgent.get(urgency, []) if urgency else self._chunks

    def urgencies(self) -> list[int]:
        """The FLAGS_PRIORITY of the jobs in memory, the least urgent first."""
        return [0, *sorted(self._urgent)]

    def _taken(self) -> None:
        """Note that a job in memory was taken out. As long as enough are ahead of those on disk,
        there is nothing to find out."""
        self._until_look -= 1
        if self._until_look <= 0:
            self.look()

    def look(self) -> None:
        """Find out whether the next job lies on disk, and call for the next segment if so, or if
        few jobs are ahead of it."""
        paged = self.paged
        first = None if paged is None else paged.first()
        dry = False
        if paged is not None and first is not None:
            urgent = max(self._urgent) if self._urgent else 0
            if urgent > first.urgency:
                # Those come first; how many there are does not matter.
                self._until_look = 1
            else:
                ahead = self.ahead(first)
                dry = ahead == 0
                low = first.count
                if ahead < low:
                    paged.hungry[paged] = None
                    self._until_look = min(ahead, _LOOK)
                else:
                    self._until_look = ahead - low
        if dry != self.dry:
            self.dry = dry
            if paged is not None:
                paged.tell_dry(dry)

    def ahead(self, first: Segment) -> int:
        """How many jobs of its urgency are in memory before ``first``."""
        chunks = self.line(first.urgency)
        before = first.id[:-1]  # that job itself may have come back alone
        index = chunk_after(chunks, first.ctime, before)
        ahead = sum([len(chunk) for chunk in chunks[:index]])
        if index < len(chunks):
            ahead += place_after(chunks[index], first.ctime, before)
        return ahead

    def between(
        self, urgency: int, after: tuple[int, bytes], upto: tuple[int, bytes], most: int = 1 << 62
    ) -> list[Job]:
        """The jobs of ``urgency`` in memory that come after one creation time and id, up to
        another; the first ``most`` of them, if there are more."""
        chunks = self.line(urgency)
        index = chunk_after(chunks, after[0], after[1])
        found: list[Job] = []
        while index < len(chunks) and len(found) < most:
            chunk = chunks[index]
            end = place_after(chunk, upto[0], upto[1])
            found += chunk[place_after(chunk, after[0], after[1]) : end]
            if end < len(chunk):
                break
            index += 1
        return found[:most]

    def ready_jobs(self) -> Iterator[Job]:
        """The jobs in the order of GETJOB, up to the first one that lies on disk."""
        if self.paged is None:
            yield from self.first_to_last()
            return
        if self.groups is not None:
            yield from self.groups.ready_jobs()
        first = self.paged.first()
        if first is None:
            for chunks in self._by_urgency():
                for chunk in chunks:
                    yield from chunk
            return
        for urgency in sorted(self._urgent, reverse=True):
            if urgency > first.urgency:
                for chunk in self._urgent[urgency]:
                    yield from chunk
        for chunk in self.line(first.urgency):
            for job in chunk:
                if not _precedes(job, first):
                    return
                yield job

    def cut(self, urgency: int, index: int, start: int, count: int) -> list[Job]:
        """Take ``count`` jobs out of the chunks of ``urgency``, from index ``start`` in chunk
        ``index`` on. They still count."""
        chunks = self.line(urgency)
        if start:
            chunks.insert(index + 1, chunks[index][start:])
            del chunks[index][start:]
            index += 1
        found: list[Job] = []
        while len(found) < count:
            chunk = chunks[index]
            most = count - len(found)
            if len(chunk) <= most:
                found += chunk
                del chunks[index]
            else:
                found += chunk[:most]
                del chunk[:most]
        if not chunks and urgency:
            del self._urgent[urgency]
        return found

    def lift(self, job: Job) -> None:
        """Take ``job``, which must be here outside any group, out. It still counts."""
        urgency = int(job.flags & FLAGS_PRIORITY)
        chunks = self.line(urgency)
        index = _chunk_of(chunks, job)
        self.cut(urgency, index, _place(chunks[index], job), 1)

    def put_in(self, urgency: int, jobs: list[Job]) -> None:
        """Put ``jobs``, which count already and are in order, into the chunks of ``urgency``."""
        if not jobs:
            return
        first = jobs[0]
        last = jobs[-1]
        chunks = self._urgent.setdefault(urgency, []) if urgency else self._chunks
        index = _chunk_of(chunks, first)
        if index < len(chunks):
            before = _place(chunks[index], first)
            if before:
                chunks.insert(index + 1, chunks[index][before:])
                del chunks[index][before:]
                index += 1
            other = chunks[index][0]
            if other.ctime < last.ctime or (other.ctime == last.ctime and other.id < last.id):
                for job in jobs:
                    self._insert(chunks, job)
                return
        pieces = [jobs[at : at + _CHUNK] for at in range(0, len(jobs), _CHUNK)]
        chunks[index:index] = pieces

    def _insert(self, chunks: list[list[Job]], job: Job) -> None:
        """Put ``job`` into its place in ``chunks``."""
        index = _chunk_of(chunks, job)
        if index == len(chunks):
            chunks.append([job])
            return
        chunk = chunks[index]
        chunk.insert(_place(chunk, job), job)
        if len(chunk) > _CHUNK:
            chunks.insert(index + 1, chunk[_CHUNK // 2 :])
            del chunk[_CHUNK // 2 :]

    def gone_from_disk(self, segment: Segment, count: int, size: int) -> None:
        """Count that ``count`` of the jobs of ``segment``, with ``size`` bytes of bodies, are not
        there any more."""
        self.length -= count
        self.jobs_out += count
        if self._counted:
            self._size -= size
        if segment.group is not None:
            assert self.groups is not None
            self.groups.gone_from_disk(segment, count)
        elif not segment.live:
            self.look()

    def lane(self, group: bytes | None) -> "Queue":
        """The jobs of ``group``; None: itself, that is those in none."""
        if group is None:
            return self
        assert self.groups is not None
        found: Queue = self.groups.lane(group)
        return found

    def next_on_disk(self) -> Segment | None:
        """The segment that has the next job; None: that one is in memory, or there is none."""
        groups = self.groups
        if groups is not None and self.grouped:
            if self.deliverable():
                return None
            found = groups.next_on_disk()
            if found is not None:
                return found
        return self.paged.first() if self.dry and self.paged is not None else None

    def next_segments(self, most: int) -> list[Segment]:
        """The next segments of its groups and of what is in none, ``most`` at most."""
        lanes = [self] if self.groups is None else [*self.groups.queues(), self]
        found: list[Segment] = []
        for lane in lanes:
            first = None if lane.paged is None else lane.paged.first()
            if first is not None:
                found.append(first)
                if len(found) == most:
                    break
        return found

    def leave_groups(self) -> None:
        """Let the jobs on disk be in no group."""
        if self.groups is not None and self.paged is not None:
            self.paged.add_all(self.groups.take_segments())
            self.look()

    # ---- groups -----------------------------------------------------------------------------

    def _has_line(self) -> bool:
        """Whether there are jobs outside any group."""
        return (
            len(self._chunks) > 0
            or len(self._urgent) > 0
            or (self.paged is not None and len(self.paged.by_urgency) > 0)
        )

    def deliverable(self) -> int:
        """About how many jobs can be taken out now; 0 only if there are none, or if very many of
        them are still outside their groups."""
        groups = self.groups
        if groups is None or not self.grouped:
            return 0 if self.dry else self.length
        found = groups.deliverable()
        for _ in range(_MOVED_AT_ONCE):
            if found or not self._has_line() or self.dry:
                break
            self.move_some()
            found = groups.deliverable()
        return found

    def move_some(self) -> bool:
        """Move up to 512 jobs, in order, into their groups or out of them, as ``grouped`` says.
        Returns whether there are more."""
        groups = self.groups
        if groups is None:
            return False
        if self.grouped:
            if self._has_line() and not self.dry:
                urgency = max(self._urgent) if self._urgent else 0
                count = len(self.line(urgency)[0])
                first = None if self.paged is None else self.paged.first()
                if first is not None and first.urgency == urgency:
                    count = min(count, self.ahead(first))
                for job in self.cut(urgency, 0, 0, count):
                    groups.push(job)
                if self.paged is not None:
                    self.look()
            return self._has_line() and not self.dry
        count = min(groups.length, _CHUNK)
        self.length -= count  # ``push`` counts them again
        self.jobs_in -= count
        for _ in range(count):
            job = groups.pop()
            if self._counted:
                self._size -= len(job.body or b"")
            self.push(job)
        if groups.length:
            return True
        self.groups = None
        return False

    def oldest_age(self, now: int) -> int:
        """The age of the oldest queued job in ms, at ``now`` (ms); 0: there is none."""
        if not self.length:
            return 0
        return max(now - self.oldest() // 1_000_000, 0)

    def oldest_in_no_group(self) -> int:
        """The creation time of the oldest queued job outside any group, in ms times a million; 0:
        there is none."""
        found = [chunks[0][0].ctime for chunks in self._by_urgency() if chunks]
        return min(found + self._oldest_on_disk(), default=0)

    def _oldest_on_disk(self) -> list[int]:
        """The creation times of the first jobs on disk, in ms times a million."""
        if self.paged is None:
            return []
        return [line[0].ctime for line in self.paged.by_urgency.values()]

    def oldest(self) -> int:
        """The creation time of the oldest queued job, in ms times a million. There must be one."""
        found = [chunks[0][0].ctime for chunks in self._by_urgency() if chunks]
        found += self._oldest_on_disk()
        if self.groups is not None and self.groups.length:
            found.append(self.groups.oldest())
        return min(found)

    def body_grew(self, size: int) -> None:
        """Count that the body of a queued job grew by ``size`` bytes."""
        if self._counted:
            self._size += size

    def bytes_queued(self) -> int:
        """The total size of the bodies of all queued jobs, in bytes. The first call adds them up,
        which takes 40 ms for a million jobs; from then on the sum is kept up to date."""
        if not self._counted:
            self._counted = True
            for chunk in self.lines():
                self._size += sum([len(job.body or b"") for job in chunk])
            if self.paged is not None:
                self._size += self.paged.bodies
        return self._size

    def lines(self) -> list[list[Job]]:
        """Return all queued jobs in memory, in lists that the caller must not change."""
        lines = [chunk for chunks in self._by_urgency() for chunk in chunks]
        return lines if self.groups is None else lines + self.groups.lines()

    def hand_over(self) -> list[list[Job]]:
        """Empty the queue and return its jobs."""
        self.jobs_out += self.length
        self.length = 0
        self._size = 0
        lines = self.lines()
        self.groups = None
        self.paged = None
        self.dry = False
        self._chunks = []
        self._urgent.clear()
        return lines
