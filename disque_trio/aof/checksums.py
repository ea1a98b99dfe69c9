"""The checksums of an append-only file, in a file beside it, which C Disque does not know.

That file is a magic word and then entries of 16 bytes, one for each block of the append-only file:
where the block begins (48 bits), its length (16 bits, at most ``BLOCK``), the CRC-32 of its bytes,
and the CRC-32 of the 12 bytes before (all little-endian). A block ends where a page of the file
does, or where the file ended when it was read. There are only checksums for what is on disk.

If a single bit of a block is flipped, the checksum tells which: it is flipped back as the file is
read. If more is wrong, all records with bytes in the block are suspect.

Rule: what does not match is damage only if something behind it does match. Otherwise the file may
have been replaced by another one, for example by an older release, which leaves the checksums as
they are. Then they do not count from there on. Single flipped bits in the last blocks do count.
"""

import io
import os
import zlib
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

from disque_trio.aof.format import AofError, RecordReader, describe

ENDING: Final = ".sums"  # follows the name of the append-only file
MAGIC: Final = b"DISQUE-SUMS-1\n\0\0"
BLOCK: Final = 4096  # CPython keeps its lock for a checksum of so little: no thread waits for it
ENTRY: Final = Struct("<QII")
_OWN: Final = 12  # bytes of an entry before its own checksum
_OWN_CHECKSUM: Final = Struct("<I")
_PLACE_AND_CHECKSUM: Final = Struct("<QI")

_TABLE: Final = [zlib.crc32(bytes((byte,))) ^ zlib.crc32(b"\0") for byte in range(256)]
_BY_TOP: Final = {entry >> 24: byte for byte, entry in enumerate(_TABLE)}
_BITS: Final = {_TABLE[1 << bit]: bit for bit in range(8)}


def pack_entry(start: int, data: bytes | memoryview) -> bytes:
    """The entry of the block ``data``, which begins at ``start``."""
    entry = _PLACE_AND_CHECKSUM.pack(start << 16 | len(data), zlib.crc32(data))
    return entry + _OWN_CHECKSUM.pack(zlib.crc32(entry))


def pack_entries(start: int, data: bytes) -> bytes:
    """The entries of all blocks in ``data``, which begins at ``start``."""
    view = memoryview(data)
    entries: list[bytes] = []
    at = 0
    while at < len(data):
        end = at + BLOCK - (start + at) % BLOCK
        entries.append(pack_entry(start + at, view[at:end]))
        at = end
    return b"".join(entries)


def flipped_bit(data: bytes | memoryview, checksum: int) -> tuple[int, int] | None:
    """The byte and the bit to flip in ``data`` so that it has this ``checksum``, which it has not;
    None: there is none."""
    # What a flipped bit changes in the checksum depends only on how many bytes follow it. So undo
    # the steps of the checksum, byte for byte from the end, until a single bit is left.
    syndrome = zlib.crc32(data) ^ checksum
    for at in range(len(data) - 1, -1, -1):
        bit = _BITS.get(syndrome)
        if bit is not None:
            return at, bit
        byte = _BY_TOP[syndrome >> 24]
        syndrome = (syndrome ^ _TABLE[byte]) << 8 | byte
    return None


class Sums:
    """The blocks and checksums in a file of checksums.

    Attributes:
        starts, sizes, checksums: of the blocks, by offset.
        intact: the blocks follow each other without a gap, and nothing else is in the file.

    Args:
        data: the file.
        end: where the first block should begin.
    """

    def __init__(self, data: bytes, end: int = 0) -> None:
        self.starts = array("Q")
        self.sizes = array("H")
        self.checksums = array("I")
        self.intact = data.startswith(MAGIC) and (len(data) - len(MAGIC)) % ENTRY.size == 0
        view = memoryview(data if data.startswith(MAGIC) else b"")
        for at in range(len(MAGIC), len(view) - ENTRY.size + 1, ENTRY.size):
            place, checksum, own = ENTRY.unpack_from(view, at)
            start = place >> 16
            if zlib.crc32(view[at : at + _OWN]) != own or start < end:
                self.intact = False
                continue
            if start > end:
                self.intact = False
            self.starts.append(start)
            self.sizes.append(place & 0xFFFF)
            self.checksums.append(checksum)
            end = start + (place & 0xFFFF)

    def blocks(self) -> Iterator[tuple[int, int, int]]:
        """Where each block begins, its size, and its checksum."""
        return zip(self.starts, self.sizes, self.checksums, strict=True)

    @property
    def end(self) -> int:
        """Where the last block ends."""
        return self.starts[-1] + self.sizes[-1] if self.starts else 0


def read_sums(path: str) -> Sums:
    """The checksums beside the append-only file at ``path``; none if they cannot be read."""
    with suppress(OSError):
        return Sums(Path(path + ENDING).read_bytes())
    return Sums(b"")


def sums_size(path: str) -> int:
    """Bytes in the file of checksums beside the append-only file at ``path``."""
    try:
        return os.stat(path + ENDING).st_size
    except OSError:
        return 0


