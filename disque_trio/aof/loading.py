"""Loads the append-only file at the start, while clients get -LOADING.

Decides whether a damaged file can be used: an end torn by a crash is cut off, anything else is left
to the operator.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path

import trio

from disque_trio.aof.file import AofFile
from disque_trio.aof.format import AofError
from disque_trio.aof.loader import Loader
from disque_trio.aof.scanner import Scanner
from disque_trio.process.systemd import Notifier

EXTEND_MICROSECONDS = 60_000_000


class LoadError(Exception):
    """The file cannot be loaded; the text says where, why and what to do."""


class Loading:
    """Loads ``file``.

    Args:
        scanner: the class that knows the records of the file.
        checker: the command that checks it.
    """

    def __init__(self, file: AofFile, scanner: type[Scanner], checker: str) -> None:
        self._file = file
        self._scanner = scanner
        self._checker = checker
        self._loader: Loader | None = None  # while loading
        self._since = 0.0

    async def load(self, queue_jobs: bool, notifier: Notifier, stopped: Callable[[], bool]) -> int:
        """Load the file, unless ``stopped`` meanwhile. Return the number of jobs, or events, held
        afterwards.

        Raises:
            LoadError: the file is damaged, or was torn by a crash and aof-load-truncated is no.
            OSError: it cannot be read or written.
        """
        file = self._file
        dataset = file.dataset
        loader = self._loader = Loader(file.path, dataset, queue_jobs)
        self._since = time.time()
        file.lock()
        dataset.set_trouble(True, "")
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
            self._judge(damage)
        self._loader = None
        file.known = True
        dataset.set_trouble(False, "")
        return dataset.held()

    def _judge(self, damage: AofError) -> None:
        """Truncate an end torn by a crash, or refuse to continue."""
        file = self._file
        path = file.path
        size = os.stat(path).st_size
        lost = size - damage.offset
        with Path(path).open("rb", buffering=0) as content:
            is_torn = self._scanner(content).is_torn(damage)
        if not is_torn:
            raise LoadError(
                f"{path} is damaged at offset {damage.offset}: {damage.reason}. "
                f"{lost} bytes follow. Look at it with: {self._checker} {path}"
            )
        if not file.config.aof_load_truncated:
            raise LoadError(
                f"{path} was torn by a crash at offset {damage.offset}, and "
                f"aof-load-truncated is no. Cut the end off with: "
                f"{self._checker} --fix {path}"
            )
        file.log.warning("the end of the file was torn by a crash and was cut off", bytes=lost)
        fd = file.disk.open_append(path)
        try:
            file.disk.truncate(fd, damage.offset)
            file.disk.sync(fd)
        finally:
            file.disk.close(fd)

    def info(self) -> dict[str, str | int | float]:
        """Fields of INFO persistence while the file is being loaded."""
        loader = self._loader
        if loader is None:
            return {}
        spent = max(time.time() - self._since, 0.001)
        rest = loader.total - loader.loaded
        return {
            "loading_start_time": int(self._since),
            "loading_total_bytes": loader.total,
            "loading_loaded_bytes": loader.loaded,
            "loading_loaded_perc": f"{100 * loader.loaded / max(loader.total, 1):.2f}",
            "loading_eta_seconds": round(rest * spent / max(loader.loaded, 1)),
        }
