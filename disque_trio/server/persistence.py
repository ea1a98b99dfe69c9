"""The append-only file of a running node: loading at the start, a write each turn, syncing,
rewriting, and what happens when the disk fails.

The engine calls ``turn`` before replies leave. Everything that takes long (syncing once a second,
the last sync of a rewrite) happens in a thread. A rewrite is done by a process that compacts the
old file; where there is no old file to be trusted, it is a dump from memory, in small steps between
turns.
"""

import errno
import fcntl
import os
import re
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Protocol

import trio

from disque_trio.aof.disk import Disk
from disque_trio.aof.dump import TEMPORARY, Dump, NewFile, dump_all
from disque_trio.aof.format import AofError
from disque_trio.aof.loader import Loader
from disque_trio.aof.survey import Survey
from disque_trio.aof.writer import ALWAYS, EVERYSEC, AofWriter
from disque_trio.commands.info import Fields
from disque_trio.core.machine import Machine
from disque_trio.server.compaction import Compaction
from disque_trio.server.logs import Log
from disque_trio.server.systemd import Notifier

TICK = 0.1  # s between looks at what has to be done
SYNC_SECONDS = 1.0
SLOW_SYNC_SECONDS = 2.0
RETRY_SECONDS = 1.0
MAX_BACKOFF_SECONDS = 60.0
JOBS_A_STEP = 200
LAST_COPY = 1 << 20  # bytes that are copied between two turns, at the end of a compaction
FRESH_SECONDS = 0.5  # how old what a new file has not on the disk may be when it takes its name
MAX_ROUNDS = 50  # of copying what came meanwhile; a disk that is slower than the node never ends
EXTEND_MICROSECONDS = 60_000_000


class LoadError(Exception):
    """The file cannot be loaded; the text says where, why and what to do."""


class FileSettings(Protocol):
    """The settings that matter here."""

    @property
    def appendonly(self) -> bool: ...
    @property
    def appendfilename(self) -> str: ...
    @property
    def appendfsync(self) -> str: ...
    @property
    def aof_load_truncated(self) -> bool: ...
    @property
    def auto_aof_rewrite_percentage(self) -> int: ...
    @property
    def auto_aof_rewrite_min_size(self) -> int: ...


