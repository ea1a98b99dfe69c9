"""Disque for Spark: reads from nodes and their files, and writes to nodes, with PySpark.

Needs the extra ``spark``. The node itself never imports it. ``register`` makes all data sources
known to a session.
"""

from typing import TYPE_CHECKING

from disque_trio.spark.defaults import DEFAULT_NODES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource

    from disque_trio.spark.leases.keeper import ack, holding

__all__ = ["DEFAULT_NODES", "ack", "holding", "register", "sources"]


def __getattr__(name: str) -> object:
    """``ack`` and ``holding`` are imported when they are used: the command can say what is not
    installed only if this module needs nothing."""
    if name not in ("ack", "holding"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from disque_trio.spark.leases import keeper

    return getattr(keeper, name)


def sources() -> "list[type[DataSource]]":
    """The data sources of this package."""
    from disque_trio.spark.datasources.aof import AofSource
    from disque_trio.spark.datasources.queues import DisqueSource
    from disque_trio.spark.datasources.tables import JobsSource, QueuesSource
    from disque_trio.spark.events import EventsSource

    return [DisqueSource, JobsSource, QueuesSource, AofSource, EventsSource]


def register(spark: "SparkSession") -> None:
    """Make ``spark.read.format("disque")`` and the others known to the session."""
    for source in sources():
        spark.dataSource.register(source)
