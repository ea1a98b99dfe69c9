"""The append-only file of a running process as a whole: appends each turn's records, syncs them,
retries after disk errors, and closes the file.

The engine calls ``turn`` before replies are sent. Anything slow (the sync every second, the last
sync of a rewrite) happens in a thread.
"""

import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

import trio

from disque_trio.aof.dataset import Dataset
from disque_trio.aof.disk import Disk
from disque_trio.aof.dump import Dump
from disque_trio.aof.file import AofFile, FileSettings
from disque_trio.aof.loading import LISTED, Loading
from disque_trio.aof.rewriting import RETRY_SECONDS, Rewriting
from disque_trio.aof.scanner import Scanner
from disque_trio.aof.writer import EVERYSEC, NO, AofWriter, LargeAppend, is_large
from disque_trio.process.logs import Log

TICK = 0.1  # s between checks for work
SYNC_SECONDS = 1.0
SLOW_SYNC_SECONDS = 2.0
COVER_AGAIN_SECONDS = 10.0
SCRUB_SECONDS = 60.0


class Replies(Protocol):
    """Interface that holds back replies while a thread writes the records they depend on."""

    def hold_replies(self) -> None:
        """Called between turns: records of earlier turns are on their way to the file, and nobody
        may hear of them before ``stored``."""

    def stored(self, good: bool) -> None:
        """Called when the thread has written the records, or, if not ``good``, has failed to."""

    def when_stirred(self, wake: Callable[[], None]) -> None:
        """Call ``wake`` after the next turn that may have made records."""


