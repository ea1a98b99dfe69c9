"""Looks in the append-only file for jobs whose page file cannot be read.

The append-only file may be large, and files rarely get lost alone. So one pass over it finds what
all unreadable files had: the jobs of one of them are returned, and those of each of the others are
kept in a file of their own, until somebody wants them.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from struct import Struct
from typing import Final
from zlib import crc32

from disque_trio.aof.format import AofError, RecordReader
from disque_trio.node.core.pages.pages import Pages
from disque_trio.node.core.pages.segment import DamagedError, Segment
from disque_trio.protocol.serialjob import SerialJobError, decode_job

ENDING: Final = ".found"
GATHERED_BYTES: Final = 32 << 20  # of jobs, before they go to their files
_RECORD: Final = Struct("<III")  # the place, the length and the checksum of the serialised job


class LostPages:
    """Finds jobs in the append-only file. Its methods may be called in a thread, one at a time.

    Args:
        pages: what is on disk.
        path: the page file with a number.
        aof: the append-only file.
    """

    def __init__(self, pages: Pages, path: Callable[[int], Path], aof: Callable[[], Path]) -> None:
        self._pages = pages
        self._path = path
        self._aof = aof
        self._kept: set[int] = set()  # numbers of those whose jobs were found before

    def find(self, number: int) -> dict[int, bytes]:
        """The serialised jobs of the segment ``number``, by place, as far as the append-only file
        can be read: its last record may not be complete yet.

        Raises:
            OSError: it cannot be opened, for now.
        """
        if number in self._kept:
            found = self._read_kept(number)
            self.drop(number)
            if found is not None:
                return found
        others = {segment.number for segment in self._others(number) if not self._whole(segment)}
        found = {}
        gathered: dict[int, bytearray] = {}
        size = 0
        for job in self._records():
            with suppress(SerialJobError):
                for segment, place in self._pages.located(decode_job(job).id):
                    if segment == number:
                        found[place] = job  # the last one: a job may have been changed
                    elif segment in others:
                        kept = gathered.setdefault(segment, bytearray())
                        kept += _RECORD.pack(place, len(job), crc32(job)) + job
                        size += len(job)
            if size > GATHERED_BYTES:
                others -= self._keep(gathered)
                size = 0
        self._keep(gathered)
        return found

    def drop(self, number: int) -> None:
        """Forget what was found of the segment ``number``."""
        if number in self._kept:
            self._kept.discard(number)
            with suppress(OSError):
                self._file(number).unlink(missing_ok=True)

    def _file(self, number: int) -> Path:
        return self._path(number).with_suffix(ENDING)

    def _others(self, number: int) -> list[Segment]:
        """The other segments that are in files only."""
        return [
            segment
            for segment in list(self._pages.segments.values())
            if segment.data is None
            and segment.number != number
            and segment.number not in self._kept
        ]

    def _whole(self, segment: Segment) -> bool:
        """Whether the file of ``segment`` can be read, or may be later."""
        try:
            segment.read_all(self._path(segment.number).read_bytes())
        except (FileNotFoundError, DamagedError):
            # It may have gone because its jobs have: then none of them will be found.
            return False
        except OSError:
            return True
        return True

    def _records(self) -> Iterator[bytes]:
        """The serialised jobs in the append-only file, as far as it can be read."""
        with (
            suppress(FileNotFoundError),
            self._aof().open("rb", buffering=0) as file,
            suppress(OSError, AofError),
        ):
            for record in RecordReader(file):
                if len(record) == 2 and record[0].upper() == b"LOADJOB":
                    yield record[1]

    def _keep(self, gathered: dict[int, bytearray]) -> set[int]:
        """Write what was ``gathered`` of segments behind what their files have. Return the numbers
        of those for which there is no room: they are looked for again."""
        failed: set[int] = set()
        for number, jobs in gathered.items():
            try:
                with self._file(number).open("ab" if number in self._kept else "wb") as file:
                    file.write(jobs)
                self._kept.add(number)
            except OSError:
                self.drop(number)
                failed.add(number)
        gathered.clear()
        return failed

    def _read_kept(self, number: int) -> dict[int, bytes] | None:
        """What was found of the segment ``number``; None: that cannot be read."""
        found: dict[int, bytes] = {}
        at = 0
        try:
            data = self._file(number).read_bytes()
        except OSError:
            return None
        while at < len(data):
            if at + _RECORD.size > len(data):
                return None
            place, size, checksum = _RECORD.unpack_from(data, at)
            at += _RECORD.size
            job = data[at : at + size]
            if crc32(job) != checksum:
                return None
            found[place] = job
            at += size
        return found
