"""Lets PySpark find the data source ``disque`` without a call of ``register``.

When a session first looks up a Python data source, PySpark imports all modules named ``pyspark_*``
and takes the class ``DefaultSource`` from each. So each source needs a module of its own.
"""

from disque_spark.datasources.queues import DisqueSource as DefaultSource

__all__ = ["DefaultSource"]
