"""The segments of one node, and what is to be done with their files.

Nothing here reads or writes a file. What has to be done comes out as ``orders``, which the process
carries out in a thread. Until a file is written, its bytes stay in memory.
"""

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final

from disque_trio.native import mypyc_attr
from disque_trio.node.core.pages.index import SegmentIndex
from disque_trio.node.core.pages.segment import (
    MOST_JOBS,
    PLACE_BITS,
    RETRIED,
    Segment,
    SegmentLines,
    cut,
)
from disque_trio.protocol.serialjob import ID_LENGTH
from disque_trio.respserver.memory import UNLIMITED, Memory

WRITE: Final = 0
READ: Final = 1
DROP: Final = 2
REBUILD: Final = 3

SEGMENT_BYTES: Final = 1 << 20  # of records, after which a segment gets no further job
MOST_WRITING: Final = 32 << 20  # bytes that may wait for the disk
ALL_JOBS: Final = -1  # instead of a place
TELL: Final = -2  # likewise, to tell the other holders of the jobs; these stay on disk
EXPIRE: Final = -3  # likewise, to find those that expire soon; the others stay on disk
VIEW: Final = 1 << 16  # added to a place that is read to look at the job, which stays on disk
ALL: Final = VIEW - 1  # all places, likewise
IDS: Final = VIEW - 2  # their ids, likewise
_SHARES: Final = 64  # of the limit of memory; a segment takes one of them
_JOB: Final = 600  # bytes of memory, about
_LEAST_JOBS: Final = 64
_LEAST_BYTES: Final = 1 << 16
_BYTES_A_BUCKET: Final = 1 << 13  # of the limit of memory
_SWEPT: Final = 3  # entries of the index to look at for each one that no longer counts
_PLACE_MASK: Final = MOST_JOBS - 1


@mypyc_attr(allow_interpreted_subclasses=True)
class Order:
    """Something to do with a file.

    Attributes:
        kind: WRITE the file; READ a part of it; DROP it; REBUILD what it had from the append-only
            file.
        number: its name.
        place: of the job to read; ``ALL_JOBS``, ``TELL``, ``EXPIRE``: all of them; ``VIEW`` or
            more: to look at it, at ``ALL`` or at the ``IDS``.
        data: what to write.
        parts: offsets of what to read: where each part begins and ends.
    """

    __slots__ = ("data", "kind", "number", "parts", "place")

    def __init__(self, kind: int, number: int, place: int = -1, data: bytes = b"") -> None:
        self.kind = kind
        self.number = number
        self.place = place
        self.data = data
        self.parts: list[tuple[int, int]] = []

    def cut(self, data: bytes) -> bytes:
        """What to read of the file, which is ``data``."""
        return cut(data, self.parts)


