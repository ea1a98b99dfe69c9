"""RESP2 and RESP3 for a person to read.

Owns the reader of replies. It keeps the type of every element, because a status is printed
differently from a string; that is why it is not hiredis, which gives bytes for both.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import BinaryIO


class Kind(Enum):
    """The type of a reply. Nulls of all three forms are NIL."""

    STATUS = auto()
    ERROR = auto()
    INTEGER = auto()
    STRING = auto()
    VERBATIM = auto()
    DOUBLE = auto()
    BIG_NUMBER = auto()
    BOOLEAN = auto()
    NIL = auto()
    ARRAY = auto()
    SET = auto()
    PUSH = auto()
    MAP = auto()


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply as it came.

    Attributes:
        kind: its type.
        text: of everything that is no aggregate; numbers as they were sent, booleans `t` or `f`.
        elements: of an aggregate; a map's keys and values alternate.
    """

    kind: Kind
    text: bytes = b""
    elements: tuple["Reply", ...] = ()

    def pairs(self) -> list[tuple["Reply", "Reply"]]:
        """The elements two by two: a map's entries, or those of a flat array."""
        return list(zip(self.elements[::2], self.elements[1::2], strict=False))


class ReplyFormatError(Exception):
    """The server sent something that is not RESP."""


_SIMPLE = {
    b"+": Kind.STATUS,
    b"-": Kind.ERROR,
    b":": Kind.INTEGER,
    b",": Kind.DOUBLE,
    b"(": Kind.BIG_NUMBER,
    b"#": Kind.BOOLEAN,
    b"_": Kind.NIL,
}
_BULK = {b"$": Kind.STRING, b"=": Kind.VERBATIM, b"!": Kind.ERROR}
_AGGREGATE = {b"*": Kind.ARRAY, b"~": Kind.SET, b">": Kind.PUSH, b"%": Kind.MAP}


def encode(arguments: Sequence[bytes]) -> bytes:
    """A command as an array of bulk strings."""
    parts = [b"*%d\r\n" % len(arguments)]
    parts += [b"$%d\r\n%s\r\n" % (len(argument), argument) for argument in arguments]
    return b"".join(parts)


def read_reply(stream: BinaryIO) -> Reply:
    """Read one reply.

    Raises:
        EOFError: the stream ended before the reply was complete.
        ReplyFormatError: it is not RESP.
    """
    line = _line(stream)
    mark, rest = line[:1], line[1:]
    if mark in _SIMPLE:
        return Reply(_SIMPLE[mark], rest)
    if mark in _BULK:
        length = _number(rest)
        if length < 0:
            return Reply(Kind.NIL)
        text = _exactly(stream, length + 2)[:-2]
        # A verbatim string carries a three letter format and a colon in front.
        return Reply(_BULK[mark], text[4:] if mark == b"=" else text)
    if mark in _AGGREGATE:
        count = _number(rest)
        if count < 0:
            return Reply(Kind.NIL)
        if mark == b"%":
            count *= 2
        return Reply(_AGGREGATE[mark], elements=_elements(stream, count))
    if mark == b"|":
        _elements(stream, 2 * _number(rest))  # attributes of the reply that follows
        return read_reply(stream)
    raise ReplyFormatError(f"unexpected byte {mark!r} in the reply")


def _elements(stream: BinaryIO, count: int) -> tuple[Reply, ...]:
    try:
        return tuple([read_reply(stream) for _ in range(count)])
    except RecursionError:
        raise ReplyFormatError("the reply is nested too deeply") from None


def _line(stream: BinaryIO) -> bytes:
    line = stream.readline()
    if not line.endswith(b"\n"):
        raise EOFError
    return line.rstrip(b"\r\n")


def _number(text: bytes) -> int:
    try:
        return int(text)
    except ValueError:
        raise ReplyFormatError(f"{text!r} is not a length") from None


def _exactly(stream: BinaryIO, size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise EOFError
    return data
