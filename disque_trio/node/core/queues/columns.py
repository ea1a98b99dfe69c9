"""Collects jobs that go to disk, and makes the file of a segment of them."""

from array import array
from typing import TYPE_CHECKING, Final
from zlib import crc32

from disque_trio.node.core.jobs.job import Job
from disque_trio.node.core.pages.segment import (
    CHECKSUM,
    CTIME,
    LONG,
    NUMBERS,
    QTIME,
    ROW,
    Segment,
)
from disque_trio.protocol.serialjob import ID_LENGTH

if TYPE_CHECKING:
    from mypy_extensions import i64

_crc32: Final = crc32  # compiled, an imported name costs a look-up at each use


class Columns:
    """What the file of a segment has of its jobs, while they are collected.

    Attributes:
        ids, wholes, checksums: the jobs' ids, their bodies with the trailers, the checksums of the
            ids. size: bytes of the bodies.
    """

    __slots__ = (
        "_ctimes",
        "_delay",
        "_ends",
        "_expiry",
        "_kind",
        "_qtimes",
        "_retry",
        "_runs",
        "checksums",
        "ids",
        "size",
        "wholes",
    )

    def __init__(self) -> None:
        self.ids: list[bytes] = []
        self.wholes: list[bytes] = []
        self.checksums: list[int] = []
        self.size: i64 = 0
        self._ends = [0]
        self._ctimes: list[int] = []
        self._qtimes: list[int] = []
        self._runs: list[int] = []
        # The numbers of the last run.
        self._expiry: i64 = -1
        self._retry: i64 = 0
        self._delay: i64 = 0
        self._kind: i64 = 0

    def add(self, job: Job, flags: int, whole: bytes) -> int:
        """Add ``job`` with these ``flags``, whose body and trailer are ``whole``. Return the
        checksum of its id."""
        low: i64 = flags
        kind: i64 = int(job.state) << 8 | low
        expiry: i64 = job.etime << 16 | int(job.repl)
        retry: i64 = job.retry << 16 | int(job.nacks)
        delay: i64 = job.delay << 16 | int(job.deliveries)
        if (
            expiry != self._expiry
            or retry != self._retry
            or delay != self._delay
            or kind != self._kind
        ):
            self._runs += [len(self.ids), int(expiry), int(retry), int(delay), int(kind)]
            self._expiry = expiry
            self._retry = retry
            self._delay = delay
            self._kind = kind
        id = job.id
        checksum: int = _crc32(id)
        self.ids.append(id)
        self.wholes.append(whole)
        self.checksums.append(checksum)
        self.size += len(whole)
        self._ends.append(self.size)
        self._ctimes.append(job.ctime)
        self._qtimes.append(job.qtime)
        return checksum

    def fill(self, segment: Segment) -> bytes:
        """Give the jobs to ``segment``; return the bytes of its file."""
        count = len(self.ids)
        segment.live = count
        segment.bits = bytearray(b"\xff" * (count + 7 >> 3))
        rows = array(LONG, bytes(ROW * count))
        rows[CTIME::NUMBERS] = array(LONG, self._ctimes)
        rows[QTIME::NUMBERS] = array(LONG, self._qtimes)
        rows[CHECKSUM::NUMBERS] = array(LONG, self.checksums)
        data = b"".join([*self.wholes, *self.ids, rows])
        return segment.finish(data, self._ends, array(LONG, self._runs).tobytes())

    def are_of(self, node: bytes) -> bool:
        """Whether ``node`` made all the jobs (see ``is_maker``)."""
        ids = b"".join(self.ids)
        count = len(self.ids)
        return all(ids[at + 2 :: ID_LENGTH] == node[at : at + 1] * count for at in range(8))
