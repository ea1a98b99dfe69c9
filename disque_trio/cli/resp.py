"""Reads RESP2 and RESP3 for display to a person.

Owns the reader of replies. It keeps the type of every element, because a status is printed
differently from a string; hiredis returns bytes for both.
"""

from __future__ import annotations

from enum import Enum

TYPE_CHECKING = False  # typing is slow to import; see main
if TYPE_CHECKING:
    from typing import BinaryIO


class Kind(Enum):
    """The type of a reply, with its first byte. All three kinds of null are NIL."""

    STATUS = b"+"
    ERROR = b"-"
    INTEGER = b":"
    STRING = b"$"
    VERBATIM = b"="
    DOUBLE = b","
    BIG_NUMBER = b"("
    BOOLEAN = b"#"
    NIL = b"_"
    ARRAY = b"*"
    SET = b"~"
    PUSH = b">"
    MAP = b"%"


AGGREGATES = (Kind.ARRAY, Kind.SET, Kind.PUSH, Kind.MAP)
_BULK_ERROR = b"!"
_ATTRIBUTES = b"|"  # of the reply that follows


class Reply:
    """A reply with the types of its elements.

    Attributes:
        kind: its type.
        text: of everything but aggregates; numbers as sent, booleans ``t`` or ``f``.
        elements: of an aggregate; a map's keys and values alternate.
    """

    __slots__ = ("elements", "kind", "text")

    def __init__(self, kind: Kind, text: bytes = b"", elements: tuple[Reply, ...] = ()) -> None:
        self.kind = kind
        self.text = text
        self.elements = elements

    def pairs(self) -> list[tuple[Reply, Reply]]:
        """The elements in pairs: the entries of a map, or of a flat array."""
        return list(zip(self.elements[::2], self.elements[1::2], strict=False))


class ReplyFormatError(Exception):
    """The server sent something that is not RESP."""


def read_reply(stream: BinaryIO) -> Reply:
    """Read one reply.

    Raises:
        EOFError: the stream ended before the reply was complete.
        ReplyFormatError: it is not RESP.
    """
    line = _line(stream)
    mark, rest = line[:1], line[1:]
    if mark == _ATTRIBUTES:
        _elements(stream, 2 * _number(rest))
        return read_reply(stream)
    try:
        kind = Kind.ERROR if mark == _BULK_ERROR else Kind(mark)
    except ValueError:
        raise ReplyFormatError(f"unexpected byte {mark!r} in the reply") from None
    is_bulk = kind in (Kind.STRING, Kind.VERBATIM) or mark == _BULK_ERROR
    if not is_bulk and kind not in AGGREGATES:
        return Reply(kind, rest)
    length = _number(rest)
    if length < 0:
        return Reply(Kind.NIL)
    if not is_bulk:
        return Reply(kind, elements=_elements(stream, length * (2 if kind is Kind.MAP else 1)))
    text = _exactly(stream, length + 2)[:-2]
    # A verbatim string begins with a three-letter format and a colon.
    return Reply(kind, text[4:] if kind is Kind.VERBATIM else text)


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
