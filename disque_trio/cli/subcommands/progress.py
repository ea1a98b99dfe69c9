"""Tells how far a long operation is."""

import shutil
from collections.abc import Callable
from typing import Final, TextIO

from disque_trio import humanize

BAR: Final = 30  # cells
BAR_EACH: Final = 0.1  # s between two changes of a bar
LINE_EACH: Final = 10.0  # s between two lines


def told(what: str, done: int, total: int | None, seconds: float) -> str:
    """How far it is after ``seconds``: the number, the share, the rate and the time left."""
    rate = done / seconds if seconds > 0 else 0.0
    parts = [f"{what} {done:,}" if total is None else f"{what} {done:,} of {total:,}"]
    if total:
        parts.append(f"{min(100, 100 * done // total)} %")
    if rate:
        parts.append(f"{humanize.rate(rate)}/s")
        if total is not None and total > done:
            parts.append(f"{humanize.duration((total - done) / rate)} left")
    return "  ".join(parts)


def bar(done: int, total: int | None, width: int) -> str:
    """A bar of ``width`` cells, and its frame; empty if the total is unknown."""
    if not total:
        return ""
    full = min(width, width * done // total)
    return f"[{'#' * full}{'.' * (width - full)}] "


class Meter:
    """How far one operation is.

    Args:
        out: where to tell it: a bar, which changes in place, on a terminal, and otherwise lines.
        what: what was done to the things that are counted, such as ``moved``.
        total: how many there are; None if unknown.
        clock: the time in s.
    """

    def __init__(
        self, out: TextIO, what: str, total: int | None, clock: Callable[[], float]
    ) -> None:
        self.done = 0
        self.total = total
        self._out = out
        self._what = what
        self._clock = clock
        self._began = self._last = clock()
        self._terminal = out.isatty()
        self._drawn = False

    def add(self, number: int) -> None:
        """Note that ``number`` more are done."""
        self.done += number
        now = self._clock()
        if now - self._last >= (BAR_EACH if self._terminal else LINE_EACH):
            self._last = now
            self._tell(now)

    def end(self) -> None:
        """Remove the bar."""
        if self._drawn:
            self._out.write("\r\x1b[K")
            self._out.flush()
            self._drawn = False

    def __str__(self) -> str:
        return told(self._what, self.done, self.total, self._clock() - self._began)

    def _tell(self, now: float) -> None:
        text = told(self._what, self.done, self.total, now - self._began)
        if self._terminal:
            line = bar(self.done, self.total, BAR) + text
            self._out.write(f"\r\x1b[K{line[: shutil.get_terminal_size().columns - 1]}")
            self._drawn = True
        else:
            self._out.write(f"{text}\n")
        self._out.flush()
