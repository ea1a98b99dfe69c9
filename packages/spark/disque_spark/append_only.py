"""Finds nodes' append-only files, and reads the records of jobs in them. Needs no Spark."""

from collections.abc import Iterator, Mapping, Sequence
from typing import BinaryIO

from disque_spark.files import Location, Place, location
from disque_trio.aof.format import AofError, RecordReader
from disque_trio.protocol.keyrecord import read_key
from disque_trio.protocol.serialjob import read_pause
from disque_trio.protocol.trailer import FLAG_TRAILER

STATES = ("wait-repl", "active", "queued", "acked")
_ID_AT = 4  # in a serialised job
_FLAGS_AT = 45
_TRAILER = bytes([FLAG_TRAILER])  # the highest bit of a byte
_ID_LENGTH = 40


def find_files(paths: Sequence[Place], settings: Mapping[str, str] | None = None) -> list[Location]:
    """The append-only files at ``paths``: files of any name, and in directories those whose names
    end with .aof.

    Args:
        settings: settings of Spark, for remote file systems.

    Raises:
        FileNotFoundError: there is no such file at one of ``paths``.
        OSError: a file system refuses access.
    """
    found: set[Location] = set()
    for path in paths:
        here: set[Location] = set()
        for entry in location(path, settings).glob():
            if entry.is_dir():
                here.update(file for file in entry.files(False) if file.name.endswith(".aof"))
            else:
                here.add(entry)
        if not here:
            raise FileNotFoundError(f"no append-only file at {path}")
        found |= here
    return sorted(found)


def records(file: BinaryIO, end: int) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield the records that begin before ``end``: offset, name, and the job or one id. A DELJOB
    of several ids counts as one record for each id.

    Raises:
        AofError: a record cannot be read.
    """
    file.seek(0)
    reader = RecordReader(file)
    offset = 0
    for command in reader:
        if offset >= end:
            return  # written after we began
        name = command[0].upper()
        if name == b"LOADJOB" and len(command) == 2 and command[1][_ID_AT : _ID_AT + 2] == b"D-":
            yield offset, name, command[1]
        elif name == b"DELJOB" and all(_is_id(id) for id in command[1:]):
            for id in command[1:]:
                yield offset, name, id
        elif read_pause(command) < 0 and read_key(command) is None:  # says nothing of jobs
            raise AofError(offset, f"not a record: {command[0][:40]!r}", False)
        offset = reader.offset


def live_records(file: BinaryIO) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield the records of jobs that have not been deleted since, as ``records`` does.

    Raises:
        AofError: a record cannot be read. Raised after all records before it.
    """
    live: dict[bytes, int] = {}
    end = file.seek(0, 2)
    failure: AofError | None = None
    try:
        for offset, name, data in records(file, end):
            if name == b"DELJOB":
                live.pop(data, None)
            else:
                # As when a node loads the file: a job that is already there is not loaded again,
                # unless the record may tell what happened to it since.
                id = _id_of(data)
                if id not in live or data[_FLAGS_AT : _FLAGS_AT + 1] >= _TRAILER:
                    live[id] = offset
    except AofError as problem:
        failure = problem
        end = problem.offset
    for offset, name, data in records(file, end):
        if live.get(_id_of(data)) == offset:
            yield offset, name, data
    if failure is not None:
        raise failure


def _id_of(job: bytes) -> bytes:
    """The id in a serialised job."""
    return job[_ID_AT : _ID_AT + _ID_LENGTH]


def _is_id(word: bytes) -> bool:
    return len(word) == _ID_LENGTH and word[:2] == b"D-" and word.isascii()
