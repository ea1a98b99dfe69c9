"""Reads and writes Parquet files on any file system.

Spark itself reads local files. For remote ones it would need Hadoop's library for the file system
(hadoop-aws for S3), which may not be installed, so tasks read them with pyarrow.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from disque_spark.files import Location
from disque_spark.filesystems import FAILURES, in_a_line

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 50_000  # rows in a record batch
_NULL = "__HIVE_DEFAULT_PARTITION__"


def read_files(
    spark: "SparkSession",
    files: Sequence[Location],
    schema: pa.Schema,
    base: Location | None = None,
    name: str | None = None,
) -> "DataFrame":
    """The rows of ``files``.

    Args:
        schema: the columns. A column that a file lacks comes from the names of its directories
            (``day=2026-01-31``), or is null.
        base: the directory that contains those directories; None: there are none.
        name: name of an additional column, for the name of a row's file; None: no such column.
    """
    from pyspark.sql import functions as f
    from pyspark.sql.pandas.types import from_arrow_schema

    frame_schema = from_arrow_schema(schema)
    whole = schema if name is None else schema.append(pa.field(name, pa.string()))
    if not files:
        return spark.createDataFrame([], from_arrow_schema(whole))
    if all(file.local is not None for file in files):
        reader = spark.read.schema(frame_schema)
        if base is not None:
            reader = reader.option("basePath", base.uri)
        rows = reader.parquet(*[file.uri for file in files])
        if name is not None:
            rows = rows.select(*schema.names, f.col("_metadata.file_name").alias(name))
        return rows
    places = list(files)

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from rows_of(places[number], whole, name)

    numbers = spark.range(0, len(places), 1, len(places))
    return numbers.mapInArrow(read, from_arrow_schema(whole))


def rows_of(file: Location, schema: pa.Schema, name: str | None = None) -> Iterator[pa.RecordBatch]:
    """The rows of a file, as in ``read_files``.

    Raises:
        OSError: the file cannot be read; the text, one line, names it.
    """
    said = _partition_of(file)
    if name is not None:
        said[name] = file.name
    with parquet_file(file) as parquet:
        names = [name for name in schema.names if name in parquet.schema_arrow.names]
        for batch in parquet.iter_batches(ROWS, columns=names):
            columns = [
                batch.column(field.name).cast(field.type)
                if field.name in names
                else pa.repeat(
                    pa.scalar(said.get(field.name), pa.string()).cast(field.type), len(batch)
                )
                for field in schema
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)


@contextmanager
def parquet_file(place: Location) -> Iterator[Any]:
    """Open a ``pyarrow.parquet.ParquetFile`` for reading.

    Raises:
        OSError: the file cannot be read, now or in the block; the text, one line, names it.
    """
    there = place.filesystem()
    try:
        # Read ahead from remote files, with few requests.
        far = place.local is None
        with pq.ParquetFile(there.path, filesystem=there.system, pre_buffer=far) as file:
            yield file
    except FAILURES as problem:
        raise in_a_line(str(place), place.authority, problem) from problem


def write_file(place: Location, rows: pa.Table, **options: Any) -> None:
    """Write a new file. Creates its directory.

    Args:
        options: options of ``pyarrow.parquet.write_table``.

    Raises:
        OSError: the file cannot be written; the text, one line, names it.
    """
    place.parent.make_directory()
    there = place.filesystem()
    try:
        pq.write_table(rows, there.path, filesystem=there.system, **options)
    except FAILURES as problem:
        raise in_a_line(str(place), place.authority, problem) from problem


def _partition_of(file: Location) -> dict[str, str | None]:
    """Partition values from the names of a file's directories: ``queue=a%3Ab/day=2026-01-31``."""
    parts = [part.partition("=") for part in file.path.split("/")[:-1]]
    return {
        name: None if value == _NULL else unquote(value)
        for name, equals, value in parts
        if name and equals
    }
