"""The progress file of a running node: read at the start, kept while it runs, written again at the
stop.

It lies beside the append-only file, under the same name plus ``.progress`` (see
``protocol.progress`` for its format, ``node.core.jobs.progress`` for its contents). No reply waits
for it, and it is only there while it can be trusted: where it cannot be written it is removed,
since a start would otherwise take jobs that clients have for jobs that nobody has. So that a full
disk does not cost what it knows, it has a reserve like the append-only file, for one delivery of
each job.
"""

import os
import sys
from contextlib import suppress
from pathlib import Path

import trio

from disque_trio.aof.disk import Disk
from disque_trio.aof.room import Room
from disque_trio.aof.writer import NO_ROOM
from disque_trio.config import Config
from disque_trio.disk import sync_directory
from disque_trio.node.core.jobs.job import Job
from disque_trio.node.core.jobs.registry import SHARDS
from disque_trio.node.core.node import Node
from disque_trio.process.logs import Log
from disque_trio.protocol.progress import (
    MAGIC,
    ProgressError,
    ProgressReader,
    Run,
    pack_block,
    pack_blocks,
    pack_run,
    pack_stopped,
)

ENDING = ".progress"  # follows the name of the append-only file
SYNC_SECONDS = 1.0
RETRY_SECONDS = 10.0
STEP_SECONDS = 0.003  # between the steps of a rewrite, each of which takes a quarter of that
SMALL = 32 << 20  # bytes; a smaller file is not rewritten
RESERVE = 4 << 20  # bytes, besides what the jobs need; and what is small on a full disk
READ_BUFFER = 1 << 18  # bytes
JOBS_A_STEP = 1000  # in a rewrite beside clients
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_OPEN = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC


