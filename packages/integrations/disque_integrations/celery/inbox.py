"""Calls from a client's thread for a connection's thread, which they wake up."""

import os
import select
from collections import deque
from collections.abc import Callable


class Inbox:
    """Calls that one thread wants another one to make.

    Attributes:
        fd: readable when there is a call.
    """

    def __init__(self) -> None:
        self.fd, self._waker = os.pipe()
        os.set_blocking(self.fd, False)
        os.set_blocking(self._waker, False)
        self._letters: deque[Callable[[], object]] = deque()
        self._awake = False

    def put(self, deliver: Callable[[], object]) -> None:
        """Have ``deliver`` called in the connection's thread."""
        self._letters.append(deliver)
        if not self._awake:
            self._awake = True
            try:
                os.write(self._waker, b"1")
            except BlockingIOError:
                pass  # it is already awake

    def take(self) -> Callable[[], object] | None:
        """Return the next call; None if there is none."""
        if not self._letters and self._awake:
            try:
                os.read(self.fd, 4096)
            except BlockingIOError:
                pass
            self._awake = False  # before checking for calls that came meanwhile
        return self._letters.popleft() if self._letters else None

    def wait(self, timeout: float | None) -> None:
        """Wait until there is a call, or ``timeout`` (s) is over; None: forever."""
        poll = select.poll()
        poll.register(self.fd, select.POLLIN)
        poll.poll(None if timeout is None else timeout * 1000)

    def close(self) -> None:
        """Close the pipe. Nothing more is taken."""
        self._awake = True
        os.close(self.fd)
        os.close(self._waker)
