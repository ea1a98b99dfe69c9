"""``disque-aof``: the jobs in the append-only files of nodes, a partition for each file.

A file is read twice when only live jobs are asked for: first for the ids, then for the jobs. So a
worker holds the ids of the live jobs of one file, about 200 bytes each, but no more than one batch
of jobs.
"""

from collections.abc import Iterator, Mapping
from glob import glob, has_magic
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from disque_trio.aof.format import AofError, RecordReader
from disque_trio.protocol.serialjob import SerialJobError, decode_fields, split_nodes
from disque_trio.spark.options import arrow_schema, choice, number, paths_of, text
from disque_trio.spark.pushdown import STATES

AOF_SCHEMA = """
    file STRING NOT NULL, offset BIGINT NOT NULL, record STRING, id STRING, queue STRING,
    state STRING, repl INT, expires TIMESTAMP, ctime TIMESTAMP, delay BIGINT, retry BIGINT,
    nacks INT, additional_deliveries INT, nodes ARRAY<STRING>, body BINARY, error STRING
"""
BATCH_BYTES = 4 << 20
MOST_HOLDERS = 10_000  # sets of nodes that are remembered
_ID_AT = 4  # in a serialised job
_ID_LENGTH = 40


class AofSource(DataSource):
    """``disque-aof``: what is in append-only files."""

    @classmethod
    def name(cls) -> str:
        return "disque-aof"

    def schema(self) -> str:
        return AOF_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        return AofReader(schema, self.options)


