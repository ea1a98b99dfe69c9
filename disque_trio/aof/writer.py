"""Writes records to the append-only file.

Rule 1: the records of a turn are appended before its replies are sent; with ``appendfsync always``
        they are synced as well.
Rule 2: if that fails, the caller is told, confirms nothing and refuses writes until ``retry``
        succeeds. What could not be written is kept and goes first.
Rule 3: a failed write may have left half a record: the file is cut back to the last complete one.
Rule 4: after a failed sync nobody knows what is on disk, and another sync may report success
        although data is lost. So the file is not written to again until a dump from memory has
        replaced it (``distrusted``).

Large amounts are written by another thread (``LargeAppend``), since the disk may take seconds.
Nothing else is written to the file until that has ended, so the rules are the same.
"""

from collections.abc import Callable
from functools import partial

from disque_trio.aof.disk import Disk
from disque_trio.aof.dump import NewFile, pieces

ALWAYS = "always"
EVERYSEC = "everysec"
NO = "no"
# A sync keeps writers waiting for as long as it takes: 16 ms with 25 MB/s. So writing begins
# earlier, and only in whole pages: the last one is still written to.
EARLY_BYTES = 64 << 10
_PAGE = 4096
# Records that another thread should write: a large one, or very many; and from which size on it
# should sync them too, since a later sync of so much would keep the writes of other turns waiting.
LARGE = 1 << 20  # bytes
MANY = 16 << 20
SYNC_AT_ONCE = 8 << 20


def is_large(records: list[bytes]) -> bool:
    """Whether another thread should write ``records``."""
    size = sum(map(len, records))
    return size > LARGE and (size > MANY or max(map(len, records)) > LARGE)


class LargeAppend:
    """Records that a thread writes to the file.

    Attributes:
        size: bytes.
        written: they are in the file.
        synced: they are also on disk.
        failure: what went wrong, or None.
    """

    def __init__(self, disk: Disk, fd: int, records: list[bytes], offset: int, policy: str) -> None:
        self.records = records
        self.size = sum(map(len, records))
        self.written = False
        self.synced = False
        self.failure: OSError | None = None
        self._disk = disk
        self._fd = fd
        self._offset = offset
        self._sync = policy == ALWAYS or (policy == EVERYSEC and self.size > SYNC_AT_ONCE)

    def run(self) -> None:
        """Write the records, and make the disk begin to store them."""
        try:
            for piece in pieces(self.records):
                rest = piece
                while rest:
                    rest = rest[self._write(rest) :]
            self.written = True
            if self._sync:
                self._disk.sync(self._fd)
                self.synced = True
        except OSError as failure:
            self.failure = failure

    def _write(self, piece: memoryview) -> int:
        done = self._disk.write(self._fd, piece)
        start, self._offset = self._offset & -_PAGE, self._offset + done
        end = self._offset & -_PAGE
        if end > start:
            try:
                self._disk.start_writing(self._fd, start, end)
            except OSError:
                pass  # the sync will report it
        return done


