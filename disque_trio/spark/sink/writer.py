"""The sink of the data source ``disque``: writes rows as jobs, as a batch or as a stream.

At least once: what a task has added stays, also when the task is repeated or its write fails.
"""

import json
import logging
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import (
    BinaryType,
    ByteType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
)

from disque_trio.spark.client import Arg
from disque_trio.spark.options import (
    OptionError,
    choice,
    directory,
    flag,
    login_of,
    nodes_of,
    number,
)
from disque_trio.spark.sink.adder import Adder, Refusal, code_of
from disque_trio.spark.sink.dead_letters import DeadLetters

NUMBERS = ("delay", "retry", "ttl", "replicate", "maxlen", "priority")
COLUMNS = ("body", "queue", "timeout", *NUMBERS)
TIMEOUT = 5000  # ms that an ADDJOB waits for its copies
PIPELINE = 500
PIPELINE_BYTES = 4 << 20

log = logging.getLogger(__name__)


@dataclass
class Added(WriterCommitMessage):
    """The result of a task.

    Attributes:
        added: jobs. refused: how many rows, by the code of the error.
        dead_letters: the file that has them; "" if there is none.
    """

    added: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    dead_letters: str = ""


class RefusedRowError(Exception):
    """A row was refused, and ``onRefused`` is ``fail``."""


