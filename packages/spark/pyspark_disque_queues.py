"""Lets PySpark find ``disque-queues`` without a call of ``register``; see ``pyspark_disque``."""

from disque_spark.datasources.tables import QueuesSource as DefaultSource

__all__ = ["DefaultSource"]
