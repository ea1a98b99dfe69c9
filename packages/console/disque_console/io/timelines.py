"""Reads the history of a job from event logs, in a thread and with limits."""

import gzip
import os
import time
import zlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Final, cast

import trio

from disque_console.model.life import Life, LifeEvent, files_of, read_event
from disque_trio import humanize

NEAR: Final = 16 << 20  # bytes read for a page
FAR: Final = 512 << 20  # bytes read when asked to search further
SECONDS: Final = 10.0  # time limit
NAMES: Final = 200_000  # files of a directory to look at
EVENTS: Final = 1_000  # lines of a job
_CHUNK: Final = 1 << 20
_LINE: Final = 4 << 20  # bytes: longer lines are split


class Timelines:
    """Event logs of nodes.

    Args:
        directory: where they are.
    """

    def __init__(self, directory: str) -> None:
        self._directory = Path(directory)
        self._limiter = trio.CapacityLimiter(2)

    async def of(self, id: str, since: float | None, limit: int = NEAR) -> Life:
        """The history of a job created at ``since`` (s); None if that is unknown.

        Args:
            limit: bytes of lines to read.
        """
        return await trio.to_thread.run_sync(
            self._read, id, since, limit, limiter=self._limiter, abandon_on_cancel=True
        )

    def _read(self, id: str, since: float | None, limit: int) -> Life:
        life = Life([])
        try:
            with os.scandir(self._directory) as entries:
                names = [entry.name for entry in islice(entries, NAMES) if entry.is_file()]
        except OSError as error:
            life.problem = f"{self._directory}: {error.strerror or error}"
            return life
        until = time.monotonic() + SECONDS
        files = files_of(names, since)
        for at, name in enumerate(files):
            if not life.stopped:
                life.stopped = self._search(name, id, life, limit, until)
            if life.stopped:
                life.left = len(files) - at
                break
        life.events.sort(key=lambda event: event.time)
        return life

    def _search(self, name: str, id: str, life: Life, limit: int, until: float) -> str:
        """Search a file. Returns why it was not read to the end; empty if it was."""
        try:
            with _open(self._directory / name) as file:
                life.files += 1
                for lines in _blocks(file):
                    life.size += len(lines)
                    life.events += _events(lines, id)
                    if len(life.events) >= EVENTS:
                        return f"after {humanize.counted(EVENTS, 'event')}"
                    if life.size >= limit:
                        return f"after {humanize.size(limit)}"
                    if time.monotonic() > until:
                        return f"after {humanize.duration(SECONDS)}"
        except (OSError, EOFError, zlib.error) as error:
            if not isinstance(error, FileNotFoundError):  # else it was closed or removed
                life.problem = f"{name}: {error}"
        return ""


def _open(path: Path) -> BinaryIO:
    """Open a file, even if it was renamed or compressed meanwhile. Raises OSError."""
    plain = path.with_name(path.name.removesuffix(".open").removesuffix(".gz"))
    packed = plain.with_name(plain.name + ".gz")
    for found in (path, plain, packed):
        try:
            return cast("BinaryIO", gzip.open(found)) if found == packed else found.open("rb")
        except FileNotFoundError:
            continue
    raise FileNotFoundError(path)


def _blocks(file: BinaryIO) -> Iterator[bytes]:
    """Whole lines, many at a time."""
    rest = b""
    while chunk := file.read(_CHUNK):
        whole, end, after = chunk.rpartition(b"\n")
        if end:
            yield rest + whole + end
            rest = after
        else:
            rest += chunk
            if len(rest) > _LINE:
                yield rest  # not an event line; neither is the rest of it
                rest = b""
    yield rest


def _events(lines: bytes, id: str) -> list[LifeEvent]:
    """The events of a job. Only lines that contain its id are parsed."""
    found = []
    needle = id.encode()
    at = lines.find(needle)
    while at >= 0:
        begin = lines.rfind(b"\n", 0, at) + 1
        end = lines.find(b"\n", at)
        end = len(lines) if end < 0 else end
        event = read_event(lines[begin:end], id)
        if event is not None:
            found.append(event)
        at = lines.find(needle, end)
    return found
