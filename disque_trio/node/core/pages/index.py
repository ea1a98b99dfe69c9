"""Finds a job that lies on disk by its id, in some 13 bytes a job.

Ids are not kept, only 64 bits of each: its checksum, by which the registry orders jobs for scans,
and four characters of its random part. These are the same in every process, so the index can be
kept for the next one. They are in many buckets by the upper bits of the checksum. A bucket is a
string of entries; the interpreter searches it faster than a loop in Python follows any chain, and
it grows without being rebuilt. An entry is not removed when its job leaves the disk: whether it
still counts is for the segment to say. What no longer counts is swept out bit by bit.
"""

import zlib
from array import array
from collections.abc import Iterator
from struct import Struct
from typing import TYPE_CHECKING, Final

from disque_trio.node.core.pages.segment import MOST_JOBS, PLACE_BITS, Segment
from disque_trio.protocol.serialjob import ID_LENGTH, read_u32

if TYPE_CHECKING:
    from mypy_extensions import i64

BITS: Final = 16  # of the checksum choose the bucket
ENTRY: Final = 12  # bytes
ENTRY_TAKES: Final = 13  # with what a bucket has in reserve
BUCKET_TAKES: Final = 96  # bytes of a bucket in use, besides its entries
_ENTRY: Final = Struct("<III")  # the checksum, four characters, the place
_PRINT: Final = Struct("<II")
_PLACE: Final = Struct("<I")
_WORDS: Final = ID_LENGTH // 4  # of an id
_WORD: Final = 3  # with random characters
_PIECE: Final = 1 << 20  # bytes of packed buckets
_PLACE_MASK: Final = MOST_JOBS - 1

# Compiled, an imported name costs a look-up at each use, and so does a method.
_crc32: Final = zlib.crc32
_pack_print: Final = _PRINT.pack
_unpack_place: Final = _PLACE.unpack_from
_unpack_two: Final = _PRINT.unpack_from


