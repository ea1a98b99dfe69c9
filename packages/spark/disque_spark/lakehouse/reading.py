"""Reads archives as DataFrames, without Spark's own libraries for their formats."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import date

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from disque_spark.defaults import PARQUET
from disque_spark.files import Location
from disque_spark.lakehouse.bodies import value_type
from disque_spark.lakehouse.columns import BAD, BASE, DAY, QUEUE, VALUE, fitted
from disque_spark.lakehouse.files import read
from disque_spark.lakehouse.formats import table_of
from disque_spark.lakehouse.settings import TableSettings, table_failures
from disque_spark.lakehouse.table import TableFile
from disque_spark.options import arrow_schema

# An explicit schema: Spark would turn a queue named 007 into the number 7.
_SCHEMA = """
    id STRING, body BINARY, nacks INT, additional_deliveries INT, node STRING, ctime TIMESTAMP,
    archived_at TIMESTAMP, {more} queue STRING, day DATE
"""
_FILES_A_TASK = 16


def read_table(
    spark: SparkSession, directory: Location, settings: TableSettings, catalog: Mapping[str, str]
) -> DataFrame:
    """The rows of an archive's table.

    Raises:
        TableError: a package that the format needs is not installed, or the table uses features
            that are not supported.
    """
    more = {**settings.columns}
    if settings.body is not None:
        more[VALUE] = value_type(settings.body)
    columns = _SCHEMA.format(more="".join(f"`{name}` {kind}, " for name, kind in more.items()))
    if settings.format == PARQUET and directory.local is not None:
        return spark.read.schema(columns).parquet(str(directory))
    schema = spark.createDataFrame([], columns).schema
    with table_failures(str(directory)):
        files = table_of(directory, settings, catalog).files()
    parts = max(1, -(-len(files) // _FILES_A_TASK))
    numbers = spark.range(0, len(files), 1, parts)
    return numbers.mapInArrow(FileReader(files, arrow_schema(schema)), schema)


def more_columns(schema: StructType) -> dict[str, str]:
    """Columns that not all archives have, except the decoded bodies, and their SQL types."""
    known = {*BASE.names, QUEUE, DAY, VALUE, BAD}
    return {
        column.name: column.dataType.simpleString() for column in schema if column.name not in known
    }


class FileReader:
    """Reads files by their indexes: for ``mapInArrow``."""

    def __init__(self, files: Sequence[TableFile], schema: pa.Schema) -> None:
        self._files = files
        self._schema = schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from rows_of(self._files[number], self._schema)


def rows_of(file: TableFile, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a file with these columns, including ``queue`` and ``day`` even if the file does
    not have them."""
    for rows in read(file.path):
        if file.queue is not None and file.day is not None:
            count = rows.num_rows
            columns = {name: rows.column(name) for name in rows.schema.names}
            columns[QUEUE] = pa.repeat(file.queue, count)
            columns[DAY] = pa.repeat(pa.scalar(date.fromisoformat(file.day)), count)
            rows = pa.RecordBatch.from_pydict(columns)
        yield fitted(rows, schema)
