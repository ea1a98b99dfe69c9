"""The file of bindings, in the format of all such files (see ``version_words``)::

binding 12 1f...c0 "mail.* mails"
"""

from collections.abc import Iterator
from functools import partial
from typing import Final

from disque_trio.node.core.shared.bindings import Binding, Bindings
from disque_trio.node.core.shared.version_words import (
    lines_of,
    take_lines,
    take_words,
    text_of,
    whole_file,
)
from disque_trio.node.core.shared.versions import SharedError

_ABOUT: Final = b"""\
# Written by the node: bindings of topics to queues. Stop the node before you change it, and raise
# the first number (the logical time) of a binding that you change.
"""


def format_file(bindings: Bindings) -> Iterator[bytes]:
    """The contents of the file, in pieces (see ``whole_file``)."""
    return whole_file(bindings, _ABOUT, [], partial(format_changes, bindings))


def format_changes(bindings: Bindings, names: list[bytes]) -> bytes:
    """What to append to the file after changes of ``names``."""
    return text_of(lines_of(bindings, b"binding", _words, names))


def _words(binding: Binding) -> list[bytes]:
    return []  # its name says everything


def parse_file(text: bytes, bindings: Bindings) -> list[str]:
    """Read the file ``text`` into ``bindings``, which must be empty. Return the lines that had to
    be skipped (see ``take_lines``)."""

    def take(words: list[bytes], later: bool) -> None:
        if not take_words(words, later, bindings, b"binding", _read):
            raise SharedError("expected clock, binding or deleted, followed by its values")

    return take_lines(text, take)


def _read(name: bytes, words: list[bytes]) -> Binding:
    topic, _, queue = name.partition(b" ")
    if words:
        raise SharedError("a binding has a name and nothing else")
    return Binding(topic, queue)