class Persistence:
    """Keeps ``dataset`` in an append-only file, as ``config`` says.

    Args:
        scanner: the class that knows the records of the file.
        checker: the command that checks it.
        allowed: whether there may be a file at all.

    Attributes:
        file: the file itself.
        loading: loads it.
        rewriting: rewrites it, and switches it on and off.
        complete: the file was closed, and has everything.
        sums_problem: why checksums cannot be written or compared; empty: they can.
    """

    def __init__(
        self,
        dataset: Dataset,
        config: FileSettings,
        log: Log,
        disk: Disk | None = None,
        scanner: type[Scanner] = Scanner,
        checker: str = "disque-check-aof",
        allowed: bool = True,
    ) -> None:
        file = self.file = AofFile(dataset, config, log, disk or Disk(), allowed)
        self.loading = Loading(file, scanner, checker)
        self.rewriting = Rewriting(file)
        self.complete = False
        self._background: _Background | None = None  # while ``run`` does
        self._syncing = False
        self._slow_syncs = 0
        self._synced_at = 0.0
        self._stirred = trio.Event()  # there is something to do between turns
        self._disk_turn = trio.Lock()  # of threads that need the file
        self.sums_problem = ""
        self._cover_again = 0.0
        self._scrub_began = 0.0
        self._scrubbed = 0.0  # when all of the file had been compared, in s since the epoch

    @property
    def active(self) -> bool:
        """Whether there is a file that is, or will be, written to."""
        return self.file.writer is not None or self.rewriting.under_way or self.file.wanted

    @property
    def storing(self) -> bool:
        """Whether a thread is writing records."""
        return self.file.storing > 0

    # ---- turns ------------------------------------------------------------------------------

    def turn(self) -> bool:
        """Append the turn's records to the file. Return whether they are in the file.

        If not, nothing of the turn may be confirmed; or, if ``file.storing``, a thread is writing
        a large amount: until ``Replies.stored`` no reply may reveal the records, and no more may
        be made.
        """
        file = self.file
        assert not file.storing
        dataset = file.dataset
        if dataset.flushed and not self._start_over():
            return False
        records = dataset.journal
        if not records:
            return True
        dataset.journal = []
        dump = file.new if isinstance(file.new, Dump) else None
        writer = file.writer
        good = writer is not None and not writer.problem
        background = self._background
        if background is not None and (good or dump is not None) and is_large(records):
            large = writer.large_append(records) if writer is not None and good else None
            self._begin_large(background, records, large, dump)
            return False
        if dump is not None:
            try:
                dump.append(records)
            except OSError as failure:
                self.rewriting.give_up(failure)
        written = writer is None or writer.append(records)
        if not written or (writer is not None and writer.room.problem != dataset.add_problem):
            file.tell_trouble()
        return written

    def begin_group(self) -> None:
        """See ``RecordFile``."""
        self.file.in_group = True

    def end_group(self) -> None:
        """See ``RecordFile``."""
        self.file.in_group = False
        self.file.store_ends()

    def _start_over(self) -> bool:
        """Replace the file after everything was forgotten, instead of writing a record for each
        job."""
        file = self.file
        file.dataset.flushed = False
        if file.writer is None:
            self.rewriting.drop_new()
            return True
        try:
            self.rewriting.dump_now()
        except OSError as failure:
            file.writer.distrust(failure)
            file.tell_trouble()
            return False
        return True

    def _begin_large(
        self,
        background: "_Background",
        records: list[bytes],
        large: LargeAppend | None,
        dump: Dump | None,
    ) -> None:
        """Make a thread write ``records`` to the file, using ``large`` if given, and to the
        ``dump``."""
        self.file.store_begins(sum(map(len, records)))
        if dump is not None:
            dump.hold()
        background.nursery.start_soon(self._store, background.replies, records, large, dump)

    async def _store(
        self,
        replies: Replies,
        records: list[bytes],
        large: LargeAppend | None,
        dump: Dump | None,
    ) -> None:
        """See ``_begin_large``. Cannot be cancelled before everything is written."""
        with trio.CancelScope(shield=True):
            failure = await trio.to_thread.run_sync(_write_large, records, large, dump)
        file = self.file
        if dump is not None:
            dump.release()
            if failure is not None and file.new is dump:
                self.rewriting.give_up(failure)
        writer = file.writer
        if writer is None:
            good = True  # the file is being switched on; nothing relies on it yet
        elif large is not None:
            good = writer.append_ended(large)
        else:
            good = writer.append(records)
        file.storing = 0
        file.tell_trouble()
        if not good:
            file.failed_at = trio.current_time()
        self.rewriting.apply_if_put_off()
        file.store_ends()
        replies.stored(good)

    # ---- between turns ----------------------------------------------------------------------

    async def run(self, replies: Replies) -> None:
        """Sync, retry and rewrite until cancelled."""
        try:
            async with trio.open_nursery() as nursery:
                self._background = _Background(nursery, replies)
                nursery.start_soon(self._scrub)
                await self._look_after(self._background)
        finally:
            self._background = None

    async def _look_after(self, background: "_Background") -> None:
        """Do what is due between turns, until cancelled."""
        file = self.file
        while True:
            await trio.sleep(TICK)
            await file.until_stored()
            now = trio.current_time()
            writer = file.writer
            if writer is not None:
                if (
                    writer.problem or writer.room.problem
                ) and now - file.failed_at >= RETRY_SECONDS:
                    file.failed_at = now
                    self._retry(background, writer)
                async with self._disk_turn:
                    await self._use_disk(now)
            self.rewriting.start_if_due(background.nursery, now)
            if self._may_rest():
                stirred = self._stirred = trio.Event()
                background.replies.when_stirred(stirred.set)
                await stirred.wait()

    async def _use_disk(self, now: float) -> None:
        """Sync the file if it is time, and add checksums, in a thread."""
        writer = self.file.writer
        if writer is None:
            return
        policy = self.file.config.appendfsync
        if (writer.unnamed and not writer.distrusted) or (
            # With "always", only what an earlier setting left unsynced.
            writer.unsynced and policy != NO and now - self._synced_at >= SYNC_SECONDS
        ):
            await self._sync(writer)
        elif policy == EVERYSEC:
            await self._begin_early(writer)
        if self.file.writer is writer and now >= self._cover_again:
            await self._with_sums(writer, writer.cover_call(now))

    async def _with_sums(self, writer: AofWriter, call: Callable[[], None] | None) -> None:
        """Run a ``call`` of ``writer`` that deals with checksums, if there is one, in a thread."""
        if call is None:
            return
        problem = ""
        try:
            await trio.to_thread.run_sync(call)
        except OSError as failure:
            problem = failure.strerror or str(failure)
            self._cover_again = trio.current_time() + COVER_AGAIN_SECONDS
        finally:
            writer.sync_ended(None)
        self.sums_problem = problem

    async def _scrub(self) -> None:
        """Compare all of the file with its checksums every ``aof-scrub-hours``, a bit at a time,
        until cancelled."""
        while True:
            await trio.sleep(SCRUB_SECONDS)
            async with self._disk_turn:
                await self._scrub_some()

    async def _scrub_some(self) -> None:
        """Compare what is due by now."""
        file = self.file
        writer = file.writer
        now = trio.current_time()
        period = file.config.aof_scrub_hours * 3600
        if writer is None or file.damaged or not period:
            self._scrub_began = now
            return
        share = (now - self._scrub_began) / period
        sums = writer.sums
        due = sums.covered if share >= 1 else int(sums.covered * share)
        await self._with_sums(writer, writer.compare_call(due))
        if sums.damage and file.writer is writer and writer.sums is sums:
            await self._tell_damage(sums.damage)
            sums.damage = []
        if share >= 1:
            self._scrub_began = now
            self._scrubbed = time.time()
            sums.rewind()

    async def _tell_damage(self, damage: list[tuple[int, int]]) -> None:
        """Tell of ``damage`` that the scrub has found. The file will be made again from memory,
        which has all that was in it."""
        file = self.file
        file.damaged_places += len(damage)
        file.damaged = True
        self._stirred.set()
        names = await trio.to_thread.run_sync(self.loading.names, damage[:LISTED])
        for record, (start, _) in zip(names, damage, strict=False):
            file.log.warning(
                "the append-only file is damaged: it is made again from memory",
                record=record,
                offset=start,
            )

    def _may_rest(self) -> bool:
        """Whether there is nothing to do before something happens."""
        writer = self.file.writer
        if self.storing or self.rewriting.under_way or self.rewriting.is_due():
            return False
        return writer is None or not (
            writer.problem
            or writer.room.problem
            or writer.unnamed
            or writer.uncovered
            or (writer.unsynced and self.file.config.appendfsync != NO)
        )

    def _retry(self, background: "_Background", writer: AofWriter) -> None:
        """Try again to write what could not be written, and to find room for more."""
        writer.find_room()
        kept = writer.kept
        if not writer.distrusted and is_large(kept):
            background.replies.hold_replies()
            self._begin_large(background, kept, writer.large_retry(), None)
        else:
            writer.retry()
            self.file.tell_trouble()

    async def _sync(self, writer: AofWriter) -> None:
        """Sync the file in a thread, and log it if that takes long."""
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
        self.file.tell_trouble()

    async def _begin_early(self, writer: AofWriter) -> None:
        """Start writing to disk early, so that the next sync is short: turns may have to wait for
        it."""
        begin = writer.early_call()
        if begin is not None:
            try:
                await trio.to_thread.run_sync(begin)
            except OSError:
                pass  # the sync will report it
            finally:
                writer.sync_ended(None)

    async def _tell_slow_sync(self) -> None:
        """Log a slow sync. Cancelled when the sync is over."""
        await trio.sleep(SLOW_SYNC_SECONDS)
        self._slow_syncs += 1
        self.file.log.warning("the disk is slow, the file is behind", seconds=SLOW_SYNC_SECONDS)

    # ---- all of it --------------------------------------------------------------------------

    def dump_now(self) -> str:
        """SHUTDOWN REWRITE-AOF, RESTART: write all jobs to a new file at once. Returns "", or the
        reason for failure. What happens afterwards, until ``close``, goes into the file as well."""
        file = self.file
        try:
            self.rewriting.dump_now()
        except OSError as failure:
            problem = failure.strerror or str(failure)
        else:
            problem = file.writer.problem if file.writer is not None else ""
        file.dataset.journaling = file.wanted or not problem
        if problem:
            file.log.warning("the jobs could not be written", reason=problem)
            self.rewriting.apply()  # the node continues: without the file, if it is off
        return problem

    def close(self) -> None:
        """Write and sync everything."""
        file = self.file
        self.rewriting.drop_new()
        if file.wanted and file.writer is None and not file.dataset.loading:
            self.dump_now()  # it was being switched on
        if file.writer is not None:
            self.turn()
            if not (file.writer.retry() and file.writer.sync()):
                self.dump_now()  # a new file needs less room, or lies where the disk works
            self.complete = file.writer.close()
            if not self.complete:
                file.log.warning("the append-only file could not be synced at the end")
            file.writer = None
        file.unlock()

    def behind(self) -> float:
        """Return how long the current sync of the file has been running, in s; 0: there is none."""
        return trio.current_time() - self._synced_at if self._syncing else 0.0

    def info(self) -> dict[str, str | int | float]:
        """INFO persistence."""
        file = self.file
        writer = file.writer
        waiting = file.wanted and writer is None
        fields: dict[str, str | int | float] = {
            "loading": int(file.dataset.loading),
            "aof_enabled": int(file.wanted),
            "aof_state": "wait-rewrite" if waiting else "on" if writer is not None else "off",
            **self.rewriting.info(),
            "aof_damaged_places": file.damaged_places,
            "aof_lost_records": file.lost_records,
            "aof_last_scrub_time": int(self._scrubbed),
            "aof_last_write_status": "err" if file.dataset.add_problem else "ok",
        }
        if writer is not None:
            fields |= {
                "aof_current_size": writer.size,
                "aof_base_size": writer.base_size,
                "aof_checksummed_bytes": writer.sums.covered,
                "aof_scrubbed_bytes": writer.sums.compared,
                "aof_reserved_bytes": writer.room.left(writer.size),
                "aof_disk_full": int(writer.room.problem != ""),
                "aof_pending_rewrite": int(self.rewriting.wanted),
                "aof_buffer_length": writer.kept_size + file.storing,
                "aof_rewrite_buffer_length": 0,
                "aof_pending_bio_fsync": int(self._syncing),
                "aof_delayed_fsync": self._slow_syncs,
                "aof_fsync_behind_sec": int(self.behind()),
            }
        return fields | self.loading.info()


class _Background(NamedTuple):
    """The state of ``run`` while it runs: its nursery, and the replies that wait."""

    nursery: trio.Nursery
    replies: Replies


def _write_large(
    records: list[bytes], large: LargeAppend | None, dump: Dump | None
) -> OSError | None:
    """Write ``records``, in a thread; return what went wrong with the dump."""
    if large is not None:
        large.run()
    if dump is not None:
        try:
            dump.append(records)
        except OSError as failure:
            return failure
    return None