class AofReader(DataSourceReader):
    """Reads append-only files.

    Options: ``path`` (files, or directories that have ``*.aof``; may have wildcards), ``records``
    (live: jobs that were not deleted since; all: each LOADJOB and DELJOB), ``damaged`` (what to do
    where a record cannot be read: fail, stop there, or report it in a row of its own),
    ``batchSize`` (rows in a batch, at most).
    """

    def __init__(self, schema: StructType, options: Mapping[str, str]) -> None:
        self._schema = schema
        self._paths = paths_of(options)
        self._all = choice(options, "records", "live", "all") == "all"
        self._damaged = choice(options, "damaged", "fail", "stop", "report")
        self._count = number(options, "batchSize", 5000)

    def partitions(self) -> list[InputPartition]:
        """A partition for each file."""
        return [InputPartition(str(path)) for path in find_files(self._paths)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one file."""
        if partition.value is None:
            return
        schema = arrow_schema(self._schema)
        batch = _Batch(schema, partition.value)
        with Path(partition.value).open("rb", buffering=0) as file:
            failure: AofError | None = None
            live: dict[bytes, int] | None = None
            if self._all:
                end = file.seek(0, 2)
                file.seek(0)
            else:
                live, end, failure = live_jobs(file)
                file.seek(0)
            try:
                for offset, name, data in records(file, end):
                    if name == b"DELJOB":
                        if live is None:
                            batch.deleted(offset, data)
                    elif live is None or live.get(data[_ID_AT : _ID_AT + _ID_LENGTH]) == offset:
                        batch.job(offset, data)
                    if len(batch.rows) >= self._count or batch.size >= BATCH_BYTES:
                        yield batch.take()
            except AofError as problem:
                failure = problem
        if failure is not None and self._damaged == "fail":
            raise AofError(
                failure.offset, f"{failure.reason} ({partition.value})", failure.truncated
            )
        if failure is not None and self._damaged == "report":
            batch.damaged(failure)
        if batch.rows:
            yield batch.take()


def find_files(paths: list[str]) -> list[Path]:
    """The append-only files at ``paths``: files whatever they are called, and in directories those
    that end with .aof.

    Raises:
        FileNotFoundError: there is none at one of ``paths``.
    """
    found: set[Path] = set()
    for path in paths:
        entries = glob(path, recursive=True) if has_magic(path) else [path]  # noqa: PTH207
        here: set[Path] = set()
        for entry in map(Path, entries):
            if entry.is_dir():
                here.update(entry.glob("*.aof"))
            elif entry.exists():
                here.add(entry)
        if not here:
            raise FileNotFoundError(f"no append-only file at {path}")
        found |= here
    return sorted(found)


def records(file: BinaryIO, end: int) -> Iterator[tuple[int, bytes, bytes]]:
    """The records that begin before ``end``: offset, name, and the job or one id. A DELJOB of
    several ids is as many records.

    Raises:
        AofError: one cannot be read.
    """
    reader = RecordReader(file)
    offset = 0
    for command in reader:
        if offset >= end:
            return  # written since
        name = command[0].upper()
        if name == b"LOADJOB" and len(command) == 2 and command[1][_ID_AT : _ID_AT + 2] == b"D-":
            yield offset, name, command[1]
        elif name == b"DELJOB" and all(_is_id(id) for id in command[1:]):
            for id in command[1:]:
                yield offset, name, id
        else:
            raise AofError(offset, f"not a record: {command[0][:40]!r}", False)
        offset = reader.offset


def live_jobs(file: BinaryIO) -> tuple[dict[bytes, int], int, AofError | None]:
    """Where the jobs are that were not deleted since; where the good part of the file ends; and
    what is wrong behind it."""
    live: dict[bytes, int] = {}
    end = file.seek(0, 2)
    file.seek(0)
    try:
        for offset, name, data in records(file, end):
            if name == b"DELJOB":
                live.pop(data, None)
            else:
                # As a node that loads the file: a job that it has is not taken again.
                live.setdefault(data[_ID_AT : _ID_AT + _ID_LENGTH], offset)
    except AofError as failure:
        return live, failure.offset, failure
    return live, end, None


class _Batch:
    """Rows until there are enough of them.

    Attributes:
        rows: those that are not taken yet, as tuples in the order of the schema.
        size: bytes of their bodies.
    """

    def __init__(self, schema: pa.Schema, path: str) -> None:
        self._schema = schema
        self._path = path
        self._nodes: dict[bytes, list[str]] = {}  # most jobs have the same ones
        self.rows: list[tuple[object, ...]] = []
        self.size = 0

    def take(self) -> pa.RecordBatch:
        """The rows, which are forgotten."""
        columns = zip(*self.rows, strict=True)
        batch = pa.RecordBatch.from_arrays(
            [
                pa.array(column, field.type)
                for column, field in zip(columns, self._schema, strict=True)
            ],
            schema=self._schema,
        )
        self.rows = []
        self.size = 0
        return batch

    def deleted(self, offset: int, id: bytes) -> None:
        """Add a DELJOB."""
        self.rows.append((self._path, offset, "DELJOB", id.decode("ascii"), *[None] * 12))

    def damaged(self, failure: AofError) -> None:
        """Add what is wrong with the file."""
        self.rows.append((self._path, failure.offset, *[None] * 13, failure.reason))

    def job(self, offset: int, data: bytes) -> None:
        """Add a LOADJOB. Raises AofError when its job cannot be read."""
        try:
            fields = decode_fields(data)
        except SerialJobError as problem:
            raise AofError(offset, str(problem), False) from problem
        id, state, _, _, repl, etime, ctime, delay, retry, nacks, extra, queue, body, nodes = fields
        self.rows.append(
            (
                self._path,
                offset,
                "LOADJOB",
                id.decode("ascii", "backslashreplace"),
                text(queue),
                STATES[state],
                repl,
                etime * 1_000_000,
                ctime // 1000,
                delay,
                retry,
                nacks,
                extra,
                self._holders(nodes),
                body,
                None,
            )
        )
        self.size += len(body)

    def _holders(self, nodes: bytes) -> list[str]:
        known = self._nodes.get(nodes)
        if known is None:
            if len(self._nodes) > MOST_HOLDERS:
                self._nodes.clear()
            ids = split_nodes(nodes)
            known = self._nodes[nodes] = [id.decode("ascii", "backslashreplace") for id in ids]
        return known


def _is_id(word: bytes) -> bool:
    return len(word) == _ID_LENGTH and word[:2] == b"D-" and word.isascii()