class SegmentIndex:
    """Finds the places of jobs by their ids.

    Attributes:
        slots: the segments; a place is the number of one, and the place in it.
        bits: how many of the checksum choose the bucket, from the next time on that there is none.
        entries: how many there are, with those that no longer count.
        taken: bytes of memory.
        passes: how often all buckets have been swept.
    """

    def __init__(self) -> None:
        self.slots: list[Segment | None] = []
        self.entries = 0
        self.taken = 0
        self.passes = 0
        self.bits = BITS
        self._shift = 0
        self._buckets: list[bytearray | None] = []  # all of them, or none yet
        self._next = 0  # bucket to sweep

    def lives(self, place: int) -> bool:
        """Whether ``place`` still holds the job that was put there."""
        segment = self.slots[place >> PLACE_BITS]
        return segment is not None and segment.has(place & _PLACE_MASK)

    def add_all(self, ids: list[bytes], checksums: list[int], place: int) -> None:
        """Add the jobs ``ids`` with these ``checksums``, at ``place`` and the following ones.
        ``find`` must not have found them."""
        if not self._buckets:
            self._begin()
        buckets = self._buckets
        shift: i64 = self._shift
        words = array("I", b"".join(ids))
        packed = array("I", bytes(ENTRY * len(ids)))
        packed[0::3] = array("I", checksums)
        packed[1::3] = words[_WORD::_WORDS]
        packed[2::3] = array("I", list(range(place, place + len(ids))))
        entries = packed.tobytes()
        start: i64 = 0
        for checksum in checksums:
            number: i64 = checksum
            number >>= shift
            bucket = buckets[number]
            if bucket is None:
                bucket = buckets[number] = bytearray()
                self.taken += BUCKET_TAKES
            bucket += entries[start : start + ENTRY]
            start += ENTRY
        self.entries += len(ids)
        self.taken += ENTRY_TAKES * len(ids)

    def _begin(self) -> None:
        """Make the buckets."""
        self._buckets = [None] * (1 << self.bits)
        self._shift = 32 - self.bits
        self._next = 0
        self.taken += 8 * len(self._buckets)

    def find_one(self, id: bytes) -> int:
        """Return the place where the job ``id`` is; -1: it is not here, or may be at several."""
        found = self.find(id)
        return found[0] if len(found) == 1 else -1

    def find(self, id: bytes) -> list[int]:
        """Return the places where the job ``id`` may be: usually none or one."""
        found: list[int] = []
        if not self._buckets:
            return found
        checksum = _crc32(id)
        bucket = self._buckets[checksum >> self._shift]
        if bucket is None:
            return found
        wanted: bytes = _pack_print(checksum, random_bits(id))
        at = bucket.find(wanted)
        while at >= 0:
            if at % ENTRY == 0:
                place: int = _unpack_place(bucket, at + 8)[0]
                if self.lives(place):
                    found.append(place)
            at = bucket.find(wanted, at + 1)
        return found

    def scan(self, first: int, end: int, most: int) -> tuple[int, list[int]]:
        """Return the places of the jobs whose checksums are at least ``first`` and below some
        number, and that number: ``end``, or less if there are about ``most``."""
        places: list[int] = []
        if not self._buckets:
            return end, places
        for number in range(first >> self._shift, (end - 1 >> self._shift) + 1):
            bucket = self._buckets[number]
            if bucket is not None:
                for checksum, _, place in _ENTRY.iter_unpack(bucket):
                    if first <= checksum < end and self.lives(place):
                        places.append(place)
                if len(places) >= most:
                    return min((number + 1) << self._shift, end), places
        return end, places

    def sweep(self, entries: int) -> None:
        """Remove what no longer counts from the next buckets with about so many ``entries``."""
        looked = 0
        for _ in range(len(self._buckets)):
            if looked >= entries:
                break
            bucket = self._buckets[self._next]
            looked += 1
            if bucket is not None:
                places = array("I", bucket).tolist()[2::3]
                looked += len(places)
                kept = [at for at in range(len(places)) if self.lives(places[at])]
                gone = len(places) - len(kept)
                if gone:
                    self.entries -= gone
                    self.taken -= gone * ENTRY_TAKES
                    parts = [bucket[ENTRY * at : ENTRY * (at + 1)] for at in kept]
                    self._buckets[self._next] = bytearray().join(parts) if kept else None
                    if not kept:
                        self.taken -= BUCKET_TAKES
            self._next += 1
            if self._next == len(self._buckets):
                self._next = 0
                self.passes += 1

    def clear(self) -> None:
        """Forget everything."""
        self._buckets = []
        self.slots.clear()
        self.entries = self.taken = 0

    # ---- for the next process ---------------------------------------------------------------

    @property
    def bits_used(self) -> int:
        """How many bits of the checksum choose the bucket."""
        return 32 - self._shift

    def pack(self) -> Iterator[bytes]:
        """The buckets, in pieces for ``take``."""
        parts: list[bytes | bytearray] = []
        size = 0
        for number in range(len(self._buckets)):
            bucket = self._buckets[number]
            if bucket:
                parts.append(_pack_print(number, len(bucket)))
                parts.append(bucket)
                size += len(bucket)
                if size >= _PIECE:
                    yield b"".join(parts)
                    parts = []
                    size = 0
        if parts:
            yield b"".join(parts)

    def begin(self, bits: int, slots: int) -> None:
        """Begin to take what a process has packed, in which so many ``bits`` chose the bucket, and
        which had so many ``slots``."""
        self.slots += [None] * slots
        usual, self.bits = self.bits, bits
        self._begin()
        self.bits = usual

    def take(self, piece: bytes) -> None:
        """Take a piece that was packed."""
        buckets = self._buckets
        at = 0
        size = 0
        while at < len(piece):
            number, length = _unpack_two(piece, at)
            at += 8
            buckets[number] = bytearray(piece[at : at + length])
            at += length
            size += length
            self.taken += BUCKET_TAKES
        self.entries += size // ENTRY
        self.taken += size // ENTRY * ENTRY_TAKES


def random_bits(id: bytes) -> int:
    """Four characters of the random part of the job ``id``."""
    return read_u32(id, 4 * _WORD)
