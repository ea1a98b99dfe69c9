"""Disque for PySpark: reads jobs, queues and files of nodes, and writes jobs.

Needs the extra ``spark``. Nodes never import this package. Call ``register`` to make all data
sources available in a session.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from disque_spark.defaults import DEFAULT_NODES
from disque_spark.missing import advice

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource

    from disque_spark.catalog import views
    from disque_spark.leases.keeper import ack, holding
    from disque_spark.processing.job import Failed, Job
    from disque_spark.processing.run import process

__all__ = [
    "DEFAULT_NODES",
    "Failed",
    "Job",
    "ack",
    "holding",
    "process",
    "register",
    "sources",
    "views",
]

_MODULES = {
    "ack": "leases.keeper",
    "holding": "leases.keeper",
    "Failed": "processing.job",
    "Job": "processing.job",
    "process": "processing.run",
    "views": "catalog",
}


def __getattr__(name: str) -> object:
    """Import names that need PySpark on first use. Importing this module needs nothing, so that
    ``disque-pipeline`` can say what is not installed.

    Raises:
        ImportError: PySpark or one of its dependencies is missing; the text says how to install it.
    """
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    except ModuleNotFoundError as missing:
        raise _explained(missing) from missing


def sources() -> "list[type[DataSource]]":
    """The data sources of this package.

    Raises:
        ImportError: PySpark or one of its dependencies is missing; the text says how to install it.
    """
    try:
        from disque_spark.datasources.aof import AofSource
        from disque_spark.datasources.queues import DisqueSource
        from disque_spark.datasources.tables import JobsSource, QueuesSource
        from disque_spark.events import EventsSource
    except ModuleNotFoundError as missing:
        raise _explained(missing) from missing

    return [DisqueSource, JobsSource, QueuesSource, AofSource, EventsSource]


def _explained(missing: ModuleNotFoundError) -> ImportError:
    text = advice(missing, "disque_spark")
    return missing if text is None else ImportError(text)


def register(spark: "SparkSession") -> None:
    """Register all data sources of this package, such as ``spark.read.format("disque")``, with a
    session. With Spark Connect, this also sends the package to the server, for its Python workers.
    """
    from disque_spark.package import is_remote, send_package, zipped

    if is_remote(spark):
        send_package(spark)
    elif (file := zipped()) is not None:
        from disque_spark.classic import search_file

        search_file(spark, file)
    for source in sources():
        spark.dataSource.register(source)
