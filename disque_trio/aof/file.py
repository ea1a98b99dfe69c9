"""The append-only file of a running process: its name, lock, writer, replacement and errors.

``persistence``, ``rewriting`` and ``loading`` share it.
"""

import fcntl
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import trio

from disque_trio.aof.dataset import Dataset
from disque_trio.aof.disk import Disk
from disque_trio.aof.dump import TEMPORARY, NewFile
from disque_trio.aof.room import nobody
from disque_trio.aof.writer import AofWriter
from disque_trio.process.logs import Log


class FileSettings(Protocol):
    """The settings that concern the file."""

    appendonly: bool
    appendfilename: str
    appendfsync: str
    aof_load_truncated: bool
    auto_aof_rewrite_percentage: int
    auto_aof_rewrite_min_size: int
    aof_scrub_hours: int


class AofFile:
    """The append-only file of ``dataset``, as ``config`` sets it up.

    Args:
        allowed: whether there may be a file at all.

    Attributes:
        writer: writes to the file; None: the file is off, or not open yet.
        new: the file that a rewrite is making.
        known: what the file contains is in memory, or was written from it.
        switch_problem: why the file cannot be switched on, or empty.
        failed_at: when a write last failed, or room was looked for, in Trio's time.
        storing: bytes that a thread is writing.
        in_group: a group of commands is run in slices: its records are not complete.
        covered: for the writer, once the file is opened: see ``AofWriter``.
        damaged: the file is not as it was written, and has to be made again from memory.
        damaged_places: how often that was found.
        lost_records: records that were left out for that reason.
        on_more_room: called when the file has got more room on the disk.
    """

    def __init__(
        self, dataset: Dataset, config: FileSettings, log: Log, disk: Disk, allowed: bool
    ) -> None:
        self.dataset = dataset
        self.config = config
        self.log = log
        self.disk = disk
        self.writer: AofWriter | None = None
        self.new: NewFile | None = None
        self.known = False
        self.switch_problem = ""
        self.failed_at = 0.0
        self.storing = 0
        self.in_group = False
        self.covered = 0
        self.damaged = False
        self.damaged_places = 0
        self.lost_records = 0
        self.on_more_room: Callable[[], None] = nobody
        self._allowed = allowed
        self._stored = trio.Event()  # that thread, or the group, has ended
        self._lock_fd = -1

    @property
    def path(self) -> str:
        """The path of the file, relative to ``dir``, the working directory."""
        return self.config.appendfilename

    @property
    def wanted(self) -> bool:
        """Whether there is to be a file."""
        return self._allowed and self.config.appendonly

    # ---- the file itself --------------------------------------------------------------------

    def lock(self) -> None:
        """Lock the file against other processes. Raises ``OSError`` if one has it."""
        if self._lock_fd < 0:
            fd = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as failure:
                os.close(fd)
                raise OSError(failure.errno, f"another process has {self.path}") from failure
            self._lock_fd = fd

    def unlock(self) -> None:
        """Release the lock."""
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1

    def open(self) -> None:
        """Begin to write to the file. Raises ``OSError``."""
        self.lock()
        self._remove_leftovers()
        self.writer = self.make_writer(self.covered)
        self.disk.sync_directory(self.path)
        self.dataset.journaling = True
        self.tell_trouble()

    def make_writer(self, covered: int = 0) -> AofWriter:
        """Return a writer that appends to the file, of which the checksums say what is before
        ``covered``. Raises ``OSError``."""
        policy = self.config.appendfsync
        writer = AofWriter(self.disk, self.path, policy, self.dataset.held, covered)
        writer.room.on_more = lambda: self.on_more_room()
        return writer

    def _remove_leftovers(self) -> None:
        """Remove unfinished files of rewrites whose process died."""
        path = Path(self.path)
        leftover = re.compile(re.escape(path.name + TEMPORARY) + "[0-9]+-[0-9]+")
        for other in path.parent.iterdir():
            if leftover.fullmatch(other.name):
                self.disk.remove(str(other))

    def set_aside(self) -> None:
        """Rename the loaded file: it is not written to, so it is soon outdated and must not be
        loaded again. Raises ``OSError``."""
        if os.path.exists(self.path):
            self.disk.replace(self.path, self.path + ".loaded")

    def keep_unknown(self) -> None:
        """Rename a file with jobs that this process has never loaded, instead of replacing it.
        Raises ``OSError``."""
        path = Path(self.path)
        if not self.known and path.is_file() and path.stat().st_size:
            self.disk.replace(self.path, f"{self.path}.old")

    # ---- trouble ----------------------------------------------------------------------------

    @property
    def problem(self) -> str:
        """Why the file cannot be written, or switched on; empty: it can."""
        return self.writer.problem if self.writer is not None else self.switch_problem

    @property
    def full(self) -> str:
        """Why only the reserve of the disk is left for the file; empty: there is more."""
        return self.writer.room.problem if self.writer is not None else ""

    def tell_trouble(self) -> None:
        """Refuse new jobs while there is a problem or the disk is full, or everything that the file
        has to know if too much waits for it; accept them again afterwards."""
        writer = self.writer
        dataset = self.dataset
        problem = self.problem
        full = self.full
        lagging = False
        if problem and dataset.may_lag and not (writer is not None and writer.overfull):
            # Without a writer the file is off, and lacks nothing.
            lagging = writer is not None
            full = problem
            problem = ""
        trouble = (problem, problem or full, lagging)
        if trouble == (dataset.write_problem, dataset.add_problem, dataset.lagging):
            return
        if problem or full:
            self.failed_at = trio.current_time()
        dataset.set_trouble(dataset.loading, problem, full, lagging)

    # ---- a thread that writes ---------------------------------------------------------------

    def store_begins(self, size: int) -> None:
        """Called when a thread begins to write ``size`` bytes."""
        self.storing = size

    def store_ends(self) -> None:
        """Called when the thread has ended and its result is known, or the group is over."""
        self._stored.set()
        self._stored = trio.Event()

    async def until_stored(self) -> None:
        """Wait until no thread writes records, and no group makes them."""
        while self.storing or self.in_group:
            await self._stored.wait()
