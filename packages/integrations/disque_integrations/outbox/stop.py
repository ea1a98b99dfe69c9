"""Waits that signals can interrupt."""

import select
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Readable(Protocol):
    """An object that ``select`` accepts."""

    def fileno(self) -> int: ...


class Stop:
    """A request to stop, which can be waited for.

    Attributes:
        requested: whether ``request`` was called.
        waker: a descriptor; what is written to it ends a wait.
    """

    def __init__(self) -> None:
        self.requested = False
        self._reader, self._writer = socket.socketpair()
        self._writer.setblocking(False)
        self.waker = self._writer.fileno()

    def request(self, *_: object) -> None:
        """Request to stop. Can be used as a signal handler."""
        self.requested = True
        try:
            self._writer.send(b"\0")
        except BlockingIOError:
            pass

    def wait(self, seconds: float, other: Readable | None = None) -> None:
        """Wait for ``seconds``, until ``other`` is readable, or until a stop is requested."""
        files: list[Readable] = [self._reader] if other is None else [self._reader, other]
        select.select(files, [], [], seconds)

    def close(self) -> None:
        self._reader.close()
        self._writer.close()


@contextmanager
def stopped_by_signals() -> Iterator[Stop]:
    """Yield a ``Stop`` requested by SIGTERM and SIGINT within the block. Main thread only."""
    stop = Stop()
    numbers = (signal.SIGTERM, signal.SIGINT)
    # A signal that comes right before a wait begins is noted, but its handler would run only after
    # the wait: so the signal itself has to end that.
    waker = signal.set_wakeup_fd(stop.waker, warn_on_full_buffer=False)
    before = {number: signal.signal(number, stop.request) for number in numbers}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(waker)
        stop.close()
