"""Lets PySpark find ``disque-jobs`` without a call of ``register``; see ``pyspark_disque``."""

from disque_spark.datasources.tables import JobsSource as DefaultSource

__all__ = ["DefaultSource"]
