"""Which queues a request is about, and what it does there.

What a client may do to a queue depends on its user (see ``acl``). A ``Command`` says by its
``accesses`` which queues one request of it is about. Only users who may not do everything are asked
for it.
"""

from collections.abc import Callable, Iterable
from typing import Final, TypeAlias, TypeVar

M = TypeVar("M")

TAKE: Final = 1  # to read, take, acknowledge or remove jobs of a queue: ``%R~``
ADD: Final = 2  # to add jobs to a queue: ``%W~``; ``~`` is both

# A queue's name, and what is needed there: TAKE, ADD or both.
Access: TypeAlias = tuple[bytes, int]

# Called with the machine and all arguments of a request whose number of arguments is right, the
# name first. Must not raise: what is malformed is refused by the handler.
Accesses: TypeAlias = Callable[[M, list[bytes]], Iterable[Access]]
