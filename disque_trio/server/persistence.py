"""The append-only file of a running node: loading at the start, a write each turn, syncing,
rewriting, and what happens when the disk fails.

The engine calls ``turn`` before replies leave. Everything that takes long (syncing once a second,
the last sync of a rewrite) happens in a thread; a rewrite itself goes on in small steps between
turns.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path

import trio

from disque_trio.aof.disk import Disk
from disque_trio.aof.dump import Dump, dump_all
from disque_trio.aof.format import AofError
from disque_trio.aof.loader import Loader
from disque_trio.aof.survey import Survey
from disque_trio.aof.writer import EVERYSEC, AofWriter
from disque_trio.commands.info import Fields
from disque_trio.config import Config
from disque_trio.core.node import Node
from disque_trio.server.logs import Log
from disque_trio.server.systemd import Notifier

TICK = 0.1  # s between looks at what has to be done
SYNC_SECONDS = 1.0
SLOW_SYNC_SECONDS = 2.0
RETRY_SECONDS = 1.0
JOBS_A_STEP = 200
EXTEND_MICROSECONDS = 60_000_000


class LoadError(Exception):
    """The file cannot be loaded; the text says where, why and what to do."""


class Persistence:
    """The append-only file of ``node``, as ``config`` wants it.

    Attributes:
        loader: the loading that is under way, or None.
    """

    def __init__(self, node: Node, config: Config, log: Log, disk: Disk | None = None) -> None:
        self.loader: Loader | None = None
        self._node = node
        self._config = config
        self._log = log
        self._disk = disk or Disk()
        self._writer: AofWriter | None = None
        self._dump: Dump | None = None
        self._rewrite_wanted = False
        self._rewrite_ok = True
        self._rewrite_started = 0.0
        self._rewrite_seconds = -1
        self._syncing = False
        self._slow_syncs = 0
        self._synced_at = 0.0
        self._failed_at = 0.0
        self._loading_since = 0.0

    @property
    def path(self) -> str:
        """The file; relative to ``dir``, where the process is."""
        return self._config.appendfilename

    # ---- the start --------------------------------------------------------------------------

    async def load(self, queue_jobs: bool, notifier: Notifier, stopped: Callable[[], bool]) -> int:
        """Load the file, unless ``stopped`` meanwhile. Returns how many jobs the node has then.

        Raises:
            LoadError: the file is damaged, or ends inside of a record and aof-load-truncated is no.
            OSError: it cannot be read or written.
        """
        loader = self.loader = Loader(self.path, self._node, queue_jobs)
        self._loading_since = time.time()
        self._node.set_trouble(True, "")
        told = 0
        try:
            for _ in loader.steps():
                await trio.lowlevel.checkpoint()
                if stopped():
                    break
                percent = 100 * loader.loaded // loader.total
                if percent > told:
                    told = percent
                    notifier.status(f"Loading: {percent}%, {loader.jobs} jobs")
                    notifier.extend(EXTEND_MICROSECONDS)
                    if percent % 10 == 0:
                        self._log.notice("loading", percent=percent, jobs=loader.jobs)
        except AofError as damage:
            self._judge(damage)
        finally:
            self.loader = None
            self._node.set_trouble(False, "")
        return self._node.jobs.count

    def _judge(self, damage: AofError) -> None:
        """Cut the end off that a crash left, or refuse to go on."""
        size = os.stat(self.path).st_size  # noqa: PTH116
        lost = size - damage.offset
        with Path(self.path).open("rb", buffering=0) as file:
            # A damaged length looks like the end of the file, but good records follow.
            more = Survey(file).find_record(damage.offset + 1) < size
        if more or not damage.truncated:
            raise LoadError(
                f"{self.path} is damaged at offset {damage.offset}: {damage.reason}. "
                f"{lost} bytes follow. Look at it with: disque-check-aof {self.path}"
            )
        if not self._config.aof_load_truncated:
            raise LoadError(
                f"{self.path} ends inside of a record, at offset {damage.offset}, and "
                f"aof-load-truncated is no. Cut the end off with: "
                f"disque-check-aof --fix {self.path}"
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
        self._writer = AofWriter(self._disk, self.path, self._config.appendfsync)
        self._disk.sync_directory(self.path)
        self._node.journaling = True

    # ---- turns ------------------------------------------------------------------------------

    def turn(self) -> bool:
        """Put what the node noted into the file. False when it is not there: then nothing of the
        turn may be confirmed."""
        node = self._node
        if node.flushed:
            self._start_over()
        records = node.journal
        if not records:
            return True
        node.journal = []
        if self._dump is not None:
            try:
                self._dump.append(records)
            except OSError as failure:
                self._give_up_dump(failure)
        if self._writer is None or self._writer.append(records):
            return True
        self._tell_trouble()
        return False

    def _start_over(self) -> None:
        """The node forgot everything: the file has nothing any more, without a record a job."""
        self._node.flushed = False
        if self._dump is not None:
            self._dump.abandon()
            self._dump = None
        if self._writer is not None:
            try:
                self._adopt(dump_all(self._disk, self.path, self._node))
            except OSError as failure:
                self._writer.distrust(failure)
                self._tell_trouble()

    def _tell_trouble(self) -> None:
        """Let the node refuse writes while, and only while, there is a problem."""
        writer = self._writer
        problem = writer.problem if writer is not None else ""
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
        while True:
            await trio.sleep(TICK)
            now = trio.current_time()
            writer = self._writer
            if writer is not None:
                if writer.problem and now - self._failed_at >= RETRY_SECONDS:
                    self._failed_at = now
                    writer.retry()
                    self._tell_trouble()
                if (
                    writer.unsynced
                    and self._config.appendfsync == EVERYSEC
                    and now - self._synced_at >= SYNC_SECONDS
                ):
                    await self._sync(writer)
            if self._should_rewrite() and now - self._rewrite_started >= RETRY_SECONDS:
                await self._rewrite()

    async def _sync(self, writer: AofWriter) -> None:
        started = self._synced_at = trio.current_time()
        self._syncing = True
        try:
            await trio.to_thread.run_sync(writer.sync_call())
        except OSError as failure:
            writer.distrust(failure)
            self._tell_trouble()
        finally:
            self._syncing = False
        took = trio.current_time() - started
        if took > SLOW_SYNC_SECONDS:
            self._slow_syncs += 1
            self._log.warning("the disk is slow: a sync took long", seconds=round(took, 1))

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
        if self._dump is not None or self._rewrite_wanted:
            return "ERR Background append only file rewriting already in progress"
        self._rewrite_wanted = True
        self._rewrite_started = 0.0
        return None

    async def _rewrite(self) -> None:
        """Write a new file in steps between turns and put it in the place of the old one."""
        self._rewrite_wanted = False
        self._rewrite_started = trio.current_time()
        node = self._node
        try:
            dump = self._dump = Dump(self._disk, self.path, node)
            was_journaling = node.journaling
            node.journaling = True
            while not dump.complete:
                dump.step(JOBS_A_STEP)
                await trio.lowlevel.checkpoint()
                if self._dump is not dump:
                    return  # given up meanwhile
            await trio.to_thread.run_sync(dump.sync)
            if self._dump is not dump:
                return
            self._dump = None
            self._adopt(dump, was_journaling or self._config.appendonly)
        except OSError as failure:
            self._give_up_dump(failure)
            return
        self._rewrite_ok = True
        self._rewrite_seconds = round(trio.current_time() - self._rewrite_started)
        self._log.notice("append-only file rewritten", bytes=dump.size, jobs=node.jobs.count)

    def _adopt(self, dump: Dump, go_on: bool = True) -> None:
        """Let ``dump``, which is complete, be the file, and write to it unless the file is off.
        Raises OSError, and then leaves nothing of the dump."""
        writer = self._writer
        try:
            dump.append(self._node.journal)
            self._node.journal.clear()
            if writer is None:
                writer = AofWriter(self._disk, self.path, self._config.appendfsync)
            writer.take_over(dump)
        except OSError:
            dump.abandon()
            raise
        if go_on:
            self._writer = writer
        else:
            self._node.journaling = False
            writer.close()
        self._tell_trouble()

    def _give_up_dump(self, failure: OSError) -> None:
        if self._dump is not None:
            self._dump.abandon()
            self._dump = None
        if self._writer is None:
            self._node.journaling = False
            self._node.journal.clear()
        self._rewrite_ok = False
        self._log.warning("rewriting failed", reason=failure.strerror or str(failure))

    # ---- settings, the end ------------------------------------------------------------------

    def apply(self) -> None:
        """Follow appendonly and appendfsync."""
        writer = self._writer
        if writer is None:
            return
        writer.policy = self._config.appendfsync
        if not self._config.appendonly:
            self._node.journaling = False
            self._node.journal.clear()
            self._writer = None
            writer.close()
            self._node.set_trouble(self._node.loading, "")

    def dump_now(self) -> str:
        """SHUTDOWN REWRITE-AOF: all jobs into a new file, at once. Returns why not, or ""."""
        if self._dump is not None:
            self._dump.abandon()
            self._dump = None
        try:
            self._adopt(dump_all(self._disk, self.path, self._node))
        except OSError as failure:
            problem = failure.strerror or str(failure)
        else:
            problem = self._node.write_problem
        self._node.journaling = self._config.appendonly
        if problem:
            self._log.warning("the jobs could not be written", reason=problem)
        return problem

    def close(self) -> None:
        """Write and sync everything."""
        if self._dump is not None:
            self._dump.abandon()
            self._dump = None
        if self._writer is not None:
            self.turn()
            if not self._writer.close():
                self._log.warning("the append-only file could not be synced at the end")
            self._writer = None

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
            "aof_rewrite_in_progress": int(self._dump is not None),
            "aof_rewrite_scheduled": int(self._rewrite_wanted),
            "aof_last_rewrite_time_sec": self._rewrite_seconds,
            "aof_current_rewrite_time_sec": -1 if self._dump is None else round(started),
            "aof_last_bgrewrite_status": "ok" if self._rewrite_ok else "err",
            "aof_last_write_status": "err" if node.write_problem else "ok",
        }
        if writer is not None:
            fields |= {
                "aof_current_size": writer.size,
                "aof_base_size": writer.base_size,
                "aof_pending_rewrite": int(self._rewrite_wanted),
                "aof_buffer_length": writer.kept,
                "aof_rewrite_buffer_length": 0,
                "aof_pending_bio_fsync": int(self._syncing),
                "aof_delayed_fsync": self._slow_syncs,
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
