"""Finds the good and the damaged parts of an append-only file.

Searches for good records behind damage. Reads the file once, in chunks, and holds no more than a
chunk, one record and the hashes of queue names.

Rule 1: a record is good if its frame is complete and its contents can be loaded: LOADJOB with a
        serialised job, DELJOB with ids, PAUSE with a queue and a state, UNIQUE with a key and a
        job.
Rule 2: the inside of a good record is never searched: a body may contain the text of a record.
Rule 3: a record that is bad although its frame and the length inside its job agree is given up
        alone. After any other bad record, nobody knows where the next one begins. So the bytes that
        begin a record are searched for, until there is a good one.

Nearly all records have the usual form, which one regular expression and a few numbers recognise;
this is twice as fast as reading and decoding them. All others, good or bad, are parsed carefully.
"""

import re
from collections.abc import Callable, Iterator
from struct import Struct
from typing import BinaryIO, NamedTuple

from disque_trio.aof.checksums import CheckedFile, Mark, Sums
from disque_trio.aof.format import CHUNK, AofError, RecordReader, describe
from disque_trio.protocol.keyrecord import read_key
from disque_trio.protocol.serialjob import (
    NODE_ID_LENGTH,
    SerialJob,
    SerialJobError,
    decode_job,
    is_job_id,
    read_pause,
)
from disque_trio.protocol.trailer import FLAG_TRAILER, Trailer, split_body

MAX_QUEUES = 250_000  # distinct ones to count; more are reported as this many

# A record as nodes write it, up to the state of the job, or to its end for DELJOB.
_ID = rb"D-.{8}-.{24}-.{4}"
_STATES = b"".join(b"\\x%x%x" % (gc, state) for gc in range(16) for state in range(4))
_RECORD = re.compile(
    rb"\*2\r\n(?:\$7\r\nLOADJOB\r\n\$([1-9][0-9]{0,9})\r\n.{4}%b[%b]|\$6\r\nDELJOB\r\n\$40\r\n%b\r\n)"
    % (_ID, _STATES, _ID),
    re.DOTALL,
)
_PAUSE = b"*3\r\n$5\r\nPAUSE\r\n$"
_UNIQUE = b"*6\r\n$6\r\nUNIQUE\r\n$"
_MARKER = re.compile(
    rb"\*2\r\n\$(?:7\r\nLOADJOB\r\n\$|6\r\nDELJOB\r\n\$40\r\n)|%b|%b"
    % (re.escape(_PAUSE), re.escape(_UNIQUE))
)
_LONGEST_MARKER = 21
_LENGTH_AND_QUEUE = Struct("<I68xI")
_U32 = Struct("<I")
_HEAD = _LENGTH_AND_QUEUE.size
_FLAGS_AT = 45  # in a serialised job
_NEAR = 4096  # bytes to read at once when looking at a single record

_LOADJOB_HEAD = re.compile(rb"\*2\r\n\$7\r\nLOADJOB\r\n\$([0-9]{1,10})\r\n")


class Stretch(NamedTuple):
    """The bytes from ``start`` up to ``end``: good records, or damage if ``error`` is set."""

    start: int
    end: int
    error: AofError | None


