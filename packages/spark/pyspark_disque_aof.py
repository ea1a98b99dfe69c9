"""Lets PySpark find ``disque-aof`` without a call of ``register``; see ``pyspark_disque``."""

from disque_spark.datasources.aof import AofSource as DefaultSource

__all__ = ["DefaultSource"]
