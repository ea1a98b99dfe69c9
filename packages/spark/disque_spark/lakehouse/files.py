"""The files of a batch: tasks write them to a staging directory, the driver merges small ones."""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import reduce
from typing import BinaryIO, NamedTuple
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from disque_spark.files import Location
from disque_spark.lakehouse.columns import BAD, DAY, QUEUE, VALUE, fitted, plain, widened

SMALL = 32 << 20  # bytes; files of a queue and day in a batch that are smaller in total are merged
COMPRESSION = "snappy"
ROW_GROUP_ROWS = 1 << 20
ROW_GROUP_BYTES = 64 << 20  # in memory
_READ_BYTES = 8 << 20  # in memory, of rows read at a time
_READ_ROWS = 1 << 16
# The columns of what a task reports for each file.
WRITTEN = (
    "name STRING, queue STRING, day STRING, rows BIGINT, size BIGINT, undecoded BIGINT, bad BIGINT"
)


class DataFile(NamedTuple):
    """A Parquet file with jobs of a queue and a day (ISO), in the directory of its batch. ``size``
    is in bytes; ``undecoded`` is the number of bodies that could not be decoded, ``bad`` that of
    fields that could not."""

    name: str
    queue: str
    day: str
    rows: int
    size: int
    undecoded: int = 0
    bad: int = 0


class TaskWriter:
    """Writes the rows of a task, with a file for each queue and day: for ``mapInArrow``.

    Attempts of a task write different files, whose names begin with the number of the task. Only
    files that Spark returns to the driver count.

    Args:
        directory: a directory that executors and the driver share.
        whole: also write the columns ``queue`` and ``day``; otherwise they are only in the path, or
            in the table's log.
    """

    def __init__(self, directory: Location, whole: bool) -> None:
        self._directory = directory
        self._whole = whole

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext  # only tasks need it

        context = TaskContext.get()
        task = context.partitionId() if context else 0
        files: dict[tuple[str, str], OpenFile] = {}
        with ExitStack() as stack:
            for rows in batches:
                for key, part in self._split(rows):
                    file = files.get(key)
                    if file is None:
                        path = self._directory / f"{task:05}-{uuid4().hex}.parquet"
                        file = files[key] = stack.enter_context(OpenFile(path))
                    file.add(part)
        if files:
            done = [DataFile(file.path.name, *key, *file.counts) for key, file in files.items()]
            yield pa.RecordBatch.from_pylist([file._asdict() for file in done])

    def _split(self, rows: pa.RecordBatch) -> Iterator[tuple[tuple[str, str], pa.RecordBatch]]:
        names = [name for name in rows.schema.names if self._whole or name not in (QUEUE, DAY)]
        schema = plain(rows.select(names).schema)
        queues, days = rows.column(QUEUE), rows.column(DAY)
        for day in pc.unique(days):
            for queue in pc.unique(queues):
                chosen = pc.and_(pc.equal(queues, queue), pc.equal(days, day))
                part = rows.select(names).filter(chosen)
                if part.num_rows:
                    yield (queue.as_py(), day.as_py().isoformat()), fitted(part, schema)


class OpenFile:
    """A Parquet file being written, in row groups that fit into memory. Without the column ``BAD``,
    which is only counted."""

    def __init__(self, path: Location, schema: pa.Schema | None = None) -> None:
        self.path = path
        self._rows = self._size = self._undecoded = self._bad = 0
        self._schema = schema
        self._file: BinaryIO | None = None
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[pa.RecordBatch] = []
        self._bytes = self._count = 0

    @property
    def counts(self) -> tuple[int, int, int, int]:
        """How many rows were written, the size in bytes (known at the end of the block), and how
        many bodies and fields could not be decoded."""
        return self._rows, self._size, self._undecoded, self._bad

    def __enter__(self) -> "OpenFile":
        return self

    def __exit__(self, *_: object) -> None:
        self._flush()
        if self._writer is not None:
            self._writer.close()
        if self._file is not None:
            self._file.close()
            self._size = self.path.size()

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows."""
        names = rows.schema.names
        self._rows += rows.num_rows
        if VALUE in names:
            self._undecoded += rows.column(VALUE).null_count
        if BAD in names:
            self._bad += pc.sum(rows.column(BAD)).as_py() or 0
            rows = rows.drop_columns([BAD])
        self._waiting.append(rows)
        self._bytes += rows.nbytes
        self._count += rows.num_rows
        if self._bytes >= ROW_GROUP_BYTES or self._count >= ROW_GROUP_ROWS:
            self._flush()

    def _flush(self) -> None:
        if not self._waiting:
            return
        if self._writer is None:
            schema = self._schema or self._waiting[0].schema
            self._file = self.path.open_output()
            self._writer = pq.ParquetWriter(
                self._file, schema, compression=COMPRESSION, store_schema=False
            )
        rows = pa.Table.from_batches(self._waiting)
        self._writer.write_table(rows, row_group_size=max(1, rows.num_rows))
        self._waiting, self._bytes, self._count = [], 0, 0


def merged(sources: Sequence[Location], target: Location) -> tuple[int, int]:
    """Write the rows of several files into one, in order. Returns the number of its rows, and its
    size in bytes. Needs memory for one row group, however large the files are."""
    schema = schema_of(sources)
    with OpenFile(target, schema) as file:
        for source in sources:
            for rows in read(source):
                file.add(fitted(rows, schema))
    return file.counts[:2]


def schema_of(sources: Iterable[Location]) -> pa.Schema:
    """The columns of all files.

    Raises:
        TableError: a column has different types.
    """
    schemas = []
    for source in sources:
        with source.open_input() as file:
            schemas.append(plain(pq.read_schema(file)))
    return reduce(lambda one, other: widened("these files", one, other), schemas)


def read(path: Location) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file, a few MB at a time."""
    with path.open_input() as opened, pq.ParquetFile(opened) as file:
        groups = [file.metadata.row_group(n) for n in range(file.metadata.num_row_groups)]
        rows = sum(group.num_rows for group in groups)
        size = sum(group.total_byte_size for group in groups)
        if rows:
            at_once = max(1, min(_READ_ROWS, _READ_BYTES * rows // max(size, 1)))
            yield from file.iter_batches(at_once)


def few(files: Sequence[DataFile], directory: Location) -> list[DataFile]:
    """Merge the files of a queue and day in a batch if they are small together. Returns the files
    of the batch, in the order of its tasks."""
    together: dict[tuple[str, str], list[DataFile]] = {}
    for file in sorted(files):
        together.setdefault((file.queue, file.day), []).append(file)
    found: list[DataFile] = []
    for key, own in together.items():
        if len(own) == 1 or sum(file.size for file in own) > SMALL:
            found += own
            continue
        path = directory / f"{uuid4().hex}.parquet"
        rows, size = merged([directory / file.name for file in own], path)
        found.append(DataFile(path.name, *key, rows, size))
    return found


def placed(source: Location, target: Location) -> None:
    """Move a file atomically and durably; replaces a file that has the name.

    Sets its time to now: old files that a table does not refer to are removed, and writing a batch
    may have taken hours.
    """
    if source.local is not None:
        os.utime(source.local)
    source.sync()
    while True:
        target.parent.make_directory()
        try:
            source.rename(target)
            break
        except FileNotFoundError:  # a compaction has removed the empty directory
            if not source.exists():
                raise
    with suppress(FileNotFoundError):
        target.parent.sync()
