"""A disk in memory that loses unsynced data in a crash, and fails on request."""

import errno
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from disque_trio.aof.disk import Disk


@dataclass
class _File:
    data: bytearray = field(default_factory=bytearray)
    synced: int = 0  # bytes that survive a crash
    lost: bool = False  # after a failed sync: the kernel has dropped the written data


class SimulatedDisk(Disk):
    """Files by name; ``crash`` keeps synced data and a random part of the rest.

    A rename survives a crash once the directory is synced; before that, either name may remain.
    ``fail`` contains the names of operations that fail now; ``odds`` is the probability of a random
    failure.
    """

    def __init__(self, seed: int = 0, odds: float = 0.0) -> None:
        self.random = random.Random(seed)
        self.odds = odds
        self.fail: set[str] = set()
        self.names: dict[str, _File] = {}
        self._old_names: dict[str, _File] = {}  # as on the disk
        self._open: dict[int, _File] = {}
        self._next = 3
        self.room = 1 << 40  # bytes that are free
        self.write_error = errno.ENOSPC
        self.started: list[tuple[int, int]] = []  # ranges passed to start_writing

    def _may_fail(self, operation: str) -> None:
        if operation in self.fail or (self.odds and self.random.random() < self.odds):
            raise OSError(self.write_error if operation == "write" else errno.EIO, operation)

    def open_append(self, path: str, fresh: bool = False) -> int:
        self._may_fail("open")
        if fresh or path not in self.names:
            self.names[path] = _File()
        self._next += 1
        self._open[self._next] = self.names[path]
        return self._next

    def size(self, fd: int) -> int:
        return len(self._open[fd].data)

    def allocated(self, fd: int) -> int:
        return len(self._open[fd].data)

    def space(self, fd: int) -> tuple[int, int]:
        return self.room + sum(len(file.data) for file in self.names.values()), self.room

    def reserve(self, fd: int, start: int, size: int) -> None:
        self._may_fail("reserve")
        self.room -= size

    def write(self, fd: int, data: bytes | memoryview) -> int:
        file = self._open[fd]
        try:
            self._may_fail("write")
        except OSError:
            # A full disk may still accept half a record.
            file.data += bytes(data[: self.random.randrange(len(data) + 1)])
            raise
        part = self.random.randrange(1, len(data) + 1)
        file.data += bytes(data[:part])
        return part

    def read(self, fd: int, size: int, start: int) -> bytes:
        return bytes(self._open[fd].data[start : start + size])

    def sync(self, fd: int) -> None:
        file = self._open[fd]
        try:
            self._may_fail("sync")
        except OSError:
            file.lost = True
            raise
        if not file.lost:
            file.synced = len(file.data)

    def start_writing(self, fd: int, start: int, end: int) -> None:
        self.started.append((start, end))

    def truncate(self, fd: int, size: int) -> None:
        self._may_fail("truncate")
        file = self._open[fd]
        del file.data[size:]
        file.synced = min(file.synced, size)

    def replace(self, old: str, new: str) -> None:
        self._may_fail("replace")
        self.names[new] = self.names.pop(old)

    def sync_directory(self, path: str) -> None:
        self._may_fail("sync_directory")
        self._old_names = dict(self.names)

    def remove(self, path: str) -> None:
        self.names.pop(path, None)

    def close(self, fd: int) -> None:
        del self._open[fd]

    def descriptors(self) -> set[int]:
        """The open descriptors."""
        return set(self._open)

    def crash(self, path: str) -> bytes:
        """The content of ``path`` after the machine restarts."""
        names = self.names if self.random.random() < 0.5 else self._old_names
        file = names.get(path)
        if file is None:
            return b""
        kept = self.random.randint(file.synced, len(file.data))
        return bytes(file.data[: file.synced if file.lost else kept])


class NoReplies:
    """No client waits for a thread's writes."""

    def hold_replies(self) -> None:
        pass

    def stored(self, good: bool) -> None:
        pass

    def when_stirred(self, wake: Callable[[], None]) -> None:
        wake()  # tests write behind its back
