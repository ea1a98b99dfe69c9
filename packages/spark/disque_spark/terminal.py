"""A progress line on a terminal: the share done, the time left, the rate, and the current step."""

import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from disque_spark.package import is_remote
from disque_trio import humanize

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MOST_WIDTH = 79
_BAR = 16
_DRAW_SECONDS = 0.5
_END_SECONDS = 2.0  # the most that the last call to a JVM may take
_EVENT_BYTES = 235  # approximate length of a line of an event log
_SURE = 0.03  # share of the work; before it is done, no estimate of the rest is possible


class Reading(str):
    """The text of a stage that reads event logs; ``size`` is the size of the lines in bytes."""

    size: int

    def __new__(cls, text: str, size: int) -> Self:
        reading = super().__new__(cls, text)
        reading.size = size
        return reading


class Part(str):
    """The text of one of several parts of a stage; ``begin`` and ``end`` are the shares of the
    stage's work, 0 to 1, that are done before and after it."""

    begin: float
    end: float

    def __new__(cls, text: str, begin: float, end: float) -> Self:
        part = super().__new__(cls, text)
        part.begin, part.end = begin, end
        return part


class Stage:
    """A stage of the work.

    Args:
        text: says what it does.
        since: when it began, monotonic seconds.
    """

    def __init__(self, text: str, since: float) -> None:
        self._since = since
        self._share = 0.0
        self._size = text.size if isinstance(text, Reading) else 0
        self._begin, self._end = 0.0, 1.0
        self.go_on(text)

    def go_on(self, text: str) -> None:
        """Go on with the next part of the stage."""
        self._text = text
        if isinstance(text, Part):
            self._begin, self._end = text.begin, text.end
            self._share = max(self._share, text.begin)

    def line(self, now: float, share: float | None) -> str:
        """The line to show at the time ``now`` (monotonic seconds).

        Args:
            share: share of the work, or of that of the current part, that Spark has done; None:
                unknown. The line never goes back.
        """
        if share is not None:
            done = self._begin + (self._end - self._begin) * min(share, 1.0)
            self._share = max(self._share, done)
        took = now - self._since
        if not self._share:
            return self._text
        full = round(self._share * _BAR)
        parts = [f"[{'#' * full}{'.' * (_BAR - full)}] {self._share:4.0%}"]
        if self._share >= _SURE and took > 0:
            if self._share < 1:
                parts.append(f"{humanize.duration(took / self._share - took)} left")
            if self._size:
                events = self._share * self._size / _EVENT_BYTES / took
                parts.append(f"{events:,.0f} events/s")
        return "  ".join([*parts, self._text])


class TerminalProgress:
    """The progress line on stderr. Prints nothing if that is not a terminal."""

    def __init__(self) -> None:
        self._shown = sys.stderr.isatty()
        self._started = time.monotonic()
        self._stage: Stage | None = None
        self._share: float | None = None
        self._lock = threading.Lock()

    def __call__(self, text: str) -> None:
        """Show what is being done from now on."""
        if self._shown:
            with self._lock:
                self._share = None
                if isinstance(text, Part) and text.begin and self._stage is not None:
                    self._stage.go_on(text)
                else:
                    self._stage = Stage(text, time.monotonic())
                self._draw()

    def end(self) -> None:
        """Clear the line."""
        if self._shown:
            with self._lock:
                self._stage = None
                print(f"\r{'':<{_width()}}\r", end="", file=sys.stderr, flush=True)

    @contextmanager
    def of(self, spark: "SparkSession") -> Iterator[None]:
        """Show the share of the session's work that is done, during the block."""
        if not self._shown:
            yield
            return
        if is_remote(spark):
            hear: Any = self._heard
            spark.registerProgressHandler(hear)
            try:
                yield
            finally:
                spark.removeProgressHandler(hear)
            return
        from disque_spark.classic import work_done

        with self.showing(lambda: work_done(spark)):
            yield

    @contextmanager
    def showing(self, share: Callable[[], float | None]) -> Iterator[None]:
        """Show the share of the work that is done, as ``share`` returns it, during the block."""
        if not self._shown:
            yield
            return
        over = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(over, share), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join(_END_SECONDS)

    def _watch(self, over: threading.Event, share: Callable[[], float | None]) -> None:
        while not over.wait(_DRAW_SECONDS):
            try:
                done = share()
            except Exception:  # the JVM is gone; the main thread reports that
                return
            with self._lock:
                self._share = done
                self._draw()

    def _heard(self, stages: Any, **more: object) -> None:
        """Called by Spark Connect with its progress."""
        counts = [(stage.num_completed_tasks, stage.num_tasks) for stage in stages or ()]
        with self._lock:
            self._share = share_of(counts)
            self._draw()

    def _draw(self) -> None:
        if self._stage is not None:
            now = time.monotonic()
            text = self._stage.line(now, self._share)
            width = _width()
            line = f"{now - self._started:6.0f} s  {text}"[:width]
            print(f"\r{line:<{width}}", end="", file=sys.stderr, flush=True)


def _width() -> int:
    """The width of the line in characters: a line that wraps could not be overwritten."""
    return min(shutil.get_terminal_size().columns - 1, _MOST_WIDTH)


def share_of(stages: list[tuple[int, int]]) -> float | None:
    """The share of the work that is done, 0 to 1; None if unknown.

    Args:
        stages: tasks done and all tasks, of each stage.
    """
    shares = [done / tasks for done, tasks in stages if tasks]
    return sum(shares) / len(shares) if shares else None