class Sink:
    """The base of the batch and stream writers.

    Raises:
        OptionError: an option or a column is not what it should be.
    """

    def __init__(self, schema: StructType, options: Mapping[str, str], overwrite: bool) -> None:
        if overwrite:
            raise OptionError("mode: jobs can only be appended")
        _check(schema, "queue" in options)
        self._nodes = nodes_of(options)
        self._login = login_of(options)
        self._discover = flag(options, "discover", True)
        self._queue = options.get("queue")
        self._timeout = number(options, "timeout", TIMEOUT)
        self._defaults = {name: number(options, name, 0, 0) for name in NUMBERS if name in options}
        self._pipeline = number(options, "pipeline", PIPELINE)
        self._retries = number(options, "retries", 5, 0)
        self._retry_pause = number(options, "retryPause", 100)
        self._failover = number(options, "failover", 30)
        self._on_refused = choice(options, "onRefused", "fail", "drop", "deadletter")
        letters = options.get("deadLetterPath")
        if (self._on_refused == "deadletter") != bool(letters):
            raise OptionError("deadLetterPath: goes with onRefused=deadletter, and only with it")
        self._letters = directory(letters) if letters else None
        report = options.get("reportPath")
        self._report = directory(report) if report else None

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Added:
        """Add the rows of a task.

        Raises:
            RefusedRowError: a row is refused, and that is to be an error.
            WireError: no node can be reached for ``failover`` seconds.
        """
        result = Added()
        context = TaskContext.get()
        # Tasks begin with different nodes.
        first = context.partitionId() % len(self._nodes) if context else 0
        adder = Adder(
            self._nodes[first:] + self._nodes[:first],
            self._login,
            self._discover,
            timeout=self._timeout / 1000 + 60,
            retries=self._retries,
            pause=self._retry_pause / 1000,
            failover=self._failover,
        )
        letters = DeadLetters(self._letters) if self._letters is not None else None
        try:
            for rows in iterator:
                self._add(adder, rows, result, letters)
            if letters is not None:
                result.dead_letters = letters.publish()
        finally:
            adder.close()
            if letters is not None:
                letters.close()
        return result

    def done(self, messages: Sequence[WriterCommitMessage | None], batch: int | None) -> None:
        """Say what a write came to."""
        results = [message for message in messages if isinstance(message, Added)]
        refused: Counter[str] = Counter()
        for result in results:
            refused.update(result.refused)
        if refused:
            log.warning("%d rows were refused: %s", refused.total(), dict(refused))
        if self._report is not None:
            line = {
                "time": time.time_ns() // 1_000_000,
                "batch": batch,
                "added": sum(result.added for result in results),
                "refused": dict(refused),
                "dead_letters": [result.dead_letters for result in results if result.dead_letters],
            }
            self._report.parent.mkdir(parents=True, exist_ok=True)
            with self._report.open("a") as file:
                file.write(json.dumps(line) + "\n")

    def _add(
        self, adder: Adder, rows: pa.RecordBatch, result: Added, letters: DeadLetters | None
    ) -> None:
        requests: list[tuple[Arg, ...]] = []
        places: list[int] = []  # of the requests in rows
        size = 0
        for place, request in enumerate(self._requests(rows)):
            if isinstance(request, str):
                self._refuse(rows, [Refusal(place, request)], result, letters)
                continue
            requests.append(request)
            places.append(place)
            size += len(request[2]) if isinstance(request[2], bytes | str) else 0
            if len(requests) >= self._pipeline or size >= PIPELINE_BYTES:
                self._flush(adder, rows, requests, places, result, letters)
                requests, places, size = [], [], 0
        self._flush(adder, rows, requests, places, result, letters)

    def _flush(
        self,
        adder: Adder,
        rows: pa.RecordBatch,
        requests: Sequence[tuple[Arg, ...]],
        places: Sequence[int],
        result: Added,
        letters: DeadLetters | None,
    ) -> None:
        refused = adder.add(requests)
        result.added += len(requests) - len(refused)
        found = [Refusal(places[place], error) for place, error in refused]
        self._refuse(rows, found, result, letters)

    def _requests(self, rows: pa.RecordBatch) -> Iterator[tuple[Arg, ...] | str]:
        """An ADDJOB for each row, or why there is none."""
        nothing = [None] * rows.num_rows
        given = {name.lower(): rows.column(at) for at, name in enumerate(rows.schema.names)}
        columns = {name: column.to_pylist() for name, column in given.items()}
        # Those that are the same for all rows come first.
        names = sorted(NUMBERS, key=lambda name: name in given)
        wanted = [columns.get(name, nothing) for name in ("body", "queue", "timeout", *names)]
        for body, own_queue, timeout, *numbers in zip(*wanted, strict=True):
            queue = self._queue if own_queue is None else own_queue
            if body is None or queue is None:
                yield "NULL the row has no " + ("body" if body is None else "queue")
                continue
            options: list[Arg] = []
            for name, own in zip(names, numbers, strict=True):
                value = self._defaults.get(name) if own is None else own
                if value is not None:
                    options += (name, value)
            yield ("ADDJOB", queue, body, timeout or self._timeout, *options)

    def _refuse(
        self,
        rows: pa.RecordBatch,
        refused: Sequence[Refusal],
        result: Added,
        letters: DeadLetters | None,
    ) -> None:
        if not refused:
            return
        if self._on_refused == "fail":
            raise RefusedRowError(
                f"{len(refused)} rows were refused, the first: {refused[0].error}"
            )
        result.refused.update(code_of(refusal.error) for refusal in refused)
        if letters is not None:
            letters.add(rows, [r.place for r in refused], [r.error for r in refused], self._queue)


class BatchWriter(Sink, DataSourceArrowWriter):
    """Writes a frame."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Called by Spark when all tasks are done."""
        self.done(messages, None)


class StreamWriter(Sink, DataSourceStreamArrowWriter):
    """Writes a stream."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Called by Spark when all tasks of a batch are done."""
        self.done(messages, batchId)


def _check(schema: StructType, queue: bool) -> None:
    """Whether the columns are those of jobs."""
    names = [name.lower() for name in schema.fieldNames()]
    unknown = [name for name in names if name not in COLUMNS]
    if unknown or "body" not in names:
        raise OptionError(
            f"columns: expected body and some of {', '.join(COLUMNS[1:])}; "
            + (f"unknown: {', '.join(unknown)}" if unknown else "there is no body")
        )
    if "queue" not in names and not queue:
        raise OptionError("queue: expected a column or an option")
    words = (BinaryType, StringType)
    for name, column in zip(names, schema.fields, strict=True):
        if name in ("body", "queue"):
            if not isinstance(column.dataType, words):
                raise OptionError(f"{name}: expected a column of type binary or string")
        elif not isinstance(column.dataType, ByteType | ShortType | IntegerType | LongType):
            raise OptionError(f"{name}: expected a column of integers")
