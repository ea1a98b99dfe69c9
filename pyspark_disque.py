"""Makes the data source ``disque`` known to PySpark without ``register``.

PySpark imports what is called ``pyspark_*`` when a session first asks for a data source in Python,
and takes the class ``DefaultSource`` of it: one a module. So each source has a module of its own.
"""

from disque_trio.spark.datasources.queues import DisqueSource as DefaultSource

__all__ = ["DefaultSource"]
