"""The few things that an append-only file needs of a disk.

``Disk`` is the real one. Tests put one in its place that forgets what was not synced and fails on
purpose.
"""

import os


class Disk:
    """Files by descriptor, as the operating system has them. All methods raise OSError."""

    def open_append(self, path: str, fresh: bool = False) -> int:
        """Open ``path`` for appending; it is made if need be, and emptied if ``fresh``."""
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        return os.open(path, flags | (os.O_TRUNC if fresh else 0), 0o600)

    def size(self, fd: int) -> int:
        """Bytes in the file."""
        return os.fstat(fd).st_size

    def write(self, fd: int, data: bytes | memoryview) -> int:
        """Append; returns how many bytes were."""
        return os.write(fd, data)

    def sync(self, fd: int) -> None:
        """Return when all that was written is on the disk."""
        os.fdatasync(fd)

    def start_writing(self, fd: int, start: int, end: int) -> None:
        """Let the disk begin with what is between two offsets, without waiting for it. It is not
        promised to be there before a ``sync``, which has less to do then."""
        # Linux begins to write what is not to be kept in memory, and drops only what was written
        # before.
        os.posix_fadvise(fd, start, end - start, os.POSIX_FADV_DONTNEED)

    def truncate(self, fd: int, size: int) -> None:
        """Cut the file to ``size`` bytes."""
        os.ftruncate(fd, size)

    def replace(self, old: str, new: str) -> None:
        """Give the file ``old`` the name ``new``, whatever had it before."""
        os.replace(old, new)  # noqa: PTH105

    def sync_directory(self, path: str) -> None:
        """Return when the names in the directory of ``path`` are on the disk."""
        fd = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY)  # noqa: PTH120
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def remove(self, path: str) -> None:
        """Remove a file that may not be there."""
        try:
            os.unlink(path)  # noqa: PTH108
        except FileNotFoundError:
            pass

    def close(self, fd: int) -> None:
        """Close the file."""
        os.close(fd)
