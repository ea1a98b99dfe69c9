"""Where the work of an audit is done: in this process, or on Spark.

The work is the same: tasks, which are Python functions that read and write files and yield a few
rows; these may contain whole tables (``packed``). Steps bring rows of the same bucket together and
yield others. An ``Engine`` runs tasks and steps, and returns the rows of the last step.
"""

import os
import tempfile
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from disque_spark.terminal import TerminalProgress

MOST_THREADS = 4  # each task holds about 200 MB
SPILL_BYTES = 192 << 20  # size of the rows between two steps from which on they go to files
BUCKET = "bucket"


@dataclass(frozen=True)
class Tasks:
    """Tasks with numbers.

    Attributes:
        count: number of tasks.
        run: the rows of a task, from its number, as record batches.
        schema: of these.
    """

    count: int
    run: Callable[[int], Iterator[pa.RecordBatch]]
    schema: pa.Schema

    def plus(self, other: "Tasks") -> "Tasks":
        """These tasks and others, whose rows have the same schema."""
        first, one, two = self.count, self.run, other.run

        def run(number: int) -> Iterator[pa.RecordBatch]:
            return one(number) if number < first else two(number - first)

        return Tasks(first + other.count, run, self.schema)


class Step(NamedTuple):
    """What is done with rows that have been brought together.

    Attributes:
        buckets: number of buckets. The rows' column ``bucket`` has numbers below that.
        merge: is passed all rows of one or more whole buckets, and yields the rows of the step.
        schema: of these.
    """

    buckets: int
    merge: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
    schema: pa.Schema


class Engine(ABC):
    """Runs tasks and steps.

    Attributes:
        settings: settings for remote file systems, see ``files.location``.
        failures: exceptions of the engine itself; doing the work again may help.
    """

    settings: Mapping[str, str]
    failures: tuple[type[Exception], ...] = ()

    def is_gone(self) -> bool:
        """Whether the engine has ended for good."""
        return False

    @property
    @abstractmethod
    def cores(self) -> int:
        """How many tasks run at the same time."""

    @abstractmethod
    def rows(self, tasks: Tasks, *steps: Step) -> pa.Table:
        """The rows of the last step, or of the tasks if there are no steps.

        Raises:
            SegmentError, OSError, ...: what a task raised; see each engine.
        """

    @abstractmethod
    def shown_by(self, progress: "TerminalProgress") -> AbstractContextManager[None]:
        """Let ``progress`` show the share of the work that is done, during a block."""


class LocalEngine(Engine):
    """Runs tasks in threads of this process: pyarrow and numpy let other threads run meanwhile.

    Args:
        threads: None: one for each core, but not many, since each needs memory.
        settings: settings for remote file systems.
    """

    def __init__(
        self, threads: int | None = None, settings: Mapping[str, str] | None = None
    ) -> None:
        self._threads = threads or min(len(os.sched_getaffinity(0)), MOST_THREADS)
        self.settings = settings or {}
        self._done = self._all = 0

    @property
    def cores(self) -> int:
        return self._threads

    def share(self) -> float | None:
        """The share of the current work that is done, 0 to 1; None: there is none."""
        return self._done / self._all if self._all else None

    def shown_by(self, progress: "TerminalProgress") -> AbstractContextManager[None]:
        return progress.showing(self.share)

    def rows(self, tasks: Tasks, *steps: Step) -> pa.Table:
        """See ``Engine``. Exceptions of tasks are raised unchanged."""
        self._done, self._all = 0, tasks.count + sum(step.buckets for step in steps)
        try:
            with ExitStack() as stack:
                batches = self._run(range(tasks.count), tasks.run)
                schema = tasks.schema
                for step in steps:
                    shuffled = stack.enter_context(Shuffle(step.buckets, schema))
                    for batch in batches:
                        shuffled.add(batch)
                    self._done += step.buckets - len(shuffled.found())
                    merge = _merging(step, shuffled)
                    batches, schema = self._run(shuffled.found(), merge), step.schema
                return pa.Table.from_batches(batches, schema)
        finally:
            self._all = 0

    def _run(
        self, numbers: Iterable[int], task: Callable[[int], Iterator[pa.RecordBatch]]
    ) -> Iterator[pa.RecordBatch]:
        """The batches of tasks, in the order of their numbers."""
        if self._threads == 1:
            for number in numbers:
                yield from task(number)
                self._done += 1
            return
        pool = ThreadPoolExecutor(self._threads, "audit")
        waiting: deque[Future[list[pa.RecordBatch]]] = deque()
        left = iter(numbers)
        try:
            while True:
                # One more than the threads, so that none of them waits for the others' rows.
                for number in islice(left, self._threads + 1 - len(waiting)):
                    waiting.append(pool.submit(_all_of, task, number))
                if not waiting:
                    return
                yield from waiting.popleft().result()
                self._done += 1
        finally:
            pool.shutdown(cancel_futures=True)


