"""Signals that stop a command."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Stopped(BaseException):
    """The process was asked to stop, by a signal.

    Attributes:
        signal: the signal.
    """

    def __init__(self, number: int) -> None:
        self.signal = signal.Signals(number)
        super().__init__(f"stopped by {self.signal.name}")


class Signals:
    """Turns SIGINT and SIGTERM into ``Stopped`` in the main thread. Code that must not be
    interrupted holds the first signal back.

    Attributes:
        stopped: the last signal that arrived; None: none has.
    """

    def __init__(self) -> None:
        self.stopped: Stopped | None = None
        self._held = 0
        self._before: dict[int, object] = {}

    def catch(self) -> None:
        """Install the handlers. Call it again after others have replaced them, as Spark does."""
        for number in (signal.SIGINT, signal.SIGTERM):
            before = signal.signal(number, self._handle)
            self._before.setdefault(number, before)

    def release(self) -> None:
        """Restore the handlers from before the first ``catch``."""
        for number, before in self._before.items():
            signal.signal(number, before)  # type: ignore[arg-type]
        self._before.clear()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the first signal back during the block, which can look at ``stopped``. A second
        signal interrupts the block.

        Raises:
            Stopped: at the end of the block, if a signal has arrived.
        """
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1
        if self.stopped is not None:
            raise self.stopped

    def _handle(self, number: int, frame: FrameType | None) -> None:
        first = self.stopped is None
        self.stopped = Stopped(number)
        if not (self._held and first):
            raise self.stopped
