"""Makes ``disque-jobs`` known to PySpark without ``register``, see ``pyspark_disque``."""

from disque_trio.spark.datasources.tables import JobsSource as DefaultSource

__all__ = ["DefaultSource"]