class Mark(NamedTuple):
    """A place that is not as it was written: the bytes from ``start`` up to ``end``. If it is a
    single bit, ``bit`` tells which, and it has been flipped back; otherwise it is -1."""

    start: int
    end: int
    bit: int


class CheckedFile(io.RawIOBase):
    """An append-only file whose checksums are checked as it is read.

    Attributes:
        size: bytes in the file when it was opened.
        covered: bytes of it with checksums.
        doubtful: from this offset on the checksums are not those of the file; -1: they are.
        marks: the damaged places found so far.

    Args:
        fd: its descriptor, whose position does not matter.
        sums: its checksums.
    """

    def __init__(self, fd: int, sums: Sums | None = None) -> None:
        super().__init__()
        self.size = os.fstat(fd).st_size
        self.doubtful = -1
        self.marks: list[Mark] = []
        self._fd = fd
        self._at = 0
        self._sums = sums or Sums(b"")
        self._bad: dict[int, Mark] = {}  # by the start of the block
        starts, sizes = self._sums.starts, self._sums.sizes
        self._count = len(starts)  # blocks that count
        while self._count and starts[self._count - 1] + sizes[self._count - 1] > self.size:
            self._count -= 1
        self._find_doubtful()
        self.covered = sum(sizes[: self._count])

    def _find_doubtful(self) -> None:
        """Leave out the blocks at the end that do not match."""
        count = self._count
        if not count or self._matches(count - 1):
            return
        if self._is_repairable(count - 1) and (count == 1 or self._is_repairable(count - 2)):
            return
        low, high = 0, count - 1  # those before ``low`` match, ``high`` does not
        while low < high:
            middle = (low + high) // 2
            if self._matches(middle):
                low = middle + 1
            else:
                high = middle
        self._count = low
        self.doubtful = self._sums.starts[low]

    def _block(self, index: int) -> bytes:
        return os.pread(self._fd, self._sums.sizes[index], self._sums.starts[index])

    def _matches(self, index: int) -> bool:
        return zlib.crc32(self._block(index)) == self._sums.checksums[index]

    def _is_repairable(self, index: int) -> bool:
        """Whether the block matches, at least with a bit flipped back."""
        block, checksum = self._block(index), self._sums.checksums[index]
        return zlib.crc32(block) == checksum or flipped_bit(block, checksum) is not None

    def pread(self, size: int, at: int) -> bytes:
        """Up to ``size`` bytes from ``at`` on, with single bits repaired."""
        data = os.pread(self._fd, size, at)
        starts, sizes, checksums = self._sums.starts, self._sums.sizes, self._sums.checksums
        view = memoryview(data)
        end = at + len(data)
        changed: bytearray | None = None
        for index in range(max(bisect_right(starts, at, 0, self._count) - 1, 0), self._count):
            start = starts[index]
            stop = start + sizes[index]
            if start >= end:
                break
            if start >= at and stop <= end:
                block: bytes | memoryview = view[start - at : stop - at]
            elif stop > at:
                block = self._block(index)
            else:
                continue
            if zlib.crc32(block) == checksums[index]:
                continue
            mark = self._mark(start, block, checksums[index])
            if mark.bit >= 0 and at <= mark.start < end:
                changed = changed or bytearray(data)
                changed[mark.start - at] ^= 1 << mark.bit
        return data if changed is None else bytes(changed)

    def _mark(self, start: int, block: bytes | memoryview, checksum: int) -> Mark:
        """Note that the ``block`` at ``start`` does not match."""
        mark = self._bad.get(start)
        if mark is None:
            flipped = flipped_bit(block, checksum)
            if flipped is None:
                mark = Mark(start, start + len(block), -1)
            else:
                mark = Mark(start + flipped[0], start + flipped[0] + 1, flipped[1])
            self._bad[start] = mark
            self.marks.append(mark)
        return mark

    def found(self, start: int, end: int) -> Mark | None:
        """A damaged place among the bytes between these offsets, which have been read; one that
        could not be repaired, if there is any."""
        if not self.marks:
            return None
        found = [mark for mark in self.marks if mark.start < end and mark.end > start]
        return min(found, key=_bit, default=None)

    @property
    def damaged_up_to(self) -> int:
        """Where the last damaged place ends that has been found."""
        return max((mark.end for mark in self.marks), default=0)

    # ---- a raw file -----------------------------------------------------------------------------

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._fd

    def read(self, size: int = -1, /) -> bytes:
        data = self.pread(self.size - self._at if size < 0 else size, self._at)
        self._at += len(data)
        return data

    def readinto(self, buffer: bytearray | memoryview, /) -> int:  # type: ignore[override]
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self.size}[whence]
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def records(self, at: int, start: int, end: int) -> Iterator[str]:
        """What the records are that have bytes between ``start`` and ``end``, as far as they can be
        read; one begins at ``at``."""
        self.seek(at)
        reader = RecordReader(self, at)
        with suppress(AofError):
            for record in reader:
                if at >= end:
                    return
                if reader.offset > start:
                    yield f"{describe(record)} at {at}"
                at = reader.offset


def _bit(mark: Mark) -> int:
    return mark.bit
