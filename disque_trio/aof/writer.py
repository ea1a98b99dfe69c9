"""Writes records to the append-only file.

Rule 1: the records of a turn are appended before its replies are sent; with ``appendfsync always``
        they are synced as well.
Rule 2: if that fails, the caller is told, and confirms nothing that the file has to know until
        ``retry`` succeeds. What could not be written is kept and goes first.
Rule 3: a failed write may have left half a record: the file is cut back to the last complete one.
Rule 4: the last space on the disk is for what the node writes about jobs that it has (``room``):
        the caller is told to take no more.
Rule 5: after a failed sync nobody knows what is on disk, and another sync may report success
        although data is lost. So the file is not written to again until a dump from memory has
        replaced it (``distrusted``). The same applies after a failed write, unless it only says
        that there is no room: other errors may be about what was written before.

Large amounts are written by another thread (``LargeAppend``), since the disk may take seconds.
Nothing else is written to the file until that has ended, so the rules are the same.
"""

import errno
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from disque_trio.aof.disk import Disk
from disque_trio.aof.dump import NewFile, pieces
from disque_trio.aof.room import Room
from disque_trio.aof.sums_file import STEP, SumsFile

ALWAYS = "always"
EVERYSEC = "everysec"
NO = "no"
# A sync keeps writers waiting for as long as it takes: 16 ms with 25 MB/s. So writing begins
# earlier, and only in whole pages: the last one is still written to.
EARLY_BYTES = 64 << 10
_PAGE = 4096
MOST_KEPT: Final = 64 << 20  # bytes of records that wait for the file
_AT_ONCE: Final = 1 << 20  # bytes of them to write at once
# The file system, the quota or the file may not grow: what is in the file is as it was.
NO_ROOM: Final = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
# Records that another thread should write: a large one, or very many; and from which size on it
# should sync them too, since a later sync of so much would keep the writes of other turns waiting.
LARGE = 1 << 20  # bytes
MANY = 16 << 20
SYNC_AT_ONCE = 8 << 20
SETTLING_SECONDS = 60.0  # until the system has written something by itself, usually


def is_large(records: list[bytes]) -> bool:
    """Whether another thread should write ``records``."""
    size = sum(map(len, records))
    return size > LARGE and (size > MANY or max(map(len, records)) > LARGE)


