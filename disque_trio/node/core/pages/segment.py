"""A segment: successive jobs of a queue that lie in one file, and the bytes of that file.

The file is in columns, which cost less than records do: first the bodies of the jobs, each with the
trailer, if there is one; then their ids, for those who need nothing else; then three numbers for
each job. Other numbers are those of the job before in most cases: they follow for each run of jobs
that have them in common. Last are checksums: one for each few jobs, which also covers the number of
the segment and the places of the jobs in it, so jobs of another file, or of the file that an
earlier process gave the same name, are not taken for these; and one for the runs. Where the bodies
begin is only in memory: the file is a cache of what the append-only file says. It outlives the
process only if that leaves an index (see ``queues.start_index``).
"""

from array import array
from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Final
from zlib import crc32

from disque_trio.protocol.fields import pack_texts, unpack_texts
from disque_trio.protocol.serialjob import ID_LENGTH, SerialJob

if TYPE_CHECKING:
    from mypy_extensions import i64

PLACE_BITS: Final = 12
MOST_JOBS: Final = 1 << PLACE_BITS  # in a segment
SEGMENT_TAKES: Final = 800  # bytes of memory, besides those for each job
LATER: Final = b"later"
RETRIED: Final = b"retried"
UNKNOWN: Final = b"?"
EXPIRING_SECONDS: Final = 2  # others that expire by then come back, too, when a job expires
_NEVER: Final = 1 << 40  # s
_EXPIRING: Final = 64  # part of the jobs that come back when one expires
# The numbers of a job.
CTIME: Final = 0
QTIME: Final = 1  # the time of the next requeue (ms)
CHECKSUM: Final = 2  # of the id, by which the registry finds it
NUMBERS: Final = 3
ROW: Final = 8 * NUMBERS  # bytes
FIXED: Final = ID_LENGTH + ROW  # bytes of a job besides its body and trailer
RUN: Final = 5  # numbers of a run: its first place, and those of ``Common``
BLOCK: Final = 32  # jobs with one checksum
BLOCK_BYTES: Final = 2_048  # of a job; if they are larger, each has its own
# Numbers of 64 bits. What else has them is several times as slow to make and to read.
LONG: Final = "L" if array("L").itemsize == 8 else "Q"

# What of a segment is packed for the next process: its numbers, in the order of the class.
_NUMBERS: Final = Struct("<IIIIIqqqIqIIB")
_QUEUED: Final = 1  # bits of the last one
_PLAIN: Final = 2
_LETTERS: Final = 4
_MOVED: Final = 8
_COPIES_SHIFT: Final = 4
_MOST_COPIES: Final = 15  # that a segment tells of

# Compiled, an imported name costs a look-up at each use.
_crc32: Final = crc32


class DamagedError(Exception):
    """The bytes of a segment are not what was written."""


def cut(data: bytes, parts: list[tuple[int, int]]) -> bytes:
    """The ``parts`` of a file, which is ``data``."""
    return b"".join([data[start:end] for start, end in parts])


class Common:
    """The numbers that jobs have in common with those before, as in ``Job``.

    Attributes:
        expiry: etime, and 16 bits for the copies.
        retry: 16 bits are for the nacks. delay: 16 bits are for the deliveries.
        kind: the state, and 8 bits for the flags.
    """

    __slots__ = ("delay", "expiry", "kind", "retry")

    def __init__(self, expiry: int, retry: int, delay: int, kind: int) -> None:
        self.expiry: i64 = expiry
        self.retry: i64 = retry
        self.delay: i64 = delay
        self.kind: i64 = kind


