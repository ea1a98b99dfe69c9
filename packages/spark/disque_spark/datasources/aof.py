"""``disque-aof``: the jobs in the append-only files of nodes, a partition for each file.

A file is read twice when only live jobs are asked for: first for the ids, then for the jobs. So a
worker holds the ids of the live jobs of one file, about 200 bytes each, but no more than one batch
of jobs.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import cast

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from disque_spark.append_only import STATES, find_files, live_records, records
from disque_spark.files import Location
from disque_spark.options import (
    arrow_schema,
    batch_of,
    check_names,
    choice,
    number,
    paths_of,
    text,
)
from disque_trio.aof.format import AofError
from disque_trio.protocol.serialjob import SerialJobError, decode_job, split_nodes
from disque_trio.protocol.trailer import FLAG_TRAILER, split_body

AOF_SCHEMA = """
    file STRING NOT NULL, offset BIGINT NOT NULL, record STRING, id STRING, queue STRING,
    state STRING, repl INT, expires TIMESTAMP, ctime TIMESTAMP, delay BIGINT, retry BIGINT,
    nacks INT, additional_deliveries INT, nodes ARRAY<STRING>, body BINARY, error STRING
"""
AOF_OPTIONS = ("path", "records", "damaged", "batchSize")
BATCH_BYTES = 4 << 20
MOST_HOLDERS = 10_000  # size of the cache of sets of nodes


class AofSource(DataSource):
    """``disque-aof``: the jobs in append-only files."""

    @classmethod
    def name(cls) -> str:
        return "disque-aof"

    def schema(self) -> str:
        check_names(self.options, self.name(), AOF_OPTIONS)
        return AOF_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        check_names(self.options, self.name(), AOF_OPTIONS)
        return AofReader(schema, self.options)


class AofReader(DataSourceReader):
    """Reads append-only files.

    Options: ``path`` (files, or directories with ``*.aof`` files; wildcards are allowed),
    ``records`` (live: jobs that have not been deleted since; all: each LOADJOB and DELJOB),
    ``damaged`` (what to do at an unreadable record: fail, stop there, or report it in a row of its
    own), ``batchSize`` (the most rows of a record batch).
    """

    def __init__(self, schema: StructType, options: Mapping[str, str]) -> None:
        self._schema = schema
        self._paths = paths_of(options)
        self._all = choice(options, "records", "live", "all") == "all"
        self._damaged = choice(options, "damaged", "fail", "stop", "report")
        self._count = number(options, "batchSize", 5000)

    def partitions(self) -> list[InputPartition]:
        """A partition for each file."""
        return [InputPartition(file) for file in find_files(self._paths)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one file."""
        if partition.value is None:
            return
        schema = arrow_schema(self._schema)
        place: Location = partition.value
        batch = _Batch(schema, str(place))
        with place.open_input(0) as file:
            failure: AofError | None = None
            found = records(file, file.seek(0, 2)) if self._all else live_records(file)
            try:
                for offset, name, data in found:
                    if name == b"DELJOB":
                        batch.deleted(offset, data)
                    else:
                        batch.job(offset, data)
                    if len(batch.rows) >= self._count or batch.size >= BATCH_BYTES:
                        yield batch.take()
            except AofError as problem:
                failure = problem
        if failure is not None and self._damaged == "fail":
            raise AofError(failure.offset, f"{failure.reason} ({place})", failure.truncated)
        if failure is not None and self._damaged == "report":
            batch.damaged(failure)
        if batch.rows:
            yield batch.take()


def read_all(spark: SparkSession, files: Sequence[Location]) -> DataFrame:
    """All records of ``files``, as ``AofReader`` reads them with ``records=all`` and
    ``damaged=report``."""
    schema = cast(StructType, StructType.fromDDL(AOF_SCHEMA))
    reader = AofReader(schema, {"path": "/", "records": "all", "damaged": "report"})
    places = list(files)

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for place in batch.column(0).to_pylist():
                yield from reader.read(InputPartition(places[place]))

    return spark.range(0, len(places), 1, len(places)).mapInArrow(read, schema)


class _Batch:
    """Collects rows for a record batch.

    Attributes:
        rows: the rows so far, as tuples in the order of the schema.
        size: total size of their bodies in bytes.
    """

    def __init__(self, schema: pa.Schema, path: str) -> None:
        self._schema = schema
        self._path = path
        self.rows: list[tuple[object, ...]] = []
        self.size = 0

    def take(self) -> pa.RecordBatch:
        """Return the rows and clear them."""
        batch = batch_of(self.rows, self._schema)
        self.rows = []
        self.size = 0
        return batch

    def deleted(self, offset: int, id: bytes) -> None:
        """Add a DELJOB."""
        self.rows.append((self._path, offset, "DELJOB", id.decode("ascii"), *[None] * 12))

    def damaged(self, failure: AofError) -> None:
        """Add a row about damage in the file."""
        self.rows.append((self._path, failure.offset, *[None] * 13, failure.reason))

    def job(self, offset: int, data: bytes) -> None:
        """Add a LOADJOB. Raises AofError if its job cannot be read."""
        try:
            job = decode_job(data)
            if job.flags & FLAG_TRAILER:
                job.body, _ = split_body(job.body)
        except SerialJobError as problem:
            raise AofError(offset, str(problem), False) from problem
        self.rows.append(
            (
                self._path,
                offset,
                "LOADJOB",
                job.id.decode("ascii", "backslashreplace"),
                text(job.queue),
                STATES[job.state],
                job.repl,
                job.etime * 1_000_000,
                job.ctime // 1000,
                job.delay,
                job.retry,
                job.nacks,
                job.deliveries,
                _holders(job.nodes),
                job.body,
                None,
            )
        )
        self.size += len(job.body)


@lru_cache(MOST_HOLDERS)  # most jobs have the same ones
def _holders(nodes: bytes) -> list[str]:
    """The ids of the nodes that hold a job."""
    return [id.decode("ascii", "backslashreplace") for id in split_nodes(nodes)]
