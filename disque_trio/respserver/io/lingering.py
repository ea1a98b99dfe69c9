"""Closes connections gently when the client may still be sending.

If a socket is closed with unread input, the kernel sends a reset, which can destroy what the client
was sent before: the error that says what it did wrong. So the sending half is closed first, and
input is read and dropped until the client closes its end, too. That costs no memory, and is bounded
in connections, bytes and time.
"""

import select
import socket
from typing import Final

from disque_trio.respserver.io.beside import Beside

MOST: Final = 64  # connections; beyond it, the oldest one is closed
MOST_BYTES: Final = 1 << 30  # from one connection: as much as a request may have
SILENCE: Final = 5_000  # ms without a byte after which it is closed
LONGEST: Final = 60_000  # ms after which it is closed in any case
_READ_SIZE: Final = 256 * 1024


class _Rest(Beside):
    """A connection that is being closed: its deadline, and how many bytes may still be read."""

    def __init__(self, lingering: "Lingering", sock: socket.socket, now: int) -> None:
        self._lingering = lingering
        self.sock = sock
        self.end = now + LONGEST
        self.heard = now
        self.bytes = MOST_BYTES

    def ready(self, mask: int, now: int) -> None:
        self._lingering.read(self.sock.fileno(), now)


class Lingering:
    """Reads closed connections until the client closes its end as well, within limits.

    Args:
        epoll: reports their events.
        beside: where the engine finds them, by file descriptor.

    Attributes:
        sockets: by file descriptor, the oldest first.
    """

    def __init__(self, epoll: select.epoll, beside: dict[int, Beside]) -> None:
        self.sockets: dict[int, _Rest] = {}
        self._beside = beside
        self._epoll = epoll
        self._dropped = bytearray(_READ_SIZE)

    def add(self, sock: socket.socket, now: int) -> None:
        """Close ``sock``, to which everything was sent, once the client has closed it."""
        try:
            sock.shutdown(socket.SHUT_WR)
        except OSError:
            sock.close()
            return
        if len(self.sockets) == MOST:
            self._close(next(iter(self.sockets)))
        rest = _Rest(self, sock, now)
        self.sockets[sock.fileno()] = self._beside[sock.fileno()] = rest
        self._epoll.register(sock.fileno(), select.EPOLLIN)

    def read(self, fd: int, now: int) -> None:
        """Read and discard what has arrived."""
        rest = self.sockets[fd]
        try:
            size = rest.sock.recv_into(self._dropped)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            size = 0
        rest.heard = now
        rest.bytes -= size
        if not size or rest.bytes <= 0:
            self._close(fd)

    def expire(self, now: int) -> None:
        """Close the connections that took too long. Call it now and then."""
        for fd, rest in list(self.sockets.items()):
            if now > rest.end or now - rest.heard > SILENCE:
                self._close(fd)

    def close_all(self) -> None:
        """Close them all."""
        for fd in list(self.sockets):
            self._close(fd)

    def _close(self, fd: int) -> None:
        self._epoll.unregister(fd)
        del self._beside[fd]
        self.sockets.pop(fd).sock.close()
