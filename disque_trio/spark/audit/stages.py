"""The work of an audit as stages of Spark: tasks read files and write files themselves, with
pyarrow; what goes from one stage to the next are a few rows with whole tables in them. So Spark
divides the work, repeats tasks that failed and moves the tables, and no row goes through the JVM.

Partial jobs come together in buckets, by a hash of their ids.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import IntegerType

from disque_trio.spark.audit.jobs import JOB_SCHEMA, PARTIAL_SCHEMA, fold, jobs_of
from disque_trio.spark.audit.partial_jobs import Notes, Seen, cut, read
from disque_trio.spark.options import batch_of
from disque_trio.spark.segments import Piece

ROWS = 100_000  # of a file that are held at once, where rows do not depend on each other
_SEEN = [*((name, pa.int64()) for name in Seen._fields), ("notes", pa.string())]
_BUCKETED = pa.schema([("bucket", pa.int32()), ("partial", pa.binary()), *_SEEN])
# Others have too many values for a dictionary to be of use.
_WITH_DICTIONARY = [
    "queue",
    "group",
    "ended",
    *(f"{field.name}.list.element" for field in JOB_SCHEMA if field.type == pa.list_(pa.string())),
]


def part_of(jobs: Path, number: int) -> Path:
    """Where a part of the table of jobs is."""
    return jobs / f"part={number}"


def read_jobs(spark: SparkSession, path: Path) -> DataFrame:
    """The table of jobs at ``path``; there may be none."""
    schema = from_arrow_schema(JOB_SCHEMA).add("part", IntegerType())
    return spark.read.schema(schema).parquet(str(path))


def partial_of_segments(
    spark: SparkSession, files: Iterable[Path], nodes: Sequence[str], buckets: int
) -> DataFrame:
    """Partial jobs, in buckets, of the events in some segments."""
    slices = cut(files)
    names = list(nodes)

    def task(number: int) -> Iterator[pa.RecordBatch]:
        pieces: list[Piece] = slices[number]
        yield _bucketed(*read(pieces, names), buckets)

    return tasks(spark, len(slices), task, _BUCKETED)


def partial_of_jobs(spark: SparkSession, files: Iterable[Path], buckets: int) -> DataFrame:
    """Jobs of the table, as the partial jobs that they are when there are more events."""
    paths = [str(path) for path in files]

    def task(number: int) -> Iterator[pa.RecordBatch]:
        with pq.ParquetFile(paths[number]) as file:
            for batch in file.iter_batches(ROWS, columns=PARTIAL_SCHEMA.names):
                rows = _partial(pa.Table.from_batches([batch]))
                yield _bucketed(rows, Seen(), None, buckets)

    return tasks(spark, len(paths), task, _BUCKETED)


def _partial(jobs: pa.Table) -> pa.Table:
    """Jobs of the table as partial jobs. Older versions lack columns that were added since."""
    columns = [
        jobs.column(name) if name in jobs.column_names else pa.nulls(len(jobs))
        for name in PARTIAL_SCHEMA.names
    ]
    return pa.table(columns, names=PARTIAL_SCHEMA.names).cast(PARTIAL_SCHEMA)


def write_jobs(
    partial: DataFrame, nodes: Sequence[str], buckets: int, jobs: Path, number: int
) -> tuple[Seen, Notes]:
    """Put the partial jobs together and write them. Jobs that are complete are in the part
    ``number``, the others in the next one: most of what later events change is there.

    Returns:
        What was in the lines, if they came from lines.
    """
    together = jobs_written(partial, nodes, buckets, jobs, number)
    for part in (number, number + 1):
        part_of(jobs, part).mkdir(parents=True)
    seen, notes = Seen(), Notes()
    for row in together.collect():
        seen = seen.plus(Seen(*(row[name] for name in Seen._fields)))
        notes.add(row["notes"] or "")
    for part in (number, number + 1):
        for file in part_of(jobs, part).glob(".*"):  # of an attempt that was given up
            file.unlink()
        if not any(part_of(jobs, part).iterdir()):
            part_of(jobs, part).rmdir()
    return seen, notes


def jobs_written(
    partial: DataFrame, nodes: Sequence[str], buckets: int, jobs: Path, number: int
) -> DataFrame:
    """What ``write_jobs`` does, before it is done."""
    names = list(nodes)
    parts = [str(part_of(jobs, part)) for part in (number, number + 1)]

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tables: dict[int, list[pa.Table]] = {}
        seen = Seen()
        notes: list[str] = []
        for batch in batches:
            for row in batch.to_pylist():
                tables.setdefault(row["bucket"], []).append(unpacked(row["partial"]))
                seen = seen.plus(Seen(*(row[name] for name in Seen._fields)))
                notes += [row["notes"]] if row["notes"] else []
        for bucket in list(tables):
            whole = jobs_of(fold(pa.concat_tables(tables.pop(bucket))), names)
            complete = whole.column("complete")
            for part, rows in zip(parts, (complete, pc.invert(complete)), strict=True):
                _write(whole.filter(rows), Path(part) / f"jobs-{bucket:05}.parquet")
        yield batch_of([(*seen, "\n".join(notes))], pa.schema(_SEEN))

    together = partial.repartitionById(buckets, "bucket")
    return together.mapInArrow(write, from_arrow_schema(pa.schema(_SEEN)))


def scan(
    spark: SparkSession,
    files: Iterable[Path],
    columns: Sequence[str],
    map: Callable[[pa.RecordBatch], pa.RecordBatch],
    schema: pa.Schema,
) -> DataFrame:
    """What ``map`` makes of the jobs in some files, many at a time."""
    paths = [str(path) for path in files]
    wanted = list(columns)

    def task(number: int) -> Iterator[pa.RecordBatch]:
        with pq.ParquetFile(paths[number]) as file:
            for batch in file.iter_batches(ROWS, columns=wanted):
                if batch.num_rows:
                    yield map(batch)

    return tasks(spark, len(paths), task, schema)


def tasks(
    spark: SparkSession,
    count: int,
    task: Callable[[int], Iterator[pa.RecordBatch]],
    schema: pa.Schema,
) -> DataFrame:
    """The rows of ``count`` tasks, each told its number."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from task(number)

    numbers = spark.range(0, count, 1, max(count, 1))
    return numbers.mapInArrow(run, from_arrow_schema(schema))


