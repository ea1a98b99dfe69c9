"""Encodes replies as RESP2 or RESP3 bytes.

The hot commands assemble their replies by hand from the constants; everything else goes through
``encode``, which knows where RESP3 differs (nulls, maps, verbatim text).
"""

from typing import Final, TypeAlias

OK: Final = b"+OK\r\n"
PONG: Final = b"+PONG\r\n"
EMPTY_ARRAY: Final = b"*0\r\n"

_ONE: Final = b":1\r\n"  # the reply to most acknowledgements
_NULL_BULK: Final = b"$-1\r\n"
_NULL_ARRAY: Final = b"*-1\r\n"
_NULL: Final = b"_\r\n"

_LINE_ENDS: Final = bytes.maketrans(b"\r\n", b"  ")


class Simple:
    """A status: a simple string on the wire."""

    __slots__ = ("text",)

    def __init__(self, text: bytes) -> None:
        self.text = text


class Text:
    """Text for people: a bulk string, with RESP3 a verbatim one."""

    __slots__ = ("text",)

    def __init__(self, text: bytes) -> None:
        self.text = text


class Double:
    """A number that need not be whole: in RESP2 its text, as a bulk string."""

    __slots__ = ("value",)

    def __init__(self, value: float) -> None:
        self.value = value


class NullArray:
    """The null that RESP2 writes as an array."""

    __slots__ = ()


NULL_ARRAY: Final = NullArray()

Value: TypeAlias = (
    "int | bytes | Simple | Text | Double | NullArray | list[Value] | dict[bytes, Value] | None"
)


def encode(value: Value, resp: int = 2) -> bytes:
    """Encode ``value`` for protocol version ``resp`` (2 or 3).

    bytes are bulk strings, None is null, a dict is a map (in RESP2 a flat array).
    """
    parts: list[bytes] = []
    _encode(value, resp, parts)
    return b"".join(parts)


def _encode(value: Value, resp: int, parts: list[bytes]) -> None:
    if isinstance(value, bytes):
        parts.append(b"$%d\r\n%b\r\n" % (len(value), value))
    elif isinstance(value, int):
        parts.append(b":%d\r\n" % value)
    elif isinstance(value, list):
        parts.append(b"*%d\r\n" % len(value))
        for item in value:
            _encode(item, resp, parts)
    elif isinstance(value, dict):
        parts.append(b"%%%d\r\n" % len(value) if resp == 3 else b"*%d\r\n" % (2 * len(value)))
        for key, item in value.items():
            _encode(key, resp, parts)
            _encode(item, resp, parts)
    elif isinstance(value, Simple):
        parts.append(b"+%b\r\n" % value.text)
    elif isinstance(value, Text):
        if resp == 3:
            parts.append(b"=%d\r\ntxt:%b\r\n" % (len(value.text) + 4, value.text))
        else:
            parts.append(b"$%d\r\n%b\r\n" % (len(value.text), value.text))
    elif isinstance(value, Double):
        number = repr(value.value).encode()
        parts.append(b",%b\r\n" % number if resp == 3 else bulk(number))
    elif resp == 3:
        parts.append(_NULL)
    else:
        parts.append(_NULL_BULK if value is None else _NULL_ARRAY)


def integer(value: int) -> bytes:
    """An integer reply."""
    return _ONE if value == 1 else b":%d\r\n" % value


def bulk(value: bytes) -> bytes:
    """A bulk string reply."""
    return b"$%d\r\n%b\r\n" % (len(value), value)


def null(resp: int) -> bytes:
    """Null in place of a bulk string."""
    return _NULL if resp == 3 else _NULL_BULK


def null_array(resp: int) -> bytes:
    """Null in place of an array."""
    return _NULL if resp == 3 else _NULL_ARRAY


def error(text: str | bytes) -> bytes:
    """An error reply; ``text`` starts with its code. Line ends in it become spaces."""
    if isinstance(text, str):
        text = text.encode("utf-8", "surrogateescape")
    return b"-%b\r\n" % text.translate(_LINE_ENDS)
