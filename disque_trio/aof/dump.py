"""A new append-only file from what the node has in memory, while the node goes on.

The jobs are written shard by shard. What happens meanwhile is in the node's journal, which goes to
the new file as well, in between: a job that is added is there once, since the dump leaves it out,
and the end of a job is there behind the job itself, or for a job that the file never had, which
loading takes as nothing. The new file gets its name only when it is complete and on the disk; until
then the old one stays what it was.
"""

import os
from itertools import count

from disque_trio.aof.disk import Disk
from disque_trio.core.machine import Machine

TEMPORARY = ".rewrite-"  # behind the name of the file; the process and a number follow
_numbers = count(1)
STEP_BYTES = 1 << 20  # of a dump; what one step holds twice


class NewFile:
    """A file in the making that will take the place of the append-only file.

    ``hold`` and ``release`` surround work on it in another thread: ``abandon`` then leaves the
    descriptors open as long as that needs them.

    Args:
        disk: where it is.
        path: the name it will have.

    Attributes:
        size: bytes written.

    Raises:
        OSError: from all methods; the file is then to be given up with ``abandon``.
    """

    def __init__(self, disk: Disk, path: str) -> None:
        self.size = 0
        self.temporary = f"{path}{TEMPORARY}{os.getpid()}-{next(_numbers)}"
        self._disk = disk
        self._path = path
        self._held = False
        self._abandoned = False
        self._fd = disk.open_append(self.temporary, fresh=True)

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

    def take_name(self, sync: bool = True) -> int:
        """Bring the rest to the disk, if ``sync``, take the name, and return the file's descriptor.
        The name is not safe before the directory was synced."""
        if sync:
            self._disk.sync(self._fd)
        self._disk.replace(self.temporary, self._path)
        return self._fd

    def hold(self) -> None:
        """Another thread begins to work on the file."""
        self._held = True

    def release(self) -> None:
        """It has ended."""
        self._held = False
        if self._abandoned:
            self._close()

    def abandon(self) -> None:
        """Leave nothing behind."""
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
    """A new file with all that ``machine`` has; there can be one dump of it at a time."""

    def __init__(self, disk: Disk, path: str, machine: Machine) -> None:
        super().__init__(disk, path)
        self.complete = False
        self._machine = machine
        machine.start_dump()

    def step(self, count: int) -> None:
        """Write about ``count`` more records, or 1 MB of them if that is less."""
        records, self.complete = self._machine.dump_step(count, STEP_BYTES)
        self.append(records)


def dump_all(disk: Disk, path: str, machine: Machine) -> Dump:
    """A complete dump, made at once, while nothing happens. It has yet to take its name.

    Raises:
        OSError: it cannot be written; nothing is left of it.
    """
    dump = Dump(disk, path, machine)
    try:
        while not dump.complete:
            dump.step(10_000)
    except OSError:
        dump.abandon()
        raise
    return dump