class Records:
    """Jobs that were read from the file of a segment.

    Args:
        numbers: of the jobs from the place ``first`` on. runs: see ``RUN``.

    Attributes:
        places: of the jobs. ids: theirs. wholes: their bodies, with the trailers.
    """

    __slots__ = ("_at", "_first", "_numbers", "_runs", "_starts", "ids", "places", "wholes")

    def __init__(self, places: list[int], numbers: list[int], first: int, runs: list[int]) -> None:
        self.places = places
        self.ids: list[bytes] = []
        self.wholes: list[bytes] = []
        self._numbers = numbers
        self._first = first
        self._starts = runs[::RUN]
        self._runs = [
            Common(runs[at + 1], runs[at + 2], runs[at + 3], runs[at + 4])
            for at in range(0, len(runs), RUN)
        ]
        self._at = 0  # the run that was last asked for

    def number(self, at: int, which: int) -> int:
        """One of the numbers of the job ``at``, which is not a place."""
        return self._numbers[(self.places[at] - self._first) * NUMBERS + which]

    def shared(self, at: int) -> Common:
        """The other numbers of the job ``at``. It is cheap to go on to the next one."""
        starts = self._starts
        place = self.places[at]
        run = self._at
        if starts[run] > place:
            run = 0
        while run + 1 < len(starts) and starts[run + 1] <= place:
            run += 1
        self._at = run
        return self._runs[run]

    def job(self, at: int, queue: bytes) -> SerialJob:
        """The job ``at`` of ``queue``, without the nodes that may hold it."""
        shared = self.shared(at)
        return SerialJob(
            self.ids[at],
            int(shared.kind >> 8),
            int(shared.kind & 255),
            int(shared.expiry & 0xFFFF),
            int(shared.expiry >> 16),
            self.number(at, CTIME),
            int(shared.delay >> 16),
            int(shared.retry >> 16),
            int(shared.retry & 0xFFFF),
            int(shared.delay & 0xFFFF),
            queue,
            self.wholes[at],
            b"",
        )


