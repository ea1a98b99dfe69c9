"""Disque for Spark: what PySpark reads from nodes and their files, and writes into them.

Needs the extra ``spark``. The node itself never imports it. ``register`` makes all data sources
known to a session.
"""

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource

from disque_trio.spark.holder import ack, holding

__all__ = ["ack", "holding", "register", "sources"]


def sources() -> list[type[DataSource]]:
    """The data sources of this package."""
    from disque_trio.spark.aof import AofSource
    from disque_trio.spark.events import EventsSource
    from disque_trio.spark.read import DisqueSource
    from disque_trio.spark.tables import JobsSource, QueuesSource

    return [DisqueSource, JobsSource, QueuesSource, AofSource, EventsSource]


def register(spark: SparkSession) -> None:
    """Make ``spark.read.format("disque")`` and the others known to the session."""
    for source in sources():
        spark.dataSource.register(source)
