"""Both engines, for whoever is passed one or the other."""

from typing import TYPE_CHECKING

from disque_spark.audit.engine import Engine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def engine_of(given: "Engine | SparkSession") -> Engine:
    """An engine, or the engine of a Spark session."""
    if isinstance(given, Engine):
        return given
    from disque_spark.audit.spark_engine import SparkEngine

    return SparkEngine(given)
