"""Runs the tasks of a run: once, in rounds, or for each batch of a stream."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from disque_spark.processing.summary import Counts, Partition, Summary
from disque_spark.restarts import Restarts, wait

LOOK = 0.2  # s between checks whether to stop
ROUND_SECONDS = 10.0  # length of a round of a run without an end


class StoppedError(Exception):
    """The run is over."""


@dataclass
class Rounds:
    """A run.

    Attributes:
        restarts: how often to start over when Spark fails; None: any number of times.
        stop: set to end the run.
        seconds: how long to go on; None: forever.
    """

    restarts: int | None
    stop: threading.Event
    seconds: float | None
    _counts: Counts = field(default_factory=Counts)
    _began: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self._again = Restarts(self.restarts)

    def once(self, frame: DataFrame) -> Summary:
        """Run the tasks of ``frame``, whose rows say what the tasks have done."""
        self._with_restarts(lambda: self.count(frame))
        return self._summary()

    def forever(self, frame: Callable[[float], DataFrame]) -> Summary:
        """Run rounds until the run is to end.

        Args:
            frame: makes a frame whose tasks take jobs for the given number of seconds.
        """
        while not self._over():
            self._with_restarts(lambda: self.count(frame(min(ROUND_SECONDS, self._left()))))
            self._again.progress()
        return self._summary()

    def stream(
        self,
        batches: DataFrame,
        work: Callable[[DataFrame], DataFrame],
        checkpoint: str,
        until_empty: bool,
    ) -> Summary:
        """Run tasks for each batch of a stream. The stream is only stopped between batches.

        Args:
            work: makes a frame whose tasks process the jobs of a batch.
            checkpoint: the checkpoint location.
            until_empty: end when the jobs that were there at the start are done.
        """
        busy = threading.Lock()
        begun = -1

        def batch(frame: DataFrame, number: int) -> None:
            nonlocal begun
            with busy:
                if self._over():  # leave the batch for the next start
                    raise StoppedError
                begun = number
                self.count(work(frame))
            self._again.progress()

        def is_committed(query: StreamingQuery) -> bool:
            last = query.lastProgress
            return begun < 0 or (last is not None and last["batchId"] >= begun)

        def follow() -> None:
            writer = batches.writeStream.foreachBatch(batch)
            if until_empty:
                writer = writer.trigger(availableNow=True)
            query = writer.option("checkpointLocation", checkpoint).start()
            try:
                while not query.awaitTermination(LOOK):  # type: ignore[arg-type]
                    if not self._over():
                        continue
                    # Not stopped under the lock: ``stop`` waits for a batch that has just begun,
                    # which waits for the lock to find that the run is over.
                    with busy:
                        committed = is_committed(query)
                    if committed:
                        query.stop()
                        return
            except StreamingQueryException:
                if not self._over():
                    raise
            finally:
                query.stop()

        self._with_restarts(follow)
        return self._summary()

    def count(self, frame: DataFrame) -> None:
        """Run the tasks of ``frame``."""
        self._counts.add([Partition(*row) for row in frame.collect()])

    def _with_restarts(self, run: Callable[[], None]) -> None:
        while True:
            try:
                run()
                return
            except Exception as failure:  # from PySpark, the JVM, or a Spark Connect server
                # If the JVM or the server is gone, its text cannot be asked for.
                kind = type(failure).__name__
                lost = isinstance(failure, ConnectionError) or "NetworkError" in kind
                text = "" if lost else str(failure).strip()
                pause = None if lost else self._again.pause(text, " ".join(text.splitlines()[:2]))
                if pause is None:
                    raise
                wait(pause, self.stop.is_set)
                if self.stop.is_set():
                    return

    def _left(self) -> float:
        if self.seconds is None:
            return float("inf")
        return max(0.0, self.seconds - (time.monotonic() - self._began))

    def _over(self) -> bool:
        return self.stop.is_set() or not self._left()

    def _summary(self) -> Summary:
        return self._counts.summary(time.monotonic() - self._began, self._again.count)
