"""Names of queues as they stand in pages and addresses.

A name is any bytes. Inside the console it is a ``str`` in which bytes that are not UTF-8 are
surrogate escapes, as the client has it. Such a ``str`` cannot be sent as UTF-8, so pages show it by
``shown``, and addresses and forms carry it by ``quoted``.
"""

import re
from urllib.parse import quote, unquote

_UNSEEN = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ud800-\udfff\ufeff]"
)


def quoted(name: str) -> str:
    """A name with percent signs for all that is not a letter or a digit."""
    return quote(name, safe="", errors="surrogateescape")


def unquoted(text: str) -> str:
    """The name behind ``quoted``."""
    return unquote(text, errors="surrogateescape")


def shown(name: str) -> str:
    """A name for people: what cannot be seen, or turns a line around, is written as an escape."""
    return _UNSEEN.sub(_escape, name)


def to_bytes(name: str) -> bytes:
    """A name as nodes take it."""
    return name.encode("utf-8", "surrogateescape")


def _escape(found: "re.Match[str]") -> str:
    code = ord(found[0])
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