def _groups(records: list[bytes]) -> Iterator[tuple[int, list[bytes]]]:
    """``records`` in groups to be written at once, each with the index of what comes after it."""
    first = size = 0
    for at, record in enumerate(records):
        size += len(record)
        if size >= _AT_ONCE or at == len(records) - 1:
            yield at + 1, records[first : at + 1]
            first = at + 1
            size = 0


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
        held: returns the number of jobs, or events, in the file.
        covered: its checksums cover the bytes before this offset; -1: they stay as they are, since
            the file is damaged and will be replaced.

    Attributes:
        size: bytes in the file.
        base_size: its size after the last rewrite, or at the start.
        problem: why nothing can be written; empty: it can.
        kept_size: bytes of the records that could not be written yet.
        distrusted: a sync failed: only a new file, with everything that is in memory, helps.
        unsynced: something was written and not synced.
        unnamed: the file has taken over the name, and the directory is not synced yet.
        room: the space that it has on the disk.
        sums: its checksums.
        settled: the bytes before this offset are on disk.

    Raises:
        OSError: the file cannot be opened.
    """

    def __init__(
        self,
        disk: Disk,
        path: str,
        policy: str,
        held: Callable[[], int] = lambda: 0,
        covered: int = 0,
    ) -> None:
        self.path = path
        self.policy = policy
        self.problem = ""
        self.distrusted = False
        self.unnamed = False
        self._disk = disk
        self._fd = disk.open_append(path)
        self._syncing = -1  # descriptor that another thread is syncing
        self._held_sums: SumsFile | None = None  # another thread is at work on them
        self._naming = False  # and it syncs the directory, too
        self._kept: list[bytes] = []
        self.kept_size = 0
        self.size = disk.size(self._fd)
        self.base_size = self.size
        self.sums = SumsFile(disk, path, self._fd, max(covered, 0))
        self._covers = covered >= 0
        self.settled = self.sums.covered
        self._settling = (0.0, 0)  # how large the file was when
        self._to_settle = 0
        self.unsynced = self.settled < self.size  # a process that died may have left it so
        self._begun = self.size  # the disk was told to begin writing up to this offset
        self.room = Room(disk, held)
        self.room.begin(self._fd, self.size)

    @property
    def kept(self) -> list[bytes]:
        """The records that could not be written yet; none if a new file will have to replace
        this one."""
        return list(self._kept)

    @property
    def overfull(self) -> bool:
        """Whether so much could not be written yet that no more may come."""
        return self.kept_size >= MOST_KEPT

    def _keep(self, records: list[bytes]) -> None:
        """Keep ``records``, which come after those that are kept, until they can be written."""
        if not self.distrusted:
            self._kept += records
            self.kept_size += sum(map(len, records))

    def _take_kept(self) -> list[bytes]:
        """Return the kept records, which are to be written now."""
        kept, self._kept = self._kept, []
        self.kept_size = 0
        return kept

    def append(self, records: list[bytes]) -> bool:
        """Write ``records``; return False if they are not where ``policy`` wants them."""
        if self.problem:
            self._keep(records)
            return False
        return self._write(records) and (self.policy != ALWAYS or self.sync())

    def retry(self) -> bool:
        """Retry what failed; return True if no problem is left."""
        if self.distrusted:
            return False
        if self.problem:
            kept = self._take_kept()
            self.problem = ""
            for at, piece in _groups(kept):
                if not self._write(piece):
                    self._keep(kept[at:])
                    return False
            return self.policy != ALWAYS or self.sync()
        return True

    def find_room(self, more: int = 0) -> None:
        """Reserve space for ``more`` bytes, and for what may have to follow."""
        self.room.extend(self._fd, self.size + more)

    def _write(self, records: list[bytes]) -> bool:
        """Write ``records``, all of them or none; they are kept if that fails."""
        data = b"".join(records)
        if self.size + len(data) > self.room.enough:
            self.find_room(len(data))
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[self._disk.write(self._fd, rest) :]
        except OSError as failure:
            self._keep([data])
            self._write_failed(failure)
            return False
        self.size += len(data)
        self.unsynced = self.unsynced or len(data) > 0
        return True

    def large_append(self, records: list[bytes]) -> LargeAppend:
        """Return an object that writes ``records`` in another thread. Call ``append_ended`` when it
        is done, and write nothing else before. There must be no ``problem``."""
        large = LargeAppend(self._disk, self._fd, records, self.size, self.policy)
        if self.size + large.size > self.room.enough:
            self.find_room(large.size)
        return large

    def large_retry(self) -> LargeAppend:
        """Like ``large_append``, for the kept records. There is a ``problem``, but the file is not
        ``distrusted``."""
        return self.large_append(self._take_kept())

    def append_ended(self, large: LargeAppend) -> bool:
        """Called when the other thread is done; returns the same as ``append``."""
        if self.distrusted:
            return False  # a sync failed meanwhile
        if not large.written:
            self._keep([*large.records, *self._take_kept()])
            self._write_failed(large.failure or OSError("not written"))
            return False
        self.problem = ""
        self.size += large.size
        self._begun = self.size
        self.unsynced = self.unsynced or not large.synced
        if large.synced:
            self.settled = self.size
        if large.failure is not None:
            self.distrust(large.failure)
            return self.policy != ALWAYS
        return True

    def _write_failed(self, failure: OSError) -> None:
        """Note the failure, and cut off what the write has left after the last complete record."""
        self._fail(failure)
        try:
            self._disk.truncate(self._fd, self.size)
        except OSError as problem:
            # Half a record stays in the file; nothing may be written after it.
            self.distrust(problem)
            return
        if failure.errno in NO_ROOM:
            self.room.cut(self._fd, self.size)
        else:
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
        self.settled = self.size
        self.unsynced = False
        self.unnamed = False
        return True

    def sync_call(self) -> Callable[[], None]:
        """Return a function that syncs everything written so far, for another thread to call. It
        raises ``OSError``. Call ``sync_ended`` when it is done."""
        self.unsynced = False
        self._to_settle = self.size
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
        self._to_settle = 0
        fd = self._syncing = self._fd
        return partial(self._disk.start_writing, fd, start, end)

    @property
    def uncovered(self) -> bool:
        """Whether checksums are missing, now or in a while."""
        return self._covers and not self.distrusted and self.sums.covered < self.size

    def cover_call(self, now: float) -> Callable[[], None] | None:
        """Return a function that adds the checksums of what is on disk, to be used like
        ``sync_call``, except that its ``OSError`` says that there are none yet. None: there is
        nothing to do. ``now``: Trio's time."""
        if self.policy == NO and now - self._settling[0] >= SETTLING_SECONDS:
            self.settled = max(self.settled, self._settling[1])
            self._settling = (now, self.size)
        if not self.uncovered or self.sums.covered >= self.settled:
            return None
        upto = self.sums.covered + STEP
        return self._hold_sums(partial(self.sums.cover, min(upto, self.settled)))

    def compare_call(self, upto: int) -> Callable[[], None] | None:
        """Return a function that compares the file with its checksums up to the offset ``upto``, to
        be used like ``cover_call``."""
        if not self._covers or self.distrusted or self.sums.compared >= upto:
            return None
        return self._hold_sums(partial(self.sums.compare, upto))

    def _hold_sums(self, call: Callable[[], None]) -> Callable[[], None]:
        self.sums.hold()
        self._held_sums = self.sums
        self._naming = False
        self._to_settle = 0
        self._syncing = self._fd
        return call

    def sync_ended(self, failure: OSError | None) -> None:
        """Called when the other thread is done. A failure of a file since replaced does not
        matter."""
        fd, self._syncing = self._syncing, -1
        if self._held_sums is not None:
            self._held_sums.release()
            self._held_sums = None
        if fd != self._fd:
            self._disk.close(fd)
        elif failure is not None:
            self.distrust(failure)
        else:
            self.settled = max(self.settled, self._to_settle)
            if self._naming:
                self.unnamed = False

    def distrust(self, failure: OSError) -> None:
        """Write nothing more until the file is replaced, because a sync failed."""
        self.distrusted = True
        self._take_kept()  # the new file is made from memory
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
        self.sums.close()
        self.sums = SumsFile(self._disk, self.path, fd)
        self._covers = True
        self.settled = 0 if soon else new.size
        self._settling = (0.0, 0)
        self.size = self.base_size = new.size
        self.problem = ""
        self.distrusted = False
        self.unsynced = self.unnamed = soon
        self._begun = new.size
        self._take_kept()
        if old != self._syncing:
            self._disk.close(old)
        self.room.begin(fd, self.size)
        if soon:
            return
        try:
            self._disk.sync_directory(self.path)
        except OSError as failure:
            self.distrust(failure)

    def close(self, for_good: bool = False) -> bool:
        """Write and sync everything; return False if that failed. ``for_good``: nobody will append
        to the file, so others may have the space that was reserved, and the process goes on, so
        that there is no time for many checksums."""
        good = self.retry() and self.sync()
        few = not for_good or self.size - self.sums.covered <= STEP
        if good and few and self.uncovered and self._held_sums is None:
            try:
                self.sums.cover(self.size)
            except OSError:
                pass  # the next start adds them
        self.sums.close()
        fd, self._fd = self._fd, -1
        if for_good and not self.distrusted:
            try:
                self._disk.truncate(fd, self.size)
            except OSError:
                pass  # it stays reserved
        if fd != self._syncing:
            self._disk.close(fd)
        return good
