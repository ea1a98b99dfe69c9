"""Displays the worker's state: a terminal line rewritten each second, or a log line a minute."""

import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from disque_trio.process.logs import Log
from disque_trio.version import VERSION
from disque_trio.worker.view import View

_OFTEN = 1.0  # s
_SELDOM = 60.0  # s
# The line is below the one with the cursor, so that output of tasks appears above it. Everything
# after the cursor is erased before the line is written again.
_ERASE = "\r\x1b[J"
_BACK = "\x1b[A\r"


_MOST_NAMES = 20


@dataclass(frozen=True, slots=True)
class Banner:
    """What a worker that starts says of itself.

    Attributes:
        app: the app's name on the command line.
        nodes: where it looks for nodes.
        queues: the queues from which it takes jobs, with their weights if they differ.
        not_taken: other queues of the app's tasks.
        tasks: the names of the app's tasks.
        processes, concurrency: how many processes, such as 2 or 2..8, and tasks at a time in each.
    """

    app: str
    nodes: Sequence[str]
    queues: Sequence[str]
    not_taken: Sequence[str]
    tasks: Sequence[str]
    processes: str
    concurrency: int

    def lines(self) -> list[str]:
        """Return the lines for a terminal."""
        rows = [
            ("nodes", _names(self.nodes)),
            ("queues", _names(self.queues) or "none"),
            ("not taken", _names(self.not_taken)),
            ("tasks", _names(self.tasks) or "none"),
            ("processes", f"{self.processes}, with {self.concurrency} tasks at a time in each"),
        ]
        shown = [f"  {name:<10} {text}" for name, text in rows if text]
        return [f"disque-worker {VERSION} runs {self.app}", *shown]


def _names(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


class Display:
    """The banner and the status line.

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
        self._banner: Banner | None = None

    def start(self, banner: Banner) -> None:
        """Show what the worker is, unless that is what was shown last."""
        if banner == self._banner:
            return
        self._banner = banner
        if self._terminal:
            self._write(_ERASE + "\n".join([*banner.lines(), ""]))
        elif not self._quiet:
            self._log.notice("worker", version=VERSION, **asdict(banner))

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
