"""The epoll descriptor of the engine, and the event descriptor that wakes it.

Made before the engine and what shares its epoll descriptor: the links to other nodes.
"""

import os
import select
from typing import Final

from disque_trio.respserver.io.sockets import poller

# The values of Linux's EPOLLIN and EPOLLOUT, and EPOLLHUP, EPOLLERR and EPOLLRDHUP together. As
# numbers, since then the compiler need not look them up in each turn.
READ: Final = 0x001
WRITE: Final = 0x004
GONE: Final = 0x2018


class Poller:
    """An epoll descriptor that contains an event descriptor with which to ask for a turn.

    Attributes:
        epoll: where sockets are registered.
        poll: called with a time-out (s) and a number of events, gives the events that there are; it
            may give none before the time is over.
        wakeup: the descriptor that is readable after ``ask_turn``.
    """

    def __init__(self) -> None:
        self.epoll = select.epoll()
        self.poll = poller(self.epoll)
        self.wakeup = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.epoll.register(self.wakeup, READ)

    def ask_turn(self) -> None:
        """Have the engine take a turn soon, even if there is nothing to serve."""
        os.eventfd_write(self.wakeup, 1)

    def close(self) -> None:
        """Close both descriptors."""
        self.epoll.close()
        os.close(self.wakeup)
