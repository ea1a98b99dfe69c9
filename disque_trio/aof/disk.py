"""The disk operations that an append-only file needs.

``Disk`` is the real one. Tests use one that forgets what was not synced, and that fails on
purpose.
"""

import ctypes
import os
import resource
import threading
import time
from typing import Final

from disque_trio.histogram import DISK_TIMES, NS, Histogram
from disque_trio.process.files import Files

_KEEP_SIZE: Final = 1  # of fallocate: the size of the file does not change
_UNLIMITED: Final = (1 << 63) - 1
_BLOCK: Final = 512  # bytes, of st_blocks

_fallocate = ctypes.CDLL(None, use_errno=True).fallocate
_fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]


class Disk(Files):
    """Operations on an append-only file by its descriptor. All of them raise ``OSError``."""

    def open_append(self, path: str, fresh: bool = False) -> int:
        """Open ``path`` for appending; creates it if missing, empties it if ``fresh``."""
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        return os.open(path, flags | (os.O_TRUNC if fresh else 0), 0o600)

    def size(self, fd: int) -> int:
        """Bytes in the file."""
        return os.fstat(fd).st_size

    def allocated(self, fd: int) -> int:
        """Bytes that the file takes on the disk: more than its size if space was reserved."""
        return os.fstat(fd).st_blocks * _BLOCK

    def space(self, fd: int) -> tuple[int, int]:
        """The file system of the file: how many bytes it has, and how many this user may still
        take."""
        system = os.fstatvfs(fd)
        return system.f_blocks * system.f_frsize, system.f_bavail * system.f_frsize

    def longest(self) -> int:
        """Bytes that a file may have, by the limit of the process (ulimit -f)."""
        limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
        return _UNLIMITED if limit == resource.RLIM_INFINITY else limit

    def reserve(self, fd: int, start: int, size: int) -> None:
        """Take ``size`` bytes from ``start`` on, beyond the end of the file, whose size does not
        change."""
        if _fallocate(fd, _KEEP_SIZE, start, size):
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))

    def write(self, fd: int, data: bytes | memoryview) -> int:
        """Append; returns the number of bytes written."""
        return os.write(fd, data)

    def read(self, fd: int, size: int, start: int) -> bytes:
        """Up to ``size`` bytes from the offset ``start`` on."""
        return os.pread(fd, size, start)

    def sync(self, fd: int) -> None:
        """Return once everything written is on disk."""
        os.fdatasync(fd)

    def start_writing(self, fd: int, start: int, end: int) -> None:
        """Make the disk begin to write what is between two offsets, without waiting. Only a
        ``sync`` guarantees that it is there, but then has less to do."""
        # Linux begins to write data that need not stay in memory, and drops only what was written
        # before.
        os.posix_fadvise(fd, start, end - start, os.POSIX_FADV_DONTNEED)

    def truncate(self, fd: int, size: int) -> None:
        """Cut the file to ``size`` bytes."""
        os.ftruncate(fd, size)


class TimedDisk(Disk):
    """A disk that measures how long syncs of files take, including those in threads. syncs: the
    times."""

    def __init__(self) -> None:
        self.syncs = Histogram(DISK_TIMES, NS)
        self._lock = threading.Lock()

    def sync(self, fd: int) -> None:
        started = time.perf_counter_ns()
        super().sync(fd)
        with self._lock:
            self.syncs.observe(time.perf_counter_ns() - started)
