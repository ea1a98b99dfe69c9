"""Rewrites the append-only file, and switches it on and off.

A process rewrites the file by compacting the old one. If there is no trustworthy old file, the
rewrite is a dump from memory instead, in small steps between turns. Such a dump also switches the
file on.
"""

import errno
import os
from collections.abc import Callable
from functools import partial

import trio

from disque_trio.aof.compaction import Compaction, DamagedError
from disque_trio.aof.dump import Dump, NewFile, dump_all
from disque_trio.aof.file import AofFile
from disque_trio.aof.writer import ALWAYS, AofWriter

RETRY_SECONDS = 1.0
MAX_BACKOFF_SECONDS = 60.0
MAX_URGENT_BACKOFF_SECONDS = 8.0  # no jobs are added until a rewrite succeeds
JOBS_A_STEP = 200
LAST_COPY = 1 << 20  # bytes to copy between two turns, at the end of a compaction
FRESH_SECONDS = 0.5  # maximum age of unsynced data when a new file takes its name
MAX_ROUNDS = 50  # of copying what came meanwhile: never ends if the disk is too slow


class Rewriting:
    """Runs the rewrites of ``file``.

    Attributes:
        under_way: there is a task for a rewrite, even if it was given up and has yet to notice.
        wanted: a client asked for a rewrite.
        problem: why the last rewrite failed; empty: it did not.
    """

    def __init__(self, file: AofFile) -> None:
        self.under_way = False
        self.wanted = False
        self._file = file
        self._switching_on = False  # the current one began when the file was to be switched on
        self.problem = ""
        self._not_before = 0.0
        self._backoff = RETRY_SECONDS
        self._started = 0.0
        self._seconds = -1
        self._apply_again = False

    def want(self) -> str | None:
        """BGREWRITEAOF: rewrite soon. Returns the error reply's text or None."""
        if self.under_way or self.wanted:
            return "ERR Background append only file rewriting already in progress"
        self.wanted = True
        self._not_before = 0.0
        return None

    def start_if_due(self, nursery: trio.Nursery, now: float) -> None:
        """Begin a rewrite in ``nursery`` if there is a reason to; ``now``: Trio's time."""
        if not self.under_way and now >= self._not_before and self.is_due():
            self.under_way = True
            nursery.start_soon(self._rewrite)

    def is_due(self) -> bool:
        """Whether there is a reason to rewrite the file."""
        config = self._file.config
        writer = self._file.writer
        if self.wanted or (self._file.wanted and writer is None):
            return True
        if writer is None:
            return False
        if writer.distrusted or self._file.damaged:
            return True
        percentage = config.auto_aof_rewrite_percentage
        if percentage == 0:
            return False
        if (writer.room.problem or writer.problem) and self._would_win(writer):
            return True
        grown = writer.size - writer.base_size
        return (
            writer.size >= config.auto_aof_rewrite_min_size
            and grown * 100 >= max(writer.base_size, 1) * percentage
        )

    def _would_win(self, writer: AofWriter) -> bool:
        """Whether a new file fits on the disk and is less than half as large. What it has takes
        more space in memory."""
        memory = self._file.dataset.memory
        return memory.used + memory.on_disk < min(writer.size // 2, writer.room.free)

    # ---- one rewrite ------------------------------------------------------------------------

    async def _rewrite(self) -> None:
        """Make a new file and replace the old one with it."""
        file = self._file
        self.wanted = False
        self._started = trio.current_time()
        writer = file.writer
        new: NewFile | None = None
        self._switching_on = file.wanted
        try:
            if writer is not None and self._is_good(writer) and file.dataset.compactable:
                now = file.dataset.now // 1000
                new = file.new = Compaction(file.disk, file.path, writer.size, now)
                done = await self._compact(new, writer)
            else:
                new = file.new = Dump(file.disk, file.path, file.dataset)
                done = await self._dump(new)
        except OSError as failure:
            if isinstance(failure, DamagedError):
                file.damaged = True
                file.damaged_places += 1
            if file.new is new:
                self.give_up(failure)
        else:
            if done:
                self.problem = ""
                self._seconds = round(trio.current_time() - self._started)
                self._backoff = RETRY_SECONDS
                file.log.notice("append-only file rewritten", bytes=new.size)
        finally:
            self.under_way = False

    def _is_good(self, writer: AofWriter) -> bool:
        """Whether the file is as it was written."""
        return not (writer.distrusted or self._file.damaged)

    async def _compact(self, new: Compaction, writer: AofWriter) -> bool:
        """Make a process compact the file. False: given up meanwhile. Raises ``OSError``."""
        file = self._file
        file.log.notice("append-only file compacted", result=await new.run())
        synced = False
        started = 0.0
        for _ in range(MAX_ROUNDS):
            await file.until_stored()
            if file.new is not new:
                return False
            behind = writer.size - new.copied
            if synced and behind <= LAST_COPY and _is_fresh(started):
                break
            started = trio.current_time()
            await _in_thread(new, partial(new.copy, writer.size))
            # If much came during the copy, do another round before the sync.
            synced = behind <= LAST_COPY
            if synced:
                await _in_thread(new, new.sync)
        await file.until_stored()
        if file.new is not new:
            return False
        if writer.distrusted:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        new.copy(writer.size)
        new.append(writer.kept)
        self._adopt(new, file.wanted, synced and _is_fresh(started))
        await trio.to_thread.run_sync(new.close_old)
        return True

    async def _dump(self, new: Dump) -> bool:
        """Dump everything from memory. False: given up meanwhile. Raises ``OSError``."""
        file = self._file
        file.dataset.journaling = True
        while not new.complete:
            new.step(JOBS_A_STEP)
            await trio.lowlevel.checkpoint()
            await file.until_stored()  # a thread may be writing to it
            if file.new is not new:
                return False
        for _ in range(MAX_ROUNDS):
            started = trio.current_time()
            size = new.size
            await _in_thread(new, new.sync)
            await file.until_stored()
            if file.new is not new:
                return False
            if new.size - size <= LAST_COPY:
                break
        self._adopt(new, file.wanted, _is_fresh(started))
        return True

    def dump_now(self) -> None:
        """Replace the file with a dump from memory, at once. Raises ``OSError``."""
        self.drop_new()
        file = self._file
        self._adopt(dump_all(file.disk, file.path, file.dataset))

    def _adopt(self, new: NewFile, go_on: bool = True, synced: bool = False) -> None:
        """Replace the file with ``new``, which is complete, and write to it unless the file is off.
        ``synced``: all of it is on disk, except what is so new that nobody may rely on it. Raises
        ``OSError``, and then leaves nothing of it."""
        file = self._file
        dataset = file.dataset
        writer = file.writer
        # Two syncs keep all clients waiting. If the old file, too, would only have been safe in a
        # second, they can follow in a thread.
        soon = (
            synced
            and go_on
            and writer is not None
            and not writer.problem
            and file.config.appendfsync != ALWAYS
        )
        try:
            new.append(dataset.journal)
            if writer is None:
                file.lock()
                file.keep_unknown()
                writer = file.make_writer()
            writer.take_over(new, soon)
        except OSError:
            new.abandon()
            raise
        file.new = None
        file.known = True
        file.damaged = False
        file.switch_problem = ""
        dataset.journal.clear()
        if go_on:
            file.writer = writer
        else:
            dataset.journaling = False
            writer.close(True)
        file.tell_trouble()

    def drop_new(self) -> None:
        """Discard the unfinished new file of a rewrite."""
        file = self._file
        if file.new is not None:
            file.new.abandon()
            file.new = None

    def give_up(self, failure: OSError) -> None:
        """Note that a rewrite failed, and schedule the next attempt, later each time."""
        file = self._file
        self.drop_new()
        if file.writer is None:
            file.dataset.journaling = False
            file.dataset.journal.clear()
            if file.wanted:
                file.switch_problem = failure.strerror or str(failure)
                file.tell_trouble()
        self.problem = failure.strerror or str(failure)
        self._not_before = trio.current_time() + self._backoff
        urgent = file.writer is None or file.writer.distrusted
        most = MAX_URGENT_BACKOFF_SECONDS if urgent else MAX_BACKOFF_SECONDS
        self._backoff = min(2 * self._backoff, most)
        file.log.verbose("rewriting failed", reason=self.problem)

    # ---- settings ---------------------------------------------------------------------------

    def apply(self) -> None:
        """Apply changes of appendonly and appendfsync."""
        file = self._file
        # A thread that is writing has to finish with the old settings.
        self._apply_again = file.storing > 0
        if self._apply_again:
            return
        writer = file.writer
        if writer is not None:
            writer.policy = file.config.appendfsync
        if file.wanted:
            if writer is None:
                self._not_before = 0.0
            return
        if file.switch_problem:
            file.switch_problem = ""
            file.tell_trouble()
        if not (writer or (self.under_way and self._switching_on)):
            return
        self.drop_new()
        dataset = file.dataset
        dataset.journaling = False
        dataset.journal.clear()
        if writer is not None:
            file.writer = None
            writer.close(True)
            dataset.set_trouble(dataset.loading, "")

    def apply_if_put_off(self) -> None:
        """Apply settings that had to wait for a thread that was writing."""
        if self._apply_again:
            self.apply()

    def info(self) -> dict[str, str | int | float]:
        """Fields of INFO persistence about rewrites."""
        spent = trio.current_time() - self._started
        return {
            "aof_rewrite_in_progress": int(self.under_way),
            "aof_rewrite_scheduled": int(self.wanted),
            "aof_last_rewrite_time_sec": self._seconds,
            "aof_current_rewrite_time_sec": round(spent) if self.under_way else -1,
            "aof_last_bgrewrite_status": "err" if self.problem else "ok",
        }


def _is_fresh(since: float) -> bool:
    """Whether what was written since ``since`` may be missing on disk in any case."""
    return trio.current_time() - since <= FRESH_SECONDS


async def _in_thread(new: NewFile, work: Callable[[], None]) -> None:
    """Do ``work`` on ``new`` in a thread. Raises ``OSError``."""
    new.hold()
    try:
        await trio.to_thread.run_sync(work)
    finally:
        new.release()
