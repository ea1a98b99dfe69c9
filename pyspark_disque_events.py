"""Makes ``disque-events`` known to PySpark without ``register``, see ``pyspark_disque``."""

from disque_trio.spark.events import EventsSource as DefaultSource

__all__ = ["DefaultSource"]