class ProgressFile:
    """Keeps the progress of the jobs of ``node`` in a file.

    Args:
        config: says whether there is a file, and where.

    Attributes:
        problem: why it cannot be written; empty: it can.
    """

    def __init__(self, node: Node, config: Config, log: Log) -> None:
        self._room = Room(Disk(), node.held, RESERVE)
        self._node = node
        self._config = config
        self._log = log
        self._started = False
        self._fd = -1
        self._size = 0
        self._base_size = 0
        self._new: _NewFile | None = None  # while the file is rewritten
        self.problem = ""
        self._synced = True
        self._stirred = trio.Event()
        node.progress.write = self._append

    @property
    def path(self) -> str:
        """Its path, relative to ``dir``, the working directory."""
        return self._config.appendfilename + ENDING

    @property
    def is_kept(self) -> bool:
        """Whether there is a file that can be written."""
        return self._fd >= 0 and not self._room.problem

    # ---- start ------------------------------------------------------------------------------

    def load(self, at_once: bool) -> None:
        """Read the file, if there is one that goes with the append-only file, which is loaded
        next. ``at_once``: see ``Recovery.begin``."""
        if not (self._config.requeue_at_start or at_once):
            return
        found = ProgressReader()
        try:
            with Path(self.path).open("rb", buffering=READ_BUFFER) as file:
                found.read(file)
            size = os.stat(self._config.appendfilename).st_size
        except FileNotFoundError:
            return
        except (OSError, ProgressError) as problem:
            self._not_used(str(problem))
            return
        run = found.run
        if run is None:
            self._not_used("it is empty")
            return
        if found.stopped_at >= 0 and found.stopped_at != size:
            self._not_used(f"it goes with a file of {found.stopped_at} bytes, not {size}")
            return
        if found.cut:
            self._log.warning("the end of the progress file was lost", bytes=found.cut)
        boot = _boot_id()
        alive = boot != b"" and run.boot == boot
        self._node.recovery.begin(found, found.stopped_at >= 0 or run.synced or alive, at_once)

    def _not_used(self, reason: str) -> None:
        self._log.warning(
            "the progress file cannot be used: jobs wait for their retry time",
            file=self.path,
            reason=reason,
        )

    def start(self) -> None:
        """Write the whole file, and keep it from now on, if the settings say so."""
        self._started = True
        if not self._config.appendonly:
            self.remove()
            return
        _give_back(self.path)  # the new one may need that space
        if self._begin_rewrite():
            while self._new is not None:
                self._step(sys.maxsize)

    def apply(self) -> None:
        """Keep the file, or stop doing so, as the settings say now."""
        if not self._started:
            return
        if not self._config.appendonly:
            self.remove()
        elif self._node.progress.recording:
            self._append(self._run())
        elif self._begin_rewrite():
            self._stirred.set()

    # ---- while the node runs ----------------------------------------------------------------

    def _run(self) -> bytes:
        """The block that says what process this is."""
        return pack_block([pack_run(Run(_boot_id(), self._config.appendfsync == "always"))])

    def _append(self, block: bytes) -> None:
        """Append ``block`` to the file, and to the one that will replace it."""
        try:
            if self._fd >= 0:
                _write(self._fd, block)
        except OSError as problem:
            self._give_up(problem)
            return
        try:
            if self._new is not None:
                self._new.append(block)
        except OSError as problem:
            self._give_up_new(problem)
            return
        size = self._size = self._size + len(block)
        if size > self._room.enough:
            self.find_room()
        if self._synced:
            self._synced = False
            self._stirred.set()
        small = RESERVE if self._room.problem else SMALL
        if size > small and size > 2 * self._base_size and self._new is None:
            self._begin_rewrite()

    def find_room(self) -> None:
        """Reserve space for the jobs that there are. Call it when there are more."""
        if self._fd >= 0:
            self._room.extend(self._fd, self._size)

    def _begin_rewrite(self) -> bool:
        """Begin a new file; what happens from now on goes there, too. Return whether that was
        possible."""
        try:
            self._new = _NewFile(self.path)
            self._new.append(MAGIC + self._run())
        except OSError as problem:
            self._give_up_new(problem)
            return False
        self._node.progress.recording = True
        return True

    def _step(self, count: int) -> None:
        """Write the progress of the next ``count`` jobs to the new file. After the last it takes
        the place of the old one."""
        new = self._new
        assert new is not None
        try:
            new.append_jobs(self._node, count)
            if not new.complete:
                return
            new.append_endings(self._node)
            fd = new.take_name()
        except OSError as problem:
            self._give_up_new(problem)
            return
        self._close()
        self._new = None
        self._fd = fd
        self._size = self._base_size = os.fstat(fd).st_size
        self._room.begin(fd, self._size)
        self.problem = ""

    def _give_up_new(self, problem: OSError) -> None:
        """Go on with the old file, until it has doubled again; give up if there is none."""
        if self._fd < 0:
            self._give_up(problem)
            return
        if self._new is not None:
            self._new.abandon()
            self._new = None
        self._base_size = self._size
        reason = problem.strerror or str(problem)
        self._log.warning("the progress file cannot be rewritten", reason=reason)

    def _give_up(self, problem: OSError) -> None:
        """Remove the file, which lacks something."""
        self.problem = problem.strerror or str(problem)
        self.remove()
        self._stirred.set()

    async def run(self) -> None:
        """Sync, rewrite and retry until cancelled."""
        while True:
            await self._stirred.wait()
            self._stirred = trio.Event()
            if self.problem:
                await trio.sleep(RETRY_SECONDS)
                if self._config.appendonly and self._new is None and self._fd < 0:
                    self._begin_rewrite()
            while self._new is not None:
                await trio.sleep(STEP_SECONDS)
                if self._new is not None:
                    self._step(JOBS_A_STEP)
            if self._fd >= 0 and not self._synced:
                await trio.sleep(SYNC_SECONDS)
                await self._sync()

    async def _sync(self) -> None:
        """Sync the file in a thread, unless the settings leave that to the system, and look for
        room."""
        self._synced = True
        if self._room.problem:
            self.find_room()
        if self._fd < 0 or self._config.appendfsync == "no":
            return
        fd = os.dup(self._fd)
        try:
            await trio.to_thread.run_sync(os.fdatasync, fd)
        except OSError as problem:
            self._give_up(problem)
        finally:
            os.close(fd)

    def info(self) -> dict[str, str | int | float]:
        """Fields of INFO persistence."""
        status = "err" if self.problem else "ok" if self._fd >= 0 else "off"
        return {
            "progress_file_status": status,
            "progress_file_size": self._size,
            "progress_file_pending": int(self._node.progress.due != 0),
        }

    # ---- stop -------------------------------------------------------------------------------

    def stop(self, restarting: bool) -> None:
        """Write down where all jobs are, after the last turn: the next start forgets nothing.
        ``restarting``: also if there is no append-only file otherwise. If the node stops before it
        has loaded all jobs, the file stays as it is, since it knows more than the node."""
        if not self._started:
            return
        if not (self._config.appendonly or restarting):
            self.remove()
            return
        _give_back(self.path)  # the new one may need that space
        try:
            try:
                self._write_last()
            except OSError as problem:
                if problem.errno not in NO_ROOM:
                    raise
                # Nothing more is written to the append-only file, so its reserve can go.
                _give_back(self._config.appendfilename)
                self._write_last()
        except OSError as problem:
            self._give_up(problem)
            return
        self.close()

    def _write_last(self) -> None:
        """Replace the file with one that says that the process stopped. Raises ``OSError``."""
        size = os.stat(self._config.appendfilename).st_size
        new = self._whole()
        try:
            new.append_endings(self._node)
            new.append(pack_block([pack_stopped(size)]))
            os.fsync(new.fd)
            os.close(new.take_name())
            sync_directory(Path(self.path).parent)
        except BaseException:
            new.abandon()
            raise

    def _whole(self) -> "_NewFile":
        """A new file with all jobs. Raises ``OSError``."""
        paging = self._node.paging
        paging.look_again()
        while True:
            before = paging.rebuilds
            new = _NewFile(self.path)
            try:
                new.append(MAGIC + self._run())
                new.append_jobs(self._node, sys.maxsize)
                if paging.rebuilds == before:
                    return new
            except BaseException:
                new.abandon()
                raise
            new.abandon()  # it lacks jobs whose page files turned out to be damaged

    def remove(self) -> None:
        """Stop keeping the file, and remove it, or at least what is in it."""
        if self._fd >= 0:
            with suppress(OSError):
                os.ftruncate(self._fd, 0)
        self.close()
        with suppress(OSError):
            Path(self.path).unlink(missing_ok=True)

    def close(self) -> None:
        """Stop keeping the file."""
        self._node.progress.recording = False
        if self._new is not None:
            self._new.abandon()
            self._new = None
        self._close()
        self._size = 0

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class _NewFile:
    """A file that will replace that at ``path``.

    Attributes:
        fd: its descriptor.
        shard: how many shards of the jobs it has, or has begun.

    Raises:
        OSError: from all methods but ``abandon``.
    """

    def __init__(self, path: str) -> None:
        self.shard = 0
        self._jobs: list[Job] = []  # yet to come, of the last shard; they may have ended by then
        self._segments: list[int] = []  # yet to come, the next one last
        self._place = 0  # in that one
        self._path = path
        self._temporary = f"{path}.tmp"
        self.fd = os.open(self._temporary, _OPEN, 0o600)

    def append(self, data: bytes) -> None:
        """Append ``data``."""
        _write(self.fd, data)

    def append_jobs(self, node: Node, count: int) -> None:
        """Append the records of the next ``count`` jobs: those of the registry, then those on
        disk."""
        while count > 0 and not self.complete:
            if self._segments:
                jobs, self._place = node.aof_codec.jobs_in(self._segments[-1], self._place, count)
                if not self._place:
                    self._segments.pop()
            else:
                jobs = self._next_jobs(node, count)
            for block in pack_blocks(node.progress.records_of(jobs)):
                self.append(block)
            count -= len(jobs)

    def _next_jobs(self, node: Node, count: int) -> list[Job]:
        """Up to ``count`` jobs of the registry that come next."""
        if not self._jobs and self.shard < SHARDS:
            self._jobs = list(node.store.jobs.shards[self.shard].values())
            self.shard += 1
        jobs = self._jobs[-count:]
        del self._jobs[-count:]
        if self.shard == SHARDS and not self._jobs:
            # Last, as jobs went to disk meanwhile. Those that come back are noted.
            self._segments = node.aof_codec.moved_segments()
        return jobs

    @property
    def complete(self) -> bool:
        """Whether it has all jobs."""
        return self.shard == SHARDS and not (self._jobs or self._segments)

    def append_endings(self, node: Node) -> None:
        """Append how jobs have ended."""
        for block in pack_blocks(node.store.outcomes.records()):
            self.append(block)

    def take_name(self) -> int:
        """Take the name; return the descriptor, which is the caller's now."""
        os.replace(self._temporary, self._path)
        fd, self.fd = self.fd, -1
        return fd

    def abandon(self) -> None:
        """Close and remove it, unless it took the name."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
            with suppress(OSError):
                Path(self._temporary).unlink(missing_ok=True)


def _give_back(path: str) -> None:
    """Let other files have the space that is reserved beyond the end of the file at ``path``."""
    with suppress(OSError):
        os.truncate(path, os.stat(path).st_size)


def _write(fd: int, data: bytes) -> None:
    """Write all of ``data``. Raises ``OSError``."""
    written = os.write(fd, data)
    while written < len(data):
        written += os.write(fd, memoryview(data)[written:])


def _boot_id() -> bytes:
    """A name of this start of the machine; empty: there is none."""
    try:
        return _BOOT_ID.read_bytes().strip()
    except OSError:
        return b""
