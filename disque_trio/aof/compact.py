"""Compacts an append-only file, in a process of its own beside the node.

    python -m disque_trio.aof.compact FILE UPTO OUT NOW NODE

Reads FILE up to the offset UPTO, where a record ends. Writes to OUT, in the order of the file, the
records that loading would leave: of jobs that have neither ended nor expired at NOW (s since the
epoch), of paused queues, of keys in use, and of those that such jobs no longer have. OUT is on disk
if the exit status is 0; otherwise there is no OUT. It is ``DAMAGED`` if FILE does not match its
checksums. NODE is the process id of the node that wants OUT: when it ends, this process fails,
since nobody would use or remove OUT. FILE is only read. The node itself copies what it appends
after UPTO meanwhile.

Memory holds the place of each living job (see ``places``), not the job.
"""

import argparse
import io
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from heapq import merge
from itertools import chain
from pathlib import Path
from struct import Struct
from typing import BinaryIO, NamedTuple

from disque_trio.aof.checksums import CheckedFile, read_sums
from disque_trio.aof.format import CHUNK, AofError, Readable, RecordReader
from disque_trio.aof.places import Places
from disque_trio.protocol.keyrecord import read_key
from disque_trio.protocol.serialjob import is_job_id, read_pause
from disque_trio.protocol.trailer import FLAG_TRAILER

DAMAGED = 3
NICE = 10  # the node takes precedence
_SYNC_EVERY = 32 << 20  # bytes; a single sync at the end would keep the disk from the node
_HEAD = Struct("<I40s4xI")  # length, id, state to copies, expiry
_FLAGS_AT = 45
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
_RECORDS_A_LOOK = 4096  # between checks whether the node is still there

Place = tuple[int, int]  # offset and length of a record


class Counts(NamedTuple):
    """Counts of records read, living jobs and bytes written."""

    records: int
    jobs: int
    size: int


def compact(
    file: Readable, upto: int, out: BinaryIO, now: int, go_on: Callable[[], object] = lambda: None
) -> Counts:
    """Write the living jobs, pauses and keys of ``file`` to ``out``, which is empty, and sync it.

    Args:
        file: an AOF, at its beginning.
        upto: where to stop reading.
        now: s since the epoch.
        go_on: called now and then; raises to stop this.

    Raises:
        AofError: the file is damaged before ``upto``, or no record ends there.
        OSError: from either file.
    """
    places = Places(upto)
    pauses: dict[bytes, Place] = {}  # of a paused queue's record
    keys: dict[tuple[bytes, bytes], Place] = {}  # of a queue's key's
    freed: dict[bytes, Place] = {}  # the same, by the job that had the key, if it lives
    reader = RecordReader(file)
    records = start = 0
    while start < upto:
        command = next(reader, None)
        if command is None:
            raise AofError(start, f"the file ends before {upto}", True)
        end = reader.offset
        name = command[0].upper()
        if name == b"LOADJOB" and len(command) == 2:
            id, expiry = _id_and_expiry(command[1], start)
            if command[1][_FLAGS_AT] & FLAG_TRAILER:
                places.drop(id)  # this record may say what became of the job
                freed.pop(id, None)
            if expiry > now:
                places.add(id, start, end - start)
        elif name == b"DELJOB" and all(map(is_job_id, command[1:])):
            for id in command[1:]:
                places.drop(id)
                freed.pop(id, None)
        elif (key := read_key(command)) is not None:
            keys.pop((key.queue, key.key), None)
            if key.until > now * 1000:
                keys[key.queue, key.key] = start, end - start
            elif key.id in places:
                freed[key.id] = start, end - start
        elif (paused := read_pause(command)) >= 0:
            pauses.pop(command[1], None)
            if paused:
                pauses[command[1]] = start, end - start
        else:
            raise AofError(start, "not a command of an append-only file", False)
        start = end
        records += 1
        if records % _RECORDS_A_LOOK == 0:
            go_on()
    if start != upto:
        raise AofError(start, f"no record ends at {upto}", False)
    jobs = places.count
    others = sorted(chain(pauses.values(), keys.values(), freed.values()))
    living = merge(places.in_order(), others)
    return Counts(records, jobs, _copy(file, living, out, go_on))


def _id_and_expiry(job: bytes, offset: int) -> tuple[bytes, int]:
    """The id of a serialised job, and when it expires (s). Raises ``AofError``."""
    if len(job) >= _HEAD.size:
        length, id, expiry = _HEAD.unpack_from(job)
        if length == len(job) - 4 and is_job_id(id):
            return id, expiry
    raise AofError(offset, "not a job", False)


def _copy(
    file: Readable, places: Iterable[Place], out: BinaryIO, go_on: Callable[[], object]
) -> int:
    """Copy the records at ``places``; return how many bytes they have."""
    size = synced = 0
    for start, end in _stretches(places):
        file.seek(start)
        while start < end:
            data = file.read(min(CHUNK, end - start))
            if not data:
                raise AofError(start, "the file became shorter", True)
            out.write(data)
            start += len(data)
            size += len(data)
            if size - synced >= _SYNC_EVERY:
                go_on()
                _sync(out)
                synced = size
    _sync(out)
    return size


def _stretches(places: Iterable[Place]) -> Iterator[tuple[int, int]]:
    """Merge adjacent records; yields the begin and end of each stretch."""
    start = end = 0
    for offset, length in places:
        if offset != end:
            yield start, end
            start = offset
        end = offset + length
    yield start, end


def _sync(out: BinaryIO) -> None:
    out.flush()
    os.fdatasync(out.fileno())


class _NodeGoneError(Exception):
    """The node that wanted the file has ended."""


def main(arguments: list[str] | None = None) -> int:
    """Run the command line of this module; return the exit status."""
    parser = argparse.ArgumentParser("python -m disque_trio.aof.compact", description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("upto", type=int)
    parser.add_argument("out", type=Path)
    parser.add_argument("now", type=int)
    parser.add_argument("node", type=int)
    options = parser.parse_args(arguments)

    def go_on() -> None:
        if os.getppid() != options.node:
            raise _NodeGoneError("the node has ended")

    try:
        os.nice(NICE)
    except OSError:
        pass
    done = False
    file: CheckedFile | None = None
    try:
        with (
            options.file.open("rb", buffering=0) as old,
            os.fdopen(os.open(options.out, _WRITE, 0o600), "wb", buffering=CHUNK) as out,
        ):
            # OUT exists now; a node that starts later removes it.
            go_on()
            file = CheckedFile(old.fileno(), read_sums(str(options.file)))
            source = io.BufferedReader(file, CHUNK)
            counts = compact(source, options.upto, out, options.now, go_on)
        done = not file.marks
    except (AofError, OSError, _NodeGoneError, MemoryError) as problem:
        text = problem.strerror if isinstance(problem, OSError) else ""
        if file is None or not file.marks:
            print(text or problem or "out of memory")
            return 1
    finally:
        if not done:
            options.out.unlink(missing_ok=True)
    if file.marks:
        print(f"offset {file.marks[0].start} does not match its checksum")
        return DAMAGED
    print(f"records={counts.records} jobs={counts.jobs} bytes={counts.size}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
