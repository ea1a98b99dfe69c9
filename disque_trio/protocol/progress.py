"""The progress file of a node: bytes <-> values.

It lies beside the append-only file, which says what jobs there are but not what became of them
since they were added: which are in a client's hands, which pause, how often they were delivered,
how jobs have ended. It is a magic word and then blocks: the length of the content (u32,
little-endian, like all numbers here), its CRC-32 (u32), and records one after the other. Losing
it, or its end, costs no job, only this knowledge.

Most blocks only say that clients got jobs. These have bit 31 set in the length, which is that of
the ids; the CRC-32 is that of the length and the time (i64, ms), which follows, and then the ids
come. These need no checksum, which would cost more than all else that is done to write them: their
form shows whether they are ids, and one that is wrong is that of no job.
"""

import os
import zlib
from collections.abc import Iterator
from struct import Struct
from typing import BinaryIO, Final

from disque_trio.protocol.fields import (
    Field,
    FieldsError,
    number_of,
    pack_fields,
    pack_number,
    unpack_fields,
)
from disque_trio.protocol.serialjob import ID_LENGTH, is_job_id
from disque_trio.protocol.trailer import ENDING_NAMES, pack_attempts, unpack_attempts

MAGIC: Final = b"DISQUE-PROGRESS-2\n"
_MAGICS: Final = (MAGIC, b"DISQUE-PROGRESS-1\n")  # the older one has TAKEN instead of such blocks

BLOCK_BYTES: Final = 1 << 20  # of records in a block, unless a single one has more
_PIECE: Final = 1 << 18  # bytes to read at a time

# Types of records. Unknown ones are skipped: a later version may have more.
RUN: Final = 1  # a process begins, or changes a setting
TAKEN: Final = 2  # clients got jobs; no longer written
JOB: Final = 3  # what is known of a job
ENDING: Final = 4  # how a job ended
STOPPED: Final = 5  # the process stopped; nothing has happened since
TIME: Final = 6  # when the records of jobs that follow were made

_BLOCK: Final = Struct("<II")
_TAKEN: Final = 1 << 31  # in the length of a block that says that clients got jobs
_TAKEN_HEAD: Final = Struct("<Iq")  # of such a block: the length, the time
_TAKEN_TOGETHER: Final = _PIECE // ID_LENGTH * ID_LENGTH  # bytes of ids to read at a time
_CHECKSUM: Final = Struct("<I")
_RECORD: Final = Struct("<BI")  # type, length of the rest
_JOB: Final = Struct("<40sBHqqHH")
_ENDING: Final = Struct("<40sBBq")
_TIME: Final = Struct("<q")
_ROW: Final = _JOB.size + _TIME.size  # bytes of a job in ``KnownJobs``
_TAKEN_AT: Final = 51  # where in a record of a job it says when a client got it
_IN_A_BUCKET: Final = 8  # jobs

# Compiled, an imported name costs a look-up at each use, and so does a method.
_crc32: Final = zlib.crc32
_unpack_job: Final = _JOB.unpack_from
_unpack_time: Final = _TIME.unpack_from
_pack_time: Final = _TIME.pack

_MAX_TIME: Final = 2**48  # ms since the epoch
_ACTIVE: Final = 1  # the state of a job that a client has

# In the flags of a job.
WAITING: Final = 1 << 15  # it is not queued, although no client has it
SOON: Final = 1 << 14  # the connection of the client that has it is gone: it comes back soon

# Types of fields, in the records of jobs and of processes.
_REASON: Final = 1
_ATTEMPTS: Final = 2
_BOOT: Final = 1
_SYNCED: Final = 2


class ProgressError(ValueError):
    """The bytes are not a progress file; the text says why."""


class Run:
    """A process that keeps the file, as of a moment.

    Attributes:
        boot: names the start of the machine.
        synced: whether nothing is confirmed before it is on disk (appendfsync always).
    """

    __slots__ = ("boot", "synced")

    def __init__(self, boot: bytes, synced: bool) -> None:
        self.boot = boot
        self.synced = synced