def _bucketed(partial: pa.Table, seen: Seen, notes: Notes | None, buckets: int) -> pa.RecordBatch:
    """A row for each bucket. What was seen counts with the first of them."""
    hashes = hashes_of(partial.column("id").combine_chunks())
    place = (hashes % np.uint64(buckets)).astype(np.int64)
    order = np.argsort(place, kind="stable")
    ends = np.cumsum(np.bincount(place, minlength=buckets))
    ordered = partial.take(pa.array(order))
    rows = []
    start = 0
    for bucket, end in enumerate(ends.tolist()):
        if end > start or bucket == 0:
            mine = seen if bucket == 0 else Seen()
            text = notes.text() if notes and bucket == 0 else None
            rows.append((bucket, packed(ordered.slice(start, end - start)), *mine, text))
        start = end
    return batch_of(rows, _BUCKETED)


def hashes_of(texts: pa.Array) -> npt.NDArray[np.uint64]:
    """The same for a text in all processes; no null may be among them."""
    objects = texts.to_numpy(zero_copy_only=False)
    hashes: npt.NDArray[np.uint64] = pd.util.hash_array(objects, categorize=False)
    return hashes


def packed(table: pa.Table) -> bytes:
    """A table as it goes from one stage to the next."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def unpacked(data: bytes) -> pa.Table:
    """What was ``packed``."""
    with pa.ipc.open_stream(data) as reader:
        return reader.read_all()


def _write(jobs: pa.Table, path: Path) -> None:
    """All of the file or nothing, also when the task is running twice."""
    if not len(jobs):
        return
    new = path.with_name(f".{path.name}.{uuid4().hex}")
    pq.write_table(jobs, new, use_dictionary=_WITH_DICTIONARY)
    new.rename(path)
