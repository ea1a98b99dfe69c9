"""Names of queues in pages and addresses.

A name can be any bytes. Inside the console it is a ``str`` in which bytes that are not UTF-8 are
surrogate escapes, as in the client. Such a ``str`` cannot be sent as UTF-8, so pages show it with
``shown``, and addresses and forms contain it ``quoted``.
"""

from collections.abc import Callable
from unicodedata import category
from urllib.parse import quote, unquote

from disque_trio.glob import Glob, is_glob


def quoted(name: str) -> str:
    """A name with everything but letters and digits percent-encoded."""
    return quote(name, safe="", errors="surrogateescape")


def unquoted(text: str) -> str:
    """The inverse of ``quoted``."""
    return unquote(text, errors="surrogateescape")


def shown(name: str) -> str:
    """A name for display: characters that are invisible, change the text direction or control a
    terminal are escaped."""
    if name.isprintable():
        return name
    return "".join([char if _is_seen(char) else _escape(char) for char in name])


def matching(search: str) -> Callable[[str], bool]:
    """Return whether a name contains ``search``, in any case, or matches it if it is a pattern."""
    wanted = to_bytes(search)
    if is_glob(wanted):
        pattern = Glob(wanted)
        return lambda name: pattern.matches(to_bytes(name))
    folded = search.casefold()
    return lambda name: folded in name.casefold()


def to_bytes(name: str) -> bytes:
    """A name as nodes expect it."""
    return name.encode("utf-8", "surrogateescape")


def _is_seen(char: str) -> bool:
    return char.isprintable() or category(char) == "Zs"  # Unicode spaces


def _escape(char: str) -> str:
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
