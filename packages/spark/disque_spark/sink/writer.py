"""The sink of the data source ``disque``: adds rows as jobs, as a batch or a stream.

Jobs added by a task stay, even if the task is repeated or the write fails. If the nodes support
UNIQUE, jobs have keys, so that a repeat adds nothing twice.
"""

import json
import logging
import time
import uuid
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
from pyspark.sql.types import StructType

from disque_spark.client import Arg
from disque_spark.defaults import AT_LEAST_ONCE, EXACTLY_ONCE
from disque_spark.files import location
from disque_spark.notes import note
from disque_spark.options import (
    CONNECTION,
    MOST_TIME,
    OptionError,
    choice,
    flag,
    login_of,
    nodes_of,
    number,
    seconds,
)
from disque_spark.plain import PlainError, plain
from disque_spark.sink.adder import Adder, Refusal, code_of
from disque_spark.sink.dead_letters import DeadLetters
from disque_spark.sink.keys import RowKeys
from disque_spark.sink.requests import NUMBERS, TEXTS, Requests, check, defaults_of

KEPT = 3600  # s; default of uniqueFor
WRITE_OPTIONS = (
    *(*CONNECTION, "discover", "timeout", "queue", *TEXTS, *NUMBERS, "pipeline", "retries"),
    *("retryPause", "failover", "onRefused", "deadLetterPath", "reportPath"),
    *("mode", "uniqueFor", "writeId", "hints"),
)
TIMEOUT = 5000  # ms that an ADDJOB waits for its copies
PIPELINE = 500
# Local properties of Spark that tasks can read.
QUERY = "sql.streaming.queryId"
BATCH = "streaming.sql.batchId"
PIPELINE_BYTES = 4 << 20
NO_UNIQUE = (
    "this cluster, or one of its nodes, does not support ADDJOB UNIQUE; mode=at-least-once does not"
    " need it"
)

log = logging.getLogger(__name__)


@dataclass
class Added(WriterCommitMessage):
    """The result of a task.

    Attributes:
        added: number of jobs added.
        queues: the same, by queue.
        refused: number of rows refused, by the code of the error.
        errors: the first error with each code.
        dead_letters: file with the refused rows; "" if there is none.
        once: whether a repeat of the task would add nothing twice.
    """

    added: int = 0
    queues: Counter[Arg] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    errors: dict[str, str] = field(default_factory=dict)
    dead_letters: str = ""
    once: bool = True


class RefusedRowError(PlainError):
    """A node refused a row, and ``onRefused`` is ``fail``."""


class ModeError(PlainError):
    """The nodes, or Spark, cannot do what ``mode`` asks for."""


