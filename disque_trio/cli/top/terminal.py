"""The terminal: its screen and keyboard, and how to restore them."""

import locale
import os
import signal
import sys
import termios
import tty
from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import Final, Self

import trio

from disque_trio.cli.top.keys import Keys
from disque_trio.cli.top.page import Line

# The alternate screen, without a cursor and without wrapping long lines.
_ENTER: Final = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J"
_LEAVE: Final = "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l"
_STYLES: Final = {"plain": "", "bold": "\x1b[1m", "dim": "\x1b[2m", "reverse": "\x1b[7m"}
_ESCAPE_SECONDS: Final = 0.05  # s until an escape counts as the Escape key


def is_there(environment_term: str) -> bool:
    """Whether there is a suitable terminal. environment_term: the value of TERM."""
    fine = environment_term not in ("", "dumb", "unknown")
    # A stream that was closed before the start is None.
    return fine and all(stream and stream.isatty() for stream in (sys.stdin, sys.stdout))


def encoding() -> str:
    """The encoding of standard output. With ``LC_ALL=C``, Python writes UTF-8 even to a terminal
    that does not know it, and may take some of the bytes for commands."""
    if sys.flags.utf8_mode and sys.stdout.isatty():
        return locale.getencoding()
    return sys.stdout.encoding or "ascii"


def painted(lines: Sequence[Line]) -> str:
    """The output that paints a whole screen."""
    rows = [f"{_STYLES[style]}{text}\x1b[0m\x1b[K" for text, style in lines]
    return "\x1b[H" + "\r\n".join(rows) + "\x1b[J"


class Terminal:
    """The terminal of the process, for exclusive use in a ``with`` block."""

    def __init__(self) -> None:
        self._in = sys.stdin.fileno()
        self._out = sys.stdout.fileno()
        self._encoding = encoding()
        self._before = termios.tcgetattr(self._in)

    def __enter__(self) -> Self:
        self._enter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._leave()

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines."""
        try:
            size = os.get_terminal_size(self._out)
        except OSError:
            return 80, 24
        # Some terminals report 0 if they do not know.
        return size.columns or 80, size.lines or 24

    def paint(self, lines: Sequence[Line]) -> None:
        """Show ``lines``. Raises OSError if the terminal is gone."""
        self._write(painted(lines))

    async def keys(self) -> AsyncIterator[str]:
        """The keys that are pressed, until the terminal is gone."""
        keys = Keys(self._encoding)
        while True:
            with trio.move_on_after(_ESCAPE_SECONDS if keys.waits else float("inf")) as scope:
                await trio.lowlevel.wait_readable(self._in)
            if scope.cancelled_caught:
                found = keys.flush()
            else:
                try:
                    data = os.read(self._in, 1024)
                except OSError:
                    return
                if not data:
                    return
                found = keys.feed(data)
            for key in found:
                yield key

    def suspend(self) -> None:
        """Restore the terminal and stop (Ctrl-Z), until the shell continues us."""
        self._leave()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._before = termios.tcgetattr(self._in)
        self._enter()

    def _enter(self) -> None:
        tty.setcbreak(self._in, termios.TCSANOW)
        settings = termios.tcgetattr(self._in)
        settings[0] &= ~termios.IXON  # otherwise Ctrl-S would block us
        termios.tcsetattr(self._in, termios.TCSANOW, settings)
        self._write(_ENTER)

    def _leave(self) -> None:
        try:
            self._write(_LEAVE)
            termios.tcsetattr(self._in, termios.TCSANOW, self._before)
        except (OSError, termios.error):
            pass  # the terminal is gone

    def _write(self, text: str) -> None:
        data = text.encode(self._encoding, "backslashreplace")
        while data:
            data = data[os.write(self._out, data) :]
