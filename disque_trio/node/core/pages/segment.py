"""A segment: successive jobs of a queue that lie in one file, and the bytes of that file.

The file is the records of the jobs, one after the other. A record is a checksum, the time of the
next requeue (ms), the checksum of the id by which the registry finds it, and the job as in the
append-only file. Behind the last one are the ids, for those who need nothing else. The checksum
also covers a random number of the process, that of the segment, and the place of the job in it: so
a record of another file, or of the file that an earlier process gave the same name, is not taken
for this one. Where the records begin is only in memory: the file is a cache of what the append-only
file says. It outlives the process only if that leaves an index (see ``queues.start_index``).
"""

from array import array
from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Final
from zlib import crc32

from disque_trio.protocol.fields import pack_texts, unpack_texts
from disque_trio.protocol.serialjob import HEAD, ID_LENGTH, SerialJob, SerialJobError, decode_job

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
_HEAD: Final = Struct("<qqI")  # the checksum, the time of the next requeue, that of the id
HEAD_SIZE: Final = _HEAD.size
_LOW: Final = 0xFFFF_FFFF
# What of a segment is packed for the next process: its numbers, in the order of the class.
_NUMBERS: Final = Struct("<IIIIIqqqIqIB")
_QUEUED: Final = 1  # bits of the last one
_PLAIN: Final = 2
_LETTERS: Final = 4
_MOVED: Final = 8

# Compiled, a method of an object of the interpreter costs a look-up at each use.
_crc32: Final = crc32
_pack_head: Final = _HEAD.pack
_unpack_head: Final = _HEAD.unpack_from
_unpack_job: Final = HEAD.unpack_from


class DamagedError(Exception):
    """The bytes of a segment are not what was written."""


def pack_head(seed: int, place: int, qtime: int, id_checksum: int, job: bytes) -> bytes:
    """What precedes the serialised ``job`` in its record, at ``place`` of the segment with this
    ``seed``; it is to be queued again at ``qtime`` (ms)."""
    return _pack_head(_checksum(seed, place, qtime, id_checksum, job), qtime, id_checksum)


def _checksum(seed: int, place: int, qtime: int, id_checksum: int, job: bytes) -> int:
    found: i64 = _crc32(job, seed + place & _LOW)
    numbers: i64 = qtime ^ id_checksum << 24
    return found << 31 ^ numbers


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
        offsets: where the records begin, and where the last one ends.
        overhead: bytes of a record that are not body. overheads: those of each, if they differ.
        bodies: bytes of the bodies of the jobs that are still there.
        data: the file, as long as it is not on the disk; None: it is.
        reading: all of it is being read. rebuilding: it cannot be read, and is being made again.
    """

    __slots__ = (
        "asks",
        "bits",
        "bodies",
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
        """Bytes of the records; the ids follow them."""
        return self.offsets[-1]

    @property
    def file_size(self) -> int:
        """Bytes of the file."""
        return self.size + ID_LENGTH * self.count

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

    def append(self, end: int, overhead: int, holders: tuple[bytes, ...] | None) -> None:
        """Append a record that ends at offset ``end``, with ``overhead`` bytes that are not body,
        of a job that may be on ``holders``."""
        sets = self.holders
        if not sets:
            sets.append(holders)
        if self.holder_of is None and holders is not sets[0] and holders != sets[0]:
            self.holder_of = bytearray(self.count)
        if self.holder_of is not None:
            if holders not in sets:
                sets.append(holders)
            self.holder_of.append(sets.index(holders))
        if self.overheads is None and overhead != self.overhead:
            self.overheads = array("I", [self.overhead] * self.count)
        if self.overheads is not None:
            self.overheads.append(overhead)
        self.offsets.append(end)

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

    def check(self, data: bytes, at: int, end: int, place: int) -> tuple[int, int, bytes]:
        """Check the record at ``place``, which is ``data[at:end]``. Return when to queue the job
        again (ms), the checksum of its id, and the serialised job. Raises ``DamagedError``: it is
        not what was written."""
        if end > len(data):
            raise DamagedError("the file is too short")
        checksum, qtime, id_checksum = _unpack_head(data, at)
        job = data[at + HEAD_SIZE : end]
        if _checksum(self.seed, place, qtime, id_checksum, job) != checksum:
            raise DamagedError("a checksum is wrong")
        return qtime, id_checksum, job

    def record(self, data: bytes, start: int, place: int) -> tuple[int, int, bytes]:
        """The result of ``check`` for the record at ``place``; ``data`` begins at offset ``start``
        of the file. Raises ``DamagedError``."""
        offsets = self.offsets
        return self.check(data, offsets[place] - start, offsets[place + 1] - start, place)

    def read(self, data: bytes, start: int, place: int) -> tuple[int, SerialJob]:
        """The same: when to queue the job again (ms), and the job. Raises ``DamagedError``."""
        qtime, _, job = self.record(data, start, place)
        try:
            return qtime, decode_job(job)
        except SerialJobError as problem:
            raise DamagedError(str(problem)) from problem

    def expiring(self, data: bytes, now: int) -> tuple[int, list[tuple[int, int, bytes]]]:
        """Which jobs expire next at ``now`` (s): their places, when to queue them again (ms), and
        the serialised jobs; before these, when the first of the others expires; ``data`` is the
        file. They are a few, since all segments may have jobs that expire at any time. Raises
        ``DamagedError``."""
        found: list[tuple[int, int, bytes]] = []
        etimes: list[int] = []
        for place in self.places():
            qtime, _, job = self.record(data, 0, place)
            found.append((place, qtime, job))
            etimes.append(int(_unpack_job(job)[5]))
        if not found:
            return _NEVER, found
        until = max(sorted(etimes)[len(etimes) // _EXPIRING], now + EXPIRING_SECONDS)
        later = [etime for etime in etimes if etime > until]
        nearer = [found[at] for at in range(len(found)) if etimes[at] <= until]
        return min(later) if later else _NEVER, nearer

    def read_all(self, data: bytes) -> list[tuple[int, int, bytes]]:
        """The results of ``check`` for all jobs that are still there; ``data`` is the file, with
        or without the ids. Raises ``DamagedError``."""
        if len(data) < self.size:
            raise DamagedError("the file is too short")
        offsets = self.offsets.tolist()
        return [
            self.check(data, offsets[place], offsets[place + 1], place) for place in self.places()
        ]


def pack_segment(segment: Segment) -> bytes:
    """What ``unpack_segment`` makes ``segment`` of in the next process; its file is on disk, and it
    is not ``RETRIED``, unless it ``asks``. See ``start_index.MAGIC``."""
    queued = segment.origin is None or segment.asks
    flags = queued * _QUEUED | segment.plain * _PLAIN
    flags |= segment.letters * _LETTERS | segment.moved * _MOVED
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
    number, slot, seed, urgency, overhead, *places, retry, flags = _NUMBERS.unpack(numbers)
    segment = Segment(number, seed, queue, urgency, overhead)
    segment.slot = slot
    segment.ctime, segment.last_ctime, segment.etime, segment.live, segment.bodies = places
    segment.id, segment.last_id = id, last_id
    segment.origin = None if flags & _QUEUED else origin
    segment.retry = retry
    segment.plain = flags & _PLAIN != 0
    segment.letters = flags & _LETTERS != 0
    segment.moved = flags & _MOVED != 0
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
