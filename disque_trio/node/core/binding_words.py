"""The file of bindings, in the format of all such files (see ``version_words``)::

binding 12 1f...c0 "mail.* mails"
"""

from typing import Final

from disque_trio.node.core.bindings import Binding, Bindings
from disque_trio.node.core.version_words import lines_of, take_lines, take_words
from disque_trio.node.core.versions import SharedError

_ABOUT: Final = b"""\
# Written by the node: bindings of topics to queues. Stop the node before you change it, and raise
# the first number (the logical time) of a binding that you change.
"""


def format_file(bindings: Bindings) -> bytes:
    """The contents of the file; empty if there is nothing to remember."""
    lines = lines_of(bindings, b"binding", _words)
    return _ABOUT + b"\n".join(lines) + b"\n" if lines else b""


def _words(binding: Binding) -> list[bytes]:
    return []  # its name says everything


def parse_file(text: bytes, bindings: Bindings) -> None:
    """Read the file ``text`` into ``bindings``, which must be empty.

    Raises:
        SharedError: a line is wrong; the text says which one and why.
    """

    def take(words: list[bytes]) -> None:
        if not take_words(words, bindings, b"binding", _read):
            raise SharedError("expected clock, binding or deleted, followed by its values")

    take_lines(text, take)


def _read(name: bytes, words: list[bytes]) -> Binding:
    topic, _, queue = name.partition(b" ")
    binding = Binding(topic, queue)
    problem = binding.problem()
    if problem or words:
        raise SharedError(problem or "a binding has a name and nothing else")
    return binding
