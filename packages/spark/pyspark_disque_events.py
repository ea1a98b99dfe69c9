"""Lets PySpark find ``disque-events`` without a call of ``register``; see ``pyspark_disque``."""

from disque_spark.events import EventsSource as DefaultSource

__all__ = ["DefaultSource"]
