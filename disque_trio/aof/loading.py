"""Loads the append-only file at the start, while clients get -LOADING.

Decides whether a damaged file can be used: an end torn by a crash is cut off, anything else is left
to the operator.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Protocol

import trio

from disque_trio.aof.checksums import CheckedFile, Mark, Sums, read_sums, sums_size
from disque_trio.aof.file import AofFile
from disque_trio.aof.format import AofError
from disque_trio.aof.loader import Loader
from disque_trio.aof.scanner import Scanner
from disque_trio.process.systemd import Notifier

LARGE_SUMS = 1 << 20  # bytes that take 25 ms to read: meanwhile clients get -LOADING
NEAR = 64 << 10  # bytes before damage in which a record begins, usually
LISTED = 100  # damaged records that the log names
EXTEND_MICROSECONDS = 60_000_000


class LoadError(Exception):
    """The file cannot be loaded; the text says where, why and what to do."""


class Ahead(Protocol):
    """Knows what a part of the file says, so that it need not be read. begin: where the rest
    begins, once the steps are done."""

    @property
    def begin(self) -> int: ...

    def steps(self, queue_jobs: bool) -> Iterator[None]:
        """Load what it knows; yields now and then. ``queue_jobs``: see ``Dataset``."""


class Loading:
    """Loads ``file``.

    Args:
        scanner: the class that knows the records of the file.
        checker: the command that checks it.

    Attributes:
        ahead: is loaded before the file; None: nothing is.
    """

    def __init__(self, file: AofFile, scanner: type[Scanner], checker: str) -> None:
        self._file = file
        self._scanner = scanner
        self._checker = checker
        self._loader: Loader | None = None  # while loading
        self.ahead: Ahead | None = None
        self._since = 0.0
        self._seconds = 0.0

    async def load(self, queue_jobs: bool, notifier: Notifier, stopped: Callable[[], bool]) -> int:
        """Load the file, unless ``stopped`` meanwhile. Return the number of jobs, or events, held
        afterwards.

        Raises:
            LoadError: the file is damaged, or was torn by a crash and aof-load-truncated is no.
            OSError: it cannot be read or written.
        """
        file = self._file
        dataset = file.dataset
        file.lock()
        dataset.set_trouble(True, "")
        sums: Sums | None = None
        if sums_size(file.path) > LARGE_SUMS:
            sums = await trio.to_thread.run_sync(read_sums, file.path)
        self._since = time.time()
        begin = 0
        if self.ahead is not None:
            for _ in self.ahead.steps(queue_jobs):
                await trio.lowlevel.checkpoint()
                if stopped():
                    return dataset.held()
            begin = self.ahead.begin
        loader = self._loader = Loader(file.path, dataset, queue_jobs, sums, begin)
        told = 0
        try:
            for _ in loader.steps():
                await trio.lowlevel.checkpoint()
                if stopped():
                    # A partly loaded node must not answer: it stays in this state until it stops.
                    return dataset.held()
                percent = 100 * loader.loaded // loader.total
                if percent > told:
                    told = percent
                    notifier.status(f"Loading: {percent}%, {loader.jobs} {dataset.holds}")
                    notifier.extend(EXTEND_MICROSECONDS)
                    if percent % 10 == 0:
                        file.log.notice("loading", percent=percent, jobs=loader.jobs)
        except AofError as damage:
            self._judge(damage, loader)
        self._look_at_checksums(loader)
        self._loader = None
        self._seconds = time.time() - self._since
        file.known = True
        dataset.set_trouble(False, "")
        return dataset.held()

    def _judge(self, damage: AofError, loader: Loader) -> None:
        """Truncate an end torn by a crash, or refuse to continue."""
        file = self._file
        path = Path(file.path).absolute()
        size = path.stat().st_size
        lost = size - damage.offset
        with path.open("rb", buffering=0) as content:
            is_torn = self._scanner(content).is_torn(damage)
        if not is_torn:
            marks = loader.checked.marks if loader.checked is not None else []
            sums = f", where the checksums do not match from {marks[0].start} on" if marks else ""
            raise LoadError(
                f"{path} is damaged at offset {damage.offset}{sums}: {damage.reason}. "
                f"{lost} bytes follow. Look at it with: {self._checker} {path}"
            )
        if not file.config.aof_load_truncated:
            raise LoadError(
                f"{path} was torn by a crash at offset {damage.offset}, and "
                f"aof-load-truncated is no. Cut the end off with: "
                f"{self._checker} --fix {path}"
            )
        file.log.warning("the end of the file was torn by a crash and was cut off", bytes=lost)
        fd = file.disk.open_append(str(path))
        try:
            file.disk.truncate(fd, damage.offset)
            file.disk.sync(fd)
        finally:
            file.disk.close(fd)

    def _look_at_checksums(self, loader: Loader) -> None:
        """Tell what the checksums of the loaded file say, and decide what becomes of the two: a
        damaged file is made again from memory, as soon as it is written to."""
        file = self._file
        checked = loader.checked
        if checked is None:
            return
        if checked.doubtful >= 0:
            file.log.warning(
                "the checksums are not those of the append-only file: it is damaged up to its end, "
                "or was replaced by another one; it was loaded as it is",
                offset=checked.doubtful,
            )
        if checked.marks:
            file.covered = -1
            self._tell_damage(loader, checked)
        # Those that end at another offset are of an older file, or the file was torn.
        elif (
            checked.doubtful < 0
            and loader.sums.intact
            and loader.sums.end <= os.stat(file.path).st_size
        ):
            file.covered = checked.covered
        else:
            file.log.notice("the checksums of the append-only file are made again")

    def _tell_damage(self, loader: Loader, checked: CheckedFile) -> None:
        """Tell which records of the loaded file are damaged."""
        file = self._file
        for record, offset, lost in loader.damaged[:LISTED]:
            file.log.warning(
                "a record of the append-only file is damaged: "
                + ("it is left out" if lost else "a flipped bit is repaired, or does no harm"),
                record=record,
                offset=offset,
            )
        left_out = sum(damaged.lost for damaged in loader.damaged)
        file.damaged_places += len(checked.marks)
        file.lost_records += left_out
        file.damaged = True
        if not left_out:
            return
        kept = file.path + ".damaged"
        with suppress(OSError):
            Path(kept).unlink(missing_ok=True)
            Path(kept).hardlink_to(file.path)
            file.log.warning(
                "the append-only file is made again without the damaged records: "
                f"{file.dataset.holds} in them are lost that no other node has",
                records=left_out,
                kept=kept,
            )

    def names(self, damage: list[tuple[int, int]]) -> list[str]:
        """What the records are at the damaged places of the file, one for each; may be called in
        another thread."""
        path = self._file.path
        names: list[str] = []
        with suppress(OSError), Path(path).open("rb", buffering=0) as file:
            scanner = self._scanner(file, sums=read_sums(path))
            checked = scanner.file
            for start, end in damage:
                checked.pread(end - start, start)
                mark = checked.found(start, end) or Mark(start, end, -1)
                at = scanner.find_record(start - NEAR) if start > NEAR else 0
                names.append(", ".join(islice(checked.records(at, mark.start, mark.end), LISTED)))
        return names

    def info(self) -> dict[str, str | int | float]:
        """Fields of INFO persistence about the load that is under way, or the last one."""
        loader = self._loader
        if loader is None:
            return {"aof_last_load_time_sec": round(self._seconds, 3)}
        spent = max(time.time() - self._since, 0.001)
        rest = loader.total - loader.loaded
        return {
            "loading_start_time": int(self._since),
            "loading_total_bytes": loader.total,
            "loading_loaded_bytes": loader.loaded,
            "loading_loaded_perc": f"{100 * loader.loaded / max(loader.total, 1):.2f}",
            "loading_eta_seconds": round(rest * spent / max(loader.loaded, 1)),
        }
