"""The progress on a terminal: the share done, the time left, the rate, and the current step."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from disque_spark.package import is_remote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOOK_SECONDS = 0.5
_END_SECONDS = 2.0  # the most that the last call to a JVM may take
_EVENT_BYTES = 235  # approximate length of a line of an event log


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


class TerminalProgress:
    """The progress line on stderr, drawn by rich. Prints nothing if stderr is no terminal, or rich
    is not installed."""

    def __init__(self) -> None:
        self._bar = _bar() if sys.stderr.isatty() else None
        self._part = Part("", 0.0, 1.0)

    def __call__(self, text: str) -> None:
        """Show what is being done from now on."""
        if self._bar is None:
            return
        self._part = text if isinstance(text, Part) else Part(text, 0.0, 1.0)
        if not (self._part.begin and self._bar.task_ids):
            for stage in self._bar.task_ids:
                self._bar.remove_task(stage)
            events = text.size // _EVENT_BYTES if isinstance(text, Reading) else 0
            self._bar.add_task("", total=None, whole=events or 1.0, unit="events/s" * bool(events))
        self._bar.update(self._bar.task_ids[0], description=str(text))
        self._show(0.0 if self._part.begin else None)
        self._bar.start()

    def end(self) -> None:
        """Clear the line."""
        if self._bar is not None:
            self._bar.stop()

    @contextmanager
    def of(self, spark: "SparkSession") -> Iterator[None]:
        """Show the share of the session's work that is done, during the block."""
        if self._bar is None:
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
        if self._bar is None:
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
        while not over.wait(_LOOK_SECONDS):
            try:
                self._show(share())
            except Exception:  # the JVM is gone; the main thread reports that
                return

    def _heard(self, stages: Any, **more: object) -> None:
        """Called by Spark Connect with its progress."""
        self._show(share_of([(each.num_completed_tasks, each.num_tasks) for each in stages or ()]))

    def _show(self, share: float | None) -> None:
        """Show the share of the current part's work that is done, 0 to 1; None: unknown. Spark adds
        stages to a job while it runs, but the line never goes back."""
        if self._bar is None or share is None or not self._bar.tasks:
            return
        stage = self._bar.tasks[0]
        done = self._part.begin + (self._part.end - self._part.begin) * min(share, 1.0)
        whole = stage.fields["whole"]
        self._bar.update(stage.id, total=whole, completed=max(stage.completed, done * whole))


def _bar() -> Any:
    """A line of rich; None if that is not installed."""
    try:
        from rich import progress
        from rich.console import Console
        from rich.text import Text
    except ImportError:
        return None

    class Rate(progress.ProgressColumn):
        """How much is done in a second, of what has a unit."""

        def render(self, task: progress.Task) -> Text:
            speed, unit = task.speed, task.fields["unit"]
            return Text(f"{speed:,.0f} {unit}" if speed and unit else "")

    return progress.Progress(
        progress.TimeElapsedColumn(),
        progress.BarColumn(16),
        progress.TaskProgressColumn(),
        progress.TimeRemainingColumn(),
        Rate(),
        progress.TextColumn("{task.description}", markup=False),
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
        refresh_per_second=2,
    )


def share_of(stages: list[tuple[int, int]]) -> float | None:
    """The share of the work that is done, 0 to 1; None if unknown.

    Args:
        stages: tasks done and all tasks, of each stage.
    """
    shares = [done / tasks for done, tasks in stages if tasks]
    return sum(shares) / len(shares) if shares else None