class Pages:
    """The segments of one node.

    Args:
        memory: the account for what they take in memory.

    Attributes:
        seed: a random number, so that what an earlier process has written is not taken for what
            this one has.
        above: used memory beyond which jobs go to disk. off: why none go there, or empty.
        most: jobs in a segment. most_bytes: of their records. most_writing: bytes that may wait for
            the disk.
        segments: by number.
        jobs: number of jobs that are on disk.
        disk: bytes of the files. taken: bytes of memory.
        reads: how many times a file was read. waits: how often a command waited for that.
        lost: jobs that were neither in their file nor in the append-only file.
        problem: why nothing can be written, or empty.
        writing: bytes that wait to be written.
        orders: what to do next. perform: carries orders out.
        sparse: numbers of segments that have become sparse.
        hungry: lines whose next segment is needed soon. dry: those whose next job lies on disk.
    """

    def __init__(self, memory: Memory) -> None:
        self.seed = 0
        self.above = UNLIMITED
        self.off = "paging is no"
        self.most = MOST_JOBS
        self.most_bytes = SEGMENT_BYTES
        self.most_writing = MOST_WRITING
        self.segments: dict[int, Segment] = {}
        self.jobs = 0
        self.disk = 0
        self.taken = 0
        self.reads = 0
        self.waits = 0
        self.lost = 0
        self.problem = ""
        self.writing = 0
        self.orders: list[Order] = []
        self.perform: Callable[[list[Order]], None] = _nobody
        self.sparse: list[int] = []
        self.hungry: dict[SegmentLines, None] = {}
        self.dry: dict[SegmentLines, None] = {}
        self.index = SegmentIndex()
        self._memory = memory
        self._number = 0
        self._free: deque[tuple[int, int]] = deque()  # slots: after which pass of sweeps, which
        self._expiries: list[tuple[int, int]] = []  # heap: when (s), which segment
        self._owed = 0  # entries of the index to look at
        self._untold: list[tuple[int, int]] = []  # heap: when (ms) to tell of which segment

    def fit(self, limit: int) -> None:
        """Use segments, and an index, that fit into ``limit`` bytes of memory from now on."""
        share = limit // _SHARES
        self.most = min(max(share // _JOB, _LEAST_JOBS), MOST_JOBS)
        self.most_bytes = min(max(share, _LEAST_BYTES), SEGMENT_BYTES)
        self.most_writing = min(limit // 8, MOST_WRITING)
        self.index.bits = min(max(limit // _BYTES_A_BUCKET, 1 << 10).bit_length(), 18)

    # ---- look-ups ---------------------------------------------------------------------------

    @property
    def index_bytes(self) -> int:
        """Bytes of memory for what lies on disk, without what waits to be written."""
        return self.taken - self.writing

    def at(self, place: int) -> tuple[Segment, int]:
        """The segment at ``place``, which is from the index and lives, and the place in it."""
        segment = self.index.slots[place >> PLACE_BITS]
        assert segment is not None
        return segment, place & _PLACE_MASK

    def find(self, id: bytes) -> list[int]:
        """Return the places where the job ``id`` may be: usually none or one."""
        return self.index.find(id) if self.jobs else []

    def located(self, id: bytes) -> list[tuple[int, int]]:
        """The numbers of the segments where the job ``id`` may be, and its places there. A thread
        may call it: a segment that goes meanwhile is left out."""
        found: list[tuple[int, int]] = []
        for place in self.find(id):
            segment = self.index.slots[place >> PLACE_BITS]
            if segment is not None:
                found.append((segment.number, place & _PLACE_MASK))
        return found

    def number_retried(self, alone: bool = False) -> int:
        """How many jobs that were loaded lie on disk until their retry time is over. ``alone``: of
        which there are no copies elsewhere."""
        return sum(
            [
                segment.live
                for segment in self.segments.values()
                if segment.origin == RETRIED and not (alone and segment.retry)
            ]
        )

    @property
    def next_expiry(self) -> int:
        """When the first job expires, in s since the epoch; 0: never."""
        while self._expiries and self._expiries[0][1] not in self.segments:
            heappop(self._expiries)
        return self._expiries[0][0] if self._expiries else 0

    @property
    def due(self) -> int:
        """When to look at a segment next, in ms since the epoch; 0: never."""
        due = self.next_expiry * 1000 + 1000 if self.next_expiry else 0
        while self._untold and self._untold[0][1] not in self.segments:
            heappop(self._untold)
        if self._untold and (not due or self._untold[0][0] < due):
            return self._untold[0][0]
        return due

    def take_untold(self, now: int) -> Segment | None:
        """The next segment of which other nodes are to be told at ``now`` (ms); None: there is
        none."""
        while self._untold and self._untold[0][0] <= now:
            segment = self.segments.get(heappop(self._untold)[1])
            if segment is not None:
                return segment
        return None

    def tell_at(self, segment: Segment, when: int) -> None:
        """Tell other nodes of ``segment`` at ``when`` (ms)."""
        heappush(self._untold, (when, segment.number))

    def take_expired(self, now: int) -> Segment | None:
        """The next segment with a job that expires by ``now`` (s); None: there is none. It is not
        returned again."""
        if not 0 < self.next_expiry <= now:
            return None
        return self.segments[heappop(self._expiries)[1]]

    def watch(self, segment: Segment, etime: int) -> None:
        """Look at ``segment`` at ``etime`` (s), when the first of its jobs expires."""
        segment.etime = etime
        heappush(self._expiries, (etime, segment.number))

    # ---- for the next process ---------------------------------------------------------------

    @property
    def last_number(self) -> int:
        """The number of the segment that was made last."""
        return self._number

    def times(self) -> dict[int, int]:
        """When each segment is to be told of, or its jobs come back (ms), by number."""
        return {number: when for when, number in self._untold}

    def begin_again(self, number: int, bits: int, slots: int) -> None:
        """Begin to ``restore`` the segments of an earlier process, of which the last one that was
        made had this ``number``; ``bits``, ``slots``: of its index."""
        self._number = number
        self.index.begin(bits, slots)
        self._free.extend([(1, slot) for slot in range(slots)])

    def restore(self, segment: Segment, when: int) -> None:
        """Add ``segment``, which an earlier process has written; ``when``: see ``times``."""
        self.index.slots[segment.slot] = segment
        self.segments[segment.number] = segment
        self.jobs += segment.live
        self.disk += segment.file_size
        self.watch(segment, segment.etime)
        if when:
            self.tell_at(segment, when)
        self.count(segment.takes)

    def restored(self) -> None:
        """Note that all segments are there, and the index."""
        slots = self.index.slots
        self._free = deque([one for one in self._free if slots[one[1]] is None])
        self._owed = _SWEPT * (self.index.entries - self.jobs)
        self.count(self.index.taken)

    # ---- changes ----------------------------------------------------------------------------

    def begin(self, queue: bytes, urgency: int, overhead: int) -> Segment:
        """Return a new segment, which is to be filled and then ``add``ed."""
        self._number += 1
        seed = (self.seed + self._number * MOST_JOBS) & 0xFFFF_FFFF
        segment = Segment(self._number, seed, queue, urgency, overhead)
        if self._free and self._free[0][0] < self.index.passes:
            segment.slot = self._free.popleft()[1]
        else:
            segment.slot = len(self.index.slots)
            self.index.slots.append(None)
        return segment

    def add(self, segment: Segment, ids: list[bytes], checksums: list[int], data: bytes) -> None:
        """Add ``segment``, whose jobs are ``ids`` with these ``checksums``, and have its file,
        ``data``, written."""
        segment.data = data
        self.index.slots[segment.slot] = segment
        self.segments[segment.number] = segment
        index = self.index
        before = index.taken
        index.add_all(ids, checksums, segment.slot << PLACE_BITS)
        self.jobs += segment.live
        self.writing += len(data)
        self.disk += len(data)
        self.orders.append(Order(WRITE, segment.number, data=data))
        self.watch(segment, segment.etime)
        self.count(segment.takes + index.taken - before)
        self.sweep()

    def written(self, segment: Segment) -> None:
        """Note that the file of ``segment`` is on the disk."""
        if segment.data is not None:
            self.writing -= len(segment.data)
            self.count(-len(segment.data))
            segment.data = None

    def take(self, segment: Segment, lines: SegmentLines, place: int, for_good: bool = True) -> int:
        """Note that the job at ``place`` of ``segment`` is not there any more; return the bytes of
        its body. If it was the last one, the segment goes as well; if it may come back (not
        ``for_good``), only if the segment is the next one."""
        size = segment.take(place)
        lines.count(-1, -size)
        self.jobs -= 1
        self._owed += _SWEPT
        if for_good and segment.live == segment.count >> 2 and segment.origin is None:
            self.sparse.append(segment.number)
        if not segment.live and (for_good or lines.by_urgency[segment.urgency][0] is segment):
            self.drop(segment, lines)
        return size

    def put_back(
        self, segment: Segment, lines: SegmentLines, place: int, id: bytes, checksum: int
    ) -> None:
        """Note that the job ``id`` is at ``place`` of ``segment`` again, as it was."""
        size = segment.put_back(place)
        lines.count(1, size)
        self.jobs += 1
        at = segment.slot << PLACE_BITS | place
        if at not in self.index.find(id):
            before = self.index.taken
            self.index.add_all([id], [checksum], at)
            self.count(self.index.taken - before)

    def drop(self, segment: Segment, lines: SegmentLines) -> None:
        """Forget ``segment``, and all jobs that are still in it."""
        self._drop(segment, lines)
        # What may come back to those that are next, and empty, has its turn now.
        line = lines.by_urgency.get(segment.urgency)
        while line and not line[0].live:
            self._drop(line[0], lines)
        if not self.segments:
            self._start_over()

    def _drop(self, segment: Segment, lines: SegmentLines) -> None:
        lines.remove(segment)
        self._owed += _SWEPT * segment.live
        self.jobs -= segment.live
        self.disk -= segment.file_size
        takes = segment.takes
        if segment.data is not None:
            self.writing -= len(segment.data)
            segment.data = None
        del self.segments[segment.number]
        self.index.slots[segment.slot] = None
        # Entries that lead there must have gone before another segment gets the place.
        self._free.append((self.index.passes + 1, segment.slot))
        self.orders.append(Order(DROP, segment.number))
        self.count(-takes)

    def order_read(self, segment: Segment, place: int = -1) -> None:
        """Have ``segment`` read, or the record at ``place`` alone. See ``Order.place``."""
        self.reads += 1
        order = Order(READ, segment.number, place)
        if place < 0 or place == VIEW + ALL:
            segment.reading = segment.reading or place == ALL_JOBS
            order.parts = [(0, segment.file_size)]
        elif place == VIEW + IDS:
            order.parts = [(segment.size, segment.size + ID_LENGTH * segment.count)]
        else:
            order.parts = segment.parts(place & VIEW - 1)
        self.perform([order])  # at once: somebody may wait for it in this turn

    def order_rebuild(self, segment: Segment) -> None:
        """Have the jobs of ``segment`` looked for in the append-only file."""
        self.perform([Order(REBUILD, segment.number)])

    def sweep(self) -> None:
        """Sweep the index as far as it has become stale."""
        if self._owed > MOST_JOBS:
            before = self.index.taken
            self.index.sweep(self._owed)
            self._owed = 0
            self.count(self.index.taken - before)

    def count(self, more: int) -> None:
        """Count ``more`` bytes of memory."""
        self.taken += more
        self._memory.used += more
        self._memory.on_disk = self.disk

    def clear(self) -> None:
        """Forget everything; the memory account was reset."""
        for number in self.segments:
            self.orders.append(Order(DROP, number))
        self.segments.clear()
        self.taken = 0
        self.sparse.clear()
        self.hungry.clear()
        self.dry.clear()
        self.jobs = self.disk = self.writing = 0
        self.index.clear()
        self._start_over()

    def _start_over(self) -> None:
        """Free what finding jobs takes: none is on disk."""
        self.count(-self.index.taken)
        self.index.clear()
        self._free.clear()
        self._expiries = []
        self._untold = []
        self._owed = 0


def _nobody(orders: list[Order]) -> None:
    """Where orders go while nobody carries them out."""
