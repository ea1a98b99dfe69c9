"""Writes a new append-only file from memory while the node continues.

The jobs are written shard by shard. What happens meanwhile is in the node's journal, which also
goes to the new file, in between. A job that is added meanwhile is there once, since the dump omits
it. The end of a job comes after the job itself; or the file never had the job, and loading ignores
its end. The new file gets its name only when it is complete and on disk; until then, the old one
stays as it was.
"""

import os
from collections.abc import Iterator
from itertools import count

from disque_trio.aof.dataset import Dataset
from disque_trio.aof.disk import Disk

TEMPORARY = ".rewrite-"  # follows the name of the file; process id and a number come next
PIECE = 1 << 20  # bytes of records to write at once
_numbers = count(1)
STEP_BYTES = 1 << 20  # of a dump; a step holds twice as many


def pieces(records: list[bytes]) -> Iterator[memoryview]:
    """``records`` in pieces to be written at once; large ones are not copied."""
    few: list[bytes] = []
    size = 0
    for record in records:
        if size + len(record) > PIECE:
            yield memoryview(b"".join(few))
            few.clear()
            size = 0
        if len(record) > PIECE:
            whole = memoryview(record)
            for at in range(0, len(whole), PIECE):
                yield whole[at : at + PIECE]
        else:
            few.append(record)
            size += len(record)
    yield memoryview(b"".join(few))


class NewFile:
    """A file under construction that will replace the append-only file.

    ``hold`` and ``release`` surround work on it in another thread: until ``release``, ``abandon``
    leaves the descriptors open.

    Args:
        disk: where it is.
        path: the name it will have.

    Attributes:
        size: bytes written.

    Raises:
        OSError: from all methods; then call ``abandon``.
    """

    def __init__(self, disk: Disk, path: str) -> None:
        self.size = 0
        self.temporary = f"{path}{TEMPORARY}{os.getpid()}-{next(_numbers)}"
        self._disk = disk
        self._path = path
        self._held = 0  # number of threads
        self._abandoned = False
        self._fd = disk.open_append(self.temporary, fresh=True)

    def append(self, records: list[bytes]) -> None:
        """Append records of changes made during the dump; may be called in another thread."""
        for piece in pieces(records):
            rest = piece
            while rest:
                rest = rest[self._disk.write(self._fd, rest) :]
            self.size += len(piece)

    def sync(self) -> None:
        """Sync the file; may be called in another thread."""
        self._disk.sync(self._fd)

    def take_name(self, sync: bool = True) -> int:
        """Write the rest to disk, if ``sync``, take the name, and return the file's descriptor. The
        name is not safe until the directory is synced."""
        if sync:
            self._disk.sync(self._fd)
        self._disk.replace(self.temporary, self._path)
        return self._fd

    def hold(self) -> None:
        """Called when another thread begins to work on the file."""
        self._held += 1

    def release(self) -> None:
        """Called when that thread has ended."""
        self._held -= 1
        if self._abandoned and not self._held:
            self._close()

    def abandon(self) -> None:
        """Remove the unfinished file."""
        if self._abandoned:
            return
        self._abandoned = True
        if not self._held:
            self._close()
        try:
            self._disk.remove(self.temporary)
        except OSError:
            pass

    def _close(self) -> None:
        self._disk.close(self._fd)


class Dump(NewFile):
    """Dumps ``dataset`` into a new file; only one dump can run at a time."""

    def __init__(self, disk: Disk, path: str, dataset: Dataset) -> None:
        super().__init__(disk, path)
        self.complete = False
        self._dataset = dataset
        dataset.start_dump()

    def step(self, count: int) -> None:
        """Write about ``count`` more records, or 1 MB of them if that is less."""
        records, self.complete = self._dataset.dump_step(count, STEP_BYTES)
        self.append(records)


def dump_all(disk: Disk, path: str, dataset: Dataset) -> Dump:
    """Make a complete dump at once, while nothing else happens. It has yet to take its name.

    Raises:
        OSError: it cannot be written; nothing of it is left.
    """
    dump = Dump(disk, path, dataset)
    try:
        while not dump.complete:
            dump.step(10_000)
    except OSError:
        dump.abandon()
        raise
    return dump
