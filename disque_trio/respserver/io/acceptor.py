"""Accepts clients at a listening socket that several processes share.

Each connection wakes one process that has nothing to do, not all: EPOLLEXCLUSIVE. The kernel wakes
the one that has waited in line for the longest time, so a process that has accepted a client goes
to the end of the line. A process that was woken and ends before it accepts leaves the connection to
the others, but nothing wakes them: whoever notices that it ended calls ``look_again``.
"""

import select
import socket
from collections.abc import Callable

import trio

from disque_trio.respserver.io.beside import Beside
from disque_trio.respserver.io.engine import Engine

_PAUSE = 0.1  # s to wait when there are no descriptors or no memory


class Acceptor(Beside):
    """Accepts clients of ``listener`` between ``open`` and ``close``.

    Args:
        admit: called with socket, ip and port of each.
    """

    def __init__(
        self,
        listener: socket.socket,
        engine: Engine,
        admit: Callable[[socket.socket, str, int], None],
    ) -> None:
        self._listener = listener
        self._engine = engine
        self._admit = admit
        self._is_open = False
        self._full = trio.Event()

    def open(self) -> None:
        """Accept clients from now on."""
        if not self._is_open:
            self._is_open = True
            events = select.EPOLLIN | select.EPOLLEXCLUSIVE
            self._engine.attend(self._listener.fileno(), self, events)

    def close(self) -> None:
        """Leave them to the other processes."""
        if self._is_open:
            self._is_open = False
            self._engine.leave(self._listener.fileno())

    def look_again(self) -> None:
        """Accept what waits, and go to the end of the line."""
        if self._is_open:
            self.close()
            self.open()

    def ready(self, mask: int, now: int) -> None:
        if self._engine.halted:
            self.close()
            return
        try:
            sock, peer = self._listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return  # another process was faster
        except OSError as failure:
            self._engine.log.warning("cannot accept", reason=failure.strerror)
            self.close()
            self._full.set()
            return
        self._admit(sock, peer[0], peer[1])
        self.look_again()

    async def run(self) -> None:
        """Keep it open until cancelled."""
        self.open()
        try:
            while True:
                await self._full.wait()
                self._full = trio.Event()
                await trio.sleep(_PAUSE)
                if not self._engine.halted:
                    self.open()
        finally:
            self.close()