class Scanner:
    """Scans an append-only file and counts its good records.

    Attributes:
        can_list: jobs may have trailers.
        taken, ended: names for the counts of records that bring something, and that end it.
        marker: matches the start of a record.
        longest_marker: its maximum length in bytes.
        size: bytes in the file when it was opened; later additions are ignored.
        file: the file, as its checksums say it should be.
        jobs, deletes, pauses, keys: good records seen so far, including those after damage.
        trailers: how many of these jobs have a trailer.
        each_trailer: called with the offset, the job and the trailer of each of them.
        repaired: what the records are, by offset, in which a bit was flipped, and where.
        queues: distinct queues of these jobs, at most MAX_QUEUES.

    Args:
        file: the AOF, opened unbuffered.
        sums: its checksums.
        progress: called now and then with the current offset.
    """

    can_list = True
    taken = "jobs"
    ended = "deletes"
    marker = _MARKER
    longest_marker = _LONGEST_MARKER

    def __init__(
        self,
        file: BinaryIO,
        progress: Callable[[int], object] = lambda at: None,
        sums: Sums | None = None,
    ) -> None:
        self.file = CheckedFile(file.fileno(), sums)
        self.size = self.file.size
        self.jobs = 0
        self.deletes = 0
        self.pauses = 0
        self.keys = 0
        self.trailers = 0
        self.repaired: dict[int, tuple[str, Mark]] = {}
        self.each_trailer: Callable[[int, SerialJob, Trailer], object] = lambda at, job, trailer: 0
        self._with_trailer: tuple[SerialJob, Trailer] | None = None  # if the last job has one
        self._progress = progress
        self._queues: set[int] = set()
        self._names: set[bytes] = set()  # of queues in the current chunk
        self._buffer = b""
        self._base = 0  # where the buffer begins

    @property
    def queues(self) -> int:
        return min(len(self._queues), MAX_QUEUES)

    def stretches(self) -> Iterator[Stretch]:
        """Yield the whole file in order. Good stretches are no longer than a chunk or a record;
        damaged ones extend to the next good record.

        Raises:
            OSError: the file cannot be read.
        """
        at = 0
        while at < self.size:
            end = self._skim(at)
            if end == at:
                end, error, resume = self._examine(at)
                if error is not None:
                    end = self.find_record(resume)
                    if error.truncated and end < self.size:
                        # Nothing follows in a file that was cut off, so the length must be wrong.
                        error = AofError(at, "a length that goes past the end of the file", False)
                    elif not error.truncated and end == self.size and self._ends_in_zeros():
                        error = AofError(at, "the file ends in zero bytes", True)
                    yield Stretch(at, end, error)
                    at = end
                    continue
                if self._with_trailer is not None:
                    self.trailers += 1
                    self.each_trailer(at, *self._with_trailer)
            yield Stretch(at, end, None)
            at = end
        self._count_names()

    def find_record(self, at: int) -> int:
        """The offset of the first good record at or after ``at``; the file's size if there is
        none."""
        while at < self.size:
            self._load(at, self.longest_marker)
            marker = self.marker.search(self._buffer, at - self._base)
            if marker is None:
                behind = self._base + len(self._buffer)
                at = behind if behind == self.size else max(at, behind - self.longest_marker + 1)
                continue
            at = self._base + marker.start()
            if self._is_good(at):
                return at
            at += 1
        return self.size

    def _load(self, at: int, size: int) -> None:
        """Load ``size`` bytes from ``at``, or all that are left, into the buffer; a chunk at
        most."""
        behind = self._base + len(self._buffer)
        if self._base <= at and (at + size <= behind or (behind == self.size and at < behind)):
            return
        self._progress(at)
        self._count_names()
        # In a regular file, a read this short is incomplete only at the end of the file.
        self._buffer = self.file.pread(min(CHUNK, self.size - at), at)
        self._base = at
        if len(self._buffer) < min(size, self.size - at):
            raise OSError("the file became shorter while it was read")

    def _count_names(self) -> None:
        """Count the queues of the current chunk."""
        if len(self._queues) < MAX_QUEUES:
            self._queues.update(map(hash, self._names))
        self._names.clear()

    def _skim(self, at: int) -> int:
        """Count usual records from ``at`` on; return where they end. Those with damaged places are
        not usual."""
        self._load(at, 1)
        if self.file.damaged_up_to > at:
            return at
        start = at - self._base
        end, jobs, deletes = skim(self._buffer, start, len(self._buffer), self._names)
        if end == start and len(self._buffer) - start < CHUNK // 2:
            # It may be a good record that is only partly in the buffer.
            self._load(at, CHUNK)
            if self.file.damaged_up_to > at:
                return at
            start = at - self._base
            end, jobs, deletes = skim(self._buffer, start, len(self._buffer), self._names)
        self.jobs += jobs
        self.deletes += deletes
        return self._base + end

    def _is_good(self, at: int) -> bool:
        """Whether there is a good record at ``at``, as nodes write them. Does not count it."""
        self._load(at, _NEAR)
        start = at - self._base
        record = _RECORD.match(self._buffer, start)
        if record is None:
            if not self._buffer.startswith((_PAUSE, _UNIQUE), start):
                return False
        elif (end := skim(self._buffer, start, start + 1, set())[0]) > start:
            return not self._is_suspect(at, self._base + end)
        else:
            # Bad, or longer than the buffer. The job has to know its length too, or any number that
            # looks like a length would make us read on.
            job = record.end(1) + 2
            length = int(record[1])
            whole = job + length + 2 <= len(self._buffer)
            if whole and not self._buffer[job + _FLAGS_AT] & FLAG_TRAILER:
                return False
            if _length_at(self._buffer, job) != length - 4:
                return False
        counts = self.jobs, self.deletes, self.pauses, self.keys
        error = self._examine(at)[1]
        self.jobs, self.deletes, self.pauses, self.keys = counts
        return error is None

    def _examine(self, at: int) -> tuple[int, AofError | None, int]:
        """Parse the record at ``at`` in full.

        Returns where it ends, what is wrong with it, and where to continue the search if it is bad.
        """
        self._with_trailer = None
        self.file.seek(at)
        reader = RecordReader(self.file, at, _NEAR)
        try:
            args = next(reader)
        except AofError as error:
            return at, error, at + 1
        if self._is_suspect(at, reader.offset):
            alone = len(args) != 2 or _length_at(args[1], 0) == len(args[1]) - 4
            bad = AofError(at, f"the checksum does not match: {describe(args)}", False)
            return at, bad, reader.offset if alone else at + 1
        mark = self.file.found(at, reader.offset)
        if mark is not None:
            self.repaired[at] = (describe(args), mark)
        reason, alone = self.classify(args)
        if reason:
            return at, AofError(at, reason, False), reader.offset if alone else at + 1
        return reader.offset, None, reader.offset

    def _is_suspect(self, at: int, end: int) -> bool:
        """Whether the record between these offsets is not as it was written."""
        mark = self.file.found(at, end)
        return mark is not None and mark.bit < 0

    def is_torn(self, damage: AofError) -> bool:
        """Whether a crash may have left the file like this: no good record follows, and it ends
        inside of the bad one or in zero bytes. Those are what many file systems have, after a power
        failure, where nothing was synced."""
        if not damage.truncated and not self._ends_in_zeros():
            return False
        # A damaged length looks like the end of the file, but then good records follow.
        return self.begins_whole(damage.offset) or self.find_record(damage.offset + 1) == self.size

    def _ends_in_zeros(self) -> bool:
        """Whether the last byte is zero: a record ends in another one."""
        return self.file.pread(1, self.size - 1) == b"\0"

    def begins_whole(self, at: int) -> bool:
        """Whether a LOADJOB begins at ``at`` whose two lengths agree and exceed the file: a record
        that was torn, whatever its body looks like."""
        size = self.size
        head = self.file.pread(128, at)
        match = _LOADJOB_HEAD.match(head)
        if match is None or len(head) < match.end() + 4:
            return False
        length = int(match[1])
        own = int.from_bytes(head[match.end() : match.end() + 4], "little")
        return own == length - 4 and at + match.end() + length + 2 > size

    def classify(self, args: list[bytes]) -> tuple[str, bool]:
        """Count the record ``args``, or return why it is bad and whether it is bad alone, so that
        the next one begins where it ends."""
        reason = ""
        alone = False
        name = args[0].upper()  # like the loader
        if name == b"LOADJOB" and len(args) == 2:
            try:
                job = decode_job(args[1])
                if job.flags & FLAG_TRAILER:
                    job.body, trailer = split_body(job.body)
                    self._with_trailer = (job, trailer)
                self._names.add(job.queue)
                self.jobs += 1
            except SerialJobError as error:
                reason = str(error)
                alone = _length_at(args[1], 0) == len(args[1]) - 4
        elif name == b"DELJOB" and len(args) >= 2:
            if all(map(is_job_id, args[1:])):
                self.deletes += len(args) - 1
            else:
                reason = "DELJOB without a well-formed id"
        elif read_pause(args) >= 0:
            self.pauses += 1
        elif read_key(args) is not None:
            self.keys += 1
        else:
            reason = f"{args[0][:32]!r} with {len(args) - 1} arguments does not belong here"
        return reason, alone