class JobProgress:
    """What is known of a job besides what the append-only file says.

    Attributes:
        state: ACTIVE or QUEUED.
        flags: FLAG_* bits of ``node.core.jobs.job``, ``WAITING`` and ``SOON``.
        qtime: when it is queued again, in ms since the epoch; 0: never, or not known.
        taken: when a client got it, or said that it still works on it, in ms since the epoch; 0:
            no client has it.
        nacks, deliveries: as in the job.
        reason, attempts: as in its trailer.
        noted: when that was so, in ms since the epoch; 0: not known.
    """

    __slots__ = (
        "attempts",
        "deliveries",
        "flags",
        "nacks",
        "noted",
        "qtime",
        "reason",
        "state",
        "taken",
    )

    def __init__(
        self,
        state: int,
        flags: int,
        qtime: int,
        taken: int,
        nacks: int,
        deliveries: int,
        reason: bytes = b"",
        attempts: dict[bytes, int] | None = None,
    ) -> None:
        self.state = state
        self.flags = flags
        self.qtime = qtime
        self.taken = taken
        self.nacks = nacks
        self.deliveries = deliveries
        self.reason = reason
        self.attempts = attempts or {}
        self.noted = 0


class JobEnding:
    """How a job ended.

    Attributes:
        id: of the job.
        kind: as in ``trailer.Ending``.
        until: how long to remember it, in ms since the epoch.
        result: of the worker; None: it returned nothing.
    """

    __slots__ = ("id", "kind", "result", "until")

    def __init__(self, id: bytes, kind: int, until: int, result: bytes | None) -> None:
        self.id = id
        self.kind = kind
        self.until = until
        self.result = result


