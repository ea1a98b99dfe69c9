"""Converts RESP replies to Python values.

All functions raise ``ProtocolError`` if a reply has an unexpected shape. So a peer that is not the
expected server is reported as such, rather than as a TypeError somewhere.
"""

from typing import NoReturn

from disque_trio.respclient.connection import Reply
from disque_trio.respclient.errors import ProtocolError

Name = str | bytes
"""A name or a body: ``str`` is sent as UTF-8."""


def unexpected(reply: Reply) -> NoReturn:
    """Raise ProtocolError."""
    raise ProtocolError(f"unexpected reply: {reply!r:.200}")


def as_text(name: Name) -> str:
    """A name as ``str``; bytes that are not UTF-8 become surrogate escapes."""
    return name.decode("utf-8", "surrogateescape") if isinstance(name, bytes) else name


def text(reply: Reply) -> str:
    """Convert a string reply as ``as_text`` does."""
    if not isinstance(reply, bytes):
        unexpected(reply)
    return as_text(reply)


def integer(reply: Reply) -> int:
    """Check and return an integer reply."""
    if not isinstance(reply, int):
        unexpected(reply)
    return reply


def elements(reply: Reply, count: int | None = None) -> list[Reply]:
    """Return the elements of an array, which must be ``count`` if that is given."""
    if not isinstance(reply, list) or (count is not None and len(reply) != count):
        unexpected(reply)
    return reply


def pairs(reply: Reply) -> list[tuple[str, Reply]]:
    """Return the names and values of a flat array."""
    flat = elements(reply)
    if len(flat) % 2:
        unexpected(reply)
    return [(text(key), value) for key, value in zip(flat[::2], flat[1::2], strict=True)]
