"""The epoll descriptor of the engine, and the event descriptor that wakes it.

Created before the engine and the links to other nodes, which share its epoll descriptor.
"""

import os
import select
from typing import Final

from disque_trio.respserver.io.sockets import poller

# The values of Linux's EPOLLIN and EPOLLOUT, and of EPOLLHUP, EPOLLERR and EPOLLRDHUP together. As
# numbers, so that the compiler need not look them up in each turn.
READ: Final = 0x001
WRITE: Final = 0x004
GONE: Final = 0x2018


class Poller:
    """An epoll descriptor with an event descriptor to ask for a turn.

    Attributes:
        epoll: where sockets are registered.
        poll: takes a time-out (s) and a number of events, returns the events; may return none
            before the time is over.
        wakeup: the descriptor that is readable after ``ask_turn``.
    """

    def __init__(self) -> None:
        self.epoll = select.epoll()
        self.poll = poller(self.epoll)
        self.wakeup = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.epoll.register(self.wakeup, READ)

    def ask_turn(self) -> None:
        """Make the engine take a turn soon, even if there is nothing to serve."""
        os.eventfd_write(self.wakeup, 1)

    def close(self) -> None:
        """Close both descriptors."""
        self.epoll.close()
        os.close(self.wakeup)
