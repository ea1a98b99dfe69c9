"""Makes ``disque-queues`` known to PySpark without ``register``, see ``pyspark_disque``."""

from disque_trio.spark.datasources.tables import QueuesSource as DefaultSource

__all__ = ["DefaultSource"]
