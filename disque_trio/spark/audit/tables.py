"""Reads the tables of an audit, wherever their files are."""

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import DateType

from disque_trio.spark.audit.findings import FINDING_SCHEMA
from disque_trio.spark.audit.held import TABLE_SCHEMA
from disque_trio.spark.audit.jobs import JOB_SCHEMA
from disque_trio.spark.audit.manifest import FINDINGS, HELD_JOBS, JOBS, MINUTES
from disque_trio.spark.audit.queue_minutes import TABLE_SCHEMA as MINUTE_SCHEMA
from disque_trio.spark.audit.store import Store, StoreError

SCHEMAS = {
    JOBS: JOB_SCHEMA,
    MINUTES: MINUTE_SCHEMA,
    FINDINGS: FINDING_SCHEMA,
    HELD_JOBS: TABLE_SCHEMA,
}


def table_files(output: Path, name: str) -> list[Path]:
    """The files of a table of the current version of an audit.

    Args:
        name: ``jobs``, ``queue_minutes``, ``findings`` or ``held``.

    Raises:
        StoreError: there is no audit in the directory ``output``.
    """
    store = Store(output)
    current = store.current
    if current is None:
        raise StoreError(f"no audit at {output}")
    if store.manifest.parts:
        return sorted(current.glob(f"{name}/**/*.parquet"))
    return store.paths(name)


def read_table(spark: SparkSession, output: Path, name: str) -> DataFrame:
    """A table of the current version of an audit, with the column ``day`` if it has days.

    Raises:
        StoreError: there is no audit in the directory ``output``.
    """
    schema = from_arrow_schema(SCHEMAS[name])
    files = [str(path) for path in table_files(output, name)]
    if name != HELD_JOBS:
        schema = schema.add("day", DateType())
    reader = spark.read.schema(schema)
    if not files:
        return spark.createDataFrame([], schema)
    place = output / "data" / name
    if place.is_dir():
        reader = reader.option("basePath", str(place))
    return reader.parquet(*files)
