"""Which queues a request is about, and what it does there.

What a client may do to a queue depends on its user (see ``acl``). A ``Command`` says by its
``accesses`` which queues one request of it is about. Only users who may not do everything are asked
for it.
"""

from collections.abc import Callable, Iterable
from typing import Final, TypeAlias, TypeVar

from disque_trio.glob import glob_match, glob_prefix, is_glob

M = TypeVar("M")

KNOW: Final = 0  # to be told of a queue what is in no job, such as its length: any of the two does
TAKE: Final = 1  # to read, take, acknowledge or remove jobs of a queue: ``%R~``
ADD: Final = 2  # to add jobs to a queue: ``%W~``; ``~`` is both
PATTERN: Final = 4  # beside these: the name is a glob, the request is about all queues that match

NO_QUEUE: Final = "NOPERM this user has no permissions to access one of the keys used as arguments"

# The name of all queues, with PATTERN.
EVERY: Final = b"*"

# A queue's name, and what is needed there: KNOW, TAKE, ADD or both, and maybe PATTERN.
Access: TypeAlias = tuple[bytes, int]

# Called with the machine and all arguments of a request whose number of arguments is right, the
# name first. Must not raise: what is malformed is refused by the handler.
Accesses: TypeAlias = Callable[[M, list[bytes]], Iterable[Access]]


def grants(pattern: bytes, rights: int, name: bytes, need: int) -> bool:
    """Whether a rule that gives ``rights`` (TAKE, ADD or both) to the queues that match the glob
    ``pattern`` is enough for an access to ``name`` that needs ``need``.

    A ``name`` that is a glob itself has to be the same one, or to begin with what stands before the
    star of a ``pattern`` like ``mail.*``: all that it matches does so, too.
    """
    if need & ~rights & (TAKE | ADD):
        return False
    if not need & PATTERN or not is_glob(name):
        return glob_match(pattern, name)
    prefix = pattern.rstrip(b"*")
    if prefix != pattern and not is_glob(prefix):
        return glob_prefix(name).startswith(prefix)
    return name == pattern
