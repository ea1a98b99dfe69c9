"""A new append-only file from what the node has in memory, while the node goes on.

The jobs are written shard by shard. What happens meanwhile is in the node's journal, which goes to
the new file as well, in between: a job that is added is there once, since the dump leaves it out,
and the end of a job is there behind the job itself, or for a job that the file never had, which
loading takes as nothing. The new file gets its name only when it is complete and on the disk; until
then the old one stays what it was.
"""

import os

from disque_trio.aof.disk import Disk
from disque_trio.core.registry import SHARDS
from disque_trio.core.store import JobStore


class Dump:
    """One new file in the making.

    Args:
        disk: where it is.
        path: the name it will have.
        store: the jobs; there can be one dump of them at a time.

    Attributes:
        size: bytes written.

    Raises:
        OSError: from all methods; the dump is then to be given up with ``abandon``.
    """

    def __init__(self, disk: Disk, path: str, store: JobStore) -> None:
        self.size = 0
        self._disk = disk
        self._path = path
        self._temporary = f"{path}.rewrite-{os.getpid()}"
        self._store = store
        self._fd = disk.open_append(self._temporary, fresh=True)
        self._next = 0
        store.start_dump()

    @property
    def complete(self) -> bool:
        """Whether all jobs are in the file."""
        return self._next == SHARDS

    def step(self, jobs: int) -> None:
        """Write about ``jobs`` more jobs, at least a shard."""
        records: list[bytes] = []
        while self._next < SHARDS and len(records) < jobs:
            records += self._store.dump_shard(self._next)
            self._next += 1
        self.append(records)

    def append(self, records: list[bytes]) -> None:
        """Write what happened meanwhile."""
        data = b"".join(records)
        rest = memoryview(data)
        while rest:
            rest = rest[self._disk.write(self._fd, rest) :]
        self.size += len(data)

    def sync(self) -> None:
        """Bring what was written to the disk; may be called in another thread."""
        self._disk.sync(self._fd)

    def take_name(self) -> int:
        """Bring the rest to the disk, take the name, and return the file's descriptor. The name is
        not safe before the directory was synced."""
        self._disk.sync(self._fd)
        self._disk.replace(self._temporary, self._path)
        return self._fd

    def abandon(self) -> None:
        """Leave nothing behind."""
        self._disk.close(self._fd)
        try:
            self._disk.remove(self._temporary)
        except OSError:
            pass


def dump_all(disk: Disk, path: str, store: JobStore) -> Dump:
    """A complete dump, made at once, while nothing happens. It has yet to take its name.

    Raises:
        OSError: it cannot be written; nothing is left of it.
    """
    dump = Dump(disk, path, store)
    try:
        while not dump.complete:
            dump.step(10_000)
    except OSError:
        dump.abandon()
        raise
    return dump
