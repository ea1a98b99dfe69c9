"""The data sources ``disque``, ``disque-jobs``, ``disque-queues`` and ``disque-aof``.

``disque-events`` is in ``disque_spark.events``.
"""