class Persistence:
    """The append-only file of ``node``, as ``config`` wants it.

    Args:
        survey: what knows the records of the file. checker: the command that looks at it.

    Attributes:
        loader: the loading that is under way, or None.
    """

    def __init__(
        self,
        node: Machine,
        config: FileSettings,
        log: Log,
        disk: Disk | None = None,
        survey: type[Survey] = Survey,
        checker: str = "disque-check-aof",
    ) -> None:
        self.loader: Loader | None = None
        self._node = node
        self._config = config
        self._log = log
        self._disk = disk or Disk()
        self._survey = survey
        self._checker = checker
        self._writer: AofWriter | None = None
        self._new: NewFile | None = None  # that a rewrite is making
        self._rewriting = False  # its task is there, perhaps to find out that it was given up
        self._rewriting_on = False  # and began when the file was to be on
        self._rewrite_wanted = False
        self._rewrite_ok = True
        self._rewrite_not_before = 0.0
        self._rewrite_backoff = RETRY_SECONDS
        self._rewrite_started = 0.0
        self._rewrite_seconds = -1
        self._syncing = False
        self._slow_syncs = 0
        self._synced_at = 0.0
        self._failed_at = 0.0
        self._loading_since = 0.0
        self._known = False  # what the file has is in memory, or was written from it
        self._lock_fd = -1
        self._switch_problem = ""  # why the file cannot be switched on

    @property
    def path(self) -> str:
        """The file; relative to ``dir``, where the process is."""
        return self._config.appendfilename

    def _lock(self) -> None:
        """Keep other nodes off the file. Raises OSError: one has it."""
        if self._lock_fd < 0:
            fd = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as failure:
                os.close(fd)
                raise OSError(failure.errno, f"another process has {self.path}") from failure
            self._lock_fd = fd

    # ---- the start --------------------------------------------------------------------------

    async def load(self, queue_jobs: bool, notifier: Notifier, stopped: Callable[[], bool]) -> int:
        """Load the file, unless ``stopped`` meanwhile. Returns how many jobs the node has then.

        Raises:
            LoadError: the file is damaged, or ends inside of a record and aof-load-truncated is no.
            OSError: it cannot be read or written.
        """
        loader = self.loader = Loader(self.path, self._node, queue_jobs)
        self._loading_since = time.time()
        self._lock()
        self._node.set_trouble(True, "")
        told = 0
        try:
            for _ in loader.steps():
                await trio.lowlevel.checkpoint()
                if stopped():
                    # Half of the jobs are no node: it goes on being loaded until its end.
                    return self._node.held()
                percent = 100 * loader.loaded // loader.total
                if percent > told:
                    told = percent
                    notifier.status(f"Loading: {percent}%, {loader.jobs} {self._node.holds}")
                    notifier.extend(EXTEND_MICROSECONDS)
                    if percent % 10 == 0:
                        self._log.notice("loading", percent=percent, jobs=loader.jobs)
        except AofError as damage:
            self._judge(damage)
        self.loader = None
        self._known = True
        self._node.set_trouble(False, "")
        return self._node.held()

    def _judge(self, damage: AofError) -> None:
        """Cut the end off that a crash left, or refuse to go on."""
        size = os.stat(self.path).st_size  # noqa: PTH116
        lost = size - damage.offset
        with Path(self.path).open("rb", buffering=0) as file:
            # A damaged length looks like the end of the file, but good records follow.
            survey = self._survey(file)
            more = (
                not survey.begins_whole(damage.offset)
                and survey.find_record(damage.offset + 1) < size
            )
        if more or not damage.truncated:
            raise LoadError(
                f"{self.path} is damaged at offset {damage.offset}: {damage.reason}. "
                f"{lost} bytes follow. Look at it with: {self._checker} {self.path}"
            )
        if not self._config.aof_load_truncated:
            raise LoadError(
                f"{self.path} ends inside of a record, at offset {damage.offset}, and "
                f"aof-load-truncated is no. Cut the end off with: "
                f"{self._checker} --fix {self.path}"
            )
        self._log.warning("the file ends inside of a record, cut off", bytes=lost)
        fd = self._disk.open_append(self.path)
        try:
            self._disk.truncate(fd, damage.offset)
            self._disk.sync(fd)
        finally:
            self._disk.close(fd)

    def set_aside(self) -> None:
        """The file was loaded and is not written to: it gets old at once and must not be loaded
        again. Raises OSError."""
        if os.path.exists(self.path):  # noqa: PTH110
            self._disk.replace(self.path, self.path + ".loaded")

    def open(self) -> None:
        """Write to the file from now on. Raises OSError."""
        self._lock()
        self._remove_leftovers()
        self._writer = AofWriter(self._disk, self.path, self._config.appendfsync)
        self._disk.sync_directory(self.path)
        self._node.journaling = True

    def _remove_leftovers(self) -> None:
        """Remove what rewrites left that ended with their node."""
        path = Path(self.path)
        leftover = re.compile(re.escape(path.name + TEMPORARY) + "[0-9]+-[0-9]+")
        for other in path.parent.iterdir():
            if leftover.fullmatch(other.name):
                self._disk.remove(str(other))

    # ---- turns ------------------------------------------------------------------------------

    def turn(self) -> bool:
        """Put what the node noted into the file. False when it is not there: then nothing of the
        turn may be confirmed."""
        node = self._node
        if node.flushed and not self._start_over():
            return False
        records = node.journal
        if not records:
            return True
        node.journal = []
        if isinstance(self._new, Dump):
            try:
                self._new.append(records)
            except OSError as failure:
                self._give_up(failure)
        if self._writer is None or self._writer.append(records):
            return True
        self._tell_trouble()
        return False

    def _start_over(self) -> bool:
        """The node forgot everything: the file has nothing any more, without a record a job."""
        self._node.flushed = False
        self._drop_new()
        if self._writer is not None:
            try:
                self._adopt(dump_all(self._disk, self.path, self._node))
            except OSError as failure:
                self._writer.distrust(failure)
                self._tell_trouble()
                return False
        return True

    def _tell_trouble(self) -> None:
        """Let the node refuse writes while, and only while, there is a problem."""
        writer = self._writer
        problem = writer.problem if writer is not None else self._switch_problem
        if problem != self._node.write_problem:
            if problem:
                self._failed_at = trio.current_time()
                self._log.warning("the append-only file cannot be written", reason=problem)
            else:
                self._log.notice("the append-only file can be written again")
            self._node.set_trouble(self._node.loading, problem)

    # ---- between turns ----------------------------------------------------------------------

    async def run(self) -> None:
        """Sync, retry and rewrite until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                await trio.sleep(TICK)
                now = trio.current_time()
                writer = self._writer
                if writer is not None:
                    if writer.problem and now - self._failed_at >= RETRY_SECONDS:
                        self._failed_at = now
                        writer.retry()
                        self._tell_trouble()
                    everysec = self._config.appendfsync == EVERYSEC
                    if (writer.unnamed and not writer.distrusted) or (
                        # With "always" only what an earlier setting left behind.
                        writer.unsynced
                        and self._config.appendfsync != "no"
                        and now - self._synced_at >= SYNC_SECONDS
                    ):
                        await self._sync(writer)
                    elif everysec:
                        await self._begin_early(writer)
                if (
                    not self._rewriting
                    and now >= self._rewrite_not_before
                    and self._should_rewrite()
                ):
                    self._rewriting = True
                    nursery.start_soon(self._rewrite)

    async def _sync(self, writer: AofWriter) -> None:
        self._synced_at = trio.current_time()
        self._syncing = True
        failure: OSError | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._tell_slow_sync)
            try:
                await trio.to_thread.run_sync(writer.sync_call())
            except OSError as problem:
                failure = problem
            finally:
                self._syncing = False
                writer.sync_ended(failure)
            nursery.cancel_scope.cancel()
        self._tell_trouble()

    async def _begin_early(self, writer: AofWriter) -> None:
        """Leave less to the next sync: turns that write may have to wait for it."""
        begin = writer.early_call()
        if begin is not None:
            try:
                await trio.to_thread.run_sync(begin)
            except OSError:
                pass  # the sync will tell
            finally:
                writer.sync_ended(None)

    async def _tell_slow_sync(self) -> None:
        """Cancelled when the sync is over; if that takes long, the operator has to know."""
        await trio.sleep(SLOW_SYNC_SECONDS)
        self._slow_syncs += 1
        self._log.warning("the disk is slow, the file is behind", seconds=SLOW_SYNC_SECONDS)

    def _should_rewrite(self) -> bool:
        config = self._config
        writer = self._writer
        if self._rewrite_wanted or (config.appendonly and writer is None):
            return True
        if writer is None:
            return False
        if writer.distrusted:
            return True
        percentage = config.auto_aof_rewrite_percentage
        grown = writer.size - writer.base_size
        return (
            percentage > 0
            and writer.size >= config.auto_aof_rewrite_min_size
            and grown * 100 >= max(writer.base_size, 1) * percentage
        )

    def want_rewrite(self) -> str | None:
        """BGREWRITEAOF: rewrite soon. Returns the error reply's text or None."""
        if self._rewriting or self._rewrite_wanted:
            return "ERR Background append only file rewriting already in progress"
        self._rewrite_wanted = True
        self._rewrite_not_before = 0.0
        return None

    async def _rewrite(self) -> None:
        """Make a new file and put it in the place of the old one."""
        self._rewrite_wanted = False
        self._rewrite_started = trio.current_time()
        writer = self._writer
        new: NewFile | None = None
        self._rewriting_on = self._config.appendonly
        try:
            if writer is not None and not writer.distrusted and self._node.compactable:
                now = self._node.now // 1000
                new = self._new = Compaction(self._disk, self.path, writer.size, now)
                done = await self._compact(new, writer)
            else:
                new = self._new = Dump(self._disk, self.path, self._node)
                done = await self._dump(new)
        except OSError as failure:
            if self._new is new:
                self._give_up(failure)
        else:
            if done:
                self._rewrite_ok = True
                self._rewrite_seconds = round(trio.current_time() - self._rewrite_started)
                self._rewrite_backoff = RETRY_SECONDS
                self._log.notice("append-only file rewritten", bytes=new.size)
        finally:
            self._rewriting = False

    async def _compact(self, new: Compaction, writer: AofWriter) -> bool:
        """Let a process compact the file. False: given up meanwhile. Raises OSError."""
        self._log.notice("append-only file compacted", result=await new.run())
        synced = False
        started = 0.0
        for _ in range(MAX_ROUNDS):
            if self._new is not new:
                return False
            behind = writer.size - new.copied
            if synced and behind <= LAST_COPY and self._is_fresh(started):
                break
            started = trio.current_time()
            await self._in_thread(new, partial(new.copy, writer.size))
            # Much came while that was copied: first the next round, then the sync.
            synced = behind <= LAST_COPY
            if synced:
                await self._in_thread(new, new.sync)
        if self._new is not new:
            return False
        if writer.distrusted:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        new.copy(writer.size)
        new.append(writer.kept)
        self._adopt(new, self._config.appendonly, synced and self._is_fresh(started))
        await trio.to_thread.run_sync(new.close_old)
        return True

    async def _dump(self, new: Dump) -> bool:
        """Write all that is in memory. False: given up meanwhile. Raises OSError."""
        self._node.journaling = True
        while not new.complete:
            new.step(JOBS_A_STEP)
            await trio.lowlevel.checkpoint()
            if self._new is not new:
                return False
        started = trio.current_time()
        await self._in_thread(new, new.sync)
        if self._new is not new:
            return False
        self._adopt(new, self._config.appendonly, self._is_fresh(started))
        return True

    def _is_fresh(self, since: float) -> bool:
        """Whether what was written since then is too new to be on the disk in any case."""
        return trio.current_time() - since <= FRESH_SECONDS

    async def _in_thread(self, new: NewFile, work: Callable[[], None]) -> None:
        new.hold()
        try:
            await trio.to_thread.run_sync(work)
        finally:
            new.release()

    def _adopt(self, new: NewFile, go_on: bool = True, synced: bool = False) -> None:
        """Let ``new``, which is complete, be the file, and write to it unless the file is off.
        ``synced``: but for what is so new that nobody may rely on it, all of it is on the disk.
        Raises OSError, and then leaves nothing of it."""
        writer = self._writer
        # Two syncs keep all clients waiting. Where the file is to be as good as the old one only
        # in a second, they can follow in a thread.
        soon = (
            synced
            and go_on
            and writer is not None
            and not writer.problem
            and self._config.appendfsync != ALWAYS
        )
        try:
            new.append(self._node.journal)
            if writer is None:
                self._lock()
                self._keep_unknown()
                writer = AofWriter(self._disk, self.path, self._config.appendfsync)
            writer.take_over(new, soon)
        except OSError:
            new.abandon()
            raise
        self._new = None
        self._known = True
        self._switch_problem = ""
        self._node.journal.clear()
        if go_on:
            self._writer = writer
        else:
            self._node.journaling = False
            writer.close()
        self._tell_trouble()

    def _keep_unknown(self) -> None:
        """A file with jobs that this node has never seen is not replaced but renamed."""
        path = Path(self.path)
        if not self._known and path.is_file() and path.stat().st_size:
            self._disk.replace(self.path, f"{self.path}.old")

    def _drop_new(self) -> None:
        """Give up what a rewrite has made so far."""
        if self._new is not None:
            self._new.abandon()
            self._new = None

    def _give_up(self, failure: OSError) -> None:
        self._drop_new()
        if self._writer is None:
            self._node.journaling = False
            self._node.journal.clear()
            if self._config.appendonly:
                self._switch_problem = failure.strerror or str(failure)
                self._tell_trouble()
        self._rewrite_ok = False
        self._rewrite_not_before = trio.current_time() + self._rewrite_backoff
        if self._writer is not None and not self._writer.distrusted:
            # The node can do without it. Else it waits for this to serve writes.
            self._rewrite_backoff = min(2 * self._rewrite_backoff, MAX_BACKOFF_SECONDS)
        self._log.warning("rewriting failed", reason=failure.strerror or str(failure))

    # ---- settings, the end ------------------------------------------------------------------

    def apply(self) -> None:
        """Follow appendonly and appendfsync."""
        writer = self._writer
        if writer is not None:
            writer.policy = self._config.appendfsync
        if self._config.appendonly:
            if writer is None:
                self._rewrite_not_before = 0.0
            return
        if self._switch_problem:
            self._switch_problem = ""
            self._tell_trouble()
        if not (writer or (self._rewriting and self._rewriting_on)):
            return
        self._drop_new()
        self._node.journaling = False
        self._node.journal.clear()
        if writer is not None:
            self._writer = None
            writer.close()
            self._node.set_trouble(self._node.loading, "")

    def dump_now(self) -> str:
        """SHUTDOWN REWRITE-AOF, RESTART: all jobs into a new file, at once. "", or why not."""
        self._drop_new()
        try:
            self._adopt(dump_all(self._disk, self.path, self._node))
        except OSError as failure:
            problem = failure.strerror or str(failure)
        else:
            problem = self._node.write_problem
        self._node.journaling = self._config.appendonly
        if problem:
            self._log.warning("the jobs could not be written", reason=problem)
            self.apply()  # the node goes on: without the file, if it is off
        return problem

    def close(self) -> None:
        """Write and sync everything."""
        self._drop_new()
        if self._config.appendonly and self._writer is None and not self._node.loading:
            self.dump_now()  # it was being switched on
        if self._writer is not None:
            self.turn()
            if not self._writer.close():
                self._log.warning("the append-only file could not be synced at the end")
            self._writer = None
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1

    @property
    def active(self) -> bool:
        """Whether there is a file that is written to, or is going to be."""
        return self._writer is not None or self._rewriting or self._config.appendonly

    def _behind(self) -> float:
        """For how long (s) the sync that is under way has been."""
        return trio.current_time() - self._synced_at if self._syncing else 0.0

    def info(self) -> Fields:
        """INFO persistence."""
        writer = self._writer
        node = self._node
        waiting = self._config.appendonly and writer is None
        started = trio.current_time() - self._rewrite_started
        fields: Fields = {
            "loading": int(node.loading),
            "aof_enabled": int(self._config.appendonly),
            "aof_state": "wait-rewrite" if waiting else "on" if writer is not None else "off",
            "aof_rewrite_in_progress": int(self._rewriting),
            "aof_rewrite_scheduled": int(self._rewrite_wanted),
            "aof_last_rewrite_time_sec": self._rewrite_seconds,
            "aof_current_rewrite_time_sec": round(started) if self._rewriting else -1,
            "aof_last_bgrewrite_status": "ok" if self._rewrite_ok else "err",
            "aof_last_write_status": "err" if node.write_problem else "ok",
        }
        if writer is not None:
            fields |= {
                "aof_current_size": writer.size,
                "aof_base_size": writer.base_size,
                "aof_pending_rewrite": int(self._rewrite_wanted),
                "aof_buffer_length": sum(map(len, writer.kept)),
                "aof_rewrite_buffer_length": 0,
                "aof_pending_bio_fsync": int(self._syncing),
                "aof_delayed_fsync": self._slow_syncs,
                "aof_fsync_behind_sec": int(self._behind()),
            }
        loader = self.loader
        if loader is not None:
            spent = max(time.time() - self._loading_since, 0.001)
            rest = loader.total - loader.loaded
            fields |= {
                "loading_start_time": int(self._loading_since),
                "loading_total_bytes": loader.total,
                "loading_loaded_bytes": loader.loaded,
                "loading_loaded_perc": f"{100 * loader.loaded / max(loader.total, 1):.2f}",
                "loading_eta_seconds": round(rest * spent / max(loader.loaded, 1)),
            }
        return fields
