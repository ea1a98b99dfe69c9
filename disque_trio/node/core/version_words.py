"""The text form of what all nodes share by name: the lines of a file.

The file has a line for each value, with its version, and one for each deletion. The words are
quoted like those of inline requests::

    clock 17
    policy 12 1f...c0 "mail.*" ATTEMPTS 3 DEAD "mail.dead" BACKOFF 1 60
    deleted 17 1f...c0 "news" 1700000000000
"""

import re
from collections.abc import Callable
from typing import Final

from disque_trio.node.core.versions import MAX_CLOCK, MAX_NAME, Entry, SharedError, V, Versions
from disque_trio.protocol.serialjob import NODE_ID_LENGTH
from disque_trio.resp.inline import quote, split_inline
from disque_trio.resp.ints import parse_int

_NODE_ID: Final = re.compile(rb"[0-9a-f]{40}")


def lines_of(known: Versions[V], kind: bytes, words_of: Callable[[V], list[bytes]]) -> list[bytes]:
    """The lines for ``known``; ``words_of`` returns the words after the name of a value, quoted if
    need be."""
    lines: list[bytes] = []
    if known.clock:
        lines.append(b"clock %d" % known.clock)
    for name in sorted(known.entries):
        entry = known.entries[name]
        version = b"%d %b %b" % (entry.clock, entry.node, quote(name))
        if entry.value is None:
            lines.append(b"deleted %b %d" % (version, entry.deleted))
        else:
            lines.append(b" ".join([kind, version, *words_of(entry.value)]))
    return lines


def take_lines(text: bytes, take: Callable[[list[bytes]], None]) -> None:
    """Call ``take`` with the words of each line that is neither empty nor a comment.

    Raises:
        SharedError: a line is wrong; the text says which one and why.
    """
    for number, line in enumerate(text.split(b"\n"), 1):
        if line.lstrip().startswith(b"#"):
            continue
        words = split_inline(line)
        try:
            if words is None:
                raise SharedError("a quote is missing")
            if words:
                take(words)
        except SharedError as problem:
            raise SharedError(f"line {number}: {problem}") from None


def take_words(
    words: list[bytes], known: Versions[V], kind: bytes, read: Callable[[bytes, list[bytes]], V]
) -> bool:
    """Add what a line says to ``known``. ``read`` makes a value from its name and the words that
    follow. Return False if the line is of another kind. Raises ``SharedError``."""
    first, count = words[0], len(words)
    if first == b"clock" and count == 2:
        known.clock = max(known.clock, number_from(words[1], MAX_CLOCK))
        return True
    if not ((first == kind and count >= 4) or (first == b"deleted" and count == 5)):
        return False
    name = words[3]
    if not 0 < len(name) <= MAX_NAME:
        raise SharedError(f"a name must have 1 to {MAX_NAME} bytes")
    if name in known.entries:
        raise SharedError("the name occurs twice")
    value = None
    deleted = 0
    if first == kind:
        value = read(name, words[4:])
    else:
        deleted = number_from(words[4], 2**63 - 1)
    known.put(Entry(name, value, number_from(words[1], MAX_CLOCK), node_from(words[2]), deleted))
    return True


def number_from(word: bytes, most: int) -> int:
    """Parse a number from 0 to ``most``. Raises ``SharedError``."""
    value = parse_int(word) if word else None
    if value is None or not 0 <= value <= most:
        raise SharedError(f"expected a number from 0 to {most}")
    return value


def node_from(word: bytes) -> bytes:
    """Parse the id of a node. Raises ``SharedError``."""
    if len(word) != NODE_ID_LENGTH or _NODE_ID.fullmatch(word) is None:
        raise SharedError("expected the id of a node")
    return word
