"""Writes down who did what: a line before an action, and one behind it with what came of it."""

import json
import os
import time
from datetime import UTC, datetime
from typing import IO

import trio

from disque_trio.process.logs import Log


class Audit:
    """The audit lines of the console.

    Args:
        path: file to append to; empty: the lines are in the log.

    Raises:
        OSError: the file cannot be opened.
    """

    def __init__(self, path: str, log: Log) -> None:
        self._log = log
        self._path = path
        self._file: IO[str] | None = None
        if path:
            descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o640)
            self._file = os.fdopen(descriptor, "a", encoding="utf-8")
        self._lock = trio.Lock()

    async def write(self, event: str, **fields: object) -> None:
        """Write a line; it is in the file when this returns.

        Raises:
            OSError: it cannot be written.
        """
        if self._file is None:
            self._log.notice(event, **fields)
            return
        moment = datetime.fromtimestamp(time.time(), UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"time": moment, "event": event, **fields}, default=str) + "\n"
        async with self._lock:
            await trio.to_thread.run_sync(self._append, line)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def _append(self, line: str) -> None:
        assert self._file is not None
        self._file.write(line)
        self._file.flush()