class Segment:
    """What memory keeps of a segment.

    Attributes:
        number: the name of its file; no other segment has or had it.
        slot: where the index finds it.
        seed: for the checksums of its records.
        queue: the name of the queue. group: the name of the group that they are in; None: none.
        urgency: FLAGS_PRIORITY of its jobs.
        ctime, id: of its first job. last_ctime, last_id: of its last one.
        etime: when the first of its jobs on disk expires, in s since the epoch, or earlier.
        holders: the sets of nodes that hold its jobs, as ``Job.delivered``.
        holder_of: a byte for each job, which of these; None: all have the first.
        retry: the shortest retry time of those that others hold, too, in s; 0: there are none.
        copies: how many copies each of these should have, at least, up to 15; 0: there are none.
        origin: they are copies of jobs that this node has in its queue; ``UNKNOWN`` and the start
            of an id: that node made them, and it is not known which has them; None: they are in the
            queue here; ``LATER``: they were made here, with a delay; ``RETRIED``: they were loaded,
            and wait for their retry time (see ``Progress.waiting``).
        heard_from: the node that made them, once it said that it has some of them, if that was not
            known.
        asks: they were in the queue here when the node stopped (with ``RETRIED``): they are queued
            again once other holders were asked.
        plain: its jobs were made here, are in the queue here and nowhere else, have no trailer, and
            were never delivered.
        letters: they are dead letters; none of the jobs of other segments is.
        moved: going by the append-only file alone, a start would not put all of them where they
            are.
        heard: a bit for each job, whether that node said so since; None: of none. heard_at: when it
            first did, in ms.
        left: a bit for each job, whether a client of that node has it; None: of none.
        told: when these nodes were last told that the jobs are queued here, in ms; 0: not since
            they are on disk.
        live: how many of its jobs are still there.
        bits: a byte for each 8 jobs; those that are still there.
        offsets: where the bodies begin, and where the last one ends.
        overhead: bytes of a trailer. overheads: those of each, if they differ.
        runs: how many its file has.
        bodies: bytes of the bodies of the jobs that are still there.
        data: the file, as long as it is not on the disk; None: it is.
        reading: all of it is being read. rebuilding: it cannot be read, and is being made again.
    """

    __slots__ = (
        "asks",
        "bits",
        "bodies",
        "copies",
        "ctime",
        "data",
        "etime",
        "group",
        "heard",
        "heard_at",
        "heard_from",
        "holder_of",
        "holders",
        "id",
        "last_ctime",
        "last_id",
        "left",
        "letters",
        "live",
        "moved",
        "number",
        "offsets",
        "origin",
        "overhead",
        "overheads",
        "plain",
        "queue",
        "reading",
        "rebuilding",
        "retry",
        "runs",
        "seed",
        "slot",
        "told",
        "urgency",
    )

    def __init__(self, number: int, seed: int, queue: bytes, urgency: int, overhead: int) -> None:
        self.number = number
        self.slot = 0
        self.seed = seed
        self.queue = queue
        self.group: bytes | None = None
        self.urgency = urgency
        self.overhead = overhead
        self.overheads: array[int] | None = None
        self.ctime = 0
        self.id = b""
        self.last_ctime = 0
        self.last_id = b""
        self.etime = 0
        self.holders: list[tuple[bytes, ...] | None] = []
        self.holder_of: bytearray | None = None
        self.retry = 0
        self.copies = 0
        self.told = 0
        self.origin: bytes | None = None
        self.asks = False
        self.plain = True
        self.letters = False
        self.moved = False
        self.heard: bytearray | None = None
        self.heard_at = 0
        self.heard_from = b""
        self.left: bytearray | None = None
        self.live = 0
        self.bits = bytearray()
        self.offsets: array[int] = array("I", (0,))
        self.runs = 0
        self.bodies = 0
        self.data: bytes | None = None
        self.reading = False
        self.rebuilding = False

    @property
    def begin(self) -> tuple[int, bytes]:
        """The place of its first job in the line."""
        return self.ctime, self.id

    @property
    def end(self) -> tuple[int, bytes]:
        """The place of its last job in the line."""
        return self.last_ctime, self.last_id

    @property
    def count(self) -> int:
        """The number of jobs that it began with."""
        return len(self.offsets) - 1

    @property
    def size(self) -> int:
        """Bytes of the bodies; the ids follow them."""
        return self.offsets[-1]

    @property
    def file_size(self) -> int:
        """Bytes of the file."""
        return self.size + FIXED * self.count + 8 * RUN * self.runs + self._checks_size

    @property
    def _checks_size(self) -> int:
        """Bytes of the checksums: those of the blocks, and that of the runs."""
        return 4 * (-(-self.count // self.block) + 1)

    @property
    def block(self) -> int:
        """How many jobs have one checksum."""
        return BLOCK if self.size <= BLOCK_BYTES * self.count else 1

    @property
    def takes(self) -> int:
        """Bytes of memory, without the index."""
        held = 0 if self.data is None else len(self.data)
        numbers = len(self.offsets) + len(self.overheads or ())
        bits = len(self.bits) * (1 if self.origin is None else 3) + len(self.holder_of or b"")
        return SEGMENT_TAKES + 4 * numbers + bits + held

    def is_sparse(self) -> bool:
        """Whether few of its jobs are left."""
        return self.live <= self.count >> 2

    def has(self, place: int) -> bool:
        """Whether the job at ``place`` is still there."""
        return self.bits[place >> 3] >> (place & 7) & 1 != 0

    def body_size(self, place: int) -> int:
        """Bytes of the body of the job at ``place``."""
        offsets = self.offsets
        overhead = self.overhead if self.overheads is None else self.overheads[place]
        return offsets[place + 1] - offsets[place] - overhead

    def holders_at(self, place: int) -> tuple[bytes, ...] | None:
        """The nodes that may hold the job at ``place``; None: only this one."""
        which = 0 if self.holder_of is None else self.holder_of[place]
        return self.holders[which] if self.holders else None

    def held_by(self, place: int, holders: tuple[bytes, ...]) -> None:
        """Note that the job at ``place`` may be on ``holders``, which are more than before."""
        if self.holder_of is None:
            self.holder_of = bytearray(self.count)
        if holders not in self.holders:
            self.holders.append(holders)
        self.holder_of[place] = self.holders.index(holders)

    def is_shared(self, retry: int, copies: int) -> None:
        """Note that others hold one of its jobs, too, which has this retry time (s) and should have
        so many copies."""
        self.retry = min(retry, self.retry or retry)
        if copies > 1:
            self.copies = min(copies, self.copies or _MOST_COPIES)

    def differ(self, place: int, overhead: int, holders: tuple[bytes, ...] | None) -> None:
        """Note that the job at ``place``, or one before, has other ``holders``, or a trailer with
        another number of bytes (``overhead``), than the first one. Has to be called for all
        following ones, too."""
        sets = self.holders
        if self.holder_of is None and holders is not sets[0] and holders != sets[0]:
            self.holder_of = bytearray(place)
        if self.holder_of is not None:
            if holders not in sets:
                sets.append(holders)
            self.holder_of.append(sets.index(holders))
        if self.overheads is None and overhead != self.overhead:
            self.overheads = array("I", [self.overhead]) * place
        if self.overheads is not None:
            self.overheads.append(overhead)

    def take(self, place: int) -> int:
        """Note that the job at ``place``, which must be there, is not any more; return the bytes of
        its body."""
        self.bits[place >> 3] &= ~(1 << (place & 7)) & 255
        self.live -= 1
        size = self.body_size(place)
        self.bodies -= size
        return size

    def put_back(self, place: int) -> int:
        """Note that the job at ``place`` is there again, as it was; return the bytes of its
        body."""
        self.bits[place >> 3] |= 1 << (place & 7)
        self.live += 1
        size = self.body_size(place)
        self.bodies += size
        return size

    def places(self) -> list[int]:
        """The places of the jobs that are still there, in order."""
        bits = self.bits
        count = self.count
        if self.live == count:
            return list(range(count))
        return [place for place in range(count) if bits[place >> 3] >> (place & 7) & 1]

    def checks(self, data: bytes, offsets: list[int], first: int, end: int) -> list[int]:
        """The checksums of the jobs from ``first`` up to ``end``, at which blocks begin or end;
        ``data`` is what the file has of them: the bodies, which have these ``offsets``, ids and
        numbers."""
        found: list[int] = []
        block = self.block
        view = memoryview(data)
        ids = offsets[end] - offsets[first]
        rows = ids + ID_LENGTH * (end - first)
        for at in range(first, end, block):
            last = at + block if at + block < end else end
            sum = _crc32(view[offsets[at] - offsets[first] : offsets[last] - offsets[first]], at)
            sum = _crc32(
                view[ids + ID_LENGTH * (at - first) : ids + ID_LENGTH * (last - first)], sum
            )
            sum = _crc32(view[rows + ROW * (at - first) : rows + ROW * (last - first)], sum)
            found.append(sum ^ self.seed)
        return found

    def finish(self, data: bytes, offsets: list[int], runs: bytes) -> bytes:
        """The bytes of the file, which begins with ``data``: the bodies, which have these
        ``offsets``, ids and numbers; ``runs`` follow."""
        self.offsets = array("I", offsets)
        self.runs = len(runs) // (8 * RUN)
        checks = [*self.checks(data, offsets, 0, self.count), _crc32(runs) ^ self.seed]
        return b"".join([data, runs, array("I", checks)])

    def parts(self, place: int) -> list[tuple[int, int]]:
        """Which parts of the file the job at ``place`` needs."""
        first = place - place % self.block
        end = min(first + self.block, self.count)
        rows = self.size + ID_LENGTH * self.count
        return [
            (self.offsets[first], self.offsets[end]),
            (self.size + ID_LENGTH * first, self.size + ID_LENGTH * end),
            (rows + ROW * first, rows + ROW * end),
            (rows + ROW * self.count, self.file_size),
        ]

    def part(self, data: bytes, place: int) -> bytes:
        """The ``parts`` for the job at ``place``; ``data`` is the file."""
        return cut(data, self.parts(place))

    def check(self, found: list[int], written: list[int]) -> bool:
        """Whether these are the checksums that were ``written``."""
        return found == written

    def read_part(self, part: bytes, place: int) -> Records:
        """The job at ``place``; ``part`` is what the file has of its parts. Raises
        ``DamagedError``: it is not what was written."""
        block = self.block
        first = place - place % block
        end = min(first + block, self.count)
        return self._read(part, first, end, [place])

    def read(self, data: bytes, place: int) -> Records:
        """The same; ``data`` is the file."""
        return self.read_part(self.part(data, place), place)

    def read_all(self, data: bytes) -> Records:
        """All jobs that are still there; ``data`` is the file. Raises ``DamagedError``."""
        return self._read(data, 0, self.count, self.places())

    def _read(self, data: bytes, first: int, end: int, places: list[int]) -> Records:
        """The jobs at ``places``; ``data`` is what the file has of those from ``first`` up to
        ``end``."""
        offsets = self.offsets.tolist()
        start = offsets[first]
        ids = offsets[end] - start
        rows = ids + ID_LENGTH * (end - first)
        runs = rows + ROW * (end - first)
        tail = runs + 8 * RUN * self.runs
        block = self.block
        file_end = tail + self._checks_size
        if len(data) < file_end:
            raise DamagedError("the file is too short")
        written = array("I", data[tail:file_end]).tolist()
        found = [*self.checks(data, offsets, first, end), _crc32(data[runs:tail]) ^ self.seed]
        at = first // block
        if not self.check(found, [*written[at : at + len(found) - 1], written[-1]]):
            raise DamagedError("a checksum is wrong")
        numbers = array(LONG, data[rows:runs]).tolist()
        records = Records(places, numbers, first, array(LONG, data[runs:tail]).tolist())
        for place in places:
            records.wholes.append(data[offsets[place] - start : offsets[place + 1] - start])
            id = ids + ID_LENGTH * (place - first)
            records.ids.append(data[id : id + ID_LENGTH])
        return records

    def expiring(self, found: Records, now: int) -> tuple[int, list[int]]:
        """Which of the jobs that were ``found`` expire next at ``now`` (s); before these, when the
        first of the others expires. They are a few, since all segments may have jobs that expire at
        any time."""
        count = len(found.places)
        if not count:
            return _NEVER, []
        etimes = [int(found.shared(at).expiry >> 16) for at in range(count)]
        until = max(sorted(etimes)[count // _EXPIRING], now + EXPIRING_SECONDS)
        later = [etime for etime in etimes if etime > until]
        nearer = [at for at in range(count) if etimes[at] <= until]
        return min(later) if later else _NEVER, nearer


def pack_segment(segment: Segment) -> bytes:
    """What ``unpack_segment`` makes ``segment`` of in the next process; its file is on disk, and it
    is not ``RETRIED``, unless it ``asks``. See ``start_index.MAGIC``."""
    queued = segment.origin is None or segment.asks
    flags = queued * _QUEUED | segment.plain * _PLAIN
    flags |= segment.letters * _LETTERS | segment.moved * _MOVED | segment.copies << _COPIES_SHIFT
    numbers = _NUMBERS.pack(
        segment.number,
        segment.slot,
        segment.seed,
        segment.urgency,
        segment.overhead,
        segment.ctime,
        segment.last_ctime,
        segment.etime,
        segment.live,
        segment.bodies,
        segment.retry,
        segment.runs,
        flags,
    )
    overheads = segment.overheads
    names = [segment.queue, segment.id, segment.last_id, b"" if queued else segment.origin or b""]
    arrays = [bytes(segment.bits), segment.offsets.tobytes()]
    arrays.append(b"" if overheads is None else overheads.tobytes())
    holders = [bytes(segment.holder_of or b"")]
    holders += [b"".join(nodes or ()) for nodes in segment.holders]
    return pack_texts([numbers, *names, *arrays, *holders])


def unpack_segment(packed: bytes, read: Callable[[bytes], tuple[bytes, ...] | None]) -> Segment:
    """The segment that was ``packed``; ``read`` makes a set of nodes of their ids."""
    numbers, queue, id, last_id, origin, bits, offsets, overheads, *sets = unpack_texts(packed)
    number, slot, seed, urgency, overhead, *places, retry, runs, flags = _NUMBERS.unpack(numbers)
    segment = Segment(number, seed, queue, urgency, overhead)
    segment.slot = slot
    segment.ctime, segment.last_ctime, segment.etime, segment.live, segment.bodies = places
    segment.id, segment.last_id = id, last_id
    segment.origin = None if flags & _QUEUED else origin
    segment.retry = retry
    segment.runs = runs
    segment.plain = flags & _PLAIN != 0
    segment.letters = flags & _LETTERS != 0
    segment.moved = flags & _MOVED != 0
    segment.copies = flags >> _COPIES_SHIFT
    segment.holder_of = bytearray(sets[0]) if sets[0] else None
    segment.holders = [read(ids) if ids else None for ids in sets[1:]]
    segment.bits = bytearray(bits)
    segment.offsets = array("I", offsets)
    if overheads:
        segment.overheads = array("I", overheads)
    return segment


class SegmentLines:
    """The segments of one queue, or of one of its groups, by urgency, each line in the order of
    their first jobs. They may overlap.

    Args:
        name: of the queue.
        hungry: gets these lines when the next segment has to be read.
        dry: has these lines while the next job lies on disk. on_dry: called when that changes.
        whole: those of the queue, if these are of a group.

    Attributes:
        name, hungry: as given.
        by_urgency: the lines; none is empty.
        live: the jobs that are still there, with those of groups. bodies: bytes of their bodies.
    """

    def __init__(
        self,
        name: bytes,
        hungry: "dict[SegmentLines, None]",
        dry: "dict[SegmentLines, None]",
        on_dry: Callable[[], None],
        whole: "SegmentLines | None" = None,
    ) -> None:
        self.name = name
        self.hungry = hungry
        self._dry = dry
        self._on_dry = on_dry
        self._whole = whole
        self.by_urgency: dict[int, list[Segment]] = {}
        self.live = 0
        self.bodies = 0

    def count(self, jobs: int, size: int) -> None:
        """Count ``jobs`` more, with ``size`` bytes of bodies."""
        self.live += jobs
        self.bodies += size
        if self._whole is not None:
            self._whole.count(jobs, size)

    def add(self, segment: Segment) -> None:
        """Add ``segment`` in its place."""
        line = self.by_urgency.setdefault(segment.urgency, [])
        at = len(line)
        while at and (line[at - 1].ctime, line[at - 1].id) > (segment.ctime, segment.id):
            at -= 1
        line.insert(at, segment)
        self.count(segment.live, segment.bodies)

    def add_all(self, segments: list[Segment]) -> None:
        """Add ``segments`` in their places."""
        for segment in segments:
            self.by_urgency.setdefault(segment.urgency, []).append(segment)
            self.count(segment.live, segment.bodies)
        for line in self.by_urgency.values():
            line.sort(key=_begin)

    def remove(self, segment: Segment) -> None:
        """Remove ``segment``, of which nothing is left, or whose jobs are in memory."""
        line = self.by_urgency[segment.urgency]
        line.remove(segment)
        if not line:
            del self.by_urgency[segment.urgency]
        self.count(-segment.live, -segment.bodies)

    def tell_dry(self, dry: bool) -> None:
        """Note whether the next job lies on disk."""
        if dry:
            self._dry[self] = None
        else:
            self._dry.pop(self, None)
        self._on_dry()

    def first(self) -> Segment | None:
        """The segment that is needed first; None: there is none."""
        if not self.by_urgency:
            return None
        return self.by_urgency[max(self.by_urgency)][0]

    def first_few(self, jobs: int, size: int) -> list[Segment]:
        """The segments that are needed first: one, and those that follow as long as all of them
        have no more than so many ``jobs``, and ``size`` bytes of bodies."""
        found: list[Segment] = []
        for segment in self.by_urgency[max(self.by_urgency)]:
            jobs -= segment.live
            size -= segment.bodies
            if found and (jobs < 0 or size < 0):
                break
            found.append(segment)
        return found

    def neighbour(self, segment: Segment) -> Segment | None:
        """A segment next to ``segment`` that is sparse, too; None: there is none."""
        line = self.by_urgency[segment.urgency]
        at = line.index(segment)
        for other in line[max(at - 1, 0) : at + 2]:
            if other is not segment and other.is_sparse():
                return other
        return None

    def all(self) -> list[Segment]:
        """All segments, in the order in which they are needed."""
        return [
            segment
            for urgency in sorted(self.by_urgency, reverse=True)
            for segment in self.by_urgency[urgency]
        ]


def _begin(segment: Segment) -> tuple[int, bytes]:
    return segment.begin
