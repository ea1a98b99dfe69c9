"""The format of append-only files, byte for byte that of Disque.

The file is a sequence of commands in RESP: ``LOADJOB`` with a serialised job when a node has taken
a job, ``DELJOB`` with an id when it is done with one. This implementation adds ``PAUSE`` with a
queue and in, out, all or none; the last one for a queue applies. C nodes never write it, but carry
it out when they load it; a command that they do not know would stop them. Nothing else is written.
"""

import os
import re
from collections.abc import Iterator
from typing import Final, Protocol

from disque_trio.protocol.serialjob import deljob, loadjob

__all__ = ["AofError", "Readable", "RecordReader", "deljob", "describe", "loadjob"]

CHUNK: Final = 1 << 20
MAX_LINE: Final = 32  # bytes of a line with a number
MAX_ARGS: Final = 1024 * 1024
MAX_BULK: Final = 2**32 + 3  # the longest job: its own length field has 32 bits

_USUAL: Final = re.compile(rb"\*2\r\n\$(?:7\r\n(LOADJOB)|6\r\n(DELJOB))\r\n\$([0-9]{1,10})\r\n")
_JOB_ID: Final = re.compile(rb"D-[0-9a-f]{8}-[A-Za-z0-9+/]{24}-[0-9a-f]{4}")
_LINE_START: Final = {kind: re.compile(b"(?:[%b][0-9]*\r?)?" % kind) for kind in (b"*", b"$")}
_ENDS_INSIDE: Final = "the file ends inside of a command"


class AofError(Exception):
    """The file has an invalid format.

    Attributes:
        offset: where the unreadable record begins; everything before it is good.
        reason: what is wrong with it.
        truncated: the file just ends inside the record, as after a crash.
    """

    def __init__(self, offset: int, reason: str, truncated: bool) -> None:
        super().__init__(f"offset {offset}: {reason}")
        self.offset = offset
        self.reason = reason
        self.truncated = truncated


class Readable(Protocol):
    """What a reader reads: a binary file."""

    def read(self, size: int, /) -> bytes: ...
    def seek(self, offset: int, whence: int = 0, /) -> int: ...
    def tell(self) -> int: ...


class RecordReader(Iterator[list[bytes]]):
    """Reads the commands of a file one by one; holds at most one of them and a chunk.

    Iterating raises ``AofError`` where a command cannot be read.

    Attributes:
        offset: where the next command begins in the file.
        buffer: bytes read, including its beginning.
        at: where that is in the buffer.

    Args:
        file: seekable; is read from its current position to its current end.
        offset: that position in the AOF.
        chunk: bytes to read at a time.
    """

    def __init__(self, file: Readable, offset: int = 0, chunk: int = CHUNK) -> None:
        self._file = file
        self._chunk = chunk
        self.buffer = b""
        self.at = 0
        self._base = offset  # where the buffer begins in the AOF
        here = file.tell()
        self._unread = file.seek(0, os.SEEK_END) - here  # bytes of the file not in the buffer yet
        file.seek(here)
        self.offset = offset

    def __next__(self) -> list[bytes]:
        # A shortcut for records as nodes write them, if complete in the buffer: five times as fast.
        usual = _USUAL.match(self.buffer, self.at)
        if usual is not None:
            start = usual.end()
            end = start + int(usual[3])
            if self.buffer[end : end + 2] == b"\r\n":
                self.skip_to(end + 2)
                return [usual[1] or usual[2], self.buffer[start:end]]
        if not self._have(1):
            raise StopIteration
        count = self._number(b"*", MAX_ARGS)
        args: list[bytes] = []
        for _ in range(count):
            length = self._number(b"$", MAX_BULK)
            if not self._ends_well(length):
                raise AofError(self.offset, "an argument does not end where it should", False)
            end = self.at + length
            args.append(self.buffer[self.at : end])
            self.at = end + 2
        if not args:
            raise AofError(self.offset, "a command without a name", False)
        self.skip_to(self.at)
        return args

    def skip_to(self, at: int) -> None:
        """Continue with the command that begins at ``at`` in the buffer."""
        self.at = at
        self.offset = self._base + at

    def _have(self, size: int) -> bool:
        """Whether ``size`` more bytes are available; reads as many as it has to."""
        missing = size - (len(self.buffer) - self.at)
        if missing > self._unread:
            return False
        if missing > 0:
            parts = [self.buffer[self.at :]]
            self._base += self.at
            self.at = 0
            while missing > 0:
                data = self._file.read(min(max(self._chunk, missing), self._unread))
                if not data:
                    return False
                parts.append(data)
                missing -= len(data)
                self._unread -= len(data)
            self.buffer = b"".join(parts)
        return True

    def _ends_well(self, length: int) -> bool:
        """Whether a line ends ``length`` bytes from here. Reads that far only if so, lest a damaged
        length bring half the file into memory."""
        ahead = self.at + length - len(self.buffer)  # offset of the line end beyond the buffer
        if ahead + 2 > self._unread:
            raise AofError(self.offset, _ENDS_INSIDE, True)
        if ahead > self._chunk:
            here = self._file.tell()
            self._file.seek(ahead, os.SEEK_CUR)
            line_end = self._file.read(2)
            self._file.seek(here)
            if line_end != b"\r\n":
                return False
        if not self._have(length + 2):
            raise AofError(self.offset, _ENDS_INSIDE, True)
        return self.buffer.startswith(b"\r\n", self.at + length)

    def _number(self, kind: bytes, most: int) -> int:
        """Read a line of ``kind`` and a number up to ``most``. Raises ``AofError``."""
        while (end := self.buffer.find(b"\r\n", self.at, self.at + MAX_LINE)) < 0:
            line = self.buffer[self.at : self.at + MAX_LINE]
            # A file that was cut off ends in what could have become such a line.
            if len(line) == MAX_LINE or _LINE_START[kind].fullmatch(line) is None:
                raise AofError(self.offset, _unexpected(kind, line), False)
            if not self._have(len(line) + 1):
                raise AofError(self.offset, _ENDS_INSIDE, True)
        line = self.buffer[self.at : end]
        if line[:1] != kind or not line[1:].isdigit() or int(line[1:]) > most:
            raise AofError(self.offset, _unexpected(kind, line), False)
        self.at = end + 2
        return int(line[1:])


def _unexpected(kind: bytes, line: bytes) -> str:
    return f"expected {kind.decode()} and a number, got {line!r}"


def describe(record: list[bytes]) -> str:
    """The name of a record, and the first job id in it, for people."""
    name = ascii(record[0][:16].decode("ascii", "backslashreplace"))[1:-1]
    id = _JOB_ID.search(b" ".join(argument[:80] for argument in record[1:4]))
    return name if id is None else f"{name} of {id[0].decode()}"
