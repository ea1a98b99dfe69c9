"""Records who did what: a line before each action, and one with the result after it."""

import errno
import json
import os
import time
from datetime import UTC, datetime
from pathlib import Path

import trio

from disque_trio.disk import has_moved, sync_directory
from disque_trio.process.logs import Log


class Audit:
    """The audit lines of the console. If the file was renamed or removed, as logrotate does, a new
    one is begun before the next line.

    Args:
        path: file to append to; if empty, the lines go to the log.

    Raises:
        OSError: the file cannot be opened.
    """

    def __init__(self, path: str, log: Log) -> None:
        self._log = log
        self._path = os.path.abspath(path)
        self._file: int | None = _opened(self._path) if path else None
        # Whether the last line may have been written in part.
        self._half = self._file is not None and not _ends_with_a_line(self._file)
        self._lock = trio.Lock()

    async def write(self, event: str, **fields: object) -> None:
        """Write a line and sync it to disk.

        Raises:
            OSError: it cannot be written.
        """
        if self._file is None:
            self._log.notice(event, **fields)
            return
        moment = datetime.fromtimestamp(time.time(), UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"time": moment, "event": event, **fields}, default=str) + "\n"
        async with self._lock:
            await trio.to_thread.run_sync(self._append, line.encode())

    async def reopen(self) -> None:
        """If the file has been moved away, begin a new one now; the log tells if that fails."""
        if self._file is None:
            return
        async with self._lock:
            try:
                await trio.to_thread.run_sync(self._current)
            except OSError as error:
                self._log.warning("cannot open the audit file", file=self._path, error=str(error))

    async def note(self, event: str, **fields: object) -> None:
        """Like ``write``, for what is over or refused anyway: if the line cannot be written, it
        goes to the log."""
        try:
            await self.write(event, **fields)
        except OSError as error:
            line = {"event": event, **fields}
            self._log.warning("cannot write the audit", error=str(error), line=line)

    async def action(self, **fields: object) -> None:
        """Write the line of an action, whose ``result`` is one of the fields.

        Raises:
            OSError: the result is "asked", and the line cannot be written. Then the action must not
                be carried out.
        """
        write = self.write if fields["result"] == "asked" else self.note
        await write("action", **fields)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)

    def _current(self) -> int:
        """The file at the path, opened again if it is another one now. Raises ``OSError``."""
        assert self._file is not None
        if has_moved(self._file, self._path):
            fresh = _opened(self._path)
            os.close(self._file)
            self._file = fresh
            self._half = not _ends_with_a_line(fresh)
        return self._file

    def _append(self, line: bytes) -> None:
        file = self._current()
        rest = b"\n" + line if self._half else line
        self._half = True
        while rest:
            rest = rest[os.write(file, rest) :]
        try:
            os.fsync(file)
        except OSError as error:
            if error.errno != errno.EINVAL:  # a pipe or a terminal
                raise
        self._half = False


def _opened(path: str) -> int:
    """Open the file at ``path`` to append to it; a new one survives a crash. Raises ``OSError``."""
    new = not Path(path).exists()
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o640)
    if new:
        sync_directory(Path(path).parent)
    return descriptor


def _ends_with_a_line(file: int) -> bool:
    size = os.fstat(file).st_size  # 0 for a pipe or a terminal
    return size == 0 or os.pread(file, 1, size - 1) == b"\n"
