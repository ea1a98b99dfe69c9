"""Writes the file of checksums beside an append-only file, and compares the two now and then.

A thread reads what is new in the append-only file, once it is on disk, and adds its checksums, so
whoever appends has nothing to do with it. When the append-only file is replaced, the checksums
begin again.
"""

from typing import Final
from zlib import crc32

from disque_trio.aof.checksums import BLOCK, ENDING, ENTRY, MAGIC, Sums, pack_entries
from disque_trio.aof.disk import Disk

STEP: Final = 16 << 20  # bytes to add the checksums of at a time
_PIECE: Final = 1 << 20  # bytes to read at once
_COMPARED: Final = 256  # blocks to compare at once


class SumsFile:
    """The checksums of one append-only file.

    ``hold`` and ``release`` surround work on it in another thread: until ``release``, ``close``
    leaves the file open.

    Args:
        disk: where it is.
        path, fd: the append-only file, and its descriptor.
        covered: there are checksums for the bytes before this offset already.

    Attributes:
        covered: the same, now.
        compared: up to this offset the bytes were compared with their checksums.
        damage: the blocks that did not match: where each begins and ends.
    """

    def __init__(self, disk: Disk, path: str, fd: int, covered: int = 0) -> None:
        self.covered = covered
        self.compared = 0
        self.damage: list[tuple[int, int]] = []
        self._disk = disk
        self._path = path + ENDING
        self._fd = fd
        self._sums = -1
        self._size = 0
        self._next = 0  # offset of the entry to compare next
        self._held = False
        self._closed = False

    def cover(self, upto: int) -> None:
        """Add checksums for what comes next, up to the offset ``upto``, where the file must be on
        disk. Raises ``OSError``."""
        if self._sums < 0:
            self._open()
        while self.covered < upto:
            start = self.covered
            end = start + _PIECE - start % _PIECE
            data = self._disk.read(self._fd, (end if end < upto else upto) - start, start)
            if not data:
                raise OSError("the append-only file became shorter")
            self._append(pack_entries(start, data))
            self.covered = start + len(data)

    def _open(self) -> None:
        fresh = self.covered == 0
        if fresh:
            self._disk.remove(self._path)  # it may be open still, for an older file
        self._sums = self._disk.open_append(self._path, fresh)
        self._size = self._disk.size(self._sums)
        if fresh:
            self._append(MAGIC)

    def _append(self, data: bytes) -> None:
        """Append ``data``, all of it or nothing. Raises ``OSError``."""
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[self._disk.write(self._sums, rest) :]
        except OSError:
            self._cut()
            raise
        self._size += len(data)

    def _cut(self) -> None:
        """Remove half an entry; if that is impossible, or there is none yet, begin again."""
        try:
            if self.covered:
                self._disk.truncate(self._sums, self._size)
                return
        except OSError:
            pass
        self._begin_again()

    def _begin_again(self) -> None:
        """Add the checksums of the whole file next."""
        self._disk.close(self._sums)
        self._sums = -1
        self.covered = 0
        self.rewind()

    def compare(self, upto: int) -> None:
        """Compare blocks with their checksums until all before ``upto`` are. Raises ``OSError``."""
        while self.compared < upto and self._sums >= 0:
            at = len(MAGIC) + self._next
            entries = self._disk.read(self._sums, _COMPARED * ENTRY.size, at)
            sums = Sums(MAGIC + entries, self.compared)
            if not (sums.intact and self.compared < sums.end <= self.covered):
                self._begin_again()  # the checksums themselves are damaged
                return
            start = self.compared
            # What is in memory is dropped, so that it is read from the disk.
            self._disk.start_writing(self._fd, start - start % BLOCK, sums.end)
            data = memoryview(self._disk.read(self._fd, sums.end - start, start))
            for begin, size, checksum in sums.blocks():
                block = data[begin - start : begin - start + size]
                if crc32(block) != checksum:
                    self.damage.append((begin, begin + size))
            self._next += len(entries)
            self.compared = sums.end

    def rewind(self) -> None:
        """Compare from the beginning again."""
        self.compared = self._next = 0

    def hold(self) -> None:
        """Called when another thread begins to work on it."""
        self._held = True

    def release(self) -> None:
        """Called when that thread has ended."""
        self._held = False
        if self._closed:
            self.close()

    def close(self) -> None:
        """Stop. The checksums stay."""
        self._closed = True
        if self._sums >= 0 and not self._held:
            self._disk.close(self._sums)
            self._sums = -1
