"""The text form of what all nodes share by name: the lines of a file.

The file has a line for each value, with its version, and one for each deletion. The words are
quoted like those of inline requests::

    clock 17
    policy 12 1f...c0 "mail.*" ATTEMPTS 3 DEAD "mail.dead" BACKOFF 1 60
    deleted 17 1f...c0 "news" 1700000000000

An entry with something that only newer releases know has a line with its packed form, which says
everything::

    newer "mail.*" "\\x01\\x06\\x00..."

Before a value that a user has made comes a line with the same version and that user::

    #by 12 1f...c0 "nightly" "shop"

Later changes are appended, behind a line that says so (CHANGES). Only there may a name occur again.
"""

from collections.abc import Callable, Iterator
from typing import Final

from disque_trio.cluster.members import is_node_id
from disque_trio.node.core.shared.versions import (
    MAX_CLOCK,
    MAX_WHEN,
    Entry,
    SharedError,
    V,
    Versions,
)
from disque_trio.protocol.fields import FieldsError
from disque_trio.resp.inline import quote, split_inline
from disque_trio.resp.ints import parse_int

PIECE: Final = 200  # names, whose lines take about a millisecond
# Earlier releases take it for a comment.
CHANGES: Final = b"# Changes since then, of which the latest counts:\n"
BY: Final = b"#by"  # so is this


def whole_file(
    known: Versions[V],
    about: bytes,
    more: list[bytes],
    changes: Callable[[list[bytes]], bytes],
) -> Iterator[bytes]:
    """Return the contents of the file in pieces, each with the lines of a few names; nothing if
    there is nothing to remember. What changes meanwhile may be in them or not. ``about``: a
    comment. ``more``: further lines. ``changes`` makes the lines for some names."""
    if known.clock:
        more = [b"clock %d" % known.clock, *more]
    names = sorted(known.entries)
    if not more and not names:
        return
    yield about + text_of(more)
    for start in range(0, len(names), PIECE):
        yield changes(names[start : start + PIECE])


def lines_of(
    known: Versions[V], kind: bytes, words_of: Callable[[V], list[bytes]], names: list[bytes]
) -> list[bytes]:
    """The lines for ``names``; ``words_of`` returns the words after the name of a value, quoted if
    need be."""
    lines: list[bytes] = []
    for name in names:
        entry = known.entries.get(name)
        if entry is None:
            continue
        version = b"%d %b %b" % (entry.clock, entry.node, quote(name))
        if entry.raw:
            lines.append(b"newer %b %b" % (quote(name), quote(entry.fields())))
        elif entry.value is None:
            lines.append(b"deleted %b %d" % (version, entry.deleted))
        else:
            if entry.value.user:
                lines.append(b"%b %b %b" % (BY, version, quote(entry.value.user)))
            lines.append(b" ".join([kind, version, *words_of(entry.value)]))
    return lines


def text_of(lines: list[bytes]) -> bytes:
    """The text of ``lines``."""
    return b"\n".join([*lines, b""]) if lines else b""


def without_torn(text: bytes) -> bytes:
    """The text of a file without what a crash left of the last changes, which nobody was told of:
    a part of a line, or zero bytes."""
    text = text.rstrip(b"\0")
    return text[: text.rfind(b"\n") + 1] if CHANGES in text else text


def take_lines(text: bytes, take: Callable[[list[bytes], bool], None]) -> list[str]:
    """Call ``take`` with the words of each line that is neither empty nor a comment, and whether
    they are a later change. Return which lines it refused (``SharedError``), or had to be skipped
    for other reasons, and why: ``line 5: a quote is missing``."""
    skipped: list[str] = []
    later = False
    for number, line in enumerate(text.split(b"\n"), 1):
        if line.lstrip().startswith(b"#") and not line.startswith(BY + b" "):
            later = later or line == CHANGES[:-1]
            continue
        words = split_inline(line)
        try:
            if words is None:
                raise SharedError("a quote is missing")
            if b"\0" in line:
                raise SharedError("it has zero bytes")
            if words:
                take(words, later)
        except SharedError as problem:
            skipped.append(f"line {number}: {problem}")
    return skipped


def take_words(
    words: list[bytes],
    later: bool,
    known: Versions[V],
    kind: bytes,
    read: Callable[[bytes, list[bytes]], V],
) -> bool:
    """Add what a line says to ``known``. ``later``: it is a later change. ``read`` makes a value
    from its name and the words that follow. Return False if the line is of another kind. Raises
    ``SharedError``."""
    first, count = words[0], len(words)
    made_by, known.made_by = known.made_by, []
    if first == BY and count == 5:
        known.made_by = words[1:]
        return True
    if first == b"clock" and count == 2:
        known.clock = max(known.clock, number_from(words[1], MAX_CLOCK))
        return True
    newer = first == b"newer" and count == 3
    if not (newer or (first == kind and count >= 4) or (first == b"deleted" and count == 5)):
        return False
    name = name_of(words)
    if name in known.entries and not later:
        raise SharedError("the name occurs twice")
    if newer:
        known.put(_entry_from(words[2], name, known))
        return True
    value = None
    deleted = 0
    if first == kind:
        value = read(name, words[4:])
        if made_by[:3] == words[1:4]:
            value.user = made_by[3]
    else:
        deleted = number_from(words[4], MAX_WHEN)
    known.put(known.entry(name, value, number_from(words[1], MAX_CLOCK), words[2], deleted))
    return True


def _entry_from(packed: bytes, name: bytes, known: Versions[V]) -> Entry[V]:
    """The entry of ``name`` in packed form. Raises ``SharedError``."""
    try:
        entry = known.read_entry(packed)
    except FieldsError as problem:
        raise SharedError(f"malformed entry: {problem}") from problem
    if entry.name != name:
        raise SharedError("the entry is that of another name")
    return entry


def name_of(words: list[bytes]) -> bytes:
    """The name in a line that ``take_words`` adds."""
    return words[1] if words[0] == b"newer" else words[3]


def number_from(word: bytes, most: int) -> int:
    """Parse a number from 0 to ``most``. Raises ``SharedError``."""
    value = parse_int(word) if word else None
    if value is None or not 0 <= value <= most:
        raise SharedError(f"expected a number from 0 to {most}")
    return value


def node_from(word: bytes) -> bytes:
    """Parse the id of a node. Raises ``SharedError``."""
    if not is_node_id(word):
        raise SharedError("expected the id of a node")
    return word
