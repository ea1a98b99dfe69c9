"""Makes ``disque-aof`` known to PySpark without ``register``, see ``pyspark_disque``."""

from disque_trio.spark.datasources.aof import AofSource as DefaultSource

__all__ = ["DefaultSource"]
