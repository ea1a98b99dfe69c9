"""The file of pauses, in the format of all such files (see ``version_words``), with a line for each
queue whose pause on this node is another one::

    pause 12 1f...c0 "mails" out
    local "mails" none
"""

from collections.abc import Iterator
from functools import partial
from typing import Final

from disque_trio.node.core.queue_pauses import KnownPauses, QueuePause
from disque_trio.node.core.shared.version_words import (
    lines_of,
    name_of,
    take_lines,
    take_words,
    text_of,
    whole_file,
)
from disque_trio.node.core.shared.versions import SharedError
from disque_trio.protocol.serialjob import PAUSE_NAMES
from disque_trio.resp.inline import quote

_ABOUT: Final = b"""\
# Written by the node: pauses of queues on all nodes. Stop the node before you change it, and raise
# the first number (the logical time) of a pause that you change.
"""


def format_file(pauses: KnownPauses) -> Iterator[bytes]:
    """The contents of the file, in pieces (see ``whole_file``)."""
    return whole_file(pauses, _ABOUT, [], partial(format_changes, pauses))


def format_changes(pauses: KnownPauses, names: list[bytes]) -> bytes:
    """What to append to the file after changes of ``names``."""
    lines = lines_of(pauses, b"pause", _words, names)
    return text_of(lines + _local(pauses, names))


def _words(pause: QueuePause) -> list[bytes]:
    return [PAUSE_NAMES[pause.paused]]


def _local(pauses: KnownPauses, names: list[bytes]) -> list[bytes]:
    return [
        b"local %b %b" % (quote(name), PAUSE_NAMES[pauses.local[name]])
        for name in names
        if name in pauses.local and name in pauses.entries
    ]


def parse_file(text: bytes, pauses: KnownPauses) -> list[str]:
    """Read the file ``text`` into ``pauses``, which must be empty. Return the lines that had to be
    skipped (see ``take_lines``)."""

    def take(words: list[bytes], later: bool) -> None:
        if words[0] == b"local" and len(words) == 3:
            if words[1] not in pauses.entries:
                raise SharedError("there is no pause of this queue before it")
            pauses.local[words[1]] = _bits(words[2])
        elif take_words(words, later, pauses, b"pause", _read):
            if words[0] != b"clock":
                pauses.local.pop(name_of(words), None)
        else:
            raise SharedError("expected clock, pause, local or deleted, followed by its values")

    return take_lines(text, take)


def _read(name: bytes, words: list[bytes]) -> QueuePause:
    if len(words) != 1:
        raise SharedError("a pause has a queue and a state")
    return QueuePause(name, _bits(words[0]))


def _bits(word: bytes) -> int:
    if word not in PAUSE_NAMES:
        raise SharedError("expected in, out, all or none")
    return PAUSE_NAMES.index(word)
