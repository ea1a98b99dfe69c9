"""The queues that a request accesses, and what it does there.

What a client may do to a queue depends on its user (see ``acl``). The ``needs`` of a ``Command``
tell which queues a request is about. They are only looked at for users with limited rights.
"""

from typing import Final, TypeAlias

from disque_trio.glob import glob_match, glob_prefix, is_glob

KNOW: Final = 0  # to ask about the queue itself, such as its length: either right will do
TAKE: Final = 1  # to read, take, acknowledge or remove jobs of a queue: ``%R~``
ADD: Final = 2  # to add jobs to a queue: ``%W~``; ``~`` is both
PATTERN: Final = 4  # in addition: the name is a glob, for all queues that match
FOUND: Final = 8  # in addition: the name is not in the request, but follows from what is held

NO_QUEUE: Final = "NOPERM this user has no permissions to access one of the keys used as arguments"

# The name of all queues, with PATTERN.
EVERY: Final = b"*"

# A queue's name and what is needed there: KNOW, TAKE, ADD or both, maybe with PATTERN or FOUND.
Access: TypeAlias = tuple[bytes, int]

# Only in the needs of a command:
ALL: Final = 16  # in addition: if it is not given, the request is about all queues
GLOB: Final = 32  # in addition: if the name is a glob, about all queues that match


def grants(pattern: bytes, rights: int, name: bytes, need: int) -> bool:
    """Whether a rule that gives ``rights`` (TAKE, ADD or both) to the queues that match the glob
    ``pattern`` permits an access to ``name`` that needs ``need``.

    A ``name`` that is itself a glob has to equal the pattern or, for a ``pattern`` like ``mail.*``,
    to begin with what comes before the star: then so does everything that it matches.
    """
    if need & ~rights & (TAKE | ADD):
        return False
    if not need & PATTERN or not is_glob(name):
        return glob_match(pattern, name)
    prefix = pattern.rstrip(b"*")
    if prefix != pattern and not is_glob(prefix):
        return glob_prefix(name).startswith(prefix)
    return name == pattern