def skim(buffer: bytes, at: int, limit: int, names: set[bytes]) -> tuple[int, int, int]:
    """Skim usual good records that begin at or after ``at`` and before ``limit``.

    Stops at anything unusual, bad or incomplete in the buffer. Accepts nothing that ``decode_job``
    would refuse. Adds the queues to ``names``.

    Returns:
        where the records end, the number of jobs, the number of deletes.
    """
    match, numbers, number = _RECORD.match, _LENGTH_AND_QUEUE.unpack_from, _U32.unpack_from
    add = names.add
    jobs = deletes = 0
    size = len(buffer)
    while at < limit:
        record = match(buffer, at)
        if record is None:
            break
        digits = record[1]
        if digits is None:
            deletes += 1
            at = record.end()
            continue
        start = record.end(1) + 2
        end = start + int(digits)
        if end + 2 > size or end - start < _HEAD + 8:
            break
        length, queue_length = numbers(buffer, start)
        body_length_at = start + _HEAD + queue_length
        if length != end - start - 4 or body_length_at + 4 > end:
            break
        nodes_at = body_length_at + 4 + number(buffer, body_length_at)[0]
        if (
            nodes_at + 4 > end
            or nodes_at + 4 + NODE_ID_LENGTH * number(buffer, nodes_at)[0] != end
            or buffer[end : end + 2] != b"\r\n"
            or buffer[start + _FLAGS_AT] & FLAG_TRAILER
        ):
            break
        add(buffer[start + _HEAD : body_length_at])
        jobs += 1
        at = end + 2
    return at, jobs, deletes


def _length_at(data: bytes, at: int) -> int:
    """The length that the serialised job at ``at`` states, or -1 if that is cut off."""
    return int.from_bytes(data[at : at + 4], "little") if at + 4 <= len(data) else -1
