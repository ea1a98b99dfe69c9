"""How a run is repeated and ended, with a fake Spark."""

import threading
from typing import Any, cast

import pytest
from pyspark.sql import DataFrame

from disque_spark.processing.run import _run
from disque_spark.processing.task import Summary
from disque_spark.restarts import Restarts


class Frame:
    """Rows that say what tasks have done."""

    def __init__(self, *done: int, fails: Exception | None = None) -> None:
        self._rows = [(count, 0, 0, 0, 0) for count in done]
        self._fails = fails

    def collect(self) -> list[tuple[int, ...]]:
        if self._fails is not None:
            raise self._fails
        return self._rows


def run(*frames: Frame, once: bool, seconds: float | None = None, restarts: int = 9) -> Any:
    """Run these frames, and stop with the last one. Returns the summary, and for how many seconds
    the tasks were to take jobs."""
    stop = threading.Event()
    asked: list[float | None] = []

    def tasks(wanted: float | None) -> DataFrame:
        asked.append(wanted)
        if len(asked) == len(frames):
            stop.set()
        return cast("DataFrame", frames[len(asked) - 1])

    return _run(tasks, once, seconds, Restarts(restarts), stop), asked


def test_rounds_go_on_until_they_are_stopped_and_are_added_up() -> None:
    summary, asked = run(Frame(2, 1), Frame(2, 1), Frame(2, 1), once=False)
    assert (summary, asked) == (Summary(done=9), [10.0] * 3)


def test_rounds_end_when_their_time_is_over() -> None:
    for seconds in (0, 1e-9):
        summary, asked = run(Frame(1), Frame(1), once=False, seconds=seconds)
        assert (summary.done, len(asked)) == (1, 1)
        assert asked[0] is not None
        assert asked[0] <= seconds


def test_a_run_until_the_queue_is_empty_has_one_round() -> None:
    assert run(Frame(3), Frame(4), once=True, seconds=None) == (Summary(done=3), [None])


def test_tasks_that_died_are_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("disque_spark.restarts.FIRST_PAUSE", 0.0)
    died = Frame(fails=RuntimeError("Python worker exited unexpectedly (crashed)"))
    summary, _ = run(died, Frame(4), once=True)
    assert summary == Summary(done=4, restarts=1)
    with pytest.raises(RuntimeError, match="crashed"):
        run(died, Frame(4), once=True, restarts=0)


def test_permanent_failures_are_raised() -> None:
    with pytest.raises(RuntimeError, match="NOPERM"):
        run(Frame(fails=RuntimeError("RefusedError: NOPERM no")), Frame(1), once=True)
