"""The index that a node leaves when it stops, so that the next start need not read all jobs.

The files of the jobs on disk stay as they are. The index says what memory kept of them: the
segments, where the index of ids finds each job, and keys. Of the other jobs it has the records, as
a new append-only file would; also of some on disk, which a start has to look at one by one.

Jobs that other nodes hold, too, and that were queued here, are queued once these were asked; until
then their segments wait, as those of loaded jobs do (``RETRIED``). Copies that this node holds for
others are as if they had just been heard of.

It is a cache, as the files are: the append-only file says the same. So it only counts if all of it
fits: the node, the append-only file, each segment's file. The next start removes it before anything
changes.

It is a magic word and then blocks: the length of the content (u32, little-endian, as all numbers),
the CRC-32 of the content, the kind (u8), the CRC-32 of these 9 bytes, and the content.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple, TypeAlias
from zlib import crc32

from disque_trio.node.core.jobs.job import ACTIVE, FLAG_DELIVERED, JOB_OVERHEAD
from disque_trio.node.core.jobs.registry import SHARDS
from disque_trio.node.core.pages.segment import (
    LATER,
    RETRIED,
    DamagedError,
    Segment,
    SegmentLines,
    pack_segment,
    unpack_segment,
)
from disque_trio.node.core.queues.aof_codec import AofCodec
from disque_trio.node.core.queues.paging import Paging
from disque_trio.node.core.queues.recovery import Recovery
from disque_trio.node.core.queues.store import JobStore
from disque_trio.protocol.fields import pack_texts, unpack_texts
from disque_trio.protocol.serialjob import loadjob
from disque_trio.respserver.memory import MEMORY, UNLIMITED

# The number changes with whatever is packed here, in ``pages.segment`` or ``pages.index``.
MAGIC: Final = b"DISQUE-INDEX-1 %b\n" % sys.byteorder.encode()
LEAST: Final = 100_000  # jobs on disk; fewer are read in a moment
_PIECE: Final = 1 << 20  # bytes of records in a block
_SLACK: Final = 60_000  # ms by which the clock may be behind the one of the last process

# Kinds of blocks, in their order.
HEAD: Final = 1
SEGMENT: Final = 2
ENTRIES: Final = 3
KEYS: Final = 4
RECORDS: Final = 5
END: Final = 6

_BLOCK: Final = Struct("<IIB")
_CHECKSUM: Final = Struct("<I")
_HEAD: Final = Struct("<40sQ32sqIII")
_TIME: Final = Struct("<q")
_COUNT: Final = Struct("<I")

Block: TypeAlias = tuple[int, bytes]  # kind and content


class StartIndexError(ValueError):
    """The index cannot be used; the text says why."""


class Head(NamedTuple):
    """What an index goes with: the node, the size of its append-only file and a digest of it; when
    it was made (ms); and what ``Pages.begin_again`` needs."""

    node: bytes
    size: int
    digest: bytes
    when: int
    number: int
    bits: int
    slots: int


def pack_block(kind: int, content: bytes) -> bytes:
    """A block."""
    head = _BLOCK.pack(len(content), crc32(content), kind)
    return head + _CHECKSUM.pack(crc32(head)) + content


def read_blocks(read: Callable[[int], bytes]) -> Iterator[Block]:
    """The blocks of a file, of which ``read`` returns the next bytes, up to so many. Raises
    ``StartIndexError``: it is not a whole index."""
    if read(len(MAGIC)) != MAGIC:
        raise StartIndexError("it is not an index, or that of another version")
    count = 0
    kind = 0
    while kind != END:
        head = read(_BLOCK.size)
        own = read(_CHECKSUM.size)
        if len(own) < _CHECKSUM.size:
            raise StartIndexError("its end is missing")
        if _CHECKSUM.unpack(own)[0] != crc32(head):
            raise StartIndexError("a checksum is wrong")
        size, checksum, kind = _BLOCK.unpack(head)
        content = read(size)
        if len(content) < size:
            raise StartIndexError("its end is missing")
        if crc32(content) != checksum:
            raise StartIndexError("a checksum is wrong")
        if (kind == HEAD) != (count == 0):
            raise StartIndexError("its blocks are not in order")
        if kind == END and _COUNT.unpack(content)[0] != count:
            raise StartIndexError("blocks are missing")
        count += 1
        yield kind, content


class StartIndex:
    """Makes the index of the jobs of ``store``, and takes that of an earlier process.

    Args:
        recovery: knows what became of the jobs that are loaded.

    Attributes:
        least: how many jobs must lie on disk for an index to be worth it.
    """

    def __init__(
        self, store: JobStore, paging: Paging, aof_codec: AofCodec, recovery: Recovery
    ) -> None:
        self.least = LEAST
        self._store = store
        self._paging = paging
        self._pages = paging.pages
        self._aof_codec = aof_codec
        self._recovery = recovery

    # ---- writing ----------------------------------------------------------------------------

    def kept(self) -> list[Segment]:
        """The segments whose jobs the next start need not look at: it would put them where they
        are."""
        pages = self._pages
        return [
            segment
            for segment in pages.segments.values()
            if segment.live and (segment.asks or _is_kept(segment))
        ]

    def is_worth_it(self) -> bool:
        """Whether a start is much faster with an index."""
        pages = self._pages
        if pages.above == UNLIMITED or pages.jobs < self.least:
            return False
        if any(segment.rebuilding for segment in pages.segments.values()):
            return False
        kept = sum([segment.live for segment in self.kept()])
        return kept >= self.least and 2 * kept >= pages.jobs + self._store.jobs.count

    def pack(self, size: int, digest: bytes, when: int) -> Iterator[bytes]:
        """The index, in pieces; the arguments are for the ``Head``. Nothing may change meanwhile.
        Raises ``OSError`` if jobs on disk cannot be read."""
        pages = self._pages
        index = pages.index
        own = self._store.replicas.own
        yield MAGIC
        head = Head(own, size, digest, when, pages.last_number, index.bits_used, len(index.slots))
        yield pack_block(HEAD, _HEAD.pack(*head))
        count = 1
        for block in self._contents():
            yield pack_block(*block)
            count += 1
        yield pack_block(END, _COUNT.pack(count))

    def _contents(self) -> Iterator[Block]:
        pages = self._pages
        kept = {segment.number: segment for segment in self.kept()}
        times = pages.times()
        for number, segment in kept.items():
            yield SEGMENT, _TIME.pack(times.get(number, 0)) + pack_segment(segment)
        for piece in pages.index.pack():
            yield ENTRIES, piece
        keys = self._paging.keys.pack(kept)
        if keys:
            yield KEYS, pack_texts(keys)
        records: list[bytes] = []
        size = 0
        for record in self._records(kept):
            records.append(record)
            size += len(record)
            if size >= _PIECE:
                yield RECORDS, b"".join(records)
                records = []
                size = 0
        if records:
            yield RECORDS, b"".join(records)

    def _records(self, kept: dict[int, Segment]) -> Iterator[bytes]:
        """The records of all that is not in the segments ``kept``."""
        store = self._store
        store.dump_number += 1
        free: list[bytes] = []
        for shard in range(SHARDS):
            for job in store.jobs.shards[shard].values():
                if job.state == ACTIVE and not job.retry and job.flags & FLAG_DELIVERED:
                    job.dump = store.dump_number  # the append-only file says that it has ended
                    free += store.uniques.ending_with(job)
            yield from self._aof_codec.dump_shard(shard, 1 << 60)[0]
        yield from free
        for number, segment in self._pages.segments.items():
            if number in kept or not segment.live:
                continue
            try:
                data = self._aof_codec.read_file(number) if segment.data is None else segment.data
                payloads = self._paging.views.payloads(segment, data)
            except DamagedError as problem:
                raise OSError(str(problem)) from problem
            yield from map(loadjob, payloads)

    # ---- reading ----------------------------------------------------------------------------

    def check(
        self,
        blocks: Iterable[Block],
        size: int,
        digest: Callable[[], bytes],
        has_file: Callable[[Segment], str],
    ) -> list[int]:
        """Check that the index with these ``blocks`` goes with this node, its append-only file,
        which has this ``size`` and ``digest``, and its page files: ``has_file`` returns what is
        wrong with that of a segment, or nothing. Return the numbers of the segments. Raises
        ``StartIndexError``."""
        if not self._recovery.knows_all:
            raise StartIndexError("the node did not stop cleanly, or the progress file is missing")
        if self._pages.above == UNLIMITED:
            raise StartIndexError("jobs no longer go to disk")
        numbers: list[int] = []
        for kind, content in blocks:
            if kind == HEAD:
                self._check_head(Head._make(_HEAD.unpack(content)), size, digest)
            elif kind == SEGMENT:
                segment = self._unpack(content)
                problem = has_file(segment)
                if problem:
                    raise StartIndexError(f"page file {segment.number}: {problem}")
                numbers.append(segment.number)
        return numbers

    def _check_head(self, head: Head, size: int, digest: Callable[[], bytes]) -> None:
        """Check that an index with this ``head`` is of today. Raises ``StartIndexError``."""
        if head.node != self._store.replicas.own:
            raise StartIndexError("it is that of another node")
        if head.size != size:
            raise StartIndexError(
                f"it goes with an append-only file of {head.size} bytes, not {size}"
            )
        if head.digest != digest():
            raise StartIndexError("the append-only file, or the progress file, is another one")
        if head.when > self._store.machine.now + _SLACK:
            raise StartIndexError("the clock was set back")

    def take(self, kind: int, content: bytes) -> None:
        """Take a block of an index that was checked, except ``RECORDS``, which are loaded as those
        of the append-only file."""
        pages = self._pages
        if kind == HEAD:
            head = Head._make(_HEAD.unpack(content))
            pages.begin_again(head.number, head.bits, head.slots)
        elif kind == SEGMENT:
            self._put(self._unpack(content), _TIME.unpack_from(content)[0])
        elif kind == ENTRIES:
            pages.index.take(content)
        elif kind == KEYS:
            self._paging.keys.restore(unpack_texts(content))
        elif kind == END:
            pages.restored()
            for queue in self._store.queues.by_name.values():
                if queue.paged is not None:
                    queue.look()
            self._store.machine.holding = pages.jobs > 0
            self._paging.wake_by_due()

    def _unpack(self, content: bytes) -> Segment:
        """The segment of a block. Raises ``StartIndexError``."""
        try:
            return unpack_segment(content[_TIME.size :], self._store.replicas.read)
        except (StructError, ValueError) as problem:
            raise StartIndexError(f"a segment is malformed: {problem}") from problem

    def _put(self, segment: Segment, when: int) -> None:
        """Put ``segment``, whose jobs lie on disk, into its line."""
        store = self._store
        queues = store.queues
        now = store.machine.now
        segment.queue = queues.one_name(segment.queue)
        if segment.origin is None:
            if any(holders and self._recovery.asks_any(holders) for holders in segment.holders):
                segment.origin = RETRIED
                segment.asks = True
                when = now
        elif segment.origin != LATER:
            segment.told = now
            when = self._paging.aside.ask_after(segment)
        self._pages.restore(segment, when)
        shares = store.machine.memory.shares
        if shares is not None:
            size = segment.live * JOB_OVERHEAD + segment.bodies
            shares.add(segment.queue, MEMORY, size)
        if segment.origin is not None:
            self._paging.aside.lines.add(segment)
            return
        queue = queues.by_name.get(segment.queue)
        if queue is None:
            queue = queues.create(segment.queue)
        lines = queue.paged
        if lines is None:
            pages = self._pages
            lines = queue.paged = SegmentLines(
                queue.name, pages.hungry, pages.dry, store.limits.judge_need
            )
        lines.add(segment)
        queue.length += segment.live
        queue.jobs_in += segment.live


def _is_kept(segment: Segment) -> bool:
    """Whether the next start knows what to do with ``segment`` without looking at its jobs."""
    if segment.group is not None:
        return False  # a group has heads and turns, which its jobs make
    if segment.origin is None or segment.origin == LATER:
        return True
    return segment.origin != RETRIED and not segment.moved
