"""How a run is repeated and ended, with a fake Spark."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from disque_spark.processing.rounds import Rounds
from disque_spark.processing.summary import Summary
from tests.support.harness import HANG_SECONDS


class Frame:
    """Rows that say what tasks have done."""

    def __init__(self, *parts: tuple[int, int]) -> None:
        self.rows = [(number, done, 0, 0, 0, 1.0) for number, done in parts]

    def collect(self) -> list[tuple[int, int, int, int, int, float]]:
        return self.rows


class Query:
    """A stream and its query: each look at it is a step, which is a batch or its commit."""

    def __init__(self, batches: int) -> None:
        self.writeStream = self
        self.stopped = 0
        self.committed: list[int] = []
        self.lastProgress: dict[str, int] | None = None
        self._left = list(range(batches))
        self._uncommitted: int | None = None
        self._work: Callable[[Any, int], None] = lambda frame, number: None

    def foreachBatch(self, work: Callable[[Any, int], None]) -> "Query":
        self._work = work
        return self

    def trigger(self, availableNow: bool) -> "Query":
        return self

    def option(self, name: str, value: str) -> "Query":
        return self

    def start(self) -> "Query":
        return self

    def awaitTermination(self, seconds: float) -> bool:
        if self._uncommitted is not None:
            self.committed.append(self._uncommitted)
            self.lastProgress = {"batchId": self._uncommitted}
            self._uncommitted = None
        elif self._left:
            number = self._left.pop(0)
            try:
                self._work(Frame((0, 5)), number)
            except Exception as problem:
                raise StreamingQueryException(str(problem)) from problem
            self._uncommitted = number
        else:
            return True
        return False

    def stop(self) -> None:
        self.stopped += 1


def stopped_in_the_second_batch(query: Query) -> Summary:
    """Run a stream that is told to stop during its second batch."""
    stop = threading.Event()

    def work(frame: Any) -> Any:
        if query.committed == [0]:
            stop.set()
        return frame

    return Rounds(0, stop, None).stream(query, work, "there", until_empty=False)  # type: ignore[arg-type]


def test_a_stream_is_stopped_when_the_batch_in_hand_is_committed() -> None:
    query = Query(5)
    summary = stopped_in_the_second_batch(query)
    assert query.committed == [0, 1]
    assert summary.done == 10
    assert query.stopped


def test_what_a_stream_has_planned_when_it_is_over_is_left_for_the_next_start() -> None:
    stop = threading.Event()
    query = Query(5)

    class Eager(Query):
        def awaitTermination(self, seconds: float) -> bool:
            stop.set()
            return query.awaitTermination(seconds)

    eager = Eager(0)
    eager.foreachBatch = query.foreachBatch  # type: ignore[method-assign]
    query.start = lambda: eager  # type: ignore[method-assign]
    summary = Rounds(0, stop, None).stream(eager, lambda frame: frame, "there", until_empty=True)  # type: ignore[arg-type]
    assert (query.committed, summary.done) == ([], 0)


def test_a_batch_that_begins_while_the_stream_is_being_stopped_does_not_block_that() -> None:
    """Spark's ``stop`` waits for the end of a call of ``foreachBatch``'s function."""
    refused: list[Exception] = []

    class Late(Query):
        def stop(self) -> None:
            super().stop()
            if self.stopped > 1:
                return
            late = threading.Thread(target=self.begin, daemon=True)
            late.start()
            late.join(HANG_SECONDS)
            assert not late.is_alive()

        def begin(self) -> None:
            try:
                self._work(Frame((0, 5)), 2)
            except Exception as problem:
                refused.append(problem)

    query = Late(5)
    summary = stopped_in_the_second_batch(query)
    assert (query.committed, summary.done) == ([0, 1], 10)
    assert len(refused) == 1


def test_rounds_go_on_until_they_are_stopped_and_are_added_up() -> None:
    stop = threading.Event()
    given: list[float] = []

    def frame(seconds: float) -> Any:
        given.append(seconds)
        if len(given) == 3:
            stop.set()
        return Frame((0, 2), (1, 1))

    summary = Rounds(0, stop, None).forever(frame)
    assert given == [10.0] * 3
    assert (summary.done, len(summary.partitions), summary.partitions[0].done) == (9, 2, 6)


def test_permanent_failures_are_raised() -> None:
    class Fails(Frame):
        def collect(self) -> Any:
            raise RuntimeError("RefusedError: NOPERM no")

    with pytest.raises(RuntimeError, match="NOPERM"):
        Rounds(None, threading.Event(), None).once(Fails())  # type: ignore[arg-type]
