"""Closes the files of the event log in a thread: syncs, compresses and renames them, and removes
old ones.

A file gets its final name when all of it is on disk. Until then, the process that owns it holds its
lock. So after a crash at any point, the file still has the name of an open one, and the next
process takes care of it.
"""

import gzip
import os
import threading
from collections.abc import Callable
from pathlib import Path
from queue import Queue
from typing import NamedTuple

from disque_trio.disk import sync_directory
from disque_trio.eventlog.segments import OPEN, PACKED, Naming, Segment

_LEVEL = 6  # of gzip; a tenth of the size, at about 60 MB/s
_CHUNK = 1 << 20
_FILE_MODE = 0o640
_MOST_WAITING = 8  # files; beyond this, a writer faster than the disk has to wait


class Retention(NamedTuple):
    """The policy for closed files.

    Attributes:
        compress: whether to compress complete files.
        keep: remove complete files older than this (s); 0: never.
        most: remove the oldest files while there are more bytes than this; 0: never.
    """

    compress: bool = False
    keep: int = 0
    most: int = 0


class Closer:
    """Closes files one by one while others are written.

    Args:
        clock: returns s since the epoch.
        trouble: called in the thread with the reason if a file could not be closed, or old ones not
            removed. The file then keeps its name, for the next process.
    """

    def __init__(
        self,
        directory: Path,
        naming: Naming,
        policy: Retention,
        clock: Callable[[], float],
        trouble: Callable[[str], None],
    ) -> None:
        self._directory = directory
        self._naming = naming
        self._policy = policy
        self._clock = clock
        self._trouble = trouble
        self._waiting: Queue[Segment | None] = Queue(_MOST_WAITING)
        self._thread = threading.Thread(target=self._run, name="closer")
        self._thread.start()

    def close(self, segment: Segment) -> None:
        """Close ``segment`` soon; nobody else may use it. Waits if there are many."""
        self._waiting.put(segment)

    def finish(self) -> None:
        """Wait until all files are closed, and end the thread."""
        self._waiting.put(None)
        self._thread.join()

    def _run(self) -> None:
        self._prune()
        while (segment := self._waiting.get()) is not None:
            try:
                close_segment(segment, self._policy.compress)
            except OSError as failure:
                self._trouble(f"{segment.path}: {failure.strerror or failure}")
            self._prune()

    def _prune(self) -> None:
        try:
            prune(self._directory, self._naming, self._policy, self._clock())
        except OSError as failure:
            self._trouble(f"{self._directory}: {failure.strerror or failure}")


def close_segment(segment: Segment, compress: bool) -> None:
    """Write all of ``segment`` to disk, then give it its final name and release the lock. A segment
    without lines is removed. Raises OSError; the file is then given up."""
    path = segment.path
    final = path.with_name(segment.name)
    packed = path.with_name(segment.name + PACKED)
    temporary = path.with_name(segment.name + PACKED + OPEN)
    try:
        if segment.size == 0 or packed.exists():
            # If it exists, the previous process died after the last step but one.
            path.unlink()
            return
        os.ftruncate(segment.fd, segment.size)
        if compress and _compress(segment, temporary):
            temporary.rename(packed)
            sync_directory(path.parent)
            path.unlink()
        else:
            temporary.unlink(missing_ok=True)
            os.fsync(segment.fd)
            path.rename(final)
            sync_directory(path.parent)
    finally:
        os.close(segment.fd)


def _compress(segment: Segment, path: Path) -> bool:
    """Compress the segment. Returns False if there is no room; the file is complete without it."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _FILE_MODE)
        with (
            os.fdopen(fd, "wb") as raw,
            gzip.GzipFile(segment.name, "wb", _LEVEL, raw, segment.started // 1000) as out,
        ):
            offset = 0
            while data := os.pread(segment.fd, _CHUNK, offset):
                out.write(data)
                offset += len(data)
            out.close()  # writes the end, which must be synced, too
            raw.flush()
            os.fsync(fd)
    except OSError:
        return False
    return True


def prune(directory: Path, naming: Naming, policy: Retention, now: float) -> None:
    """Remove the node's complete files that ``policy`` no longer keeps at ``now`` (s)."""
    if not (policy.keep or policy.most) or not directory.is_dir():
        return
    names = sorted(entry.name for entry in directory.iterdir())
    total = 0
    for name in reversed(names):  # the newest first
        if not naming.closed.fullmatch(name):
            continue
        path = directory / name
        try:
            status = path.stat()
        except FileNotFoundError:
            continue
        total += status.st_size
        too_old = policy.keep > 0 and now - status.st_mtime > policy.keep
        if too_old or (policy.most > 0 and total > policy.most):
            path.unlink(missing_ok=True)