def _all_of(task: Callable[[int], Iterator[pa.RecordBatch]], number: int) -> list[pa.RecordBatch]:
    return list(task(number))


def _merging(step: Step, shuffled: "Shuffle") -> Callable[[int], Iterator[pa.RecordBatch]]:
    return lambda bucket: step.merge(shuffled.take(bucket))


class Shuffle:
    """Rows on their way to buckets: in memory, or if there are many, in temporary files.

    Args:
        buckets: number of buckets.
        schema: schema of the rows; ``bucket`` is one of the columns.
    """

    def __init__(self, buckets: int, schema: pa.Schema) -> None:
        self._schema = schema
        self._held: list[list[pa.RecordBatch]] = [[] for _ in range(buckets)]
        self._size = 0
        self._directory: tempfile.TemporaryDirectory[str] | None = None
        self._writers: dict[int, pa.RecordBatchStreamWriter] = {}

    def __enter__(self) -> "Shuffle":
        return self

    def __exit__(self, *_: object) -> None:
        self._close()
        if self._directory is not None:
            self._directory.cleanup()

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows."""
        places = rows.column(BUCKET).to_numpy()
        for bucket in np.unique(places).tolist():
            mine = rows if len(places) == 1 else rows.filter(pc.equal(rows.column(BUCKET), bucket))
            self._held[bucket].append(mine)
        self._size += rows.nbytes
        if self._size > SPILL_BYTES:
            self._spill()

    def found(self) -> list[int]:
        """The buckets that have rows."""
        return [bucket for bucket, held in enumerate(self._held) if held or bucket in self._writers]

    def take(self, bucket: int) -> Iterator[pa.RecordBatch]:
        """The rows of a bucket, once, after all have been added."""
        held, self._held[bucket] = self._held[bucket], []
        writer = self._writers.pop(bucket, None)
        if writer is not None:
            writer.close()
            path = self._path(bucket)
            with pa.OSFile(str(path)) as file, pa.ipc.open_stream(file) as reader:
                yield from reader
            path.unlink()
        held.reverse()
        while held:  # whoever is passed a batch decides how long to keep it
            yield held.pop()

    def _spill(self) -> None:
        if self._directory is None:
            self._directory = tempfile.TemporaryDirectory(prefix="disque-audit-")
        for bucket, held in enumerate(self._held):
            if not held:
                continue
            if bucket not in self._writers:
                self._writers[bucket] = pa.ipc.new_stream(self._path(bucket), self._schema)
            for rows in held:
                self._writers[bucket].write_batch(rows)
            held.clear()
        self._size = 0

    def _path(self, bucket: int) -> Path:
        assert self._directory is not None
        return Path(self._directory.name, f"{bucket}.arrows")

    def _close(self) -> None:
        for writer in self._writers.values():
            writer.close()


def packed(table: pa.Table) -> bytes:
    """Serialize a table, to pass it to the next step."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def unpacked(data: bytes) -> pa.Table:
    """Deserialize a table from ``packed``."""
    with pa.ipc.open_stream(data) as reader:
        return reader.read_all()
