"""Has Spark run the tasks of a run: once, round after round, or for each batch of a stream."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from disque_trio.spark.processing.summary import Counts, Partition, Summary
from disque_trio.spark.restarts import Restarts, wait

LOOK = 0.2  # s between two looks whether to stop
ROUND_SECONDS = 10.0  # of a run without an end


class StoppedError(Exception):
    """The run is over."""


@dataclass
class Rounds:
    """A run.

    Attributes:
        restarts: how often Spark is asked again when it fails; None: any number.
        stop: set when the run shall end.
        seconds: how long it goes on; None: for ever.
    """

    restarts: int | None
    stop: threading.Event
    seconds: float | None
    _counts: Counts = field(default_factory=Counts)
    _began: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self._again = Restarts(self.restarts)

    def once(self, frame: DataFrame) -> Summary:
        """Run the tasks of ``frame``, whose rows say what they have done."""
        self._patiently(lambda: self.count(frame))
        return self._summary()

    def for_ever(self, frame: Callable[[float], DataFrame]) -> Summary:
        """Round after round, until it shall end.

        Args:
            frame: makes one whose tasks take jobs for so many seconds.
        """
        while not self._over():
            self._patiently(lambda: self.count(frame(min(ROUND_SECONDS, self._left()))))
            self._again.progress()
        return self._summary()

    def stream(
        self,
        batches: DataFrame,
        work: Callable[[DataFrame], DataFrame],
        checkpoint: str,
        until_empty: bool,
    ) -> Summary:
        """For each batch of a stream, which is stopped between two of them.

        Args:
            work: makes the frame whose tasks do the jobs of a batch.
            checkpoint: where Spark keeps how far it is.
            until_empty: end when what was there is done.
        """
        busy = threading.Lock()
        begun = -1

        def batch(frame: DataFrame, number: int) -> None:
            nonlocal begun
            with busy:
                if self._over():  # it is for the next start
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
                    if self._over() and is_committed(query):
                        with busy:
                            query.stop()
                        return
            except StreamingQueryException:
                if not self._over():
                    raise
            finally:
                query.stop()

        self._patiently(follow)
        return self._summary()

    def count(self, frame: DataFrame) -> None:
        """Run the tasks of ``frame``."""
        self._counts.add([Partition(*row) for row in frame.collect()])

    def _patiently(self, run: Callable[[], None]) -> None:
        while True:
            try:
                run()
                return
            except Exception as failure:  # PySpark's, the JVM's, or of a Spark Connect server
                # Without a JVM there is nobody to ask.
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
