"""Displays the worker's state: a terminal line rewritten each second, or a log line a minute."""

import os
import sys

from disque_trio.process.logs import Log
from disque_trio.worker.view import View

_OFTEN = 1.0  # s
_SELDOM = 60.0  # s
# The line is below the one with the cursor, so that output of tasks appears above it. Everything
# after the cursor is erased before the line is written again.
_ERASE = "\r\x1b[J"
_BACK = "\x1b[A\r"


class Display:
    """The status line.

    Args:
        log: gets the line if there is no terminal.
        quiet: show no line.
    """

    def __init__(self, log: Log, *, quiet: bool) -> None:
        self._log = log
        self._quiet = quiet
        self._stream = sys.stderr
        self._was_terminal = self._stream.isatty()
        self._terminal = self._was_terminal and not quiet
        self._last = -_OFTEN
        self._last_said = 0.0
        self._last_count = 0
        self._last_said_count = 0

    def update(self, view: View, now: float) -> bool:
        """Show the state at ``now`` (s) if it is time. Returns whether a second has passed."""
        if now - self._last < _OFTEN:
            return False
        count = view.tally.all
        took = now - self._last if self._last > 0 else _OFTEN
        rate, self._last, self._last_count = (count - self._last_count) / took, now, count
        if self._terminal:
            line = view.line(rate)[: self._columns() - 1]
            self._write(f"{_ERASE}\n{line}{_BACK}")
        elif not self._quiet:
            self._say(view, now)
        return True

    def _say(self, view: View, now: float) -> None:
        if not self._last_said:
            self._last_said = now
        if now - self._last_said < _SELDOM:
            return
        count = view.tally.all
        rate = (count - self._last_said_count) / (now - self._last_said)
        self._last_said, self._last_said_count = now, count
        self._log.notice("counts", line=view.line(rate))

    def end(self) -> None:
        """Erase the line."""
        if self._terminal:
            self._write(_ERASE)
        if self.hung_up:
            # Python cannot flush output that is still buffered when it exits, and would change the
            # exit status to 120.
            with open(os.devnull, "w") as nowhere:
                os.dup2(nowhere.fileno(), self._stream.fileno())

    @property
    def hung_up(self) -> bool:
        """Whether the terminal is gone, because whoever started this closed it."""
        return self._was_terminal and not self._stream.isatty()

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except OSError:
            self._terminal = False  # it is gone

    def _columns(self) -> int:
        import shutil  # takes a while to load

        return shutil.get_terminal_size().columns