class Sink:
    """The base class of the batch and stream writers.

    Raises:
        OptionError: an option or a column is invalid.
    """

    def __init__(self, schema: StructType, options: Mapping[str, str], overwrite: bool) -> None:
        if overwrite:
            raise OptionError("mode: jobs can only be appended")
        check(schema, "queue" in options)
        self._nodes = nodes_of(options)
        self._login = login_of(options)
        self._discover = flag(options, "discover", True)
        self._queue = options.get("queue")
        self._best_for = self._queue if flag(options, "hints", False) else None
        if self._queue is None and "hints" in options:
            raise OptionError("hints: set queue as well")
        self._timeout = number(options, "timeout", TIMEOUT, most=MOST_TIME)
        mode = choice(options, "mode", "auto", EXACTLY_ONCE, AT_LEAST_ONCE)
        self._once = mode != AT_LEAST_ONCE
        # A user who names a write wants to be able to repeat it.
        self._strict = mode == EXACTLY_ONCE or "writeId" in options
        kept = seconds(options, "uniqueFor", KEPT if self._once else 0, 0)
        self._requests = Requests(self._timeout, defaults_of(options), kept)
        self._write_id = self._named(options.get("writeId"))
        self._pipeline = number(options, "pipeline", PIPELINE)
        self._retries = number(options, "retries", 5, 0)
        self._retry_pause = number(options, "retryPause", 100, most=MOST_TIME)
        self._failover = seconds(options, "failover", 30)
        self._on_refused = choice(options, "onRefused", "fail", "drop", "deadletter")
        letters = options.get("deadLetterPath")
        if (self._on_refused == "deadletter") != bool(letters):
            raise OptionError("deadLetterPath: set it if, and only if, onRefused=deadletter")
        self._letters = location(letters) if letters else None
        report = options.get("reportPath")
        self._report = location(report) if report else None

    @plain
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Added:
        """Add the rows of a task.

        Raises:
            RefusedRowError: a node refused a row, and ``onRefused`` is ``fail``.
            ModeError: the nodes do not support UNIQUE, and ``mode`` needs it; nothing was added.
            WireError: no node could be reached for ``failover`` seconds.
        """
        result = Added()
        context = TaskContext.get()
        partition = context.partitionId() if context else 0
        # Tasks begin with different nodes: of those in ``nodes``, and of all in the cluster.
        first = partition % len(self._nodes)
        keys = self._keys(context, partition)
        result.once = keys is not None
        adder = Adder(
            self._nodes[first:] + self._nodes[:first],
            self._login,
            timeout=self._timeout / 1000 + 60,
            failover=self._failover,
            discover=self._discover,
            first=partition,
            pause=self._retry_pause / 1000,
            retries=self._retries,
        )
        letters = DeadLetters(self._letters) if self._letters is not None else None
        try:
            for rows in iterator:
                self._add(adder, rows, keys if result.once else None, result, letters)
            if letters is not None:
                result.dead_letters = letters.publish()
        finally:
            adder.close()
            if letters is not None:
                letters.close()
        return result

    def done(self, messages: Sequence[WriterCommitMessage | None], batch: int | None) -> None:
        """Log and report the result of a write."""
        results = [message for message in messages if isinstance(message, Added)]
        refused: Counter[str] = Counter()
        for result in results:
            refused.update(result.refused)
        if refused:
            log.warning("%d rows were refused: %s", refused.total(), dict(refused))
        if self._once and not all(result.once for result in results):
            log.warning("rows were added at least once: %s", NO_UNIQUE)
        if self._report is not None:
            line = {
                "time": time.time_ns() // 1_000_000,
                "batch": batch,
                "added": sum(result.added for result in results),
                "refused": dict(refused),
                "dead_letters": [result.dead_letters for result in results if result.dead_letters],
            }
            note(self._report, [json.dumps(line).encode()])

    def _named(self, name: str | None) -> str:
        """The prefix of keys. The driver makes the writer, so all tasks have the same prefix.

        Args:
            name: the option ``writeId``.

        Raises:
            OptionError: the option has no meaning here.
        """
        if name is not None and not (name and self._once):
            raise OptionError(
                "writeId: expected a name; cannot be combined with mode=at-least-once"
            )
        return name or str(uuid.uuid4())

    def _keys(self, context: TaskContext | None, partition: int) -> RowKeys | None:
        if not self._once:
            return None
        written = self._written(context)
        if written is None and self._strict:
            raise ModeError("mode: Spark does not tell tasks which query and batch they belong to")
        return None if written is None else RowKeys(written, partition)

    def _written(self, context: TaskContext | None) -> str | None:
        """The name of the write, which stays the same if it is repeated; None: unknown."""
        return self._write_id

    def _add(
        self,
        adder: Adder,
        rows: pa.RecordBatch,
        keys: RowKeys | None,
        result: Added,
        letters: DeadLetters | None,
    ) -> None:
        # All rows are looked at before the first is added: a write that must fail adds none.
        made = list(self._requests.of(rows, keys))
        errors = [Refusal(n, error) for n, error in enumerate(made) if isinstance(error, str)]
        self._refuse(rows, errors, result, letters)
        requests: list[tuple[Arg, ...]] = []
        places: list[int] = []  # indexes of their rows
        size = 0
        for place, request in enumerate(made):
            if isinstance(request, str):
                continue
            requests.append(request)
            places.append(place)
            size += len(request[2]) if isinstance(request[2], bytes | str) else 0
            if len(requests) >= self._pipeline or size >= PIPELINE_BYTES:
                self._flush(adder, rows, requests, places, keys, result, letters)
                requests, places, size = [], [], 0
        self._flush(adder, rows, requests, places, keys, result, letters)

    def _flush(
        self,
        adder: Adder,
        rows: pa.RecordBatch,
        requests: Sequence[tuple[Arg, ...]],
        places: Sequence[int],
        keys: RowKeys | None,
        result: Added,
        letters: DeadLetters | None,
    ) -> None:
        if not requests:
            return
        if self._best_for is not None:
            adder.meet(self._best_for)
        refused = adder.add(requests)
        if keys is not None and any(_no_unique(refusal) for refusal in refused):
            if self._strict:
                raise ModeError(f"mode: exactly-once is not possible: {NO_UNIQUE}")
            result.once = False
            refused = self._add_without_keys(adder, requests, keys, refused)
        result.added += len(requests) - len(refused)
        result.queues.update(request[1] for request in requests)
        result.queues.subtract(requests[place][1] for place, _ in refused)
        found = [Refusal(places[place], error) for place, error in refused]
        self._refuse(rows, found, result, letters)
        adder.turn()  # so that all nodes get the same share, however few tasks there are

    def _add_without_keys(
        self,
        adder: Adder,
        requests: Sequence[tuple[Arg, ...]],
        keys: RowKeys,
        refused: Sequence[Refusal],
    ) -> list[Refusal]:
        """Add jobs that were refused for their keys again, without keys. Returns what is still
        refused."""
        places = [refusal.place for refusal in refused if _no_unique(refusal)]
        again = adder.add([self._requests.without_key(requests[place], keys) for place in places])
        others = [refusal for refusal in refused if not _no_unique(refusal)]
        return sorted(others + [Refusal(places[place], error) for place, error in again])

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
                f"{len(refused)} rows were refused, the first with: {refused[0].error}"
            )
        for _, error in refused:
            result.refused[code_of(error)] += 1
            result.errors.setdefault(code_of(error), error)
        if letters is not None:
            letters.add(rows, [r.place for r in refused], [r.error for r in refused], self._queue)


class BatchWriter(Sink, DataSourceArrowWriter):
    """Writes a batch DataFrame."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Called by Spark when all tasks are done."""
        self.done(messages, None)


class StreamWriter(Sink, DataSourceStreamArrowWriter):
    """Writes a streaming DataFrame."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Called by Spark when all tasks of a batch are done."""
        self.done(messages, batchId)

    def _named(self, name: str | None) -> str:
        if name is not None:
            raise OptionError("writeId: for batch writes only; a stream uses its query's id")
        return ""

    def _written(self, context: TaskContext | None) -> str | None:
        """The query's id, which its checkpoint keeps, and the number of the batch."""
        query, batch = [
            context.getLocalProperty(name) if context else None for name in (QUERY, BATCH)
        ]
        return None if query is None or batch is None else f"{query}/{batch}"


def _no_unique(refusal: Refusal) -> bool:
    """Whether the node does not support UNIQUE, and so refuses all jobs with a key."""
    return code_of(refusal.error) == "NOEXT" or refusal.error.lower() == "err syntax error"