class KnownJobs:
    """What a progress file says of jobs, by their ids: in some 80 bytes a job, because after a
    start it can tell of more than memory holds, nearly all of which lie on disk.

    The jobs are in many buckets by the checksums of their ids. A bucket has a row for each: its
    record without fields, and when it was made.

    Args:
        expected: about how many there will be.
    """

    def __init__(self, expected: int = 0) -> None:
        bits = (expected // _IN_A_BUCKET).bit_length()
        self._shift = 32 - bits
        self._buckets: list[bytearray | None] = [None] * (1 << bits)
        self._fields: dict[bytes, bytes] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[bytes]:
        for bucket in self._buckets:
            if bucket is not None:
                for at in range(0, len(bucket), _ROW):
                    yield bytes(bucket[at : at + ID_LENGTH])

    def __getitem__(self, id: bytes) -> JobProgress:
        found = self.get(id)
        if found is None:
            raise KeyError(id)
        return found

    def get(self, id: bytes) -> JobProgress | None:
        """What is known of the job ``id``; None: nothing is."""
        bucket = self._buckets[_crc32(id) >> self._shift]
        at = -1 if bucket is None else _row_of(bucket, id)
        if bucket is None or at < 0:
            return None
        _, state, flags, qtime, taken, nacks, deliveries = _unpack_job(bucket, at)
        job = JobProgress(state, flags, _time(qtime), _time(taken), nacks, deliveries)
        job.noted = _unpack_time(bucket, at + _JOB.size)[0]
        fields = self._fields.get(id) if self._fields else None
        if fields is not None:
            for field, value in unpack_fields(fields):
                if field == _REASON:
                    job.reason = value
                elif field == _ATTEMPTS:
                    job.attempts = unpack_attempts(value)
        return job

    def put(self, id: bytes, record: bytes, noted: int) -> None:
        """Note the content of the ``record`` of the job ``id``, made at ``noted`` (ms). Raises
        ``FieldsError``."""
        if len(record) > _JOB.size:
            fields = self._fields[id] = record[_JOB.size :]
            for field, value in unpack_fields(fields):
                if field == _ATTEMPTS:
                    unpack_attempts(value)
        elif self._fields:
            self._fields.pop(id, None)
        self._put(id, record[: _JOB.size] + _pack_time(noted))

    def take(self, id: bytes, taken: int) -> None:
        """Note that a client got the job ``id`` at ``taken`` (ms)."""
        bucket = self._buckets[_crc32(id) >> self._shift]
        at = -1 if bucket is None else _row_of(bucket, id)
        if bucket is None or at < 0:
            self._put(id, _JOB.pack(id, _ACTIVE, 0, 0, taken, 0, 0) + _pack_time(0))
        else:
            bucket[at + ID_LENGTH] = _ACTIVE
            _TIME.pack_into(bucket, at + _TAKEN_AT, taken)

    def _put(self, id: bytes, row: bytes) -> None:
        number = _crc32(id) >> self._shift
        bucket = self._buckets[number]
        at = -1
        if bucket is None:
            bucket = self._buckets[number] = bytearray()
        else:
            at = _row_of(bucket, id)
        if at < 0:
            bucket += row
            self._count += 1
        else:
            bucket[at : at + _ROW] = row


def _row_of(bucket: bytearray, id: bytes) -> int:
    """Where the row of the job ``id`` begins in ``bucket``; -1: it has none."""
    at = bucket.find(id)
    while at >= 0 and at % _ROW:
        at = bucket.find(id, at + 1)
    return at


# ---- writing -----------------------------------------------------------------------------------


def pack_block(records: list[bytes]) -> bytes:
    """A block of ``records``."""
    content = b"".join(records)
    return _BLOCK.pack(len(content), zlib.crc32(content)) + content


def pack_blocks(records: list[bytes]) -> Iterator[bytes]:
    """Blocks of ``records``, so small that whoever reads the file needs little memory."""
    few: list[bytes] = []
    size = 0
    for record in records:
        if few and size + len(record) > BLOCK_BYTES:
            yield pack_block(few)
            few = []
            size = 0
        few.append(record)
        size += len(record)
    if few:
        yield pack_block(few)


def pack_run(run: Run) -> bytes:
    """The record of ``run``."""
    fields: list[Field] = [(_BOOT, run.boot), (_SYNCED, pack_number(run.synced))]
    return _record(RUN, pack_fields(fields))


def pack_taken(ids: list[bytes], now: int) -> bytes:
    """The block that says that clients got the jobs ``ids`` at ``now`` (ms)."""
    head = _TAKEN_HEAD.pack(_TAKEN + ID_LENGTH * len(ids), now)
    checksum = _CHECKSUM.pack(zlib.crc32(head))
    return b"%b%b%b%b" % (head[:4], checksum, head[4:], b"".join(ids))


def pack_time(now: int) -> bytes:
    """The record that those of jobs which follow are made at ``now`` (ms)."""
    return _record(TIME, _TIME.pack(now))


def pack_job(id: bytes, job: JobProgress) -> bytes:
    """The record of the job ``id``."""
    head = _JOB.pack(id, job.state, job.flags, job.qtime, job.taken, job.nacks, job.deliveries)
    if not (job.reason or job.attempts):
        return _record(JOB, head)
    fields: list[Field] = []
    if job.reason:
        fields.append((_REASON, job.reason))
    if job.attempts:
        fields.append((_ATTEMPTS, pack_attempts(job.attempts)))
    return _record(JOB, head + pack_fields(fields))


def pack_ending(ending: JobEnding) -> bytes:
    """The record of ``ending``."""
    result = ending.result
    head = _ENDING.pack(ending.id, ending.kind, result is not None, ending.until)
    return _record(ENDING, head + (result or b""))


def pack_stopped(file_size: int) -> bytes:
    """The last record of a process that stopped when the append-only file had this size."""
    return _record(STOPPED, _TIME.pack(file_size))


def _record(type: int, content: bytes) -> bytes:
    return _RECORD.pack(type, len(content)) + content


# ---- reading -----------------------------------------------------------------------------------


class ProgressReader:
    """What a progress file says in the end.

    Attributes:
        run: the last one; None: there is none.
        jobs: by id.
        endings: by job id.
        stopped_at: the size of the append-only file when the process stopped; -1: it was killed.
        cut: bytes at the end that are not a good block.
    """

    def __init__(self) -> None:
        self.run: Run | None = None
        self.jobs = KnownJobs()
        self.endings: dict[bytes, JobEnding] = {}
        self.stopped_at = -1
        self.cut = 0
        self._noted = 0  # the time of the last TIME

    def read(self, file: BinaryIO) -> None:
        """Read the whole ``file``, block by block, up to the first that is not good.

        Raises:
            ProgressError: it is not a progress file, or a good block contains nonsense.
            OSError: it cannot be read.
        """
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        self.jobs = KnownJobs(size // _ROW)
        if file.read(len(MAGIC)) not in _MAGICS:
            raise ProgressError("it does not begin like a progress file")
        at = len(MAGIC)
        while at + _BLOCK.size <= size:
            head = file.read(_BLOCK.size)
            length, checksum = _BLOCK.unpack(head)
            start = at + _BLOCK.size
            if length & _TAKEN:
                length = length - _TAKEN + _TIME.size
                if start + length > size:
                    break
                time = file.read(_TIME.size)
                if zlib.crc32(head[:4] + time) != checksum or not self._read_ids(
                    file, length - _TIME.size, _time(_TIME.unpack(time)[0])
                ):
                    break
                at = start + length
                continue
            if not length or start + length > size or _checksum(file, length) != checksum:
                break
            file.seek(start)
            try:
                self._read_records(file.read(length))
            except FieldsError as problem:
                raise ProgressError(f"at offset {at}: {problem}") from problem
            at = start + length
        self.cut = size - at

    def _read_records(self, content: bytes) -> None:
        """Read the records of a block. Raises ``FieldsError``, ``ProgressError``."""
        at = 0
        while at < len(content):
            start = at + _RECORD.size
            if start > len(content):
                raise ProgressError("a record ends in its head")
            type, length = _RECORD.unpack_from(content, at)
            at = start + length
            if at > len(content):
                raise ProgressError("a record goes past the end of its block")
            self._read_record(type, content[start:at])

    def _read_record(self, type: int, data: bytes) -> None:
        """Read one record. Raises ``FieldsError``, ``ProgressError``."""
        if type != RUN:
            self.stopped_at = -1
        if type == TAKEN:
            self._read_taken(data)
        elif type == JOB:
            self._read_job(data)
        elif type == TIME:
            if len(data) != _TIME.size:
                raise ProgressError("a time that is not one")
            self._noted = _time(_TIME.unpack(data)[0])
        elif type == ENDING:
            self._read_ending(data)
        elif type == RUN:
            fields = unpack_fields(data)
            boot = b"".join([value for field, value in fields if field == _BOOT])
            self.run = Run(boot, number_of(fields, _SYNCED) != 0)
        elif type == STOPPED:
            if len(data) != _TIME.size:
                raise ProgressError("an end that is not one")
            self.stopped_at = _TIME.unpack(data)[0]

    def _read_job(self, data: bytes) -> None:
        """Read the notes about a job. Raises ``FieldsError``, ``ProgressError``."""
        if len(data) < _JOB.size:
            raise ProgressError("a job is too short")
        self.jobs.put(data[:ID_LENGTH], data, self._noted)

    def _read_ending(self, data: bytes) -> None:
        """Read how a job ended. Raises ``ProgressError``."""
        if len(data) < _ENDING.size:
            raise ProgressError("an ending is too short")
        id, kind, has_result, until = _ENDING.unpack_from(data)
        result = data[_ENDING.size :] if has_result else None
        if 0 < kind < len(ENDING_NAMES):  # a newer release may know others
            self.endings[id] = JobEnding(id, kind, min(until, _MAX_TIME), result)

    def _read_taken(self, data: bytes) -> None:
        """Read that clients got jobs. Raises ``ProgressError``."""
        if len(data) < _TIME.size or (len(data) - _TIME.size) % ID_LENGTH:
            raise ProgressError("a list of ids that is not one")
        taken = _time(_TIME.unpack_from(data)[0])
        for at in range(_TIME.size, len(data), ID_LENGTH):
            self.jobs.take(data[at : at + ID_LENGTH], taken)

    def _read_ids(self, file: BinaryIO, length: int, taken: int) -> bool:
        """Read that clients got jobs at ``taken``: their ids are the next ``length`` bytes of
        ``file``. Return whether all of them are ids."""
        self.stopped_at = -1
        while length:
            data = file.read(length if length < _TAKEN_TOGETHER else _TAKEN_TOGETHER)
            if not data:
                return False
            for at in range(0, len(data), ID_LENGTH):
                id = data[at : at + ID_LENGTH]
                if not is_job_id(id):
                    return False
                self.jobs.take(id, taken)
            length -= len(data)
        return True


def _time(found: int) -> int:
    """The time ``found`` in a record, or 0, which stands for none, if it cannot be one."""
    return found if 0 < found <= _MAX_TIME else 0


def _checksum(file: BinaryIO, length: int) -> int:
    """The CRC-32 of the next ``length`` bytes of ``file``; -1: there are fewer."""
    # In pieces: the length of a torn block may be anything.
    checksum = 0
    while length > 0:
        piece = file.read(min(length, _PIECE))
        if not piece:
            return -1
        checksum = zlib.crc32(piece, checksum)
        length -= len(piece)
    return checksum
