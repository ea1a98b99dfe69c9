"""Terminal helpers for the commands: progress line, signals, exit statuses."""

import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import trio

from disque_pressure.tasks import aside
from disque_trio import humanize

OK, FAILED, USAGE = 0, 1, 2
SIGNALLED = 128  # plus the number of the signal

REFRESH = 0.25  # seconds


class Failed(Exception):
    """A command failed; the text explains why."""


class TerminalCounter:
    """A line on a terminal that counts elements, rewritten four times a second.

    Shows the total and the current rate. If standard error is not a terminal, nothing is written.

    Attributes:
        elements: the number of elements so far.
        waits: called while no elements arrive, to describe what the command waits for; None: it
            waits for nothing.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self._stream = sys.stderr
        self._shown = not quiet and self._stream.isatty()
        self._began = self._last = time.monotonic()
        self._last_elements = 0
        self._width = 0
        self.elements = 0
        self.waits: Callable[[], Awaitable[str]] | None = None

    def add(self, elements: int) -> None:
        """Count elements."""
        self.elements += elements

    async def run(self) -> None:
        """Keep the line up to date, until cancelled."""
        while self._shown:
            await trio.sleep(REFRESH)
            waits = self.waits if self.elements == self._last_elements else None
            note = "" if waits is None else await waits()
            now = time.monotonic()
            rate = (self.elements - self._last_elements) / max(now - self._last, 1e-6)
            self._last, self._last_elements = now, self.elements
            text = f"{self.elements:,} elements, {rate:,.0f}/s"
            self._write(f"{text}, {note}" if note else text)
        await trio.sleep_forever()

    def end(self) -> None:
        """Leave the totals on the terminal and start a new line."""
        if self._shown:
            took = max(time.monotonic() - self._began, 1e-6)
            rate = f"{self.elements / took:,.0f}/s"
            self._write(f"{self.elements:,} elements in {humanize.duration(took)}, {rate}")
            self._stream.write("\n")
            self._stream.flush()
            self._shown = False

    def _write(self, text: str) -> None:
        self._stream.write("\r" + text.ljust(self._width))
        self._stream.flush()
        self._width = len(text)


class Signals:
    """The SIGINT, SIGTERM or SIGHUP that was received, if any.

    Attributes:
        caught: the number of the first signal, or None.
    """

    CAUGHT = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        self.caught: int | None = None


@asynccontextmanager
async def stopped_by_signals() -> AsyncIterator[Signals]:
    """Cancel the block when a signal arrives, so that roles are given back; remember the signal.

    The cancellation ends here. A second signal changes nothing, since giving back roles has its own
    time limits. A signal that was ignored when the program started (``nohup``) remains ignored.
    """
    signals = Signals()
    numbers = [number for number in Signals.CAUGHT if signal.getsignal(number) != signal.SIG_IGN]
    if not numbers:
        yield signals
        return

    async def watch() -> None:
        async for number in received:
            if signals.caught is None:
                signals.caught = number
                scope.cancel()

    with trio.open_signal_receiver(*numbers) as received:
        async with aside(watch):
            with trio.CancelScope() as scope:
                yield signals


def fill_streams() -> None:
    """Make sure that descriptors 0, 1 and 2 are open, even if using them only fails.

    A program started without them (``<&-``) would otherwise give these numbers to its sockets, and
    mistake the sockets for its input and output.
    """
    for descriptor, mode in ((0, os.O_WRONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, mode)  # takes the lowest free number
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)


def say(text: str) -> None:
    """Print a line on standard error, after the name of the program."""
    print(f"pressure: {text}", file=sys.stderr, flush=True)