class AofWriter:
    """Appends to and syncs the append-only file of a node.

    Args:
        disk: where it is.
        path: its name.
        policy: appendfsync: always, everysec or no.

    Attributes:
        size: bytes in the file.
        base_size: its size after the last rewrite, or at the start.
        problem: why nothing can be written; empty: it can.
        distrusted: a sync failed: only a new file helps.
        unsynced: something was written and not synced.
        unnamed: the file has taken over the name, and the directory is not synced yet.

    Raises:
        OSError: the file cannot be opened.
    """

    def __init__(self, disk: Disk, path: str, policy: str) -> None:
        self.path = path
        self.policy = policy
        self.problem = ""
        self.distrusted = False
        self.unsynced = False
        self.unnamed = False
        self._disk = disk
        self._fd = disk.open_append(path)
        self._syncing = -1  # descriptor that another thread is syncing
        self._naming = False  # and it syncs the directory, too
        self._kept: list[bytes] = []
        self.size = disk.size(self._fd)
        self.base_size = self.size
        self._begun = self.size  # the disk was told to begin writing up to this offset

    @property
    def kept(self) -> list[bytes]:
        """The records that could not be written yet."""
        return list(self._kept)

    def append(self, records: list[bytes]) -> bool:
        """Write ``records``; return False if they are not where ``policy`` wants them."""
        if self.problem:
            self._kept += records
            return False
        return self._write(records)

    def retry(self) -> bool:
        """Retry what failed; return True if no problem is left."""
        if self.distrusted:
            return False
        if self.problem:
            kept, self._kept = self._kept, []
            self.problem = ""
            return self._write(kept)
        return True

    def _write(self, records: list[bytes]) -> bool:
        data = b"".join(records)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[self._disk.write(self._fd, rest) :]
        except OSError as failure:
            self._kept = [data, *self._kept]
            self._fail(failure)
            self._cut_back()
            return False
        self.size += len(data)
        self.unsynced = self.unsynced or len(data) > 0
        if self.policy == ALWAYS:
            return self.sync()
        return True

    def large_append(self, records: list[bytes]) -> LargeAppend:
        """Return an object that writes ``records`` in another thread. Call ``append_ended`` when it
        is done, and write nothing else before. There must be no ``problem``."""
        return LargeAppend(self._disk, self._fd, records, self.size, self.policy)

    def large_retry(self) -> LargeAppend:
        """Like ``large_append``, for the kept records. There is a ``problem``, but the file is not
        ``distrusted``."""
        kept, self._kept = self._kept, []
        return self.large_append(kept)

    def append_ended(self, large: LargeAppend) -> bool:
        """Called when the other thread is done; returns the same as ``append``."""
        if self.distrusted:
            self._kept = [*large.records, *self._kept]  # a sync failed meanwhile
            return False
        if not large.written:
            self._kept = [*large.records, *self._kept]
            self._fail(large.failure or OSError("not written"))
            self._cut_back()
            return False
        self.problem = ""
        self.size += large.size
        self._begun = self.size
        self.unsynced = self.unsynced or not large.synced
        if large.failure is not None:
            self.distrust(large.failure)
            return self.policy != ALWAYS
        return True

    def _cut_back(self) -> None:
        """Cut off what a failed write has left after the last complete record."""
        try:
            self._disk.truncate(self._fd, self.size)
        except OSError as failure:
            # Half a record stays in the file; nothing may be written after it.
            self.distrust(failure)

    def sync(self) -> bool:
        """Sync the file. Blocks; return False if it failed."""
        if not (self.unsynced or self.unnamed):
            return not self.distrusted
        try:
            self._disk.sync(self._fd)
            if self.unnamed:
                self._disk.sync_directory(self.path)
        except OSError as failure:
            self.distrust(failure)
            return False
        self.unsynced = False
        self.unnamed = False
        return True

    def sync_call(self) -> Callable[[], None]:
        """Return a function that syncs everything written so far, for another thread to call. It
        raises ``OSError``. Call ``sync_ended`` when it is done."""
        self.unsynced = False
        self._naming = self.unnamed
        fd = self._syncing = self._fd
        return partial(self._sync_all, fd, self._naming)

    def _sync_all(self, fd: int, directory: bool) -> None:
        self._disk.sync(fd)
        if directory:
            self._disk.sync_directory(self.path)

    def early_call(self) -> Callable[[], None] | None:
        """Return a function that makes the disk begin to write, to be used like ``sync_call``,
        except that its ``OSError`` can be ignored. None: there is too little."""
        start, end = self._begun & -_PAGE, self.size & -_PAGE
        if end - start < EARLY_BYTES:
            return None
        self._begun = end
        self._naming = False
        fd = self._syncing = self._fd
        return partial(self._disk.start_writing, fd, start, end)

    def sync_ended(self, failure: OSError | None) -> None:
        """Called when the other thread is done. A failure of a file since replaced does not
        matter."""
        fd, self._syncing = self._syncing, -1
        if fd != self._fd:
            self._disk.close(fd)
        elif failure is not None:
            self.distrust(failure)
        elif self._naming:
            self.unnamed = False

    def distrust(self, failure: OSError) -> None:
        """Write nothing more until the file is replaced, because a sync failed."""
        self.distrusted = True
        self._fail(failure)

    def _fail(self, failure: OSError) -> None:
        self.problem = failure.strerror or str(failure)

    def take_over(self, new: NewFile, soon: bool = False) -> None:
        """Continue with the file ``new``, which has everything that this node holds.

        If the directory cannot be synced, the file is distrusted: after a crash, the name could
        again stand for the old file.

        Args:
            soon: do not wait for the disk: the caller has just synced ``new``, and will soon sync
                this writer. Until then, a crash can bring the old file back, or cut off the end of
                the new one. Not for ``always``.

        Raises:
            OSError: it could not take the name; nothing has changed.
        """
        fd = new.take_name(not soon)
        old, self._fd = self._fd, fd
        self.size = self.base_size = new.size
        self.problem = ""
        self.distrusted = False
        self.unsynced = self.unnamed = soon
        self._begun = new.size
        self._kept.clear()
        if old != self._syncing:
            self._disk.close(old)
        if soon:
            return
        try:
            self._disk.sync_directory(self.path)
        except OSError as failure:
            self.distrust(failure)

    def close(self) -> bool:
        """Write and sync everything; return False if that failed."""
        good = self.retry() and self.sync()
        fd, self._fd = self._fd, -1
        if fd != self._syncing:
            self._disk.close(fd)
        return good
