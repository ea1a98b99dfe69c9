"""The file nodes.conf: locked while the process lives, replaced as a whole.

The lock is on the file itself (``flock``), as in the C program, so neither program starts on a
nodes.conf that is in use. Since every save replaces the file, the new one is locked before it gets
the name.
"""

import fcntl
import os

from disque_trio.process.files import Files


class NodesFileError(OSError):
    """The file cannot be used; the text says why."""


class NodesDisk(Files):
    """The file operations that ``NodesFile`` needs. All methods raise ``OSError``."""

    def open(self, path: str, fresh: bool = False) -> int:
        """Open ``path`` for reading and writing; creates it if missing, empties it if ``fresh``."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | (os.O_TRUNC if fresh else 0)
        return os.open(path, flags, 0o644)

    def lock(self, fd: int) -> None:
        """Lock the file against other processes. Raises ``BlockingIOError`` if one has it."""
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def names(self, path: str, fd: int) -> bool:
        """Whether ``path`` is the name of the open file ``fd``."""
        try:
            named = os.stat(path)
        except FileNotFoundError:
            return False
        return os.path.samestat(named, os.fstat(fd))

    def read(self, fd: int) -> bytes:
        """The whole file."""
        return os.pread(fd, os.fstat(fd).st_size, 0)

    def write(self, fd: int, data: bytes) -> int:
        """Write at the current position; return the number of bytes written."""
        return os.write(fd, data)

    def sync(self, fd: int) -> None:
        """Return once everything written is on disk."""
        os.fsync(fd)


class NodesFile:
    """nodes.conf, open and locked.

    Args:
        path: where it is; a symbolic link is followed and stays one.
        disk: the operating system.

    Raises:
        NodesFileError: another process uses it, or it cannot be opened.
    """

    def __init__(self, path: str, disk: NodesDisk | None = None) -> None:
        self._path = os.path.realpath(path)
        self._disk = disk or NodesDisk()
        try:
            self._fd = self._open_locked()
        except BlockingIOError:
            raise NodesFileError(
                f"{path} is in use by a node that is running: each needs a nodes.conf of its own"
            ) from None
        except OSError as failure:
            raise NodesFileError(f"cannot use {path}: {failure.strerror}") from failure

    def _open_locked(self) -> int:
        while True:
            fd = self._disk.open(self._path)
            try:
                self._disk.lock(fd)
                if self._disk.names(self._path, fd):
                    return fd
            except BaseException:
                self._disk.close(fd)
                raise
            # Its owner replaced it after it was opened here.
            self._disk.close(fd)

    def load(self) -> str:
        """The text of the file; empty if it is new.

        Raises:
            NodesFileError: it cannot be read.
        """
        try:
            return self._disk.read(self._fd).decode("utf-8", "replace")
        except OSError as failure:
            raise NodesFileError(f"cannot read {self._path}: {failure.strerror}") from failure

    def save(self, text: str) -> str | None:
        """Replace the file; after a crash, it is the old or the new one. Return why it failed, or
        None. Then the old file is in place, unless only the sync of the directory failed."""
        temporary = self._path + ".tmp"
        try:
            fd = self._disk.open(temporary, fresh=True)
        except OSError as failure:
            return failure.strerror or str(failure)
        try:
            self._disk.lock(fd)
            data = text.encode()
            while data:
                data = data[self._disk.write(fd, data) :]
            self._disk.sync(fd)
            self._disk.replace(temporary, self._path)
        except OSError as failure:
            self._disk.close(fd)
            self._clean(temporary)
            return failure.strerror or str(failure)
        old, self._fd = self._fd, fd
        self._disk.close(old)
        try:
            self._disk.sync_directory(self._path)
        except OSError as failure:
            return failure.strerror or str(failure)
        return None

    def _clean(self, temporary: str) -> None:
        try:
            self._disk.remove(temporary)
        except OSError:
            pass  # the next save empties it

    def close(self) -> None:
        """Let others use the file."""
        self._disk.close(self._fd)
