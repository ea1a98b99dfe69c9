"""Reads the tables of an audit, on any file system."""

from typing import TYPE_CHECKING

import pyarrow as pa

from disque_spark.audit.findings import FINDING_SCHEMA
from disque_spark.audit.held import TABLE_SCHEMA
from disque_spark.audit.jobs import JOB_SCHEMA
from disque_spark.audit.manifest import FINDINGS, HELD_JOBS, JOBS, MINUTES, TICKS
from disque_spark.audit.queue_minutes import TABLE_SCHEMA as MINUTE_SCHEMA
from disque_spark.audit.store import Store, StoreError
from disque_spark.audit.ticks import TICK_SCHEMA
from disque_spark.files import Location, Place, location, settings_of
from disque_spark.parquet import read_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_DAY = pa.field("day", pa.date32())
COLUMNS = {
    JOBS: JOB_SCHEMA.append(_DAY),
    MINUTES: MINUTE_SCHEMA.append(_DAY),
    FINDINGS: FINDING_SCHEMA.append(_DAY),
    HELD_JOBS: TABLE_SCHEMA,
    TICKS: TICK_SCHEMA.append(_DAY),
}


def table_files(output: Place, name: str) -> list[Location]:
    """The files of a table of the current version of an audit.

    Args:
        output: the audit's directory.
        name: ``jobs``, ``queue_minutes``, ``findings``, ``ticks`` or ``held``.

    Raises:
        StoreError: there is no audit in the directory.
    """
    store = Store(output)
    current = store.current
    if current is None:
        raise StoreError(f"no audit at {output}")
    if store.manifest.parts:
        return (location(current) / name / "**" / "*.parquet").glob()
    return store.paths(name)


def read_table(spark: "SparkSession", output: Place, name: str) -> "DataFrame":
    """A table of the current version of an audit, with the column ``day`` if it has days.

    Raises:
        StoreError: there is no audit in the directory.
    """
    place = location(output, settings_of(spark))
    base = place / "data" / name
    files = table_files(place, name)
    return read_files(spark, files, COLUMNS[name], base if base.is_dir() else None)
