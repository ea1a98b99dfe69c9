"""Keeps what charts show in a file, so that it survives a restart of the console."""

import fcntl
import os
import time
from collections.abc import Callable, Set
from pathlib import Path
from typing import Final

import trio

from disque_trio.disk import replace_file, sync_directory
from disque_trio.overview.histories import Histories
from disque_trio.process.logs import Log

NAME: Final = "charts"
ASIDE: Final = "charts.aside"
EACH: Final = 60.0  # least s between two writes
RATE: Final = 65_536  # most bytes written in a second, on average
LARGEST: Final = 512 << 20  # bytes of a file that is read


class HistoryFile:
    """The file ``charts`` in a directory, which belongs to one console at a time.

    Args:
        directory: created if it does not exist; empty: nothing is kept.
        log: says what cannot be read or written; a console serves all the same.

    Attributes:
        histories: those in the file, or new ones.
        problem: why nothing is kept now; empty if it is, or need not be.
    """

    def __init__(self, directory: str, log: Log) -> None:
        self.histories = Histories()
        self.problem = ""
        self._log = log
        self._path = Path(directory, NAME) if directory else None
        self._lock: int | None = None
        self._size = 0
        if self._path is not None:
            try:
                self._path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
                self._lock = _locked(self._path.with_suffix(".lock"))
            except BlockingIOError:
                self._cannot("another console uses the directory")
            except OSError as error:
                self._cannot(error.strerror or str(error))
            else:
                self._read(self._path)

    @property
    def kept(self) -> bool:
        """Whether charts survive a restart."""
        return self._lock is not None

    async def run(self, ids: Callable[[], Set[str]]) -> None:
        """Write again and again, forever. ``ids`` returns those of the nodes of the cluster, as far
        as they are known."""
        while True:
            await trio.sleep(max(EACH, self._size / RATE))
            self.histories.drop_old(time.time())
            await self.write(ids())

    async def write(self, ids: Set[str]) -> None:
        """Write the file, if there is one; the log tells if that fails. ``ids``: of the nodes of
        the cluster; if none of them was in it when the file was written, it is left aside."""
        self._compare(ids)
        if self._path is None or self._lock is None:
            return
        parts = []
        for part in self.histories.pack(time.time()):
            parts.append(part)
            await trio.lowlevel.checkpoint()
        data = b"".join(parts)
        try:
            await trio.to_thread.run_sync(replace_file, str(self._path), data)
        except OSError as error:
            self._cannot(error.strerror or str(error))
        else:
            self.problem, self._size = "", len(data)

    def close(self) -> None:
        """Let another console use the directory."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _compare(self, ids: Set[str]) -> None:
        known = self.histories.nodes
        if not ids:
            return
        if known and not known & ids:
            self.histories.clear()
            self._leave_aside("it is of another cluster")
        self.histories.nodes = ids

    def _read(self, path: Path) -> None:
        try:
            if path.stat().st_size > LARGEST:
                raise ValueError("it is too large")
            data = path.read_bytes()
            self.histories = Histories.unpack(data)
            self._size = len(data)
        except FileNotFoundError:
            pass
        except OSError as error:
            self._leave_aside(error.strerror or str(error))
        except ValueError as error:
            self._leave_aside(str(error))

    def _leave_aside(self, why: str) -> None:
        assert self._path is not None
        aside = self._path.with_name(ASIDE)
        self._log.warning("charts begin again", file=str(self._path), why=why, aside=str(aside))
        try:
            self._path.replace(aside)
            sync_directory(aside.parent)
        except FileNotFoundError:
            pass
        except OSError as error:
            self._cannot(error.strerror or str(error))

    def _cannot(self, why: str) -> None:
        if why != self.problem:
            self._log.warning("charts are not kept", file=str(self._path), why=why)
        self.problem = why


def _locked(path: Path) -> int:
    """A descriptor of a file that only this process has locked. Raises OSError; BlockingIOError if
    another one has."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
